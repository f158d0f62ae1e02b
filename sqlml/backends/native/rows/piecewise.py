"""Sorted points of each column: how many lie below a value, and straight lines between them.

The halving steps of a search go over a block of rows of one column at a time, so that they run in
vector instructions: no step depends on what another row finds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from sqlml.backends.native.jit.specialise import helper, kinds_of, reads, specialise, writes
from sqlml.backends.native.kernel_calls import Call, Rows
from sqlml.types import Array

Kernel = Callable[[Array], Array]

_ROWS = 256
"""Rows of a block."""
_U = np.uint64


def searcher(edges: Array, offsets: Array, side: str) -> Kernel:
    """x (n, k) of the edges' dtype -> int64 (n, k): numpy.searchsorted in each column's edges."""
    kernel, constants = _searching(edges, offsets, side, np.dtype(np.int64))

    def search(x: Array) -> Array:
        out = np.empty(x.shape, np.int64)
        kernel(x, *constants, out)
        return out

    return search


def interpolator(points: Array, values: Array, offsets: Array) -> Kernel:
    """x (n, k) float64 -> (n, k): `numpy.interp` of each column, NaN where x is."""
    kernel, constants = _interpolating(points, values, offsets)

    def interpolate(x: Array) -> Array:
        out = np.empty(x.shape)
        kernel(x, *constants, out)
        return out

    return interpolate


def searched(x: Rows, edges: Array, offsets: Array, side: str, out: Rows) -> Call:
    """The call of a `searcher`."""
    kernel, constants = _searching(edges, offsets, side, out.dtype)
    return Call(kernel, (x, *constants, out))


def interpolated(x: Rows, points: Array, values: Array, offsets: Array, out: Rows) -> Call:
    """The call of an `interpolator`."""
    kernel, constants = _interpolating(points, values, offsets)
    return Call(kernel, (x, *constants, out))


def _searching(
    edges: Array, offsets: Array, side: str, dtype: np.dtype[Any]
) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """The kernel that writes places as a dtype, and its constants."""
    constants = (*map(np.ascontiguousarray, (edges, offsets)), side != "left")
    kinds = (reads(edges.dtype, 2), *kinds_of(*constants), writes(dtype, 2))
    return specialise(_search, kinds), constants


def _interpolating(
    points: Array, values: Array, offsets: Array
) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """The kernel, and its constants."""
    points, values, offsets = map(np.ascontiguousarray, (points, values, offsets))
    slopes = np.zeros(points.size)
    with np.errstate(all="ignore"):
        slopes[:-1] = np.diff(values) / np.diff(points)
    constants = (points, values, slopes, offsets)
    kinds = (reads(np.float64, 2), *kinds_of(*constants), writes(np.float64, 2))
    return specialise(_interpolate, kinds), constants


@helper
def _count(x: Any, points: Any, start: Any, stop: Any, right: Any, found: Any) -> None:
    """found[r]: how many of the points from start to stop lie below x[r], or are not above it.

    All of them for NaN. Unsigned, so that no index is tested for being negative.
    """
    rows = _U(x.size)
    found[:] = start
    size = _U(stop - start)
    while size > _U(0):
        half = (size + _U(1)) >> _U(1)
        if right:
            for r in range(rows):
                at = found[r] + half
                found[r] = found[r] if x[r] < points[at - _U(1)] else at
        else:
            for r in range(rows):
                at = found[r] + half
                found[r] = found[r] if x[r] <= points[at - _U(1)] else at
        size -= half


def _search(x: Any, edges: Any, offsets: Any, right: Any, out: Any) -> None:
    here, found = np.empty(_ROWS, x.dtype), np.empty(_ROWS, np.uint64)
    for first in range(0, x.shape[0], _ROWS):
        rows = min(_ROWS, x.shape[0] - first)
        for c in range(x.shape[1]):
            for r in range(rows):
                here[r] = x[first + r, c]
            start, stop = _U(offsets[c]), _U(offsets[c + 1])
            _count(here, edges, start, stop, right, found)
            for r in range(rows):
                out[first + r, c] = found[r] - start


def _interpolate(x: Any, points: Any, values: Any, slopes: Any, offsets: Any, out: Any) -> None:
    here, found = np.empty(_ROWS), np.empty(_ROWS, np.uint64)
    for first in range(0, x.shape[0], _ROWS):
        rows = min(_ROWS, x.shape[0] - first)
        for c in range(x.shape[1]):
            for r in range(rows):
                here[r] = x[first + r, c]
            start, stop = _U(offsets[c]), _U(offsets[c + 1])
            _count(here, points, start, stop, True, found)
            last = stop - _U(1)
            for r in range(rows):
                value = here[r]
                if found[r] == start:
                    made = values[start]
                elif found[r] == stop:
                    made = values[last]
                else:
                    at = found[r] - _U(1)
                    if value == points[at]:
                        made = values[at]
                    else:
                        made = slopes[at] * (value - points[at]) + values[at]
                        if made != made:  # an infinite point: from the other end, as numpy does
                            made = slopes[at] * (value - points[at + _U(1)]) + values[at + _U(1)]
                            if made != made and values[at] == values[at + _U(1)]:
                                made = values[at]
                out[first + r, c] = value if value != value else made


# B-splines of columns: `bspline` (`ir/operators/piecewise.py`), number by number.


def bspline(knots: Array, degree: int) -> Callable[[Array], Array]:
    """x (n, k) float64 -> (n, k * functions): all basis functions of each column, side by side."""
    each = knots.shape[1] - degree - 1
    room = writes(np.float64, 1)
    signature = (reads(np.float64, 2), *kinds_of(knots), room, room, writes(np.float64, 3))
    kernel = specialise(_bspline, signature)

    def compute(x: Array) -> Array:
        made = np.zeros((x.shape[0], x.shape[1], each))
        h, before = np.empty((2, degree + 1))
        kernel(x, knots, h, before, made)
        return made.reshape(x.shape[0], x.shape[1] * each)

    return compute


def _bspline(x: Any, knots: Any, h: Any, before: Any, made: Any) -> None:
    """`h` and `before` are room for the degree + 1 functions that are not zero at a number."""
    degree, each = h.size - 1, made.shape[2]
    for r in range(x.shape[0]):
        for c in range(x.shape[1]):
            value = x[r, c]
            if value != value:
                for k in range(each):
                    made[r, c, k] = np.nan
                continue
            span = degree
            while span + 1 < each and knots[c, span + 1] <= value:
                span += 1
            h[0] = 1.0
            for j in range(1, degree + 1):
                for n in range(j):
                    before[n] = h[n]
                h[0] = 0.0
                for n in range(1, j + 1):
                    high, low = knots[c, span + n], knots[c, span + n - j]
                    width = high - low
                    if width == 0.0:
                        h[n] = 0.0
                    else:
                        share = before[n - 1] / width
                        h[n - 1] += share * (high - value)
                        h[n] = share * (value - low)
            for k in range(degree + 1):
                made[r, c, span - degree + k] = h[k]
