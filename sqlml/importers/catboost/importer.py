"""Import CatBoost's estimators and files.

A model file may contain only the hashes of the categories. The hashes are then compared with the
hashes of many integers. If all hashes match, the categories are these integers.
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
from sqlml.importers import boosters
from sqlml.importers.boosters import REGRESSION, Link, Objective, apply_link
from sqlml.importers.catboost.binary import add_leaf_numbers
from sqlml.importers.catboost.document import CatBoostModel, compact, read_document
from sqlml.importers.catboost.features import Split, StatisticTable
from sqlml.importers.frame import Frame, Leaf, Outputs, Schema, build_labels, encode_columns
from sqlml.importers.model_checks import make_unfitted_error
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
"""Maps a loss function's name to the task and the link.

Source: catboost/libs/eval_result/eval_helpers.cpp, and CatBoostRegressor's default prediction."""


def read_schema(model: Any) -> Schema:
    _check_fitted(model)
    names = tuple(map(str, model.feature_names_))
    return boosters.build_schema(names, tuple(map(str, range(len(names)))))


def read_file_schema(model: CatBoostModel) -> Schema:
    if model.names is not None:
        return Schema(model.names, model.features)
    return boosters.build_schema(None, tuple(map(str, range(model.features))))


def import_classifier(model: Any, frame: Frame) -> Outputs:
    """Import CatBoostClassifier; the output `score` is CatBoost's prediction type RawFormulaVal."""
    parsed_model = _read_model(model)
    if _find_loss(parsed_model).task == "multilabel":
        return _import_multilabel(parsed_model, frame)
    is_softmax = parsed_model.outputs > 1 and parsed_model.loss != "MultiClassOneVsAll"
    return _import_classes(parsed_model, frame, "softmax" if is_softmax else "sigmoid")


def import_regressor(model: Any, frame: Frame) -> Outputs:
    """Import CatBoostRegressor; the loss function determines the type of the predictions."""
    links: dict[str, Link] = {"RawFormulaVal": "identity", "Exponent": "exp"}
    links["RMSEWithUncertainty"] = "variance"
    parsed_model = _read_model(model)
    return _import_regression(parsed_model, frame, links[model._get_default_prediction_type()])


def import_raw(model: Any, frame: Frame) -> Outputs:
    """Import CatBoostRanker or CatBoost, which predicts raw values, or classes for some losses."""
    parsed_model = _read_model(model)
    if _find_loss(parsed_model).task != "regression":
        return import_saved_model(parsed_model, frame)
    return _import_regression(parsed_model, frame, "identity")


def import_saved_model(model: CatBoostModel, frame: Frame) -> Outputs:
    """Import a file like CatBoostClassifier or CatBoostRegressor, depending on the loss."""
    objective = _find_loss(model)
    if objective.task == "multilabel":
        return _import_multilabel(model, frame)
    import_outputs = _import_regression if objective.task == "regression" else _import_classes
    return import_outputs(model, frame, objective.link)


def _check_fitted(model: Any) -> None:
    if not model.is_fitted():
        raise make_unfitted_error(model)


def _read_model(model: Any) -> CatBoostModel:
    _check_fitted(model)
    with tempfile.TemporaryDirectory(prefix="sqlml") as folder:
        path = Path(folder, "model.json")
        try:
            model.save_model(str(path), format="json")
        except Exception as error:  # CatBoostError, whose class cannot be imported here.
            raise UnsupportedModelError(
                f"CatBoost cannot write this {type(model).__name__} as JSON, which sqlml reads: "
                f"{error}"
            ) from error
        document = add_leaf_numbers(model, path.read_bytes())
        return read_document(read_json(document, compact))


def _find_loss(model: CatBoostModel) -> Objective:
    if not model.loss:  # Without a loss, CatBoost predicts raw values.
        return REGRESSION
    return boosters.find_objective(LOSSES, model.loss, "CatBoost's loss function")


def _import_regression(model: CatBoostModel, frame: Frame, link: Link) -> Outputs:
    if link == "variance" and model.outputs != 2:
        raise ArtifactError(f"RMSEWithUncertainty with {model.outputs} values per row")
    if link == "exp" and model.outputs != 1:
        raise ArtifactError(f"loss {model.loss!r} with {model.outputs} values per row")
    return boosters.import_regression(frame.builder, link, _build_raw_values(model, frame))


