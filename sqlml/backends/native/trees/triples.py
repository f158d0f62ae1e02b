"""`triples`: the order in which `walk` looks at nodes, three at a time where it can.

A node and its two children are answered together, and the rows at the node are found once. From the
root down, two levels of a tree at a time become triples; the second may lack a child. What is left
are nodes without inner children, one by one, as are all of a tree of few nodes.
"""

from __future__ import annotations

import numpy as np

from sqlml.backends.native.trees.exits import Exits
from sqlml.ir.trees import Ensemble
from sqlml.types import Array

NONE = -1
"""In place of a child that is an exit."""

FEW = 4
"""Nodes of a tree for which a second loop would take longer than it saves."""


def triples(e: Ensemble, numbered: Exits, alone: Array | None = None) -> tuple[Array, Array]:
    """The upper nodes of `e`, and where those of each tree begin, both int64.

    Of tree t, entries starts[2t] to starts[2t + 1] are triples: a node, its left and its right
    child, or NONE; those to starts[2t + 2] are single nodes. Parents come before children. The
    nodes of the trees `alone`, bool (T,), are all single.
    """
    node, sizes = numbered.node, np.diff(numbered.starts)
    tree = np.repeat(np.arange(e.trees), sizes)
    single = sizes <= FEW
    if alone is not None:
        single |= alone
    upper = np.zeros(e.nodes + 1, bool)  # the entry after the last node serves all leaves
    upper[node] = True

    def child(of: Array) -> Array:
        below = np.maximum(of[node].astype(np.int64), NONE)
        return np.where(upper[below], below, NONE)

    left, right = child(e.left), child(e.right)
    first = e.depths()[node] % 2 == 0
    apart = single[tree]
    three = first & ((left != NONE) | (right != NONE)) & ~apart
    one = (first & ~three) | apart
    listed = np.concatenate([np.stack([node, left, right], 1)[three].ravel(), node[one]])
    kind = np.concatenate([np.repeat(2 * tree[three], 3), 2 * tree[one] + 1])
    order = np.argsort(kind, kind="stable")
    return listed[order], np.searchsorted(kind[order], np.arange(2 * e.trees + 1))
