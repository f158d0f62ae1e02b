"""Operators that reduce the columns of a row; the axis is kept with length 1."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from sqlml.ir.operators.elementwise import exp
from sqlml.ir.operators.op import Function, Op, Types, floating, need, numeric
from sqlml.ir.program import Attrs
from sqlml.types import Array, TensorType


def _reduce_type(types: Types, attrs: Attrs) -> TensorType:
    axis = attrs["axis"]
    need(isinstance(axis, int) and 0 < axis < len(types[0].shape), "axis must be a column axis")
    numeric(types[0].dtype)
    shape = tuple(1 if i == axis else d for i, d in enumerate(types[0].shape))
    return TensorType(types[0].dtype, shape)


def _extreme_type(types: Types, attrs: Attrs) -> TensorType:
    result = _reduce_type(types, attrs)
    need(types[0].shape[attrs["axis"]] > 0, f"{types[0]!r} has no value to choose")
    return result


def _argmax_type(types: Types, attrs: Attrs) -> TensorType:
    return TensorType("int64", _extreme_type(types, attrs).shape)


def _softmax_type(types: Types, attrs: Attrs) -> TensorType:
    floating(types[0].dtype)
    need(len(types[0].shape) == 2, "softmax takes an (n, k) value")
    floating(attrs["sum_dtype"])
    return types[0]


def _softmax(args: Sequence[Array], attrs: Attrs) -> Array:
    (x,) = args
    if not x.shape[1]:
        return x
    e = exp(x - x.max(axis=1, keepdims=True))
    total = e.sum(axis=1, keepdims=True, dtype=str(attrs["sum_dtype"]))
    shares: Array = e / total.astype(x.dtype)
    return shares


def _reduction(function: Callable[..., Any]) -> Function:
    return lambda args, attrs: function(args[0], axis=attrs["axis"], keepdims=True)


OPERATORS: tuple[Op, ...] = (
    Op("sum", "both", "reduction", (1, 1), _reduce_type, {"axis": "int"}),
    Op("max", "both", "reduction", (1, 1), _extreme_type, {"axis": "int"}),
    Op("min", "both", "reduction", (1, 1), _extreme_type, {"axis": "int"}),
    Op("argmax", "both", "reduction", (1, 1), _argmax_type, {"axis": "int"}),
    Op("softmax", "both", "reduction", (1, 1), _softmax_type, {"sum_dtype": "str"}),
)

FUNCTIONS: Mapping[str, Function] = MappingProxyType(
    {
        "sum": lambda args, attrs: args[0].sum(
            axis=attrs["axis"], keepdims=True, dtype=args[0].dtype
        ),
        "max": _reduction(np.max),
        "min": _reduction(np.min),
        "argmax": _reduction(np.argmax),
        "softmax": _softmax,
    }
)
