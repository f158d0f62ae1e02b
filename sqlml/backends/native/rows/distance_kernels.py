"""Distances to fixed points, and the search for the nearest points, with pruned trees.

The arithmetic and its order are those of `ir/operators/distances.py` and `neighbours.py`, so the
results are the same bits. Metrics that are not in `CODES` run in numpy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from sqlml.backends.native.jit.helpers import compiled_helper
from sqlml.backends.native.jit.specialise import inlined_helper, kinds_of, reads, specialise, writes
from sqlml.backends.native.kernel_calls import RowKernel
from sqlml.backends.native.rows.linear_kernels import squared_distances, wide_linear
from sqlml.backends.native.rows.matmul_tiles import (
    FUSES,
    HIGH,
    WIDE,
    distance_tile,
    make_panels,
    pad_rows,
)
from sqlml.ir.operators.distances import SPLIT, rounding_slack, scale_to_unit, square_norms
from sqlml.ir.operators.neighbours import select_nearest, true_distance
from sqlml.ir.program import Attrs
from sqlml.types import Array

# Expanded distances (`ir/operators/distances.py`), and the nearest points by them.
#
# One tile of a matrix product gives all distances from a few rows to a few points. A search passes
# them to the rows' heaps at once, so no distance is written to memory, and each point is read once
# for `HIGH` rows.

_CACHED = 1 << 18
"""Bytes of points that all rows pass before the next points: they stay in the processor's cache."""

_ROWS = (reads(np.float64, 2, "C"), reads(np.float64, 1, "C"))
"""Rows (n, k), and the term (n,) that stands for each row's squared norm."""

Search = Callable[[Array, Array, Array], None]
"""Fills heaps (n, neighbours) of values and int64 indices, unsorted, for rows (n, k)."""


