"""`LockstepForest`: convert an Ensemble to the arrays that the lockstep kernel reads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from sqlml.backends.costs import LOW
from sqlml.backends.native.jit.specialise import COUNT, kinds_of, reads, specialise, writes
from sqlml.backends.native.kernel_calls import Call, Rows
from sqlml.backends.native.trees.lockstep import (
    ANY,
    LEVELS,
    PAYLOAD,
    WINDOW,
    make_top_levels,
    score,
)
from sqlml.ir.tree_shape import find_largest_below
from sqlml.ir.trees import Ensemble
from sqlml.types import Array

# `Siblings`: nodes and leaves in one numbering, with the children of a node side by side.


@dataclass(frozen=True, slots=True, eq=False)
class Siblings:
    """Positions (P) of nodes and leaves, tree by tree and level by level; all arrays are int64."""

    reference: Array  # (P,), the inner node at a position, or ~leaf.
    # (P,), the position of a node's left child, which the right child follows; for a leaf, the
    # leaf's position.
    first: Array
    begin: Array  # (T + 1,), the first position of each tree.

    @property
    def inner(self) -> Array:
        return np.asarray(self.reference >= 0)


def number_siblings(starts: Array, trees: Array, left: Array, right: Array) -> Siblings:
    """Number the nodes (or ~leaves) `starts`, in order of their trees, and all that is below them.

    trees[t] is the number of starts in tree t. `left` and `right` are the children of the inner
    nodes.
    """
    level, owner = starts.astype(np.int64), np.repeat(np.arange(trees.size), trees)
    references, owners, children = [level[:0]], [owner[:0]], [level[:0]]
    count = 0
    while level.size:
        count += level.size
        inner = level >= 0
        child = np.full(level.size, -1, np.int64)
        child[inner] = count + 2 * np.arange(int(inner.sum()))
        references.append(level)
        owners.append(owner)
        children.append(child)
        node = level[inner]
        level = np.stack([left[node], right[node]], axis=1).ravel().astype(np.int64)
        owner = np.repeat(owner[inner], 2)
    tree = np.concatenate(owners)
    order = np.argsort(tree, kind="stable")
    position = np.empty(count, np.int64)
    position[order] = np.arange(count)
    reference, child = np.concatenate(references)[order], np.concatenate(children)[order]
    first = np.arange(count)
    first[reference >= 0] = position[child[reference >= 0]]
    return Siblings(reference, first, np.searchsorted(tree[order], np.arange(trees.size + 1)))


@dataclass(frozen=True, slots=True, eq=False)
class LockstepForest:
    """An Ensemble compiled for input of one dtype. Thread-safe."""

    base: Array
    copied: Array | None  # An empty array of the dtype that rows are converted to for tests.
    kernel: Callable[..., Any]
    arguments: tuple[Any, ...]

    def __call__(self, x: Array) -> Array:
        out = np.empty((x.shape[0], self.base.size), self.base.dtype)
        self.fill(x, out, ANY)
        return out

    def fill(self, x: Array, out: Array, allowed: int) -> int:
        """Write scores to `out`; return -1, or a row at or before one that is not `allowed`."""
        flat = x.ravel()
        tested = flat if self.copied is None else self.copied
        failed: int = self.kernel(flat, tested, x.shape[1], allowed, *self.arguments, out)
        return failed

    def call(self, x: Rows, out: Rows, allowed: int) -> Call:
        """Return the call that does what `fill` does, for contiguous rows."""
        flat = x.line()
        tested = flat if self.copied is None else self.copied
        return Call(self.kernel, (flat, tested, x.width, allowed, *self.arguments, out))


def compile_lockstep_forest(
    e: Ensemble, source: np.dtype[Any], columns: Array | None = None
) -> LockstepForest:
    """Compile `e` for input of dtype `source`, whose column `columns[j]` is column j of `e`."""
    tested = np.unique(e.feature)
    columns_read = np.ascontiguousarray(tested if columns is None else columns[tested], np.int64)
    copied = None if source == e.threshold.dtype else np.empty(0, e.threshold.dtype)
    siblings = number_siblings(e.roots, np.ones(e.trees, np.int64), e.left, e.right)
    column = columns_read if copied is None else np.arange(tested.size)
    nodes, bits = _make_nodes(e, column[np.searchsorted(tested, e.feature)], siblings)
    is_turned = copied is None and not e.has_categories and e.depths().max(initial=0) < LOW
    arguments = (
        None if copied is None else columns_read,
        *_order_by_depth(e, siblings),
        *(nodes, bits, nodes.view(f"u{nodes['threshold'].itemsize}")),
        _find_nan_left(e, siblings),
        _make_sets(e, siblings) if e.has_categories else None,
        _make_upper_levels(e, nodes, bits, siblings) if is_turned else None,
        e.target.astype(np.int64),
        np.ascontiguousarray(e.leaf_values[~siblings.reference[~siblings.inner]]),
        np.ascontiguousarray(e.base),
    )
    rows = (reads(source, 1, "C"), reads(e.threshold.dtype, 1, "C"), COUNT, COUNT)
    kernel = specialise(score, (*rows, *kinds_of(*arguments), writes(e.base.dtype, 2)))
    return LockstepForest(e.base, copied, kernel, arguments)


def _order_by_depth(e: Ensemble, siblings: Siblings) -> tuple[Array, Array]:
    """Return the arrays `trees` and `moving` of the kernel (`lockstep.score`)."""
    depth = np.zeros(e.trees, np.int64)
    np.maximum.at(depth, e.node_roots(), e.depths() + 1)
    window_index = np.arange(e.trees) // WINDOW
    order = np.lexsort((-depth, window_index))
    rank_in_window = np.empty(e.trees, np.int64)
    rank_in_window[order] = np.arange(e.trees) % WINDOW
    moving = np.zeros((window_index[-1] + 1 if e.trees else 0, LEVELS + 1), np.uint32)
    for level in range(LEVELS + 1):
        np.add.at(moving[:, level], window_index[depth > level], 1)
    first_leaf = _count_leaves_before(siblings)[siblings.begin[:-1]]
    sizes = np.diff(siblings.begin)
    columns = [siblings.begin[:-1][order], depth[order], rank_in_window, first_leaf, sizes]
    return np.stack(columns, axis=1).astype(np.uint32), moving


def _count_leaves_before(siblings: Siblings) -> Array:
    """Return how many leaves precede each position, int64 (P + 1,); the last is the total."""
    return np.concatenate([[0], np.cumsum(~siblings.inner, dtype=np.int64)])


def _make_nodes(e: Ensemble, column: Array, siblings: Siblings) -> tuple[Array, int]:
    """Return `nodes` and `bits` of `lockstep.score`; `column` is int64 (M,), by node."""
    is_inner, node = siblings.inner, siblings.reference[siblings.inner]
    threshold = e.threshold if e.compare == "le" else find_largest_below(e.threshold)
    if e.categorical is not None:
        threshold = np.where(e.categorical, np.nan, threshold).astype(threshold.dtype)
        column = 2 * column + e.categorical
    distance = siblings.first + 1 - np.arange(is_inner.size)
    distance[~is_inner] = 0
    bits = int(distance.max(initial=0)).bit_length()
    leaves = _count_leaves_before(siblings)
    tree = np.repeat(np.arange(siblings.begin.size - 1), np.diff(siblings.begin))
    leaf_number = leaves[:-1] - leaves[siblings.begin[tree]]
    is_short = int(column.max(initial=0)).bit_length() + bits <= 32
    is_short &= threshold.dtype == np.float32 and int(leaf_number.max(initial=0)) >> PAYLOAD == 0
    dtype, size = (np.dtype(np.float32), 4) if is_short else (np.dtype(np.float64), 8)
    nodes = np.zeros(is_inner.size, [("threshold", dtype), ("link", f"u{size}")])
    bits = bits if is_short else 32
    nodes["threshold"][is_inner] = threshold[node]
    nodes["link"] = distance
    nodes["link"][is_inner] |= (column[node] << bits).astype(f"u{size}")
    words = nodes.view(f"u{size}").reshape(-1, 2)
    words[~is_inner, 0] = np.array(np.nan, dtype).view(words.dtype)
    words[~is_inner, 0] |= leaf_number[~is_inner].astype(words.dtype)
    return nodes, bits


def _make_upper_levels(
    e: Ensemble, nodes: Array, bits: int, siblings: Siblings
) -> tuple[Array, Array, Array]:
    link = nodes["link"].astype(np.int64)
    right = np.arange(link.size) + (link & ((1 << bits) - 1))
    threshold = nodes["threshold"].astype(e.threshold.dtype)
    return make_top_levels(siblings.begin[:-1], link >> bits, threshold, right)


def _find_nan_left(e: Ensemble, siblings: Siblings) -> Array:
    """Return the argument `left` of `lockstep.score`."""
    if not e.default_left.any() and not e.has_categories:
        return np.zeros(0, np.uint8)
    goes_left = np.zeros(siblings.inner.size, np.uint8)
    goes_left[siblings.inner] = e.default_left[siblings.reference[siblings.inner]]
    return goes_left


def _make_sets(e: Ensemble, siblings: Siblings) -> tuple[Array, Array, Array]:
    """Return the first word and the size of each node's set, and the words of all sets."""
    assert e.set_offsets is not None and e.set_words is not None
    is_inner, node = siblings.inner, siblings.reference[siblings.inner]
    begin, size = np.zeros(is_inner.size, np.uint32), np.zeros(is_inner.size, e.threshold.dtype)
    begin[is_inner] = e.set_offsets[node]
    size[is_inner] = (e.set_offsets[node + 1] - e.set_offsets[node]) * 32.0
    return begin, size, np.ascontiguousarray(e.set_words)
