"""What imputers call missing, and MissingIndicator: 0/1 columns that say where a value is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame, RawColumn
from sqlml.importers.sklearn.checked import numbers
from sqlml.importers.sklearn.fitted import check
from sqlml.ir.builder import Builder, Value


def missing_indicator(model: Any, frame: Frame) -> Frame:
    """One column of 0 and 1 per feature of `features_`.

    With features="missing-only" and error_on_new a value that is missing in any other column
    raises. A column that no earlier step made strings of is taken for numbers, unless
    missing_values is a string.

    Raises:
        UnsupportedModelError: not fitted, or nothing was missing in training.
    """
    check(model, "features_")
    b = frame.builder
    marked = [int(i) for i in model.features_]
    if not marked:
        raise UnsupportedModelError(
            "MissingIndicator makes no columns, since nothing was missing in training; leave the "
            "step out, or set features='all'"
        )
    others: list[int] = []
    if model.features == "missing-only" and model.error_on_new:
        others = [i for i in range(frame.width) if i not in marked]
    if others or any(_is_string(model, frame, i) for i in marked):
        parts = [_is_missing(model, frame, i) for i in marked]
    else:
        parts = [_are_missing(model, frame, marked)]
    if others:
        parts[0] = _after_checks(model, frame, others, parts[0])
    values = tuple(b.op("cast", part, dtype="float64") for part in parts)
    names = tuple(f"missingindicator_{frame.names[i]}" for i in marked)
    return Frame(b, values, names, model.sparse is True)


def means_null(value: Any) -> bool:
    """Whether a `missing_values` is NaN, None or pandas' NA rather than a value."""
    return value is None or type(value).__name__ == "NAType" or bool(value != value)


def string_is_missing(frame: Frame, i: int, missing: Any) -> Value:
    """(n, 1): where column `i` of strings is NULL, or `missing` where that is a value."""
    if means_null(missing):
        return frame.builder.op("isnan", frame.strings(i))
    sought = np.array([str(missing)], object)
    code = frame.builder.op("encode", frame.strings(i), categories=sought, missing=-1)
    return frame.builder.op("ge", code, 0)


def number_is_missing(builder: Builder, x: Value, missing: Any) -> Value:
    """(n, k): where numbers are NULL, or `missing` where that is a value."""
    if means_null(missing):
        return builder.op("isnan", x)
    return builder.op("eq", x, float(missing))


def nan_where_missing(model: Any, frame: Frame) -> Value:
    """The columns as numbers, with NaN for what the imputer calls missing."""
    missing = model.missing_values
    x = numbers(frame, type(model).__name__, allow_nan=means_null(missing))
    if means_null(missing):
        return x
    fill = np.full(frame.width, np.nan)
    return frame.builder.op("impute", x, fill=fill, missing=float(missing))


def marked_columns(frame: Frame, columns: Sequence[int], missing: Value) -> Frame:
    """The 0/1 columns of an indicator, from where the columns `columns` of `frame` are missing."""
    names = [f"missingindicator_{frame.names[i]}" for i in columns]
    return Frame.of(frame.builder, frame.builder.op("cast", missing, dtype="float64"), names)


def added_indicator(model: Any, frame: Frame, x: Value) -> list[Frame]:
    """The columns of add_indicator, for those of `frame`, as `x`, that missed some in training."""
    if model.indicator_ is None or not len(model.indicator_.features_):
        return []
    marked = np.asarray(model.indicator_.features_, np.int64)
    gone = frame.builder.op("isnan", frame.builder.op("select", x, indices=marked))
    return [marked_columns(frame, marked.tolist(), gone)]


def _is_missing(model: Any, frame: Frame, i: int) -> Value:
    if _is_string(model, frame, i):
        return string_is_missing(frame, i, model.missing_values)
    return _are_missing(model, frame, [i])


def _are_missing(model: Any, frame: Frame, columns: list[int]) -> Value:
    """(n, columns): where these numeric columns have no value."""
    missing = model.missing_values
    x = numbers(frame.take(columns), "MissingIndicator", allow_nan=means_null(missing))
    return number_is_missing(frame.builder, x, missing)


def _is_string(model: Any, frame: Frame, i: int) -> bool:
    (block,) = frame.take([i]).blocks
    if isinstance(block, RawColumn):
        return isinstance(model.missing_values, str) or model.missing_values is None
    return block.type.dtype == "string"


def _after_checks(model: Any, frame: Frame, others: list[int], first: Value) -> Value:
    """`first`, once nothing is missing in the columns `others`."""
    b = frame.builder
    for i in others:
        gone = b.op("neg", b.op("cast", _is_missing(model, frame, i), dtype="int64"))
        none = b.op("require_known", gone, feature=frame.names[i], step="MissingIndicator")
        first = b.op("or", first, b.op("cast", none, dtype="bool"))
    return first
