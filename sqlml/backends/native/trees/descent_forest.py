"""`descent_forest`: convert an Ensemble of deep trees to the arrays of the descent kernel."""

from __future__ import annotations

from typing import Any

import numpy as np

from sqlml.backends.native.jit.processor_levels import LINE_BYTES
from sqlml.backends.native.jit.specialise import inlined_helper
from sqlml.backends.native.kernel_calls import RowKernel, pack_arrays
from sqlml.backends.native.trees import cursor_forest
from sqlml.backends.native.trees.binned import TILE, BinnedTests, fill_bins
from sqlml.backends.native.trees.leaf_values import add_rows
from sqlml.backends.native.trees.lockstep_forest import number_siblings
from sqlml.backends.native.trees.set_bins import fill_set_bins
from sqlml.backends.native.trees.walk import (
    BLOCK_BYTES,
    Exits,
    count_block_rows,
    find_exits,
    number_exits,
)
from sqlml.backends.native.vm.register_machine import fetch
from sqlml.ir.trees import Ensemble
from sqlml.types import Array

# The descent kernel is for deep trees; only their upper levels use leaf cursors.
#
# In a deep tree, most nodes see few rows. So a kernel that tests all rows at each node is slow, and
# a kernel that descends row by row reads memory at random. Here cursors (`cursor_forest.py`) walk
# the upper levels, with many rows and few nodes. Below, the rows of a block descend in lockstep, so
# that their loads overlap. A leaf points to itself, so no step branches. Every few levels, rows
# that have arrived are dropped.
#
# A node is a 64-bit number, so a step reads one cache line of the tree. The number holds where the
# node's column begins in the panel (24 bits), the rank (16) and the first of two adjacent children
# (24). Bins take at most two bytes, so the panel of a block also stays in the cache. In ensembles
# with sets, the highest bit marks nodes where a row goes left only if its bin is the rank.

PASS_BLOCKS = 8
"""Blocks that pass a tree before the next tree, so that a tree is read from memory less often.
For 30 columns, the panels fill an eighth of a usual second-level cache."""

LEVELS = 4
"""Levels between two checks for rows that have arrived at a leaf."""

OFFSET_SHIFT, RANK_SHIFT, CHILD_BITS = 40, 24, 24

OFFSET_BITS, SET_SHIFT = 23, 63
"""The bits of an offset in ensembles with sets, and the bit of a test for one bin."""


@inlined_helper
def descend(
    panel: Any, nodes: Any, sets: Any, cursor: Any, state: Any, row: Any, arrived: Any
) -> None:
    """Move row r from nodes[cursor[r] + 1] down to a leaf; write the leaf's index to arrived[r].

    `arrived`, `state` and `row` are uint32 (rows,); `state` and `row` are scratch space.
    """
    child = np.uint64((1 << CHILD_BITS) - 1)
    for r in range(cursor.size):
        state[np.uint64(r)] = np.uint32(cursor[np.uint64(r)]) + np.uint32(1)
        row[np.uint64(r)] = r
    moving = cursor.size
    while moving > 0:
        remaining = np.uint64(0)
        for i in range(moving):
            node_index, r = state[np.uint64(i)], row[np.uint64(i)]
            arrived[np.uint64(r)] = node_index
            state[remaining] = node_index
            row[remaining] = r
            remaining += np.uint64((nodes[np.uint64(node_index)] & child) > np.uint64(node_index))
        moving = np.int64(remaining)
        for _ in range(LEVELS):
            for i in range(moving):
                node = nodes[np.uint64(state[np.uint64(i)])]
                offset, rank = node >> np.uint64(OFFSET_SHIFT), node >> np.uint64(RANK_SHIFT)
                if sets is None:
                    bin = panel[offset + np.uint64(row[np.uint64(i)])]
                    goes_right = np.uint64(bin >= np.uint16(rank))
                else:
                    offset &= np.uint64((1 << OFFSET_BITS) - 1)
                    bin = panel[offset + np.uint64(row[np.uint64(i)])]
                    is_above, is_other = bin >= np.uint16(rank), bin != np.uint16(rank)
                    goes_right = np.uint64(is_other if node >> np.uint64(SET_SHIFT) else is_above)
                state[np.uint64(i)] = np.uint32((node & child) + goes_right)


