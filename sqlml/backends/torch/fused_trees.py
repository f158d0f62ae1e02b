"""`bind_trees`: run a tree_ensemble on a GPU as two kernel launches.

A GPU is fast if it reads few bytes. So the first kernel replaces each value with its rank among the
thresholds of its column: `y <= threshold` is exactly `rank(y) <= rank(threshold)`, where y is x or
-x (`ir/tree_shape.py`). NaN has a rank above all others; a test that never holds has rank -1. Trees
with few levels are padded to perfect trees, so a step reads 4 bytes and no child. Other trees are
stored level by level, with both children of a node side by side.
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
"""Maximum number of words (4 bytes) of category sets, padded to one length for each feature.
Their number of bits, a multiple of 32 up to 2^29, is exact in float32."""


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """The C columns that nodes test, numeric columns before categorical ones, and the M tests.

    Column c is made from input `feature[c]` (int32), negated if `negated[c]` (int8). A numeric
    column has `size` -1 (int32) and holds ranks among the column's `edges` (C, 2^steps - 1), which
    are padded with infinity; NaN has rank `missing`. A categorical column holds trunc(x) for
    0 <= x < size, `size` for other numbers, and `size` + 1 for NaN.

    Inner node i tests `column[i]` with `test[i]`, both int64. The test is a rank, or if
    `categorical[i]` the index in `words` (uint32) where the node's set begins, with a bit per code.
    If `narrow`, ranks, codes and columns fit into 16 bits.
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
    no_nodes = np.zeros(ensemble.nodes, bool)
    categorical = no_nodes if ensemble.categorical is None else ensemble.categorical
    numeric_nodes = np.flatnonzero(~categorical)
    # Columns of x come first, then those of -x.
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
        negated=np.append(numeric_columns >> 32, np.zeros(set_feature.size, np.int64)).astype(
            np.int8
        ),
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
    """Set `column` and `test` of categorical nodes; return `feature`, `size` and `words`."""
    empty = np.zeros(0, np.int64)
    if ensemble.categorical is None or ensemble.set_offsets is None or ensemble.set_words is None:
        return empty, empty, np.zeros(1, np.uint32)
    nodes = np.flatnonzero(ensemble.categorical)
    features, feature_of_node = np.unique(ensemble.feature[nodes], return_inverse=True)
    counts = np.diff(ensemble.set_offsets)[nodes].astype(np.int64)
    max_counts = np.zeros(features.size, np.int64)
    np.maximum.at(max_counts, feature_of_node, counts)
    # The last word is for NaN and for numbers that are not categories.
    begin = np.concatenate([[0], np.cumsum(max_counts[feature_of_node] + 1)])
    if begin[-1] > MAX_WORDS:
        raise BackendError(
            f"strategy fused pads all category sets of a feature to the same length, {begin[-1]} "
            f"words in all (the limit is {MAX_WORDS}); use strategy='tt'"
        )
    words = np.zeros(max(1, int(begin[-1])), np.uint32)
    for position, node in enumerate(nodes):
        first, stop = ensemble.set_offsets[node], ensemble.set_offsets[node + 1]
        words[begin[position] : begin[position] + counts[position]] = ensemble.set_words[first:stop]
    words[begin[1:] - 1] = np.where(ensemble.default_left[nodes], 2, 0)
    column[nodes], test[nodes] = num_numeric + feature_of_node, begin[:-1]
    return features.astype(np.int64), 32 * max_counts, words


PERFECT_DEPTH = 10
PERFECT_GROWTH = 8
"""Trees are padded to perfect trees up to this depth and this growth of the number of nodes."""

PERFECT_BYTES = 1 << 28
"""Maximum number of bytes of the leaf values of perfect trees."""

