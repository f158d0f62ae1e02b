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


def number_siblings(starts: Array, counts: Array, left: Array, right: Array) -> Siblings:
    """Number the nodes (or ~leaves) `starts`, in tree order, and all nodes and leaves below them.

    counts[t] is the number of starts in tree t. `left` and `right` are the children of the inner
    nodes.
    """
    level, tree_of_node = starts.astype(np.int64), np.repeat(np.arange(counts.size), counts)
    references, trees, children = [level[:0]], [tree_of_node[:0]], [level[:0]]
    position_count = 0
    while level.size:
        position_count += level.size
        is_inner = level >= 0
        child = np.full(level.size, -1, np.int64)
        child[is_inner] = position_count + 2 * np.arange(int(is_inner.sum()))
        references.append(level)
        trees.append(tree_of_node)
        children.append(child)
        node = level[is_inner]
        level = np.stack([left[node], right[node]], axis=1).ravel().astype(np.int64)
        tree_of_node = np.repeat(tree_of_node[is_inner], 2)
    tree = np.concatenate(trees)
    order = np.argsort(tree, kind="stable")
    position = np.empty(position_count, np.int64)
    position[order] = np.arange(position_count)
    reference, child = np.concatenate(references)[order], np.concatenate(children)[order]
    first = np.arange(position_count)
    first[reference >= 0] = position[child[reference >= 0]]
    return Siblings(reference, first, np.searchsorted(tree[order], np.arange(counts.size + 1)))


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
        """Write scores to `out`; return the result of `lockstep.score`, which is -1 on success."""
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
    ensemble: Ensemble, source: np.dtype[Any], columns: Array | None = None
) -> LockstepForest:
    """Compile `ensemble` for dtype `source`; its column j is the input's column `columns[j]`."""
    tested = np.unique(ensemble.feature)
    columns_read = np.ascontiguousarray(tested if columns is None else columns[tested], np.int64)
    copied = None if source == ensemble.threshold.dtype else np.empty(0, ensemble.threshold.dtype)
    tree_sizes = np.ones(ensemble.trees, np.int64)
    siblings = number_siblings(ensemble.roots, tree_sizes, ensemble.left, ensemble.right)
    column = columns_read if copied is None else np.arange(tested.size)
    nodes, bits = _make_nodes(ensemble, column[np.searchsorted(tested, ensemble.feature)], siblings)
    is_transposed = (
        copied is None and not ensemble.has_categories and ensemble.depths().max(initial=0) < LOW
    )
    arguments = (
        None if copied is None else columns_read,
        *_order_by_depth(ensemble, siblings),
        *(nodes, bits, nodes.view(f"u{nodes['threshold'].itemsize}")),
        _find_nan_left(ensemble, siblings),
        _make_sets(ensemble, siblings) if ensemble.has_categories else None,
        _make_upper_levels(ensemble, nodes, bits, siblings) if is_transposed else None,
        ensemble.target.astype(np.int64),
        np.ascontiguousarray(ensemble.leaf_values[~siblings.reference[~siblings.inner]]),
        np.ascontiguousarray(ensemble.base),
    )
    row_kinds = (reads(source, 1, "C"), reads(ensemble.threshold.dtype, 1, "C"), COUNT, COUNT)
    kernel = specialise(score, (*row_kinds, *kinds_of(*arguments), writes(ensemble.base.dtype, 2)))
    return LockstepForest(ensemble.base, copied, kernel, arguments)


def _order_by_depth(ensemble: Ensemble, siblings: Siblings) -> tuple[Array, Array]:
    """Return the arrays `trees` and `moving` of the kernel (`lockstep.score`)."""
    depth = np.zeros(ensemble.trees, np.int64)
    np.maximum.at(depth, ensemble.node_roots(), ensemble.depths() + 1)
    window_index = np.arange(ensemble.trees) // WINDOW
    order = np.lexsort((-depth, window_index))
    rank_in_window = np.empty(ensemble.trees, np.int64)
    rank_in_window[order] = np.arange(ensemble.trees) % WINDOW
    moving = np.zeros((window_index[-1] + 1 if ensemble.trees else 0, LEVELS + 1), np.uint32)
    for level in range(LEVELS + 1):
        np.add.at(moving[:, level], window_index[depth > level], 1)
    first_leaf = _count_leaves_before(siblings)[siblings.begin[:-1]]
    sizes = np.diff(siblings.begin)
    columns = [siblings.begin[:-1][order], depth[order], rank_in_window, first_leaf, sizes]
    return np.stack(columns, axis=1).astype(np.uint32), moving


def _count_leaves_before(siblings: Siblings) -> Array:
    """Count how many leaves precede each position, int64 (P + 1,); the last is their total."""
    return np.concatenate([[0], np.cumsum(~siblings.inner, dtype=np.int64)])


def _make_nodes(ensemble: Ensemble, column: Array, siblings: Siblings) -> tuple[Array, int]:
    """Return the arguments `nodes` and `bits` of `lockstep.score`; node m tests `column[m]`."""
    is_inner, node = siblings.inner, siblings.reference[siblings.inner]
    threshold = (
        ensemble.threshold if ensemble.compare == "le" else find_largest_below(ensemble.threshold)
    )
    if ensemble.categorical is not None:
        threshold = np.where(ensemble.categorical, np.nan, threshold).astype(threshold.dtype)
        column = 2 * column + ensemble.categorical
    distance = siblings.first + 1 - np.arange(is_inner.size)
    distance[~is_inner] = 0
    bits = int(distance.max(initial=0)).bit_length()
    leaves_before = _count_leaves_before(siblings)
    tree = np.repeat(np.arange(siblings.begin.size - 1), np.diff(siblings.begin))
    leaf_number = leaves_before[:-1] - leaves_before[siblings.begin[tree]]
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
    ensemble: Ensemble, nodes: Array, bits: int, siblings: Siblings
) -> tuple[Array, Array, Array]:
    link = nodes["link"].astype(np.int64)
    right = np.arange(link.size) + (link & ((1 << bits) - 1))
    threshold = nodes["threshold"].astype(ensemble.threshold.dtype)
    return make_top_levels(siblings.begin[:-1], link >> bits, threshold, right)


def _find_nan_left(ensemble: Ensemble, siblings: Siblings) -> Array:
    """Return the argument `left` of `lockstep.score`."""
    if not ensemble.default_left.any() and not ensemble.has_categories:
        return np.zeros(0, np.uint8)
    goes_left = np.zeros(siblings.inner.size, np.uint8)
    goes_left[siblings.inner] = ensemble.default_left[siblings.reference[siblings.inner]]
    return goes_left


def _make_sets(ensemble: Ensemble, siblings: Siblings) -> tuple[Array, Array, Array]:
    """Return the first word and the size of each node's set, and the words of all sets."""
    assert ensemble.set_offsets is not None and ensemble.set_words is not None
    is_inner, node = siblings.inner, siblings.reference[siblings.inner]
    begin = np.zeros(is_inner.size, np.uint32)
    size = np.zeros(is_inner.size, ensemble.threshold.dtype)
    begin[is_inner] = ensemble.set_offsets[node]
    size[is_inner] = (ensemble.set_offsets[node + 1] - ensemble.set_offsets[node]) * 32.0
    return begin, size, np.ascontiguousarray(ensemble.set_words)
