"""Importers of CatBoost's estimators and JSON files."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

from sqlml.errors import ArtifactError, UnsupportedModelError
from sqlml.importers.catboost.columns import Lookup, Split
from sqlml.importers.catboost.document import CatBoostModel, compact, read_document
from sqlml.importers.frame import Frame, Outputs, Schema, coded_columns, labels_of
from sqlml.importers.model_checks import unfitted
from sqlml.importers.untrusted_documents import read_json
from sqlml.ir.builder import Builder, Value
from sqlml.ir.hashes import city_hash32
from sqlml.ir.operators.categories import MOST_WHOLE, Combination, packed
from sqlml.ir.operators.categories import hashes as hashes_of
from sqlml.types import Array, Labels

# What each loss function of CatBoost does with the raw values.
#
# Source: catboost/libs/eval_result/eval_helpers.cpp, and CatBoostRegressor's default prediction.


Task = Literal["regression", "classes", "multilabel"]
Output = Literal["identity", "exp", "uncertainty", "sigmoid", "softmax"]

_REGRESSION: tuple[Task, Output] = ("regression", "identity")
_IDENTITY = (
    "RMSE MAE Quantile MultiQuantile GroupQuantile LogLinQuantile Expectile MAPE RMSPE Lq Huber "
    "LogCosh Cox SurvivalAft MultiRMSE MultiRMSEWithMissingValues QueryRMSE QuerySoftMax "
    "QueryCrossEntropy PairLogit PairLogitPairwise YetiRank YetiRankPairwise StochasticFilter "
    "StochasticRank LambdaMart UserPerObjMetric UserQuerywiseMetric PythonUserDefinedPerObject "
    "PythonUserDefinedMultiTarget"
).split()

LOSSES: Mapping[str, tuple[Task, Output]] = MappingProxyType(
    {
        "Logloss": ("classes", "sigmoid"),
        "CrossEntropy": ("classes", "sigmoid"),
        "Focal": ("classes", "sigmoid"),
        "MultiClass": ("classes", "softmax"),
        "MultiClassOneVsAll": ("classes", "sigmoid"),
        "MultiLogloss": ("multilabel", "sigmoid"),
        "MultiCrossEntropy": ("multilabel", "sigmoid"),
        "Poisson": ("regression", "exp"),
        "Tweedie": ("regression", "exp"),
        "RMSEWithUncertainty": ("regression", "uncertainty"),
        **dict.fromkeys(_IDENTITY, _REGRESSION),
    }
)
"""Loss function -> what it is trained for, and what takes raw values to predictions."""


def loss(name: str) -> tuple[Task, Output]:
    """Return the row of `name`, which is empty for a file that does not say it.

    CatBoost itself predicts the raw values of such a file.

    Raises:
        UnsupportedModelError: no row has that name.
    """
    if not name:
        return _REGRESSION
    if name not in LOSSES:
        raise UnsupportedModelError(
            f"CatBoost's loss function {name!r} is not covered; covered: {', '.join(LOSSES)}"
        )
    return LOSSES[name]


def predict(b: Builder, output: Output, raw: Value) -> Value:
    """Raw values (n, K) float64 as predictions (n, K)."""
    if output == "exp":
        return b.op("exp", raw)
    if output == "sigmoid":
        return b.op("sigmoid", raw)
    if output == "softmax":
        return b.op("softmax", raw, sum_dtype="float64")
    if output == "uncertainty":
        # The mean, and the variance that the second value is half the logarithm of.
        mean = b.op("select", raw, indices=np.array([0], np.int64))
        deviation = b.op("select", raw, indices=np.array([1], np.int64))
        variance = b.op("exp", b.op("mul", deviation, b.constant(np.array([2.0]))))
        return b.op("concat", mean, variance)
    return raw


# Categories of which a file has only hashes: whole numbers are found by trying.


WHOLE_NUMBERS = range(-1000, 65_536)
"""Numbers whose texts are tried as the origin of an unnamed hash."""

LONG = (5, 6)
"""Digits of more numbers that are tried, where there are FEWEST hashes.

