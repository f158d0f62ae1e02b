"""AdaBoostClassifier (SAMME) and AdaBoostRegressor (AdaBoost.R2, weighted median).

`sklearn/ensemble/_weight_boosting.py`. Weak learners are mostly trees: those become one tree
ensemble whose leaves hold their weighted votes, which adds up the same numbers in the same order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame, Outputs, Recurse, labels_of
from sqlml.importers.sklearn.classify import (
    argmax_label,
    binary_label,
    class_list,
    two_or_more_classes,
)
from sqlml.importers.sklearn.ensemble.forests import (
    all_trees,
    member_trees,
    sum_of_trees,
    tree_input,
    tree_sum,
)
from sqlml.importers.sklearn.estimator_checks import check, numbers
from sqlml.importers.sklearn.meta.members import Member, drops, members, scaled, spread, total, wide
from sqlml.ir.builder import Builder, Value


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


# BaggingClassifier and BaggingRegressor: the mean of members, each on its own columns.
#
# `sklearn/ensemble/_bagging.py`. Members know the classes as numbers from 0. A bag of trees, the
# default, becomes one tree ensemble; the sums run in the same order either way.


def bagging_classifier(model: Any, frame: Frame, recurse: Recurse) -> Outputs:
    """Mean of the members' probabilities, or of their votes where they have none."""
    check(model, "estimators_", "estimators_features_", "classes_")
    classes = class_list(model)
    builder, members, width = frame.builder, _bagging_members(model), len(classes)
    scores: list[Value] = []
    if all_trees([member for member, _ in members]) and all(
        np.array_equal(member.classes_, np.arange(width)) for member, _ in members
    ):
        summed = tree_sum(model, frame, members)
    else:
        parts: list[Value] = []
        for i, (estimator, features) in enumerate(members):
            columns = frame.take(features)
            member = Member.of(model, f"estimators_[{i}]", estimator, columns, recurse)
            at = member.places(range(width))
            if "proba" in member.values:
                parts.append(spread(builder, wide(builder, member.values["proba"]), at, width))
            else:
                parts.append(member.votes(at, width))
            scores += [wide(builder, score) for score in member.own("score").values()]
        summed = total(builder, parts)
    proba = scaled(builder, "div", summed, len(members))
    values = {"label": argmax_label(builder, proba), "proba": proba}
    if len(scores) == len(members) and len({score.type.width for score in scores}) == 1:
        values["score"] = scaled(builder, "div", total(builder, scores), len(members))
    return Outputs(values, labels_of(classes))


def bagging_regressor(model: Any, frame: Frame, recurse: Recurse) -> Outputs:
    """Mean of the members' predictions."""
    check(model, "estimators_", "estimators_features_")
    builder, members = frame.builder, _bagging_members(model)
    if all_trees([member for member, _ in members]):
        summed = tree_sum(model, frame, members)
    else:
        parts = []
        for i, (estimator, features) in enumerate(members):
            columns, name = frame.take(features), f"estimators_[{i}]"
            member = Member.of(model, name, estimator, columns, recurse, several=True)
            parts.append(wide(builder, member.answer("predict")))
        summed = total(builder, parts)
    return Outputs({"label": scaled(builder, "div", summed, len(members))})


def _bagging_members(model: Any) -> list[tuple[Any, Sequence[int]]]:
    """The members with the numbers of the columns that they read.

    Raises:
        UnsupportedModelError: n_estimators was changed after fit.
    """
    if model.n_estimators != len(model.estimators_):
        raise UnsupportedModelError(
            f"{type(model).__name__} has {len(model.estimators_)} fitted members and "
            f"n_estimators={model.n_estimators}; call its fit() again"
        )
    return [
        (member, [int(i) for i in features])
        for member, features in zip(model.estimators_, model.estimators_features_, strict=True)
    ]


# VotingClassifier and VotingRegressor: several models asked at once.
#
# `sklearn/ensemble/_voting.py`. Members know the classes as numbers from 0. Ties go to the first
# class; a weight counts for one member.


def voting_classifier(model: Any, frame: Frame, recurse: Recurse) -> Outputs:
    """Hard voting counts labels, soft voting averages probabilities.

    `transform` is the members' class numbers, or their probabilities side by side; with
    flatten_transform=False scikit-learn returns three axes, which SQL cannot, so it is left out.
    """
    check(model, "estimators_", "classes_", "le_")
    classes = class_list(model)
    builder, width = frame.builder, len(classes)
    weights = _weights(model)
    soft = model.voting == "soft"
    parts: list[Value] = []
    asked: list[Value] = []
    for member in _voting_members(model, frame, recurse):
        at = member.places(range(width))
        if soft and at != list(range(width)):
            raise UnsupportedModelError(
                f"{member.where} does not know all {width} classes; fit it again"
            )
        asked.append(member.answer("predict_proba" if soft else "predict"))
        parts.append(asked[-1] if soft else member.votes(at, width))
    if soft:
        proba = _mean(builder, parts, weights)
        values = {"label": argmax_label(builder, proba), "proba": proba}
    else:
        counted = _weighted(builder, parts, weights)
        values = {"label": argmax_label(builder, total(builder, counted))}
    if not soft or model.flatten_transform:
        values["transform"] = builder.op("concat", *asked)
    return Outputs(values, labels_of(classes))


