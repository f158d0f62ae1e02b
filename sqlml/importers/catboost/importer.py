"""Import CatBoost's estimators and files.

A model file may state only the hashes of its categories. Hashes of integers are then found by
trying: categories are integers if all their hashes belong to some.
"""

from __future__ import annotations

import math
import re
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from sqlml.errors import ArtifactError, UnsupportedModelError
from sqlml.importers.boosters import (
    REGRESSION,
    Link,
    Objective,
    apply_link,
    build_schema,
    check_width,
    find_objective,
    import_binary,
    import_multiclass,
    import_multilabel,
    import_regression,
    label_above,
)
from sqlml.importers.catboost.document import CatBoostModel, compact, read_document
from sqlml.importers.catboost.features import Lookup, Split
from sqlml.importers.frame import Frame, Leaf, Outputs, Schema, build_labels, encode_columns
from sqlml.importers.model_checks import explain_unfitted
from sqlml.importers.untrusted_documents import read_json
from sqlml.ir.builder import Value
from sqlml.ir.hashes import city_hash32
from sqlml.ir.operators.categories import (
    MAX_EXACT_INTEGER,
    Combination,
    hash_combinations,
    pack_combinations,
)
from sqlml.types import Array

_IDENTITY = (
    "RMSE MAE Quantile MultiQuantile GroupQuantile LogLinQuantile Expectile MAPE RMSPE Lq Huber "
    "LogCosh Cox SurvivalAft MultiRMSE MultiRMSEWithMissingValues QueryRMSE QuerySoftMax "
    "QueryCrossEntropy PairLogit PairLogitPairwise YetiRank YetiRankPairwise StochasticFilter "
    "StochasticRank LambdaMart UserPerObjMetric UserQuerywiseMetric PythonUserDefinedPerObject "
    "PythonUserDefinedMultiTarget"
).split()

LOSSES: Mapping[str, Objective] = {
    "Logloss": Objective("binary", "sigmoid"),
    "CrossEntropy": Objective("binary", "sigmoid"),
    "Focal": Objective("binary", "sigmoid"),
    "MultiClass": Objective("multiclass", "softmax"),
    "MultiClassOneVsAll": Objective("multiclass", "sigmoid"),
    "MultiLogloss": Objective("multilabel", "sigmoid"),
    "MultiCrossEntropy": Objective("multilabel", "sigmoid"),
    "Poisson": Objective("regression", "exp"),
    "Tweedie": Objective("regression", "exp"),
    "RMSEWithUncertainty": Objective("regression", "variance"),
    **dict.fromkeys(_IDENTITY, REGRESSION),
}
"""The loss functions that are covered.

Source: catboost/libs/eval_result/eval_helpers.cpp, and CatBoostRegressor's default prediction."""


def schema(model: Any) -> Schema:
    _check_fitted(model)
    names = tuple(map(str, model.feature_names_))
    return build_schema(names, tuple(map(str, range(len(names)))))


def file_schema(model: CatBoostModel) -> Schema:
    if model.names is not None:
        return Schema(model.names, model.features)
    return build_schema(None, tuple(map(str, range(model.features))))


def import_classifier(model: Any, frame: Frame) -> Outputs:
    """Import CatBoostClassifier, with the labels of `classes_`; `score` is RawFormulaVal."""
    document = _read_model(model)
    if _find_loss(document).task == "multilabel":
        return _import_multilabel(document, frame)
    is_softmax = document.outputs > 1 and document.loss != "MultiClassOneVsAll"
    return _import_classes(document, frame, "softmax" if is_softmax else "sigmoid")


def import_regressor(model: Any, frame: Frame) -> Outputs:
    """Import CatBoostRegressor, with the default prediction type of its loss function."""
    document = _read_model(model)
    return _import_regression(document, frame, _LINKS[model._get_default_prediction_type()])


_LINKS: Mapping[str, Link] = {
    "RawFormulaVal": "identity",
    "Exponent": "exp",
    "RMSEWithUncertainty": "variance",
}


def import_raw(model: Any, frame: Frame) -> Outputs:
    """Import CatBoostRanker or CatBoost, which predict raw values unless the loss has classes."""
    document = _read_model(model)
    if _find_loss(document).task != "regression":
        return import_file(document, frame)
    return _import_regression(document, frame, "identity")


def import_file(model: CatBoostModel, frame: Frame) -> Outputs:
    """Import a file, which predicts like CatBoostClassifier or CatBoostRegressor by its loss."""
    loss = _find_loss(model)
    if loss.task == "multilabel":
        return _import_multilabel(model, frame)
    if loss.task == "regression":
        return _import_regression(model, frame, loss.link)
    return _import_classes(model, frame, loss.link)


