"""Operators that look at the columns of a row in the order of their values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from sqlml.ir.operators.op import Function, Op, Types, array, floating, need
from sqlml.ir.program import Attrs
from sqlml.types import Array, TensorType, matrix


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
        "weighted_median",
        "both",
        "reduction",
        (1, 1),
        _weighted_median_type,
        {"weights": "array"},
    ),
)

FUNCTIONS: Mapping[str, Function] = MappingProxyType({"weighted_median": _weighted_median})
