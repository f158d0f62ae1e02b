"""Check the arguments of the kernels that walk trees with leaf cursors and descend deep trees."""

from __future__ import annotations

from typing import Any

import numpy as np

from sqlml.backends.native.argument_checks.bin_checks import (
    are_between,
    are_offsets,
    is_panel_filled_inside,
)
from sqlml.backends.native.argument_checks.conditions import Rows
from sqlml.backends.native.jit.specialise import compiled_helper
from sqlml.backends.native.trees.descent_forest import (
    CHILD_BITS,
    OFFSET_BITS,
    OFFSET_SHIFT,
    RANK_SHIFT,
)
from sqlml.backends.native.trees.leaf_values import PADDING
from sqlml.backends.native.trees.walk import BLOCK_BYTES

VECTOR_BYTES = 64
"""`add_rows` adds this many bytes of a leaf's values at once, on all processors."""

MAX_EXITS = 1 << 16
"""The most values of a cursor."""


def check_cursor_forest(
    x: Rows,
    width: Any,
    leaf_width: Any,
    tables: Any,
    sets: Any,
    nodes: Any,
    leaves: Any,
    values: Any,
    base: Any,
    out: Rows,
) -> Any:
    """Return True if `cursor_forest.score` is safe with these constants."""
    first_leaf, target, is_oblivious = leaves
    tree_count, steps, starts = target.size, nodes[4], nodes[5]
    if first_leaf.size != tree_count + 1 or is_oblivious.size < tree_count:
        return False
    if base.size > out.shape[1] or not are_offsets(first_leaf, values.size):
        return False
    if not is_panel_filled_inside(tables, sets, x.shape[1], width):
        return False
    if not _are_nodes_inside(nodes, sets, tree_count, width):
        return False
    leaf_count = first_leaf[tree_count]
    if leaf_width == 0:
        values_per_leaf = values.size // (leaf_count + PADDING)
        if not are_between(target, 0, base.size - values_per_leaf + 1):
            return False
    elif not _are_leaves_inside(leaf_width, base) or leaf_count > values.size // leaf_width:
        return False
    is_reached = np.zeros(MAX_EXITS, np.bool_)
    for tree in range(tree_count):
        exit_count = first_leaf[tree + 1] - first_leaf[tree]
        if is_oblivious[tree]:
            bits = np.int64(0)
            for step in steps[starts[2 * tree] : starts[2 * tree + 2]]:
                bits |= np.int64(step)
            if bits >= exit_count:
                return False
        elif not _do_cursors_stay_inside(nodes, tree, exit_count, is_reached):
            return False
    return True


def check_descent_forest(
    x: Rows,
    width: Any,
    outputs: Any,
    leaf_width: Any,
    tables: Any,
    sets: Any,
    upper: Any,
    lower: Any,
    target: Any,
    values: Any,
    base: Any,
    out: Rows,
) -> Any:
    """Return True if `descent_forest.score` is safe with these constants."""
    nodes, leaf, begin = lower
    tree_count = target.size
    if begin.size != tree_count or leaf.size < nodes.size or not are_offsets(begin, nodes.size):
        return False
    if base.size > out.shape[1] or not is_panel_filled_inside(tables, sets, x.shape[1], width):
        return False
    if not _are_nodes_inside(upper, sets, tree_count, width):
        return False
    if leaf_width == 0:
        if outputs < 1 or outputs > base.size:
            return False
        if not are_between(target, 0, base.size - outputs + 1):
            return False
        leaf_count = values.size // outputs
    else:
        if not _are_leaves_inside(leaf_width, base):
            return False
        leaf_count = values.size // leaf_width
    is_reached = np.zeros(MAX_EXITS, np.bool_)
    rows = BLOCK_BYTES // upper[1].itemsize
    for tree in range(tree_count):
        end = begin[tree + 1] if tree + 1 < tree_count else nodes.size
        tree_nodes, tree_leaves = nodes[begin[tree] : end], leaf[begin[tree] : end]
        # The first node of a tree is unused, and exits follow.
        if not _do_cursors_stay_inside(upper, tree, tree_nodes.size - 1, is_reached):
            return False
        if not _are_lower_nodes_inside(tree_nodes, sets, tree_leaves, leaf_count, width, rows):
            return False
    return True


