"""Check the arguments of the kernels of contributions and of linear models in leaves."""

from __future__ import annotations

from typing import Any

import numpy as np

from sqlml.backends.native.argument_checks.bin_checks import are_between, are_offsets
from sqlml.backends.native.argument_checks.conditions import Rows
from sqlml.backends.native.jit.specialise import compiled_helper
from sqlml.backends.native.trees.contribution_kernel import FEWEST, ROWS
from sqlml.ir.operators.contributions import MAX_BACKGROUND
from sqlml.limits import MAX_TREE_DEPTH

MAX_NUMBERS = 1 << 40
"""A bound of the sizes of scratch arrays per row, so that products do not overflow."""

UNVISITED = -1


def check_contributions(
    x: Rows,
    tests: Any,
    sets: Any,
    nodes: Any,
    leaves: Any,
    quadrature: Any,
    settings: Any,
    out: Rows,
) -> Any:
    """Return True if `contribution_kernel.contributions` is safe with these constants."""
    feature, threshold, default_left, _ = tests
    roots, left, right, share = nodes
    leaf_values, target, base = leaves
    points, t_values, weights = quadrature
    owner, players, depth, block = settings
    leaf_count, value_count = leaf_values.shape
    node_count, tree_count, outputs = left.size, roots.size, base.size
    size = min(feature.size, threshold.size, default_left.size, right.size, owner.size)
    if size < node_count or target.size < tree_count or points.size < tree_count:
        return False
    if share.shape[0] > MAX_BACKGROUND or share.shape[1] < node_count or share.shape[2] < 2:
        return False
    if players < 0 or players > MAX_NUMBERS:
        return False
    if depth < 1 or depth > min(max(1, node_count), MAX_TREE_DEPTH):
        return False
    if block < FEWEST or block > ROWS or block % FEWEST != 0:
        return False
    if outputs > 0 and players >= out.shape[1] // outputs:
        return False
    max_points = min(t_values.shape[1], weights.shape[1])
    point_rows = min(t_values.shape[0], weights.shape[0])
    if not are_between(points, 0, min(max_points + 1, point_rows)):
        return False
    numbers_per_level = max(1, value_count), max(1, t_values.shape[1])
    if depth >= MAX_NUMBERS // numbers_per_level[0] // numbers_per_level[1]:
        return False
    if not are_between(target, 0, outputs - value_count + 1):
        return False
    if not are_between(feature, 0, x.shape[1]) or not are_between(owner, 0, players):
        return False
    if not _are_sets_inside(sets, node_count):
        return False
    return _are_trees(roots, left, right, leaf_count, depth)


@compiled_helper
def _are_sets_inside(sets: Any, node_count: Any) -> Any:
    """Return True if the sets of categorical nodes lie inside the words."""
    categorical, offsets, words = sets
    if categorical.size == 0:
        return True
    if categorical.size < node_count or offsets.size <= node_count:
        return False
    return are_offsets(offsets, words.size)


@compiled_helper
def _are_trees(roots: Any, left: Any, right: Any, leaf_count: Any, depth: Any) -> Any:
    """Return True if the nodes below each root are a tree with at most `depth` levels.

    A node with two parents would be walked twice, and a path of such nodes almost endlessly.
    """
    node_count = left.size
    levels = np.full(node_count, UNVISITED)
    for root in roots:
        if root >= node_count:
            return False
        if root >= 0:
            if levels[root] != UNVISITED:
                return False
            levels[root] = 0
    for node in range(node_count):
        if levels[node] == UNVISITED:
            continue
        for child in (left[node], right[node]):
            if child < 0:
                if ~np.int64(child) >= leaf_count:
                    return False
                continue
            if child <= node or child >= node_count or levels[child] != UNVISITED:
                return False
            levels[child] = levels[node] + 1
            if levels[child] >= depth:
                return False
    return True


def check_leaf_models(
    x: Rows,
    missing_values: Any,
    intercepts: Any,
    begin: Any,
    features: Any,
    weights: Any,
    base: Any,
    target: Any,
    out: Rows,
) -> Any:
    """Return True if `linear_leaves._add_leaf_models` is safe with these constants."""
    leaf_count, tree_count = intercepts.size, target.size
    if tree_count > 0 and leaf_count < 1:
        return False
    if missing_values.size < leaf_count or begin.size <= leaf_count or base.size > out.shape[1]:
        return False
    if tree_count > x.shape[1] or not are_offsets(begin, min(features.size, weights.size)):
        return False
    if not are_between(features, 0, x.shape[1] - tree_count):
        return False
    return are_between(target, 0, out.shape[1])