def _import_multilabel(model: CatBoostModel, frame: Frame) -> Outputs:
    if model.outputs < 2 or model.threshold is not None:
        feature = "a single label" if model.outputs < 2 else "a probability threshold"
        reason = f"CatBoost's loss function {model.loss!r} with {feature} is not supported"
        raise UnsupportedModelError(reason)
    builder = frame.builder
    raw = _build_raw_values(model, frame)
    label = boosters.label_above(builder, raw, 0.0)
    return boosters.import_multilabel(label, apply_link(builder, "sigmoid", raw), raw)


def _import_classes(model: CatBoostModel, frame: Frame, link: Link) -> Outputs:
    builder = frame.builder
    raw = _build_raw_values(model, frame)
    labels = build_labels(model.classes or tuple(range(max(2, model.outputs))))
    if model.outputs == 1:
        if len(labels) != 2:
            raise UnsupportedModelError(f"{len(labels)} classes for one value per row")
        threshold = 0.0 if model.threshold is None else -math.log(1 / model.threshold - 1)
        label = boosters.label_above(builder, raw, threshold)
        return boosters.import_binary(builder, label, apply_link(builder, link, raw), raw, labels)
    raw = _arrange_by_class(model, raw, frame, len(labels))
    return boosters.import_multiclass(builder, raw, apply_link(builder, link, raw), raw, labels)


def _arrange_by_class(model: CatBoostModel, raw: Value, frame: Frame, num_classes: int) -> Value:
    """Return raw values in the order of the classes; classes without training rows get -inf."""
    builder = frame.builder
    class_of = model.class_of or range(model.outputs)
    output_by_class = {class_index: output for output, class_index in enumerate(class_of)}
    if num_classes == model.outputs and list(output_by_class) == list(range(num_classes)):
        return raw
    first_output = builder.op("select", raw, indices=np.zeros(1, np.int64))
    # Both branches are -inf, because only the number of rows comes from `first_output`.
    worst = builder.constant(np.array([-np.inf]))
    untrained = builder.op("where", builder.op("isnan", first_output), worst, worst)
    extended = builder.op("concat", raw, untrained)
    order = [output_by_class.get(i, model.outputs) for i in range(num_classes)]
    return builder.op("select", extended, indices=np.array(order, np.int64))


def _build_raw_values(model: CatBoostModel, frame: Frame) -> Value:
    """Build RawFormulaVal (n, K): the sum of the trees, multiplied by the scale, plus the bias."""
    boosters.check_width(frame, model.features, "CatBoost")
    builder = frame.builder
    # A model without trees may have several outputs.
    trees = replace(model.trees, base=np.zeros(model.outputs))
    trees = trees.with_stages(np.arange(1, trees.trees + 1))
    raw = builder.op("tree_ensemble", _build_tree_inputs(model, frame), **trees.attrs())
    if model.scale != 1:
        raw = builder.op("mul", raw, builder.constant(np.array([model.scale])))
    if model.bias.any():
        raw = builder.op("add", raw, builder.constant(model.bias))
    return raw


STEP = "CatBoost in a categorical column"
_NO_VALUES = np.zeros(0, np.int64)
_FIRST_COLUMN = np.zeros(1, np.int32)


def _build_tree_inputs(model: CatBoostModel, frame: Frame) -> Value:
    """Build the columns that the trees read, float32 (n, F).

    Categories that splits test become codes. The statistics of categories (`features.py`) follow
    the columns of the table.
    """
    builder = frame.builder
    integer_columns = _find_integer_columns(model, frame)
    hashed_columns = sorted({i for lookup in model.lookups for i in lookup.projection.categories})
    hashes = {i: _hash_column(frame, i, i in integer_columns) for i in hashed_columns}

    def encode(frame: Frame, i: int, tested_hashes: Array) -> Value:
        if i in hashes and not tested_hashes.size:  # Only statistics read the column.
            return builder.cast(hashes[i], "float32")
        names = _find_names(tested_hashes.tolist(), model.category_names)
        if names is None:
            column = hashes[i] if i in hashes else _hash_column(frame, i, False)
            code_lookup = pack_combinations([_map_hashes_to_codes(tested_hashes)])
            return builder.op("look_up_combinations", column, **code_lookup)
        return _encode_column(frame, i, names, i in integer_columns)

    untested = {i: _NO_VALUES for i in range(frame.width) if i in hashes or frame.makes_strings(i)}
    categorical = {**untested, **model.categorical}
    columns = encode_columns(frame, range(frame.width), categorical, encode, "float32")
    if not model.lookups:
        return columns
    return builder.op("concat", columns, _build_statistics(frame, model.lookups, columns, hashes))


