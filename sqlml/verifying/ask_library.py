"""`answers`: predictions of the library that a model came from, by the library's own methods.

A separate process imports this module: it must stay light.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from sqlml.errors import VerificationError
from sqlml.importers.onnx.labels import columns_of_labels, is_score
from sqlml.types import Array
from sqlml.verifying.compare import Asked

if TYPE_CHECKING:  # a model is registered without pandas, too; then there is nothing to compare
    import pandas as pd


Answers = dict[str, Array]
"""Output -> numbers (n, k), or labels (n, targets)."""


def has_source(model: Any) -> bool:
    """Whether `answers` knows how to ask a model."""
    return family_of(model) is not None and _first_step(model) not in _OF_THEIR_OWN


def answers(model: Any, frame: pd.DataFrame, asked: Asked) -> Answers:
    """All outputs of the source model for the rows of a frame, which has the model's own columns.

    Raises:
        VerificationError: there is no way to ask it, or its library refuses such rows.
    """
    family = family_of(model)
    if family is None:
        raise VerificationError(f"cannot ask a {type(model).__name__} for its predictions")
    try:
        with _quiet():
            made = FAMILIES[family](model, frame, asked)
            return {name: _matrix(value) for name, value in made.items()}
    except Exception as error:  # a library raises what it likes of rows that it does not score
        reason = (str(error).splitlines() or [""])[0]
        raise VerificationError(
            f"the model's own library does not score these rows: {type(error).__name__}: {reason}"
        ) from error


def family_of(model: Any) -> str | None:
    """The package of `FAMILIES` that a model is of."""
    packages = (c.__module__.split(".")[0] for c in type(model).__mro__)
    return next((package for package in packages if package in FAMILIES), None)


@contextmanager
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield


def _matrix(value: Any) -> Array:
    if isinstance(value, list):  # an array for each target
        value = np.concatenate(value, axis=1)
    value = value.toarray() if hasattr(value, "toarray") else np.asarray(value)
    return np.asarray(value.reshape(len(value), -1))


METHODS = MappingProxyType(
    {
        "label": "predict",
        "proba": "predict_proba",
        "score": "decision_function",
        "samples": "score_samples",
        "transform": "transform",
    }
)
"""Output -> the method of scikit-learn that gives it; a Scorer has the same."""


def _sklearn(model: Any, frame: pd.DataFrame, asked: Asked) -> Answers:
    has = {o: m for o, m in METHODS.items() if o in asked.outputs and hasattr(model, m)}
    if _first_step(model) in _OF_ONE_COLUMN:
        return _said(model, has, frame.iloc[:, 0])
    if hasattr(model, "feature_names_in_") or not asked.numbers:
        return _said(model, has, frame)
    try:
        return _said(model, has, frame.to_numpy(np.float64))
    except Exception:  # a step of the user's own may read its columns by name
        return _said(model, has, frame)


def _said(model: Any, methods: Mapping[str, str], rows: Any) -> Answers:
    return {output: getattr(model, method)(rows) for output, method in methods.items()}


_OF_ONE_COLUMN = frozenset(
    (
        "CountVectorizer",
        "HashingVectorizer",
        "LabelBinarizer",
        "LabelEncoder",
        "TfidfVectorizer",
    )
)
"""Classes of scikit-learn that take a sequence of values and no table."""


_OF_THEIR_OWN = frozenset(("KernelDensity", "LabelBinarizer"))
"""Classes whose answers cannot be compared: bounds, far from all points, and what depends on the
number of labels in the batch."""


def _first_step(model: Any) -> str:
    while hasattr(model, "steps"):
        model = model.steps[0][1]
    return type(model).__name__


def _categories(frame: pd.DataFrame, asked: Asked) -> pd.DataFrame:
    """The frame with strings as categories, as boosters were given them."""
    texts = asked.texts
    return frame.astype(dict.fromkeys(texts, "category")) if texts else frame


def _xgboost(model: Any, frame: pd.DataFrame, asked: Asked) -> Answers:
    import xgboost

    frame = _categories(frame, asked)
    if isinstance(model, xgboost.Booster):
        x: Any = frame if model.feature_names else frame.set_axis(range(frame.shape[1]), axis=1)
        data = xgboost.DMatrix(x, enable_categorical=True)
        data.feature_names = model.feature_names
        made = model.predict(data)
        score = model.predict(data, output_margin=True)
        return {**_of_booster(np.asarray(made), asked), "score": score}
    named = getattr(model, "feature_names_in_", None) is not None
    x = frame if named else frame.to_numpy(np.float64)
    found = {"label": model.predict(x), "score": model.predict(x, output_margin=True)}
    return found | ({"proba": model.predict_proba(x)} if "proba" in asked.outputs else {})


def _of_booster(made: Array, asked: Asked) -> Answers:
    """What a booster without a wrapper predicts: probabilities, where the model has classes."""
    if not asked.classes:
        return {"label": made}
    if made.ndim == 1:
        made = np.stack([1 - made, made], axis=1)
    return {"proba": made}


def _lightgbm(model: Any, frame: pd.DataFrame, asked: Asked) -> Answers:
    import pandas as pd

    booster = getattr(model, "booster_", model)
    known = getattr(booster, "pandas_categorical", None) or []
    for name, values in zip(asked.texts, known, strict=False):
        frame = frame.assign(**{name: pd.Categorical(frame[name], categories=values)})
    score = model.predict(frame, raw_score=True)
    if booster is model:
        return {**_of_booster(model.predict(frame), asked), "score": score}
    found = {"label": model.predict(frame), "score": score}
    return found | ({"proba": model.predict_proba(frame)} if "proba" in asked.outputs else {})


def _catboost(model: Any, frame: pd.DataFrame, asked: Asked) -> Answers:
    x = frame.fillna(dict.fromkeys(asked.texts, "")) if asked.texts else frame
    for name in frame.columns[model.get_cat_feature_indices()]:
        column = x[name]
        if name not in asked.texts and (column % 1 == 0).all():  # it takes no floats there
            x = x.assign(**{str(name): column.astype("int64")})
    found = {"label": model.predict(x), "score": model.predict(x, prediction_type="RawFormulaVal")}
    if "proba" in asked.outputs:
        found["proba"] = model.predict(x, prediction_type="Probability")
    return found


def _statsmodels(model: Any, frame: pd.DataFrame, asked: Asked) -> Answers:
    design = model.model
    linear = {} if type(design).__module__.startswith("statsmodels.regression") else LINEAR
    if getattr(design, "formula", None) is not None:
        return {"label": model.predict(frame), "score": model.predict(frame, **linear)}
    given = iter(frame.columns)
    columns = []
    for name, weight in zip(design.exog_names, np.asarray(model.params), strict=True):
        column = 1.0 if name in ("const", "Intercept") else frame[next(given)].to_numpy(float)
        # A column without a weight is not read, where 0 times NaN would be NaN.
        columns.append(np.broadcast_to(column if weight else 0.0, len(frame)))
    x = np.column_stack(columns)
    return {"label": model.predict(x), "score": model.predict(x, **linear)}


LINEAR = {"which": "linear"}
"""What statsmodels' predict takes for the linear predictor, but for least squares."""


