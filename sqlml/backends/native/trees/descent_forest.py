"""`descent_forest`: an Ensemble of deep trees as the arrays that the descent kernel reads."""

from __future__ import annotations

from typing import Any

import numpy as np

from sqlml.backends.native.jit.specialise import helper
from sqlml.backends.native.trees.binned import TILE, Binned, bins, fill_set_bins
from sqlml.backends.native.trees.cursor_forest import (
    BlockForest,
    added_together,
    cursor_dtype,
    upper_nodes,
)
from sqlml.backends.native.trees.leaf_values import add_rows
from sqlml.backends.native.trees.lockstep_forest import siblings
from sqlml.backends.native.trees.walk import BLOCK_BYTES, Exits, exits, leave
from sqlml.backends.native.vm.run import LINE_BYTES, fetch
from sqlml.ir.trees import Ensemble
from sqlml.types import Array

# The descent kernel: deep trees, whose upper levels rows pass by leaf cursors.
#
# In a deep tree most nodes see few rows, so a kernel that shows each node to each row is slow,
# and one that goes down row by row reads memory at random. Here the upper levels, where rows are
# many and nodes few, are walked by cursors (`cursor_forest.py`). Below, the rows of a block go
# down in lockstep: none waits for another's loads. A leaf is its own child, so no step branches;
# every few levels the rows that have arrived are left out.
#
# A node is one 64-bit number, so that a step reads one cache line of the tree: where its column
# begins in the panel (24 bits), its rank (16) and the first of its two children, which lie side
# by side (24). Bins take two bytes at most, so a block's panel stays in the cache too.


PASS = 8
"""Blocks that pass a tree before the next tree comes, so that it is read from memory that often
less. Their panels fill an eighth of a usual second-level cache for 30 columns."""

LEVELS = 4
"""Levels between two looks at which rows have arrived."""

OFFSET_SHIFT, RANK_SHIFT, CHILD_BITS = 40, 24, 24


@helper
def descend(panel: Any, nodes: Any, cursor: Any, state: Any, row: Any, arrived: Any) -> None:
    """Send rows from node cursor + 1 of `nodes` to a leaf each: `arrived` (rows,) of uint32.

    `state` and `row` uint32 (rows,) are scratch space.
    """
    child = np.uint64((1 << CHILD_BITS) - 1)
    for r in range(cursor.size):
        state[np.uint64(r)] = np.uint32(cursor[np.uint64(r)]) + np.uint32(1)
        row[np.uint64(r)] = r
    moving = cursor.size
    while moving > 0:
        kept = np.uint64(0)
        for i in range(moving):
            at, r = state[np.uint64(i)], row[np.uint64(i)]
            arrived[np.uint64(r)] = at
            state[kept] = at
            row[kept] = r
            kept += np.uint64((nodes[np.uint64(at)] & child) > np.uint64(at))
        moving = np.int64(kept)
        for _ in range(LEVELS):
            for i in range(moving):
                node = nodes[np.uint64(state[np.uint64(i)])]
                held = panel[(node >> np.uint64(OFFSET_SHIFT)) + np.uint64(row[np.uint64(i)])]
                right = np.uint64(held >= np.uint16(node >> np.uint64(RANK_SHIFT)))
                state[np.uint64(i)] = np.uint32((node & child) + right)


