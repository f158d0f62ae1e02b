"""`bind_trees`: run a tree_ensemble on a GPU as two kernel launches.

A GPU is fast if it reads few bytes. So the first kernel replaces each value with a rank: the number
of thresholds of the column that are smaller. A test `y <= threshold`, where y is x or -x
(`ir/tree_shape.py`), becomes `rank(y) <= rank(threshold)`, which is equivalent. NaN has the highest
rank, and the threshold of a test that never holds has rank -1. Trees with few levels are padded to
perfect trees, so that each step reads 4 bytes and no child. Other trees are stored level by level,
with the children of a node side by side.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, fields
from importlib.util import find_spec

import numpy as np
import torch
from torch import Tensor

from sqlml.errors import BackendError
from sqlml.ir.program import Node
from sqlml.ir.tree_shape import unify_decisions
from sqlml.ir.trees import Ensemble
from sqlml.types import Array

NARROW = np.iinfo(np.int16).max
"""Largest column, rank or category code that fits into 16 bits, so a node fits into 32 bits."""

MAX_EDGES = 1 << 28
"""Maximum number of thresholds after all columns are padded to the column with the most."""

MAX_WORDS = 1 << 24
"""Maximum number of 4-byte words of all category sets, after those of a feature are padded to the
same length. The number of bits, a multiple of 32 up to 2^29, is exact in float32."""


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """The C columns that nodes test, numeric before categorical ones, and the tests of M nodes.

    Column c has the values of input column `feature[c]` (int32), negated if `negated[c]` (int8). In
    a numeric column, `size[c]` (int32) is -1, and the values are replaced by ranks among
    `edges[c]`, which has 2^steps - 1 thresholds, padded with infinity; NaN has rank `missing`. In a
    categorical column of `size` codes, x is replaced by trunc(x) if 0 <= x < size, by `size` for
    another number, and by `size` + 1 for NaN.

    Inner node i tests column `column[i]` with `test[i]`, both int64. For a numeric column, `test`
    is the rank of the threshold. If `categorical[i]`, `test` is the index in `words` (uint32) at
    which the node's category set begins, with one bit per code. If `narrow`, all ranks, codes and
    columns fit into 16 bits.
    """

    feature: Array
    negated: Array
    size: Array
    edges: Array
    steps: int
    column: Array
    test: Array
    categorical: Array
    words: Array
    narrow: bool

    @property
    def missing(self) -> int:
        return NARROW if self.narrow else int(np.iinfo(np.int32).max)


def collect_columns(ensemble: Ensemble) -> Columns:
    """Return the columns that `ensemble` tests; raise BackendError if the tables are too large."""
    decisions = unify_decisions(ensemble)
    categorical = ensemble.categorical
    if categorical is None:
        categorical = np.zeros(ensemble.nodes, bool)
    numeric_nodes = np.flatnonzero(~categorical)
    # The columns of x come first, then the columns of -x.
    numeric_columns, column_of_node = np.unique(
        decisions.negated[numeric_nodes].astype(np.int64) << 32 | decisions.feature[numeric_nodes],
        return_inverse=True,
    )
    column, test = np.zeros((2, ensemble.nodes), np.int64)
    column[numeric_nodes] = column_of_node
    edges_of_columns: list[Array] = []
    for j in range(numeric_columns.size):
        nodes = numeric_nodes[column_of_node == j]
        thresholds = decisions.threshold[nodes]
        never_holds = np.isnan(thresholds)
        edges_of_columns.append(np.unique(thresholds[~never_holds]))
        test[nodes] = np.where(never_holds, -1, np.searchsorted(edges_of_columns[-1], thresholds))
    max_edges = max((edges.size for edges in edges_of_columns), default=0)
    set_feature, set_size, words = _lay_out_sets(ensemble, column, test, numeric_columns.size)
    feature = np.concatenate([numeric_columns & 0xFFFFFFFF, set_feature])
    negated = np.append(numeric_columns >> 32, np.zeros(set_feature.size, np.int64))
    steps = max_edges.bit_length()
    # Thresholds of float16 are searched in float32, which is exact.
    edge_dtype = np.float64 if ensemble.threshold.dtype == np.float64 else np.float32
    if feature.size << steps > MAX_EDGES:
        raise BackendError(
            f"strategy fused pads the thresholds of all {feature.size} columns to the most of any "
            f"column, {max_edges} (the limit is {MAX_EDGES} in all); use strategy='tt'"
        )
    edges = np.full((max(1, feature.size), (1 << steps) - 1), np.inf, edge_dtype)
    for row, values in zip(edges, edges_of_columns, strict=False):
        row[: values.size] = values
    max_number = max(feature.size, max_edges, int(set_size.max(initial=0)) + 1)
    return Columns(
        feature=feature.astype(np.int32),
        negated=negated.astype(np.int8),
        size=np.append(np.full(numeric_columns.size, -1), set_size).astype(np.int32),
        edges=edges,
        steps=steps,
        column=column,
        test=test,
        categorical=categorical,
        words=words,
        narrow=max_number < NARROW,
    )


def _lay_out_sets(
    ensemble: Ensemble, column: Array, test: Array, num_numeric: int
) -> tuple[Array, Array, Array]:
    """Fill `column` and `test` for categorical nodes; return `feature`, `size` and `words`."""
    empty = np.zeros(0, np.int64)
    if ensemble.categorical is None or ensemble.set_offsets is None or ensemble.set_words is None:
        return empty, empty, np.zeros(1, np.uint32)
    nodes = np.flatnonzero(ensemble.categorical)
    features, feature_of_node = np.unique(ensemble.feature[nodes], return_inverse=True)
    word_counts = np.diff(ensemble.set_offsets)[nodes].astype(np.int64)
    max_word_counts = np.zeros(features.size, np.int64)
    np.maximum.at(max_word_counts, feature_of_node, word_counts)
    # Each set gets one more word, for NaN and for numbers that are not categories.
    begins = np.concatenate([[0], np.cumsum(max_word_counts[feature_of_node] + 1)])
    if begins[-1] > MAX_WORDS:
        raise BackendError(
            f"strategy fused pads all category sets of a feature to the same length, {begins[-1]} "
            f"words in all (the limit is {MAX_WORDS}); use strategy='tt'"
        )
    words = np.zeros(max(1, int(begins[-1])), np.uint32)
    for position, node in enumerate(nodes):
        set_words = ensemble.set_words[ensemble.set_offsets[node] : ensemble.set_offsets[node + 1]]
        words[begins[position] : begins[position] + set_words.size] = set_words
    words[begins[1:] - 1] = np.where(ensemble.default_left[nodes], 2, 0)
    column[nodes], test[nodes] = num_numeric + feature_of_node, begins[:-1]
    return features.astype(np.int64), 32 * max_word_counts, words


PERFECT_DEPTH, PERFECT_GROWTH = 10, 8
"""Trees are padded to perfect trees up to this depth, and up to this growth in nodes."""

PERFECT_BYTES = 1 << 28
"""Maximum number of bytes of the leaf values of perfect trees."""

WIDEST = 128
"""Maximum number of outputs that one program of the kernel sums."""


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """The arrays of trees and of groups of outputs that the kernel reads.

    Each tree has a `depth` and a `first_slot`. If `perfect`, each tree also has a `first_value`:
    the row of `values` (rows, V) where the leaf values of the tree begin. All three arrays are
    int32 (T,). Each slot has a `node`, packed by `_pack_nodes`. Unless `perfect`, each slot also
    has a `child`, which is ~leaf in the slot of a leaf. In the slot of an inner node, `child` is
    the slot of the child for rows that fail the test, counted from the tree's first slot; the next
    slot is the child for rows that pass.

    Group g sums `count[g]` outputs, the first of which is `output[g]`, over the terms from
    `begin[g]` to `begin[g + 1] - 1`. A row of `terms`, int32 (Q, 2), has a tree and the column of
    `values` that is added to the first output.
    """

    perfect: bool
    node: Array
    child: Array
    depth: Array
    first_slot: Array
    first_value: Array
    values: Array
    output: Array
    count: Array
    begin: Array
    terms: Array


def make_layout(ensemble: Ensemble, columns: Columns) -> Layout:
    """Return the layout of the trees of `ensemble`, whose nodes test `columns`."""
    packed = _pack_nodes(columns)
    decisions = unify_decisions(ensemble)
    children = np.stack([decisions.otherwise, decisions.then], axis=1).astype(np.int64)
    depth = ensemble.tree_depths()
    num_leaves = (1 << np.minimum(depth, PERFECT_DEPTH + 1)).sum()
    is_perfect = bool(
        depth.max(initial=0) <= PERFECT_DEPTH
        and num_leaves <= PERFECT_GROWTH * (ensemble.nodes + ensemble.trees)
        and num_leaves * ensemble.leaf_values[:1].nbytes <= PERFECT_BYTES
    )
    if is_perfect:
        node, values, first_slot, first_value = _lay_out_perfect(ensemble, children, packed, depth)
        child = np.zeros(1, np.int32)
    else:
        node, child, first_slot = _lay_out_by_level(ensemble, children, packed)
        values, first_value = ensemble.leaf_values, np.zeros(ensemble.trees, np.int64)
    depth, first_slot, first_value = (a.astype(np.int32) for a in (depth, first_slot, first_value))
    arrays = (node, child, depth, first_slot, first_value, values)
    return Layout(is_perfect, *arrays, *_group_outputs(ensemble))


def _pack_nodes(columns: Columns) -> Array:
    """Return an integer per node: the column in the high half, and the test in the low half.

    A half has 16 or 32 bits. A node that tests a category set has ~column in the high half.
    """
    column = np.where(columns.categorical, ~columns.column, columns.column)
    if columns.narrow and not columns.categorical.any():
        return (column << 16 | (columns.test & 0xFFFF)).astype(np.int32)
    return column << 32 | (columns.test & 0xFFFFFFFF)


def _lay_out_perfect(
    ensemble: Ensemble, children: Array, packed_nodes: Array, depth: Array
) -> tuple[Array, Array, Array, Array]:
    """Pad trees; return `node`, `values`, `first_slot` and `first_value` of a `Layout`."""
    leaf_counts = 1 << depth
    first_slot = np.cumsum(leaf_counts - 1) - (leaf_counts - 1)
    first_value = np.cumsum(leaf_counts) - leaf_counts
    node = np.zeros(max(1, int((leaf_counts - 1).sum())), packed_nodes.dtype)
    leaf = np.zeros(int(leaf_counts.sum()), np.int64)
    for tree_depth in np.unique(depth):
        trees = np.flatnonzero(depth == tree_depth)
        level = ensemble.roots[trees].astype(np.int64)[:, None]
        for nodes_of_level in 1 << np.arange(tree_depth):
            is_inner = level >= 0
            slots = first_slot[trees][:, None] + nodes_of_level - 1 + np.arange(nodes_of_level)
            node[slots[is_inner]] = packed_nodes[level[is_inner]]
            children_of_level = np.stack([level, level], axis=2)  # A leaf is its own child.
            children_of_level[is_inner] = children[level[is_inner]]
            level = children_of_level.reshape(trees.size, -1)
        leaf[first_value[trees][:, None] + np.arange(1 << int(tree_depth))] = ~level
    return node, ensemble.leaf_values[leaf], first_slot, first_value


def _lay_out_by_level(
    ensemble: Ensemble, children: Array, packed_nodes: Array
) -> tuple[Array, Array, Array]:
    """Number slots by tree and by level; return `node`, `child` and `first_slot` of a `Layout`."""
    level, tree = ensemble.roots.astype(np.int64), np.arange(ensemble.trees)
    levels, trees, first_children_by_level = [level], [tree], []
    num_entries = level.size
    while level.size:
        is_inner = level >= 0
        first_children = np.full(level.size, -1, np.int64)
        first_children[is_inner] = num_entries + 2 * np.arange(int(is_inner.sum()))
        first_children_by_level.append(first_children)
        level, tree = children[level[is_inner]].ravel(), np.repeat(tree[is_inner], 2)
        levels.append(level)
        trees.append(tree)
        num_entries += level.size
    entries = np.concatenate(levels)
    first_child_of_entry = np.concatenate([*first_children_by_level, np.zeros(0, np.int64)])
    tree_of_entry = np.concatenate(trees)  # The root of tree t is entry t.
    order = np.argsort(tree_of_entry, kind="stable")  # The order is by tree, then by level.
    slot_of_entry = np.empty(order.size, np.int64)
    slot_of_entry[order] = np.arange(order.size)
    is_inner = entries >= 0
    node = np.zeros(max(1, entries.size), packed_nodes.dtype)
    child = np.zeros(max(1, entries.size), np.int32)
    node[slot_of_entry[is_inner]] = packed_nodes[entries[is_inner]]
    child[slot_of_entry[is_inner]] = (
        slot_of_entry[first_child_of_entry[is_inner]] - slot_of_entry[tree_of_entry[is_inner]]
    )
    child[slot_of_entry[~is_inner]] = entries[~is_inner]
    return node, child, slot_of_entry[: ensemble.trees]


def _group_outputs(ensemble: Ensemble) -> tuple[Array, Array, Array, Array]:
    """Form groups of up to WIDEST outputs to which the same trees add values.

    Return `output`, `count`, `begin` and `terms` of a `Layout`.
    """
    num_values = ensemble.leaf_values.shape[1]
    targets = np.unique(ensemble.target)
    groups: list[tuple[int, int, Array]] = []
    if (np.diff(targets) >= num_values).all():
        for target in targets:
            trees = np.flatnonzero(ensemble.target == target)
            for first in range(0, num_values, WIDEST):
                terms = np.stack([trees, np.full(trees.size, first)], axis=1)
                groups.append((int(target) + first, min(WIDEST, num_values - first), terms))
    else:  # Some targets overlap, so each output has its own order.
        for k in range(ensemble.outputs):
            trees = np.flatnonzero((ensemble.target <= k) & (k < ensemble.target + num_values))
            groups.append((k, 1, np.stack([trees, k - ensemble.target[trees]], axis=1)))
    sizes = [terms.shape[0] for _, _, terms in groups]
    return (
        np.array([output for output, _, _ in groups], np.int32),
        np.array([count for _, count, _ in groups], np.int32),
        np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32),
        np.concatenate([terms for _, _, terms in groups] or [np.zeros((0, 2))]).astype(np.int32),
    )


Put = Callable[[Array], Tensor]
"""A function that copies a numpy array to the device."""

WARPS = 4
_LAUNCH_LOCK = threading.Lock()
"""A lock that launches hold, because the first launch compiles, which only one thread may do."""

COLUMNS = 32
"""Number of columns that one program ranks, so that the program reads rows only once."""
TILE = 8192
"""Maximum number of sums in one program of the kernel; they use 64 registers per thread."""

ROWS = ((1 << 18, 512), (1 << 16, 256), (0, 128))
"""Pairs of a minimum batch size and the rows per program. Programs of few rows occupy more
processors of the GPU; programs of many rows read the trees less often."""


def is_interpreted() -> bool:
    """Return True if Triton interprets kernels on the CPU: a slow mode for tests."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def explain_unavailable() -> str | None:
    """Return why fused kernels cannot run here and what to do, or None if they can run."""
    if find_spec("triton") is None:
        return "strategy fused needs triton, which pip install 'sqlml[gpu]' brings on Linux"
    if not is_interpreted() and not torch.cuda.is_available():
        return "strategy fused needs a GPU, and torch sees none; use strategy='tt' or 'ptt'"
    return None


