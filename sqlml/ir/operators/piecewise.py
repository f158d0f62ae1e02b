"""Functions in pieces, one per column: the piece that a number lies in, straight lines, B-splines.

The break points of all columns lie in one array; column j has those from `offsets[j]` up to
`offsets[j + 1]`, sorted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from sqlml.ir.operators.op import Op, Types, array, floating, need
from sqlml.ir.program import Attrs
from sqlml.types import Array, TensorType, dtype_of, matrix

MAX_DEGREE = 20
"""Highest degree of a spline."""


def _check_points(x: TensorType, points: Array, offsets: Array, fewest: int) -> None:
    need(x.rowwise and len(x.shape) == 2, "it takes an (n, k) value")
    need(points.ndim == 1 and dtype_of(points) == x.dtype, "points must have the columns' dtype")
    need(
        offsets.dtype == np.int64 and offsets.shape == (x.width + 1,),
        "offsets must be int64, one more than columns",
    )
    need(
        bool((np.diff(offsets) >= fewest).all())
        and int(offsets[0]) == 0
        and int(offsets[-1]) == points.size,
        "offsets must cut all points into columns",
    )
    need(not np.isnan(points).any(), "a point is NaN")
    within = np.ones(max(0, points.size - 1), bool)
    cuts = offsets[1:-1] - 1
    within[cuts[(cuts >= 0) & (cuts < within.size)]] = False
    need(bool((points[1:] >= points[:-1])[within].all()), "the points of a column must be sorted")


def _search_type(types: Types, attrs: Attrs) -> TensorType:
    (x,) = types
    floating(x.dtype)
    _check_points(x, array(attrs, "edges"), array(attrs, "offsets"), 0)
    need(attrs["side"] in ("left", "right"), "side must be left or right")
    return matrix("int64", x.width)


def _interpolate_type(types: Types, attrs: Attrs) -> TensorType:
    (x,) = types
    points, values = array(attrs, "points"), array(attrs, "values")
    need(x.dtype == "float64", "interpolate takes float64")
    _check_points(x, points, array(attrs, "offsets"), 1)
    need(values.dtype == np.float64 and values.shape == points.shape, "one value a point")
    return x


def _spline_type(types: Types, attrs: Attrs) -> TensorType:
    (x,) = types
    knots, degree = array(attrs, "knots"), attrs["degree"]
    need(x.rowwise and len(x.shape) == 2 and x.dtype == "float64", "bspline takes (n, k) float64")
    need(0 <= degree <= MAX_DEGREE, f"degree must be 0 to {MAX_DEGREE}")
    need(
        knots.dtype == np.float64 and knots.ndim == 2 and knots.shape[0] == x.width,
        "knots must be float64, one row a column",
    )
    need(knots.shape[1] >= 2 * degree + 2, "a spline needs at least 2 * degree + 2 knots")
    need(bool(np.isfinite(knots).all()), "a knot is not finite")
    need(bool((np.diff(knots, axis=1) >= 0).all()), "knots must be sorted")
    return matrix("float64", x.width * (knots.shape[1] - degree - 1))


def pieces(points: Array, offsets: Array) -> Iterator[Array]:
    """The points of each column."""
    for start, stop in zip(offsets[:-1], offsets[1:], strict=True):
        yield points[start:stop]


def _search_sorted(args: Sequence[Array], attrs: Attrs) -> Array:
    """How many edges of its column are below x, or (side "right") not above it; NaN: all."""
    (x,) = args
    found = np.empty(x.shape, np.int64)
    for j, edges in enumerate(pieces(attrs["edges"], attrs["offsets"])):
        found[:, j] = np.searchsorted(edges, x[:, j], side=attrs["side"])
    return found


def _interpolate(args: Sequence[Array], attrs: Attrs) -> Array:
    """`np.interp`: lines between the points, constant beyond them; NaN stays NaN."""
    (x,) = args
    made = np.empty(x.shape)
    columns = zip(
        pieces(attrs["points"], attrs["offsets"]),
        pieces(attrs["values"], attrs["offsets"]),
        strict=True,
    )
    for j, (points, values) in enumerate(columns):
        made[:, j] = np.interp(x[:, j], points, values)
    made[np.isnan(x)] = np.nan  # np.interp itself takes NaN for the one point of a column
    return made


def _bspline(args: Sequence[Array], attrs: Attrs) -> Array:
    """All basis functions of each column, side by side; the outer polynomials go on outside.

    de Boor's recurrence, in the order of scipy's `_deBoor_D`. NaN gives NaN.
    """
    (x,) = args
    knots: Array = attrs["knots"]
    degree: int = attrs["degree"]
    each = knots.shape[1] - degree - 1
    made = np.zeros((x.shape[0], x.shape[1], each))
    rows = np.arange(x.shape[0])[:, None]
    for j, t in enumerate(knots):
        at = x[:, j]
        inside = t[degree + 1 : each]
        span = degree + np.searchsorted(inside, np.nan_to_num(at, nan=-np.inf), side="right")
        values = _de_boor(t, at, span, degree)
        values[np.isnan(at)] = np.nan
        made[rows, j, span[:, None] - degree + np.arange(degree + 1)] = values
        made[np.isnan(at), j] = np.nan
    return made.reshape(x.shape[0], x.shape[1] * each)


def _de_boor(t: Array, x: Array, span: Array, degree: int) -> Array:
    """The degree + 1 functions that are not zero between knots `span` and `span` + 1."""
    h = np.zeros((x.size, degree + 1))
    h[:, 0] = 1
    for j in range(1, degree + 1):
        before = h[:, :j].copy()
        h[:, 0] = 0
        for n in range(1, j + 1):
            high, low = t[span + n], t[span + n - j]
            width = high - low
            share = before[:, n - 1] / np.where(width == 0, 1, width)
            h[:, n - 1] += np.where(width == 0, 0, share * (high - x))
            h[:, n] = np.where(width == 0, 0, share * (x - low))
    return h


OPERATORS: tuple[Op, ...] = (
    Op(
        "search_sorted",
        "both",
        "opaque",
        _search_type,
        _search_sorted,
        {"edges": "array", "offsets": "array", "side": "str"},
    ),
    Op(
        "interpolate",
        "both",
        "opaque",
        _interpolate_type,
        _interpolate,
        {"points": "array", "values": "array", "offsets": "array"},
    ),
    Op("bspline", "both", "opaque", _spline_type, _bspline, {"knots": "array", "degree": "int"}),
)
