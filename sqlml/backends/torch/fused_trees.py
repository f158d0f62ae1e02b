"""`bind`: a tree_ensemble as two kernel launches per block of rows.

A GPU reads few bytes fast. So each value becomes its rank among the thresholds of its column:
`y <= threshold` is `rank(y) <= rank(threshold)`, exactly (see `ir/tree_shape.py` for y, which is x
or -x). NaN has a rank above all; a test that never holds has rank -1. Trees of few levels are
padded to perfect ones, so a step reads 4 bytes and no child. Other trees are stored level by level,
with both children of a node side by side.
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
"""Largest column, rank and code that fits 16 bits, so that a node fits 32."""

MAX_EDGES = 1 << 28
"""Most thresholds, counted as if all columns had as many as the one with the most."""

MAX_WORDS = 1 << 24
"""Most words (4 bytes) of category sets, counted as if all sets of a feature were equally long.
Multiples of 32 up to 2^29 codes, their number of bits, are exact in float32."""


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """The C columns that nodes test, numeric ones before categories, and the tests.

    For each column: its `feature`, int32, and whether it is `negated`, int8. A numeric column has
    `size` -1 and contains ranks among its `edges` (C, 2^steps - 1), padded with infinity; NaN has
    rank `missing`. A column of categories contains trunc(x) for 0 <= x < size (int32), size for
    other numbers, and size + 1 for NaN. For each inner node, int64 (M,): its `column`, and its
    `test`, which is a rank, or for `categorical` nodes (bool) the first word of its set in `words`
    (uint32) with a bit per code. If `narrow`, ranks, codes and columns fit 16 bits.
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


def collect_columns(e: Ensemble) -> Columns:
    """Return the columns that the nodes of `e` test, if they need few edges and words."""
    d = unify_decisions(e)
    none = np.zeros(e.nodes, bool)
    categorical = none if e.categorical is None else e.categorical
    number = np.flatnonzero(~categorical)
    # Columns of x come first, then those of -x.
    kinds, of_node = np.unique(
        d.negated[number].astype(np.int64) << 32 | d.feature[number], return_inverse=True
    )
    column, test = np.zeros((2, e.nodes), np.int64)
    column[number] = of_node
    edges_of_columns: list[Array] = []
    for j in range(kinds.size):
        nodes = number[of_node == j]
        thresholds = d.threshold[nodes]
        never_holds = np.isnan(thresholds)
        edges_of_columns.append(np.unique(thresholds[~never_holds]))
        test[nodes] = np.where(never_holds, -1, np.searchsorted(edges_of_columns[-1], thresholds))
    longest = max((edges.size for edges in edges_of_columns), default=0)
    set_feature, set_size, words = _lay_out_sets(e, column, test, kinds.size)
    feature = np.concatenate([kinds & 0xFFFFFFFF, set_feature])
    steps = longest.bit_length()
    # Thresholds of float16 are searched in float32, which is exact.
    wide = np.float64 if e.threshold.dtype == np.float64 else np.float32
    if feature.size << steps > MAX_EDGES:
        raise BackendError(
            f"strategy fused gives all {feature.size} columns as many thresholds as the one with "
            f"the most, {longest} (the limit is {MAX_EDGES} in all); use strategy='tt'"
        )
    edges = np.full((max(1, feature.size), (1 << steps) - 1), np.inf, wide)
    for row, values in zip(edges, edges_of_columns, strict=False):
        row[: values.size] = values
    largest = max(feature.size, longest, int(set_size.max(initial=0)) + 1)
    return Columns(
        feature=feature.astype(np.int32),
        negated=np.append(kinds >> 32, np.zeros(set_feature.size, np.int64)).astype(np.int8),
        size=np.append(np.full(kinds.size, -1), set_size).astype(np.int32),
        edges=edges,
        steps=steps,
        column=column,
        test=test,
        categorical=categorical,
        words=words,
        narrow=largest < NARROW,
    )


def _lay_out_sets(
    e: Ensemble, column: Array, test: Array, numeric: int
) -> tuple[Array, Array, Array]:
    """Set `column` and `test` of categorical nodes; return features, sizes and words of sets."""
    nothing = np.zeros(0, np.int64)
    if e.categorical is None or e.set_offsets is None or e.set_words is None:
        return nothing, nothing, np.zeros(1, np.uint32)
    nodes = np.flatnonzero(e.categorical)
    features, of_node = np.unique(e.feature[nodes], return_inverse=True)
    counts = np.diff(e.set_offsets)[nodes].astype(np.int64)
    most = np.zeros(features.size, np.int64)
    np.maximum.at(most, of_node, counts)
    # The last word is for numbers that are not a category and for NaN.
    begin = np.concatenate([[0], np.cumsum(most[of_node] + 1)])
    if begin[-1] > MAX_WORDS:
        raise BackendError(
            f"strategy fused gives all sets of a feature the same length, and that is {begin[-1]} "
            f"words (the limit is {MAX_WORDS}); use strategy='tt'"
        )
    words = np.zeros(max(1, int(begin[-1])), np.uint32)
    for position, node in enumerate(nodes):
        first, stop = e.set_offsets[node], e.set_offsets[node + 1]
        words[begin[position] : begin[position] + counts[position]] = e.set_words[first:stop]
    words[begin[1:] - 1] = np.where(e.default_left[nodes], 2, 0)
    column[nodes], test[nodes] = numeric + of_node, begin[:-1]
    return features.astype(np.int64), 32 * most, words


