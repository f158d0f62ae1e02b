"""Piecewise functions, one per column: search among edges, linear interpolation, B-splines.

One array has the sorted break points of all columns; column j has the points `offsets[j]` to
`offsets[j + 1] - 1`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from sqlml.ir.operators.op import Op, Types, array_attribute, require, require_float, require_matrix
from sqlml.ir.program import Attrs
from sqlml.types import Array, TensorType, matrix

MAX_DEGREE = 20
"""Highest degree of a spline."""


def _check_points(x: TensorType, attrs: Attrs, name: str, min_count: int) -> None:
    points = array_attribute(attrs, name, require_matrix(x).dtype, (None,))
    offsets = array_attribute(attrs, "offsets", "int64", (x.width + 1,))
    fits = (np.diff(offsets) >= min_count).all() and offsets[0] == 0
    require(fits and offsets[-1] == points.size, "offsets must divide all points among the columns")
    require(not np.isnan(points).any(), "a point is NaN")
    is_sorted = all((column[1:] >= column[:-1]).all() for column in split_points(points, offsets))
    require(is_sorted, "the points of a column must be sorted")


def _search_type(types: Types, attrs: Attrs) -> TensorType:
    (x,) = types
    require_float(x.dtype)
    _check_points(x, attrs, "edges", 0)
    require(attrs["side"] in ("left", "right"), "side must be left or right")
    return matrix("int64", x.width)


def _interpolate_type(types: Types, attrs: Attrs) -> TensorType:
    (x,) = types
    require_matrix(x, "float64")
    _check_points(x, attrs, "points", 1)
    array_attribute(attrs, "values", "float64", attrs["points"].shape)
    return x


def _spline_type(types: Types, attrs: Attrs) -> TensorType:
    x, degree = require_matrix(types[0], "float64"), attrs["degree"]
    knots = array_attribute(attrs, "knots", "float64", (x.width, None))
    require(0 <= degree <= MAX_DEGREE, f"degree must be 0 to {MAX_DEGREE}")
    require(knots.shape[1] >= 2 * degree + 2, "a spline needs at least 2 * degree + 2 knots")
    require(np.isfinite(knots).all(), "a knot is not finite")
    require((np.diff(knots, axis=1) >= 0).all(), "knots must be sorted")
    return matrix("float64", x.width * (knots.shape[1] - degree - 1))


def split_points(points: Array, offsets: Array) -> Iterator[Array]:
    for start, stop in zip(offsets[:-1], offsets[1:], strict=True):
        yield points[start:stop]


def _search_sorted(args: Sequence[Array], attrs: Attrs) -> Array:
    """Count the edges below each number, or up to each number if `side` is "right".

    NaN is above all edges.
    """
    (x,) = args
    index = np.empty(x.shape, np.int64)
    for j, edges in enumerate(split_points(attrs["edges"], attrs["offsets"])):
        index[:, j] = np.searchsorted(edges, x[:, j], side=attrs["side"])
    return index


def _interpolate(args: Sequence[Array], attrs: Attrs) -> Array:
    """Interpolate as `np.interp` does, constant beyond the first and last point; keep NaN."""
    (x,) = args
    result = np.empty(x.shape)
    points, values = (split_points(attrs[name], attrs["offsets"]) for name in ("points", "values"))
    for j, column in enumerate(zip(points, values, strict=True)):
        result[:, j] = np.interp(x[:, j], *column)
    result[np.isnan(x)] = np.nan  # np.interp ignores NaN if a column has only one point.
    return result


def _bspline(args: Sequence[Array], attrs: Attrs) -> Array:
    """Evaluate each column's basis functions by de Boor's recurrence, rounded as in scipy."""
    (x,) = args
    knots, degree = attrs["knots"], attrs["degree"]
    num_functions = knots.shape[1] - degree - 1
    result = np.zeros((x.shape[0], x.shape[1], num_functions))
    rows = np.arange(x.shape[0])[:, None]
    for j, knot_row in enumerate(knots):
        column = np.nan_to_num(x[:, j], nan=-np.inf)
        span = degree + np.searchsorted(knot_row[degree + 1 : num_functions], column, side="right")
        values = _evaluate_basis(knot_row, x[:, j], span, degree)
        result[rows, j, span[:, None] - degree + np.arange(degree + 1)] = values
        result[np.isnan(x[:, j]), j] = np.nan
    return result.reshape(x.shape[0], x.shape[1] * num_functions)


def _evaluate_basis(t: Array, x: Array, span: Array, degree: int) -> Array:
    """Return the degree + 1 basis functions that are not zero between knots span and span + 1.

    The variables are named as in scipy's `_deBoor_D`: `t` has the knots, and `h` is the result.
    """
    h = np.zeros((x.size, degree + 1))
    h[:, 0] = 1
    for j in range(1, degree + 1):
        previous = h[:, :j].copy()
        h[:, 0] = 0
        for n in range(1, j + 1):
            high, low = t[span + n], t[span + n - j]
            width = high - low
            share = previous[:, n - 1] / np.where(width == 0, 1, width)
            h[:, n - 1] += np.where(width == 0, 0, share * (high - x))
            h[:, n] = np.where(width == 0, 0, share * (x - low))
    return h


OPERATORS: tuple[Op, ...] = (
    Op("search_sorted", "opaque", _search_type, _search_sorted, "edges, offsets, side: str"),
    Op("interpolate", "opaque", _interpolate_type, _interpolate, "points, values, offsets"),
    Op("bspline", "opaque", _spline_type, _bspline, "knots, degree: int"),
)
