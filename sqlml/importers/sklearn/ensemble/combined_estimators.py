"""Ensembles of any estimators: AdaBoost, bagging, voting and stacking.

Members that are plain trees become one tree ensemble, which adds up the same numbers in the same
order. Members of bagging, voting and stacking number the classes from 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame, Outputs, Recurse, build_labels
from sqlml.importers.sklearn import classify
from sqlml.importers.sklearn.ensemble.decision_trees import (
    all_trees,
    member_trees,
    sum_of_trees,
    tree_input,
    tree_sum,
)
from sqlml.importers.sklearn.estimator_checks import check, numbers
from sqlml.importers.sklearn.meta.members import (
    Member,
    apply_number,
    is_dropped,
    members,
    spread,
    sum_values,
)
from sqlml.ir.builder import Builder, Value


def adaboost_classifier(model: Any, frame: Frame, recurse: Recurse) -> Outputs:
    """Sum the learners' votes: each adds its weight to its class and subtracts it from others."""
    check(model, "estimators_", "estimator_weights_", "classes_")
    if getattr(model, "algorithm", "SAMME") == "SAMME.R":
        raise UnsupportedModelError(
            "AdaBoostClassifier(algorithm='SAMME.R') was removed from scikit-learn; fit it with "
            "SAMME"
        )
    classes = classify.two_or_more_classes(model)
    b, width = frame.builder, len(classes)
    votes = _votes(model, _reject_nan(model, frame), recurse, classes)
    score = apply_number(b, "div", votes, model.estimator_weights_.sum())
    if width == 2:
        first, second = (b.op("select", score, indices=np.array([i])) for i in (0, 1))
        score = b.op("add", b.op("neg", first), second)
        both = b.op("concat", b.op("neg", score), score)
        label, margin = classify.binary_label(b, score), apply_number(b, "div", both, 2)
    else:
        label, margin = classify.argmax_label(b, score), apply_number(b, "div", score, width - 1)
    proba = b.op("softmax", margin, sum_dtype="float64")
    return Outputs({"label": label, "proba": proba, "score": score}, build_labels(classes))


def adaboost_regressor(model: Any, frame: Frame, recurse: Recurse) -> Outputs:
    """Return the weighted median: the prediction at which half of the weight is reached."""
    check(model, "estimators_", "estimator_weights_")
    frame = _reject_nan(model, frame)
    b, trees = frame.builder, model.estimators_
    if all_trees(trees):
        target = np.arange(len(trees), dtype=np.int32)
        x = tree_input(model, frame, trees[0])
        predictions = sum_of_trees(b, x, member_trees(trees), target=target)
    else:
        columns = [member.output_of("predict") for member in members(model, frame, recurse)]
        predictions = b.concat([b.cast(column, "float64") for column in columns])
    weights = np.asarray(model.estimator_weights_, np.float64)[: len(trees)]
    return Outputs({"label": b.op("weighted_median", predictions, weights=weights)})


def _reject_nan(model: Any, frame: Frame) -> Frame:
    value = numbers(frame, type(model).__name__, rows="sparse")
    return Frame.from_value(frame.builder, value, frame.names, frame.sparse)


def _votes(model: Any, frame: Frame, recurse: Recurse, classes: list[Any]) -> Value:
    b, width = frame.builder, len(classes)
    learners = model.estimators_
    weights = [float(w) for w in model.estimator_weights_[: len(learners)]]
    against = [-1 / (width - 1) * weight for weight in weights]
    if all_trees(learners) and all(np.array_equal(t.classes_, classes) for t in learners):
        raw = member_trees(learners)
        chosen = raw.value.argmax(axis=1)[:, None] == np.arange(width)
        owner = np.repeat(np.arange(len(learners)), [t.tree_.node_count for t in learners])
        value = np.where(chosen, np.array(weights)[owner, None], np.array(against)[owner, None])
        return sum_of_trees(b, tree_input(model, frame, learners[0]), replace(raw, value=value))
    parts: list[Value] = []
    for member, pro, con in zip(members(model, frame, recurse), weights, against, strict=True):
        hit = b.op("gt", member.votes(member.class_indices(classes), width), 0.0)
        parts.append(b.op("where", hit, pro, con))
    return sum_values(b, parts)


