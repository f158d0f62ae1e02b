"""`lower_trees`: what the tree strategies share: from a tree_ensemble to exit leaves to sums.

A strategy finds the number of the leaf in which each row leaves each tree. Trees of like size
are treated together, so that small ones are not padded to the largest, and the leaves' values are
added in the source's order in the source's dtype, so the result is that of the reference bit for
bit. (Hummingbird ends in a multiplication of one-hot rows by leaves' values and a mean over the
trees; indexing gives the same values, for infinite ones and on hardware that rounds its products
as well, and a fixed order gives the same sums.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from sqlml.ir.builder import Builder, Value
from sqlml.ir.program import Node, Program
from sqlml.ir.rewrite import rewrite
from sqlml.ir.trees import Ensemble
from sqlml.passes.lowering.node_tests import NodeTests
from sqlml.types import Array


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """Where the nodes of T trees hang: M inner nodes, L leaves.

    Of each inner node (int64 (M,)) and leaf (int64 (L,)): the tree, and the inner node above,
    -1 at a root; `depth` int64 (T,) is the number of tests on a tree's longest path.
    """

    node_tree: Array
    leaf_tree: Array
    node_parent: Array
    leaf_parent: Array
    depth: Array


def shape_of(e: Ensemble) -> Shape:
    """Walk the trees of `e` level by level."""
    leaves = e.leaf_values.shape[0]
    node_tree, node_parent = np.full((2, e.nodes), -1, np.int64)
    leaf_tree, leaf_parent = np.full((2, leaves), -1, np.int64)
    depth = np.zeros(e.trees, np.int64)
    level, tree = e.roots.astype(np.int64), np.arange(e.trees)
    parent = np.full(e.trees, -1, np.int64)
    while level.size:
        inner = level >= 0
        nodes, exits = level[inner], ~level[~inner]
        node_tree[nodes], node_parent[nodes] = tree[inner], parent[inner]
        leaf_tree[exits], leaf_parent[exits] = tree[~inner], parent[~inner]
        depth[np.unique(tree[inner])] += 1
        level = np.concatenate([e.left[nodes], e.right[nodes]]).astype(np.int64)
        tree, parent = np.tile(tree[inner], 2), np.tile(nodes, 2)
    return Shape(node_tree, leaf_tree, node_parent, leaf_parent, depth)


Find = Callable[[Array], Value]
"""Numbers of trees, none a bare leaf -> the exit leaf of each row in each, int64 (n, trees)."""
Strategy = Callable[[NodeTests, Shape], Find]
"""How to find exit leaves; it raises BackendError if it should not be used."""
Size = Callable[[Shape], Array]
"""The sizes of the trees, int64 (T,); trees up to the same power of two go together."""


def lower_trees(program: Program, strategy: Strategy, size: Size) -> Program:
    """A copy of `program` in which each tree_ensemble has become tensor operators."""

    def rule(builder: Builder, node: Node, inputs: Sequence[Value]) -> Value | None:
        if node.op != "tree_ensemble":
            return None
        e = Ensemble.of(node.attrs)
        leaves = _exit_leaves(builder, inputs[0], e, strategy, size)
        values = builder.op("take", builder.constant(e.leaf_values), leaves)
        return builder.op("accumulate", values, base=e.base, target=e.target)

    return rewrite(program, rule, keep_inputs=True)


def _exit_leaves(builder: Builder, x: Value, e: Ensemble, strategy: Strategy, size: Size) -> Value:
    shape = shape_of(e)
    group = np.where(e.roots < 0, -1, np.ceil(np.log2(np.maximum(size(shape), 1))).astype(np.int64))
    parts: list[Value] = []
    members: list[Array] = []
    find: Find | None = None
    for number in np.unique(group):
        trees = np.flatnonzero(group == number)
        members.append(trees)
        if number < 0:
            parts.append(_bare(builder, x, ~e.roots[trees]))
            continue
        if find is None:
            find = strategy(NodeTests(builder, x, e), shape)
        parts.append(find(trees))
    if not parts:
        return _bare(builder, x, np.zeros(0, np.int64))
    leaves = builder.beside(parts)
    order = np.argsort(np.concatenate(members))
    if np.array_equal(order, np.arange(order.size)):
        return leaves
    return builder.op("select", leaves, indices=order)


def _bare(builder: Builder, x: Value, leaves: Array) -> Value:
    """int64 (n, leaves.size): the same leaves for every row."""
    nothing = builder.op("select", x, indices=np.zeros(0, np.int64))
    zero = builder.op("cast", builder.op("sum", nothing, axis=1), dtype="int64")
    return builder.op("add", zero, builder.constant(leaves.astype(np.int64)))
