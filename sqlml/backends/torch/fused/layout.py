"""`Layout`: the nodes, leaves and sums of an Ensemble as the arrays that the kernel reads.

Trees of few levels are filled up to perfect ones: node i of a level has the children 2i and
2i + 1 of the next, so a step reads one number of 4 bytes and no child. Others lie level by level,
both children of a node side by side. Either way the upper levels, which all rows pass, lie
together and stay in the cache next to the processor.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sqlml.backends.torch.fused.columns import Columns
from sqlml.ir.decisions import decisions
from sqlml.ir.trees import Ensemble
from sqlml.types import Array

PERFECT_DEPTH = 10
PERFECT_GROWTH = 8
"""Trees become perfect ones if none is deeper, and all get at most so many times their nodes."""

PERFECT_BYTES = 1 << 28
"""Most bytes of leaves' values that perfect trees may have; each of their leaves has its own."""

WIDEST = 128
"""Most outputs that one program of the kernel sums up; more are shared out among several."""


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """Trees by slot, and groups of outputs.

    Of each tree, int32 (T,): its `depth`, its first slot, its first row of `values` if `perfect`.
    Of each slot: `node`, packed (`_packed`), and unless perfect `child`, int32: the slot (from the
    tree's first on) of the child for rows that fail the test (the other one follows), or ~leaf.
    `values` (rows, V).
    Group g sums outputs `output[g]` .. of `count[g]`; it adds `terms` (tree, first value of a
    leaf), int32 (Q, 2), from `begin[g]` to `begin[g+1]`, in order.
    """

    perfect: bool
    depth: Array
    first_slot: Array
    first_value: Array
    node: Array
    child: Array
    values: Array
    output: Array
    count: Array
    begin: Array
    terms: Array


def layout(e: Ensemble, c: Columns) -> Layout:
    """Lay out the trees of `e`, whose nodes test the columns of `c`."""
    packed = _packed(c)
    d = decisions(e)
    children = np.stack([d.otherwise, d.then], axis=1).astype(np.int64)
    depth = _depths(e)
    leaves = (1 << np.minimum(depth, PERFECT_DEPTH + 1)).sum()
    perfect = bool(
        depth.max(initial=0) <= PERFECT_DEPTH
        and leaves <= PERFECT_GROWTH * (e.nodes + e.trees)
        and leaves * e.leaf_values[:1].nbytes <= PERFECT_BYTES
    )
    if perfect:
        node, values, first_slot, first_value = _perfect(e, children, packed, depth)
        child = np.zeros(1, np.int32)
    else:
        node, child, first_slot = _by_level(e, children, packed)
        values, first_value = e.leaf_values, np.zeros(e.trees, np.int64)
    output, count, begin, terms = _groups(e)
    return Layout(
        perfect,
        depth.astype(np.int32),
        first_slot.astype(np.int32),
        first_value.astype(np.int32),
        node,
        child,
        values,
        output,
        count,
        begin,
        terms,
    )


def _packed(c: Columns) -> Array:
    """A number for each node: its column above its test, 16 bits each, or 32 bits each.

    The column of a categorical node is written as ~column.
    """
    column = np.where(c.categorical, ~c.column, c.column)
    if c.narrow and not c.categorical.any():
        return (column << 16 | (c.test & 0xFFFF)).astype(np.int32)
    return column << 32 | (c.test & 0xFFFFFFFF)


def _depths(e: Ensemble) -> Array:
    """Tests on the longest path of each tree, int64 (T,)."""
    depth = np.zeros(e.trees, np.int64)
    if e.nodes:
        np.maximum.at(depth, e.node_roots(), e.depths().astype(np.int64) + 1)
    return depth


def _perfect(
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
        for above in range(int(d)):
            inner = level >= 0
            slots = first_slot[trees][:, None] + (1 << above) - 1 + np.arange(1 << above)
            node[slots[inner]] = packed[level[inner]]
            both = np.stack([level, level], axis=2)  # a leaf is its own children
            both[inner] = children[level[inner]]
            level = both.reshape(trees.size, -1)
        leaf[first_value[trees][:, None] + np.arange(1 << int(d))] = ~level
    return node, e.leaf_values[leaf], first_slot, first_value


def _by_level(e: Ensemble, children: Array, packed: Array) -> tuple[Array, Array, Array]:
    level, tree = e.roots.astype(np.int64), np.arange(e.trees)
    levels, trees, first_child = [level], [tree], []
    entries = level.size
    while level.size:
        inner = level >= 0
        place = np.full(level.size, -1, np.int64)
        place[inner] = entries + 2 * np.arange(int(inner.sum()))
        first_child.append(place)
        level, tree = children[level[inner]].ravel(), np.repeat(tree[inner], 2)
        levels.append(level)
        trees.append(tree)
        entries += level.size
    entry = np.concatenate(levels)
    below = np.concatenate([*first_child, np.zeros(0, np.int64)])
    owner = np.concatenate(trees)  # the root of tree t is entry t
    order = np.argsort(owner, kind="stable")  # tree by tree, level by level
    slot = np.empty(order.size, np.int64)
    slot[order] = np.arange(order.size)
    inner = entry >= 0
    node = np.zeros(max(1, entry.size), packed.dtype)
    child = np.zeros(max(1, entry.size), np.int32)
    node[slot[inner]] = packed[entry[inner]]
    child[slot[inner]] = slot[below[inner]] - slot[owner[inner]]
    child[slot[~inner]] = entry[~inner]
    return node, child, slot[: e.trees]


def _groups(e: Ensemble) -> tuple[Array, Array, Array, Array]:
    """Outputs that the same trees add to, at most WIDEST together."""
    values = e.leaf_values.shape[1]
    targets = np.unique(e.target)
    made: list[tuple[int, int, Array]] = []
    if (np.diff(targets) >= values).all():
        for target in targets:
            trees = np.flatnonzero(e.target == target)
            for first in range(0, values, WIDEST):
                terms = np.stack([trees, np.full(trees.size, first)], axis=1)
                made.append((int(target) + first, min(WIDEST, values - first), terms))
    else:  # some targets overlap, so each output has an order of its own
        for k in range(e.outputs):
            trees = np.flatnonzero((e.target <= k) & (k < e.target + values))
            made.append((k, 1, np.stack([trees, k - e.target[trees]], axis=1)))
    sizes = [terms.shape[0] for _, _, terms in made]
    return (
        np.array([output for output, _, _ in made], np.int32),
        np.array([count for _, count, _ in made], np.int32),
        np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32),
        np.concatenate([terms for _, _, terms in made] or [np.zeros((0, 2))]).astype(np.int32),
    )
