"""Distances to centres, by the formulas that scikit-learn has for each purpose.

All expand |x - c|^2 to |x|^2 - 2 x.c + |c|^2, but they add in different orders and one leaves
|x|^2 out, which decides ties. The factor -2 goes into the weights; a power of two is exact.
"""

from __future__ import annotations

import numpy as np

from sqlml.ir.builder import Builder, Value
from sqlml.types import Array, Labels


def component_labels(count: int) -> Labels:
    """The labels of clusters or components: their numbers 0 .. count - 1."""
    return Labels("int64", tuple(range(count)))


def euclidean(builder: Builder, x: Value, centres: Array) -> Value:
    """(n, F) and centres (K, F) -> (n, K) distances, as `euclidean_distances`."""
    squared = builder.op("add", builder.linear(x, -2.0 * centres.T), _norm(builder, x))
    squared = builder.op("add", squared, squared_norms(centres))
    return builder.op("sqrt", builder.op("maximum", squared, 0.0))


def nearest(builder: Builder, x: Value, centres: Array) -> Value:
    """(n, F) and centres (K, F) -> (n, 1) number of the nearest, as `pairwise_distances_argmin`.

    |x|^2 takes part, so that centres tie for a row far away from all of them; the first one wins.
    """
    squared = builder.op("add", _norm(builder, x), builder.linear(x, -2.0 * centres.T))
    squared = builder.op("add", squared, squared_norms(centres))
    return _smallest(builder, builder.op("maximum", squared, 0.0))


def assigned(builder: Builder, x: Value, centres: Array) -> Value:
    """(n, F) and centres (K, F) -> (n, 1) number of the nearest, as KMeans: without |x|^2."""
    return _smallest(builder, relative(builder, x, centres))


def relative(builder: Builder, x: Value, centres: Array) -> Value:
    """(n, F) and centres (K, F) -> (n, K) of |c|^2 - 2 x.c."""
    return builder.linear(x, -2.0 * centres.T, squared_norms(centres))


def squared_norms(centres: Array) -> Array:
    """|c|^2 of each row, (K,)."""
    norms: Array = np.einsum("kf,kf->k", centres, centres)
    return norms


def _norm(builder: Builder, x: Value) -> Value:
    return builder.op("sum", builder.op("square", x), axis=1)


def _smallest(builder: Builder, squared: Value) -> Value:
    return builder.op("argmax", builder.op("neg", squared), axis=1)