def _find_integer_columns(model: CatBoostModel, frame: Frame) -> frozenset[int]:
    hashes_by_column = {i: list(hashes) for i, hashes in model.categorical.items()}
    for lookup in model.lookups:
        for i in lookup.projection.categories:
            hashes_by_column.setdefault(i, []).extend(lookup.find_category_hashes())
    return frozenset(
        i
        for i, hashes in hashes_by_column.items()
        if not frame.makes_strings(i) and _are_all_integers(map(int, hashes), model.category_names)
    )


def _map_hashes_to_codes(hashes: Array) -> Combination:
    """Make a look-up table that maps a 32-bit hash to the index in `hashes`, or else -1."""
    signed = np.where(hashes >> 31, hashes - (1 << 32), hashes)
    keys = hash_combinations(signed[:, None] * 1.0, _FIRST_COLUMN)
    order = np.argsort(keys)
    codes = np.append(order, -1).astype(np.float32).reshape(-1, 1)
    return Combination(_FIRST_COLUMN, keys[order], codes)


def _encode_column(frame: Frame, i: int, categories: tuple[str, ...], is_integer: bool) -> Value:
    """Encode column `i` as indices into `categories`, float32; scoring rejects NULL."""
    builder = frame.builder
    num_categories = len(categories)
    if is_integer:
        numbers = np.array([float(name) for name in categories])
        codes = builder.op(
            "encode", frame.read_numbers(i), categories=numbers, missing=num_categories
        )
    else:
        strings = np.array(categories, object)
        codes = builder.op(
            "encode", frame.read_strings(i), categories=strings, missing=num_categories
        )
    is_null = builder.op("eq", codes, builder.constant(np.array([num_categories], np.int64)))
    nan = builder.constant(np.array([np.nan], np.float32))
    values = builder.op("where", is_null, nan, builder.op("cast", codes, dtype="float32"))
    check_attrs = {"features": (frame.names[i],), "allow_nan": False, "step": STEP}
    return builder.op("require_finite", values, **check_attrs)


def _hash_column(frame: Frame, i: int, is_integer: bool) -> Value:
    """Build the hashes of column `i`, float64 (n, 1); like CatBoost, scoring rejects NULL."""
    builder = frame.builder
    name = frame.names[i]
    check_attrs = {"features": (name,), "allow_nan": False, "step": STEP}
    if not is_integer:
        hashes = builder.op("hash_categories", frame.read_strings(i))
        return builder.op("require_finite", hashes, **check_attrs)
    limit = np.array([MAX_EXACT_INTEGER - 1.0])
    numbers = builder.op(
        "require_finite", frame.read_numbers(i), low=-limit, high=limit, **check_attrs
    )
    message = (
        f"column {name!r} has a number that is not whole, which {STEP} does not accept; cast it to "
        "BIGINT, if that is what the model was trained on"
    )
    hashes = builder.op("hash_categories", numbers)
    return builder.op("require", hashes, builder.op("eq", hashes, hashes), message=message)


def _build_statistics(
    frame: Frame, lookups: Sequence[StatisticTable], columns: Value, hashes: Mapping[int, Value]
) -> Value:
    """Build the statistics, float32 (n, S); `hashes` maps a column's index to hashes."""
    builder = frame.builder
    test_groups: dict[str, list[Split]] = {"gt": [], "le": [], "eq": []}
    for test in dict.fromkeys(test for lookup in lookups for test in lookup.projection.tests):
        # A test that NaN passes is built as not (x <= border).
        op = "eq" if test.code is not None else "le" if test.nan_is_true else "gt"
        test_groups[op].append(test)
    blocks = list(hashes.values())
    elements: list[int | Split] = list(hashes)
    for op, tests in test_groups.items():
        if not tests:
            continue
        features = np.array([test.feature for test in tests], np.int64)
        tested_values = builder.op("select", columns, indices=features)
        limits = [test.border if test.code is None else test.code for test in tests]
        is_true = builder.op(op, tested_values, np.array(limits, np.float32))
        is_true = builder.op("not", is_true) if op == "le" else is_true
        elements += tests
        blocks.append(builder.op("cast", is_true, dtype="float64"))
    element_indices = {element: i for i, element in enumerate(elements)}
    combinations = []
    for lookup in lookups:
        projection = lookup.projection
        used_elements: tuple[int | Split, ...] = (*projection.categories, *projection.tests)
        used_columns = np.array([element_indices[e] for e in used_elements], np.int32)
        combinations.append(Combination(used_columns, lookup.hashes, lookup.values))
    element_values = builder.concat(blocks)
    return builder.op("look_up_combinations", element_values, **pack_combinations(combinations))


