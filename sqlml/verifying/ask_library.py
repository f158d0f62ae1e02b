"""Get the predictions of a model from its source library.

A child process imports this module, so imports must stay fast.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sqlml.errors import VerificationError
from sqlml.importers.onnx.labels import find_label_columns, is_score_name
from sqlml.types import Array

if TYPE_CHECKING:  # pandas is optional: without pandas, models are registered unverified.
    import pandas as pd

    from sqlml.ir.program import Program


@dataclass(frozen=True, slots=True)
class PredictionRequest:
    """The predictions that a library must make; `labels` are the classes of the first target."""

    outputs: tuple[str, ...]
    has_classes: bool
    text_columns: tuple[str, ...]
    has_only_numbers: bool
    labels: tuple[Any, ...] = ()

    @classmethod
    def for_program(cls, program: Program) -> PredictionRequest:
        kinds = {feature.name: feature.kind for feature in program.features}
        return cls(
            tuple(program.outputs),
            bool(program.labels),
            tuple(name for name, kind in kinds.items() if kind == "string"),
            all(kind == "number" for kind in kinds.values()),
            program.labels[0].values if program.labels else (),
        )


Predictions = dict[str, Array]
"""Map an output to numbers (n, k) or labels (n, targets)."""


def has_source(model: Any) -> bool:
    """Return whether `predict_with_library` returns comparable results for `model`."""
    return find_family(model) is not None and _get_step_class(model) not in _INCOMPARABLE_CLASSES


def predict_with_library(
    model: Any, frame: pd.DataFrame, request: PredictionRequest
) -> Predictions:
    """Return all outputs of the source model for a frame with the model's columns."""
    family = find_family(model)
    if family is None:
        raise VerificationError(f"sqlml cannot get the predictions of a {type(model).__name__}")
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            outputs = FAMILIES[family](model, frame, request)
            return {name: _to_matrix(value) for name, value in outputs.items()}
    except Exception as error:  # A library may raise any exception for rows that it rejects.
        reason = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
        problem = "the model's own library cannot score these rows"
        raise VerificationError(f"{problem}: {reason}") from error


def find_family(model: Any) -> str | None:
    """Return the package in `FAMILIES` that defines the model's class, or None if unknown."""
    packages = (cls.__module__.split(".")[0] for cls in type(model).__mro__)
    return next((package for package in packages if package in FAMILIES), None)


def _to_matrix(value: Any) -> Array:
    if isinstance(value, list):  # The list has an array for each target.
        value = np.concatenate(value, axis=1)
    value = value.toarray() if hasattr(value, "toarray") else np.asarray(value)
    return np.asarray(value.reshape(len(value), -1))


METHODS: Mapping[str, str] = {
    "label": "predict",
    "proba": "predict_proba",
    "score": "decision_function",
    "samples": "score_samples",
    "transform": "transform",
}
"""Map an output to the method of scikit-learn, and of `Scorer`, that returns it."""


def _predict_sklearn(model: Any, frame: pd.DataFrame, request: PredictionRequest) -> Predictions:
    methods = {o: getattr(model, name, None) for o, name in METHODS.items() if o in request.outputs}

    def call_methods(rows: Any) -> Predictions:
        return {output: method(rows) for output, method in methods.items() if method is not None}

    if _get_step_class(model) in _ONE_COLUMN_CLASSES:
        return call_methods(frame.iloc[:, 0])
    if not hasattr(model, "feature_names_in_") and request.has_only_numbers:
        with suppress(Exception):  # A custom step may read its columns by name.
            return call_methods(frame.to_numpy(np.float64))
    return call_methods(frame)


_ONE_COLUMN_CLASSES = frozenset(
    ("CountVectorizer", "HashingVectorizer", "TfidfVectorizer", "LabelBinarizer", "LabelEncoder")
)
"""Scikit-learn classes that take a sequence of values instead of a table."""

_INCOMPARABLE_CLASSES = frozenset(("KernelDensity", "LabelBinarizer"))
"""Classes with outputs that cannot be compared. KernelDensity approximates densities far from all
points, and outputs of LabelBinarizer depend on the labels in the batch."""


def _get_step_class(model: Any) -> str:
    while hasattr(model, "steps"):
        model = model.steps[0][1]
    return type(model).__name__


