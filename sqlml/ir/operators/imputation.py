"""What estimators do to each column before they compute: checks and imputation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from sqlml.errors import MissingValueError
from sqlml.ir.operators.op import Op, Types, array, floating, need
from sqlml.ir.program import Attrs
from sqlml.types import Array, TensorType, dtype_of


def _require_finite_type(types: Types, attrs: Attrs) -> TensorType:
    floating(types[0].dtype)
    features = attrs["features"]
    need(
        isinstance(features, tuple) and len(features) == types[0].width,
        "require_finite names each column",
    )
    for bound in ("low", "high"):
        if bound in attrs:
            value = array(attrs, bound)
            need(
                dtype_of(value) == types[0].dtype and value.shape == (types[0].width,),
                f"{bound} must have a number of the columns' dtype for each",
            )
            need(not np.isnan(value).any(), f"{bound} must not be NaN")
    return types[0]


def _impute_type(types: Types, attrs: Attrs) -> TensorType:
    fill = array(attrs, "fill")
    need(dtype_of(fill) == floating(types[0].dtype), "fill must have the dtype of the columns")
    need(fill.shape == (types[0].width,), "one fill a column")
    return types[0]


def _require_type(types: Types, attrs: Attrs) -> TensorType:
    x, fine = types
    need(fine.rowwise and fine.dtype == "bool" and fine.shape[1:] == (1,), "require tests a row")
    need(x.rowwise, "require passes rows on")
    need(bool(attrs["message"]), "require says what is wrong")
    return x


def _require(args: Sequence[Array], attrs: Attrs) -> Array:
    """The first input, where the second is true of every row."""
    x, fine = args
    if not fine.all():
        raise MissingValueError(str(attrs["message"]))
    return x


def _require_finite(args: Sequence[Array], attrs: Attrs) -> Array:
    (x,) = args
    bad = np.isinf(x) if attrs["allow_nan"] else ~np.isfinite(x)
    if "low" in attrs:
        bad |= x < attrs["low"]
    if "high" in attrs:
        bad |= x > attrs["high"]
    if bad.any():
        row, col = np.argwhere(bad)[0]
        raise not_finite(attrs["features"][col], attrs["step"], bool(np.isnan(x[row, col])))
    return x


def not_finite(feature: str, step: str, missing: bool) -> MissingValueError:
    """The error of `require_finite`; `missing`: about NaN, else about infinity."""
    what = "NULL or NaN" if missing else "infinity (or a value too large)"
    fix = (
        "put an imputer before it, fill the column in SQL (coalesce), or filter such rows"
        if missing
        else "filter such rows or clip the column"
    )
    return MissingValueError(f"column {feature!r} has {what}, which {step} does not take; {fix}")


def _impute(args: Sequence[Array], attrs: Attrs) -> Array:
    (x,) = args
    missing: float = attrs["missing"]
    gone = np.isnan(x) if missing != missing else x == missing
    return np.where(gone, attrs["fill"], x).astype(x.dtype)


# Missing numbers filled with the mean of the nearest training rows that have them.
#
# Distances are scikit-learn's `nan_euclidean_distances`: over the columns that both rows have,
# scaled up for the others (J. K. Dixon, "Pattern recognition with partly missing data", 1979).


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
    Op("require", "both", "injective", _require_type, _require, {"message": "str"}, arity=(2, 2)),
    Op(
        "require_finite",
        "model",
        "injective",
        _require_finite_type,
        _require_finite,
        {
            "features": "tuple",
            "allow_nan": "bool",
            "step": "str",
            "low": "array?",
            "high": "array?",
        },
    ),
    Op(
        "impute", "model", "injective", _impute_type, _impute, {"fill": "array", "missing": "float"}
    ),
    Op(
        "knn_impute",
        "both",
        "opaque",
        _knn_impute_type,
        _knn_impute,
        {"rows": "array", "neighbours": "int", "weights": "str", "order": "str"},
    ),
)
