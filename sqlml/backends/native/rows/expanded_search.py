"""Expanded distances to fixed points (`ir/operators/expanded.py`), and the nearest by them.

All distances of a few rows to a few points come out of one tile of a matrix product. In a search
they go through the rows' heaps at once; so no distance is ever written to memory, and each point is
read once for `HIGH` rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from sqlml.backends.native.jit.specialise import helper, kinds_of, reads, specialise, writes
from sqlml.backends.native.rows.matmul_tiles import (
    FUSES,
    HIGH,
    WIDE,
    distance_tile,
    panels,
    whole_tiles,
)
from sqlml.ir.operators.expanded import squares, units
from sqlml.types import Array

_CACHED = 1 << 18
"""Bytes of points that all rows meet before the next ones: they stay in the processor's cache."""

_ROWS = (reads(np.float64, 2, "C"), reads(np.float64, 1, "C"))
"""Rows, and what stands for the square of each."""

Search = Callable[[Array, Array, Array], None]
"""Rows (n, k), and heaps (n, neighbours) of values and int64 numbers that it fills, unsorted."""


def expanded_search(points: Array) -> Search | None:
    """A search among points (m, k); None if the processor has no fused multiply-add."""
    if not FUSES:
        return None
    count, width = points.shape
    held = panels(points.T)
    # A point that is not there is infinitely far, so that no heap takes it.
    lengths = np.full(held.shape[0] * WIDE, np.inf)
    lengths[:count] = squares(points)
    together = max(1, _CACHED // max(1, held[:1].nbytes))
    fixed = kinds_of(held, lengths, together)
    kernel = specialise(_search, (*_ROWS, *fixed, writes(np.float64, 2), writes(np.int64, 2)))

    def search(x: Array, values: Array, index: Array) -> None:
        x = whole_tiles(x)
        kernel(x, squares(x), held, lengths, together, values, index)

    return search


def expanded_distances(points: Array) -> Callable[[Array], Array] | None:
    """x (n, k) float64 -> (n, m), squared; None if the processor has no fused multiply-add."""
    fill = _all_distances(points, squares(points))
    return None if fill is None else lambda x: fill(x, squares(x))


def cosine_distances(points: Array) -> Callable[[Array], Array] | None:
    """x (n, k) float64 -> (n, m); None if the processor has no fused multiply-add."""
    # 1 - x.y is |x|^2 - 2 x.y + |y|^2 with half of x, 1 and 0: halves and doubles are exact.
    fill = _all_distances(units(points), np.zeros(len(points)))
    if fill is None:
        return None
    return lambda x: np.minimum(fill(0.5 * units(x), np.ones(len(x))), 2.0)


def _all_distances(points: Array, theirs: Array) -> Callable[[Array, Array], Array] | None:
    """Rows (n, k) and what stands for the squares of them -> (n, m)."""
    if not FUSES:
        return None
    count = len(points)
    held = panels(points.T)
    lengths = np.zeros(held.shape[0] * WIDE)
    lengths[:count] = theirs
    kernel = specialise(_distances, (*_ROWS, *kinds_of(held, lengths), writes(np.float64, 2)))

    def compute(x: Array, squared: Array) -> Array:
        out = np.empty((x.shape[0], count))
        own = np.zeros(-(-len(x) // HIGH) * HIGH)
        own[: len(x)] = squared
        kernel(whole_tiles(x), own, held, lengths, out)
        return out

    return compute


def _distances(x: Any, own: Any, points: Any, lengths: Any, out: Any) -> None:
    rows, count = out.shape
    made, nothing = np.empty(HIGH * WIDE), np.zeros(HIGH)
    for panel in range(points.shape[0]):
        start = panel * WIDE
        columns = min(WIDE, count - start)
        for first in range(0, rows, HIGH):
            distance_tile(x, first, points, panel, own, lengths, nothing, made)
            for r in range(min(HIGH, rows - first)):
                for w in range(columns):
                    out[first + r, start + w] = made[r * WIDE + w]


def _search(
    x: Any, own: Any, points: Any, lengths: Any, together: Any, values: Any, index: Any
) -> None:
    rows = values.shape[0]
    distances, worst = np.empty(HIGH * WIDE), np.empty(HIGH)
    for start in range(0, points.shape[0], together):
        stop = min(start + together, points.shape[0])
        for first in range(0, rows, HIGH):
            for r in range(HIGH):  # nothing is nearer to a row that is not there
                worst[r] = values[first + r, 0] if first + r < rows else 0.0
            for panel in range(start, stop):
                hits = distance_tile(x, first, points, panel, own, lengths, worst, distances)
                r = 0
                while hits >> r:
                    if hits >> r & 1:
                        row = first + r
                        for w in range(WIDE):
                            if distances[r * WIDE + w] < values[row, 0]:
                                _replace_top(
                                    values[row],
                                    index[row],
                                    distances[r * WIDE + w],
                                    panel * WIDE + w,
                                )
                        worst[r] = values[row, 0]
                    r += 1


@helper
def _replace_top(values: Any, index: Any, value: Any, number: Any) -> None:
    k, place = values.shape[0], 0
    while True:
        child = 2 * place + 1
        if child >= k:
            break
        if child + 1 < k and values[child + 1] > values[child]:
            child += 1
        if not value < values[child]:
            break
        values[place], index[place] = values[child], index[child]
        place = child
    values[place], index[place] = value, number