COMMON_INTEGERS = range(-1000, 65_536)
"""Integers whose hashes are always compared with the hashes of unnamed categories."""

LONG_DIGITS, MIN_HASHES = (5, 6), 3
"""Integers of LONG_DIGITS digits are also compared if a column has at least MIN_HASHES hashes.

The hash of another string equals the hash of such an integer in one of 4,000 cases, so a single
match proves nothing.
"""


def _find_names(hashes: Iterable[int], category_names: Mapping[int, str]) -> tuple[str, ...] | None:
    """Return the category of each hash, or None if a hash matches no name and no integer."""
    hashes = list(hashes)
    if all(h in category_names for h in hashes):
        return tuple(category_names[h] for h in hashes)
    common_integers = _hash_common_integers()
    integers = [common_integers.get(h) for h in hashes]
    if None in integers and len(set(hashes)) >= MIN_HASHES:
        long_hashes, long_integers = _hash_long_integers()
        indices = np.minimum(np.searchsorted(long_hashes, hashes), long_hashes.size - 1)
        for i in np.flatnonzero(long_hashes[indices] == np.array(hashes)).tolist():
            if integers[i] is None:
                integers[i] = int(long_integers[indices[i]])
    return tuple(map(str, integers)) if None not in integers else None


def _are_all_integers(hashes: Iterable[int], category_names: Mapping[int, str]) -> bool:
    names = _find_names(hashes, category_names) or ()
    return len(names) > 0 and all(map(_INTEGER_NAME.fullmatch, names))


_INTEGER_NAME = re.compile(r"0|-?[1-9][0-9]{0,14}")
"""Matches an integer that float64 represents exactly, in CatBoost's format."""


@lru_cache(maxsize=1)
def _hash_common_integers() -> dict[int, int]:
    return {city_hash32(str(n)): n for n in COMMON_INTEGERS}


@lru_cache(maxsize=1)
def _hash_long_integers() -> tuple[Array, Array]:
    """Return the sorted hashes of all integers with LONG_DIGITS digits, and the integers.

    The hash is the lower half of CityHash64 of 4 to 7 characters, vectorized (`ir/hashes.py`).
    """
    multiplier = np.uint64(0x9DDFEA08EB382D69)

    def mix(value: Array) -> Array:
        mixed: Array = value ^ (value >> np.uint64(47))
        return mixed

    hash_arrays, integer_arrays = list[Array](), list[Array]()
    for length in LONG_DIGITS:
        integers = np.arange(10 ** (length - 1), 10**length, dtype=np.uint64)
        powers = [np.uint64(10**k) for k in reversed(range(length))]
        characters = [integers // power % np.uint64(10) + np.uint64(48) for power in powers]
        first_word, last_word = (
            word[0] | word[1] << np.uint64(8) | word[2] << np.uint64(16) | word[3] << np.uint64(24)
            for word in (characters[:4], characters[-4:])
        )
        seeded_word = np.uint64(length) + (first_word << np.uint64(3))
        mixed_words = mix((seeded_word ^ last_word) * multiplier)
        hash64 = mix((last_word ^ mixed_words) * multiplier) * multiplier
        hash_arrays.append((hash64 & np.uint64(0xFFFFFFFF)).astype(np.int64))
        integer_arrays.append(integers.astype(np.int32))
    hashes = np.concatenate(hash_arrays)
    order = np.argsort(hashes)
    return hashes[order], np.concatenate(integer_arrays)[order]


FILE = "catboost file"

IMPORTERS: Mapping[str, Leaf] = {
    "catboost.core.CatBoostClassifier": import_classifier,
    "catboost.core.CatBoostRegressor": import_regressor,
    "catboost.core.CatBoostRanker": import_raw,
    "catboost.core.CatBoost": import_raw,
    FILE: import_saved_model,
}
SCHEMAS: Mapping[str, Callable[[Any], Schema]] = {
    path: read_file_schema if path == FILE else read_schema for path in IMPORTERS
}
