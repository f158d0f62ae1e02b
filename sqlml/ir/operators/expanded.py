"""Squared distances as |x|^2 - 2 x.y + |y|^2, and cosine distances, with the rounding of BLAS.

scikit-learn's brute searches for neighbours compute them so, by GEMM. Points that are
equally far then differ in their last bits, and those bits decide which of them are neighbours. So
they are computed here as BLAS does: products by a chain of fused multiply-adds over the columns,
squares by its own dot product. A BLAS without fused multiply-add, one that splits more than a few
hundred columns into blocks, and the source itself on a single row round otherwise.
"""

from __future__ import annotations

import numpy as np

from sqlml.types import Array

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