@compiled_helper
def _are_leaves_inside(leaf_width: Any, base: Any) -> Any:
    """Return True if `add_rows` can add `leaf_width` numbers to the sums of a row."""
    lanes = VECTOR_BYTES // base.itemsize
    return leaf_width > 0 and leaf_width % lanes == 0 and leaf_width - lanes < base.size


@compiled_helper
def _are_nodes_inside(nodes: Any, sets: Any, tree_count: Any, width: Any) -> Any:
    """Return True if `walk` and `count` stay inside the panel and the arrays `nodes`."""
    offsets, ranks, flipped, lasts, steps, starts, lows = nodes
    size = min(offsets.size, ranks.size, flipped.size, steps.size, lasts.size - 1)
    if sets is not None:
        size = min(size, lows.size)
    if starts.size != 2 * tree_count + 1 or not are_offsets(starts, size):
        return False
    for tree in range(tree_count):
        if (starts[2 * tree + 1] - starts[2 * tree]) % 3 != 0:
            return False
    rows = BLOCK_BYTES // ranks.itemsize
    used = offsets[starts[0] : starts[2 * tree_count]]
    return are_between(used, 0, (width - 1) * rows + 1)


@compiled_helper
def _do_cursors_stay_inside(nodes: Any, tree: Any, exit_count: Any, is_reached: Any) -> Any:
    """Return True if `walk` ends with cursors below `exit_count`, whatever the bins are.

    `is_reached` is scratch space (MAX_EXITS,). It tells for each cursor if a row may have it. The
    nodes are visited in the order of the kernel, and a row at a node may go any way.
    """
    _, _, _, lasts, steps, starts, _ = nodes
    begin, singles, end = starts[2 * tree], starts[2 * tree + 1], starts[2 * tree + 2]
    mask = (np.int64(1) << (8 * lasts.itemsize)) - 1
    limit = min(exit_count, mask + 1)
    cursor = np.int64(lasts[begin]) if begin < end else np.int64(0)
    if cursor >= limit:
        return False
    is_reached[:limit] = False
    is_reached[cursor] = True
    for node in range(begin, end):
        is_triple = node < singles
        if is_triple and (node - begin) % 3 != 0:
            continue
        last = np.int64(lasts[node])
        if last >= limit or not is_reached[last]:
            continue
        cursor = (last + np.int64(steps[node])) & mask
        if cursor >= limit:
            return False
        is_reached[cursor] = True
        if is_triple:
            below_left = (cursor + np.int64(steps[node + 1])) & mask
            below_right = (last + np.int64(steps[node + 2])) & mask
            if below_left >= limit or below_right >= limit:
                return False
            is_reached[below_left] = True
            is_reached[below_right] = True
    return True


@compiled_helper
def _are_lower_nodes_inside(
    nodes: Any, sets: Any, leaf: Any, leaf_count: Any, width: Any, rows: Any
) -> Any:
    """Return True if rows that descend from any node of a tree arrive at a valid leaf."""
    child_mask = np.uint64((1 << CHILD_BITS) - 1)
    last_column = max(0, width - 1) * rows
    for index in range(1, nodes.size):
        node = nodes[index]
        child = np.int64(node & child_mask)
        rank = np.int64((node >> np.uint64(RANK_SHIFT)) & np.uint64((1 << 16) - 1))
        offset = np.int64(node >> np.uint64(OFFSET_SHIFT))
        if sets is not None and child > index:
            offset &= (1 << OFFSET_BITS) - 1  # The highest bit may mark a test for one bin.
        if offset > last_column:
            return False
        if child > index:
            if width < 1 or child >= nodes.size - 1:
                return False
        elif child != index - 1 or rank != 0 or np.int64(leaf[index]) >= leaf_count:
            return False  # A row must stay at a leaf: no bin is below rank 0.
    return True