PERFECT_DEPTH = 10
PERFECT_GROWTH = 8
"""Largest depth, and largest growth of the number of nodes, for which trees become perfect."""

PERFECT_BYTES = 1 << 28
"""Most bytes of the leaf values of perfect trees."""

WIDEST = 128
"""Most outputs that one program of the kernel sums; more are divided among several."""


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """The arrays of trees and of groups of outputs that the kernel reads.

    For each tree, int32 (T,): its `depth`, its first slot, and its first row of `values` (rows, V)
    if `perfect`. For each slot: `node`, packed by `_pack_nodes`, and unless perfect `child`: the
    slot of the child for rows that fail the test, relative to the tree's first (the other child
    follows it), or ~leaf. Group g sums `count[g]` outputs from `output[g]` on, over `terms` (tree,
    first value of a leaf), int32 (Q, 2), from `begin[g]` to `begin[g+1] - 1`.
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


def lay_out(e: Ensemble, c: Columns) -> Layout:
    """Return the layout of the trees of `e`, whose nodes test the columns of `c`."""
    packed = _pack_nodes(c)
    d = unify_decisions(e)
    children = np.stack([d.otherwise, d.then], axis=1).astype(np.int64)
    depth = e.tree_depths()
    leaves = (1 << np.minimum(depth, PERFECT_DEPTH + 1)).sum()
    perfect = bool(
        depth.max(initial=0) <= PERFECT_DEPTH
        and leaves <= PERFECT_GROWTH * (e.nodes + e.trees)
        and leaves * e.leaf_values[:1].nbytes <= PERFECT_BYTES
    )
    if perfect:
        node, values, first_slot, first_value = _lay_out_perfect(e, children, packed, depth)
        child = np.zeros(1, np.int32)
    else:
        node, child, first_slot = _lay_out_by_level(e, children, packed)
        values, first_value = e.leaf_values, np.zeros(e.trees, np.int64)
    depth, first_slot, first_value = (a.astype(np.int32) for a in (depth, first_slot, first_value))
    arrays = (node, child, depth, first_slot, first_value, values)
    return Layout(perfect, *arrays, *_group_outputs(e))


def _pack_nodes(c: Columns) -> Array:
    """Return each node's column (~column for categories) above its test, of 16 or 32 bits each."""
    column = np.where(c.categorical, ~c.column, c.column)
    if c.narrow and not c.categorical.any():
        return (column << 16 | (c.test & 0xFFFF)).astype(np.int32)
    return column << 32 | (c.test & 0xFFFFFFFF)


def _lay_out_perfect(
    e: Ensemble, children: Array, packed: Array, depth: Array
) -> tuple[Array, Array, Array, Array]:
    leaves = 1 << depth
    first_slot = np.cumsum(leaves - 1) - (leaves - 1)
    first_value = np.cumsum(leaves) - leaves
    node = np.zeros(max(1, int((leaves - 1).sum())), packed.dtype)
    leaf = np.zeros(int(leaves.sum()), np.int64)
    for d in np.unique(depth):
        trees = np.flatnonzero(depth == d)
        level = e.roots[trees].astype(np.int64)[:, None]
        for nodes_of_level in 1 << np.arange(d):
            inner = level >= 0
            slots = first_slot[trees][:, None] + nodes_of_level - 1 + np.arange(nodes_of_level)
            node[slots[inner]] = packed[level[inner]]
            both = np.stack([level, level], axis=2)  # A leaf is its own child.
            both[inner] = children[level[inner]]
            level = both.reshape(trees.size, -1)
        leaf[first_value[trees][:, None] + np.arange(1 << int(d))] = ~level
    return node, e.leaf_values[leaf], first_slot, first_value


def _lay_out_by_level(e: Ensemble, children: Array, packed: Array) -> tuple[Array, Array, Array]:
    level, tree = e.roots.astype(np.int64), np.arange(e.trees)
    levels, trees, first_child = [level], [tree], []
    entries = level.size
    while level.size:
        inner = level >= 0
        position = np.full(level.size, -1, np.int64)
        position[inner] = entries + 2 * np.arange(int(inner.sum()))
        first_child.append(position)
        level, tree = children[level[inner]].ravel(), np.repeat(tree[inner], 2)
        levels.append(level)
        trees.append(tree)
        entries += level.size
    entry = np.concatenate(levels)
    first_child_of = np.concatenate([*first_child, np.zeros(0, np.int64)])
    owner = np.concatenate(trees)  # The root of tree t is entry t.
    order = np.argsort(owner, kind="stable")  # The order is by tree, then by level.
    slot = np.empty(order.size, np.int64)
    slot[order] = np.arange(order.size)
    inner = entry >= 0
    node = np.zeros(max(1, entry.size), packed.dtype)
    child = np.zeros(max(1, entry.size), np.int32)
    node[slot[inner]] = packed[entry[inner]]
    child[slot[inner]] = slot[first_child_of[inner]] - slot[owner[inner]]
    child[slot[~inner]] = entry[~inner]
    return node, child, slot[: e.trees]


