"""`pairwise`: distances or products of each row and constant points, (n, k) -> (n, m).

Sums of differences run over the columns one by one, so nothing cancels and no (n, m, k) array is
allocated. Distances are *reduced*, as trees of neighbours compare them: `sqeuclidean` and
`mahalanobis` are squares, and `minkowski` is the p-th power. If both points are zero, `braycurtis`
is 0; `canberra` and `chi2` leave out terms that are zero in both points.

`expanded` distances, |x|^2 - 2 x.y + |y|^2 or cosine, are rounded as in scikit-learn's brute
searches, because the last bits of equal distances decide which points are neighbours. The rounding
is that of BLAS: products are chains of fused multiply-adds over the columns, and squares are dot
products. Rounding differs in a BLAS without fused multiply-add, in a BLAS that splits more than a
few hundred columns into blocks, and in scikit-learn for a single row.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from sqlml.ir.operators.op import Op, Types, array_attribute, require, require_float, require_matrix
from sqlml.ir.program import Attrs
from sqlml.types import Array, TensorType, matrix

SPLIT = 134217729.0
"""2^27 + 1, which splits a float64 into two halves (Dekker, 1971)."""


def compute_square_norms(x: Array) -> Array:
    """Return the squared length of each row of `x`, (n,)."""
    return np.asarray(np.vecdot(np.ascontiguousarray(x), np.ascontiguousarray(x)))


def bound_rounding_error(x_norms: Array, point_norms: Array, width: int) -> Array:
    """Return upper bounds (n,) on the difference between expanded and direct distances."""
    return np.asarray((width + 8) * 2.0**-51 * (x_norms + point_norms.max(initial=0.0)))


def multiply_add(a: Array, b: Array, c: Array) -> Array:
    """Return a * b + c, rounded once if nothing overflows."""
    # Dekker's splitting yields the rounding error of the product, and Knuth's two-sum that of c.
    product = a * b
    high_a, high_b = a * SPLIT, b * SPLIT
    high_a, high_b = high_a - (high_a - a), high_b - (high_b - b)
    low_a, low_b = a - high_a, b - high_b
    error = ((high_a * high_b - product) + high_a * low_b + low_a * high_b) + low_a * low_b
    total = product + c
    rounded_product = total - product
    error = error + ((product - (total - rounded_product)) + (c - rounded_product))
    result = total + error
    return np.where(np.isfinite(result), result, total)


def compute_expanded_distances(
    x: Array, points: Array, x_norms: Array, point_norms: Array
) -> Array:
    """Return expanded squared distances (n, m) from rows of `x` to `points`.

    The points are (m, k), or (n, m, k) if each row has other points.
    """
    products = _compute_products(x, points)
    return np.maximum(0.0, (x_norms[:, None] + -2.0 * products) + point_norms)


def _compute_products(x: Array, points: Array) -> Array:
    product = np.zeros((x.shape[0], points.shape[-2]))
    for j in range(x.shape[1]):
        product = multiply_add(x[:, j : j + 1], points[..., j], product)
    return product


def scale_to_unit(x: Array) -> Array:
    """Scale rows to length 1 as `sklearn.preprocessing.normalize` does; zeros stay zero."""
    x = np.ascontiguousarray(x)
    length = np.sqrt(np.einsum("ij,ij->i", x, x))
    length[length < 10 * np.finfo(np.float64).eps] = 1.0
    return np.asarray(x / length[:, None])


def compute_cosine_distances(x: Array, points: Array) -> Array:
    return np.clip(1.0 - _compute_products(scale_to_unit(x), scale_to_unit(points)), 0.0, 2.0)


METRICS = frozenset(
    "dot sqeuclidean manhattan chebyshev minkowski hamming canberra braycurtis mahalanobis cosine "
    "chi2".split()
)
EXPANDED = frozenset({"sqeuclidean", "cosine"})
"""Metrics that scikit-learn computes by a matrix product."""

SQUARES = frozenset({"sqeuclidean", "mahalanobis"})
"""Metrics whose reduced distance is the square of the distance."""

METRIC = "points, metric: str, p: float?, weights?, inverse?"
"""The attributes that describe a distance."""


def count_points(types: Types, attrs: Attrs) -> int:
    """Return the number of points; raise ProgramError if the attributes are invalid."""
    x, metric = require_matrix(types[0]), attrs["metric"]
    require_float(x.dtype)
    require(x.width > 0, "distances need at least one column")
    points = array_attribute(attrs, "points", x.dtype, (None, x.width))
    require(metric in METRICS, f"unknown metric {metric!r}")
    require(("p" in attrs) == (metric == "minkowski"), "only minkowski has a p")
    if "p" in attrs:
        require(math.isfinite(attrs["p"]) and attrs["p"] > 0, "p must be positive and finite")
    require(("inverse" in attrs) == (metric == "mahalanobis"), "only mahalanobis has an inverse")
    if "inverse" in attrs:
        array_attribute(attrs, "inverse", x.dtype, (x.width, x.width))
    if "weights" in attrs:
        require(metric in ("sqeuclidean", "minkowski"), f"{metric} has no weights")
        array_attribute(attrs, "weights", x.dtype, (x.width,))
    return int(points.shape[0])


def compute_distances(
    xp: Any, x: Any, points: Any, metric: str, p: float, weights: Any, inverse: Any = None
) -> Any:
    """Return reduced distances (n, m) from rows of `x` to `points`; `xp` is numpy or torch."""
    if metric == "mahalanobis":
        return _sum_mahalanobis(x, points, inverse)
    if metric == "cosine":
        x, points = _scale_to_unit(xp, x), _scale_to_unit(xp, points)
        return xp.clip(1.0 - compute_distances(xp, x, points, "dot", p, None), 0.0, 2.0)
    total: Any = None
    scale: Any = None
    width = points.shape[1]
    for j in range(width):
        left, right = x[:, j : j + 1], points[:, j]
        if metric == "dot":
            term = left * right
        elif metric == "hamming":
            term = xp.where(left != right, xp.ones_like(left), 0.0)
        elif metric == "chi2":
            magnitude = left + right
            term = (left - right) * (left - right) / xp.where(magnitude == 0, 1.0, magnitude)
            term = xp.where(magnitude == 0, 0.0, term)
        else:
            term = left - right
            term = term * term if metric == "sqeuclidean" else xp.abs(term)
            if metric == "minkowski":
                term = term**p
            elif metric == "canberra":
                magnitude = xp.abs(left) + xp.abs(right)
                term = xp.where(magnitude > 0, term / xp.where(magnitude > 0, magnitude, 1.0), 0.0)
            elif metric == "braycurtis":
                magnitude = xp.abs(left) + xp.abs(right)
                scale = magnitude if scale is None else scale + magnitude
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
        return xp.where(scale > 0, total / xp.where(scale > 0, scale, 1.0), 0.0)
    return total


def _sum_mahalanobis(x: Any, points: Any, inverse: Any) -> Any:
    """Return squared Mahalanobis distances, summed as in `sklearn/metrics/_dist_metrics.pyx`."""
    width = points.shape[1]
    column_differences = [x[:, j : j + 1] - points[:, j] for j in range(width)]
    total: Any = 0.0
    for i in range(width):
        inner_sum: Any = 0.0
        for j in range(width):
            inner_sum = inner_sum + inverse[i, j] * column_differences[j]
        total = total + inner_sum * column_differences[i]
    return total


def _scale_to_unit(xp: Any, x: Any) -> Any:
    squares = x[:, :1] * x[:, :1]
    for j in range(1, x.shape[1]):
        squares = squares + x[:, j : j + 1] * x[:, j : j + 1]
    length = xp.sqrt(squares)
    return x / xp.where(length == 0, 1.0, length)


def reduce_distances(x: Array, attrs: Attrs) -> Array:
    """Return the reduced distances (n, m) from rows of `x` to the points in `attrs`."""
    points, metric, p = attrs["points"], attrs["metric"], attrs.get("p", 0.0)
    weights, inverse = attrs.get("weights"), attrs.get("inverse")
    reduced: Array = compute_distances(np, x, points, metric, p, weights, inverse)
    return reduced.astype(x.dtype, copy=False)


def compute_like_source(x: Array, attrs: Attrs) -> Array:
    """Return distances (n, m) for a metric in `EXPANDED`, rounded exactly as in scikit-learn."""
    points = attrs["points"]
    if attrs["metric"] == "cosine":
        return compute_cosine_distances(x, points)
    x_norms, point_norms = compute_square_norms(x), compute_square_norms(points)
    return compute_expanded_distances(x, points, x_norms, point_norms)


def _pairwise_type(types: Types, attrs: Attrs) -> TensorType:
    num_points = count_points(types, attrs)
    if attrs.get("expanded", False):
        require(
            attrs["metric"] in EXPANDED and "weights" not in attrs and types[0].dtype == "float64",
            "only euclidean and cosine distances in float64, without weights, are expanded",
        )
    return matrix(types[0].dtype, num_points)


def _pairwise(args: Sequence[Array], attrs: Attrs) -> Array:
    measure = compute_like_source if attrs.get("expanded") else reduce_distances
    return measure(args[0], attrs)


_PAIRWISE = f"{METRIC}, expanded: bool?"
OPERATORS: tuple[Op, ...] = (Op("pairwise", "complex", _pairwise_type, _pairwise, _PAIRWISE),)
