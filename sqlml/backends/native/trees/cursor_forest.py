"""`cursor_forest`: convert an Ensemble to the arrays that the leaf-cursor kernel reads."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from sqlml.backends.native.jit.helpers import inlined_helper
from sqlml.backends.native.jit.processor_levels import LINE_BYTES
from sqlml.backends.native.kernel_calls import RowKernel, pack_arrays
from sqlml.backends.native.trees.binned import TILE, BinnedTests, fill_bins
from sqlml.backends.native.trees.leaf_values import (
    PADDING,
    SMALL,
    TOGETHER,
    add_leaves,
    add_rows,
    pad_count,
)
from sqlml.backends.native.trees.set_bins import fill_set_bins
from sqlml.backends.native.trees.walk import (
    BLOCK_BYTES,
    Exits,
    count,
    count_block_rows,
    find_exits,
    number_exits,
    order_triples,
)
from sqlml.backends.native.vm.register_machine import fetch
from sqlml.ir.tree_shape import find_oblivious_trees
from sqlml.ir.trees import Ensemble
from sqlml.types import Array

# The leaf-cursor kernel: every node tests a block of rows, one byte per row, without a branch.
#
# The leaves of a tree are numbered from left to right. A row's cursor is the rightmost leaf that
# the row may still reach; at first, this is the last leaf. Parents come before children. `last` is
# the rightmost leaf below a node, and `last` + `step` is the rightmost leaf below the left child.
# Rows with cursor `last` are at this node. If the bin of such a row is below `rank`, the cursor
# moves by `step`. After the last node, the cursor is the exit leaf. As in the GEMM strategy of
# Hummingbird (section 4.1), each node tests each row, but by comparing bytes.
#
# The speed depends on the cost per node. A node and the two children are processed together
# (`walk.py`), so that one comparison of cursors serves all three nodes.
#
# Oblivious trees, as CatBoost grows them, test one condition per level. The results are the bits of
# the exit leaf's number, with the root's result as the highest bit. So a tree of depth 6 costs 6
# comparisons instead of 63.


MAX_FETCHED = 1 << 14
"""Tables of bins with more numbers than this are not prefetched, because they do not stay in the
first-level cache: for a table of 1 MB, prefetching took 8 of 145 ns per row."""

AHEAD = 8
"""Trees that are prefetched together. Where 300 models of 100 small trees score 512 rows each in
turn, a turn takes 13% longer than with one model, and 33% longer without prefetching."""


def score(
    x: Any,
    width: Any,
    leaf_width: Any,
    tables: Any,
    sets: Any,
    nodes: Any,
    leaves: Any,
    values: Any,
    base: Any,
    out: Any,
) -> None:
    """Write base plus the exit leaves' values to out (n, K), added tree by tree in out's dtype.

    This is one long function with one argument per array, so that a block of rows passes all trees
    while the panel of bins is in the cache.

    Args:
        width: the number of panel columns.
        leaf_width: how many numbers of a leaf are added at once. If this is 0, `values` has a row
            of all leaves, followed by PADDING, for each output of a tree.
        tables, sets: the arguments of `fill_bins` and `fill_set_bins`.
        nodes: the arrays that `walk` reads; starts is int64 (2 * trees + 1,).
        leaves: int64 (trees + 1,), the first leaf of each tree; target int64 (trees,); and bool
            (trees,), True for oblivious trees, whose nodes are tested by `count`.
    """
    first_leaf, target, oblivious = leaves
    rank, starts = nodes[1], nodes[5]
    rows = BLOCK_BYTES // rank.itemsize
    tile = np.empty(TILE * rows, tables[1].dtype)
    rank_scratch = np.empty(rows, np.uint32)
    panel = np.empty(width * rows, rank.dtype)
    cursor = np.empty(rows, rank.dtype)
    total = np.empty(max(base.size, leaf_width) * rows, base.dtype)
    table_size = first_leaf[-1] + PADDING
    row_stride, output_stride = (leaf_width, 1) if leaf_width else (1, rows)
    line_numbers = np.int64(LINE_BYTES // x.itemsize)
    # While trees score a block, the rows of the next one are prefetched.
    is_contiguous = x.strides[1] == x.itemsize and x.strides[0] == x.shape[1] * x.itemsize
    lines = rows * x.shape[1] // (line_numbers * max(1, target.size)) + 1 if is_contiguous else 0
    if tables[1].size + tables[7].size <= MAX_FETCHED:
        fetch_items(tables[1], 0, tables[1].size)
        fetch_items(tables[7], 0, tables[7].size)
    for start in range(0, x.shape[0], rows):
        filled = count_block_rows(cursor, x.shape[0] - start)
        filled_cursor = cursor[:filled]
        fill_bins(x, start, tables, tile, rank_scratch, panel, filled)
        if sets is not None:
            fill_set_bins(x, start, sets, tile, rank_scratch, panel, filled)
        for k in range(base.size):
            for r in range(filled):
                total[r * row_stride + k * output_stride] = base[k]
        for tree in range(target.size):
            if start == 0 and tree % AHEAD == 0:
                fetch_trees(nodes, first_leaf, values, leaf_width, tree)
            for line in range(tree * lines, (tree + 1) * lines):
                fetch(x, np.uint64((start + rows) * x.shape[1] + line * line_numbers))
            if oblivious[tree]:
                count(panel, nodes, sets, starts[2 * tree], starts[2 * tree + 2], cursor, filled)
            else:
                find_exits(panel, nodes, sets, tree, cursor, filled)
            if leaf_width:
                add_rows(values, first_leaf[tree], filled_cursor, total, leaf_width)
                continue
            leaf_count = first_leaf[tree + 1] - first_leaf[tree]
            for v in range(values.size // table_size):
                sums = total[(target[tree] + v) * rows :][:filled]
                offset = v * table_size + first_leaf[tree]
                if leaf_count <= SMALL:
                    add_leaves(values, offset, cursor, sums, 1)
                elif leaf_count * sums.itemsize <= 1024:
                    add_leaves(values, offset, cursor, sums, 2)
                else:
                    add_leaves(values, offset, cursor, sums, 0)
        valid_rows = min(rows, x.shape[0] - start)
        for k in range(base.size):
            for r in range(valid_rows):
                out[start + r, k] = total[r * row_stride + k * output_stride]


@inlined_helper
def fetch_trees(nodes: Any, first_leaf: Any, values: Any, leaf_width: Any, tree: Any) -> None:
    """Prefetch the AHEAD trees after those that begin at `tree`, and at tree 0 also those.

    The model may have left the cache since its last batch.
    """
    offsets, ranks, flipped, lasts, steps, starts, lows = nodes
    tree_count = first_leaf.size - 1
    first_tree = min(tree + AHEAD if tree else 0, tree_count)
    end_tree = min(tree + 2 * AHEAD, tree_count)
    first, end = starts[2 * first_tree], starts[2 * end_tree]
    fetch_items(offsets, first, end)
    fetch_items(ranks, first, end)
    fetch_items(flipped, first, end)
    fetch_items(lasts, first, end)
    fetch_items(steps, first, end)
    fetch_items(lows, first, end)
    if leaf_width:
        fetch_items(values, first_leaf[first_tree] * leaf_width, first_leaf[end_tree] * leaf_width)
        return
    table_size = first_leaf[-1] + PADDING
    for table_start in range(0, values.size, table_size):
        first_value, end_value = first_leaf[first_tree], first_leaf[end_tree]
        fetch_items(values, table_start + first_value, table_start + end_value)


@inlined_helper
def fetch_items(array: Any, first: Any, end: Any) -> None:
    """Prefetch the cache lines of `array[first:end]`."""
    for index in range(first, end, LINE_BYTES // array.itemsize):
        fetch(array, np.uint64(index))


def compile_cursor_forest(
    ensemble: Ensemble, tests: BinnedTests, source: np.dtype[Any], columns: Array | None = None
) -> RowKernel | None:
    """Compile `ensemble` for input of dtype `source` (float32 or float64).

    Column j of the ensemble is column `columns[j]` of the input (default: j). Returns None if a
    tree has more than 65,536 leaves.
    """
    exits = number_exits(ensemble)
    dtype = choose_cursor_dtype(tests, exits)
    if dtype is None:
        return None
    panel = tests.arrays(columns)
    oblivious = find_oblivious_trees(ensemble)
    kept_exits = _keep_first_of_levels(ensemble, exits, oblivious)
    nodes = make_upper_nodes(ensemble, tests, kept_exits, dtype, oblivious)
    leaf_arrays = (exits.first, ensemble.target.astype(np.int64), oblivious)
    leaf_width = count_padded_values(ensemble)
    values = ensemble.leaf_values[~exits.exit]
    table, padding = (values, leaf_width - values.shape[1]) if leaf_width else (values.T, PADDING)
    padded_values = np.pad(table, ((0, 0), (0, padding))).ravel()
    constants = (tests.width, leaf_width, *panel, nodes, leaf_arrays, padded_values, ensemble.base)
    return RowKernel.of(
        score, source, pack_arrays(constants), ensemble.base.size, ensemble.base.dtype
    )


def _keep_first_of_levels(ensemble: Ensemble, exits: Exits, oblivious: Array) -> Exits:
    """Keep only the leftmost node of each level in the `oblivious` trees."""
    tree_of_node = ensemble.node_roots()
    is_kept = ~oblivious[tree_of_node] | (exits.lo == 0)
    starts = np.searchsorted(tree_of_node[is_kept], np.arange(ensemble.trees + 1))
    kept_arrays = {name: getattr(exits, name)[is_kept] for name in ("node", "lo", "mid", "last")}
    return replace(exits, starts=starts, **kept_arrays)


def count_padded_values(ensemble: Ensemble) -> int:
    """Return the padded number of values per leaf, or 0 if values are added one by one."""
    value_count = int(ensemble.leaf_values.shape[1])
    if value_count < TOGETHER or value_count != ensemble.outputs:
        return 0
    return pad_count(value_count, ensemble.leaf_values.itemsize)


def choose_cursor_dtype(tests: BinnedTests, exits: Exits) -> np.dtype[Any] | None:
    """Return the dtype of bins and cursors, or None if a tree has more than 65,536 exits."""
    max_exits = int(np.diff(exits.first).max(initial=0))
    if max_exits > 1 << 16:
        return None
    fits_bytes = tests.tables.dtype == np.uint8 and max_exits <= 1 << 8
    return np.dtype(np.uint8 if fits_bytes else np.uint16)


def make_upper_nodes(
    ensemble: Ensemble,
    tests: BinnedTests,
    exits: Exits,
    dtype: np.dtype[Any],
    counted: Array | None = None,
) -> tuple[Array, ...]:
    """Return the argument `nodes` of `walk`, or of `count` for trees marked in `counted`."""
    rows = BLOCK_BYTES // dtype.itemsize
    positions = np.full(ensemble.nodes + 1, exits.node.size)  # The last entry is for no node.
    positions[exits.node] = np.arange(exits.node.size)
    order, starts = order_triples(ensemble, exits, counted)
    node_positions = positions[order]

    def gather(values: Array, default: int) -> Array:
        gathered: Array = np.append(values, default)[node_positions]
        return gathered

    steps = exits.mid - exits.last - 1
    if counted is not None:
        is_counted = counted[ensemble.node_roots()[exits.node]]
        steps = np.where(is_counted, exits.mid, steps)
    lows = gather(tests.low[exits.node], 0).astype(dtype)
    ranks = gather((tests.rank - tests.low)[exits.node], 0).astype(dtype)
    return (
        gather(tests.slot[exits.node] * rows, 0).astype(np.uint32),
        ranks,
        ~ranks,
        np.append(gather(exits.last, 0), 0).astype(dtype),
        gather(steps, 0).astype(dtype),
        starts,
        lows,
    )
