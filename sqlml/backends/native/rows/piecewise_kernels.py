"""Kernels for columns with sorted points: searches, interpolation, and B-splines.

A search halves the points of one column for a block of rows at a time. Each halving step uses
vector instructions, because the rows do not depend on each other.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sqlml.backends.native.jit.specialise import inlined_helper
from sqlml.backends.native.kernel_calls import RowKernel
from sqlml.types import Array

_ROWS = 256
"""Rows per block."""
_U = np.uint64
_INT64 = np.dtype(np.int64)


def make_search_kernel(
    edges: Array, offsets: Array, side: str, dtype: np.dtype[Any] = _INT64
) -> RowKernel:
    """Return a kernel that searches the edges of each column, as `numpy.searchsorted` does.

    The edges of column c are edges[offsets[c]:offsets[c + 1]]. The kernel maps x (n, k) of the
    edges' dtype to positions (n, k) of `dtype`.
    """
    constants = (*map(np.ascontiguousarray, (edges, offsets)), side != "left")
    return RowKernel.of(_search, edges.dtype, constants, offsets.size - 1, dtype)


def make_interpolation_kernel(points: Array, values: Array, offsets: Array) -> RowKernel:
    """Return a kernel that interpolates float64 x (n, k) as `numpy.interp` does; NaN stays NaN."""
    points, values, offsets = map(np.ascontiguousarray, (points, values, offsets))
    slopes = np.zeros(points.size)
    with np.errstate(all="ignore"):
        slopes[:-1] = np.diff(values) / np.diff(points)
    double = np.dtype(np.float64)
    constants = (points, values, slopes, offsets)
    return RowKernel.of(_interpolate, double, constants, offsets.size - 1, double)


@inlined_helper
def _count_below(x: Any, points: Any, start: Any, stop: Any, right: Any, counts: Any) -> None:
    """Set counts[r] to `start` plus the number of points in points[start:stop] below x[r].

    If `right`, points equal to x[r] also count. For NaN, all points count. Indices are unsigned, so
    that numba omits the test for negative indices.
    """
    rows = _U(x.size)
    counts[:] = start
    remaining = _U(stop - start)
    while remaining > _U(0):
        half = (remaining + _U(1)) >> _U(1)
        if right:
            for r in range(rows):
                next_count = counts[r] + half
                counts[r] = counts[r] if x[r] < points[next_count - _U(1)] else next_count
        else:
            for r in range(rows):
                next_count = counts[r] + half
                counts[r] = counts[r] if x[r] <= points[next_count - _U(1)] else next_count
        remaining -= half


def _search(x: Any, edges: Any, offsets: Any, right: Any, out: Any) -> None:
    values, counts = np.empty(_ROWS, x.dtype), np.empty(_ROWS, np.uint64)
    for first_row in range(0, x.shape[0], _ROWS):
        rows = min(_ROWS, x.shape[0] - first_row)
        for c in range(x.shape[1]):
            for r in range(rows):
                values[r] = x[first_row + r, c]
            start, stop = _U(offsets[c]), _U(offsets[c + 1])
            _count_below(values, edges, start, stop, right, counts)
            for r in range(rows):
                out[first_row + r, c] = counts[r] - start


def _interpolate(x: Any, points: Any, values: Any, slopes: Any, offsets: Any, out: Any) -> None:
    block, counts = np.empty(_ROWS), np.empty(_ROWS, np.uint64)
    for first_row in range(0, x.shape[0], _ROWS):
        rows = min(_ROWS, x.shape[0] - first_row)
        for c in range(x.shape[1]):
            for r in range(rows):
                block[r] = x[first_row + r, c]
            start, stop = _U(offsets[c]), _U(offsets[c + 1])
            _count_below(block, points, start, stop, True, counts)
            last_point = stop - _U(1)
            for r in range(rows):
                number = block[r]
                if counts[r] == start:
                    result = values[start]
                elif counts[r] == stop:
                    result = values[last_point]
                else:
                    left = counts[r] - _U(1)
                    if number == points[left]:
                        result = values[left]
                    else:
                        result = slopes[left] * (number - points[left]) + values[left]
                        if result != result:  # The left point is infinite, so start at the right.
                            right = left + _U(1)
                            result = slopes[left] * (number - points[right]) + values[right]
                            if result != result and values[left] == values[right]:
                                result = values[left]
                out[first_row + r, c] = number if number != number else result


def make_bspline_kernel(knots: Array, degree: int) -> RowKernel:
    """Return a kernel that maps float64 x (n, k) to B-spline values (n, k * splines).

    The kernel does what `bspline` of `ir/operators/piecewise.py` does, value by value.
    """
    spline_count = knots.shape[1] - degree - 1
    double = np.dtype(np.float64)
    constants = (np.ascontiguousarray(knots), degree)
    return RowKernel.of(_bspline, double, constants, knots.shape[0] * spline_count, double)


def _bspline(x: Any, knots: Any, degree: Any, out: Any) -> None:
    """Write the values of the B-splines at x (n, k) to out (n, k * splines)."""
    function_count = knots.shape[1] - degree - 1
    # The B-splines that are not 0 at a value.
    basis, previous = np.empty(degree + 1), np.empty(degree + 1)
    for r in range(x.shape[0]):
        for c in range(x.shape[1]):
            value, first = x[r, c], c * function_count
            for k in range(function_count):
                out[r, first + k] = value if value != value else 0.0
            if value != value:
                continue
            span = degree
            while span + 1 < function_count and knots[c, span + 1] <= value:
                span += 1
            basis[0] = 1.0
            for j in range(1, degree + 1):
                for n in range(j):
                    previous[n] = basis[n]
                basis[0] = 0.0
                for n in range(1, j + 1):
                    high, low = knots[c, span + n], knots[c, span + n - j]
                    width = high - low
                    if width == 0.0:
                        basis[n] = 0.0
                    else:
                        share = previous[n - 1] / width
                        basis[n - 1] += share * (high - value)
                        basis[n] = share * (value - low)
            for k in range(degree + 1):
                out[r, first + span - degree + k] = basis[k]
