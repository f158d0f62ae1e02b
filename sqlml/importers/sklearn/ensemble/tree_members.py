"""Decision trees as members of an ensemble other than a forest, as one tree_ensemble."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from sqlml.importers.frame import Frame
from sqlml.importers.sklearn.checked import numbers
from sqlml.importers.sklearn.ensemble.forest import takes_nan
from sqlml.importers.sklearn.ensemble.tree_arrays import raw_trees
from sqlml.importers.sklearn.fitted import check
from sqlml.ir.builder import Value
from sqlml.ir.trees import RawTrees, ensemble
from sqlml.types import Array

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
    counts = [tree.tree_.node_count for tree, _ in members]
    columns = [
        np.asarray(features, np.int64)[np.maximum(tree.tree_.feature, 0)]
        for tree, features in members
    ]
    assert sum(counts) == raw.feature.size
    raw = replace(raw, feature=np.where(raw.leaf, 0, np.concatenate(columns)))
    width = raw.value.shape[1]
    return summed(owner, frame, members[0][0], raw, np.zeros(len(members), np.int32), width)


def member_trees(trees: Sequence[Any]) -> RawTrees:
    """The node arrays of fitted trees, checked one by one."""
    for tree in trees:
        check(tree, "tree_")
    return raw_trees([tree.tree_ for tree in trees])


def summed(
    owner: Any, frame: Frame, tree: Any, raw: RawTrees, target: Array, outputs: int
) -> Value:
    """(n, outputs) from zeros; NaN passes where `tree`, one of the trees, lets it."""
    allow_nan = takes_nan(tree) and not frame.sparse
    x = numbers(frame, type(owner).__name__, allow_nan=allow_nan, dtype="float32", rows="wide")
    made = ensemble(raw, target=target, base=np.zeros(outputs), compare="le")
    return frame.builder.op("tree_ensemble", x, **made.attrs())
