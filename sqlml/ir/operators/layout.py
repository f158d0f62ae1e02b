"""Operators that choose, join and reshape columns, and look values up in tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from sqlml.ir.operators.op import Function, Op, Types, array, need
from sqlml.ir.program import Attrs
from sqlml.types import INTEGERS, ROWS, Array, TensorType, matrix, promote


def _concat_type(types: Types, attrs: Attrs) -> TensorType:
    need(all(t.rowwise and len(t.shape) == 2 for t in types), "concat takes (n, k) values")
    return matrix(promote(*[t.dtype for t in types]), sum(t.width for t in types))


def _select_type(types: Types, attrs: Attrs) -> TensorType:
    indices = array(attrs, "indices")
    need(types[0].rowwise and len(types[0].shape) == 2, "select takes an (n, k) value")
    need(indices.ndim == 1 and indices.dtype == np.int64, "indices must be int64, one axis")
    need(
        indices.size == 0 or (indices.min() >= 0 and indices.max() < types[0].width),
        f"select reaches outside {types[0]!r}",
    )
    return matrix(types[0].dtype, indices.size)


def _reshape_type(types: Types, attrs: Attrs) -> TensorType:
    shape = attrs["shape"]
    need(
        isinstance(shape, tuple) and all(type(d) is int and d >= 0 for d in shape),
        "shape must be a tuple of whole numbers",
    )
    need(types[0].rowwise, "reshape takes a row-wise value; shape is that of one row")
    new = (ROWS, *shape)
    size = was = 1
    for d in new[1:]:
        size *= d
    for d in types[0].shape[1:]:
        was *= d
    need(size == was, f"{types[0]!r} does not reshape to {new}")
    return TensorType(types[0].dtype, tuple(new))


def _take_type(types: Types, attrs: Attrs) -> TensorType:
    table, index = types
    need(not table.rowwise and len(table.shape) >= 1, "take reads a constant table")
    need(index.dtype in INTEGERS, "take is indexed by integers")
    return TensorType(table.dtype, index.shape + table.shape[1:])


def _gather_type(types: Types, attrs: Attrs) -> TensorType:
    x, index = types
    need(x.rowwise and index.rowwise and index.dtype in INTEGERS, "gather takes (n,k) and (n,t)")
    need(len(x.shape) == 2 and len(index.shape) == 2, "gather takes (n,k) and (n,t)")
    return TensorType(x.dtype, index.shape)


def _take(args: Sequence[Array], attrs: Attrs) -> Array:
    table, index = args
    if index.size and (index.min() < 0 or index.max() >= table.shape[0]):
        raise IndexError("take reaches outside its table")
    return table[index]


OPERATORS: tuple[Op, ...] = (
    Op("concat", "both", "injective", (1, None), _concat_type),
    Op("select", "both", "injective", (1, 1), _select_type, {"indices": "array"}),
    Op("reshape", "tensor", "injective", (1, 1), _reshape_type, {"shape": "tuple"}),
    Op("take", "tensor", "injective", (2, 2), _take_type),
    Op("gather", "tensor", "injective", (2, 2), _gather_type),
)

FUNCTIONS: Mapping[str, Function] = MappingProxyType(
    {
        "concat": lambda args, attrs: np.concatenate(args, axis=1),
        "select": lambda args, attrs: args[0][:, attrs["indices"]],
        "reshape": lambda args, attrs: args[0].reshape(args[0].shape[0], *attrs["shape"]),
        "take": _take,
        "gather": lambda args, attrs: np.take_along_axis(args[0], args[1].astype(np.int64), 1),
    }
)