One hash in 4,000 of other texts is by chance that of such a number; not so all of several.
"""

FEWEST = 3


def texts_of(hashes: Iterable[int], texts: Mapping[int, str]) -> tuple[str, ...] | None:
    """The texts of categories that a file names; of bare hashes only when all are of integers."""
    wanted = list(hashes)
    if all(h in texts for h in wanted):
        return tuple(texts[h] for h in wanted)
    known = _whole_numbers()
    found = [known.get(h) for h in wanted]
    if None in found and len(set(wanted)) >= FEWEST:
        of_hash, numbers = _long_numbers()
        place = np.minimum(np.searchsorted(of_hash, wanted), of_hash.size - 1)
        is_long = of_hash[place] == np.array(wanted)
        found = [
            int(numbers[at]) if number is None and same else number
            for number, at, same in zip(found, place.tolist(), is_long.tolist(), strict=True)
        ]
    return tuple(str(n) for n in found) if None not in found else None


def are_whole(hashes: Iterable[int], texts: Mapping[int, str]) -> bool:
    """Whether categories are integers, all of them, and there are some."""
    found = texts_of(hashes, texts)
    return bool(found) and all(map(is_whole, found or ()))


def is_whole(text: str) -> bool:
    """Whether a text is what CatBoost makes of an integer that float64 holds."""
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdecimal()) or len(digits) > 15:
        return False
    return str(int(text)) == text


@lru_cache(maxsize=1)
def _whole_numbers() -> dict[int, int]:
    return {city_hash32(str(n)): n for n in WHOLE_NUMBERS}


@lru_cache(maxsize=1)
def _long_numbers() -> tuple[Array, Array]:
    """The hashes of numbers of LONG digits, int64 ascending, and the numbers, int32.

    CityHash64 of texts from 4 to 8 bytes (`ir/hashes.py`), for all of them at once.
    """
    multiplier = np.uint64(0x9DDFEA08EB382D69)

    def mixed(value: Array) -> Array:
        made: Array = value ^ (value >> np.uint64(47))
        return made

    hashes, numbers = list[Array](), list[Array]()
    for size in LONG:
        own = np.arange(10 ** (size - 1), 10**size, dtype=np.uint64)
        digits = [own // np.uint64(10**k) % np.uint64(10) + np.uint64(48) for k in range(size)]
        text = digits[::-1]
        first, last = (
            part[0] | part[1] << np.uint64(8) | part[2] << np.uint64(16) | part[3] << np.uint64(24)
            for part in (text[:4], text[-4:])
        )
        u = np.uint64(size) + (first << np.uint64(3))
        a = mixed((u ^ last) * multiplier)
        joined = mixed((last ^ a) * multiplier) * multiplier
        hashes.append((joined & np.uint64(0xFFFFFFFF)).astype(np.int64))
        numbers.append(own.astype(np.int32))
    of_hash = np.concatenate(hashes)
    order = np.argsort(of_hash)
    return of_hash[order], np.concatenate(numbers)[order]


# `tree_columns`: what CatBoost's trees read, made of the columns of a table.
#
# Numbers as float32, categories that splits test as codes, and behind them the statistics of
# categories (`columns.py`).


STEP = "CatBoost in a categorical column"
_NONE = np.zeros(0, np.int64)
_FIRST = np.zeros(1, np.int32)


def tree_columns(model: CatBoostModel, frame: Frame) -> Value:
    """The columns that the trees of a model read, (n, F) float32."""
    b = frame.builder
    whole = _whole_columns(model, frame)
    looked_up = sorted({i for lookup in model.lookups for i in lookup.projection.categories})
    hashes = {i: _hashes(frame, i, i in whole) for i in looked_up}

    def codes(frame: Frame, i: int, values: Array) -> Value:
        if i in hashes and not values.size:  # no tree reads it as it is
            return b.cast(hashes[i], "float32")
        texts = texts_of(values.tolist(), model.texts)
        if texts is None:
            own = hashes[i] if i in hashes else _hashes(frame, i, False)
            return b.op("look_up_combinations", own, **packed([_of_hashes(values)]))
        return _codes(frame, i, texts, i in whole)

    untested = {i: _NONE for i in range(frame.width) if i in hashes or frame.makes_strings(i)}
    categorical = {**untested, **model.categorical}
    own = coded_columns(frame, range(frame.width), categorical, codes, "float32")
    if not model.lookups:
        return own
    return b.op("concat", own, _statistics(frame, model.lookups, own, hashes))


def _whole_columns(model: CatBoostModel, frame: Frame) -> frozenset[int]:
    """The categorical columns of which all that is known are whole numbers."""
    known = {i: list(values) for i, values in model.categorical.items()}
    for lookup in model.lookups:
        for i in lookup.projection.categories:
            known.setdefault(i, []).extend(lookup.categories())
    given = {i: map(int, values) for i, values in known.items() if not frame.makes_strings(i)}
    return frozenset(i for i, values in given.items() if are_whole(values, model.texts))


def _of_hashes(hashes: Array) -> Combination:
    """The code of each 32-bit hash, its place; -1 for others."""
    keys = hashes_of(np.where(hashes >> 31, hashes - (1 << 32), hashes)[:, None] * 1.0, _FIRST)
    order = np.argsort(keys)
    values = np.append(order, -1).astype(np.float32).reshape(-1, 1)
    return Combination(_FIRST, keys[order], values)


def _codes(frame: Frame, i: int, texts: tuple[str, ...], whole: bool) -> Value:
    """Column `i` as codes in the order of `texts`; NULL is refused, as CatBoost does."""
    b, count = frame.builder, len(texts)
    if whole:
        numbers = np.array([float(text) for text in texts])
        codes = b.op("encode", frame.numbers(i), categories=numbers, missing=count)
    else:
        strings = np.empty(count, object)
        strings[:] = texts
        codes = b.op("encode", frame.strings(i), categories=strings, missing=count)
    gone = b.op("eq", codes, b.constant(np.array([count], np.int64)))
    nan = b.constant(np.array([np.nan], np.float32))
    x = b.op("where", gone, nan, b.op("cast", codes, dtype="float32"))
    return b.op("require_finite", x, features=(frame.names[i],), allow_nan=False, step=STEP)


def _hashes(frame: Frame, i: int, whole: bool) -> Value:
    """The hashes of column `i`, (n, 1) float64; NULL is refused, as CatBoost does."""
    b, name = frame.builder, frame.names[i]
    check = {"features": (name,), "allow_nan": False, "step": STEP}
    if not whole:
        made = b.op("hash_categories", frame.strings(i))
        return b.op("require_finite", made, **check)
    most = np.array([MOST_WHOLE - 1.0])
    x = b.op("require_finite", frame.numbers(i), low=-most, high=most, **check)
    message = (
        f"column {name!r} has a number that is not whole, which {STEP} does not take; cast it to "
        "BIGINT, if that is what the model was trained on"
    )
    made = b.op("hash_categories", x)
    return b.op("require", made, b.op("eq", made, made), message=message)


def _statistics(
    frame: Frame, lookups: Sequence[Lookup], own: Value, hashes: Mapping[int, Value]
) -> Value:
    """The statistics side by side, (n, S) float32; `own` are the columns that tests read."""
    b = frame.builder
    tests = list(dict.fromkeys(test for one in lookups for test in one.projection.tests))
    by_kind = [
        [t for t in tests if t.code is None and not t.nan_is_true],
        [t for t in tests if t.code is None and t.nan_is_true],
        [t for t in tests if t.code is not None],
    ]
    parts = [*hashes.values()]
    place: dict[int | Split, int] = {i: k for k, i in enumerate(hashes)}
    for kind, some in enumerate(by_kind):
        if not some:
            continue
        x = b.op("select", own, indices=np.array([t.feature for t in some], np.int64))
        if kind == 0:
            passed = b.op("gt", x, _borders(t.border for t in some))
        elif kind == 1:  # which NaN passes
            passed = b.op("not", b.op("le", x, _borders(t.border for t in some)))
        else:
            passed = b.op("eq", x, _borders(t.code or 0 for t in some))
        place |= {test: len(place) + k for k, test in enumerate(some)}
        parts.append(b.op("cast", passed, dtype="float64"))
    given = []
    for one in lookups:
        elements: tuple[int | Split, ...] = (*one.projection.categories, *one.projection.tests)
        columns = np.array([place[element] for element in elements], np.int32)
        given.append(Combination(columns, one.hashes, one.values))
    return b.op("look_up_combinations", b.beside(parts), **packed(given))


def _borders(given: Iterable[float | np.float32]) -> Array:
    return np.array([*given], np.float32)


def schema(model: Any) -> Schema:
    """Return the columns of an estimator."""
    _check_fitted(model)
    names = tuple(str(n) for n in model.feature_names_)
    numbered = _numbered(len(names))
    return numbered if names == numbered.default_names else Schema(names, len(names))


def file_schema(model: CatBoostModel) -> Schema:
    """Return the columns of a file."""
    if model.names is not None:
        return Schema(model.names, model.features)
    return _numbered(model.features)


def _numbered(count: int) -> Schema:
    """Return columns without names, which CatBoost calls 0, 1, ..."""
    return Schema(None, count, tuple(map(str, range(count))))


def import_classifier(model: Any, frame: Frame) -> Outputs:
    """CatBoostClassifier: labels as `classes_` has them, `score` is RawFormulaVal."""
    document = _document(model)
    if loss(document.loss)[0] == "multilabel":
        return _multilabel(document, frame)
    softmax = document.outputs > 1 and document.loss != "MultiClassOneVsAll"
    output: Output = "softmax" if softmax else "sigmoid"
    return _classes(document, frame, _raw(document, frame), output)


def import_regressor(model: Any, frame: Frame) -> Outputs:
    """CatBoostRegressor, with the prediction type that its loss function has by default."""
    document = _document(model)
    kinds: dict[str, Output] = {
        "RawFormulaVal": "identity",
        "Exponent": "exp",
        "RMSEWithUncertainty": "uncertainty",
    }
    output = kinds[model._get_default_prediction_type()]
    return _regression(document, frame, output)


def import_raw(model: Any, frame: Frame) -> Outputs:
    """CatBoostRanker, and CatBoost itself: a classifier when its loss function is one, else the
    raw values, as its predict gives them."""
    document = _document(model)
    if loss(document.loss)[0] != "regression":
        return import_file(document, frame)
    return _regression(document, frame, "identity")


def import_file(model: CatBoostModel, frame: Frame) -> Outputs:
    """A JSON file: as CatBoostClassifier or CatBoostRegressor would predict, by its loss."""
    task, output = loss(model.loss)
    if task == "multilabel":
        return _multilabel(model, frame)
    if task == "classes":
        return _classes(model, frame, _raw(model, frame), output)
    return _regression(model, frame, output)


def _check_fitted(model: Any) -> None:
    if not model.is_fitted():
        raise unfitted(model)


def _document(model: Any) -> CatBoostModel:
    _check_fitted(model)
    with tempfile.TemporaryDirectory(prefix="sqlml") as folder:
        path = Path(folder, "model.json")
        try:
            model.save_model(str(path), format="json")
        except Exception as error:  # CatBoostError, which we do not import
            raise UnsupportedModelError(
                f"CatBoost cannot write this {type(model).__name__} as JSON, which sqlml reads: "
                f"{error}"
            ) from error
        return read_document(read_json(path.read_bytes(), compact))


def _regression(model: CatBoostModel, frame: Frame, output: Output) -> Outputs:
    if output == "uncertainty" and model.outputs != 2:
        raise ArtifactError(f"RMSEWithUncertainty with {model.outputs} values per row")
    if output == "exp" and model.outputs != 1:
        raise ArtifactError(f"loss {model.loss!r} with {model.outputs} values per row")
    raw = _raw(model, frame)
    return Outputs({"label": predict(frame.builder, output, raw), "score": raw})


def _multilabel(model: CatBoostModel, frame: Frame) -> Outputs:
    """Labels that a row has or not: 0 or 1 each, and the probability of 1."""
    if model.outputs < 2 or model.threshold is not None:
        what = "a single label" if model.outputs < 2 else "a probability threshold"
        raise UnsupportedModelError(f"CatBoost's loss function {model.loss!r} with {what}")
    b = frame.builder
    raw = _raw(model, frame)
    label = b.op("cast", b.op("gt", raw, b.constant(np.zeros(1))), dtype="int64")
    labels = (Labels("int64", (0, 1)),) * model.outputs
    proba = predict(b, "sigmoid", raw)
    return Outputs({"label": label, "proba": proba, "score": raw}, labels)


def _classes(model: CatBoostModel, frame: Frame, raw: Value, output: Output) -> Outputs:
    b = frame.builder
    names = model.classes or tuple(range(max(2, model.outputs)))
    labels: Labels = labels_of(names)
    if model.outputs == 1:
        if len(labels) != 2:
            raise UnsupportedModelError(f"{len(labels)} classes for one value per row")
        border = 0.0
        if model.threshold is not None:
            border = -math.log(1 / model.threshold - 1)
        label = b.op("cast", b.op("gt", raw, b.constant(np.array([border]))), dtype="int64")
        positive = predict(b, output, raw)
        other = b.op("sub", b.constant(np.ones(1)), positive)
        proba = b.op("concat", other, positive)
        return Outputs({"label": label, "proba": proba, "score": raw}, labels)
    raw = _external(model, raw, frame, len(labels))
    label = b.op("argmax", raw, axis=1)
    return Outputs({"label": label, "proba": predict(b, output, raw), "score": raw}, labels)


def _external(model: CatBoostModel, raw: Value, frame: Frame, count: int) -> Value:
    """Raw values in the order of the class names; -inf for a class that training never saw."""
    b = frame.builder
    place = {name: k for k, name in enumerate(model.class_of or range(model.outputs))}
    if count == model.outputs and list(place) == list(range(count)):
        return raw
    first = b.op("select", raw, indices=np.zeros(1, np.int64))
    nothing = b.constant(np.array([-np.inf]))
    never = b.op("where", b.op("isnan", first), nothing, nothing)
    wide = b.op("concat", raw, never)
    order = [place.get(name, model.outputs) for name in range(count)]
    return b.op("select", wide, indices=np.array(order, np.int64))


def _raw(model: CatBoostModel, frame: Frame) -> Value:
    """RawFormulaVal: scale * (sum of the leaves, tree by tree) + bias, (n, K) float64."""
    if frame.width != model.features or not model.features:
        raise UnsupportedModelError(
            f"the CatBoost model reads {model.features} columns, but gets {frame.width}"
        )
    b = frame.builder
    trees = replace(model.trees, base=np.zeros(model.outputs))  # more than the leaves' of none
    value = b.op("tree_ensemble", tree_columns(model, frame), **trees.attrs())
    if model.scale != 1:
        value = b.op("mul", value, b.constant(np.array([model.scale])))
    if model.bias.any():
        value = b.op("add", value, b.constant(model.bias))
    return value


FILE = "catboost file"
"""What `file_formats.read_artifact` makes of a file, as `registry.NAMES` calls it."""

IMPORTERS: Mapping[str, Callable[[Any, Frame], Frame | Outputs]] = MappingProxyType(
    {
        "catboost.core.CatBoostClassifier": import_classifier,
        "catboost.core.CatBoostRegressor": import_regressor,
        "catboost.core.CatBoostRanker": import_raw,
        "catboost.core.CatBoost": import_raw,
        FILE: import_file,
    }
)
SCHEMAS: Mapping[str, Callable[[Any], Schema]] = MappingProxyType(
    {path: file_schema if path == FILE else schema for path in IMPORTERS}
)