def expanded_search(points: Array) -> Search | None:
    """Return a search among points (m, k); None if the processor has no fused multiply-add."""
    if not FUSES:
        return None
    count, width = points.shape
    panels = make_panels(points.T)
    # Points after the last are infinitely far, so no heap takes them.
    point_norms = np.full(panels.shape[0] * WIDE, np.inf)
    point_norms[:count] = square_norms(points)
    panels_per_pass = max(1, _CACHED // max(1, panels[:1].nbytes))
    fixed = kinds_of(panels, point_norms, panels_per_pass)
    kernel = specialise(_search, (*_ROWS, *fixed, writes(np.float64, 2), writes(np.int64, 2)))

    def search(x: Array, values: Array, index: Array) -> None:
        x = pad_rows(x)
        kernel(x, square_norms(x), panels, point_norms, panels_per_pass, values, index)

    return search


def _expanded_distances(points: Array, is_cosine: bool) -> Callable[[Array], Array] | None:
    """Return a function: x (n, k) -> squared or cosine distances (n, m); None unless `FUSES`."""
    if not FUSES:
        return None
    count = len(points)
    panels = make_panels((scale_to_unit(points) if is_cosine else points).T)
    point_norms = np.zeros(panels.shape[0] * WIDE)
    point_norms[:count] = 0.0 if is_cosine else square_norms(points)
    kernel = specialise(_distances, (*_ROWS, *kinds_of(panels, point_norms), writes(np.float64, 2)))

    def compute(x: Array) -> Array:
        out = np.empty((x.shape[0], count))
        row_norms = np.zeros(-(-len(x) // HIGH) * HIGH)
        # 1 - x.y is |x|^2 - 2 x.y + |y|^2 with half of x, 1 and 0: halves and doubles are exact.
        row_norms[: len(x)] = 1.0 if is_cosine else square_norms(x)
        rows = 0.5 * scale_to_unit(x) if is_cosine else x
        kernel(pad_rows(rows), row_norms, panels, point_norms, out)
        return np.minimum(out, 2.0) if is_cosine else out

    return compute


def _distances(x: Any, row_norms: Any, points: Any, point_norms: Any, out: Any) -> None:
    rows, count = out.shape
    tile, zeros = np.empty(HIGH * WIDE), np.zeros(HIGH)
    for panel in range(points.shape[0]):
        start = panel * WIDE
        columns = min(WIDE, count - start)
        for first in range(0, rows, HIGH):
            distance_tile(x, first, points, panel, row_norms, point_norms, zeros, tile)
            for r in range(min(HIGH, rows - first)):
                for w in range(columns):
                    out[first + r, start + w] = tile[r * WIDE + w]


def _search(
    x: Any,
    row_norms: Any,
    points: Any,
    point_norms: Any,
    panels_per_pass: Any,
    values: Any,
    index: Any,
) -> None:
    rows = values.shape[0]
    tile, worst = np.empty(HIGH * WIDE), np.empty(HIGH)
    for start in range(0, points.shape[0], panels_per_pass):
        stop = min(start + panels_per_pass, points.shape[0])
        for first in range(0, rows, HIGH):
            # No point is nearer than 0 to a padding row.
            for r in range(HIGH):
                worst[r] = values[first + r, 0] if first + r < rows else 0.0
            for panel in range(start, stop):
                hits = distance_tile(x, first, points, panel, row_norms, point_norms, worst, tile)
                r = 0
                while hits >> r:
                    if hits >> r & 1:
                        row = first + r
                        for w in range(WIDE):
                            distance = tile[r * WIDE + w]
                            if distance < values[row, 0]:
                                _replace_top(values[row], index[row], distance, panel * WIDE + w)
                        worst[r] = values[row, 0]
                    r += 1


@inlined_helper
def _replace_top(values: Any, index: Any, value: Any, point: Any) -> None:
    k, parent = values.shape[0], 0
    while True:
        child = 2 * parent + 1
        if child >= k:
            break
        if child + 1 < k and values[child + 1] > values[child]:
            child += 1
        if not value < values[child]:
            break
        values[parent], index[parent] = values[child], index[child]
        parent = child
    values[parent], index[parent] = value, point


CODES: Mapping[str, int] = MappingProxyType(
    {"sqeuclidean": 0, "manhattan": 1, "chebyshev": 2, "dot": 3}
)
PARTITIONED = 1 << 16
"""Distances computed at a time: they stay in the processor's cache."""

FEW = 64
"""The most neighbours that are sorted by insertion."""

DEPTH = 128
"""Capacity of the stack: two nodes per level of a tree of at most 2^62 nodes."""


def pairwise(attrs: Attrs) -> Callable[[Array], Array] | None:
    """Return a function: x (n, k) -> distances (n, m); None to leave it to numpy."""
    points: Array = attrs["points"]
    if attrs.get("expanded", False):
        return _expanded_distances(points, attrs["metric"] == "cosine")
    if attrs["metric"] not in CODES or "weights" in attrs:
        return None
    if attrs["metric"] == "sqeuclidean" and points.dtype == np.float64:
        return squared_distances(points)
    if attrs["metric"] == "dot" and points.dtype == np.float64:
        return wide_linear(points.T, np.zeros(len(points)))  # no sum is -0, which + 0 would change
    constants = (np.ascontiguousarray(points.T), CODES[attrs["metric"]])
    count, dtype = points.shape[0], points.dtype
    return RowKernel.of(_pairwise, dtype, constants, count, dtype, is_zeroed=True)


def nearest(attrs: Attrs) -> Callable[[Array], Array] | None:
    """Return a function: x (n, k) -> (n, 2 * neighbours), or None if numpy must search."""
    ties, metric, k = attrs["ties"], attrs["metric"], int(attrs["k"])
    if ties == "partition":
        return _partitioned_search(attrs)
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
            order = np.lexsort((index, values), axis=1)
            values = np.take_along_axis(values, order, axis=1)
            index = np.take_along_axis(index, order, axis=1)
        result = np.empty((x.shape[0], 2 * k))
        result[:, :k] = true_distance(values, attrs)
        result[:, k:] = index
        return result

    return find


def _partitioned_search(attrs: Attrs) -> Callable[[Array], Array] | None:
    """Return a search with `numpy.argpartition`, whose choice among equal distances is its own."""
    k = int(attrs["k"])
    distances = pairwise(attrs)
    if distances is None:
        return None
    rows = max(1, PARTITIONED // len(attrs["points"]))

    def find(x: Array) -> Array:
        result = np.empty((x.shape[0], 2 * k))
        for start in range(0, x.shape[0], rows):
            block = x[start : start + rows]
            values, index = select_nearest(distances(block), block, attrs)
            result[start : start + rows, :k] = true_distance(values, attrs)
            result[start : start + rows, k:] = index
        return result

    return find


def _sorted(values: Any, index: Any) -> None:
    """Sort each row by value, then by index, with an insertion sort."""
    for r in range(values.shape[0]):
        for i in range(1, values.shape[1]):
            value, point, position = values[r, i], index[r, i], i
            while position > 0:
                above = values[r, position - 1]
                if not (value < above or (value == above and point < index[r, position - 1])):
                    break
                values[r, position], index[r, position] = above, index[r, position - 1]
                position -= 1
            values[r, position], index[r, position] = value, point


def _pruned_search(attrs: Attrs) -> Search:
    ties, metric = attrs["ties"], attrs["metric"]
    points: Array = attrs["points"]
    order = np.ascontiguousarray(attrs.get("order", np.arange(len(points), dtype=np.int64)))
    leaves = np.ascontiguousarray(attrs.get("leaves", np.array([[0, len(points)]])))
    bounds = np.ascontiguousarray(attrs.get("bounds", np.zeros((1, 1))))
    ordered_points = np.ascontiguousarray(points[order])
    kind = ("heap", "kd_tree", "ball_tree").index(ties)
    settings = np.array([CODES[metric], kind, int(attrs.get("expanded", False))])
    point_norms = square_norms(points)
    tree = (ordered_points, order, leaves, bounds, settings)
    floats = reads(np.float64, 1, "C")
    inputs = (reads(np.float64, 2), kinds_of(*tree), floats, floats, floats)
    kernel = specialise(_nearest, (*inputs, writes(np.float64, 2), writes(np.int64, 2)))

    def search(x: Array, values: Array, index: Array) -> None:
        row_norms = square_norms(x)
        margin = rounding_slack(row_norms, point_norms, x.shape[1])
        kernel(x, tree, row_norms, point_norms, margin, values, index)

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


@compiled_helper
def _fused_multiply_add(a: Any, b: Any, c: Any) -> Any:
    """Return a * b + c, rounded once, as `expanded.fused` does."""
    product = a * b
    high_a, high_b = a * SPLIT, b * SPLIT
    high_a, high_b = high_a - (high_a - a), high_b - (high_b - b)
    low_a, low_b = a - high_a, b - high_b
    error = ((high_a * high_b - product) + high_a * low_b + low_a * high_b) + low_a * low_b
    total = product + c
    rounded = total - product
    error = error + ((product - (total - rounded)) + (c - rounded))
    result = total + error
    return result if np.isfinite(result) else total


def _nearest(
    x: Any, tree: Any, row_norms: Any, point_norms: Any, margin: Any, values: Any, index: Any
) -> None:
    """Fill each row's heap with the k best points, by descending a tree of points.

    Expanded distances (`ir/operators/distances.py`) are computed only for points that may enter.
    The loops are one long function because they share the heap and the stack.

    Args:
        x: rows (n, width).
        tree: points (m, width) in the tree's order; their original indices int64 (m,); ranges of
            points (nodes, 2); bounding boxes or balls (nodes, ...); metric, kind of tree (0: none,
            1: boxes, 2: balls), and whether distances expand.
        row_norms, point_norms: squared norms of rows (n,) and of points (m,).
        margin: rounding slack (n,).
        values, index: heaps (n, k) of distances and point indices.
    """
    points, order, leaves, bounds, settings = tree
    metric, kind, expands = settings[0], settings[1], settings[2]
    width = x.shape[1]
    first_leaf = leaves.shape[0] // 2
    node_stack = np.empty(DEPTH, np.int64)
    low_stack = np.empty(DEPTH, np.float64)
    lows = np.empty(2, np.float64)
    for r in range(x.shape[0]):
        node_stack[0], low_stack[0], top = 0, 0.0, 1
        while top > 0:
            top -= 1
            node = node_stack[top]
            if low_stack[top] > values[r, 0]:
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
                node_stack[top], low_stack[top] = 2 * node + 2 - nearer, lows[1 - nearer]
                node_stack[top + 1], low_stack[top + 1] = 2 * node + 1 + nearer, lows[nearer]
                top += 2
                continue
            for i in range(leaves[node, 0], leaves[node, 1]):
                distance = 0.0
                for c in range(width):
                    gap = x[r, c] - points[i, c]
                    if metric == 0:
                        distance += gap * gap
                    elif metric == 1:
                        distance += abs(gap)
                    else:
                        distance = np.maximum(distance, abs(gap))
                if expands and distance <= values[r, 0] + margin[r]:
                    product = 0.0
                    for c in range(width):
                        product = _fused_multiply_add(x[r, c], points[i, c], product)
                    distance = (row_norms[r] + -2.0 * product) + point_norms[order[i]]
                    distance = np.maximum(0.0, distance)
                if distance < values[r, 0]:
                    _replace_top(values[r], index[r], distance, order[i])
