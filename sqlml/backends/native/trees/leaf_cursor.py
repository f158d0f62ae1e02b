"""The leaf-cursor kernel: every node looks at a block of rows, one byte per row, without a branch.

The leaves of a tree are numbered from left to right. A row's cursor is the rightmost leaf that it
may still reach, at first the last one. Nodes come with parents before children; `last` is the
rightmost leaf below a node, and `step` leads from there to the rightmost leaf of its left child.
The rows whose cursor is `last` are those at this node, and those among them with a bin below `rank`
go `step`. After the last node the cursor is the exit leaf. It is the GEMM strategy of Hummingbird
(section 4.1), each node for each row, with comparisons of bytes in place of a product.

What a node takes decides how fast trees are (`walk.py`). A node and its two children are one
(`triples.py`): where their answers lead is known before it is known which rows are there, so one
comparison of cursors serves all three.

Trees that ask one question per level, as CatBoost grows them, need no `last`: the answers are the
bits of the exit leaf's number, the root's the highest. So a tree of depth 6 costs 6 comparisons in
place of 63.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sqlml.backends.native.trees.leaf_values import PADDING, SMALL, add_leaves, add_rows
from sqlml.backends.native.trees.ranks import TILE, bins
from sqlml.backends.native.trees.set_bins import fill_set_bins
from sqlml.backends.native.trees.walk import BLOCK_BYTES, count, leave
from sqlml.backends.native.vm.prefetch import LINE_BYTES, fetch


def score(
    x: Any,
    width: Any,
    together: Any,
    tables: Any,
    sets: Any,
    nodes: Any,
    leaves: Any,
    values: Any,
    base: Any,
    out: Any,
) -> None:
    """out (n, K) = base and the exit leaves' values, tree by tree in the leaves' dtype.

    x (n, k); tables as `bins` and sets as `fill_set_bins` reads them, for panels of `width`
    columns. nodes: as `walk` reads them, and starts int64 (2 * trees + 1,).
    leaves: int64 (trees + 1,), the first leaf of each tree, target int64 (trees,), and bool
    (trees,), whether a tree's answers are `count`ed. values: one table per tree, concatenated, each
    with PADDING; or where `together` is not 0, so many numbers per leaf.
    """
    first, target, oblivious = leaves
    offset, rank, _, _, bit, starts = nodes
    rows = BLOCK_BYTES // rank.itemsize
    tile = np.empty(TILE * rows, tables[1].dtype)
    place = np.empty(rows, np.uint32)
    panel = np.empty(width * rows, rank.dtype)
    cursor = np.empty(rows, rank.dtype)
    total = np.empty(max(base.size, together) * rows, base.dtype)
    table = first[-1] + PADDING
    by_row, by_output = (together, 1) if together else (1, rows)
    a_line = np.int64(LINE_BYTES // x.itemsize)
    # While trees score a block, the rows of the next one are asked for.
    in_order = x.strides[1] == x.itemsize and x.strides[0] == x.shape[1] * x.itemsize
    lines = rows * x.shape[1] // (a_line * max(1, target.size)) + 1 if in_order else 0
    for start in range(0, x.shape[0], rows):
        bins(x, start, tables, tile, place, panel)
        if sets is not None:
            fill_set_bins(x, start, sets, tile, place, panel)
        for k in range(base.size):
            for r in range(rows):
                total[r * by_row + k * by_output] = base[k]
        for t in range(target.size):
            for line in range(t * lines, (t + 1) * lines):
                fetch(x, np.uint64((start + rows) * x.shape[1] + line * a_line))
            if oblivious[t]:
                count(panel, offset, rank, bit, starts[2 * t], starts[2 * t + 2], cursor)
            else:
                leave(panel, nodes, t, cursor)
            if together:
                add_rows(values, first[t], cursor, total, together)
                continue
            own = first[t + 1] - first[t]
            for v in range(values.size // table):
                sums = total[(target[t] + v) * rows : (target[t] + v + 1) * rows]
                row = v * table + first[t]
                if own <= SMALL:
                    add_leaves(values, row, cursor, sums, 1)
                elif own * sums.itemsize <= 1024:
                    add_leaves(values, row, cursor, sums, 2)
                else:
                    add_leaves(values, row, cursor, sums, 0)
        held = min(rows, x.shape[0] - start)
        for k in range(base.size):
            for r in range(held):
                out[start + r, k] = total[r * by_row + k * by_output]
