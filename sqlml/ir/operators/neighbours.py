"""`nearest`: the k nearest of constant points, ties chosen as scikit-learn's searches choose them.

Which of several points at the k-th distance is kept depends on how the source searches, so `ties`
names its way:

* "heap": the points in their order, through a heap of the k best (`utils/_heap.pyx`); a point as
  far as the farthest of the heap is not taken, and a nearer one evicts whatever lies on top. So
  do the brute searches of `metrics/_pairwise_distances_reduction`, with one thread or many rows.
* "kd_tree", "ball_tree": the same heap, the points in the order in which a depth-first search
  meets them: of two nodes the nearer first, the left one of equal ones
  (`neighbors/_binary_tree.pxi.tp`), nodes that lie farther than the heap left out.
* "partition": `numpy.argpartition` of all distances.

The result is (n, 2 * k): the distances in ascending order, equal ones by the points' numbers, and
then those numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from sqlml.ir.operators.distances import (
    METRIC_ATTRS,
    SQUARES,
    as_expanded,
    check_metric,
    expanded,
    reduced,
    slack,
    squares,
)
from sqlml.ir.operators.op import Op, Types, array, need
from sqlml.ir.program import Attrs
from sqlml.types import Array, TensorType, matrix

BLOCK_VALUES = 1 << 21
"""Distances that are held at one time."""

MAX_NEIGHBOURS = 1 << 16
TREES = ("kd_tree", "ball_tree")
TIES = ("heap", "partition", *TREES)


def _nearest_type(types: Types, attrs: Attrs) -> TensorType:
    points, k = check_metric(types, attrs), attrs["k"]
    need(types[0].dtype == "float64", "nearest takes float64")
    need(0 < k <= min(points, MAX_NEIGHBOURS), f"{k} neighbours of {points} points")
    need(attrs["ties"] in TIES, f"unknown rule for ties {attrs['ties']!r}")
    need(attrs["metric"] not in ("dot", "chi2"), f"{attrs['metric']} is not a distance")
    need(
        not attrs.get("expanded", False)
        or (attrs["ties"], attrs["metric"], "weights" in attrs)
        in (("heap", "sqeuclidean", False), ("partition", "cosine", False)),
        "only plain euclidean distances are expanded for a heap, and cosine ones without it",
    )
    if attrs["ties"] in TREES:
        _check_tree(types, attrs, points)
    else:
        need(not {"order", "leaves", "bounds"} & set(attrs), "only a tree has nodes")
    return matrix("float64", 2 * k)


def _check_tree(types: Types, attrs: Attrs, points: int) -> None:
    need({"order", "leaves", "bounds"} <= set(attrs), "a tree has order, leaves and bounds")
    order, leaves, bounds = (array(attrs, name) for name in ("order", "leaves", "bounds"))
    nodes, width = leaves.shape[0], types[0].width
    need(
        order.dtype == np.int64 and np.array_equal(np.sort(order), np.arange(points)),
        "order must name each point once",
    )
    need(leaves.dtype == np.int64 and leaves.shape == (nodes, 2), "leaves are (start, end) pairs")
    # A complete binary tree: level after level, the children of node i at 2i + 1 and 2i + 2.
    need(nodes > 0 and (nodes + 1) & nodes == 0, "a tree has 2^depth - 1 nodes")
    start, end = leaves[:, 0], leaves[:, 1]
    need(bool(start[0] == 0 and end[0] == points and (start <= end).all()), "nodes hold ranges")
    left, right = leaves[1::2], leaves[2::2]
    parent = leaves[: len(left)]
    need(
        bool(
            (left[:, 0] == parent[:, 0]).all()
            and (left[:, 1] == right[:, 0]).all()
            and (right[:, 1] == parent[:, 1]).all()
        ),
        "the children of a node share its points",
    )
    extra = 1 if attrs["ties"] == "ball_tree" else width
    need(
        bounds.dtype == np.float64 and bounds.shape == (nodes, width + extra),
        f"bounds {bounds.shape} for {nodes} nodes of {width} columns",
    )
    held = array(attrs, "points")[order]
    if attrs["ties"] == "kd_tree":
        need(attrs["metric"] in _KD_POWER and "weights" not in attrs, "no metric of a kd_tree")
        inside = _boxes_hold(bounds, leaves, held)
    else:
        inside = _balls_hold(bounds, leaves, held, attrs)
    # A search leaves nodes out by their bounds, so every search finds the same only if they hold.
    need(inside, "a node's bounds leave out some of its points")


def _boxes_hold(bounds: Array, leaves: Array, held: Array) -> bool:
    """Whether each last node's box has its points, and each other node's box those below it."""
    width = held.shape[1]
    least, most = bounds[:, :width], bounds[:, width:]
    inner = len(leaves) // 2
    for below in (slice(1, None, 2), slice(2, None, 2)):
        # A box around no points may be anything.
        some = (leaves[below, 0] < leaves[below, 1])[:, None]
        if (some & ((least[below] < least[:inner]) | (most[below] > most[:inner]))).any():
            return False
    for (start, end), low, high in zip(leaves[inner:], least[inner:], most[inner:], strict=True):
        if not ((held[start:end] >= low) & (held[start:end] <= high)).all():
            return False
    return True


def _balls_hold(bounds: Array, leaves: Array, held: Array, attrs: Attrs) -> bool:
    """Whether each node's points lie within its radius of its centre, but for rounding."""
    width = held.shape[1]
    for (start, end), centre, radius in zip(
        leaves, bounds[:, :width], bounds[:, width], strict=True
    ):
        around = {**attrs, "points": centre[None, :]}
        far = true_distance(reduced(held[start:end], around), attrs)
        if not (far <= radius + 1e-9 * abs(radius)).all():
            return False
    return True


