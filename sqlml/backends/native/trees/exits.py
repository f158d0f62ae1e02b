"""`Exits`: the upper part of each tree, and the numbers of the places where rows leave it.

Exits are leaves, or subtrees where the upper part is cut. They are numbered from left to right,
tree by tree, so that a row's exit is the leftmost one that its tests allow.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sqlml.ir.trees import Ensemble
from sqlml.types import Array


@dataclass(frozen=True, slots=True, eq=False)
class Exits:
    """Of T trees with U inner nodes in their upper parts and E exits; all int64.

    first (T + 1,): the first exit of each tree. exit (E,): the inner node below it, or ~leaf.
    node (U,): inner nodes of the Ensemble, tree by tree and parents before children; starts
    (T + 1,): the first of each tree; lo (U,): the leftmost exit below a node, mid (U,) that of its
    right child, and last (U,) the rightmost below it, counted from the tree's first.
    """

    first: Array
    exit: Array
    node: Array
    starts: Array
    lo: Array
    mid: Array
    last: Array


def exits(e: Ensemble, cut: Array | None = None) -> Exits:
    """Number the exits of `e` where inner nodes at depth `cut[t]` of tree t are exits (default:
    none are).
    """
    left, right, roots = (a.astype(np.int64) for a in (e.left, e.right, e.roots))
    depths, owner = e.depths(), e.node_roots()
    # The entry after the last node serves all leaves, whose numbers are below 0.
    upper = np.append(np.ones(e.nodes, bool) if cut is None else depths < cut[owner], False)
    size = np.ones(e.nodes + 1, np.int64)
    by_depth = np.argsort(depths, kind="stable")
    by_depth = by_depth[upper[by_depth]]
    levels = np.split(by_depth, np.flatnonzero(np.diff(depths[by_depth])) + 1)

    def below(children: Array) -> Array:
        return size[np.maximum(children, -1)]

    for level in reversed(levels):
        size[level] = below(left[level]) + below(right[level])
    first = np.cumsum([0, *below(roots)], dtype=np.int64)
    start = np.zeros(e.nodes, np.int64)
    exit_of = np.zeros(int(first[-1]), np.int64)

    def place(children: Array, at: Array) -> None:
        inner = upper[np.maximum(children, -1)]
        start[children[inner]] = at[inner]
        exit_of[at[~inner]] = children[~inner]

    place(roots, first[:-1])
    middle = np.zeros(e.nodes, np.int64)
    for level in levels:
        middle[level] = start[level] + below(left[level])
        place(left[level], start[level])
        place(right[level], middle[level])
    node = np.flatnonzero(upper[:-1])
    before = first[owner[node]]
    return Exits(
        first=first,
        exit=exit_of,
        node=node,
        starts=np.searchsorted(owner[node], np.arange(e.trees + 1)),
        lo=start[node] - before,
        mid=middle[node] - before,
        last=start[node] + size[node] - 1 - before,
    )
