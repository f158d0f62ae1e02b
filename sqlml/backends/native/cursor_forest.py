"""`CursorForest`: an Ensemble as the arrays that the leaf-cursor kernel reads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from sqlml.backends.native.jit import reads, specialise, writes
from sqlml.backends.native.leaf_cursor import BLOCK_BYTES, score
from sqlml.backends.native.leaf_values import PADDING
from sqlml.backends.native.ranks import ranks
from sqlml.backends.native.set_bins import set_bins
from sqlml.ir.decisions import largest_below
from sqlml.ir.trees import Ensemble
from sqlml.types import Array


@dataclass(frozen=True, slots=True, eq=False)
class CursorForest:
    """An Ensemble compiled for input of one dtype. Thread-safe.

    `columns` int64 are the input columns that the tests read. `wide` says that bins and cursors
    take two bytes.
    """

    columns: Array
    base: Array
    wide: bool
    kernel: Callable[..., Any]
    arrays: tuple[Array, ...]

    def __call__(self, x: Array) -> Array:
        """Score x (n, k) -> (n, outputs)."""
        out = np.empty((x.shape[0], self.base.size), self.base.dtype)
        self.kernel(x, self.columns, *self.arrays, self.base, out)
        return out


def cursor_forest(
    e: Ensemble, source: np.dtype[Any], columns: Array | None = None
) -> CursorForest | None:
    """Compile `e` for input of dtype `source` (float32 or float64).

    Column j of the ensemble's input is column `columns[j]` of what is passed (default: j). None
    for what the kernel has no integers for: trees of more than 65,536 leaves, columns of more than
    65,535 thresholds, sets of more categories than `set_bins` takes.
    """
    sets = set_bins(e)
    if sets is None:
        return None
    numeric = sets.of_node < 0
    at_most = e.threshold if e.compare == "le" else largest_below(e.threshold)
    used = np.unique(e.feature[numeric])
    column = np.searchsorted(used, e.feature)
    never = np.isnan(at_most)  # only NaN goes left there

    def any_of(nodes: Array) -> Array:
        return np.bincount(column[nodes & numeric], minlength=used.size) > 0

    own = [np.flatnonzero((column == c) & numeric) for c in range(used.size)]
    thresholds = [np.unique(at_most[nodes][~never[nodes]]) for nodes in own]
    tables = ranks(
        thresholds,
        high=any_of(~e.default_left),
        least=any_of(e.default_left),
        shifted=any_of(e.default_left & never),
        kind=e.threshold.dtype,
    )
    if tables is None:
        return None
    rank, slot = np.ones(e.nodes, np.int64), tables.width + sets.of_node
    for c, nodes in enumerate(own):
        left = e.default_left[nodes]
        found = np.searchsorted(thresholds[c], at_most[nodes], side="left") + 1
        rank[nodes] = np.where(never[nodes], 0, found) + tables.shift[c] * left
        slot[nodes] = np.where(left, tables.least[c], tables.high[c])
    numbers = _numbers(e)
    most = int(np.diff(numbers.first).max(initial=0))
    if most > 1 << 16:
        return None
    dtype = np.dtype(np.uint8 if tables.dtype == np.uint8 and most <= 1 << 8 else np.uint16)
    order = np.argsort(numbers.owner, kind="stable")
    before = numbers.first[numbers.owner]
    arrays = (
        *tables.arrays(),
        np.ascontiguousarray(sets.columns if columns is None else columns[sets.columns], np.int64),
        *sets.arrays(),
        (slot * (BLOCK_BYTES // dtype.itemsize)).astype(np.uint32)[order],
        rank.astype(dtype)[order],
        (numbers.leftmost - before).astype(dtype)[order],
        (numbers.middle - before).astype(dtype)[order],
        np.searchsorted(numbers.owner[order], np.arange(e.trees + 1)),
        numbers.first,
        np.ascontiguousarray(np.pad(e.leaf_values[numbers.leaf].T, ((0, 0), (0, PADDING)))),
        e.target.astype(np.int64),
    )
    read = used if columns is None else columns[used]
    kernel = specialise(
        score,
        (
            reads(source, 2, "A"),
            reads(np.int64, 1, "C"),
            *(reads(a.dtype, a.ndim, "C") for a in arrays),
            reads(e.base.dtype, 1, "C"),
            writes(e.base.dtype, 2),
        ),
    )
    return CursorForest(
        np.ascontiguousarray(read, np.int64), e.base, dtype == np.uint16, kernel, arrays
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Numbers:
    """Leaves of all trees from left to right, int64.

    first (trees + 1,): the first leaf of each tree. leaf (leaves,): its row of leaf_values. For
    each inner node: owner, its tree; leftmost, the first leaf below it; middle, that of its right
    child.
    """

    first: Array
    leaf: Array
    owner: Array
    leftmost: Array
    middle: Array


def _numbers(e: Ensemble) -> _Numbers:
    left, right, roots = (a.astype(np.int64) for a in (e.left, e.right, e.roots))
    depths = e.depths()
    levels = [np.flatnonzero(depths == d) for d in range(e.depth)]
    size = np.zeros(e.nodes, np.int64)

    def leaves_below(children: Array) -> Array:
        return np.where(children < 0, 1, size[np.maximum(children, 0)] if size.size else 1)

    for level in reversed(levels):
        size[level] = leaves_below(left[level]) + leaves_below(right[level])
    first = np.cumsum([0, *leaves_below(roots)], dtype=np.int64)
    owner, start = np.zeros(e.nodes, np.int64), np.zeros(e.nodes, np.int64)
    leaf = np.zeros(e.leaf_values.shape[0], np.int64)

    def place(children: Array, at: Array, trees: Array) -> None:
        inner = children >= 0
        start[children[inner]], owner[children[inner]] = at[inner], trees[inner]
        leaf[at[~inner]] = ~children[~inner]

    place(roots, first[:-1], np.arange(e.trees))
    middle = np.zeros(e.nodes, np.int64)
    for level in levels:
        middle[level] = start[level] + leaves_below(left[level])
        place(left[level], start[level], owner[level])
        place(right[level], middle[level], owner[level])
    return _Numbers(first, leaf, owner, start, middle)
