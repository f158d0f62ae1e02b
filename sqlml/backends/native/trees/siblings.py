"""`Siblings`: nodes and leaves in one numbering, the children of a node side by side."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sqlml.types import Array


@dataclass(frozen=True, slots=True, eq=False)
class Siblings:
    """P places, tree by tree and level by level; all int64.

    reference (P,): the inner node at a place, or ~leaf. first (P,): the place of an inner node's
    left child, next to which the right one lies; a leaf's own place. begin (T + 1,): the first
    place of each tree, where its first start lies, followed by the others.
    """

    reference: Array
    first: Array
    begin: Array

    @property
    def inner(self) -> Array:
        """Whether a place holds an inner node, bool (P,)."""
        return np.asarray(self.reference >= 0)


def siblings(starts: Array, trees: Array, left: Array, right: Array) -> Siblings:
    """Number `starts`, references in order of their tree, and all that is below them.

    trees int64: how many starts each tree has. left and right: references by inner node.
    """
    level, owner = starts.astype(np.int64), np.repeat(np.arange(trees.size), trees)
    references, owners, children = [level[:0]], [owner[:0]], [level[:0]]
    count = 0
    while level.size:
        count += level.size
        inner = level >= 0
        child = np.full(level.size, -1, np.int64)
        child[inner] = count + 2 * np.arange(int(inner.sum()))
        references.append(level)
        owners.append(owner)
        children.append(child)
        node = level[inner]
        level = np.stack([left[node], right[node]], axis=1).ravel().astype(np.int64)
        owner = np.repeat(owner[inner], 2)
    tree = np.concatenate(owners)
    order = np.argsort(tree, kind="stable")
    place = np.empty(count, np.int64)
    place[order] = np.arange(count)
    reference, child = np.concatenate(references)[order], np.concatenate(children)[order]
    first = np.arange(count)
    first[reference >= 0] = place[child[reference >= 0]]
    return Siblings(reference, first, np.searchsorted(tree[order], np.arange(trees.size + 1)))