def _check_fitted(model: Any) -> None:
    if not model.is_fitted():
        raise explain_unfitted(model)


def _read_model(model: Any) -> CatBoostModel:
    _check_fitted(model)
    with tempfile.TemporaryDirectory(prefix="sqlml") as folder:
        path = Path(folder, "model.json")
        try:
            model.save_model(str(path), format="json")
        except Exception as error:  # a CatBoostError, whose class is not imported here
            raise UnsupportedModelError(
                f"CatBoost cannot write this {type(model).__name__} as JSON, which sqlml reads: "
                f"{error}"
            ) from error
        return read_document(read_json(path.read_bytes(), compact))


def _find_loss(model: CatBoostModel) -> Objective:
    if not model.loss:  # CatBoost predicts raw values if a file states no loss
        return REGRESSION
    return find_objective(LOSSES, model.loss, "CatBoost's loss function")


def _import_regression(model: CatBoostModel, frame: Frame, link: Link) -> Outputs:
    if link == "variance" and model.outputs != 2:
        raise ArtifactError(f"RMSEWithUncertainty with {model.outputs} values per row")
    if link == "exp" and model.outputs != 1:
        raise ArtifactError(f"loss {model.loss!r} with {model.outputs} values per row")
    return import_regression(frame.builder, link, _compute_raw(model, frame))


def _import_multilabel(model: CatBoostModel, frame: Frame) -> Outputs:
    if model.outputs < 2 or model.threshold is not None:
        feature = "a single label" if model.outputs < 2 else "a probability threshold"
        raise UnsupportedModelError(f"CatBoost's loss function {model.loss!r} with {feature}")
    b = frame.builder
    raw = _compute_raw(model, frame)
    return import_multilabel(label_above(b, raw, 0.0), apply_link(b, "sigmoid", raw), raw)


def _import_classes(model: CatBoostModel, frame: Frame, link: Link) -> Outputs:
    b, raw = frame.builder, _compute_raw(model, frame)
    labels = build_labels(model.classes or tuple(range(max(2, model.outputs))))
    if model.outputs == 1:
        if len(labels) != 2:
            raise UnsupportedModelError(f"{len(labels)} classes for one value per row")
        border = 0.0 if model.threshold is None else -math.log(1 / model.threshold - 1)
        label = label_above(b, raw, border)
        return import_binary(b, label, apply_link(b, link, raw), raw, labels)
    raw = _arrange_by_class(model, raw, frame, len(labels))
    return import_multiclass(b, raw, apply_link(b, link, raw), raw, labels)


def _arrange_by_class(model: CatBoostModel, raw: Value, frame: Frame, classes: int) -> Value:
    """Return raw values in the order of the class names; -inf for classes without training rows."""
    b = frame.builder
    output_of = {name: k for k, name in enumerate(model.class_of or range(model.outputs))}
    if classes == model.outputs and list(output_of) == list(range(classes)):
        return raw
    first = b.op("select", raw, indices=np.zeros(1, np.int64))
    infinity = b.constant(np.array([-np.inf]))
    untrained = b.op("where", b.op("isnan", first), infinity, infinity)
    extended = b.op("concat", raw, untrained)
    order = [output_of.get(name, model.outputs) for name in range(classes)]
    return b.op("select", extended, indices=np.array(order, np.int64))


def _compute_raw(model: CatBoostModel, frame: Frame) -> Value:
    """Return RawFormulaVal: scale * (sum of the leaves, tree by tree) + bias, (n, K) float64."""
    check_width(frame, model.features, "CatBoost")
    b = frame.builder
    trees = replace(model.trees, base=np.zeros(model.outputs))  # K may be set without trees
    value = b.op("tree_ensemble", _compute_tree_inputs(model, frame), **trees.attrs())
    if model.scale != 1:
        value = b.op("mul", value, b.constant(np.array([model.scale])))
    if model.bias.any():
        value = b.op("add", value, b.constant(model.bias))
    return value


STEP = "CatBoost in a categorical column"
_NO_VALUES = np.zeros(0, np.int64)
_FIRST_COLUMN = np.zeros(1, np.int32)