def _group_outputs(e: Ensemble) -> tuple[Array, Array, Array, Array]:
    """Return groups of at most WIDEST outputs to which the same trees add."""
    values = e.leaf_values.shape[1]
    targets = np.unique(e.target)
    groups: list[tuple[int, int, Array]] = []
    if (np.diff(targets) >= values).all():
        for target in targets:
            trees = np.flatnonzero(e.target == target)
            for first in range(0, values, WIDEST):
                terms = np.stack([trees, np.full(trees.size, first)], axis=1)
                groups.append((int(target) + first, min(WIDEST, values - first), terms))
    else:  # Some targets overlap, so each output has its own order.
        for k in range(e.outputs):
            trees = np.flatnonzero((e.target <= k) & (k < e.target + values))
            groups.append((k, 1, np.stack([trees, k - e.target[trees]], axis=1)))
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
_LAUNCHING = threading.Lock()
"""Lock of launches: the first one compiles a kernel, which two threads must not do at once."""

COLUMNS = 32
"""Columns that one program ranks, so that it reads its rows from memory only once."""
TILE = 8192
"""Most sums of one program of the kernel, which take 64 registers per thread."""

ROWS = ((1 << 18, 512), (1 << 16, 256), (0, 128))
"""Pairs (least rows of a batch, rows per program). Small batches should fill more processors of the
GPU; large ones should read the trees less often."""


def is_interpreted() -> bool:
    """Return whether Triton interprets its kernels on the CPU, which is slow and for tests."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def explain_unavailable() -> str | None:
    """Return why no fused kernel can run here and what to do, or None if one can."""
    if find_spec("triton") is None:
        return "strategy fused needs triton, which pip install 'sqlml[gpu]' brings on Linux"
    if not is_interpreted() and not torch.cuda.is_available():
        return "strategy fused needs a GPU, and torch sees none; use strategy='tt' or 'ptt'"
    return None


def bind(node: Node, put: Put) -> Callable[[Tensor], Tensor]:
    """Return a function (n, F) -> (n, K) that runs a tree_ensemble node on the device."""
    e = Ensemble.of(node.attrs)
    base = put(e.base)
    reason = explain_unavailable()
    if reason is None and not (base.is_cuda or is_interpreted()):
        reason = "strategy fused runs only on a GPU; use device='cuda'"
    if reason is not None:
        raise BackendError(f"tree_ensemble must be lowered for this device: {reason}")
    c = collect_columns(e)
    trees = lay_out(e, c)
    launch = _bind_kernels(e, c, trees, base, put)

    def run(x: Tensor) -> Tensor:
        out = base.repeat(x.shape[0], 1)  # Outputs without trees keep their base.
        if x.shape[0] and trees.output.size:
            launch(x, out)
        return out

    return run


def _bind_kernels(
    e: Ensemble, c: Columns, trees: Layout, base: Tensor, put: Put
) -> Callable[[Tensor, Tensor], None]:
    """Return a function of rows (n, F) that writes their sums to a tensor (n, K)."""
    # Triton is available only with a GPU.
    from sqlml.backends.torch.triton_kernels import rank_columns, sum_trees

    count, dtype = c.feature.size, torch.int16 if c.narrow else torch.int32
    tests = [put(array) for array in (c.feature, c.negated, c.size, c.edges)]
    _, *arrays_of_trees = (getattr(trees, field.name) for field in fields(trees))
    arrays = [put(array) for array in (c.words.view("int32"), *arrays_of_trees)]
    groups = trees.output.size
    width = 1 << (int(trees.count.max(initial=1)) - 1).bit_length()

    def launch(x: Tensor, out: Tensor) -> None:
        n, columns = x.shape
        tile = min(next(tile for least, tile in ROWS if n >= least), TILE // width)
        blocks = -(-n // tile)
        staged = torch.empty((blocks, max(1, count), tile), dtype=dtype, device=x.device)
        common = {"SETS": e.has_categories, "ROWS": tile, "num_warps": WARPS}
        of_columns = (x.contiguous(), n, columns, count, *tests, staged)
        of_trees = (staged, n, count, *arrays, base, out)
        with _LAUNCHING:
            rank_columns[(blocks, -(-count // COLUMNS) or 1)](
                *of_columns,
                MISSING=c.missing,
                STEPS=c.steps,
                EACH=COLUMNS,
                **common,
            )
            sum_trees[(blocks * groups,)](
                *of_trees,
                e.leaf_values.shape[1],
                e.outputs,
                groups,
                PERFECT=trees.perfect,
                PACKED=trees.node.dtype == np.int32,
                WIDTH=width,
                **common,
            )

    return launch