def score(
    x: Any,
    width: Any,
    outputs: Any,
    together: Any,
    tables: Any,
    sets: Any,
    upper: Any,
    lower: Any,
    target: Any,
    values: Any,
    base: Any,
    out: Any,
) -> None:
    """out (n, K) = base and the exit leaves' values, tree by tree in the leaves' dtype.

    x (n, k); tables as `bins` and sets as `fill_set_bins` reads them, for panels of `width`
    columns. upper: offset, rank, flipped, last, step and starts, as `leave` reads them.
    lower: nodes uint64, of each tree an unused one, its exits and what is below them; leaf uint32,
    the number of a leaf, whose values are `outputs` numbers in `values`, or where `together` is not
    0 so many; begin int64 (trees,). target int64 (trees,).
    """
    rank = upper[1]
    nodes, leaf, begin = lower
    rows = BLOCK_BYTES // rank.itemsize
    tile = np.empty(TILE * rows, tables[1].dtype)
    place = np.empty(rows, np.uint32)
    panels = np.empty((PASS, width * rows), rank.dtype)
    cursor = np.empty(rows, rank.dtype)
    state, row = np.empty(rows, np.uint32), np.empty(rows, np.uint32)
    arrived = np.empty(rows, np.uint32)
    totals = np.empty((PASS, max(base.size, together) * rows), base.dtype)
    by_row, by_output = (together, 1) if together else (1, rows)
    a_line = LINE_BYTES // nodes.itemsize
    for start in range(0, x.shape[0], PASS * rows):
        blocks = min(PASS, (x.shape[0] - start + rows - 1) // rows)
        for b in range(blocks):
            bins(x, start + b * rows, tables, tile, place, panels[b])
            if sets is not None:
                fill_set_bins(x, start + b * rows, sets, tile, place, panels[b])
            for k in range(base.size):
                for r in range(rows):
                    totals[b, r * by_row + k * by_output] = base[k]
        for t in range(target.size):
            own, leaf_of = nodes[begin[t] :], leaf[begin[t] :]
            # While a block goes down this tree, its share of the next one is asked for.
            ahead, share = 0, 0
            if t + 1 < target.size:
                ahead = begin[t + 1]
                share = (ahead - begin[t]) // (blocks * a_line) + 1
            for b in range(blocks):
                for line in range(b * share, (b + 1) * share):
                    fetch(nodes, np.uint64(ahead + line * a_line))
                panel, total = panels[b], totals[b]
                leave(panel, upper, t, cursor)
                descend(panel, own, cursor, state, row, arrived)
                for r in range(rows):
                    row[np.uint64(r)] = leaf_of[np.uint64(arrived[np.uint64(r)])]
                if together:
                    add_rows(values, 0, row, total, together)
                    continue
                for v in range(outputs):
                    sums = total[(target[t] + v) * rows :]
                    for r in range(rows):
                        at = np.uint64(row[np.uint64(r)]) * np.uint64(outputs) + np.uint64(v)
                        sums[np.uint64(r)] += values[at]
        for b in range(blocks):
            first = start + b * rows
            for k in range(base.size):
                for r in range(min(rows, x.shape[0] - first)):
                    out[first + r, k] = totals[b, r * by_row + k * by_output]


def descent_forest(
    e: Ensemble,
    tests: Binned,
    cut: Array,
    source: np.dtype[Any],
    columns: Array | None = None,
) -> BlockForest | None:
    """Compile `e` for input of dtype `source`, its trees cut at the depths `cut` int64 (T,).

    Column j of the ensemble's input is column `columns[j]` of what is passed (default: j). None if
    a tree or the panel is too large for a node's 64 bits.
    """
    numbered = exits(e, cut)
    dtype = cursor_dtype(tests, numbered)
    if dtype is None:
        return None
    rows = BLOCK_BYTES // dtype.itemsize
    lower = _lower_nodes(e, tests, numbered, rows)
    if lower is None:
        return None
    panel = tests.arrays(columns)
    upper = upper_nodes(e, tests, numbered, dtype)
    target = e.target.astype(np.int64)
    together = added_together(e)
    spare = max(0, together - e.leaf_values.shape[1])
    values = np.pad(e.leaf_values, ((0, 0), (0, spare))).ravel()
    sizes = (tests.width, e.leaf_values.shape[1], together)
    arguments = (*sizes, *panel, upper, lower, target, values)
    return BlockForest.of(score, e.base, source, dtype, arguments)


def _lower_nodes(
    e: Ensemble, tests: Binned, numbered: Exits, rows: int
) -> tuple[Array, Array, Array] | None:
    """nodes, leaf and begin, as the kernel reads them."""
    places = siblings(numbered.exit, np.diff(numbered.first), e.left, e.right)
    most = int(np.diff(places.begin).max(initial=0)) + 1
    if most > 1 << CHILD_BITS or tests.width * rows > 1 << (64 - OFFSET_SHIFT):
        return None
    is_inner, node = places.inner, places.reference[places.inner]
    # Each tree has one unused node in front, so that a leaf's child can be the place before it.
    tree = np.repeat(np.arange(e.trees), np.diff(places.begin))
    begin = places.begin[:-1] + np.arange(e.trees)
    child = places.first - places.begin[tree] + is_inner
    offset, rank = np.zeros(tree.size, np.uint64), np.zeros(tree.size, np.uint64)
    offset[is_inner] = tests.slot[node] * rows
    rank[is_inner] = tests.rank[node]
    nodes, leaf = (np.zeros(tree.size + e.trees, kind) for kind in (np.uint64, np.uint32))
    at = np.arange(tree.size) + tree + 1
    nodes[at] = (
        offset << np.uint64(OFFSET_SHIFT) | rank << np.uint64(RANK_SHIFT) | child.astype(np.uint64)
    )
    leaf[at] = np.where(is_inner, 0, ~places.reference)
    return nodes, leaf, begin