def _predict_xgboost(model: Any, frame: pd.DataFrame, request: PredictionRequest) -> Predictions:
    import xgboost

    # Boosters are trained on strings as categories.
    frame = frame.astype(dict.fromkeys(request.text_columns, "category"))
    if isinstance(model, xgboost.Booster):
        x: Any = frame if model.feature_names else frame.set_axis(range(frame.shape[1]), axis=1)
        dmatrix = xgboost.DMatrix(x, enable_categorical=True)
        dmatrix.feature_names = model.feature_names
        predictions = model.predict(dmatrix)
        margins = model.predict(dmatrix, output_margin=True)
        return {**_read_booster_predictions(np.asarray(predictions), request), "score": margins}
    has_names = getattr(model, "feature_names_in_", None) is not None
    x = frame if has_names else frame.to_numpy(np.float64)
    outputs = {"label": model.predict(x), "score": model.predict(x, output_margin=True)}
    return outputs | ({"proba": model.predict_proba(x)} if "proba" in request.outputs else {})


def _read_booster_predictions(predictions: Array, request: PredictionRequest) -> Predictions:
    if not request.has_classes:
        return {"label": predictions}
    if predictions.ndim == 1:
        predictions = np.stack([1 - predictions, predictions], axis=1)
    return {"proba": predictions}


def _predict_lightgbm(model: Any, frame: pd.DataFrame, request: PredictionRequest) -> Predictions:
    import pandas as pd

    booster = getattr(model, "booster_", model)
    categories = getattr(booster, "pandas_categorical", None) or []
    for name, values in zip(request.text_columns, categories, strict=False):
        frame = frame.assign(**{name: pd.Categorical(frame[name], categories=values)})
    score = model.predict(frame, raw_score=True)
    if booster is model:
        return {**_read_booster_predictions(model.predict(frame), request), "score": score}
    outputs = {"label": model.predict(frame), "score": score}
    return outputs | ({"proba": model.predict_proba(frame)} if "proba" in request.outputs else {})


def _predict_catboost(model: Any, frame: pd.DataFrame, request: PredictionRequest) -> Predictions:
    x = frame.fillna(dict.fromkeys(request.text_columns, "")) if request.text_columns else frame
    for name in frame.columns[model.get_cat_feature_indices()]:
        column = x[name]
        # CatBoost rejects floats as categories.
        if name not in request.text_columns and (column % 1 == 0).all():
            x = x.assign(**{str(name): column.astype("int64")})
    score = model.predict(x, prediction_type="RawFormulaVal")
    outputs = {"label": model.predict(x), "score": score}
    if "proba" in request.outputs:
        outputs["proba"] = model.predict(x, prediction_type="Probability")
    return outputs


def _predict_statsmodels(
    model: Any, frame: pd.DataFrame, request: PredictionRequest
) -> Predictions:
    statsmodel = model.model
    # These arguments select the linear predictor; least squares has no such argument.
    is_linear = type(statsmodel).__module__.startswith("statsmodels.regression")
    predictor_arguments = {} if is_linear else {"which": "linear"}
    if getattr(statsmodel, "formula", None) is not None:
        return {"label": model.predict(frame), "score": model.predict(frame, **predictor_arguments)}
    names = iter(frame.columns)
    columns = []
    for name, weight in zip(statsmodel.exog_names, np.asarray(model.params), strict=True):
        column = 1.0 if name in ("const", "Intercept") else frame[next(names)].to_numpy(float)
        # Columns with weight 0 are not read, because 0 times NaN would be NaN.
        columns.append(np.broadcast_to(column if weight else 0.0, len(frame)))
    x = np.column_stack(columns)
    return {"label": model.predict(x), "score": model.predict(x, **predictor_arguments)}


def _predict_onnx(model: Any, frame: pd.DataFrame, request: PredictionRequest) -> Predictions:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    # With several threads, sums differ between runs, and so do labels at ties.
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    content, providers = model.SerializeToString(), ["CPUExecutionProvider"]
    session = onnxruntime.InferenceSession(content, options, providers=providers)
    shapes = [graph_input.shape for graph_input in session.get_inputs()]
    batch_size = next((s[0] for s in shapes if s and isinstance(s[0], int)), None)
    batches = [frame]
    if batch_size is not None:  # The last batch is padded with the first rows.
        starts = range(0, len(frame), batch_size)
        batches = [frame.iloc[np.arange(s, s + batch_size) % len(frame)] for s in starts]
    outputs = [_run_onnx_batch(session, batch, request) for batch in batches]
    values = [np.concatenate(batch)[: len(frame)] for batch in zip(*outputs, strict=True)]
    return _assign_onnx_outputs(session.get_outputs(), values, request)


