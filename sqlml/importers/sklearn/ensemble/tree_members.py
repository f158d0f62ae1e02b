"""Decision trees as members of an ensemble other than a forest, as one tree_ensemble."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from sqlml.importers.frame import Frame
from sqlml.importers.sklearn.ensemble.tree_arrays import (
    raw_trees,
    sum_of_trees,
    takes_nan,
    tree_input,
)
from sqlml.importers.sklearn.fitted import check
from sqlml.ir.builder import Value
from sqlml.ir.trees import RawTrees

TREES = frozenset(
    f"sklearn.tree._classes.{name}"
    for name in (
        "DecisionTreeClassifier",
        "DecisionTreeRegressor",
        "ExtraTreeClassifier",
        "ExtraTreeRegressor",
    )
)


def all_trees(members: Sequence[Any]) -> bool:
    """Whether all members are plain decision trees of one target that treat NaN alike."""
    return all(
        f"{type(m).__module__}.{type(m).__qualname__}" in TREES
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
