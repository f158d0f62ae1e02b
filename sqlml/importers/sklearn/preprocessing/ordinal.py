"""OrdinalEncoder: codes as float64, with values of their own for missing and unknown ones."""

from __future__ import annotations

from typing import Any

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame
from sqlml.importers.sklearn.fitted import check
from sqlml.importers.sklearn.preprocessing.categories import read_categories
from sqlml.ir.builder import Builder, Value


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
    parts = [_one_column(model, frame, i) for i in range(frame.width)]
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


def _one_column(model: Any, frame: Frame, i: int) -> Frame:
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