_KD_POWER: Mapping[str, float] = MappingProxyType(
    {"sqeuclidean": 2.0, "manhattan": 1.0, "chebyshev": np.inf, "minkowski": 0.0}
)


def true_distance(values: Array, attrs: Attrs) -> Array:
    """Reduced distances as distances."""
    if attrs["metric"] in SQUARES and not attrs.get("squared", False):
        return np.asarray(np.sqrt(values))
    if attrs["metric"] == "minkowski":
        return np.asarray(values ** (1.0 / attrs["p"]))
    return values


def _nearest(args: Sequence[Array], attrs: Attrs) -> Array:
    (x,) = args
    k: int = attrs["k"]
    out = np.empty((x.shape[0], 2 * k))
    rows = max(1, BLOCK_VALUES // attrs["points"].shape[0])
    for start in range(0, x.shape[0], rows):
        part = x[start : start + rows]
        if not attrs.get("expanded", False):
            values, index = select(reduced(part, attrs), part, attrs)
        elif attrs["ties"] == "heap":
            values, index = select_expanded(reduced(part, attrs), part, attrs)
        else:
            values, index = select(as_expanded(part, attrs), part, attrs)
        out[start : start + rows, :k] = true_distance(values, attrs)
        out[start : start + rows, k:] = index
    return out


def select(d: Array, x: Array, attrs: Attrs) -> tuple[Array, Array]:
    """The k least of each row of reduced distances `d` (n, m), and where they are."""
    k: int = attrs["k"]
    index = np.argpartition(d, k - 1, axis=1)[:, :k]
    values = np.take_along_axis(d, index, axis=1)
    if attrs["ties"] != "partition":
        # Where more points than k are that near, the search decides; so too where one is
        # infinitely far, which a heap never takes.
        worst = values.max(axis=1, initial=-np.inf)
        # A tree's bounds are rounded, so that it may skip a point that is barely near enough.
        edge = worst * (1 + 1e-9) if attrs["ties"] in TREES else worst
        tied = np.flatnonzero(((d <= edge[:, None]).sum(axis=1) > k) | ~np.isfinite(worst))
        if tied.size:
            values[tied], index[tied] = _searched(d[tied], x[tied], attrs)
    order = np.lexsort((index, values), axis=1)
    return np.take_along_axis(values, order, axis=1), np.take_along_axis(index, order, axis=1)


def select_expanded(d: Array, x: Array, attrs: Attrs) -> tuple[Array, Array]:
    """`select` by expanded distances, computed only where the direct ones `d` cannot decide."""
    k: int = attrs["k"]
    points: Array = attrs["points"]
    own, theirs = squares(x), squares(points)
    index = np.argpartition(d, k - 1, axis=1)[:, :k]
    worst = np.take_along_axis(d, index, axis=1).max(axis=1, initial=-np.inf)
    values = expanded(x, points[index], own, theirs[index])
    edge = worst + slack(own, theirs, x.shape[1])
    close = np.flatnonzero(((d <= edge[:, None]).sum(axis=1) > k) | ~np.isfinite(worst))
    if close.size:
        values[close], index[close] = heap(expanded(x[close], points, own[close], theirs), k)
    order = np.lexsort((index, values), axis=1)
    return np.take_along_axis(values, order, axis=1), np.take_along_axis(index, order, axis=1)


def _searched(d: Array, x: Array, attrs: Attrs) -> tuple[Array, Array]:
    """The k best of each row, by a heap that meets the points in the source's order."""
    if attrs["ties"] == "heap":
        return heap(d, attrs["k"])
    near = _node_distance(x, attrs)
    values, index = np.empty((len(d), attrs["k"])), np.empty((len(d), attrs["k"]), np.int64)
    for row in range(len(d)):
        values[row], index[row] = _descend(d[row], near[row], attrs)
    return values, index


def _descend(d: Array, near: Array, attrs: Attrs) -> tuple[Array, Array]:
    """The k best of one row by a depth-first search of the tree."""
    order, leaves = attrs["order"], attrs["leaves"]
    values, index = np.full((1, attrs["k"]), np.inf), np.zeros((1, attrs["k"]), np.int64)
    stack, only = [0], np.zeros(1, np.int64)
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
                _replace_top(values, index, only, d[point : point + 1], int(point))
    return values[0], index[0]


def heap(d: Array, k: int) -> tuple[Array, Array]:
    """The values and columns of each row of `d` that a heap of the k least keeps, unsorted.

    A place that nothing fills has the value infinity and the column 0.
    """
    n = d.shape[0]
    values = np.full((n, k), np.inf)
    index = np.zeros((n, k), np.int64)
    for j in range(d.shape[1]):
        rows = np.flatnonzero(d[:, j] < values[:, 0])
        if rows.size:
            _replace_top(values, index, rows, d[rows, j], j)
    return values, index


def _replace_top(values: Array, index: Array, rows: Array, new: Array, j: int) -> None:
    """Put `new` in the place of the greatest value of each heap, and sink it."""
    k = values.shape[1]
    at = np.zeros(rows.size, np.int64)
    while True:
        left = 2 * at + 1
        right = left + 1
        below = np.where(left < k, values[rows, np.minimum(left, k - 1)], -np.inf)
        other = np.where(right < k, values[rows, np.minimum(right, k - 1)], -np.inf)
        child = np.where(below >= other, left, right)
        greatest = np.maximum(below, other)
        sinks = (left < k) & (new < greatest)
        done = ~sinks
        values[rows[done], at[done]], index[rows[done], at[done]] = new[done], j
        if done.all():
            return
        rows, at, child, new = rows[sinks], at[sinks], child[sinks], new[sinks]
        values[rows, at], index[rows, at] = greatest[sinks], index[rows, child]
        at = child


def _node_distance(x: Array, attrs: Attrs) -> Array:
    """(n, nodes): the least reduced distance that a point of the node can have."""
    bounds, metric, width = attrs["bounds"], attrs["metric"], x.shape[1]
    if attrs["ties"] == "ball_tree":
        centres = {**attrs, "points": bounds[:, :width]}
        gap = np.maximum(0.0, true_distance(reduced(x, centres), attrs) - bounds[:, width])
        if metric in SQUARES:
            return np.asarray(gap * gap)
        return np.asarray(gap ** attrs["p"]) if metric == "minkowski" else gap
    power = attrs["p"] if metric == "minkowski" else _KD_POWER[metric]
    total = np.zeros((x.shape[0], bounds.shape[0]))
    for j in range(width):
        low = bounds[:, j] - x[:, j : j + 1]
        high = x[:, j : j + 1] - bounds[:, width + j]
        outside = 0.5 * ((low + np.abs(low)) + (high + np.abs(high)))
        total = np.maximum(total, outside) if np.isinf(power) else total + outside**power
    return total


OPERATORS: tuple[Op, ...] = (
    Op(
        "nearest",
        "both",
        "opaque",
        _nearest_type,
        _nearest,
        {
            **METRIC_ATTRS,
            "k": "int",
            "ties": "str",
            "squared": "bool?",
            "expanded": "bool?",
            "order": "array?",
            "leaves": "array?",
            "bounds": "array?",
        },
    ),
)
