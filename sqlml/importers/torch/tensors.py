"""The tensors of a torch graph during its conversion: numbers per row, or constants.

torch promotes by category: a number or a tensor without axes adapts to a tensor of its category
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


def _get_category(dtype: str) -> int:
    """Return the category of a dtype: 0 for bool, 1 for integers, 2 for floating point."""
    return {"b": 0, "i": 1, "u": 1, "f": 2}[np.dtype(dtype).kind]


def is_floating(dtype: str) -> bool:
    return np.dtype(dtype).kind == "f"


def promote(operands: list[Operand]) -> DType:
    """Return the dtype to which torch promotes `operands`, which are tensors or numbers."""
    tensor_dtypes, scalar_dtypes = list[str](), list[str]()
    number_category = 0
    for x in operands:
        if isinstance(x, Rows):
            tensor_dtypes.append(x.dtype)
        elif isinstance(x, np.ndarray):
            (tensor_dtypes if x.ndim else scalar_dtypes).append(x.dtype.name)
        else:
            number_category = max(number_category, [bool, int, float].index(type(x)))
    # The largest dtype of the highest category; tensors without axes only raise the category.
    by_size = sorted(tensor_dtypes, key=lambda dtype: np.dtype(dtype).itemsize, reverse=True)
    promoted = max(by_size, key=_get_category, default="")
    for dtype in scalar_dtypes:
        if not promoted or _get_category(dtype) > _get_category(promoted):
            promoted = dtype
    if not promoted or _get_category(promoted) < number_category:
        promoted = ("bool", "int64", "float32")[number_category]
    if promoted not in ("bool", "int8", "int16", "int32", "int64", "float32", "float64"):
        raise Uncovered(f"numbers of dtype {promoted}")
    return cast(DType, promoted)


class Maker:
    """Adds operators on tensors to a Builder, with torch's rules for dtypes and broadcasting."""

    def __init__(self, builder: Builder) -> None:
        self.b = builder

    def op(self, op: str, x: Rows, **attrs: Any) -> Rows:
        """Add an operator of the IR whose result has as many numbers as its input."""
        return Rows(self.b.op(op, x.value, **attrs), x.inner)

    def cast(self, x: Rows, dtype: DType) -> Rows:
        """Convert `x` to another dtype; numbers are truncated or wrap around as in torch."""
        return Rows(self.b.cast(x.value, dtype), x.inner)

    def elementwise(self, op: str, *operands: Operand, dtype: DType | None = None) -> Rows:
        """Apply `op` to operands that are promoted to one dtype, or cast to `dtype`."""
        dtype = dtype or promote(list(operands))
        return self._apply(op, [self._convert(x, dtype) for x in operands])

    def where(self, condition: Rows, yes: Operand, no: Operand) -> Rows:
        """Choose `yes` where the condition holds, otherwise `no`; both may be constants."""
        dtype = promote([yes, no])
        condition = self.cast(condition, "bool")
        choices = [self._convert(yes, dtype), self._convert(no, dtype)]
        return self._apply("where", [condition, *choices])

    def _convert(self, x: Operand, dtype: DType) -> Rows | Array:
        if isinstance(x, Rows):
            return self.cast(x, dtype)
        with np.errstate(all="ignore"):
            return np.asarray(x).astype(numpy_dtype(dtype))

    def _apply(self, op: str, operands: list[Rows | Array]) -> Rows:
        values, inner = row_tensors.broadcast_operands(self.b, operands)
        return Rows(self.b.op(op, *values), inner)

    def to_floating(self, x: Rows) -> Rows:
        """Cast integers and booleans to float32, as functions such as exp do."""
        return x if is_floating(x.dtype) else self.cast(x, "float32")

    def unary(self, op: str, x: Rows) -> Rows:
        """Apply a floating-point function; integers and booleans become float32 first."""
        return self.op(op, self.to_floating(x))

    def reduce(self, op: str, x: Rows, axes: list[int], keep: bool = True) -> Rows:
        """Reduce column axes, which are kept with length 1 or dropped."""

        def reduce_axis(value: Value, axis: int) -> Value:
            return self.b.op(op, value, axis=axis)

        return row_tensors.reduce_axes(self.b, x, axes, reduce_axis, keep=keep)


def resolve_axis(dim: Any, rank: int) -> int:
    """Return the axis `dim`, which may be negative, counted from the front."""
    if type(dim) is not int or not -rank <= dim < rank:
        raise Uncovered(f"dimension {dim!r} of a tensor with {rank} axes")
    return dim % rank


def resolve_column_axis(dim: Any, x: Rows) -> int:
    """Return the axis `dim` of `x`, counted from the front; it must not be the row axis."""
    axis = resolve_axis(dim, x.rank)
    if axis == 0:
        raise Uncovered("an operator across the rows of the batch")
    return axis


Rule = Callable[[Maker, Arguments], Any]
"""A function that converts an operator, given its arguments, to a result or a tuple of results."""


def read_rows(a: Arguments, name: str) -> Rows:
    """Return argument `name`, which must be a tensor with rows."""
    x = a[name]
    if not isinstance(x, Rows):
        raise Uncovered("an operator on constants only")
    return x


def read_constant(a: Arguments, name: str) -> Array | None:
    """Return argument `name`, which must be a tensor without rows, or None."""
    x = a.get(name)
    if isinstance(x, Rows):
        raise Uncovered(f"argument {name} that depends on the rows")
    return None if x is None else np.asarray(x)
