"""Operators on the tensors of a torch graph, which are numbers per row (RowTensor) or constants.

torch promotes dtypes by category, bool < integer < floating. A Python number or a tensor without
axes changes the dtype of a tensor only if its category is higher
(https://docs.pytorch.org/docs/stable/tensor_attributes.html).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

import numpy as np

from sqlml.importers import row_tensors
from sqlml.importers.row_tensors import RowTensor, Unsupported
from sqlml.ir.builder import Builder, Value
from sqlml.types import Array, DType, numpy_dtype

Tensor = RowTensor | Array
Operand = RowTensor | Array | int | float | bool

Arguments = Mapping[str, Any]
"""The arguments of a call by name: RowTensors, arrays, numbers, None, or lists of these."""


def _get_category(dtype: str) -> int:
    """Return torch's category of a dtype: 0 for bool, 1 for integers, 2 for floating point."""
    return {"b": 0, "i": 1, "u": 1, "f": 2}[np.dtype(dtype).kind]


def is_floating(dtype: str) -> bool:
    return np.dtype(dtype).kind == "f"


def promote(operands: list[Operand]) -> DType:
    """Return the dtype in which torch computes an elementwise operator on `operands`."""
    tensor_dtypes, scalar_dtypes = list[str](), list[str]()
    number_category = 0
    for operand in operands:
        if isinstance(operand, RowTensor):
            tensor_dtypes.append(operand.dtype)
        elif isinstance(operand, np.ndarray):
            (tensor_dtypes if operand.ndim else scalar_dtypes).append(operand.dtype.name)
        else:
            number_category = max(number_category, [bool, int, float].index(type(operand)))
    # Use the largest dtype of the highest category. Scalars matter only in a higher category.
    sorted_dtypes = sorted(tensor_dtypes, key=lambda dtype: np.dtype(dtype).itemsize, reverse=True)
    promoted = max(sorted_dtypes, key=_get_category, default="")
    for dtype in scalar_dtypes:
        if not promoted or _get_category(dtype) > _get_category(promoted):
            promoted = dtype
    if not promoted or _get_category(promoted) < number_category:
        promoted = ("bool", "int64", "float32")[number_category]
    if promoted not in ("bool", "int8", "int16", "int32", "int64", "float32", "float64"):
        raise Unsupported(f"numbers of dtype {promoted}")
    return cast(DType, promoted)


class TensorBuilder:
    """Adds operators to `builder`, with torch's rules for dtypes and broadcasting."""

    def __init__(self, builder: Builder) -> None:
        self.builder = builder

    def op(self, op: str, x: RowTensor, **attrs: Any) -> RowTensor:
        """Add an operator of the IR whose result has the shape of `x`."""
        return RowTensor(self.builder.op(op, x.value, **attrs), x.inner)

    def cast(self, x: RowTensor, dtype: DType) -> RowTensor:
        """Convert `x` to another dtype; numbers are truncated or wrap around as in torch."""
        return RowTensor(self.builder.cast(x.value, dtype), x.inner)

    def elementwise(self, op: str, *operands: Operand, dtype: DType | None = None) -> RowTensor:
        """Cast `operands` to `dtype`, by default their promoted dtype, and apply `op`."""
        dtype = dtype or promote(list(operands))
        return self._apply(op, [self._convert(x, dtype) for x in operands])

    def where(self, condition: RowTensor, yes: Operand, no: Operand) -> RowTensor:
        """Choose `yes` where `condition` holds, otherwise `no`; both may be constants."""
        dtype = promote([yes, no])
        condition = self.cast(condition, "bool")
        choices = [self._convert(yes, dtype), self._convert(no, dtype)]
        return self._apply("where", [condition, *choices])

    def _convert(self, x: Operand, dtype: DType) -> RowTensor | Array:
        if isinstance(x, RowTensor):
            return self.cast(x, dtype)
        with np.errstate(all="ignore"):
            return np.asarray(x).astype(numpy_dtype(dtype))

    def _apply(self, op: str, operands: list[RowTensor | Array]) -> RowTensor:
        values, inner = row_tensors.broadcast_operands(self.builder, operands)
        return RowTensor(self.builder.op(op, *values), inner)

    def to_floating(self, x: RowTensor) -> RowTensor:
        """Cast integers and booleans to float32, as torch does before functions such as exp."""
        return x if is_floating(x.dtype) else self.cast(x, "float32")

    def unary(self, op: str, x: RowTensor) -> RowTensor:
        """Apply a floating-point function to `x`; integers and booleans become float32 first."""
        return self.op(op, self.to_floating(x))

    def reduce(self, op: str, x: RowTensor, axes: list[int], keep: bool = True) -> RowTensor:
        """Reduce `axes` with `op`; keep the reduced axes with size 1 if `keep` is true."""

        def reduce_axis(value: Value, axis: int) -> Value:
            return self.builder.op(op, value, axis=axis)

        return row_tensors.reduce_axes(self.builder, x, axes, reduce_axis, keep=keep)


def resolve_axis(dim: Any, rank: int) -> int:
    """Convert `dim`, which counts from the end if negative, to an axis that counts from 0."""
    if type(dim) is not int or not -rank <= dim < rank:
        raise Unsupported(f"dimension {dim!r} of a tensor with {rank} axes")
    return dim % rank


def resolve_column_axis(dim: Any, x: RowTensor) -> int:
    """Convert `dim` to an axis of `x` that counts from 0; raise Unsupported for the row axis."""
    axis = resolve_axis(dim, x.rank)
    if axis == 0:
        raise Unsupported("an operator across the rows of the batch")
    return axis


Rule = Callable[[TensorBuilder, Arguments], Any]
"""A function that builds the result of an operator, or a tuple of results, from the arguments."""


def read_rows(arguments: Arguments, name: str = "self") -> RowTensor:
    """Return argument `name`; raise Unsupported if the argument is a constant."""
    x = arguments[name]
    if not isinstance(x, RowTensor):
        raise Unsupported("an operator on constants only")
    return x


def read_constant(arguments: Arguments, name: str) -> Array | None:
    """Return the array `name`, or None if missing; raise Unsupported for a RowTensor."""
    x = arguments.get(name)
    if isinstance(x, RowTensor):
        raise Unsupported(f"argument {name} that depends on the rows")
    return None if x is None else np.asarray(x)
