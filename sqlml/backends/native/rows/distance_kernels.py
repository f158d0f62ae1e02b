"""Compute distances to fixed points, and search for the nearest points with pruned trees.

Every operation has the same order as in `ir/operators/distances.py` and `neighbours.py`, so the
results are bit-identical. Metrics that are not in `METRIC_CODES` run in numpy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from sqlml.backends.native.jit.helpers import compiled_helper
from sqlml.backends.native.jit.specialise import inlined_helper, reads, specialise, to_kinds, writes
from sqlml.backends.native.kernel_calls import RowKernel
from sqlml.backends.native.rows.first_nearest import make_first_nearest_kernel
from sqlml.backends.native.rows.linear_kernels import make_squared_distances, make_wide_linear
from sqlml.backends.native.rows.matmul_tiles import (
    FUSES,
    TILE_ROWS,
    WIDTH,
    distance_tile,
    make_panels,
    pad_rows,
)
from sqlml.ir.operators.distances import (
    SPLIT,
    SQUARES,
    bound_rounding_error,
    compute_square_norms,
    scale_to_unit,
)
from sqlml.ir.operators.neighbours import select_nearest, to_true_distances
from sqlml.ir.program import Attrs
from sqlml.types import Array

# Expanded distances (`ir/operators/distances.py`) are computed in tiles of a matrix product: from a
# few rows to a few points. The distances go directly to the heaps of the rows, and each point is
# read once for `TILE_ROWS` rows.

_CACHED_BYTES = 1 << 18
"""Bytes of points per pass. All rows are compared with these points while the points are cached."""

_ROWS = (reads(np.float64, 2, "C"), reads(np.float64, 1, "C"))
"""The kinds of rows (n, k), and of the rows' squared norms (n,)."""

_HEAPS = (writes(np.float64, 2), writes(np.int64, 2))
"""The kinds of distances and indices, both (n, neighbours)."""

Search = Callable[[Array, Array, Array], None]
"""Fills unsorted heaps (n, neighbours) of distances and int64 indices for rows (n, k)."""


