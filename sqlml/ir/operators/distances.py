"""`pairwise`: each row against constant points, as a distance or a product, (n, k) -> (n, m).

The sums run over the columns one by one, on differences, so nothing cancels and no (n, m, k) value
is ever made. Distances are *reduced* ones, as trees of neighbours compare them: the square of the
euclidean, the p-th power of Minkowski's. `nearest` (neighbours.py) selects among them.

`expanded` distances, squared euclidean and cosine ones, are rounded as scikit-learn's brute
searches round them (distances.py): a row's distance to its own copy is not 0 then, and 1 / distance
not infinite.

==============  ==================================================================
dot             sum x*y
sqeuclidean     sum (x-y)^2, each term times its weight if there are weights
manhattan       sum |x-y|
chebyshev       max |x-y|
minkowski       sum |x-y|^p, each term times its weight if there are weights
hamming         share of the columns where x and y differ
canberra        sum |x-y| / (|x|+|y|), terms of two zeros left out
braycurtis      sum |x-y| / sum (|x|+|y|), 0 where both are zero
mahalanobis     (x-y) inverse (x-y), the square of the distance
cosine          1 - x*y of rows and points brought to length 1, cut to [0, 2]
chi2            sum (x-y)^2 / (x+y), terms with x+y = 0 left out
==============  ==================================================================
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from sqlml.ir.operators.op import Op, Types, array, floating, need
from sqlml.ir.program import Attrs
from sqlml.types import Array, TensorType, dtype_of, matrix

# Squared distances as |x|^2 - 2 x.y + |y|^2, and cosine distances, with the rounding of BLAS.
#
# scikit-learn's brute searches for neighbours compute them so, by GEMM. Points that are equally
# far then differ in their last bits, and those bits decide which of them are neighbours. So they
# are computed here as BLAS does: products by a chain of fused multiply-adds over the columns,
# squares by its own dot product. A BLAS without fused multiply-add, one that splits more than a
# few hundred columns into blocks, and the source itself on a single row round otherwise.


SPLIT = 134217729.0
"""2^27 + 1: cuts a float64 into two halves (Dekker, 1971)."""


def squares(x: Array) -> Array:
    """(n,): the squared length of each row."""
    return np.asarray(np.vecdot(np.ascontiguousarray(x), np.ascontiguousarray(x)))


def slack(x_squares: Array, point_squares: Array, width: int) -> Array:
    """(n,): more than an expanded distance of the row differs from a direct one."""
    most = point_squares.max(initial=0.0)
    return np.asarray((width + 8) * 2.0**-51 * (x_squares + most))


def fused(a: Array, b: Array, c: Array) -> Array:
    """a * b + c, rounded once, where nothing overflows."""
    product = a * b
    high_a, high_b = a * SPLIT, b * SPLIT
    high_a, high_b = high_a - (high_a - a), high_b - (high_b - b)
    low_a, low_b = a - high_a, b - high_b
    error = ((high_a * high_b - product) + high_a * low_b + low_a * high_b) + low_a * low_b
    total = product + c
    part = total - product
    error = error + ((product - (total - part)) + (c - part))
    made = total + error
    return np.where(np.isfinite(made), made, total)


def expanded(x: Array, points: Array, x_squares: Array, point_squares: Array) -> Array:
    """(n, m) squared distances of rows to points (m, k), or to points (n, m, k) of their own."""
    return np.maximum(0.0, (x_squares[:, None] + -2.0 * _products(x, points)) + point_squares)


def _products(x: Array, points: Array) -> Array:
    product = np.zeros((x.shape[0], points.shape[-2]))
    for j in range(x.shape[1]):
        product = fused(x[:, j : j + 1], points[..., j], product)
    return product


def units(x: Array) -> Array:
    """Rows of length 1, as `sklearn.preprocessing.normalize` makes them; rows of nothing stay."""
    x = np.ascontiguousarray(x)
    length = np.sqrt(np.einsum("ij,ij->i", x, x))
    length[length < 10 * np.finfo(np.float64).eps] = 1.0
    return np.asarray(x / length[:, None])


def cosine(x: Array, points: Array) -> Array:
    """(n, m) cosine distances of rows to points (m, k)."""
    return np.clip(1.0 - _products(units(x), units(points)), 0.0, 2.0)


METRICS = frozenset(
    "dot sqeuclidean manhattan chebyshev minkowski hamming canberra braycurtis mahalanobis cosine "
    "chi2".split()
)
EXPANDED = frozenset({"sqeuclidean", "cosine"})
"""Metrics of which scikit-learn makes a matrix product."""

SQUARES = frozenset({"sqeuclidean", "mahalanobis"})
"""Metrics whose reduced distance is the square of the distance."""

WEIGHTED = frozenset({"sqeuclidean", "minkowski"})
"""Metrics whose terms may have weights."""

METRIC_ATTRS = {
    "points": "array",
    "metric": "str",
    "p": "float?",
    "weights": "array?",
    "inverse": "array?",
}


def check_metric(types: Types, attrs: Attrs) -> int:
    """The number of points; ProgramError when the attributes do not describe a distance."""
    x, points, metric = types[0], array(attrs, "points"), attrs["metric"]
    floating(x.dtype)
    need(x.rowwise and len(x.shape) == 2 and x.width > 0, "distances are of (n, k > 0) values")
    need(
        dtype_of(points) == x.dtype and points.ndim == 2 and points.shape[1] == x.width,
        f"points {points.dtype}{points.shape} for {x!r}",
    )
    need(metric in METRICS, f"unknown metric {metric!r}")
    need(("p" in attrs) == (metric == "minkowski"), "only minkowski has a p")
    if "p" in attrs:
        need(math.isfinite(attrs["p"]) and attrs["p"] > 0, "p must be positive and finite")
    need(("inverse" in attrs) == (metric == "mahalanobis"), "only mahalanobis has an inverse")
    if "inverse" in attrs:
        inverse = array(attrs, "inverse")
        need(
            dtype_of(inverse) == x.dtype and inverse.shape == (x.width, x.width),
            "the inverse is a number of the columns' dtype for each pair of columns",
        )
    if "weights" in attrs:
        weights = array(attrs, "weights")
        need(metric in WEIGHTED, f"{metric} has no weights")
        need(
            dtype_of(weights) == x.dtype and weights.shape == (x.width,),
            "one weight of the columns' dtype a column",
        )
    return int(points.shape[0])


def distances(
    xp: Any, x: Any, points: Any, metric: str, p: float, weights: Any, inverse: Any = None
) -> Any:
    """What `pairwise` computes, on arrays of `xp`: numpy, or a library with its functions.

    Args:
        x: (n, k).
        points: (m, k).
        p: the power of minkowski, ignored by the others.
        weights: (k,) or None.
        inverse: (k, k), of mahalanobis.
    """
    if metric == "mahalanobis":
        return _mahalanobis(x, points, inverse)
    if metric == "cosine":
        similar = distances(xp, _unit(xp, x), _unit(xp, points), "dot", p, None)
        return xp.clip(1.0 - similar, 0.0, 2.0)
    total: Any = None
    whole: Any = None
    width = points.shape[1]
    for j in range(width):
        a, b = x[:, j : j + 1], points[:, j]
        if metric == "dot":
            term = a * b
        elif metric == "hamming":
            term = xp.where(a != b, xp.ones_like(a), 0.0)
        elif metric == "chi2":
            size = a + b
            term = (a - b) * (a - b) / xp.where(size == 0, 1.0, size)
            term = xp.where(size == 0, 0.0, term)
        else:
            term = a - b
            term = term * term if metric == "sqeuclidean" else xp.abs(term)
            if metric == "minkowski":
                term = term**p
            elif metric == "canberra":
                size = xp.abs(a) + xp.abs(b)
                term = xp.where(size > 0, term / xp.where(size > 0, size, 1.0), 0.0)
            elif metric == "braycurtis":
                size = xp.abs(a) + xp.abs(b)
                whole = size if whole is None else whole + size
        if weights is not None:
            term = term * weights[j]
        if total is None:
            total = term
        elif metric == "chebyshev":
            total = xp.maximum(total, term)
        else:
            total = total + term
    if metric == "hamming":
        return total / width
    if metric == "braycurtis":
        return xp.where(whole > 0, total / xp.where(whole > 0, whole, 1.0), 0.0)
    return total


def _mahalanobis(x: Any, points: Any, inverse: Any) -> Any:
    """Summed in the order of `sklearn/metrics/_dist_metrics.pyx`."""
    width = points.shape[1]
    gaps = [x[:, j : j + 1] - points[:, j] for j in range(width)]
    total: Any = 0.0
    for i in range(width):
        line: Any = 0.0
        for j in range(width):
            line = line + inverse[i, j] * gaps[j]
        total = total + line * gaps[i]
    return total


def _unit(xp: Any, x: Any) -> Any:
    """Rows brought to length 1; rows of zeros stay."""
    squares = x[:, :1] * x[:, :1]
    for j in range(1, x.shape[1]):
        squares = squares + x[:, j : j + 1] * x[:, j : j + 1]
    length = xp.sqrt(squares)
    return x / xp.where(length == 0, 1.0, length)


def reduced(x: Array, attrs: Attrs) -> Array:
    """(n, m) reduced distances of rows `x` under the metric that `attrs` describe."""
    found = distances(
        np,
        x,
        attrs["points"],
        attrs["metric"],
        attrs.get("p", 0.0),
        attrs.get("weights"),
        attrs.get("inverse"),
    )
    made: Array = found.astype(x.dtype, copy=False)
    return made


def as_expanded(x: Array, attrs: Attrs) -> Array:
    """Distances (n, m) by a metric of `EXPANDED`, rounded as the source rounds them."""
    points = attrs["points"]
    if attrs["metric"] == "cosine":
        return cosine(x, points)
    return expanded(x, points, squares(x), squares(points))


def _pairwise_type(types: Types, attrs: Attrs) -> TensorType:
    points = check_metric(types, attrs)
    if attrs.get("expanded", False):
        plain = attrs["metric"] in EXPANDED and "weights" not in attrs
        need(
            plain and types[0].dtype == "float64",
            "only euclidean and cosine distances in float64, without weights, are expanded",
        )
    return matrix(types[0].dtype, points)


def _pairwise(args: Sequence[Array], attrs: Attrs) -> Array:
    (x,) = args
    return as_expanded(x, attrs) if attrs.get("expanded", False) else reduced(x, attrs)


OPERATORS: tuple[Op, ...] = (
    Op(
        "pairwise",
        "both",
        "complex",
        _pairwise_type,
        _pairwise,
        {**METRIC_ATTRS, "expanded": "bool?"},
    ),
)
