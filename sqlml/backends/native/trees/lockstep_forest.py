"""`LockstepForest`: convert an Ensemble to the arrays that the lockstep kernel reads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sqlml.backends.costs import LOW
from sqlml.backends.native.jit.specialise import (
    COUNT,
    bind_constants,
    reads,
    specialise,
    to_kinds,
    writes,
)
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


@dataclass(frozen=True, slots=True, eq=False)
class Siblings:
    """Positions of nodes and leaves, tree by tree and level by level; all arrays are int64.

    The right child of a node follows the left child.
    """

    reference: Array  # (positions,), the inner node at a position, or ~leaf.
    first: Array  # (positions,), the position of a node's left child, or of the leaf itself.
    begin: Array  # (trees + 1,), the first position of each tree.

    @property
    def inner(self) -> Array:
        return np.asarray(self.reference >= 0)


def number_siblings(starts: Array, counts: Array, left: Array, right: Array) -> Siblings:
    """Number the nodes or ~leaves `starts`, and all nodes and leaves below the starts.

    The starts are in the order of the trees; tree t has counts[t] starts. `left` and `right` are
    the children of the inner nodes.
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
    tree_of_position = np.concatenate(trees)
    order = np.argsort(tree_of_position, kind="stable")
    positions = np.empty(position_count, np.int64)
    positions[order] = np.arange(position_count)
    reference, child = np.concatenate(references)[order], np.concatenate(children)[order]
    first = np.arange(position_count)
    first[reference >= 0] = positions[child[reference >= 0]]
    return Siblings(
        reference, first, np.searchsorted(tree_of_position[order], np.arange(counts.size + 1))
    )


@dataclass(frozen=True, slots=True, eq=False)
class LockstepForest:
    """An Ensemble compiled for input of one dtype. Thread-safe."""

    base: Array
    copied: Array | None  # An empty array of the dtype that rows are converted to for tests.
    kernel: Callable[..., Any]
    arguments: tuple[Any, ...]
    score: Callable[..., Any]
    """The kernel without `arguments`."""

    def __call__(self, x: Array) -> Array:
        out = np.empty((x.shape[0], self.base.size), self.base.dtype)
        self.fill(x, out, ANY)
        return out

    def fill(self, x: Array, out: Array, allowed: int) -> int:
        """Write scores to `out`; return -1 on success, otherwise a row (see `lockstep.score`)."""
        flat = x.ravel()
        tested = flat if self.copied is None else self.copied
        failed: int = self.score(flat, tested, x.shape[1], allowed, out)
        return failed

    def make_call(self, x: Rows, out: Rows, allowed: int) -> Call:
        """Return the call that does what `fill` does, for contiguous rows."""
        flat = x.flatten()
        tested = flat if self.copied is None else self.copied
        return Call(self.kernel, (flat, tested, x.width, allowed, *self.arguments, out))


def compile_lockstep_forest(
    ensemble: Ensemble, source: np.dtype[Any], columns: Array | None = None
) -> LockstepForest:
    """Compile `ensemble`, whose column j is column columns[j] of the input (default: j)."""
    dtype = ensemble.threshold.dtype
    ensemble, tested, categories = split_categories(ensemble)
    columns_read = np.ascontiguousarray(tested if columns is None else columns[tested], np.int64)
    has_singles = not np.isnan(categories).all()
    copied = np.empty(0, dtype) if has_singles or source != dtype else None
    tree_sizes = np.ones(ensemble.trees, np.int64)
    siblings = number_siblings(ensemble.roots, tree_sizes, ensemble.left, ensemble.right)
    column = columns_read if copied is None else np.arange(tested.size)
    nodes, bits = _make_nodes(ensemble, column[ensemble.feature], siblings)
    is_transposed = (
        copied is None and not ensemble.has_categories and ensemble.depths().max(initial=0) < LOW
    )
    arguments = (
        None if copied is None else (columns_read, categories),
        *_order_by_depth(ensemble, siblings),
        *(nodes, bits, nodes.view(f"u{nodes['threshold'].itemsize}")),
        _make_nan_left_mask(ensemble, siblings),
        _make_sets(ensemble, siblings) if ensemble.has_categories else None,
        _make_upper_levels(ensemble, nodes, bits, siblings) if is_transposed else None,
        ensemble.target.astype(np.int64),
        np.ascontiguousarray(ensemble.leaf_values[~siblings.reference[~siblings.inner]]),
        np.ascontiguousarray(ensemble.base),
    )
    row_kinds = (reads(source, 1, "C"), reads(ensemble.threshold.dtype, 1, "C"), COUNT, COUNT)
    kernel = specialise(score, (*row_kinds, *to_kinds(*arguments), writes(ensemble.base.dtype, 2)))
    bound = bind_constants(kernel, len(row_kinds), arguments)
    return LockstepForest(ensemble.base, copied, kernel, arguments, bound)


