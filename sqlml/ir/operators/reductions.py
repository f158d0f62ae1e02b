"""Operators that reduce the columns of a row; the axis is kept with length 1."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sqlml.ir.operators.elementwise import exp
from sqlml.ir.operators.op import Function, Op, Types, array, floating, need, numeric
from sqlml.ir.program import Attrs
from sqlml.types import Array, TensorType, matrix


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


def _weighted_median_type(types: Types, attrs: Attrs) -> TensorType:
    weights, x = array(attrs, "weights"), types[0]
    floating(x.dtype)
    need(x.rowwise and len(x.shape) == 2 and x.width > 0, "weighted_median takes (n, k > 0)")
    need(
        weights.dtype == np.float64 and weights.shape == (x.width,),
        f"weights {weights.dtype}{weights.shape} for {x!r}, not one float64 a column",
    )
    return matrix(x.dtype, 1)


def _weighted_median(args: Sequence[Array], attrs: Attrs) -> Array:
    """The least value of a row up to which half of the weight lies; NaN counts as the largest."""
    (x,) = args
    weights: Array = attrs["weights"]
    order = np.argsort(x, axis=1, kind="stable")
    reached = np.cumsum(weights[order], axis=1)
    enough = reached >= 0.5 * reached[:, -1:]
    column = np.take_along_axis(order, enough.argmax(axis=1)[:, None], axis=1)
    return np.take_along_axis(x, column, axis=1)


OPERATORS: tuple[Op, ...] = (
    Op(
        "sum",
        "both",
        "reduction",
        _reduce_type,
        lambda args, attrs: args[0].sum(axis=attrs["axis"], keepdims=True, dtype=args[0].dtype),
        {"axis": "int"},
    ),
    Op("max", "both", "reduction", _extreme_type, _reduction(np.max), {"axis": "int"}),
    Op("min", "both", "reduction", _extreme_type, _reduction(np.min), {"axis": "int"}),
    Op("argmax", "both", "reduction", _argmax_type, _reduction(np.argmax), {"axis": "int"}),
    Op("softmax", "both", "reduction", _softmax_type, _softmax, {"sum_dtype": "str"}),
    Op(
        "weighted_median",
        "both",
        "reduction",
        _weighted_median_type,
        _weighted_median,
        {"weights": "array"},
    ),
)