def _compute_tree_inputs(model: CatBoostModel, frame: Frame) -> Value:
    """Compute the columns that the trees of a model read, (n, F) float32.

    Categories that splits test become codes. The statistics of categories (`features.py`) follow.
    """
    b = frame.builder
    integer_columns = _find_integer_columns(model, frame)
    looked_up = sorted({i for lookup in model.lookups for i in lookup.projection.categories})
    hashes = {i: _hash_column(frame, i, i in integer_columns) for i in looked_up}

    def encode(frame: Frame, i: int, values: Array) -> Value:
        if i in hashes and not values.size:  # only statistics read it
            return b.cast(hashes[i], "float32")
        texts = _find_texts(values.tolist(), model.texts)
        if texts is None:
            column = hashes[i] if i in hashes else _hash_column(frame, i, False)
            return b.op(
                "look_up_combinations", column, **pack_combinations([_map_hashes_to_codes(values)])
            )
        return _encode_column(frame, i, texts, i in integer_columns)

    untested = {i: _NO_VALUES for i in range(frame.width) if i in hashes or frame.makes_strings(i)}
    categorical = {**untested, **model.categorical}
    columns = encode_columns(frame, range(frame.width), categorical, encode, "float32")
    if not model.lookups:
        return columns
    return b.op("concat", columns, _compute_statistics(frame, model.lookups, columns, hashes))


def _find_integer_columns(model: CatBoostModel, frame: Frame) -> frozenset[int]:
    """Return the categorical columns whose categories in the model are all integers."""
    categories = {i: list(values) for i, values in model.categorical.items()}
    for lookup in model.lookups:
        for i in lookup.projection.categories:
            categories.setdefault(i, []).extend(lookup.find_category_hashes())
    return frozenset(
        i
        for i, hashes in categories.items()
        if not frame.makes_strings(i) and _are_integers(map(int, hashes), model.texts)
    )


def _map_hashes_to_codes(hashes: Array) -> Combination:
    """Return a look-up of 32-bit hashes, whose codes are their positions; -1 for others."""
    signed = np.where(hashes >> 31, hashes - (1 << 32), hashes)
    keys = hash_combinations(signed[:, None] * 1.0, _FIRST_COLUMN)
    order = np.argsort(keys)
    values = np.append(order, -1).astype(np.float32).reshape(-1, 1)
    return Combination(_FIRST_COLUMN, keys[order], values)


def _encode_column(frame: Frame, i: int, texts: tuple[str, ...], is_integer: bool) -> Value:
    """Return column `i` as codes in the order of `texts`; NULL is an error, as in CatBoost."""
    b, count = frame.builder, len(texts)
    if is_integer:
        numbers = np.array([float(text) for text in texts])
        codes = b.op("encode", frame.numbers(i), categories=numbers, missing=count)
    else:
        strings = np.empty(count, object)
        strings[:] = texts
        codes = b.op("encode", frame.strings(i), categories=strings, missing=count)
    is_null = b.op("eq", codes, b.constant(np.array([count], np.int64)))
    nan = b.constant(np.array([np.nan], np.float32))
    x = b.op("where", is_null, nan, b.op("cast", codes, dtype="float32"))
    return b.op("require_finite", x, features=(frame.names[i],), allow_nan=False, step=STEP)


def _hash_column(frame: Frame, i: int, is_integer: bool) -> Value:
    """Return the hashes of column `i`, (n, 1) float64; NULL is an error, as in CatBoost."""
    b, name = frame.builder, frame.names[i]
    check = {"features": (name,), "allow_nan": False, "step": STEP}
    if not is_integer:
        return b.op("require_finite", b.op("hash_categories", frame.strings(i)), **check)
    limit = np.array([MAX_EXACT_INTEGER - 1.0])
    x = b.op("require_finite", frame.numbers(i), low=-limit, high=limit, **check)
    message = (
        f"column {name!r} has a number that is not whole, which {STEP} does not take; cast it to "
        "BIGINT, if that is what the model was trained on"
    )
    hashes = b.op("hash_categories", x)
    return b.op("require", hashes, b.op("eq", hashes, hashes), message=message)


def _compute_statistics(
    frame: Frame, lookups: Sequence[Lookup], columns: Value, hashes: Mapping[int, Value]
) -> Value:
    """Return the statistics side by side, (n, S) float32; tests read `columns`."""
    b = frame.builder
    tests = list(dict.fromkeys(test for lookup in lookups for test in lookup.projection.tests))
    groups = {
        "gt": [t for t in tests if t.code is None and not t.nan_is_true],
        "le": [t for t in tests if t.code is None and t.nan_is_true],  # negated, so NaN passes
        "eq": [t for t in tests if t.code is not None],
    }
    blocks = [*hashes.values()]
    position: dict[int | Split, int] = {i: k for k, i in enumerate(hashes)}
    for op, group in groups.items():
        if not group:
            continue
        x = b.op("select", columns, indices=np.array([t.feature for t in group], np.int64))
        limits = [t.border if t.code is None else t.code for t in group]
        passed = b.op(op, x, np.array(limits, np.float32))
        passed = b.op("not", passed) if op == "le" else passed
        position |= {test: len(position) + k for k, test in enumerate(group)}
        blocks.append(b.op("cast", passed, dtype="float64"))
    combinations = []
    for lookup in lookups:
        projection = lookup.projection
        elements: tuple[int | Split, ...] = (*projection.categories, *projection.tests)
        positions = np.array([position[element] for element in elements], np.int32)
        combinations.append(Combination(positions, lookup.hashes, lookup.values))
    return b.op("look_up_combinations", b.concat(blocks), **pack_combinations(combinations))


