"""Single trees and forests: DecisionTree, ExtraTree, RandomForest and ExtraTrees, C and R.

A forest adds its trees' float64 values in order and divides by their number
(`sklearn/ensemble/_forest.py`); ties go to the first class. Trees of several targets have the
values of all of them in each leaf.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame, Outputs, labels_of
from sqlml.importers.sklearn.checked import numbers
from sqlml.importers.sklearn.classify import argmax_labels, class_lists
from sqlml.importers.sklearn.ensemble.tree_arrays import raw_trees
from sqlml.importers.sklearn.fitted import check
from sqlml.ir.builder import Value
from sqlml.ir.trees import ensemble


def tree_classifier(model: Any, frame: Frame) -> Outputs:
    """Class fractions of the exit leaf."""
    check(model, "tree_", "classes_")
    return _classified(model, frame, [model])


def tree_regressor(model: Any, frame: Frame) -> Outputs:
    """Value of the exit leaf."""
    check(model, "tree_")
    return Outputs({"label": _sum(model, frame, [model], [1] * int(model.n_outputs_))})


def forest_classifier(model: Any, frame: Frame) -> Outputs:
    """Mean of the trees' class fractions."""
    check(model, "estimators_", "classes_")
    return _classified(model, frame, model.estimators_)


def forest_regressor(model: Any, frame: Frame) -> Outputs:
    """Mean of the trees' values."""
    check(model, "estimators_")
    return Outputs({"label": _sum(model, frame, model.estimators_, [1] * int(model.n_outputs_))})


def _classified(model: Any, frame: Frame, trees: Sequence[Any]) -> Outputs:
    classes = class_lists(model)
    sizes = [len(known) for known in classes]
    proba = _sum(model, frame, trees, sizes)
    label = argmax_labels(frame.builder, proba, sizes)
    labels = tuple(labels_of(known) for known in classes)
    return Outputs({"label": label, "proba": proba}, labels)


def _sum(model: Any, frame: Frame, trees: Sequence[Any], sizes: Sequence[int]) -> Value:
    """(n, sum of sizes) float64: the trees' values added up and divided by their number."""
    builder = frame.builder
    allow_nan = takes_nan(trees[0]) and not frame.sparse  # BaseDecisionTree takes it dense only
    x = numbers(frame, type(model).__name__, allow_nan=allow_nan, dtype="float32", rows="wide")
    raw = raw_trees([tree.tree_ for tree in trees], sizes)
    made = ensemble(
        raw,
        target=np.zeros(len(trees), np.int32),
        base=np.zeros(raw.value.shape[1]),
        compare="le",
    )
    total = builder.op("tree_ensemble", x, **made.attrs())
    if trees[0] is model:
        return total
    return builder.op("div", total, float(len(trees)))


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