WIDEST = 128
"""Maximum number of outputs that one program of the kernel sums."""


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """The arrays of trees and of groups of outputs that the kernel reads.

    Each tree has a `depth`, a `first_slot` and, if `perfect`, the row `first_value` of `values`
    (rows, V) where its leaf values begin; all three are int32 (T,). Each slot holds a `node`,
    packed by `_pack_nodes`. Unless `perfect`, it also holds a `child`: ~leaf, or the slot of the
    child for rows that fail the test, counted from the tree's first slot. The child for rows that
    pass the test follows it. Group g sums `count[g]` outputs from `output[g]` on, over the terms
    from `begin[g]` to `begin[g + 1] - 1`; a row of `terms`, int32 (Q, 2), is a tree and the column
    of `values` to add to the first of these outputs.
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
    leaves = (1 << np.minimum(depth, PERFECT_DEPTH + 1)).sum()
    is_perfect = bool(
        depth.max(initial=0) <= PERFECT_DEPTH
        and leaves <= PERFECT_GROWTH * (ensemble.nodes + ensemble.trees)
        and leaves * ensemble.leaf_values[:1].nbytes <= PERFECT_BYTES
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
    """Return one integer per node, with its column in the high half and its test in the low half.

    A half has 16 or 32 bits. Nodes that test a category set have ~column instead of the column.
    """
    column = np.where(columns.categorical, ~columns.column, columns.column)
    if columns.narrow and not columns.categorical.any():
        return (column << 16 | (columns.test & 0xFFFF)).astype(np.int32)
    return column << 32 | (columns.test & 0xFFFFFFFF)


def _lay_out_perfect(
    ensemble: Ensemble, children: Array, packed: Array, depth: Array
) -> tuple[Array, Array, Array, Array]:
    """Pad trees to perfect trees; return node, values, first_slot and first_value of a `Layout`."""
    leaf_counts = 1 << depth
    first_slot = np.cumsum(leaf_counts - 1) - (leaf_counts - 1)
    first_value = np.cumsum(leaf_counts) - leaf_counts
    node = np.zeros(max(1, int((leaf_counts - 1).sum())), packed.dtype)
    leaf = np.zeros(int(leaf_counts.sum()), np.int64)
    for tree_depth in np.unique(depth):
        trees = np.flatnonzero(depth == tree_depth)
        level = ensemble.roots[trees].astype(np.int64)[:, None]
        for nodes_of_level in 1 << np.arange(tree_depth):
            is_inner = level >= 0
            slots = first_slot[trees][:, None] + nodes_of_level - 1 + np.arange(nodes_of_level)
            node[slots[is_inner]] = packed[level[is_inner]]
            children_of_level = np.stack([level, level], axis=2)  # A leaf is its own child.
            children_of_level[is_inner] = children[level[is_inner]]
            level = children_of_level.reshape(trees.size, -1)
        leaf[first_value[trees][:, None] + np.arange(1 << int(tree_depth))] = ~level
    return node, ensemble.leaf_values[leaf], first_slot, first_value


def _lay_out_by_level(
    ensemble: Ensemble, children: Array, packed: Array
) -> tuple[Array, Array, Array]:
    """Number slots by tree and by level; return node, child and first_slot of a `Layout`."""
    level, tree = ensemble.roots.astype(np.int64), np.arange(ensemble.trees)
    levels, trees, first_child = [level], [tree], []
    entry_count = level.size
    while level.size:
        is_inner = level >= 0
        position = np.full(level.size, -1, np.int64)
        position[is_inner] = entry_count + 2 * np.arange(int(is_inner.sum()))
        first_child.append(position)
        level, tree = children[level[is_inner]].ravel(), np.repeat(tree[is_inner], 2)
        levels.append(level)
        trees.append(tree)
        entry_count += level.size
    entry = np.concatenate(levels)
    first_child_of = np.concatenate([*first_child, np.zeros(0, np.int64)])
    tree_of_entry = np.concatenate(trees)  # The root of tree t is entry t.
    order = np.argsort(tree_of_entry, kind="stable")  # The order is by tree, then by level.
    slot = np.empty(order.size, np.int64)
    slot[order] = np.arange(order.size)
    is_inner = entry >= 0
    node = np.zeros(max(1, entry.size), packed.dtype)
    child = np.zeros(max(1, entry.size), np.int32)
    node[slot[is_inner]] = packed[entry[is_inner]]
    child[slot[is_inner]] = slot[first_child_of[is_inner]] - slot[tree_of_entry[is_inner]]
    child[slot[~is_inner]] = entry[~is_inner]
    return node, child, slot[: ensemble.trees]


def _group_outputs(ensemble: Ensemble) -> tuple[Array, Array, Array, Array]:
    """Divide the outputs into groups of at most WIDEST outputs to which the same trees add.

    Return the arrays `output`, `count`, `begin` and `terms` of a `Layout`.
    """
    value_count = ensemble.leaf_values.shape[1]
    targets = np.unique(ensemble.target)
    groups: list[tuple[int, int, Array]] = []
    if (np.diff(targets) >= value_count).all():
        for target in targets:
            trees = np.flatnonzero(ensemble.target == target)
            for first in range(0, value_count, WIDEST):
                terms = np.stack([trees, np.full(trees.size, first)], axis=1)
                groups.append((int(target) + first, min(WIDEST, value_count - first), terms))
    else:  # Some targets overlap, so each output has its own order.
        for k in range(ensemble.outputs):
            trees = np.flatnonzero((ensemble.target <= k) & (k < ensemble.target + value_count))
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
"""Held during launches: the first launch compiles a kernel, which only one thread may do."""

COLUMNS = 32
"""Number of columns that one program ranks, so that it reads its rows from memory only once."""
TILE = 8192
"""Maximum number of sums of one program of the kernel, which need 64 registers per thread."""

ROWS = ((1 << 18, 512), (1 << 16, 256), (0, 128))
"""Pairs: a batch of at least this many rows, and the rows per program. Small batches should fill
more processors of the GPU; large batches should read the trees less often."""


def is_interpreted() -> bool:
    """Return True if Triton interprets its kernels on the CPU, which is slow, for tests."""
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
    ensemble: Ensemble, tested: Columns, layout: Layout, base: Tensor, put: Put
) -> Callable[[Tensor, Tensor], None]:
    """Return a function that launches both kernels for x (n, F) and fills out (n, K)."""
    # Triton is available only with a GPU.
    from sqlml.backends.torch.triton_kernels import rank_columns, sum_trees

    column_count, dtype = tested.feature.size, torch.int16 if tested.narrow else torch.int32
    tests = [put(array) for array in (tested.feature, tested.negated, tested.size, tested.edges)]
    _, *arrays_of_trees = (getattr(layout, field.name) for field in fields(layout))
    arrays = [put(array) for array in (tested.words.view("int32"), *arrays_of_trees)]
    group_count = layout.output.size
    width = 1 << (int(layout.count.max(initial=1)) - 1).bit_length()
    sizes = (ensemble.leaf_values.shape[1], ensemble.outputs, group_count)
    is_packed = layout.node.dtype == np.int32
    options = {"PERFECT": layout.perfect, "PACKED": is_packed, "WIDTH": width}

    def launch(x: Tensor, out: Tensor) -> None:
        row_count, width_of_x = x.shape
        tile = min(next(tile for min_rows, tile in ROWS if row_count >= min_rows), TILE // width)
        blocks = -(-row_count // tile)
        ranks = torch.empty((blocks, max(1, column_count), tile), dtype=dtype, device=x.device)
        common = {"SETS": ensemble.has_categories, "ROWS": tile, "num_warps": WARPS}
        column_args = (x.contiguous(), row_count, width_of_x, column_count, *tests, ranks)
        tree_args = (ranks, row_count, column_count, *arrays, base, out, *sizes)
        with _LAUNCH_LOCK:
            rank_columns[(blocks, -(-column_count // COLUMNS) or 1)](
                *column_args, MISSING=tested.missing, STEPS=tested.steps, EACH=COLUMNS, **common
            )
            sum_trees[(blocks * group_count,)](*tree_args, **options, **common)

    return launch