def bind_trees(node: Node, put: Put) -> Callable[[Tensor], Tensor]:
    """Return a function that runs a tree_ensemble node on the device: it maps (n, F) to (n, K)."""
    ensemble = Ensemble.of(node.attrs)
    base = put(ensemble.base)
    reason = explain_unavailable()
    if reason is None and not (base.is_cuda or is_interpreted()):
        reason = "strategy fused runs only on a GPU; use device='cuda'"
    if reason is not None:
        raise BackendError(f"tree_ensemble must be lowered for this device: {reason}")
    columns = collect_columns(ensemble)
    layout = make_layout(ensemble, columns)
    launch = _bind_kernels(ensemble, columns, layout, base, put)

    def run(x: Tensor) -> Tensor:
        out = base.repeat(x.shape[0], 1)  # Outputs without trees keep their base.
        if x.shape[0] and layout.output.size:
            launch(x, out)
        return out

    return run


def _bind_kernels(
    ensemble: Ensemble, columns: Columns, layout: Layout, base: Tensor, put: Put
) -> Callable[[Tensor, Tensor], None]:
    """Return a function that launches both kernels for `x` (n, F) and fills `out` (n, K)."""
    # Triton is installed only on machines with a GPU.
    from sqlml.backends.torch.triton_kernels import rank_columns, sum_trees

    num_columns, dtype = columns.feature.size, torch.int16 if columns.narrow else torch.int32
    host_arrays = (columns.feature, columns.negated, columns.size, columns.edges)
    column_arrays = [put(array) for array in host_arrays]
    _, *layout_arrays = (getattr(layout, field.name) for field in fields(layout))
    tree_arrays = [put(array) for array in (columns.words.view("int32"), *layout_arrays)]
    num_groups = layout.output.size
    width = 1 << (int(layout.count.max(initial=1)) - 1).bit_length()
    sizes = (ensemble.leaf_values.shape[1], ensemble.outputs, num_groups)
    is_packed = layout.node.dtype == np.int32
    tree_options = {"PERFECT": layout.perfect, "PACKED": is_packed, "WIDTH": width}
    rank_options = {"MISSING": columns.missing, "STEPS": columns.steps, "EACH": COLUMNS}
    num_column_groups = -(-num_columns // COLUMNS) or 1

    def launch(x: Tensor, out: Tensor) -> None:
        num_rows, x_width = x.shape
        tile = min(next(tile for min_rows, tile in ROWS if num_rows >= min_rows), TILE // width)
        num_blocks = -(-num_rows // tile)
        ranks = torch.empty((num_blocks, max(1, num_columns), tile), dtype=dtype, device=x.device)
        shared_options = {"SETS": ensemble.has_categories, "ROWS": tile, "num_warps": WARPS}
        column_args = (x.contiguous(), num_rows, x_width, num_columns, *column_arrays, ranks)
        tree_args = (ranks, num_rows, num_columns, *tree_arrays, base, out, *sizes)
        with _LAUNCH_LOCK:
            rank_columns[(num_blocks, num_column_groups)](
                *column_args, **rank_options, **shared_options
            )
            sum_trees[(num_blocks * num_groups,)](*tree_args, **tree_options, **shared_options)

    return launch
