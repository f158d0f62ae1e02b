"""`nearest`: the k nearest of constant points, with ties resolved as scikit-learn's searches do.

The result is (n, 2 * k): the distances in ascending order, followed by the indices of the points.
Points at equal distances are ordered by index. `ties` names the search, which determines the
selection among the points at the k-th distance:

* "heap": the points pass in order through a heap of the k best (`utils/_heap.pyx`), as in brute
  searches with one thread or many rows.
* "kd_tree", "ball_tree": the points pass through the same heap, in the order of a depth-first
  search (`neighbors/_binary_tree.pxi.tp`). Nodes that are farther than the heap are skipped.
* "partition": `numpy.argpartition` selects from all distances.
* "index": euclidean distances are computed in float32, column by column, and the first of equal
  ones are selected, as by ReduceSumSquare and TopK of onnxruntime. NaN is farther than infinity.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sqlml.ir.operators.distances import (
    METRIC,
    SQUARES,
    bound_rounding_error,
    compute_expanded_distances,
    compute_like_source,
    compute_square_norms,
    count_points,
    reduce_distances,
)
from sqlml.ir.operators.op import Op, Types, array_attribute, require
from sqlml.ir.program import Attrs
from sqlml.types import Array, TensorType, matrix

BLOCK_VALUES = 1 << 21
"""Maximum number of distances in memory at a time."""

MAX_NEIGHBOURS = 1 << 16
TREES = ("kd_tree", "ball_tree")
TIES = ("heap", "partition", "index", *TREES)


def _nearest_type(types: Types, attrs: Attrs) -> TensorType:
    num_points, k = count_points(types, attrs), attrs["k"]
    ties, metric = attrs["ties"], attrs["metric"]
    dtype = "float32" if ties == "index" else "float64"
    require(types[0].dtype == dtype, f"nearest takes {dtype} with ties {ties!r}")
    require(0 < k <= min(num_points, MAX_NEIGHBOURS), f"k is {k} for {num_points} points")
    require(ties in TIES, f"unknown rule for ties {ties!r}")
    require(metric not in ("dot", "chi2"), f"{metric} is not a distance")
    if attrs.get("expanded", False):
        require(
            (ties, metric) in (("heap", "sqeuclidean"), ("partition", "cosine"))
            and "weights" not in attrs,
            "only euclidean distances without weights with a heap, and cosine distances with "
            "partition, are expanded",
        )
    if ties == "index":
        is_plain = metric == "sqeuclidean" and "weights" not in attrs and "squared" in attrs
        require(is_plain, "only squared euclidean distances are computed in float32")
    if ties in TREES:
        _check_tree(types, attrs, num_points)
    else:
        require(not {"order", "leaves", "bounds"} & set(attrs), "only trees have nodes")
    return matrix("float64", 2 * k)


def _check_tree(types: Types, attrs: Attrs, num_points: int) -> None:
    """Raise ProgramError unless the nodes form a complete tree with correct bounds."""
    require({"order", "leaves", "bounds"} <= set(attrs), "a tree has order, leaves and bounds")
    order = array_attribute(attrs, "order", "int64", (num_points,))
    node_ranges = array_attribute(attrs, "leaves", "int64", (None, 2))
    num_nodes, width = node_ranges.shape[0], types[0].width
    has_each_point = np.array_equal(np.sort(order), np.arange(num_points))
    require(has_each_point, "order must name each point once")
    # The tree is complete: the children of node i are 2i + 1 and 2i + 2.
    require(num_nodes > 0 and (num_nodes + 1) & num_nodes == 0, "a tree has 2^depth - 1 nodes")
    start, end = node_ranges.T
    require(start[0] == 0 and end[0] == num_points and (start <= end).all(), "nodes must be ranges")
    left_ranges, right_ranges, parent_ranges = (
        node_ranges[1::2],
        node_ranges[2::2],
        node_ranges[: num_nodes // 2],
    )
    are_adjacent = np.array_equal(left_ranges[:, 1], right_ranges[:, 0])
    divides_points = are_adjacent and np.array_equal(
        np.stack([left_ranges[:, 0], right_ranges[:, 1]], 1), parent_ranges
    )
    require(divides_points, "the children of a node must divide its points")
    extra_columns = 1 if attrs["ties"] == "ball_tree" else width
    bounds = array_attribute(attrs, "bounds", "float64", (num_nodes, width + extra_columns))
    points_in_order = attrs["points"][order]
    if attrs["ties"] == "kd_tree":
        has_tree = attrs["metric"] in _KD_TREE_POWERS and "weights" not in attrs
        require(has_tree, "a kd_tree does not support this metric")
        contain_points = _boxes_contain_points(bounds, node_ranges, points_in_order)
    else:
        contain_points = _balls_contain_points(bounds, node_ranges, points_in_order, attrs)
    # Searches skip nodes by their bounds, so a wrong bound would make their results differ.
    require(contain_points, "a node's bounds exclude some of its points")


def _boxes_contain_points(bounds: Array, node_ranges: Array, points: Array) -> bool:
    width = points.shape[1]
    box_min, box_max = bounds[:, :width], bounds[:, width:]
    num_inner = len(node_ranges) // 2
    for children in (slice(1, None, 2), slice(2, None, 2)):
        # The box of a node without points is not used.
        has_points = (node_ranges[children, 0] < node_ranges[children, 1])[:, None]
        exceeds_min = box_min[children] < box_min[:num_inner]
        exceeds_max = box_max[children] > box_max[:num_inner]
        if (has_points & (exceeds_min | exceeds_max)).any():
            return False
    leaves = zip(node_ranges[num_inner:], box_min[num_inner:], box_max[num_inner:], strict=True)
    return all(
        ((points[start:end] >= low) & (points[start:end] <= high)).all()
        for (start, end), low, high in leaves
    )


def _balls_contain_points(bounds: Array, node_ranges: Array, points: Array, attrs: Attrs) -> bool:
    for (start, end), ball in zip(node_ranges, bounds, strict=True):
        centre_attrs = {**attrs, "points": ball[None, :-1]}
        distances = to_true_distances(reduce_distances(points[start:end], centre_attrs), attrs)
        if not (distances <= ball[-1] + 1e-9 * abs(ball[-1])).all():
            return False
    return True


_KD_TREE_POWERS = {"sqeuclidean": 2.0, "manhattan": 1.0, "chebyshev": np.inf, "minkowski": 0.0}
"""Map each metric of a kd_tree to the power in the sum of differences; 0 means attribute `p`."""


def to_true_distances(reduced: Array, attrs: Attrs) -> Array:
    """Convert reduced distances to distances; keep squares if the attribute `squared` is true."""
    if attrs["metric"] in SQUARES and not attrs.get("squared", False):
        return np.asarray(np.sqrt(reduced))
    return reduced ** (1.0 / attrs["p"]) if attrs["metric"] == "minkowski" else reduced


def _nearest(args: Sequence[Array], attrs: Attrs) -> Array:
    (x,) = args
    k: int = attrs["k"]
    result = np.empty((x.shape[0], 2 * k))
    rows_per_block = max(1, BLOCK_VALUES // attrs["points"].shape[0])
    if attrs["ties"] == "index":
        for start in range(0, x.shape[0], rows_per_block):
            stop = start + rows_per_block
            distances, indices = _select_by_index(x[start:stop], attrs)
            result[start:stop, :k], result[start:stop, k:] = distances, indices
        return result
    select_points, measure_distances = select_nearest, reduce_distances
    if attrs.get("expanded", False) and attrs["ties"] == "heap":
        select_points = select_nearest_expanded
    elif attrs.get("expanded", False):
        measure_distances = compute_like_source
    for start in range(0, x.shape[0], rows_per_block):
        block = x[start : start + rows_per_block]
        distances, indices = select_points(measure_distances(block, attrs), block, attrs)
        result[start : start + rows_per_block, :k] = to_true_distances(distances, attrs)
        result[start : start + rows_per_block, k:] = indices
    return result


def select_nearest(distances: Array, x: Array, attrs: Attrs) -> tuple[Array, Array]:
    """Return the k smallest reduced `distances` (n, m) of each row, and their column indices."""
    k: int = attrs["k"]
    indices = np.argpartition(distances, k - 1, axis=1)[:, :k]
    nearest = np.take_along_axis(distances, indices, axis=1)
    if attrs["ties"] != "partition":
        # The order of the search matters if more than k points are that near, or if one of them is
        # infinitely far, because a heap rejects infinite distances.
        farthest = nearest.max(axis=1, initial=-np.inf)
        # The bounds of a tree are rounded, so a search may skip a point that is barely near enough.
        limit = farthest * (1 + 1e-9) if attrs["ties"] in TREES else farthest
        has_ties = ((distances <= limit[:, None]).sum(axis=1) > k) | ~np.isfinite(farthest)
        rows = np.flatnonzero(has_ties)
        if rows.size:
            nearest[rows], indices[rows] = _search_in_order(distances[rows], x[rows], attrs)
    return _sort_nearest(nearest, indices)


def select_nearest_expanded(distances: Array, x: Array, attrs: Attrs) -> tuple[Array, Array]:
    """Return the k smallest expanded distances of each row, and the indices of the points.

    `distances` are the direct distances. If direct distances of a row are too close to decide, the
    expanded distances to all points are computed for the row.
    """
    k, points = attrs["k"], attrs["points"]
    x_norms, point_norms = compute_square_norms(x), compute_square_norms(points)
    indices = np.argpartition(distances, k - 1, axis=1)[:, :k]
    farthest = np.take_along_axis(distances, indices, axis=1).max(axis=1, initial=-np.inf)
    nearest = compute_expanded_distances(x, points[indices], x_norms, point_norms[indices])
    limit = farthest + bound_rounding_error(x_norms, point_norms, x.shape[1])
    is_close = ((distances <= limit[:, None]).sum(axis=1) > k) | ~np.isfinite(farthest)
    rows = np.flatnonzero(is_close)
    if rows.size:
        expanded = compute_expanded_distances(x[rows], points, x_norms[rows], point_norms)
        nearest[rows], indices[rows] = select_with_heap(expanded, k)
    return _sort_nearest(nearest, indices)


def _select_by_index(x: Array, attrs: Attrs) -> tuple[Array, Array]:
    distances = to_true_distances(reduce_distances(x, attrs), attrs)
    indices = np.argsort(distances, axis=1, kind="stable")[:, : attrs["k"]]
    return np.take_along_axis(distances, indices, axis=1), indices


def _sort_nearest(distances: Array, indices: Array) -> tuple[Array, Array]:
    order = np.lexsort((indices, distances), axis=1)
    return np.take_along_axis(distances, order, axis=1), np.take_along_axis(indices, order, axis=1)


def _search_in_order(distances: Array, x: Array, attrs: Attrs) -> tuple[Array, Array]:
    if attrs["ties"] == "heap":
        return select_with_heap(distances, attrs["k"])
    node_lower_bounds = _bound_node_distances(x, attrs)
    shape = (len(distances), attrs["k"])
    nearest, indices = np.empty(shape), np.empty(shape, np.int64)
    for row, bounds in enumerate(node_lower_bounds):
        nearest[row], indices[row] = _search_tree(distances[row], bounds, attrs)
    return nearest, indices


def _search_tree(distances: Array, node_lower_bounds: Array, attrs: Attrs) -> tuple[Array, Array]:
    order, node_ranges = attrs["order"], attrs["leaves"]
    nearest, indices = np.full((1, attrs["k"]), np.inf), np.zeros((1, attrs["k"]), np.int64)
    stack, row_zero = [0], np.zeros(1, np.int64)
    while stack:
        node = stack.pop()
        if node and node_lower_bounds[node] > nearest[0, 0]:
            continue
        left, right = 2 * node + 1, 2 * node + 2
        if left < len(node_ranges):
            is_left_nearer = node_lower_bounds[left] <= node_lower_bounds[right]
            stack += [right, left] if is_left_nearer else [left, right]
            continue
        start, end = node_ranges[node]
        for point in order[start:end]:
            if distances[point] < nearest[0, 0]:
                _replace_top(nearest, indices, row_zero, distances[point : point + 1], int(point))
    return nearest[0], indices[0]


def select_with_heap(distances: Array, k: int) -> tuple[Array, Array]:
    """Return heaps (n, k) of the smallest distances of each row, and of their column indices."""
    num_rows = distances.shape[0]
    nearest = np.full((num_rows, k), np.inf)
    indices = np.zeros((num_rows, k), np.int64)
    for j in range(distances.shape[1]):
        rows = np.flatnonzero(distances[:, j] < nearest[:, 0])
        if rows.size:
            _replace_top(nearest, indices, rows, distances[rows, j], j)
    return nearest, indices


def _replace_top(
    distances: Array, indices: Array, rows: Array, new_distances: Array, point: int
) -> None:
    """Replace the greatest value in the heaps (n, k) of `rows` with `new`, and sift it down."""
    k = distances.shape[1]
    position = np.zeros(rows.size, np.int64)
    while True:
        left = 2 * position + 1
        right = left + 1
        left_value = np.where(left < k, distances[rows, np.minimum(left, k - 1)], -np.inf)
        right_value = np.where(right < k, distances[rows, np.minimum(right, k - 1)], -np.inf)
        child = np.where(left_value >= right_value, left, right)
        greatest = np.maximum(left_value, right_value)
        is_sinking = (left < k) & (new_distances < greatest)
        cells = rows[~is_sinking], position[~is_sinking]
        distances[cells], indices[cells] = new_distances[~is_sinking], point
        if not is_sinking.any():
            return
        rows, position = rows[is_sinking], position[is_sinking]
        new_distances = new_distances[is_sinking]
        child, greatest = child[is_sinking], greatest[is_sinking]
        distances[rows, position], indices[rows, position] = greatest, indices[rows, child]
        position = child


def _bound_node_distances(x: Array, attrs: Attrs) -> Array:
    """Return lower bounds (n, nodes) on the reduced distances from rows to points of nodes."""
    bounds, metric, width = attrs["bounds"], attrs["metric"], x.shape[1]
    if attrs["ties"] == "ball_tree":
        centre_attrs = {**attrs, "points": bounds[:, :width]}
        distance = to_true_distances(reduce_distances(x, centre_attrs), attrs)
        gap: Array = np.maximum(0.0, distance - bounds[:, width])
        power = 2 if metric in SQUARES else attrs["p"] if metric == "minkowski" else 1
        return np.asarray(gap**power)
    power = attrs["p"] if metric == "minkowski" else _KD_TREE_POWERS[metric]
    result = np.zeros((x.shape[0], bounds.shape[0]))
    for j in range(width):
        below_box = bounds[:, j] - x[:, j : j + 1]
        above_box = x[:, j : j + 1] - bounds[:, width + j]
        gap = 0.5 * ((below_box + np.abs(below_box)) + (above_box + np.abs(above_box)))
        result = np.maximum(result, gap) if np.isinf(power) else result + gap**power
    return result


_SEARCH = f"{METRIC}, k: int, ties: str, squared: bool?, expanded: bool?, order?, leaves?, bounds?"

OPERATORS: tuple[Op, ...] = (Op("nearest", "opaque", _nearest_type, _nearest, _SEARCH),)
