"""Check the arguments of the kernel in which rows descend trees in lockstep."""

from __future__ import annotations

from typing import Any

import numpy as np

from sqlml.backends.costs import LANES, TOP
from sqlml.backends.native.argument_checks.bin_checks import are_between
from sqlml.backends.native.argument_checks.conditions import Rows, RowsOrNothing
from sqlml.backends.native.jit.specialise import compiled_helper
from sqlml.backends.native.trees.lockstep import (
    EXITS,
    LEVELS,
    LONG_PAYLOAD,
    NODES,
    PAYLOAD,
    WINDOW,
)

TREE_FIELDS = 5
"""Numbers that describe a tree; see the argument `trees` of `lockstep.score`."""

MAX_POSITIONS = (1 << 32) - 1
"""The most positions of nodes and leaves, which are numbers of 32 bits."""

MAX_SET_SIZE = 1 << 32
"""The most categories of a set, since a category becomes a number of 32 bits."""


def check_lockstep(
    flat: Rows,
    tested: RowsOrNothing,
    stride: Any,
    allowed: Any,
    columns: Any,
    trees: Any,
    moving: Any,
    nodes: Any,
    bits: Any,
    leaf: Any,
    left: Any,
    sets: Any,
    tops: Any,
    target: Any,
    values: Any,
    base: Any,
    out: Rows,
) -> Any:
    """Return True if `lockstep.score` is safe with these constants.

    If `columns` is None, `tested` must have the same address as `flat`.
    """
    if stride < 0 or stride > flat.size or base.size > out.shape[1]:
        return False
    if columns is None:
        width = stride
        # A constant in the place of `tested` would be read as if it had as many rows as `flat`.
        if tested.size != flat.size or tested.ctypes.data != flat.ctypes.data:
            return False
    else:
        source_columns, categories = columns
        width = source_columns.size
        if categories.size < width or not are_between(source_columns, 0, stride):
            return False
    tree_count, position_count = trees.shape[0], nodes.size
    if bits < 0 or bits >= min(4 * nodes.itemsize, 63) or position_count > MAX_POSITIONS:
        return False
    if leaf.size < nodes.itemsize // leaf.itemsize * position_count:
        return False
    if left.size > 0 and left.size < position_count:
        return False
    if sets is not None:
        # Trees with sets are not transposed, and always read `left`.
        if tops is not None or left.size < position_count:
            return False
        if sets[0].size < position_count or sets[1].size < position_count:
            return False
    if target.size < tree_count:
        return False
    if not are_between(target[:tree_count], 0, out.shape[1] - values.shape[1] + 1):
        return False
    if not _is_order_valid(trees, moving, width):
        return False
    if tops is not None:
        if columns is not None or not _are_tops_inside(tops, tree_count, stride):
            return False
    heights = np.empty(position_count, np.uint32)
    begin = np.int64(0)
    for tree in range(tree_count):
        row = tree - tree % WINDOW + np.int64(trees[tree, 2])
        root: Any = np.int64(trees[row, 0])
        depth: Any = np.int64(trees[row, 1])
        first_leaf, size = np.int64(trees[tree, 3]), np.int64(trees[tree, 4])
        if root != begin or size < 1 or size > position_count - begin or depth > size:
            return False
        leaf_count = values.shape[0] - first_leaf
        end = begin + size
        if not _are_positions_inside(
            nodes, bits, leaf, left, sets, width, leaf_count, begin, end, heights
        ):
            return False
        # A row that is not at a leaf after `depth` levels would read the number of another leaf.
        if np.int64(heights[begin]) > depth:
            return False
        if tops is not None:
            for position in tops[2][EXITS * tree : EXITS * (tree + 1)]:
                if position < begin or position >= end:
                    return False
                if np.int64(heights[position]) > max(0, depth - TOP):
                    return False
        begin = end
    return True


@compiled_helper
def _is_order_valid(trees: Any, moving: Any, width: Any) -> Any:
    """Return True if each tree moves at all levels up to its depth, in windows of any size."""
    tree_count = trees.shape[0]
    if trees.shape[1] < TREE_FIELDS or moving.shape[1] <= LEVELS:
        return False
    if moving.shape[0] < (tree_count + WINDOW - 1) // WINDOW:
        return False
    for i in range(tree_count):
        order = i % WINDOW
        depth: Any = np.int64(trees[i, 1])
        window_size = min(WINDOW, tree_count - (i - order))
        if np.int64(trees[i, 2]) >= window_size:
            return False
        if depth > 0 and width < 1:
            return False
        if order > 0 and depth > np.int64(trees[i - 1, 1]):
            return False
        for level in range(int(min(depth, LEVELS + 1))):
            if np.int64(moving[i // WINDOW, level]) <= order:
                return False
    return True


@compiled_helper
def _are_tops_inside(tops: Any, tree_count: Any, stride: Any) -> Any:
    """Return True if `pass_top_levels` reads inside a transposed block of rows."""
    columns, thresholds, exits = tops
    node_count = NODES * tree_count
    if columns.size < node_count or thresholds.size < node_count or exits.size < EXITS * tree_count:
        return False
    return are_between(columns[:node_count], 0, (stride - 1) * LANES + 1)


@compiled_helper
def _are_positions_inside(
    nodes: Any,
    bits: Any,
    leaf: Any,
    left: Any,
    sets: Any,
    width: Any,
    leaf_count: Any,
    begin: Any,
    end: Any,
    heights: Any,
) -> Any:
    """Check the positions of a tree, from `begin` to `end` - 1, and set their heights.

    The height of a position is the number of levels down to the deepest leaf.
    """
    mask = nodes.link.dtype.type((np.int64(1) << bits) - 1)
    shift = nodes.link.dtype.type(bits)
    words_per_node = nodes.itemsize // leaf.itemsize
    payload_mask = (np.int64(1) << (PAYLOAD if leaf.itemsize == 4 else LONG_PAYLOAD)) - 1
    for position in range(end - 1, begin - 1, -1):
        node = nodes[position]
        distance = np.int64(node.link & mask)
        if distance == 0:
            # A row stays at a leaf: no number is <= NaN, and neither NaN nor a set goes left.
            if node.link != 0 or node.threshold == node.threshold:
                return False
            if left.size > 0 and left[position] != 0:
                return False
            leaf_number = np.int64(leaf[position * words_per_node]) & payload_mask
            if leaf_number >= leaf_count:
                return False
            heights[position] = 0
            continue
        # The left child is at position + distance - 1. Children follow their parents.
        if distance < 2 or distance >= end - position:
            return False
        column = np.int64(node.link >> shift)
        if sets is not None:
            if column & 1 and not _is_set_inside(sets, position):
                return False
            column >>= 1
        if column < 0 or column >= width:
            return False
        child = position + distance
        heights[position] = 1 + max(heights[child - 1], heights[child])
    return True


@compiled_helper
def _is_set_inside(sets: Any, position: Any) -> Any:
    """Return True if all categories below the size of a node's set have a word."""
    first_word, sizes, words = sets
    size, first = np.float64(sizes[position]), np.int64(first_word[position])
    if not size > 0:  # Also for NaN, no category is below the size.
        return True
    return first <= words.size and size <= min(32 * (words.size - first), MAX_SET_SIZE)