def _assign_onnx_outputs(
    outputs: Sequence[Any], values: Sequence[Array], request: PredictionRequest
) -> Predictions:
    predictions: Predictions = {}
    scores = {}
    map_names = {output.name for output in outputs if output.type.startswith("seq(map")}
    for output, value in zip(outputs, values, strict=True):
        if value.dtype.kind == "f":
            scores[output.name] = value
        else:
            predictions.setdefault("label", value)
    if len(outputs) == 1 or not (predictions or request.has_classes):
        return {request.outputs[0]: values[0]}
    label_columns = find_label_columns(scores, request.labels)
    if label_columns:
        return {**predictions, "proba": np.concatenate([scores[n] for n in label_columns], axis=1)}
    for name, value in scores.items():
        has_classes = request.has_classes and value.shape[1] == len(request.labels)
        is_proba = (name in map_names or has_classes) and not is_score_name(name)
        predictions.setdefault("proba" if is_proba else "score", value)
    return predictions


def _run_onnx_batch(session: Any, frame: pd.DataFrame, request: PredictionRequest) -> list[Array]:
    feed, first_column = {}, 0
    inputs = session.get_inputs()
    widths = [math.prod(size for size in i.shape[1:] if isinstance(size, int)) for i in inputs]
    for graph_input, width in zip(inputs, widths, strict=True):
        if not all(isinstance(size, int) for size in graph_input.shape[1:]):
            width += frame.shape[1] - sum(widths)  # This input gets the remaining columns.
        dtype = _ONNX_TYPES[graph_input.type]
        columns = frame.iloc[:, first_column : first_column + width]
        array = columns.to_numpy(object if dtype == "object" else np.float64).astype(dtype)
        shape = [size if isinstance(size, int) else -1 for size in graph_input.shape[1:]]
        feed[graph_input.name] = array.reshape(len(frame), *shape)
        first_column += width
    outputs = [_order_by_label(output, request.labels) for output in session.run(None, feed)]
    return [output.reshape(len(frame), -1) if output.size else output for output in outputs]


def _order_by_label(output: Any, labels: Sequence[Any]) -> Array:
    """Return an ONNX output as an array; a list of maps becomes a column per key."""
    if not isinstance(output, list):
        return np.asarray(output)
    keys = dict.fromkeys([*labels, *(key for row in output for key in row)])
    return np.array([[row.get(key, np.nan) for key in keys] for row in output], np.float32)


_ONNX_TYPES: Mapping[str, str] = {
    "tensor(string)": "object",
    "tensor(float)": "float32",
    "tensor(double)": "float64",
    **{f"tensor({t})": t for t in ("float16", "int8", "int16", "int32", "int64", "bool")},
}


def _predict_torch(model: Any, frame: pd.DataFrame, request: PredictionRequest) -> Predictions:
    import torch

    module = model.module() if isinstance(model, torch.export.ExportedProgram) else model
    dtype = next((parameter.dtype for parameter in module.parameters()), torch.float32)
    x = torch.from_numpy(frame.to_numpy(np.float64)).to(dtype)
    was_training = getattr(module, "training", False)
    try:
        if module is model:
            module.eval()
        with torch.no_grad():
            predictions = module(x).numpy()
    finally:
        if module is model:
            module.train(was_training)
    return {request.outputs[0]: predictions}


def _predict_skorch(model: Any, frame: pd.DataFrame, request: PredictionRequest) -> Predictions:
    dtype = next((str(p.dtype) for p in model.module_.parameters()), "torch.float32")
    x = frame.to_numpy(np.float64).astype(dtype.removeprefix("torch."))
    outputs = {"label": model.predict(x)}
    return outputs | ({"proba": model.predict_proba(x)} if "proba" in request.outputs else {})


def _predict_pyspark(model: Any, frame: pd.DataFrame, request: PredictionRequest) -> Predictions:
    # The Spark importer is slow to import.
    from sqlml.verifying.spark_session import predict_with_spark

    return predict_with_spark(model, frame, request)


Predictor = Callable[[Any, "pd.DataFrame", PredictionRequest], Predictions]

FAMILIES: Mapping[str, Predictor] = {
    "sklearn": _predict_sklearn,
    "xgboost": _predict_xgboost,
    "lightgbm": _predict_lightgbm,
    "catboost": _predict_catboost,
    "onnx": _predict_onnx,
    "skorch": _predict_skorch,
    "statsmodels": _predict_statsmodels,
    "torch": _predict_torch,
    "pyspark": _predict_pyspark,
}
"""Map the package of a model's class to a function that returns predictions."""