def _onnx(model: Any, frame: pd.DataFrame, asked: Asked) -> Answers:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    # With several threads, sums differ from one run to the next, and with them labels at ties.
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    ports = session.get_inputs()
    fixed = next((p.shape[0] for p in ports if p.shape and isinstance(p.shape[0], int)), None)
    parts = [frame] if fixed is None else _filled_up(frame, fixed)
    made = [_onnx_part(session, part, asked) for part in parts]
    joined = [np.concatenate(values)[: len(frame)] for values in zip(*made, strict=True)]
    return _onnx_outputs(session.get_outputs(), joined, asked)


def _onnx_outputs(ports: Sequence[Any], values: Sequence[Array], asked: Asked) -> Answers:
    """The outputs of a graph, (n, k) each, as the importer tells labels and scores apart."""
    found: Answers = {}
    scores = {}
    maps = {port.name for port in ports if port.type.startswith("seq(map")}
    for name, value in zip([port.name for port in ports], values, strict=True):
        if value.dtype.kind == "f":
            scores[name] = value
        else:
            found.setdefault("label", value)
    if len(ports) == 1 or not (found or asked.classes):
        return {asked.outputs[0]: values[0]}
    columns = columns_of_labels(scores, asked.labels)
    if columns:
        return {**found, "proba": np.concatenate([scores[n] for n in columns], axis=1)}
    for name, value in scores.items():
        one_each = name in maps or (asked.classes and value.shape[1] == len(asked.labels))
        found.setdefault("proba" if one_each and not is_score(name) else "score", value)
    return found


