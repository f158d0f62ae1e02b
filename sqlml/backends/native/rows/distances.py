"""Distances to fixed points, and the search for the nearest of them, with trees pruned.

The same arithmetic in the same order as `ir/operators/distances.py` and `neighbours.py`, so the
same bits; metrics that are not in `CODES` run in numpy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from sqlml.backends.native.jit.helpers import called
from sqlml.backends.native.jit.specialise import helper, kinds_of, reads, specialise, writes
from sqlml.backends.native.rows.linear import squared_distances, wide_linear
from sqlml.backends.native.rows.matmul_tiles import (
    FUSES,
    HIGH,
    WIDE,
    distance_tile,
    panels,
    whole_tiles,
)
from sqlml.ir.operators.distances import SPLIT, rounding_slack, scale_to_unit, square_norms
from sqlml.ir.operators.neighbours import select_nearest, true_distance
from sqlml.ir.program import Attrs
from sqlml.types import Array

# Expanded distances to fixed points (`ir/operators/distances.py`), and the nearest by them.
#
# All distances of a few rows to a few points come out of one tile of a matrix product. In a
# search they go through the rows' heaps at once; so no distance is ever written to memory, and
# each point is read once for `HIGH` rows.


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
    lengths[:count] = square_norms(points)
    together = max(1, _CACHED // max(1, held[:1].nbytes))
    fixed = kinds_of(held, lengths, together)
    kernel = specialise(_search, (*_ROWS, *fixed, writes(np.float64, 2), writes(np.int64, 2)))

    def search(x: Array, values: Array, index: Array) -> None:
        x = whole_tiles(x)
        kernel(x, square_norms(x), held, lengths, together, values, index)

    return search


def expanded_distances(points: Array) -> Callable[[Array], Array] | None:
    """x (n, k) float64 -> (n, m), squared; None if the processor has no fused multiply-add."""
    fill = _all_distances(points, square_norms(points))
    return None if fill is None else lambda x: fill(x, square_norms(x))


def cosine_distances(points: Array) -> Callable[[Array], Array] | None:
    """x (n, k) float64 -> (n, m); None if the processor has no fused multiply-add."""
    # 1 - x.y is |x|^2 - 2 x.y + |y|^2 with half of x, 1 and 0: halves and doubles are exact.
    fill = _all_distances(scale_to_unit(points), np.zeros(len(points)))
    if fill is None:
        return None
    return lambda x: np.minimum(fill(0.5 * scale_to_unit(x), np.ones(len(x))), 2.0)


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


CODES: Mapping[str, int] = MappingProxyType(
    {"sqeuclidean": 0, "manhattan": 1, "chebyshev": 2, "dot": 3}
)
PARTITIONED = 1 << 16
"""Distances that are held at one time: they stay in the processor's cache."""

FEW = 64
"""Neighbours that are sorted by insertion."""

DEPTH = 128
"""Places of the stack: two nodes a level of a tree of at most 2^62 nodes."""


def pairwise(attrs: Attrs) -> Callable[[Array], Array] | None:
    """x (n, k) -> (n, m); None to leave it to numpy."""
    points: Array = attrs["points"]
    if attrs.get("expanded", False):
        return (
            cosine_distances(points) if attrs["metric"] == "cosine" else expanded_distances(points)
        )
    if attrs["metric"] not in CODES or "weights" in attrs:
        return None
    if attrs["metric"] == "sqeuclidean" and points.dtype == np.float64:
        return squared_distances(points)
    if attrs["metric"] == "dot" and points.dtype == np.float64:
        return wide_linear(points.T, np.zeros(len(points)))  # no sum is -0, which + 0 would change
    dtype, code = points.dtype, CODES[attrs["metric"]]
    turned = np.ascontiguousarray(points.T)
    kernel = specialise(_pairwise, (reads(dtype, 2), *kinds_of(turned, code), writes(dtype, 2)))

    def compute(x: Array) -> Array:
        out = np.zeros((x.shape[0], turned.shape[1]), dtype)
        kernel(x, turned, code, out)
        return out

    return compute


