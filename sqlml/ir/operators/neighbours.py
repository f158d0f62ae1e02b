"""`nearest`: the k nearest of constant points, with ties resolved as scikit-learn's searches do.

The result is (n, 2 * k): the distances in ascending order, equal ones by the numbers of the points,
followed by these numbers. `ties` names the search, which selects among points at the k-th distance:

* "heap": the points pass in their order through a heap of the k best (`utils/_heap.pyx`), as in
  brute searches with one thread or many rows.
* "kd_tree", "ball_tree": the same heap, with the points in the order of a depth-first search
  (`neighbors/_binary_tree.pxi.tp`), which skips nodes that are farther than the heap.
* "partition": `numpy.argpartition` of all distances.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sqlml.ir.operators.distances import (
    METRIC,
    SQUARES,
    check_metric,
    expanded_distances,
    reduced_distances,
    rounded_like_source,
    rounding_slack,
    square_norms,
)
from sqlml.ir.operators.op import Op, Types, array_attribute, require
from sqlml.ir.program import Attrs
from sqlml.types import Array, TensorType, matrix

BLOCK_VALUES = 1 << 21
"""Most distances in memory at a time."""

MAX_NEIGHBOURS = 1 << 16
TREES = ("kd_tree", "ball_tree")
TIES = ("heap", "partition", *TREES)


def _nearest_type(types: Types, attrs: Attrs) -> TensorType:
    points, k = check_metric(types, attrs), attrs["k"]
    ties, metric = attrs["ties"], attrs["metric"]
    require(types[0].dtype == "float64", "nearest takes float64")
    require(0 < k <= min(points, MAX_NEIGHBOURS), f"{k} neighbours of {points} points")
    require(ties in TIES, f"unknown rule for ties {ties!r}")
    require(metric not in ("dot", "chi2"), f"{metric} is not a distance")
    if attrs.get("expanded", False):
        require(
            (ties, metric) in (("heap", "sqeuclidean"), ("partition", "cosine"))
            and "weights" not in attrs,
            "only euclidean distances without weights with a heap, and cosine distances with "
            "partition, are expanded",
        )
    if ties in TREES:
        _check_tree(types, attrs, points)
    else:
        require(not {"order", "leaves", "bounds"} & set(attrs), "only a tree has nodes")
    return matrix("float64", 2 * k)


def _check_tree(types: Types, attrs: Attrs, points: int) -> None:
    require({"order", "leaves", "bounds"} <= set(attrs), "a tree has order, leaves and bounds")
    order = array_attribute(attrs, "order", "int64", (points,))
    leaves = array_attribute(attrs, "leaves", "int64", (None, 2))
    nodes, width = leaves.shape[0], types[0].width
    require(np.array_equal(np.sort(order), np.arange(points)), "order must name each point once")
    # The tree is complete: the children of node i are 2i + 1 and 2i + 2.
    require(nodes > 0 and (nodes + 1) & nodes == 0, "a tree has 2^depth - 1 nodes")
    start, end = leaves.T
    require(start[0] == 0 and end[0] == points and (start <= end).all(), "nodes are ranges")
    left, right = leaves[1::2], leaves[2::2]
    divided = np.stack([left[:, 0], left[:, 1], right[:, 1]])
    parent = leaves[: len(left)]
    require(
        np.array_equal(divided, np.stack([parent[:, 0], right[:, 0], parent[:, 1]])),
        "the children of a node must divide its points",
    )
    extra = 1 if attrs["ties"] == "ball_tree" else width
    bounds = array_attribute(attrs, "bounds", "float64", (nodes, width + extra))
    points_in_order = attrs["points"][order]
    if attrs["ties"] == "kd_tree":
        has_tree = attrs["metric"] in _KD_POWER and "weights" not in attrs
        require(has_tree, "not a metric of a kd_tree")
        inside = _boxes_contain_points(bounds, leaves, points_in_order)
    else:
        inside = _balls_contain_points(bounds, leaves, points_in_order, attrs)
    # Searches skip nodes by their bounds, so a wrong bound would make their results differ.
    require(inside, "a node's bounds exclude some of its points")


def _boxes_contain_points(bounds: Array, leaves: Array, points: Array) -> bool:
    """Return whether the box of each leaf contains its points, and other boxes their children."""
    width = points.shape[1]
    least, most = bounds[:, :width], bounds[:, width:]
    inner = len(leaves) // 2
    for children in (slice(1, None, 2), slice(2, None, 2)):
        # A box without points may be anything.
        has_points = (leaves[children, 0] < leaves[children, 1])[:, None]
        sticks_out = (least[children] < least[:inner]) | (most[children] > most[:inner])
        if (has_points & sticks_out).any():
            return False
    return all(
        ((points[start:end] >= low) & (points[start:end] <= high)).all()
        for (start, end), low, high in zip(leaves[inner:], least[inner:], most[inner:], strict=True)
    )


def _balls_contain_points(bounds: Array, leaves: Array, points: Array, attrs: Attrs) -> bool:
    """Return whether each node's points lie within its radius, up to rounding."""
    for (start, end), ball in zip(leaves, bounds, strict=True):
        around = {**attrs, "points": ball[None, :-1]}
        distance = true_distance(reduced_distances(points[start:end], around), attrs)
        if not (distance <= ball[-1] + 1e-9 * abs(ball[-1])).all():
            return False
    return True


