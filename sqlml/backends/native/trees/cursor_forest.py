"""`cursor_forest`: an Ensemble as the arrays that the leaf-cursor kernel reads."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from sqlml.backends.native.trees.binned import Binned
from sqlml.backends.native.trees.block_forest import BlockForest
from sqlml.backends.native.trees.exits import Exits, exits
from sqlml.backends.native.trees.leaf_cursor import score
from sqlml.backends.native.trees.leaf_values import PADDING, TOGETHER, padded
from sqlml.backends.native.trees.triples import triples
from sqlml.backends.native.trees.walk import BLOCK_BYTES
from sqlml.ir.tree_shape import oblivious
from sqlml.ir.trees import Ensemble
from sqlml.types import Array


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
    asked_once = oblivious(e)
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