def bagging_classifier(model: Any, frame: Frame, recurse: Recurse) -> Outputs:
    """Return the mean of the members' probabilities, or of their votes without probabilities."""
    check(model, "estimators_", "estimators_features_", "classes_")
    classes = classify.class_list(model)
    b, members, width = frame.builder, _bagging_members(model), len(classes)
    scores: list[Value] = []
    if all_trees([member for member, _ in members]) and all(
        np.array_equal(member.classes_, np.arange(width)) for member, _ in members
    ):
        summed = tree_sum(model, frame, members)
    else:
        parts: list[Value] = []
        for i, (estimator, features) in enumerate(members):
            columns = frame.select(features)
            member = Member.of(model, f"estimators_[{i}]", estimator, columns, recurse)
            indices = member.class_indices(range(width))
            if "proba" in member.values:
                proba = b.cast(member.values["proba"], "float64")
                parts.append(spread(b, proba, indices, width))
            else:
                parts.append(member.votes(indices, width))
            scores += [b.cast(score, "float64") for score in member.available("score").values()]
        summed = sum_values(b, parts)
    proba = apply_number(b, "div", summed, len(members))
    values = {"label": classify.argmax_label(b, proba), "proba": proba}
    if len(scores) == len(members) and len({score.type.width for score in scores}) == 1:
        values["score"] = apply_number(b, "div", sum_values(b, scores), len(members))
    return Outputs(values, build_labels(classes))


def bagging_regressor(model: Any, frame: Frame, recurse: Recurse) -> Outputs:
    check(model, "estimators_", "estimators_features_")
    b, members = frame.builder, _bagging_members(model)
    if all_trees([member for member, _ in members]):
        summed = tree_sum(model, frame, members)
    else:
        parts = []
        for i, (estimator, features) in enumerate(members):
            columns, name = frame.select(features), f"estimators_[{i}]"
            member = Member.of(model, name, estimator, columns, recurse, several=True)
            parts.append(b.cast(member.output_of("predict"), "float64"))
        summed = sum_values(b, parts)
    return Outputs({"label": apply_number(b, "div", summed, len(members))})


def _bagging_members(model: Any) -> list[tuple[Any, Sequence[int]]]:
    if model.n_estimators != len(model.estimators_):
        raise UnsupportedModelError(
            f"{type(model).__name__} has {len(model.estimators_)} fitted members and "
            f"n_estimators={model.n_estimators}; call its fit() again"
        )
    return [
        (member, [int(i) for i in features])
        for member, features in zip(model.estimators_, model.estimators_features_, strict=True)
    ]


def voting_classifier(model: Any, frame: Frame, recurse: Recurse) -> Outputs:
    """Count labels (hard voting) or average probabilities (soft voting).

    `transform` is the members' outputs; with flatten_transform=False they have three axes.
    """
    check(model, "estimators_", "classes_", "le_")
    classes = classify.class_list(model)
    b, width = frame.builder, len(classes)
    weights = _weights(model)
    is_soft = model.voting == "soft"
    votes: list[Value] = []
    outputs: list[Value] = []
    for member in _voting_members(model, frame, recurse):
        indices = member.class_indices(range(width))
        if is_soft and indices != list(range(width)):
            raise UnsupportedModelError(
                f"{member.where} does not know all {width} classes; fit it again"
            )
        outputs.append(member.output_of("predict_proba" if is_soft else "predict"))
        votes.append(outputs[-1] if is_soft else member.votes(indices, width))
    if is_soft:
        proba = _mean(b, votes, weights)
        values = {"label": classify.argmax_label(b, proba), "proba": proba}
    else:
        values = {
            "label": classify.argmax_label(b, sum_values(b, _apply_weights(b, votes, weights)))
        }
    if not is_soft or model.flatten_transform:
        values["transform"] = b.op("concat", *outputs)
    return Outputs(values, build_labels(classes))