def voting_regressor(model: Any, frame: Frame, recurse: Recurse) -> Outputs:
    """The weighted mean of the members; `transform` is their predictions side by side."""
    check(model, "estimators_")
    builder = frame.builder
    parts = [member.answer("predict") for member in _voting_members(model, frame, recurse)]
    return Outputs(
        {"label": _mean(builder, parts, _weights(model)), "transform": builder.op("concat", *parts)}
    )


def _voting_members(model: Any, frame: Frame, recurse: Recurse) -> Iterator[Member]:
    names = [name for name, member in model.estimators if not drops(member)]
    for name, member in zip(names, model.estimators_, strict=True):
        yield Member.of(model, repr(name), member, frame, recurse)


def _weights(model: Any) -> list[float] | None:
    """The weights of the members that are not dropped.

    Raises:
        UnsupportedModelError: weights that no average or count can use.
    """
    if model.weights is None:
        return None
    weights = [
        float(weight)
        for (_, member), weight in zip(model.estimators, model.weights, strict=True)
        if not drops(member)
    ]
    if min(weights) < 0 or sum(weights) == 0:
        raise UnsupportedModelError(
            f"{type(model).__name__}(weights={list(model.weights)}) has negative weights or none "
            "above 0; give each member a weight of 0 or more"
        )
    return weights


def _weighted(builder: Builder, parts: list[Value], weights: list[float] | None) -> list[Value]:
    if weights is None:
        return parts
    return [
        scaled(builder, "mul", part, weight) for part, weight in zip(parts, weights, strict=True)
    ]


def _mean(builder: Builder, parts: list[Value], weights: list[float] | None) -> Value:
    """The sum first and one division at the end, as np.average does it.

    Members that all answer in float32 are averaged in float32, unless weights widen them.
    """
    if weights is not None or len({part.type.dtype for part in parts}) > 1:
        parts = [wide(builder, part) for part in parts]
    scale = float(len(parts)) if weights is None else float(np.sum(weights))
    return scaled(builder, "div", total(builder, _weighted(builder, parts, weights)), scale)


# StackingClassifier and StackingRegressor: a last model on the answers of others.
#
# `sklearn/ensemble/_stacking.py`. `transform` is what the last model sees.


def stacking_classifier(model: Any, frame: Frame, recurse: Recurse) -> Outputs:
    """What the last model says; it knows the classes as numbers from 0."""
    check(model, "estimators_", "final_estimator_", "stack_method_", "classes_")
    classes = class_list(model)
    stacked = _stacked(model, frame, recurse, binary=len(classes) == 2)
    last = Member.of(model, "final_estimator_", model.final_estimator_, stacked, recurse)
    known = last.classes
    if known.kind != "int64" or not all(0 <= code < len(classes) for code in known.values):
        raise UnsupportedModelError(
            "final_estimator_ of StackingClassifier does not predict numbers of classes; fit the "
            "StackingClassifier again"
        )
    labels = labels_of([classes[code] for code in known.values])
    offered = last.own("label", "proba", "score")
    return Outputs({**offered, "transform": stacked.matrix()}, labels)


def stacking_regressor(model: Any, frame: Frame, recurse: Recurse) -> Outputs:
    """What the last model says."""
    check(model, "estimators_", "final_estimator_", "stack_method_")
    stacked = _stacked(model, frame, recurse, binary=False)
    last = Member.of(model, "final_estimator_", model.final_estimator_, stacked, recurse)
    return Outputs({"label": last.answer("predict"), "transform": stacked.matrix()})


def _stacked(model: Any, frame: Frame, recurse: Recurse, binary: bool) -> Frame:
    """The members' answers side by side, and the columns themselves with passthrough.

    Of two probabilities only the second is kept.
    """
    builder = frame.builder
    names = [name for name, member in model.estimators if not drops(member)]
    parts: list[Frame] = []
    for name, member, method in zip(names, model.estimators_, model.stack_method_, strict=True):
        value = Member.of(model, repr(name), member, frame, recurse).answer(method)
        value = wide(builder, value)
        if binary and method == "predict_proba":
            value = builder.op("select", value, indices=np.arange(1, value.type.width))
        parts.append(Frame.of(builder, value, stem=name))
    if model.passthrough:
        parts.append(Frame.of(builder, frame.matrix(rows="sparse"), frame.names))
    return Frame.hstack(builder, parts)