def nearest(attrs: Attrs) -> Callable[[Array], Array] | None:
    """x (n, k) float64 -> (n, 2 * neighbours); None to leave the search to numpy."""
    ties, metric, k = attrs["ties"], attrs["metric"], int(attrs["k"])
    if ties == "partition":
        return _partitioned(attrs)
    if metric not in CODES or metric == "dot" or "weights" in attrs:
        return None
    search = expanded_search(attrs["points"]) if attrs.get("expanded", False) else None
    fill = search or _pruned_search(attrs)
    sort = specialise(_sorted, (writes(np.float64, 2), writes(np.int64, 2)))

    def find(x: Array) -> Array:
        values = np.full((x.shape[0], k), np.inf)
        index = np.zeros((x.shape[0], k), np.int64)
        fill(x, values, index)
        if k <= FEW:
            sort(values, index)
        else:
            by = np.lexsort((index, values), axis=1)
            values = np.take_along_axis(values, by, axis=1)
            index = np.take_along_axis(index, by, axis=1)
        found = np.empty((x.shape[0], 2 * k))
        found[:, :k] = true_distance(values, attrs)
        found[:, k:] = index
        return found

    return find


def _partitioned(attrs: Attrs) -> Callable[[Array], Array] | None:
    """A search by `numpy.argpartition`, whose choice among equal distances is its own."""
    k = int(attrs["k"])
    distances = pairwise(attrs)
    if distances is None:
        return None
    rows = max(1, PARTITIONED // len(attrs["points"]))

    def find(x: Array) -> Array:
        found = np.empty((x.shape[0], 2 * k))
        for start in range(0, x.shape[0], rows):
            part = x[start : start + rows]
            values, index = select_nearest(distances(part), part, attrs)
            found[start : start + rows, :k] = true_distance(values, attrs)
            found[start : start + rows, k:] = index
        return found

    return find


def _sorted(values: Any, index: Any) -> None:
    """Sort each row by value, equal ones by index: insertion."""
    for r in range(values.shape[0]):
        for i in range(1, values.shape[1]):
            value, number, at = values[r, i], index[r, i], i
            while at > 0:
                above = values[r, at - 1]
                if not (value < above or (value == above and number < index[r, at - 1])):
                    break
                values[r, at], index[r, at] = above, index[r, at - 1]
                at -= 1
            values[r, at], index[r, at] = value, number


def _pruned_search(attrs: Attrs) -> Search:
    ties, metric = attrs["ties"], attrs["metric"]
    points: Array = attrs["points"]
    order = np.ascontiguousarray(attrs.get("order", np.arange(len(points), dtype=np.int64)))
    leaves = np.ascontiguousarray(attrs.get("leaves", np.array([[0, len(points)]])))
    bounds = np.ascontiguousarray(attrs.get("bounds", np.zeros((1, 1))))
    held = np.ascontiguousarray(points[order])
    kind = ("heap", "kd_tree", "ball_tree").index(ties)
    numbers = np.array([CODES[metric], kind, int(attrs.get("expanded", False))])
    theirs = square_norms(points)
    tree = (held, order, leaves, bounds, numbers)
    floats = reads(np.float64, 1, "C")
    signature = (
        *(reads(np.float64, 2), *kinds_of(*tree), floats, floats, floats),
        *(writes(np.float64, 2), writes(np.int64, 2)),
    )
    kernel = specialise(_nearest, signature)

    def search(x: Array, values: Array, index: Array) -> None:
        own = square_norms(x)
        margin = rounding_slack(own, theirs, x.shape[1])
        kernel(x, *tree, own, theirs, margin, values, index)

    return search


def _pairwise(x: Any, points: Any, code: Any, out: Any) -> None:
    for r in range(x.shape[0]):
        for c in range(x.shape[1]):
            value = x[r, c]
            if code == 0:
                for m in range(out.shape[1]):
                    gap = value - points[c, m]
                    out[r, m] += gap * gap
            elif code == 1:
                for m in range(out.shape[1]):
                    out[r, m] += np.abs(value - points[c, m])
            elif code == 2:
                for m in range(out.shape[1]):
                    out[r, m] = np.maximum(out[r, m], np.abs(value - points[c, m]))
            else:
                for m in range(out.shape[1]):
                    out[r, m] += value * points[c, m]


@called
def _fused(a: Any, b: Any, c: Any) -> Any:
    """a * b + c, rounded once: `expanded.fused` of one number."""
    product = a * b
    high_a, high_b = a * SPLIT, b * SPLIT
    high_a, high_b = high_a - (high_a - a), high_b - (high_b - b)
    low_a, low_b = a - high_a, b - high_b
    error = ((high_a * high_b - product) + high_a * low_b + low_a * high_b) + low_a * low_b
    total = product + c
    part = total - product
    error = error + ((product - (total - part)) + (c - part))
    made = total + error
    return made if np.isfinite(made) else total


def _nearest(
    x: Any,
    points: Any,
    order: Any,
    leaves: Any,
    bounds: Any,
    numbers: Any,
    own: Any,
    theirs: Any,
    margin: Any,
    values: Any,
    index: Any,
) -> None:
    """Fill each row's heap of the k best; `points` stand in the tree's order.

    Expanded distances (`ir/operators/distances.py`) are computed only for points that may enter.
    """
    metric, kind, expands = numbers[0], numbers[1], numbers[2]
    width, k = x.shape[1], values.shape[1]
    first_leaf = leaves.shape[0] // 2
    node_at = np.empty(DEPTH, np.int64)
    low_at = np.empty(DEPTH, np.float64)
    lows = np.empty(2, np.float64)
    for r in range(x.shape[0]):
        node_at[0], low_at[0], top = 0, 0.0, 1
        while top > 0:
            top -= 1
            node = node_at[top]
            if low_at[top] > values[r, 0]:
                continue
            if node < first_leaf:
                for side in range(2):
                    child = 2 * node + 1 + side
                    low = 0.0
                    for c in range(width):
                        if kind == 1:
                            under = bounds[child, c] - x[r, c]
                            over = x[r, c] - bounds[child, width + c]
                            gap = 0.5 * ((under + abs(under)) + (over + abs(over)))
                        else:
                            gap = abs(x[r, c] - bounds[child, c])
                        if metric == 0:
                            low += gap * gap
                        elif metric == 1:
                            low += gap
                        else:
                            low = np.maximum(low, gap)
                    if kind == 2:
                        if metric == 0:
                            low = np.sqrt(low)
                        low = np.maximum(0.0, low - bounds[child, width])
                        if metric == 0:
                            low = low * low
                    lows[side] = low
                nearer = 0 if lows[0] <= lows[1] else 1
                node_at[top], low_at[top] = 2 * node + 2 - nearer, lows[1 - nearer]
                node_at[top + 1], low_at[top + 1] = 2 * node + 1 + nearer, lows[nearer]
                top += 2
                continue
            for i in range(leaves[node, 0], leaves[node, 1]):
                d = 0.0
                for c in range(width):
                    gap = x[r, c] - points[i, c]
                    if metric == 0:
                        d += gap * gap
                    elif metric == 1:
                        d += abs(gap)
                    else:
                        d = np.maximum(d, abs(gap))
                if expands and d <= values[r, 0] + margin[r]:
                    product = 0.0
                    for c in range(width):
                        product = _fused(x[r, c], points[i, c], product)
                    d = np.maximum(0.0, (own[r] + -2.0 * product) + theirs[order[i]])
                if not d < values[r, 0]:
                    continue
                at = 0
                while True:
                    child = 2 * at + 1
                    if child >= k:
                        break
                    if child + 1 < k and values[r, child + 1] > values[r, child]:
                        child += 1
                    if not d < values[r, child]:
                        break
                    values[r, at], index[r, at] = values[r, child], index[r, child]
                    at = child
                values[r, at], index[r, at] = d, order[i]
