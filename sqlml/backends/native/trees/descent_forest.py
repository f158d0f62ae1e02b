"""`descent_forest`: an Ensemble of deep trees as the arrays that the descent kernel reads."""

from __future__ import annotations

from typing import Any

import numpy as np

from sqlml.backends.native.trees.binned import Binned
from sqlml.backends.native.trees.block_forest import BlockForest
from sqlml.backends.native.trees.cursor_forest import added_together, cursor_dtype, upper_nodes
from sqlml.backends.native.trees.descent import CHILD_BITS, OFFSET_SHIFT, RANK_SHIFT, score
from sqlml.backends.native.trees.exits import Exits, exits
from sqlml.backends.native.trees.siblings import siblings
from sqlml.backends.native.trees.walk import BLOCK_BYTES
from sqlml.ir.trees import Ensemble
from sqlml.types import Array


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
