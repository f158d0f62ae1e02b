"""`cursor_forest`: an Ensemble as the arrays that the leaf-cursor kernel reads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sqlml.backends.native.jit.specialise import kinds_of, reads, specialise, writes
from sqlml.backends.native.kernel_calls import Call, Rows
from sqlml.backends.native.trees.binned import TILE, Binned, bins, fill_set_bins
from sqlml.backends.native.trees.leaf_values import (
    PADDING,
    SMALL,
    TOGETHER,
    add_leaves,
    add_rows,
    padded,
)
from sqlml.backends.native.trees.walk import BLOCK_BYTES, Exits, count, exits, leave, triples
from sqlml.backends.native.vm.run import LINE_BYTES, fetch
from sqlml.ir.tree_shape import find_oblivious_trees
from sqlml.ir.trees import Ensemble
from sqlml.types import Array

# The leaf-cursor kernel: every node looks at a block of rows, one byte per row, without a branch.
#
# The leaves of a tree are numbered from left to right. A row's cursor is the rightmost leaf that
# it may still reach, at first the last one. Nodes come with parents before children; `last` is
# the rightmost leaf below a node, and `step` leads from there to the rightmost leaf of its left
# child. The rows whose cursor is `last` are those at this node, and those among them with a bin
# below `rank` go `step`. After the last node the cursor is the exit leaf. It is the GEMM strategy
# of Hummingbird (section 4.1), each node for each row, with comparisons of bytes in place of a
# product.
#
# What a node takes decides how fast trees are (`walk.py`). A node and its two children are one
# (`walk.py`): where their answers lead is known before it is known which rows are there, so one
# comparison of cursors serves all three.
#
# Trees that ask one question per level, as CatBoost grows them, need no `last`: the answers are
# the bits of the exit leaf's number, the root's the highest. So a tree of depth 6 costs 6
# comparisons in place of 63.


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


# `BlockForest`: an Ensemble ready for a kernel that scores a block of rows at a time.


@dataclass(frozen=True, slots=True, eq=False)
class BlockForest:
    """An Ensemble compiled for input of one dtype. Thread-safe.

    `wide` says that bins and cursors take two bytes.
    """

    base: Array
    wide: bool
    kernel: Callable[..., Any]
    arguments: tuple[Any, ...]

    @classmethod
    def of(
        cls,
        score: Callable[..., Any],
        base: Array,
        source: np.dtype[Any],
        cursors: np.dtype[Any],
        arguments: tuple[Any, ...],
    ) -> BlockForest:
        """Compile `score` for input of dtype `source`, and bins and cursors of dtype `cursors`.

        arguments: what it takes between the rows and `base`.
        """
        given, base_and_out = kinds_of(*arguments), (*kinds_of(base), writes(base.dtype, 2))
        kernel = specialise(score, (reads(source, 2), *given, *base_and_out))
        return cls(base, cursors == np.uint16, kernel, arguments)

    def __call__(self, x: Array) -> Array:
        """Score x (n, k) -> (n, outputs)."""
        out = np.empty((x.shape[0], self.base.size), self.base.dtype)
        self.kernel(x, *self.arguments, self.base, out)
        return out

    def calls(self, x: Rows, out: Rows) -> tuple[Call, ...]:
        """The call that writes the scores of rows `x` to `out`."""
        return (Call(self.kernel, (x, *self.arguments, self.base, out)),)


def cursor_forest(
    e: Ensemble, tests: Binned, source: np.dtype[Any], columns: Array | None = None
) -> BlockForest | None:
    """Compile `e` for input of dtype `source` (float32 or float64).

    Column j of the ensemble's input is column `columns[j]` of what is passed (default: j). None if
    a tree has more than 65,536 leaves.
    """
    leaves = exits(e)
    dtype = cursor_dtype(tests, leaves)
    if dtype is None:
        return None
    panel = tests.arrays(columns)
    asked_once = find_oblivious_trees(e)
    nodes = upper_nodes(e, tests, _first_of_levels(e, leaves, asked_once), dtype, asked_once)
    numbers = (leaves.first, e.target.astype(np.int64), asked_once)
    together = added_together(e)
    values = e.leaf_values[~leaves.exit]
    if together:
        table = np.pad(values, ((0, 0), (0, together - values.shape[1]))).ravel()
    else:
        table = np.pad(values.T, ((0, 0), (0, PADDING))).ravel()
    arguments = (tests.width, together, *panel, nodes, numbers, table)
    return BlockForest.of(score, e.base, source, dtype, arguments)


def _first_of_levels(e: Ensemble, leaves: Exits, chosen: Array) -> Exits:
    """Only the leftmost node of each level of the trees `chosen`, whose exits below left are 0."""
    owner = e.node_roots()
    kept = ~chosen[owner] | (leaves.lo == 0)
    starts = np.searchsorted(owner[kept], np.arange(e.trees + 1))
    return replace(
        leaves,
        node=leaves.node[kept],
        starts=starts,
        lo=leaves.lo[kept],
        mid=leaves.mid[kept],
        last=leaves.last[kept],
    )


def added_together(e: Ensemble) -> int:
    """The numbers that a leaf takes where all of its values are added at once; 0: one by one."""
    values = int(e.leaf_values.shape[1])
    if values < TOGETHER or values != e.outputs:
        return 0
    return padded(values, e.leaf_values.itemsize)


def cursor_dtype(tests: Binned, numbered: Exits) -> np.dtype[Any] | None:
    """The dtype of bins and cursors: uint8, uint16, or None if a tree has too many exits."""
    most = int(np.diff(numbered.first).max(initial=0))
    if most > 1 << 16:
        return None
    return np.dtype(np.uint8 if tests.tables.dtype == np.uint8 and most <= 1 << 8 else np.uint16)


def upper_nodes(
    e: Ensemble,
    tests: Binned,
    numbered: Exits,
    dtype: np.dtype[Any],
    counted: Array | None = None,
) -> tuple[Array, ...]:
    """What `walk` and `count` read of the nodes above the exits.

    counted bool (T,): the trees that are counted (default: none).
    """
    rows = BLOCK_BYTES // dtype.itemsize
    where = np.full(e.nodes + 1, numbered.node.size)  # the entry for no node follows the last
    where[numbered.node] = np.arange(numbered.node.size)
    order, starts = triples(e, numbered, counted)
    at = where[order]

    def of(values: Array, none: int) -> Array:
        found: Array = np.append(values, none)[at]
        return found

    step = numbered.mid - numbered.last - 1
    if counted is not None:
        own = counted[e.node_roots()[numbered.node]]
        step = np.where(own, numbered.mid, step)
    rank = of(tests.rank[numbered.node], 0).astype(dtype)
    return (
        of(tests.slot[numbered.node] * rows, 0).astype(np.uint32),
        rank,
        ~rank,
        np.append(of(numbered.last, 0), 0).astype(dtype),
        of(step, 0).astype(dtype),
        starts,
    )
