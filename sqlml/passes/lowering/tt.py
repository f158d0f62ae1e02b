"""Tree traversal: every row goes down every tree at once, one level a step.

Hummingbird, section 4.1, algorithm 2. All trees share one numbering, inner nodes first and then
leaves, so nothing is padded; leaves are their own children. The first step is at the same nodes
for every row, so it looks nothing up. Both children of a node lie in one table, the one for rows
that fail its test first: one lookup is faster than two and a choice between them (N_L and N_R of
the paper).
"""

from __future__ import annotations

import numpy as np

from sqlml.ir.builder import Value
from sqlml.ir.program import Program
from sqlml.passes.lowering.exit_leaves import Find, Shape, lower_trees
from sqlml.passes.lowering.node_tests import NodeTests
from sqlml.types import Array


def lower_tt(program: Program) -> Program:
    """Write each tree_ensemble as tree traversal; any depth."""
    return lower_trees(program, _strategy, lambda shape: shape.depth)


def _strategy(tests: NodeTests, shape: Shape) -> Find:
    b, e = tests.builder, tests.ensemble
    nodes, leaves = e.nodes, e.leaf_values.shape[0]

    def numbered(child: Array) -> Array:
        inner = np.where(child >= 0, child, nodes + ~child)[:nodes]
        return np.concatenate([inner, np.arange(nodes, nodes + leaves)])

    children = np.stack([numbered(tests.otherwise), numbered(tests.then)], axis=1)
    table = tests.table(np.minimum(np.arange(nodes + leaves), nodes))
    child_table, two = b.constant(children.ravel()), b.constant(np.array([2], np.int64))

    def find(trees: Array) -> Value:
        roots = e.roots[trees]
        step = b.op("cast", tests.at(roots), dtype="int64")
        first = b.op("add", step, b.constant(2 * np.arange(trees.size, dtype=np.int64)))
        at = b.op("take", b.constant(children[roots].ravel()), first)
        for _ in range(int(shape.depth[trees].max()) - 1):
            holds = tests.look_up(table, at)
            step = b.op("cast", holds, dtype="int64")
            at = b.op("take", child_table, b.op("add", b.op("mul", at, two), step))
        return b.op("sub", at, b.constant(np.array([nodes], np.int64)))

    return find
