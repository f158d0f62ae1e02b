"""Missing numbers filled with the mean of the nearest training rows that have them.

Distances are scikit-learn's `nan_euclidean_distances`: over the columns that both rows have,
scaled up for the others (J. K. Dixon, "Pattern recognition with partly missing data", 1979).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from sqlml.ir.operators.op import Op, Types, array, need
from sqlml.ir.program import Attrs
from sqlml.types import Array, TensorType

Order = Literal["C", "F"]
CHUNK = 1 << 21
"""Most distances that are held at once."""
BLOCK = 64
"""Rows that BLAS multiplies at once."""


def _knn_impute_type(types: Types, attrs: Attrs) -> TensorType:
    (x,) = types
    rows = array(attrs, "rows")
    need(x.rowwise and len(x.shape) == 2 and x.dtype == "float64", "it takes (n, k) float64")
    need(rows.dtype == np.float64 and rows.ndim == 2, "rows must be float64, two axes")
    need(rows.shape[1] == x.width and rows.shape[0] >= 1, f"rows {rows.shape} for {x!r}")
    need(not np.isinf(rows).any(), "a training row has an infinity")
    need(attrs["neighbours"] >= 1, "neighbours must be at least 1")
    need(attrs["weights"] in ("uniform", "distance"), "weights must be uniform or distance")
    need(attrs["order"] in ("C", "F"), "order must be C or F")
    return x


def _knn_impute(args: Sequence[Array], attrs: Attrs) -> Array:
    (x,) = args
    made = x.copy()
    receivers = np.flatnonzero(np.isnan(x).any(axis=1))
    step = max(1, CHUNK // attrs["rows"].shape[0])
    for start in range(0, receivers.size, step):
        chosen = receivers[start : start + step]
        made[chosen] = _filled(x[chosen], attrs)
    return made


def _filled(x: Array, attrs: Attrs) -> Array:
    """Rows that all miss something, filled; a column that no training row has stays as it is."""
    rows: Array = attrs["rows"]
    distances = nan_distances(x, rows, attrs["order"])
    made = x.copy()
    for j in range(x.shape[1]):
        gone = np.flatnonzero(np.isnan(x[:, j]))
        donors = np.flatnonzero(~np.isnan(rows[:, j]))
        if not gone.size or not donors.size:
            continue
        near = distances[gone][:, donors]
        lonely = np.isnan(near).all(axis=1)
        made[gone[lonely], j] = np.nan_to_num(rows[:, j]).sum() / donors.size
        if not lonely.all():
            made[gone[~lonely], j] = _mean_of_nearest(near[~lonely], rows[donors, j], attrs)
    return made


def nan_distances(x: Array, y: Array, order: Order = "F") -> Array:
    """(n, m) distances between the rows of x and y; NaN where they share no column.

    Rounding decides between equally near rows, so squares are summed as numpy does it for the
    memory layout of each side: x is picked row by row, and so lies in rows ("C"); `order` is that
    of y, "F" where it was a pandas frame.
    """
    gone_x, gone_y = np.isnan(x), np.isnan(y)
    x, y = np.where(gone_x, 0, x), np.where(gone_y, 0, y)
    squared = -2 * _product(x, y)
    squared += _norms(x, "C")[:, None]
    squared += _norms(y, order)
    np.maximum(squared, 0, out=squared)
    squared -= _product(x * x, gone_y.astype(np.float64))
    squared -= _product(gone_x.astype(np.float64), y * y)
    np.maximum(squared, 0, out=squared)
    shared = _product((~gone_x).astype(np.float64), (~gone_y).astype(np.float64))
    squared[shared == 0] = np.nan
    squared /= np.maximum(1, shared)
    squared *= x.shape[1]
    distances: Array = np.sqrt(squared)
    return distances


def _norms(x: Array, order: Order) -> Array:
    norms: Array = np.einsum("ij,ij->i", *[np.asarray(x, order=order)] * 2)
    return norms


def _product(x: Array, y: Array) -> Array:
    """x @ y.T by BLAS, as scikit-learn computes it, since rounding decides between equally near
    rows; in blocks of one size, so that a row has the same product in every batch."""
    full = -(-x.shape[0] // BLOCK) * BLOCK
    padded = np.zeros((full, x.shape[1]))
    padded[: x.shape[0]] = x
    made = np.empty((full, y.shape[0]))
    for start in range(0, full, BLOCK):
        np.dot(padded[start : start + BLOCK], y.T, out=made[start : start + BLOCK])
    return made[: x.shape[0]]


def _mean_of_nearest(distances: Array, values: Array, attrs: Attrs) -> Array:
    """(n,) averages over the nearest of (n, m) distances; of equal ones argpartition chooses."""
    count = min(attrs["neighbours"], values.size)
    nearest = np.argpartition(distances, count - 1, axis=1)[:, :count]
    near = np.take_along_axis(distances, nearest, axis=1)
    if attrs["weights"] == "distance":
        weights = 1 / near
        infinite = np.isinf(weights)
        exact = infinite.any(axis=1)
        weights[exact] = infinite[exact]
        weights[np.isnan(weights)] = 0
    else:
        weights = np.where(np.isnan(near), 0.0, 1.0)
    total = weights.sum(axis=1)
    above = (values[nearest] * weights).sum(axis=1)
    means: Array = above / np.where(total == 0, 1, total)
    return means


OPERATORS: tuple[Op, ...] = (
    Op(
        "knn_impute",
        "both",
        "opaque",
        _knn_impute_type,
        _knn_impute,
        {"rows": "array", "neighbours": "int", "weights": "str", "order": "str"},
    ),
)