def make_expanded_search(points: Array) -> Search | None:
    """Return a search among points (m, k), or None if the processor lacks fused multiply-adds."""
    if not FUSES:
        return None
    point_count, width = points.shape
    panels = make_panels(points.T)
    # Padding points are infinitely far away, so they never enter a heap.
    point_norms = np.full(panels.shape[0] * WIDTH, np.inf)
    point_norms[:point_count] = compute_square_norms(points)
    panels_per_pass = max(1, _CACHED_BYTES // max(1, panels[:1].nbytes))
    constant_kinds = to_kinds(panels, point_norms, panels_per_pass)
    kernel = specialise(_search, (*_ROWS, *constant_kinds, *_HEAPS))

    def search(x: Array, distances: Array, indices: Array) -> None:
        x = pad_rows(x)
        kernel(x, compute_square_norms(x), panels, point_norms, panels_per_pass, distances, indices)

    return search


def _make_expanded_distances(points: Array, is_cosine: bool) -> Callable[[Array], Array] | None:
    """Return a function from x (n, k) to distances (n, m), or None without fused multiply-adds."""
    if not FUSES:
        return None
    point_count = len(points)
    panels = make_panels((scale_to_unit(points) if is_cosine else points).T)
    point_norms = np.zeros(panels.shape[0] * WIDTH)
    point_norms[:point_count] = 0.0 if is_cosine else compute_square_norms(points)
    kernel = specialise(_distances, (*_ROWS, *to_kinds(panels, point_norms), writes(np.float64, 2)))

    def compute(x: Array) -> Array:
        out = np.empty((x.shape[0], point_count))
        row_norms = np.zeros(-(-len(x) // TILE_ROWS) * TILE_ROWS)
        # With x halved, 1 for |x|^2 and 0 for |y|^2, |x|^2 - 2 x.y + |y|^2 is exactly 1 - x.y.
        row_norms[: len(x)] = 1.0 if is_cosine else compute_square_norms(x)
        rows = 0.5 * scale_to_unit(x) if is_cosine else x
        kernel(pad_rows(rows), row_norms, panels, point_norms, out)
        return np.minimum(out, 2.0) if is_cosine else out

    return compute


def _distances(x: Any, row_norms: Any, points: Any, point_norms: Any, out: Any) -> None:
    """Write the expanded distances from all rows to all points, tile by tile."""
    rows, point_count = out.shape
    tile, zeros = np.empty(TILE_ROWS * WIDTH), np.zeros(TILE_ROWS)
    for panel in range(points.shape[0]):
        start = panel * WIDTH
        columns = min(WIDTH, point_count - start)
        for first_row in range(0, rows, TILE_ROWS):
            distance_tile(x, first_row, points, panel, row_norms, point_norms, zeros, tile)
            for r in range(min(TILE_ROWS, rows - first_row)):
                for c in range(columns):
                    out[first_row + r, start + c] = tile[r * WIDTH + c]


def _search(
    x: Any,
    row_norms: Any,
    points: Any,
    point_norms: Any,
    panels_per_pass: Any,
    distances: Any,
    indices: Any,
) -> None:
    """Fill each row's heap with the nearest points; each pass reads `panels_per_pass` panels."""
    rows = distances.shape[0]
    tile, max_distances = np.empty(TILE_ROWS * WIDTH), np.empty(TILE_ROWS)
    for start in range(0, points.shape[0], panels_per_pass):
        stop = min(start + panels_per_pass, points.shape[0])
        for first_row in range(0, rows, TILE_ROWS):
            # A padding row has a bound of 0, and no point is nearer than that.
            for r in range(TILE_ROWS):
                max_distances[r] = distances[first_row + r, 0] if first_row + r < rows else 0.0
            for panel in range(start, stop):
                hit_mask = distance_tile(
                    x, first_row, points, panel, row_norms, point_norms, max_distances, tile
                )
                r = 0
                while hit_mask >> r:
                    if hit_mask >> r & 1:
                        row = first_row + r
                        for c in range(WIDTH):
                            distance = tile[r * WIDTH + c]
                            if distance < distances[row, 0]:
                                point = panel * WIDTH + c
                                _replace_top(distances[row], indices[row], distance, point)
                        max_distances[r] = distances[row, 0]
                    r += 1


@inlined_helper
def _replace_top(heap: Any, heap_indices: Any, distance: Any, point: Any) -> None:
    """Replace the largest distance and the point of a max-heap with a smaller distance."""
    k, parent = heap.shape[0], 0
    while True:
        child = 2 * parent + 1
        if child >= k:
            break
        if child + 1 < k and heap[child + 1] > heap[child]:
            child += 1
        if not distance < heap[child]:
            break
        heap[parent], heap_indices[parent] = heap[child], heap_indices[child]
        parent = child
    heap[parent], heap_indices[parent] = distance, point


METRIC_CODES: Mapping[str, int] = {"sqeuclidean": 0, "manhattan": 1, "chebyshev": 2, "dot": 3}
"""Maps a metric to the code in the kernels."""
BLOCK_DISTANCES = 1 << 16
"""Distances that are computed at a time, to stay in the processor's cache."""

MAX_INSERTION_SORTED = 64
"""The most neighbours for which an insertion sort is used."""

STACK_SIZE = 128
"""Capacity of the stack in `_nearest`: two nodes per level, for at most 2^62 nodes."""


def make_pairwise_function(attrs: Attrs) -> Callable[[Array], Array] | None:
    """Return a function from x (n, k) to distances (n, m), or None if no kernel computes these."""
    points: Array = attrs["points"]
    if attrs.get("expanded", False):
        return _make_expanded_distances(points, attrs["metric"] == "cosine")
    if "weights" not in attrs and attrs["metric"] == "sqeuclidean" and points.dtype == np.float64:
        return make_squared_distances(points)
    if "weights" not in attrs and attrs["metric"] == "dot" and points.dtype == np.float64:
        # No sum is -0, so adding 0 is exact.
        return make_wide_linear(points.T, np.zeros(len(points)))
    return make_pairwise_kernel(attrs)


def make_pairwise_kernel(attrs: Attrs) -> RowKernel | None:
    """Return a kernel from x (n, k) to distances (n, m), or None if it would not be exact."""
    points, metric = attrs["points"], attrs["metric"]
    if attrs.get("expanded", False) or metric not in METRIC_CODES or "weights" in attrs:
        return None
    constants, dtype = (np.ascontiguousarray(points.T), METRIC_CODES[metric]), points.dtype
    return RowKernel.of(_pairwise, dtype, constants, len(points), dtype, is_zeroed=True)


def make_nearest_function(attrs: Attrs) -> Callable[[Array], Array] | None:
    """Return a function that finds the nearest points of x (n, k), or None if numpy must search.

    The function returns (n, 2 * neighbours): the distances, followed by the indices.
    """
    ties, metric, k = attrs["ties"], attrs["metric"], int(attrs["k"])
    if ties == "index":
        return make_nearest_kernel(attrs)
    if ties == "partition":
        return _make_partitioned_search(attrs)
    if metric not in METRIC_CODES or metric == "dot" or "weights" in attrs:
        return None
    search = make_expanded_search(attrs["points"]) if attrs.get("expanded", False) else None
    fill_heaps = search or _make_pruned_search(attrs)
    sort = specialise(_sorted, _HEAPS)

    def find_nearest(x: Array) -> Array:
        distances = np.full((x.shape[0], k), np.inf)
        indices = np.zeros((x.shape[0], k), np.int64)
        fill_heaps(x, distances, indices)
        if k <= MAX_INSERTION_SORTED:
            sort(distances, indices)
        else:
            order = np.lexsort((indices, distances), axis=1)
            distances = np.take_along_axis(distances, order, axis=1)
            indices = np.take_along_axis(indices, order, axis=1)
        result = np.empty((x.shape[0], 2 * k))
        result[:, :k] = to_true_distances(distances, attrs)
        result[:, k:] = indices
        return result

    return find_nearest


def make_nearest_kernel(attrs: Attrs) -> RowKernel | None:
    """Return a kernel from x (n, k) to the nearest points (n, 2 * neighbours), or None.

    There is no kernel for distances in expanded form, which depend on the sums of a BLAS.
    """
    ties, metric = attrs["ties"], attrs["metric"]
    if ties == "index":
        return make_first_nearest_kernel(attrs)
    is_direct = metric in METRIC_CODES and "weights" not in attrs and metric != "dot"
    if ties == "partition" or attrs.get("expanded", False) or not is_direct:
        return None
    is_square = metric in SQUARES and not attrs.get("squared", False)
    width, double = 2 * int(attrs["k"]), np.dtype(np.float64)
    return RowKernel.of(_find_nearest, double, (_make_tree(attrs), is_square), width, double)


def _make_partitioned_search(attrs: Attrs) -> Callable[[Array], Array] | None:
    """Return a search that breaks ties like `numpy.argpartition`, or None if numpy must search."""
    k = int(attrs["k"])
    compute_distances = make_pairwise_function(attrs)
    if compute_distances is None:
        return None
    block_rows = max(1, BLOCK_DISTANCES // len(attrs["points"]))

    def find_nearest(x: Array) -> Array:
        result = np.empty((x.shape[0], 2 * k))
        for start in range(0, x.shape[0], block_rows):
            block = x[start : start + block_rows]
            distances, indices = select_nearest(compute_distances(block), block, attrs)
            result[start : start + block_rows, :k] = to_true_distances(distances, attrs)
            result[start : start + block_rows, k:] = indices
        return result

    return find_nearest


def _sorted(distances: Any, indices: Any) -> None:
    _sort_heaps(distances, indices)


@inlined_helper
def _sort_heaps(distances: Any, indices: Any) -> None:
    """Sort each row by distance, and equal distances by index, with an insertion sort."""
    for r in range(distances.shape[0]):
        for i in range(1, distances.shape[1]):
            distance, point, position = distances[r, i], indices[r, i], i
            while position > 0:
                previous = distances[r, position - 1]
                if not (
                    distance < previous
                    or (distance == previous and point < indices[r, position - 1])
                ):
                    break
                distances[r, position], indices[r, position] = previous, indices[r, position - 1]
                position -= 1
            distances[r, position], indices[r, position] = distance, point


def _make_pruned_search(attrs: Attrs) -> Search:
    points: Array = attrs["points"]
    point_norms = compute_square_norms(points)
    tree = _make_tree(attrs)
    float_array = reads(np.float64, 1, "C")
    input_kinds = (reads(np.float64, 2), to_kinds(*tree), float_array, float_array, float_array)
    kernel = specialise(_nearest, (*input_kinds, *_HEAPS))

    def search(x: Array, distances: Array, indices: Array) -> None:
        row_norms = compute_square_norms(x)
        slack = bound_rounding_error(row_norms, point_norms, x.shape[1])
        kernel(x, tree, row_norms, point_norms, slack, distances, indices)

    return search


def _make_tree(attrs: Attrs) -> tuple[Array, ...]:
    """Return the `tree` of `_fill_heaps`."""
    points: Array = attrs["points"]
    order = np.ascontiguousarray(attrs.get("order", np.arange(len(points), dtype=np.int64)))
    node_ranges = np.ascontiguousarray(attrs.get("leaves", np.array([[0, len(points)]])))
    node_bounds = np.ascontiguousarray(attrs.get("bounds", np.zeros((1, 1))))
    tree_kind = ("heap", "kd_tree", "ball_tree").index(attrs["ties"])
    metric_code = METRIC_CODES[attrs["metric"]]
    settings = np.array([metric_code, tree_kind, int(attrs.get("expanded", False))])
    return np.ascontiguousarray(points[order]), order, node_ranges, node_bounds, settings


def _pairwise(x: Any, points: Any, metric_code: Any, out: Any) -> None:
    for r in range(x.shape[0]):
        for c in range(x.shape[1]):
            value = x[r, c]
            if metric_code == 0:
                for j in range(out.shape[1]):
                    gap = value - points[c, j]
                    out[r, j] += gap * gap
            elif metric_code == 1:
                for j in range(out.shape[1]):
                    out[r, j] += np.abs(value - points[c, j])
            elif metric_code == 2:
                for j in range(out.shape[1]):
                    out[r, j] = np.maximum(out[r, j], np.abs(value - points[c, j]))
            else:
                for j in range(out.shape[1]):
                    out[r, j] += value * points[c, j]


@compiled_helper
def _fused_multiply_add(a: Any, b: Any, c: Any) -> Any:
    """Return a * b + c, rounded once, as `ir/operators/distances.py` does."""
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
    x: Any, tree: Any, row_norms: Any, point_norms: Any, slack: Any, distances: Any, indices: Any
) -> None:
    _fill_heaps(x, tree, row_norms, point_norms, slack, distances, indices)


def _find_nearest(x: Any, tree: Any, takes_roots: Any, out: Any) -> None:
    """Write each row's distances and points to `out`; `takes_roots` if distances are squares."""
    count = out.shape[1] // 2
    distances, indices = np.empty((1, count)), np.empty((1, count), np.int64)
    zeros = np.zeros(1)
    for r in range(x.shape[0]):
        distances[:], indices[:] = np.inf, 0
        _fill_heaps(x[r : r + 1], tree, zeros, zeros, zeros, distances, indices)
        _sort_heaps(distances, indices)
        for k in range(count):
            out[r, k] = np.sqrt(distances[0, k]) if takes_roots else distances[0, k]
            out[r, count + k] = indices[0, k]


@compiled_helper
def _fill_heaps(
    x: Any, tree: Any, row_norms: Any, point_norms: Any, slack: Any, distances: Any, indices: Any
) -> None:
    """Fill each row's heap with the k nearest points, by descending a tree of points.

    Expanded distances (`ir/operators/distances.py`) are computed only for points that may enter
    the heap. This is one long function because all loops share the heap and the stack.

    Args:
        x: rows (n, width).
        tree: the points (m, width) in the tree's order; the original index of each point, int64
            (m,); the range of points in each node (nodes, 2); the bounding box or ball of each
            node (nodes, ...); and three settings: the metric (`METRIC_CODES`), the kind of tree
            (0: none, 1: boxes, 2: balls), and 1 if distances are computed in expanded form.
        row_norms, point_norms: the squared norms of the rows (n,) and of the points (m,).
        slack: (n,), bounds on the rounding errors of each row's distances.
        distances, indices: the heaps (n, k) of distances and of point indices.
    """
    points, order, node_ranges, node_bounds, settings = tree
    metric, tree_kind, uses_expansion = settings[0], settings[1], settings[2]
    width = x.shape[1]
    first_leaf = node_ranges.shape[0] // 2
    node_stack = np.empty(STACK_SIZE, np.int64)
    lower_bound_stack = np.empty(STACK_SIZE, np.float64)
    lower_bounds = np.empty(2, np.float64)
    for r in range(x.shape[0]):
        node_stack[0], lower_bound_stack[0], stack_size = 0, 0.0, 1
        while stack_size > 0:
            stack_size -= 1
            node = node_stack[stack_size]
            if lower_bound_stack[stack_size] > distances[r, 0]:
                continue
            if node < first_leaf:
                for side in range(2):
                    child = 2 * node + 1 + side
                    lower_bound = 0.0
                    for c in range(width):
                        if tree_kind == 1:
                            under = node_bounds[child, c] - x[r, c]
                            over = x[r, c] - node_bounds[child, width + c]
                            gap = 0.5 * ((under + abs(under)) + (over + abs(over)))
                        else:
                            gap = abs(x[r, c] - node_bounds[child, c])
                        if metric == 0:
                            lower_bound += gap * gap
                        elif metric == 1:
                            lower_bound += gap
                        else:
                            lower_bound = np.maximum(lower_bound, gap)
                    if tree_kind == 2:
                        if metric == 0:
                            lower_bound = np.sqrt(lower_bound)
                        lower_bound = np.maximum(0.0, lower_bound - node_bounds[child, width])
                        if metric == 0:
                            lower_bound = lower_bound * lower_bound
                    lower_bounds[side] = lower_bound
                nearer_side = 0 if lower_bounds[0] <= lower_bounds[1] else 1
                node_stack[stack_size] = 2 * node + 2 - nearer_side
                lower_bound_stack[stack_size] = lower_bounds[1 - nearer_side]
                node_stack[stack_size + 1] = 2 * node + 1 + nearer_side
                lower_bound_stack[stack_size + 1] = lower_bounds[nearer_side]
                stack_size += 2
                continue
            for i in range(node_ranges[node, 0], node_ranges[node, 1]):
                distance = 0.0
                for c in range(width):
                    gap = x[r, c] - points[i, c]
                    if metric == 0:
                        distance += gap * gap
                    elif metric == 1:
                        distance += abs(gap)
                    else:
                        distance = np.maximum(distance, abs(gap))
                if uses_expansion and distance <= distances[r, 0] + slack[r]:
                    product = 0.0
                    for c in range(width):
                        product = _fused_multiply_add(x[r, c], points[i, c], product)
                    distance = (row_norms[r] + -2.0 * product) + point_norms[order[i]]
                    distance = np.maximum(0.0, distance)
                if distance < distances[r, 0]:
                    _replace_top(distances[r], indices[r], distance, order[i])
