"""`raw_trees`: the node arrays of scikit-learn's `tree_` objects as `ir.trees.RawTrees`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sqlml.ir.trees import RawTrees
from sqlml.types import Array

NO_CHILD = -1
"""sklearn/tree/_tree.pxd: TREE_LEAF."""


def raw_trees(trees: Sequence[Any], sizes: Sequence[int] | None = None) -> RawTrees:
    """All nodes of `trees` (sklearn.tree._tree.Tree), concatenated.

    `value` is (nodes, classes or 1) float64: class fractions of a classifier, means of a
    regressor. With `sizes`, the classes of each target (1 for a regressor's), it has those of all
    targets side by side. A row is compared as float32 with a float64 threshold there, so
    thresholds become the largest float32 that is not above them.
    """
    counts = np.array([t.node_count for t in trees], np.int64)
    first = np.cumsum(counts) - counts
    shift = np.repeat(first, counts)
    left = np.concatenate([t.children_left for t in trees])
    right = np.concatenate([t.children_right for t in trees])
    leaf = left == NO_CHILD
    return RawTrees(
        roots=first,
        feature=np.where(leaf, 0, np.concatenate([t.feature for t in trees])),
        threshold=float32_floor(np.where(leaf, 0.0, np.concatenate([t.threshold for t in trees]))),
        left=np.where(leaf, 0, left + shift),
        right=np.where(leaf, 0, right + shift),
        leaf=leaf,
        default_left=np.concatenate([t.missing_go_to_left for t in trees]).astype(bool),
        value=np.concatenate([_values(t, sizes) for t in trees]),
    )


def _values(tree: Any, sizes: Sequence[int] | None) -> Array:
    """(nodes, values); targets with fewer classes than the others have zeros at the end there."""
    value: Array = tree.value
    if sizes is None:
        return value[:, 0, :]
    return np.concatenate([value[:, t, :size] for t, size in enumerate(sizes)], axis=1)


def float32_floor(thresholds: Array) -> Array:
    """The largest float32 <= each float64, so that `x32 <= floor` is `x32 <= threshold`.

    >>> float32_floor(np.array([0.1, 0.5])).tolist()
    [0.09999999403953552, 0.5]
    """
    with np.errstate(over="ignore"):
        nearest = np.asarray(thresholds, np.float64).astype(np.float32)
    below = np.nextafter(nearest, np.float32(-np.inf))
    return np.where(nearest.astype(np.float64) > thresholds, below, nearest)
