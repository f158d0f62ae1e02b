"""Perfect tree traversal: the same as tree traversal with children that need no table.

Hummingbird, section 4.1, algorithm 3. A leaf above the last level stands for a perfect subtree all
of whose leaves are that leaf. Node i of a level has the children 2i and 2i + 1 of the next, and
so has node i of all trees of a group, concatenated. Child 2i + 1 is where a row goes that
passes the test, so the test itself is the step.
"""

from __future__ import annotations

import numpy as np

from sqlml.errors import BackendError
from sqlml.ir.builder import Value
from sqlml.ir.program import Program
from sqlml.passes.lowering.exit_leaves import Find, Shape, lower_trees
from sqlml.passes.lowering.node_tests import NodeTests
from sqlml.types import Array

MAX_DEPTH = 10
"""Perfect trees double with each level; the paper's own limit (section 5.1)."""


def lower_ptt(program: Program) -> Program:
    """Write each tree_ensemble as perfect tree traversal.

    Raises:
        BackendError: a tree is deeper than MAX_DEPTH.
    """
    return lower_trees(program, _strategy, lambda shape: shape.depth)


def refusal(shape: Shape) -> str | None:
    """Why trees of this shape are not written so; None: they are."""
    deepest = int(shape.depth.max(initial=0))
    if deepest <= MAX_DEPTH:
        return None
    return (
        f"strategy ptt pads every tree to a perfect one, and a tree of depth {deepest} would "
        f"get 2^{deepest} leaves (the limit is depth {MAX_DEPTH}); use strategy='tt'"
    )


def _strategy(tests: NodeTests, shape: Shape) -> Find:
    b, e = tests.builder, tests.ensemble
    reason = refusal(shape)
    if reason is not None:
        raise BackendError(reason)

    def find(trees: Array) -> Value:
        level = e.roots[trees].astype(np.int64)
        two = b.constant(np.array([2], np.int64))
        index: Value | None = None
        for _ in range(int(shape.depth[trees].max())):
            nodes = np.where(level >= 0, level, e.nodes)
            if index is None:
                step = b.op("cast", tests.at(nodes), dtype="int64")
                index = b.op("add", step, b.constant(2 * np.arange(trees.size, dtype=np.int64)))
            else:
                holds = tests.look_up(tests.table(nodes), index)
                step = b.op("cast", holds, dtype="int64")
                index = b.op("add", b.op("mul", index, two), step)
            inner = level >= 0
            children = np.stack(
                [
                    np.where(inner, tests.otherwise[nodes], level),
                    np.where(inner, tests.then[nodes], level),
                ],
                axis=1,
            )
            level = children.ravel()
        if index is None:
            raise AssertionError("a tree that is a bare leaf needs no traversal")
        return b.op("take", b.constant(~level), index)

    return find
