"""The tensors of a torch graph during conversion: rows of the batch, or constants.

torch promotes by kind: a number or a tensor without axes adapts to a tensor of the same kind
(bool < integer < floating), https://docs.pytorch.org/docs/stable/tensor_attributes.html.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

import numpy as np

from sqlml.importers import row_tensors
from sqlml.importers.row_tensors import Rows, Uncovered
from sqlml.ir.builder import Builder, Value
from sqlml.types import Array, DType, numpy_dtype

Tensor = Rows | Array
Operand = Rows | Array | int | float | bool

Arguments = Mapping[str, Any]


def find_kind(dtype: str) -> int:
    """Return the kind of a dtype: 0 for bool, 1 for integers, 2 for floats."""
    return {"b": 0, "i": 1, "u": 1, "f": 2}[np.dtype(dtype).kind]


def promote(operands: list[Operand]) -> DType:
    """Return the dtype in which torch computes with `operands`, tensors or numbers."""
    strong: list[str] = []
    weak: list[str] = []
    number_kind = 0
    for x in operands:
        if isinstance(x, Rows):
            strong.append(x.dtype)
        elif isinstance(x, np.ndarray):
            (strong if x.ndim else weak).append(x.dtype.name)
        else:
            number_kind = max(number_kind, [bool, int, float].index(type(x)))
    # The first of the largest dtypes of the highest kind; tensors without axes only raise the kind.
    result = max(strong, key=lambda d: (find_kind(d), np.dtype(d).itemsize), default="")
    for dtype in weak:
        if not result or find_kind(dtype) > find_kind(result):
            result = dtype
    if not result or find_kind(result) < number_kind:
        result = ("bool", "int64", "float32")[number_kind]
    if result not in ("bool", "int8", "int16", "int32", "int64", "float32", "float64"):
        raise Uncovered(f"numbers of dtype {result}")
    return cast(DType, result)


class Maker:
    """A builder of operators over tensors, with torch's rules of dtype and broadcasting."""

    def __init__(self, builder: Builder) -> None:
        self.b = builder

    def op(self, op: str, x: Rows, **attrs: Any) -> Rows:
        """Add an operator of the IR whose result has as many numbers as its input."""
        return Rows(self.b.op(op, x.value, **attrs), x.inner)

    def cast(self, x: Rows, dtype: DType) -> Rows:
        """Convert `x` to another dtype, truncating and wrapping like torch."""
        return Rows(self.b.cast(x.value, dtype), x.inner)

    def elementwise(self, op: str, *operands: Operand, dtype: DType | None = None) -> Rows:
        """Apply `op` to operands that are promoted to one dtype, or cast to `dtype`."""
        dtype = dtype or promote(list(operands))
        return self._apply(op, [self._convert(x, dtype) for x in operands])

    def where(self, condition: Rows, yes: Operand, no: Operand) -> Rows:
        """Choose `yes` where the condition holds, else `no`; either may be a constant."""
        dtype = promote([yes, no])
        chosen = self.cast(condition, "bool")
        return self._apply("where", [chosen, self._convert(yes, dtype), self._convert(no, dtype)])

    def _convert(self, x: Operand, dtype: DType) -> Rows | Array:
        if isinstance(x, Rows):
            return self.cast(x, dtype)
        with np.errstate(all="ignore"):
            converted: Array = np.asarray(x).astype(numpy_dtype(dtype))
        return converted

    def _apply(self, op: str, operands: list[Rows | Array]) -> Rows:
        values, inner = row_tensors.align(self.b, operands)
        return Rows(self.b.op(op, *values), inner)

    def floating(self, x: Rows) -> Rows:
        """Cast integers to float32, as functions such as exp do."""
        return self.cast(x, "float32") if find_kind(x.dtype) < 2 else x

    def unary(self, op: str, x: Rows) -> Rows:
        """Apply a function of floats; integers become float32 first."""
        return self.op(op, self.floating(x))

    def reduce(self, op: str, x: Rows, axes: list[int], keep: bool = True) -> Rows:
        """Reduce column axes, which stay with length 1 or are dropped."""

        def reduce_last(value: Value, axis: int) -> Value:
            return self.b.op(op, value, axis=axis)

        return row_tensors.reduce_axes(self.b, x, axes, reduce_last, keep=keep)


def resolve_axis(dim: Any, rank: int) -> int:
    """Return the axis `dim` of `rank` axes, counted from the front."""
    if type(dim) is not int or not -rank <= dim < rank:
        raise Uncovered(f"dimension {dim!r} of {rank}")
    return dim % rank


def resolve_column_axis(dim: Any, x: Rows) -> int:
    """Return the axis `dim` of `x`, which must not be that of the rows."""
    axis = resolve_axis(dim, x.rank)
    if axis == 0:
        raise Uncovered("an operator across the rows of the batch")
    return axis


Rule = Callable[[Maker, Arguments], Any]
"""A function from arguments by name to a result, or to a tuple of results."""


def rows(a: Arguments, name: str) -> Rows:
    """Return argument `name`, which must be a tensor with rows."""
    x = a[name]
    if not isinstance(x, Rows):
        raise Uncovered("an operator on constants only")
    return x


def constant(a: Arguments, name: str) -> Array | None:
    """Return argument `name`, which must be a tensor without rows, or None."""
    x = a.get(name)
    if isinstance(x, Rows):
        raise Uncovered(f"argument {name} that depends on the rows")
    return None if x is None else np.asarray(x)
