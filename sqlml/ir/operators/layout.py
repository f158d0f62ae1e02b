"""Operators that choose, join and reshape columns, and look values up in tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sqlml.errors import ProgramError
from sqlml.ir import csr
from sqlml.ir.csr import Csr
from sqlml.ir.operators.op import Op, Types, array, need
from sqlml.ir.program import Attrs
from sqlml.types import INTEGERS, ROWS, Array, TensorType, matrix, promote


def _concat_type(types: Types, attrs: Attrs) -> TensorType:
    need(all(t.rowwise and len(t.shape) == 2 for t in types), "concat takes (n, k) values")
    sparse = any(t.sparse for t in types)
    dtype = promote(*[t.dtype for t in types])
    need(not sparse or dtype != "string", "sparse rows hold numbers")
    return matrix(dtype, sum(t.width for t in types), sparse)


def _select_type(types: Types, attrs: Attrs) -> TensorType:
    indices = array(attrs, "indices")
    need(types[0].rowwise and len(types[0].shape) == 2, "select takes an (n, k) value")
    need(indices.ndim == 1 and indices.dtype == np.int64, "indices must be int64, one axis")
    if indices.size and (indices.min() < 0 or indices.max() >= types[0].width):
        raise ProgramError(f"select reaches outside {types[0]!r}")
    return matrix(types[0].dtype, indices.size, types[0].sparse)


def _reshape_type(types: Types, attrs: Attrs) -> TensorType:
    shape = attrs["shape"]
    need(
        isinstance(shape, tuple) and all(type(d) is int and d >= 0 for d in shape),
        "shape must be a tuple of integers",
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


def _concat(args: Sequence[Array], attrs: Attrs) -> Any:
    if any(isinstance(x, Csr) for x in args):
        return csr.concat(args)
    return np.concatenate(args, axis=1)


def _select(args: Sequence[Any], attrs: Attrs) -> Any:
    (x,) = args
    if isinstance(x, Csr):
        return csr.Selector(x.width, attrs["indices"])(x)
    return x[:, attrs["indices"]]


def _take(args: Sequence[Array], attrs: Attrs) -> Array:
    table, index = args
    _check_reach("take", index, table.shape[0])
    return table[index]


def _gather(args: Sequence[Array], attrs: Attrs) -> Array:
    x, index = args
    _check_reach("gather", index, x.shape[1])
    return np.take_along_axis(x, index.astype(np.int64), 1)


def _check_reach(op: str, index: Array, length: int) -> None:
    """No rule can see this: the places are made of the rows."""
    if index.size and (index.min() < 0 or index.max() >= length):
        raise ProgramError(f"{op} reaches outside its table of {length}; create the model again")


OPERATORS: tuple[Op, ...] = (
    Op("concat", "both", "injective", _concat_type, _concat, arity=(1, None), sparse=True),
    Op("select", "both", "injective", _select_type, _select, {"indices": "array"}, sparse=True),
    Op(
        "reshape",
        "tensor",
        "injective",
        _reshape_type,
        lambda args, attrs: args[0].reshape(args[0].shape[0], *attrs["shape"]),
        {"shape": "tuple"},
    ),
    Op("take", "tensor", "injective", _take_type, _take, arity=(2, 2)),
    Op("gather", "tensor", "injective", _gather_type, _gather, arity=(2, 2)),
)
