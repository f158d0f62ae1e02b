"""Single trees and forests: DecisionTree, ExtraTree, RandomForest and ExtraTrees, C and R.

A forest adds its trees' float64 values in order and divides by their number
(`sklearn/ensemble/_forest.py`); ties go to the first class. Trees of several targets have the
values of all of them in each leaf.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlml.importers.frame import Frame, Outputs, labels_of
from sqlml.importers.sklearn.classify import argmax_labels, class_lists
from sqlml.importers.sklearn.ensemble.tree_arrays import raw_trees, sum_of_trees, tree_input
from sqlml.importers.sklearn.fitted import check
from sqlml.ir.builder import Value


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
    raw = raw_trees([tree.tree_ for tree in trees], sizes)
    total = sum_of_trees(frame.builder, tree_input(model, frame, trees[0]), raw)
    return total if trees[0] is model else frame.builder.op("div", total, float(len(trees)))
