"""AdaBoostClassifier (SAMME) and AdaBoostRegressor (AdaBoost.R2, weighted median).

`sklearn/ensemble/_weight_boosting.py`. Weak learners are mostly trees: those become one tree
ensemble whose leaves hold their weighted votes, which adds up the same numbers in the same order.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame, Outputs, Recurse, labels_of
from sqlml.importers.sklearn.checked import numbers
from sqlml.importers.sklearn.classify import argmax_label, binary_label, two_or_more_classes
from sqlml.importers.sklearn.ensemble.tree_arrays import (
    all_trees,
    member_trees,
    sum_of_trees,
    tree_input,
)
from sqlml.importers.sklearn.fitted import check
from sqlml.importers.sklearn.meta.members import members, scaled, total, wide
from sqlml.ir.builder import Value


def adaboost_classifier(model: Any, frame: Frame, recurse: Recurse) -> Outputs:
    """Each learner gives its weight to the class that it predicts and takes from the others."""
    check(model, "estimators_", "estimator_weights_", "classes_")
    if getattr(model, "algorithm", "SAMME") == "SAMME.R":
        raise UnsupportedModelError(
            "AdaBoostClassifier(algorithm='SAMME.R') was removed from scikit-learn; fit it with "
            "SAMME"
        )
    classes = two_or_more_classes(model)
    builder, width = frame.builder, len(classes)
    frame = _checked(model, frame)
    gathered = _votes(model, frame, recurse, classes)
    score = scaled(builder, "div", gathered, model.estimator_weights_.sum())
    if width == 2:
        first, second = (builder.op("select", score, indices=np.array([i])) for i in (0, 1))
        score = builder.op("add", builder.op("neg", first), second)
        both = builder.op("concat", builder.op("neg", score), score)
        proba = builder.op("softmax", scaled(builder, "div", both, 2), sum_dtype="float64")
        label = binary_label(builder, score)
    else:
        link = scaled(builder, "div", score, width - 1)
        proba = builder.op("softmax", link, sum_dtype="float64")
        label = argmax_label(builder, score)
    return Outputs({"label": label, "proba": proba, "score": score}, labels_of(classes))


def adaboost_regressor(model: Any, frame: Frame, recurse: Recurse) -> Outputs:
    """The prediction at which half of the learners' weight is reached, from below."""
    check(model, "estimators_", "estimator_weights_")
    frame = _checked(model, frame)
    builder, trees = frame.builder, model.estimators_
    if all_trees(trees):
        target = np.arange(len(trees), dtype=np.int32)
        x = tree_input(model, frame, trees[0])
        predictions = sum_of_trees(builder, x, member_trees(trees), target=target)
    else:
        predictions = builder.beside(
            [wide(builder, member.answer("predict")) for member in members(model, frame, recurse)]
        )
    weights = np.asarray(model.estimator_weights_, np.float64)[: len(trees)]
    return Outputs({"label": builder.op("weighted_median", predictions, weights=weights)})


def _checked(model: Any, frame: Frame) -> Frame:
    """Refuse NaN, as AdaBoost itself does, whatever its learners accept."""
    value = numbers(frame, type(model).__name__, rows="sparse")
    return Frame.of(frame.builder, value, frame.names, frame.sparse)


def _votes(model: Any, frame: Frame, recurse: Recurse, classes: list[Any]) -> Value:
    """(n, K): all learners' weighted votes added up."""
    builder, width = frame.builder, len(classes)
    learners = model.estimators_
    weights = [float(w) for w in model.estimator_weights_[: len(learners)]]
    against = [-1 / (width - 1) * weight for weight in weights]
    if all_trees(learners) and all(np.array_equal(t.classes_, classes) for t in learners):
        raw = member_trees(learners)
        chosen = raw.value.argmax(axis=1)[:, None] == np.arange(width)
        owner = np.repeat(np.arange(len(learners)), [t.tree_.node_count for t in learners])
        value = np.where(chosen, np.array(weights)[owner, None], np.array(against)[owner, None])
        x = tree_input(model, frame, learners[0])
        return sum_of_trees(builder, x, replace(raw, value=value))
    parts: list[Value] = []
    for member, pro, con in zip(members(model, frame, recurse), weights, against, strict=True):
        hit = builder.op("gt", member.votes(member.places(classes), width), 0.0)
        parts.append(builder.op("where", hit, pro, con))
    return total(builder, parts)
