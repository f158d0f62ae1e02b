"""Operators that check columns and fill missing numbers, as estimators do before they compute.

`knn_impute` fills a number with the mean over the nearest training rows that have the number.
Distances are scikit-learn's `nan_euclidean_distances`: over columns that both rows have, scaled up
for the other columns (J. K. Dixon, "Pattern recognition with partly missing data", 1979).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from sqlml.errors import MissingValueError
from sqlml.ir.operators.op import Op, Types, array_attribute, require, require_float, require_matrix
from sqlml.ir.program import Attrs
from sqlml.types import Array, TensorType


def _require_finite_type(types: Types, attrs: Attrs) -> TensorType:
    (x,) = types
    require_float(x.dtype)
    require(len(attrs["features"]) == x.width, "require_finite must name each column")
    for bound in ("low", "high"):
        if bound in attrs:
            value = array_attribute(attrs, bound, x.dtype, (x.width,))
            require(not np.isnan(value).any(), f"{bound} must not be NaN")
    return x


def _impute_type(types: Types, attrs: Attrs) -> TensorType:
    array_attribute(attrs, "fill", require_float(types[0].dtype), (types[0].width,))
    return types[0]


def _require_type(types: Types, attrs: Attrs) -> TensorType:
    x, condition = types
    require_matrix(condition, "bool", 1)
    require(x.rowwise, "require takes a row-wise value")
    require(attrs["message"], "require needs a message")
    return x


def _require(args: Sequence[Array], attrs: Attrs) -> Array:
    x, condition = args
    if not condition.all():
        raise MissingValueError(str(attrs["message"]))
    return x


def _require_finite(args: Sequence[Array], attrs: Attrs) -> Array:
    (x,) = args
    is_rejected = find_out_of_bounds(x, attrs)
    if is_rejected.any():
        row, column = np.argwhere(is_rejected)[0]
        is_missing = bool(np.isnan(x[row, column]))
        raise make_not_finite_error(attrs["features"][column], attrs["step"], is_missing)
    return x


def find_out_of_bounds(x: Array, attrs: Attrs) -> Array:
    """Return a mask of the numbers that `require_finite` rejects."""
    is_rejected = np.isinf(x) if attrs["allow_nan"] else ~np.isfinite(x)
    if "low" in attrs:
        is_rejected |= x < attrs["low"]
    if "high" in attrs:
        is_rejected |= x > attrs["high"]
    return is_rejected


def make_not_finite_error(feature: str, step: str, missing: bool) -> MissingValueError:
    """Build the error that `require_finite` raises for a missing value or for infinity."""
    problem = "NULL or NaN" if missing else "infinity (or a value too large)"
    fix = (
        "put an imputer before it, fill the column in SQL (coalesce), or filter such rows"
        if missing
        else "filter such rows or clip the column"
    )
    return MissingValueError(f"column {feature!r} has {problem}, which {step} does not take; {fix}")


def _impute(args: Sequence[Array], attrs: Attrs) -> Array:
    (x,) = args
    missing: float = attrs["missing"]
    is_missing = np.isnan(x) if missing != missing else x == missing
    return np.where(is_missing, attrs["fill"], x).astype(x.dtype)


Order = Literal["C", "F"]
CHUNK = 1 << 21
"""Maximum number of distances in memory at a time."""
BLOCK = 64
"""Number of rows that BLAS multiplies at a time."""


def _knn_impute_type(types: Types, attrs: Attrs) -> TensorType:
    x = require_matrix(types[0], "float64")
    rows = array_attribute(attrs, "rows", "float64", (None, x.width))
    require(rows.shape[0] >= 1, "knn_impute needs a training row")
    require(not np.isinf(rows).any(), "a training row is infinite")
    require(attrs["neighbours"] >= 1, "neighbours must be at least 1")
    require(attrs["weights"] in ("uniform", "distance"), "weights must be uniform or distance")
    require(attrs["order"] in ("C", "F"), "order must be C or F")
    return x


def _knn_impute(args: Sequence[Array], attrs: Attrs) -> Array:
    (x,) = args
    filled = x.copy()
    receivers = np.flatnonzero(np.isnan(x).any(axis=1))
    rows_per_step = max(1, CHUNK // attrs["rows"].shape[0])
    for start in range(0, receivers.size, rows_per_step):
        batch = receivers[start : start + rows_per_step]
        filled[batch] = _fill_rows(x[batch], attrs)
    return filled


def _fill_rows(x: Array, attrs: Attrs) -> Array:
    training_rows: Array = attrs["rows"]
    distances = nan_distances(x, training_rows, attrs["order"])
    filled = x.copy()
    for j in range(x.shape[1]):
        receivers = np.flatnonzero(np.isnan(x[:, j]))
        donors = np.flatnonzero(~np.isnan(training_rows[:, j]))
        if not receivers.size or not donors.size:
            continue
        donor_distances = distances[receivers][:, donors]
        has_donor = ~np.isnan(donor_distances).all(axis=1)
        filled[receivers[~has_donor], j] = np.nan_to_num(training_rows[:, j]).sum() / donors.size
        if has_donor.any():
            means = _average_nearest(donor_distances[has_donor], training_rows[donors, j], attrs)
            filled[receivers[has_donor], j] = means
    return filled


def nan_distances(x: Array, training_rows: Array, order: Order = "F") -> Array:
    """Return the distances (n, m) between rows; NaN if no column is present in both rows.

    Rounding decides between equally near rows, so squares are summed as numpy sums them in the
    memory layout of the arrays. `order` is "F" if the training rows were a pandas frame.
    """
    missing_x, missing_y = np.isnan(x), np.isnan(training_rows)
    x, training_rows = np.where(missing_x, 0, x), np.where(missing_y, 0, training_rows)
    squares = -2 * _multiply(x, training_rows)
    squares += _compute_square_norms(x, "C")[:, None]
    squares += _compute_square_norms(training_rows, order)
    np.maximum(squares, 0, out=squares)
    squares -= _multiply(x * x, missing_y.astype(np.float64))
    squares -= _multiply(missing_x.astype(np.float64), training_rows * training_rows)
    np.maximum(squares, 0, out=squares)
    shared_count = _multiply((~missing_x).astype(np.float64), (~missing_y).astype(np.float64))
    squares[shared_count == 0] = np.nan
    squares /= np.maximum(1, shared_count)
    squares *= x.shape[1]
    return np.asarray(np.sqrt(squares))


def _compute_square_norms(x: Array, order: Order) -> Array:
    return np.asarray(np.einsum("ij,ij->i", *[np.asarray(x, order=order)] * 2))


def _multiply(x: Array, y: Array) -> Array:
    """Return x @ y.T, in blocks of fixed size, so that batches do not affect a row's product."""
    padded_rows = -(-x.shape[0] // BLOCK) * BLOCK
    padded = np.zeros((padded_rows, x.shape[1]))
    padded[: x.shape[0]] = x
    product = np.empty((padded_rows, y.shape[0]))
    for start in range(0, padded_rows, BLOCK):
        np.dot(padded[start : start + BLOCK], y.T, out=product[start : start + BLOCK])
    return product[: x.shape[0]]


def _average_nearest(distances: Array, values: Array, attrs: Attrs) -> Array:
    """Return the mean of the nearest values of each row, (n,); `np.argpartition` breaks ties."""
    num_neighbours = min(attrs["neighbours"], values.size)
    nearest_indices = np.argpartition(distances, num_neighbours - 1, axis=1)[:, :num_neighbours]
    nearest_distances = np.take_along_axis(distances, nearest_indices, axis=1)
    if attrs["weights"] == "distance":
        weights = 1 / nearest_distances
        is_infinite = np.isinf(weights)
        has_exact_match = is_infinite.any(axis=1)
        weights[has_exact_match] = is_infinite[has_exact_match]
        weights[np.isnan(weights)] = 0
    else:
        weights = np.where(np.isnan(nearest_distances), 0.0, 1.0)
    total = weights.sum(axis=1)
    weighted_sum = (values[nearest_indices] * weights).sum(axis=1)
    return np.asarray(weighted_sum / np.where(total == 0, 1, total))


_FINITE = "features: tuple, allow_nan: bool, step: str, low?, high?"
_NEIGHBOURS = "rows, neighbours: int, weights: str, order: str"

OPERATORS: tuple[Op, ...] = (
    Op("require", "injective", _require_type, _require, "message: str", arity=(2, 2)),
    Op("require_finite", "injective", _require_finite_type, _require_finite, _FINITE),
    Op("impute", "injective", _impute_type, _impute, "fill, missing: float"),
    Op("knn_impute", "opaque", _knn_impute_type, _knn_impute, _NEIGHBOURS),
)
