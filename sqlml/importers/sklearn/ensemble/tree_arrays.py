"""scikit-learn's decision trees as one tree_ensemble: alone, as a forest, or as other members."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame
from sqlml.importers.sklearn.checked import numbers
from sqlml.importers.sklearn.fitted import check, path_of
from sqlml.ir.builder import Builder, Value
from sqlml.ir.trees import RawTrees, ensemble
from sqlml.types import Array

NO_CHILD = -1
"""sklearn/tree/_tree.pxd: TREE_LEAF."""

TREES = frozenset(
    f"sklearn.tree._classes.{name}"
    for name in (
        "DecisionTreeClassifier",
        "DecisionTreeRegressor",
        "ExtraTreeClassifier",
        "ExtraTreeRegressor",
    )
)


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
    cover = np.concatenate([t.weighted_n_node_samples for t in trees])
    impure = cover * np.concatenate([t.impurity for t in trees])
    children = np.where(leaf, 0, left + shift), np.where(leaf, 0, right + shift)
    return RawTrees(
        roots=first,
        feature=np.where(leaf, 0, np.concatenate([t.feature for t in trees])),
        threshold=float32_floor(np.where(leaf, 0.0, np.concatenate([t.threshold for t in trees]))),
        left=children[0],
        right=children[1],
        leaf=leaf,
        default_left=np.concatenate([t.missing_go_to_left for t in trees]).astype(bool),
        value=np.concatenate([_values(t, sizes) for t in trees]),
        cover=cover,
        gain=np.where(leaf, 0.0, impure - impure[children[0]] - impure[children[1]]),
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


def tree_input(owner: Any, frame: Frame, tree: Any) -> Value:
    """The columns as float32 for the trees of `owner`; NaN passes where `tree`, one of them, lets
    it: of dense rows only."""
    allow_nan = takes_nan(tree) and not frame.sparse
    return numbers(frame, type(owner).__name__, allow_nan=allow_nan, dtype="float32", rows="wide")


def takes_nan(tree: Any) -> bool:
    """Whether the tree's predict lets NaN pass, as its own tags say.

    Raises:
        UnsupportedModelError: a scikit-learn before 1.6, which has no tags.
    """
    tags = getattr(tree, "__sklearn_tags__", None)
    if tags is None:
        raise UnsupportedModelError(
            f"{type(tree).__name__} comes from scikit-learn before 1.6; update it and fit again"
        )
    return bool(tags().input_tags.allow_nan)


def sum_of_trees(
    builder: Builder,
    x: Value,
    raw: RawTrees,
    *,
    target: Array | None = None,
    base: Array | None = None,
) -> Value:
    """(n, outputs) float64: the leaf values of all trees added to `base`, tree by tree.

    Args:
        target: the first output of each tree; without it all trees add to all outputs.
        base: what is added to, zeros by default.
    """
    target = np.zeros(len(raw.roots), np.int32) if target is None else target
    if base is None:
        base = np.zeros(int(target.max()) + raw.value.shape[1])
    made = ensemble(raw, target=target, base=base, compare="le")
    return builder.op("tree_ensemble", x, **made.attrs())


def all_trees(members: Sequence[Any]) -> bool:
    """Whether all members are plain decision trees of one target that treat NaN alike."""
    return all(
        path_of(m) in TREES
        and getattr(m, "n_outputs_", 0) == 1
        and takes_nan(m) == takes_nan(members[0])
        for m in members
    )


def tree_sum(owner: Any, frame: Frame, members: Sequence[tuple[Any, Sequence[int]]]) -> Value:
    """(n, V): the leaf values of all trees added up, each tree on its own columns of `frame`."""
    raw = member_trees([tree for tree, _ in members])
    columns = [
        np.asarray(features, np.int64)[np.maximum(tree.tree_.feature, 0)]
        for tree, features in members
    ]
    raw = replace(raw, feature=np.where(raw.leaf, 0, np.concatenate(columns)))
    return sum_of_trees(frame.builder, tree_input(owner, frame, members[0][0]), raw)


def member_trees(trees: Sequence[Any]) -> RawTrees:
    """The node arrays of fitted trees, checked one by one."""
    for tree in trees:
        check(tree, "tree_")
    return raw_trees([tree.tree_ for tree in trees])
