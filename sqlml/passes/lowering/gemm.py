"""GEMM: every node of every tree is tested for every row, and a product counts the path.

Hummingbird, section 4.1, algorithm 1, with its names A, B, C, D, E. A, a one-hot matrix, picks the
node's feature: here a select, which is the same and right for infinities. The second product
counts, per leaf, the tests that hold among those that should minus those that should not; the
exit leaf is the one whose count is D, the number of those that should. The counts are small
integers, exact in float32 and on hardware that rounds products to less. E, from one-hot rows to a
leaf's value, is an index (see `exit_leaves`).
"""

from __future__ import annotations

import numpy as np

from sqlml.errors import BackendError
from sqlml.ir.builder import Value
from sqlml.ir.program import Program
from sqlml.passes.lowering.exit_leaves import Find, Shape, lower_trees
from sqlml.passes.lowering.node_tests import NodeTests
from sqlml.types import Array

MAX_ENTRIES = 1 << 26
"""Most entries of the matrices C of one ensemble: 256 MB in float32, before padding."""


def lower_gemm(program: Program) -> Program:
    """Write each tree_ensemble as matrix products.

    Raises:
        BackendError: C, which grows with the square of a tree's nodes, has over MAX_ENTRIES.
    """
    return lower_trees(program, _strategy, _inner_nodes)


def _inner_nodes(shape: Shape) -> Array:
    return np.bincount(shape.node_tree, minlength=shape.depth.size)


def _leaves(shape: Shape) -> Array:
    return np.bincount(shape.leaf_tree, minlength=shape.depth.size)


def refusal(shape: Shape) -> str | None:
    """Why trees of this shape are not written so; None: they are."""
    nodes_of = _inner_nodes(shape)
    entries = int((nodes_of * _leaves(shape)).sum())
    if entries <= MAX_ENTRIES:
        return None
    return (
        f"strategy gemm tests every node for every row, and its matrices would have {entries} "
        f"entries for trees of up to {nodes_of.max()} nodes (the limit is {MAX_ENTRIES}); "
        "use strategy='tt'"
    )


def _strategy(tests: NodeTests, shape: Shape) -> Find:
    b, e = tests.builder, tests.ensemble
    reason = refusal(shape)
    if reason is not None:
        raise BackendError(reason)
    nodes_of, leaves_of = _inner_nodes(shape), _leaves(shape)
    node_place, leaf_place = _places(shape.node_tree), _places(shape.leaf_tree)

    def find(trees: Array) -> Value:
        count, inner = trees.size, int(nodes_of[trees].max())
        exits = int(leaves_of[trees].max())
        row = np.full(shape.depth.size, -1, np.int64)
        row[trees] = np.arange(count)
        mine = np.flatnonzero(row[shape.node_tree] >= 0)
        nodes = np.full((count, inner), e.nodes, np.int64)
        nodes[row[shape.node_tree[mine]], node_place[mine]] = mine
        leaves = np.flatnonzero(row[shape.leaf_tree] >= 0)
        tree, place = row[shape.leaf_tree[leaves]], leaf_place[leaves]
        numbers = np.zeros((count, exits), np.int64)
        numbers[tree, place] = leaves
        paths = np.zeros((count, inner, exits), np.float32)
        # No count reaches this, so a leaf that is only padding is never the exit.
        wanted = np.full((count, exits), inner + 1, np.float32)
        wanted[tree, place] = 0
        child, above = ~leaves, shape.leaf_parent[leaves]
        while leaves.size:
            holds = tests.then[above] == child
            paths[tree, node_place[above], place] = np.where(holds, 1, -1)
            wanted[tree, place] += holds
            child, above = above, shape.node_parent[above]
            on = above >= 0
            leaves, tree, place = leaves[on], tree[on], place[on]
            child, above = child[on], above[on]
        tested = b.op("cast", tests.at(nodes.ravel()), dtype="float32")
        tested = b.op("reshape", tested, shape=(count, inner))
        counts = b.op("batch_matmul", tested, b.constant(paths))
        # A product is 1.2 to 1.4 times as fast as a choice between numbers and 0.
        reached = b.op("cast", b.op("eq", counts, b.constant(wanted)), dtype="int64")
        found = b.op("mul", reached, b.constant(numbers))
        return b.op("reshape", b.op("max", found, axis=2), shape=(count,))

    return find


def _places(tree: Array) -> Array:
    """The number of each entry among those of the same tree, in their order."""
    order = np.argsort(tree, kind="stable")
    start = np.searchsorted(tree[order], np.arange(int(tree.max(initial=-1)) + 1))
    places = np.empty(tree.size, np.int64)
    places[order] = np.arange(tree.size) - start[tree[order]]
    return places
