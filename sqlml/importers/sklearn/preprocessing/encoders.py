"""OneHotEncoder, OrdinalEncoder and TargetEncoder: what each makes of the codes of a column."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame
from sqlml.importers.sklearn.fitted import check
from sqlml.importers.sklearn.preprocessing.categories import Categories, Unknown, read_categories
from sqlml.ir.builder import Builder, Value
from sqlml.types import Array

UNKNOWN: Mapping[str, Unknown] = MappingProxyType(
    {
        "error": "raise",
        "ignore": "keep",
        "infrequent_if_exist": "group",
        "warn": "group",
    }
)


def one_hot_encoder(model: Any, frame: Frame) -> Frame:
    """(n, sum of kept categories) float64 of 0 and 1; unknown categories as handle_unknown says.

    Raises:
        UnsupportedModelError: not fitted, or categories that SQL cannot tell apart.
    """
    check(model, "categories_", "drop_idx_")
    if model.handle_unknown not in UNKNOWN:
        raise UnsupportedModelError(
            f"OneHotEncoder(handle_unknown={model.handle_unknown!r}) is not known to sqlml"
        )
    parts = [_one_hot_column(model, frame, i) for i in range(frame.width)]
    return replace(Frame.hstack(frame.builder, parts), sparse=bool(model.sparse_output))


def _one_hot_column(model: Any, frame: Frame, i: int) -> Frame:
    categories = read_categories(model, i, frame.names[i], group_missing=True)
    builder = frame.builder
    codes = categories.codes(frame, i, "OneHotEncoder", unknown=UNKNOWN[model.handle_unknown])
    value = builder.op("one_hot", codes, width=len(categories.slots), dtype="float64")
    dropped = _dropped_slot(model, i)
    code_of = {slot: code for code, slot in enumerate(categories.slots)}
    columns = [code_of[slot] for slot in range(len(code_of)) if slot != dropped]
    if columns != list(range(len(categories.slots))):
        value = builder.op("select", value, indices=np.array(columns, np.int64))
    return Frame.of(builder, value, [_column_name(frame.names[i], categories, c) for c in columns])


def _dropped_slot(model: Any, i: int) -> int | None:
    """The number, after grouping, of the category that `drop` removes."""
    if model.drop_idx_ is None or model.drop_idx_[i] is None:
        return None
    dropped = int(model.drop_idx_[i])
    rare = model._infrequent_indices[i] if getattr(model, "_infrequent_enabled", False) else None
    if rare is None:
        return dropped
    if dropped in rare:
        return len(model.categories_[i]) - len(rare)
    return dropped - int((np.asarray(rare) < dropped).sum())


def _column_name(feature: str, categories: Categories, code: int) -> str:
    if code == categories.group:
        return f"{feature}_infrequent_sklearn"
    if code == categories.missing_code:
        return f"{feature}_NULL"
    first = categories.infrequent - 1 if categories.infrequent else 0
    return f"{feature}_{categories.values[code + first]}"


def ordinal_encoder(model: Any, frame: Frame) -> Frame:
    """One float64 column of category numbers per column.

    Raises:
        UnsupportedModelError: not fitted, categories that SQL cannot tell apart, or a dtype too
            narrow for its codes.
    """
    check(model, "categories_")
    dtype = np.dtype(model.dtype)
    if not _holds(dtype, model):
        raise UnsupportedModelError(
            f"OrdinalEncoder(dtype={dtype.name}) wraps or rounds its codes; use float64"
        )
    parts = [_ordinal_column(model, frame, i) for i in range(frame.width)]
    return Frame.hstack(frame.builder, parts)


def _holds(dtype: np.dtype[Any], model: Any) -> bool:
    """Whether `dtype` has every number that the encoder may write."""
    if dtype.kind not in "iuf":
        return False
    written = [float(max(map(len, model.categories_), default=0))]
    if model.handle_unknown == "use_encoded_value":
        written.append(float(model.unknown_value))
    written.append(float(getattr(model, "encoded_missing_value", np.nan)))
    numbers = np.array([n for n in written if n == n])
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return bool(((numbers >= info.min) & (numbers <= info.max)).all())
    return bool((numbers.astype(dtype) == numbers).all() and numbers[0] <= 2 / np.finfo(dtype).eps)


def _ordinal_column(model: Any, frame: Frame, i: int) -> Frame:
    builder = frame.builder
    categories = read_categories(model, i, frame.names[i], group_missing=False)
    use_value = model.handle_unknown == "use_encoded_value"
    codes = categories.codes(frame, i, "OrdinalEncoder", unknown="keep" if use_value else "raise")
    value = builder.op("cast", codes, dtype="float64")
    slots = categories.slots
    if slots != tuple(range(len(slots))):
        value = _ungrouped(builder, value, slots, frame.names[i])
    if categories.missing == "nan":
        is_missing = builder.op("eq", codes, categories.missing_code)
        value = builder.op("where", is_missing, float(model.encoded_missing_value), value)
    if use_value:
        is_unknown = builder.op("lt", codes, 0)
        value = builder.op("where", is_unknown, float(model.unknown_value), value)
    return Frame.of(builder, value, [frame.names[i]])


def _ungrouped(builder: Builder, value: Value, slots: tuple[int, ...], feature: str) -> Value:
    """Our codes, with the infrequent group first, as scikit-learn's, with the group last."""
    group = slots[0]
    if slots[1 : group + 1] != tuple(range(group)):
        raise UnsupportedModelError(
            f"column {feature!r}: put None last in OrdinalEncoder(categories=...), as "
            "categories='auto' does"
        )
    is_group = builder.op("eq", value, 0.0)
    less_one = builder.op("sub", value, 1.0)
    return builder.op("where", is_group, float(group), less_one)


def target_encoder(model: Any, frame: Frame) -> Frame:
    """One float64 column per column, or per column and class for more than two classes.

    Raises:
        UnsupportedModelError: not fitted, or categories that SQL cannot tell apart.
    """
    check(model, "categories_", "encodings_", "target_mean_")
    means = np.atleast_1d(np.asarray(model.target_mean_, np.float64))
    if len(model.encodings_) != frame.width * means.size:
        raise UnsupportedModelError(
            f"TargetEncoder has {len(model.encodings_)} encodings for {frame.width} columns and "
            f"{means.size} targets; fit it again"
        )
    parts = [_target_column(model, frame, i, means) for i in range(frame.width)]
    return Frame.hstack(frame.builder, parts)


def _target_column(model: Any, frame: Frame, i: int, means: Array) -> Frame:
    b = frame.builder
    categories = read_categories(model, i, frame.names[i], group_missing=False)
    codes = categories.codes(frame, i, "TargetEncoder", unknown="keep")
    slots = np.array(categories.slots, np.int64)
    codes = b.op("where", b.op("lt", codes, 0), slots.size, codes)
    values = []
    for t, mean in enumerate(means):
        encoding = np.asarray(model.encodings_[i * means.size + t], np.float64)
        table = np.append(encoding[slots], mean)
        values.append(b.op("take", table, codes))
    name = frame.names[i]
    names = [name] if means.size == 1 else [f"{name}_{c}" for c in model.classes_]
    return Frame(b, tuple(values), tuple(names))