_KD_POWER = {"sqeuclidean": 2.0, "manhattan": 1.0, "chebyshev": np.inf, "minkowski": 0.0}


def true_distance(values: Array, attrs: Attrs) -> Array:
    if attrs["metric"] in SQUARES and not attrs.get("squared", False):
        return np.asarray(np.sqrt(values))
    return values ** (1.0 / attrs["p"]) if attrs["metric"] == "minkowski" else values


def _nearest(args: Sequence[Array], attrs: Attrs) -> Array:
    (x,) = args
    k: int = attrs["k"]
    out = np.empty((x.shape[0], 2 * k))
    rows = max(1, BLOCK_VALUES // attrs["points"].shape[0])
    select, measure = select_nearest, reduced_distances
    if attrs.get("expanded", False) and attrs["ties"] == "heap":
        select = select_nearest_expanded
    elif attrs.get("expanded", False):
        measure = rounded_like_source
    for start in range(0, x.shape[0], rows):
        block = x[start : start + rows]
        values, index = select(measure(block, attrs), block, attrs)
        out[start : start + rows, :k] = true_distance(values, attrs)
        out[start : start + rows, k:] = index
    return out


def select_nearest(d: Array, x: Array, attrs: Attrs) -> tuple[Array, Array]:
    """Return the k least of each row of reduced distances `d` (n, m), and their columns."""
    k: int = attrs["k"]
    index = np.argpartition(d, k - 1, axis=1)[:, :k]
    values = np.take_along_axis(d, index, axis=1)
    if attrs["ties"] != "partition":
        # The order of the search matters if more than k points are that near, or if one of the k
        # is infinitely far, because a heap rejects such points.
        worst = values.max(axis=1, initial=-np.inf)
        # A tree's bounds are rounded, so it may skip a point that is barely near enough.
        edge = worst * (1 + 1e-9) if attrs["ties"] in TREES else worst
        tied = np.flatnonzero(((d <= edge[:, None]).sum(axis=1) > k) | ~np.isfinite(worst))
        if tied.size:
            values[tied], index[tied] = _search_in_order(d[tied], x[tied], attrs)
    return _sort_nearest(values, index)


def select_nearest_expanded(d: Array, x: Array, attrs: Attrs) -> tuple[Array, Array]:
    """Select by expanded distances, computed only for rows that the direct ones do not decide."""
    k, points = attrs["k"], attrs["points"]
    x_squares, point_squares = square_norms(x), square_norms(points)
    index = np.argpartition(d, k - 1, axis=1)[:, :k]
    worst = np.take_along_axis(d, index, axis=1).max(axis=1, initial=-np.inf)
    values = expanded_distances(x, points[index], x_squares, point_squares[index])
    edge = worst + rounding_slack(x_squares, point_squares, x.shape[1])
    close = np.flatnonzero(((d <= edge[:, None]).sum(axis=1) > k) | ~np.isfinite(worst))
    if close.size:
        values[close], index[close] = select_with_heap(
            expanded_distances(x[close], points, x_squares[close], point_squares), k
        )
    return _sort_nearest(values, index)


def _sort_nearest(values: Array, index: Array) -> tuple[Array, Array]:
    order = np.lexsort((index, values), axis=1)
    return np.take_along_axis(values, order, axis=1), np.take_along_axis(index, order, axis=1)


def _search_in_order(d: Array, x: Array, attrs: Attrs) -> tuple[Array, Array]:
    """Return the k best of each row by a heap that visits the points in the source's order."""
    if attrs["ties"] == "heap":
        return select_with_heap(d, attrs["k"])
    near = _bound_node_distances(x, attrs)
    values, index = np.empty((len(d), attrs["k"])), np.empty((len(d), attrs["k"]), np.int64)
    for row in range(len(d)):
        values[row], index[row] = _search_tree(d[row], near[row], attrs)
    return values, index


def _search_tree(d: Array, near: Array, attrs: Attrs) -> tuple[Array, Array]:
    """Return the k best of one row by a depth-first search of the tree."""
    order, leaves = attrs["order"], attrs["leaves"]
    values, index = np.full((1, attrs["k"]), np.inf), np.zeros((1, attrs["k"]), np.int64)
    stack, first_row = [0], np.zeros(1, np.int64)
    while stack:
        node = stack.pop()
        if node and near[node] > values[0, 0]:
            continue
        left, right = 2 * node + 1, 2 * node + 2
        if left < len(leaves):
            stack += [right, left] if near[left] <= near[right] else [left, right]
            continue
        for point in order[leaves[node, 0] : leaves[node, 1]]:
            if d[point] < values[0, 0]:
                _replace_top(values, index, first_row, d[point : point + 1], int(point))
    return values[0], index[0]


def select_with_heap(d: Array, k: int) -> tuple[Array, Array]:
    """Return what a heap of the k least of each row keeps, unsorted; (inf, 0) if empty."""
    n = d.shape[0]
    values = np.full((n, k), np.inf)
    index = np.zeros((n, k), np.int64)
    for j in range(d.shape[1]):
        rows = np.flatnonzero(d[:, j] < values[:, 0])
        if rows.size:
            _replace_top(values, index, rows, d[rows, j], j)
    return values, index


def _replace_top(values: Array, index: Array, rows: Array, new: Array, j: int) -> None:
    """Replace the greatest value of each heap with `new`, and sift it down."""
    k = values.shape[1]
    position = np.zeros(rows.size, np.int64)
    while True:
        left = 2 * position + 1
        right = left + 1
        left_value = np.where(left < k, values[rows, np.minimum(left, k - 1)], -np.inf)
        right_value = np.where(right < k, values[rows, np.minimum(right, k - 1)], -np.inf)
        child = np.where(left_value >= right_value, left, right)
        greatest = np.maximum(left_value, right_value)
        sinks = (left < k) & (new < greatest)
        done = ~sinks
        values[rows[done], position[done]], index[rows[done], position[done]] = new[done], j
        if done.all():
            return
        rows, position, child, new = rows[sinks], position[sinks], child[sinks], new[sinks]
        values[rows, position], index[rows, position] = greatest[sinks], index[rows, child]
        position = child


def _bound_node_distances(x: Array, attrs: Attrs) -> Array:
    """Return the least reduced distance that a point of each node can have, (n, nodes)."""
    bounds, metric, width = attrs["bounds"], attrs["metric"], x.shape[1]
    if attrs["ties"] == "ball_tree":
        centres = {**attrs, "points": bounds[:, :width]}
        distance = true_distance(reduced_distances(x, centres), attrs)
        gap: Array = np.maximum(0.0, distance - bounds[:, width])
        if metric in SQUARES:
            return gap * gap
        return gap ** attrs["p"] if metric == "minkowski" else gap
    power = attrs["p"] if metric == "minkowski" else _KD_POWER[metric]
    total = np.zeros((x.shape[0], bounds.shape[0]))
    for j in range(width):
        low = bounds[:, j] - x[:, j : j + 1]
        high = x[:, j : j + 1] - bounds[:, width + j]
        outside = 0.5 * ((low + np.abs(low)) + (high + np.abs(high)))
        total = np.maximum(total, outside) if np.isinf(power) else total + outside**power
    return total


_SEARCH = "k: int, ties: str, squared: bool?, expanded: bool?, order?, leaves?, bounds?"

OPERATORS: tuple[Op, ...] = (
    Op("nearest", "opaque", _nearest_type, _nearest, f"{METRIC}, {_SEARCH}"),
)