def voting_regressor(model: Any, frame: Frame, recurse: Recurse) -> Outputs:
    """Return the weighted mean of the members; `transform` is their predictions side by side."""
    check(model, "estimators_")
    b = frame.builder
    parts = [member.output_of("predict") for member in _voting_members(model, frame, recurse)]
    return Outputs({"label": _mean(b, parts, _weights(model)), "transform": b.op("concat", *parts)})


def _voting_members(model: Any, frame: Frame, recurse: Recurse) -> Iterator[Member]:
    names = [name for name, member in model.estimators if not is_dropped(member)]
    for name, member in zip(names, model.estimators_, strict=True):
        yield Member.of(model, repr(name), member, frame, recurse)


def _weights(model: Any) -> list[float] | None:
    if model.weights is None:
        return None
    pairs = zip(model.estimators, model.weights, strict=True)
    weights = [float(weight) for (_, member), weight in pairs if not is_dropped(member)]
    if min(weights) < 0 or sum(weights) == 0:
        raise UnsupportedModelError(
            f"{type(model).__name__}(weights={list(model.weights)}) has negative weights or none "
            "above 0; give each member a weight of 0 or more"
        )
    return weights


def _apply_weights(b: Builder, parts: list[Value], weights: list[float] | None) -> list[Value]:
    if weights is None:
        return parts
    return [apply_number(b, "mul", *pair) for pair in zip(parts, weights, strict=True)]


def _mean(b: Builder, parts: list[Value], weights: list[float] | None) -> Value:
    """Sum and divide once at the end, like np.average; float32 stays float32 unless weighted."""
    if weights is not None or len({part.type.dtype for part in parts}) > 1:
        parts = [b.cast(part, "float64") for part in parts]
    scale = float(len(parts)) if weights is None else float(np.sum(weights))
    return apply_number(b, "div", sum_values(b, _apply_weights(b, parts, weights)), scale)


def stacking_classifier(model: Any, frame: Frame, recurse: Recurse) -> Outputs:
    """Return the final estimator's prediction; it numbers the classes from 0."""
    check(model, "estimators_", "final_estimator_", "stack_method_", "classes_")
    classes = classify.class_list(model)
    stacked = _stack_outputs(model, frame, recurse, binary=len(classes) == 2)
    last = Member.of(model, "final_estimator_", model.final_estimator_, stacked, recurse)
    known = last.classes
    if known.kind != "int64" or not all(0 <= code < len(classes) for code in known.values):
        raise UnsupportedModelError(
            "final_estimator_ of StackingClassifier does not predict numbers of classes; fit the "
            "StackingClassifier again"
        )
    labels = build_labels([classes[code] for code in known.values])
    offered = last.available("label", "proba", "score")
    return Outputs({**offered, "transform": stacked.matrix()}, labels)


def stacking_regressor(model: Any, frame: Frame, recurse: Recurse) -> Outputs:
    check(model, "estimators_", "final_estimator_", "stack_method_")
    stacked = _stack_outputs(model, frame, recurse, binary=False)
    last = Member.of(model, "final_estimator_", model.final_estimator_, stacked, recurse)
    return Outputs({"label": last.output_of("predict"), "transform": stacked.matrix()})


def _stack_outputs(model: Any, frame: Frame, recurse: Recurse, binary: bool) -> Frame:
    """Return the members' outputs, the second of two probabilities, and columns to pass through."""
    b = frame.builder
    names = [name for name, member in model.estimators if not is_dropped(member)]
    parts: list[Frame] = []
    for name, member, method in zip(names, model.estimators_, model.stack_method_, strict=True):
        value = Member.of(model, repr(name), member, frame, recurse).output_of(method)
        value = b.cast(value, "float64")
        if binary and method == "predict_proba":
            value = b.op("select", value, indices=np.arange(1, value.type.width))
        parts.append(Frame.from_value(b, value, stem=name))
    if model.passthrough:
        parts.append(Frame.from_value(b, frame.matrix(rows="sparse"), frame.names))
    return Frame.hstack(b, parts)