def split_categories(ensemble: Ensemble) -> tuple[Ensemble, Array, Array]:
    """Give each category that a `single` node tests a column that is 0 in rows with the category.

    Returns an ensemble without `single` nodes; and for each column that it tests, the column of
    `ensemble` that it comes from, and the category, or NaN if it is that column.
    """
    pairs = np.zeros(ensemble.nodes, [("feature", np.int64), ("category", np.float64)])
    pairs["feature"], pairs["category"] = ensemble.feature, -1.0
    if ensemble.single is not None:
        pairs["category"][ensemble.single] = ensemble.threshold[ensemble.single]
    distinct, columns = np.unique(pairs, return_inverse=True)
    categories = np.where(distinct["category"] < 0, np.nan, distinct["category"])
    categories = categories.astype(ensemble.threshold.dtype)
    split = replace(ensemble, feature=columns.astype(np.int32))
    if ensemble.single is not None and ensemble.categorical is not None:
        thresholds = np.where(ensemble.single, 0.5, ensemble.threshold)
        split = replace(
            split,
            threshold=thresholds.astype(ensemble.threshold.dtype),
            categorical=ensemble.categorical & ~ensemble.single,
            single=None,
        )
    return split, distinct["feature"], categories


def _order_by_depth(ensemble: Ensemble, siblings: Siblings) -> tuple[Array, Array]:
    """Return the arguments `trees` and `moving` of `lockstep.score`."""
    depths = np.zeros(ensemble.trees, np.int64)
    np.maximum.at(depths, ensemble.node_roots(), ensemble.depths() + 1)
    windows = np.arange(ensemble.trees) // WINDOW
    order = np.lexsort((-depths, windows))
    rank_in_window = np.empty(ensemble.trees, np.int64)
    rank_in_window[order] = np.arange(ensemble.trees) % WINDOW
    moving = np.zeros((windows[-1] + 1 if ensemble.trees else 0, LEVELS + 1), np.uint32)
    for level in range(LEVELS + 1):
        np.add.at(moving[:, level], windows[depths > level], 1)
    first_leaves = _count_leaves_before(siblings)[siblings.begin[:-1]]
    sizes = np.diff(siblings.begin)
    columns = [siblings.begin[:-1][order], depths[order], rank_in_window, first_leaves, sizes]
    return np.stack(columns, axis=1).astype(np.uint32), moving


def _count_leaves_before(siblings: Siblings) -> Array:
    return np.concatenate([[0], np.cumsum(~siblings.inner, dtype=np.int64)])


def _make_nodes(ensemble: Ensemble, columns: Array, siblings: Siblings) -> tuple[Array, int]:
    """Return the arguments `nodes` and `bits` of `lockstep.score`; node m tests columns[m]."""
    is_inner, inner_nodes = siblings.inner, siblings.reference[siblings.inner]
    thresholds = (
        ensemble.threshold if ensemble.compare == "le" else find_largest_below(ensemble.threshold)
    )
    if ensemble.has_categories and ensemble.categorical is not None:
        thresholds = np.where(ensemble.categorical, np.nan, thresholds).astype(thresholds.dtype)
        columns = 2 * columns + ensemble.categorical
    distances = siblings.first + 1 - np.arange(is_inner.size)
    distances[~is_inner] = 0
    bits = int(distances.max(initial=0)).bit_length()
    leaves_before = _count_leaves_before(siblings)
    trees = np.repeat(np.arange(siblings.begin.size - 1), np.diff(siblings.begin))
    leaf_numbers = leaves_before[:-1] - leaves_before[siblings.begin[trees]]
    is_short = int(columns.max(initial=0)).bit_length() + bits <= 32
    is_short &= thresholds.dtype == np.float32 and int(leaf_numbers.max(initial=0)) >> PAYLOAD == 0
    dtype, size = (np.dtype(np.float32), 4) if is_short else (np.dtype(np.float64), 8)
    nodes = np.zeros(is_inner.size, [("threshold", dtype), ("link", f"u{size}")])
    bits = bits if is_short else 32
    nodes["threshold"][is_inner] = thresholds[inner_nodes]
    nodes["link"] = distances
    nodes["link"][is_inner] |= (columns[inner_nodes] << bits).astype(f"u{size}")
    words = nodes.view(f"u{size}").reshape(-1, 2)
    words[~is_inner, 0] = np.array(np.nan, dtype).view(words.dtype)
    words[~is_inner, 0] |= leaf_numbers[~is_inner].astype(words.dtype)
    return nodes, bits


def _make_upper_levels(
    ensemble: Ensemble, nodes: Array, bits: int, siblings: Siblings
) -> tuple[Array, Array, Array]:
    links = nodes["link"].astype(np.int64)
    right_positions = np.arange(links.size) + (links & ((1 << bits) - 1))
    thresholds = nodes["threshold"].astype(ensemble.threshold.dtype)
    return make_top_levels(siblings.begin[:-1], links >> bits, thresholds, right_positions)


def _make_nan_left_mask(ensemble: Ensemble, siblings: Siblings) -> Array:
    if not ensemble.default_left.any() and not ensemble.has_categories:
        return np.zeros(0, np.uint8)
    goes_left = np.zeros(siblings.inner.size, np.uint8)
    goes_left[siblings.inner] = ensemble.default_left[siblings.reference[siblings.inner]]
    return goes_left


def _make_sets(ensemble: Ensemble, siblings: Siblings) -> tuple[Array, Array, Array]:
    """Return the first word of each node's set, the size of each set, and the words of all sets."""
    assert ensemble.set_offsets is not None and ensemble.set_words is not None
    is_inner, inner = siblings.inner, siblings.reference[siblings.inner]
    first_words = np.zeros(is_inner.size, np.uint32)
    sizes = np.zeros(is_inner.size, ensemble.threshold.dtype)
    first_words[is_inner] = ensemble.set_offsets[inner]
    sizes[is_inner] = (ensemble.set_offsets[inner + 1] - ensemble.set_offsets[inner]) * 32.0
    return first_words, sizes, np.ascontiguousarray(ensemble.set_words)