def score(
    x: Any,
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
    out: Any,
) -> None:
    """Write base plus the exit leaves' values to out (n, K), added tree by tree in out's dtype.

    This is one long function with one argument per array, so that PASS_BLOCKS blocks pass a tree
    while the tree is in the cache.

    Args:
        width: the number of panel columns.
        outputs: the number of values per leaf, if `leaf_width` is 0.
        tables, sets: the arguments of `fill_bins` and `fill_set_bins`.
        upper: the arrays `nodes` of `find_exits`.
        lower: nodes, uint64: for each tree an unused node, the exits, and all nodes below them;
            leaf, uint32, the leaf at each of these nodes; and begin, int64 (trees,), the first node
            of each tree.
        target: int64 (trees,).
    """
    rank = upper[1]
    nodes, leaf, begin = lower
    rows = BLOCK_BYTES // rank.itemsize
    tile = np.empty(TILE * rows, tables[1].dtype)
    rank_scratch = np.empty(rows, np.uint32)
    panels = np.empty((PASS_BLOCKS, width * rows), rank.dtype)
    cursor = np.empty(rows, rank.dtype)
    state, row = np.empty(rows, np.uint32), np.empty(rows, np.uint32)
    arrived = np.empty(rows, np.uint32)
    totals = np.empty((PASS_BLOCKS, max(base.size, leaf_width) * rows), base.dtype)
    row_stride, output_stride = (leaf_width, 1) if leaf_width else (1, rows)
    line_nodes = LINE_BYTES // nodes.itemsize
    for start in range(0, x.shape[0], PASS_BLOCKS * rows):
        blocks = min(PASS_BLOCKS, (x.shape[0] - start + rows - 1) // rows)
        for b in range(blocks):
            block_start = start + b * rows
            filled = count_block_rows(cursor, x.shape[0] - block_start)
            fill_bins(x, block_start, tables, tile, rank_scratch, panels[b], filled)
            if sets is not None:
                fill_set_bins(x, block_start, sets, tile, rank_scratch, panels[b], filled)
            for k in range(base.size):
                for r in range(filled):
                    totals[b, r * row_stride + k * output_stride] = base[k]
        for tree in range(target.size):
            tree_nodes, tree_leaves = nodes[begin[tree] :], leaf[begin[tree] :]
            # While a block descends this tree, its share of the next tree is prefetched.
            next_begin, lines_per_block = 0, 0
            if tree + 1 < target.size:
                next_begin = begin[tree + 1]
                lines_per_block = (next_begin - begin[tree]) // (blocks * line_nodes) + 1
            for b in range(blocks):
                for line in range(b * lines_per_block, (b + 1) * lines_per_block):
                    fetch(nodes, np.uint64(next_begin + line * line_nodes))
                panel, total = panels[b], totals[b]
                filled = count_block_rows(cursor, x.shape[0] - start - b * rows)
                find_exits(panel, upper, sets, tree, cursor, filled)
                descend(panel, tree_nodes, sets, cursor[:filled], state, row, arrived)
                for r in range(filled):
                    row[np.uint64(r)] = tree_leaves[np.uint64(arrived[np.uint64(r)])]
                if leaf_width:
                    add_rows(values, 0, row[:filled], total, leaf_width)
                    continue
                for v in range(outputs):
                    sums = total[(target[tree] + v) * rows :]
                    for r in range(filled):
                        index = np.uint64(row[np.uint64(r)]) * np.uint64(outputs) + np.uint64(v)
                        sums[np.uint64(r)] += values[index]
        for b in range(blocks):
            block_start = start + b * rows
            for k in range(base.size):
                for r in range(min(rows, x.shape[0] - block_start)):
                    out[block_start + r, k] = totals[b, r * row_stride + k * output_stride]


def compile_descent_forest(
    ensemble: Ensemble,
    tests: BinnedTests,
    cuts: Array,
    source: np.dtype[Any],
    columns: Array | None = None,
) -> RowKernel | None:
    """Compile `ensemble`, cut at the depths `cuts`, int64 (T,), for input of dtype `source`.

    Column j of the ensemble is column `columns[j]` of the input (default: j). Returns None if a
    tree or the panel is too large for the 64 bits of a node.
    """
    exits = number_exits(ensemble, cuts)
    dtype = cursor_forest.choose_cursor_dtype(tests, exits)
    if dtype is None:
        return None
    lower = _make_lower_nodes(ensemble, tests, exits, BLOCK_BYTES // dtype.itemsize)
    if lower is None:
        return None
    panel = tests.arrays(columns)
    upper = cursor_forest.make_upper_nodes(ensemble, tests, exits, dtype)
    target = ensemble.target.astype(np.int64)
    leaf_width = cursor_forest.count_padded_values(ensemble)
    padding = max(0, leaf_width - ensemble.leaf_values.shape[1])
    values = np.pad(ensemble.leaf_values, ((0, 0), (0, padding))).ravel()
    sizes = (tests.width, ensemble.leaf_values.shape[1], leaf_width)
    constants = (*sizes, *panel, upper, lower, target, values, ensemble.base)
    return RowKernel.of(
        score, source, pack_arrays(constants), ensemble.base.size, ensemble.base.dtype
    )


def _make_lower_nodes(
    ensemble: Ensemble, tests: BinnedTests, exits: Exits, rows: int
) -> tuple[Array, Array, Array] | None:
    """Return the argument `lower` of `score`, or None if a number needs too many bits."""
    siblings = number_siblings(exits.exit, np.diff(exits.first), ensemble.left, ensemble.right)
    max_positions = int(np.diff(siblings.begin).max(initial=0)) + 1
    has_sets = tests.sets.width > 0
    offset_bits = OFFSET_BITS if has_sets else 64 - OFFSET_SHIFT
    if max_positions > 1 << CHILD_BITS or tests.width * rows > 1 << offset_bits:
        return None
    is_inner, inner_nodes = siblings.inner, siblings.reference[siblings.inner]
    # Each tree begins with an unused node, so that a leaf's child can be the position before it.
    trees = np.repeat(np.arange(ensemble.trees), np.diff(siblings.begin))
    begin = siblings.begin[:-1] + np.arange(ensemble.trees)
    children = siblings.first - siblings.begin[trees] + is_inner
    offsets, ranks = np.zeros(trees.size, np.uint64), np.zeros(trees.size, np.uint64)
    offsets[is_inner] = tests.slot[inner_nodes] * rows
    is_set = tests.sets.of_node[inner_nodes] >= 0
    ranks[is_inner] = np.where(is_set, tests.low[inner_nodes], tests.rank[inner_nodes])
    offsets[is_inner] |= is_set.astype(np.uint64) << np.uint64(SET_SHIFT - OFFSET_SHIFT)
    nodes = np.zeros(trees.size + ensemble.trees, np.uint64)
    leaves = np.zeros(nodes.size, np.uint32)
    positions = np.arange(trees.size) + trees + 1
    tests_of_nodes = offsets << np.uint64(OFFSET_SHIFT) | ranks << np.uint64(RANK_SHIFT)
    nodes[positions] = tests_of_nodes | children.astype(np.uint64)
    leaves[positions] = np.where(is_inner, 0, ~siblings.reference)
    return nodes, leaves, begin