COMMON_INTEGERS = range(-1000, 65_536)
"""Integers that are always tried as the origin of a hash without text."""

LONG_DIGITS, MIN_HASHES = (5, 6), 3
"""The lengths of more integers that are tried, if there are enough hashes.

One in 4,000 hashes of other texts is by chance that of such an integer, but not several at once.
"""


def _find_texts(hashes: Iterable[int], texts: Mapping[int, str]) -> tuple[str, ...] | None:
    """Return the texts of categories; None if hashes without text are not all of integers."""
    hashes = list(hashes)
    if all(h in texts for h in hashes):
        return tuple(texts[h] for h in hashes)
    common_integers = _hash_common_integers()
    integers = [common_integers.get(h) for h in hashes]
    if None in integers and len(set(hashes)) >= MIN_HASHES:
        long_hashes, long_integers = _hash_long_integers()
        index = np.minimum(np.searchsorted(long_hashes, hashes), long_hashes.size - 1)
        is_long = long_hashes[index] == np.array(hashes)
        integers = [
            int(long_integers[k]) if integer is None and matches else integer
            for integer, k, matches in zip(integers, index.tolist(), is_long.tolist(), strict=True)
        ]
    return tuple(str(n) for n in integers) if None not in integers else None


def _are_integers(hashes: Iterable[int], texts: Mapping[int, str]) -> bool:
    """Return whether there are categories and all of them are integers."""
    category_texts = _find_texts(hashes, texts) or ()
    return len(category_texts) > 0 and all(map(_is_integer_text, category_texts))


def _is_integer_text(text: str) -> bool:
    """Return whether a text is CatBoost's text of an integer that float64 represents."""
    return re.fullmatch(r"0|-?[1-9][0-9]{0,14}", text) is not None


@lru_cache(maxsize=1)
def _hash_common_integers() -> dict[int, int]:
    return {city_hash32(str(n)): n for n in COMMON_INTEGERS}


@lru_cache(maxsize=1)
def _hash_long_integers() -> tuple[Array, Array]:
    """Return the hashes of integers of LONG_DIGITS (CityHash64, `ir/hashes.py`), and those."""
    multiplier = np.uint64(0x9DDFEA08EB382D69)

    def mix(value: Array) -> Array:
        result: Array = value ^ (value >> np.uint64(47))
        return result

    hashes, numbers = list[Array](), list[Array]()
    for size in LONG_DIGITS:
        integers = np.arange(10 ** (size - 1), 10**size, dtype=np.uint64)
        digits = [integers // np.uint64(10**k) % np.uint64(10) + np.uint64(48) for k in range(size)]
        text = digits[::-1]
        first, last = (
            c[0] | c[1] << np.uint64(8) | c[2] << np.uint64(16) | c[3] << np.uint64(24)
            for c in (text[:4], text[-4:])
        )
        u = np.uint64(size) + (first << np.uint64(3))
        a = mix((u ^ last) * multiplier)
        hash64 = mix((last ^ a) * multiplier) * multiplier
        hashes.append((hash64 & np.uint64(0xFFFFFFFF)).astype(np.int64))
        numbers.append(integers.astype(np.int32))
    all_hashes = np.concatenate(hashes)
    order = np.argsort(all_hashes)
    return all_hashes[order], np.concatenate(numbers)[order]


FILE = "catboost file"

IMPORTERS: Mapping[str, Leaf] = {
    "catboost.core.CatBoostClassifier": import_classifier,
    "catboost.core.CatBoostRegressor": import_regressor,
    "catboost.core.CatBoostRanker": import_raw,
    "catboost.core.CatBoost": import_raw,
    FILE: import_file,
}
SCHEMAS: Mapping[str, Callable[[Any], Schema]] = {
    path: file_schema if path == FILE else schema for path in IMPORTERS
}
