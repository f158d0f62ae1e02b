"""Tensors of a torch graph while it is converted: rows of the batch, or constants.

torch promotes by kind: a number or a tensor without axes gives way to a tensor of its own kind
(bool < whole < floating), https://docs.pytorch.org/docs/stable/tensor_attributes.html.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from sqlml.ir.builder import Builder, Value
from sqlml.types import ROWS, Array, DType, numpy_dtype


class Uncovered(Exception):
    """Something that the operators of the IR do not say; the message names it."""


@dataclass(frozen=True, slots=True)
class Rows:
    """A tensor with one entry per row. `flat` says that torch has it as (n,), and we as (n, 1)."""

    value: Value
    flat: bool = False

    @property
    def dtype(self) -> DType:
        """Its dtype."""
        return self.value.type.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """torch's shape."""
        return (ROWS,) if self.flat else self.value.type.shape

    @property
    def rank(self) -> int:
        """torch's number of axes."""
        return len(self.shape)


Tensor = Rows | Array
Operand = Rows | Array | int | float | bool


def kind_of(dtype: str) -> int:
    """0 for bool, 1 for whole numbers, 2 for floats."""
    return {"b": 0, "i": 1, "u": 1, "f": 2}[np.dtype(dtype).kind]


def promoted(operands: list[Operand]) -> DType:
    """The dtype in which torch computes with `operands`, tensors or numbers."""
    strong: list[str] = []
    weak: list[str] = []
    numbers = [0]
    for x in operands:
        if isinstance(x, Rows):
            strong.append(x.dtype)
        elif isinstance(x, np.ndarray):
            (strong if x.ndim else weak).append(x.dtype.name)
        else:
            numbers.append(0 if isinstance(x, bool) else 1 if isinstance(x, int) else 2)
    result = ""
    for group in (strong, weak):
        for dtype in group:
            higher = not result or kind_of(dtype) > kind_of(result)
            same = bool(result) and kind_of(dtype) == kind_of(result) and group is strong
            if higher or (same and np.dtype(dtype).itemsize > np.dtype(result).itemsize):
                result = dtype
    if not result or kind_of(result) < max(numbers):
        result = {0: "bool", 1: "int64", 2: "float32"}[max(numbers)]
    if result not in ("bool", "int8", "int16", "int32", "int64", "float32", "float64"):
        raise Uncovered(f"numbers of dtype {result}")
    return cast(DType, result)


class Maker:
    """Makes operators over tensors, with torch's rules of dtype and broadcasting."""

    def __init__(self, builder: Builder) -> None:
        self.b = builder

    def cast(self, x: Rows, dtype: DType) -> Rows:
        """`x` in another dtype, truncated and wrapped as torch does."""
        if x.dtype == dtype:
            return x
        return Rows(self.b.op("cast", x.value, dtype=dtype), x.flat)

    def align(self, operands: list[Operand], dtype: DType) -> tuple[list[Value], bool]:
        """`operands` as values of one dtype whose broadcasting is torch's; and whether flat."""
        rows = [x for x in operands if isinstance(x, Rows)]
        rank = {x.rank for x in rows}
        if len(rank) != 1:
            raise Uncovered("an operator over tensors of different rank")
        flat = rows[0].flat
        made: list[Value] = []
        for x in operands:
            if isinstance(x, Rows):
                made.append(self.cast(x, dtype).value)
                continue
            array = np.asarray(x)
            if array.ndim == rows[0].rank and array.ndim and array.shape[0] == 1:
                array = array[0]
            if array.ndim >= rows[0].rank or (flat and array.size != 1):
                raise Uncovered("a constant that is as long as the batch")
            with np.errstate(all="ignore"):
                array = array.reshape(array.shape or (1,)).astype(numpy_dtype(dtype))
            made.append(self.b.constant(array))
        return made, flat

    def elementwise(self, op: str, *operands: Operand, dtype: DType | None = None) -> Rows:
        """`op` over operands that are promoted to one dtype, or cast to `dtype`."""
        values, flat = self.align(list(operands), dtype or promoted(list(operands)))
        return Rows(self.b.op(op, *values), flat)

    def floating(self, x: Operand) -> Operand:
        """Whole numbers as float32, which functions such as exp make of them."""
        if isinstance(x, Rows) and kind_of(x.dtype) < 2:
            return self.cast(x, "float32")
        return x

    def unary(self, op: str, x: Rows) -> Rows:
        """A function of floats."""
        x = cast(Rows, self.floating(x))
        return Rows(self.b.op(op, x.value), x.flat)

    def where(self, condition: Rows, yes: Operand, no: Operand) -> Rows:
        """`yes` where the condition holds, else `no`; one of them may have no rows."""
        dtype = promoted([yes, no])
        values, flat = self.align([condition, yes, no], dtype)
        chosen, _ = self.align([condition], "bool")
        return Rows(self.b.op("where", chosen[0], *values[1:]), flat)

    def reduce(self, op: str, x: Rows, axis: int) -> Rows:
        """A reduction over a column axis, which stays with length 1."""
        return Rows(self.b.op(op, x.value, axis=axis))

    def reshape(self, x: Rows, shape: tuple[int, ...]) -> Rows:
        """Rows as torch's (n, *shape)."""
        inner = shape or (1,)
        value = x.value
        if value.type.shape[1:] != inner:
            value = self.b.op("reshape", value, shape=inner)
        return Rows(value, not shape)


def axis_of(dim: Any, rank: int) -> int:
    """A dimension that may count from the end."""
    if type(dim) is not int or not -rank <= dim < rank:
        raise Uncovered(f"dimension {dim!r} of {rank}")
    return dim % rank


def column_axis(dim: Any, x: Rows) -> int:
    """A dimension of `x` that is not the batch's."""
    axis = axis_of(dim, x.rank)
    if axis == 0:
        raise Uncovered("an operator across the rows of the batch")
    return axis