def _filled_up(frame: pd.DataFrame, rows: int) -> list[pd.DataFrame]:
    """Parts of just so many rows; the last one has rows of the first again."""
    return [
        frame.iloc[np.arange(start, start + rows) % len(frame)]
        for start in range(0, len(frame), rows)
    ]


def _onnx_part(session: Any, frame: pd.DataFrame, asked: Asked) -> list[Array]:
    feed, taken = {}, 0
    ports = session.get_inputs()
    fixed = [math.prod(d for d in p.shape[1:] if isinstance(d, int)) for p in ports]
    for port, width in zip(ports, fixed, strict=True):
        if not all(isinstance(d, int) for d in port.shape[1:]):  # it takes the other columns
            width = frame.shape[1] - sum(fixed) + width
        part = _ONNX_TYPES[port.type](frame.iloc[:, taken : taken + width])
        dims = [d if isinstance(d, int) else -1 for d in port.shape[1:]]
        feed[port.name] = part.reshape(len(frame), *dims)
        taken += width
    made = [_by_label(m, asked.labels) for m in session.run(None, feed)]
    return [m.reshape(len(frame), -1) if m.size else m for m in made]


def _by_label(made: Any, labels: Sequence[Any]) -> Array:
    """An output as an array: of maps, a row each, the numbers of the labels in their order, and
    those of other keys after them."""
    if not isinstance(made, list):
        return np.asarray(made)
    keys = dict.fromkeys([*labels, *(key for row in made for key in row)])
    return np.array([[row.get(key, np.nan) for key in keys] for row in made], np.float32)


def _numbers(dtype: str) -> Callable[[pd.DataFrame], Array]:
    return lambda part: part.to_numpy(np.float64).astype(dtype)


_ONNX_TYPES: Mapping[str, Callable[[pd.DataFrame], Array]] = MappingProxyType(
    {
        "tensor(float)": _numbers("float32"),
        "tensor(double)": _numbers("float64"),
        "tensor(float16)": _numbers("float16"),
        "tensor(int8)": _numbers("int8"),
        "tensor(int16)": _numbers("int16"),
        "tensor(int64)": _numbers("int64"),
        "tensor(int32)": _numbers("int32"),
        "tensor(bool)": _numbers("bool"),
        "tensor(string)": lambda part: part.to_numpy(object),
    }
)


def _torch(model: Any, frame: pd.DataFrame, asked: Asked) -> Answers:
    import torch

    module = model.module() if isinstance(model, torch.export.ExportedProgram) else model
    kind = next((p.dtype for p in module.parameters()), torch.float32)
    x = torch.from_numpy(frame.to_numpy(np.float64)).to(kind)
    training = getattr(module, "training", False)
    try:
        if module is model:
            module.eval()
        with torch.no_grad():
            made = module(x).numpy()
    finally:
        if module is model:
            module.train(training)
    return {asked.outputs[0]: made}


def _skorch(model: Any, frame: pd.DataFrame, asked: Asked) -> Answers:
    kind = next((str(p.dtype) for p in model.module_.parameters()), "torch.float32")
    x = frame.to_numpy(np.float64).astype(kind.removeprefix("torch."))
    found = {"label": model.predict(x)}
    return found | ({"proba": model.predict_proba(x)} if "proba" in asked.outputs else {})


def _pyspark(model: Any, frame: pd.DataFrame, asked: Asked) -> Answers:
    from sqlml.verifying.spark_session import spark_answers  # it knows the importer: not light

    return spark_answers(model, frame, asked)


FAMILIES: Mapping[str, Callable[[Any, pd.DataFrame, Asked], Answers]] = MappingProxyType(
    {
        "sklearn": _sklearn,
        "xgboost": _xgboost,
        "lightgbm": _lightgbm,
        "catboost": _catboost,
        "onnx": _onnx,
        "skorch": _skorch,
        "statsmodels": _statsmodels,
        "torch": _torch,
        "pyspark": _pyspark,
    }
)
"""The package of a model's class -> how its models are asked."""
