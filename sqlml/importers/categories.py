"""Columns of categories as the codes that a booster was trained on, alongside numeric columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame
from sqlml.ir.builder import Value
from sqlml.types import Array, DType

C = TypeVar("C")


def category_array(values: Sequence[Any], column: str) -> Array:
    """Categories as encode wants them: objects for strings, float64 for numbers and booleans.

    Raises:
        UnsupportedModelError: dates, intervals or a mixture.
    """
    plain = [v.item() if isinstance(v, np.generic) else v for v in values]
    if plain and all(isinstance(v, str) for v in plain):
        return np.array(plain, object)
    if all(isinstance(v, bool | int | float) for v in plain):
        numbers = np.array([float(v) for v in plain], np.float64)
        if np.unique(numbers).size == numbers.size:
            return numbers
    raise UnsupportedModelError(
        f"the categories of column {column!r} are neither strings nor distinct numbers, e.g. "
        f"{plain[:3]!r}; train on strings"
    )


def coded_columns(
    frame: Frame,
    chosen: Iterable[int],
    categorical: Mapping[int, C],
    codes: Callable[[Frame, int, C], Value],
    dtype: DType,
) -> Value:
    """The `chosen` columns side by side, (n, k) of `dtype`: of the `categorical` ones what `codes`
    makes of frame, column and categories, and the numbers of the others."""
    parts: list[Value] = []
    run: list[int] = []  # neighbours that are numbers
    for i in chosen:
        if i not in categorical:
            run.append(i)
            continue
        if run:
            parts.append(frame.take(run).matrix(dtype))
            run = []
        parts.append(codes(frame, i, categorical[i]))
    if run or not parts:
        parts.append(frame.take(run).matrix(dtype))
    return frame.builder.beside(parts)


def category_codes(
    frame: Frame, i: int, categories: Array, dtype: DType, refuse: str | None = None
) -> Value:
    """Column `i` as codes 0, 1, .. in the order of `categories`, NaN where it is missing; (n, 1).

    A value that is not among the categories is NaN too, or raises UnknownCategoryError when
    `refuse` names the model that does not take it.
    """
    b = frame.builder
    x = frame.strings(i) if categories.dtype == object else frame.numbers(i, "float64")
    missing = -1 if refuse is None else len(categories)
    codes = b.op("encode", x, categories=categories, missing=missing)
    if refuse is not None:
        codes = b.op("require_known", codes, feature=frame.names[i], step=refuse)
    gone = b.op("eq", codes, b.constant(np.array([missing], np.int64)))
    nan = b.constant(np.array([np.nan], dtype))
    return b.op("where", gone, nan, b.op("cast", codes, dtype=dtype))
