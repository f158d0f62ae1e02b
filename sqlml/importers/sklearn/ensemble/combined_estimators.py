"""Ensembles of any estimators: AdaBoost, bagging, voting and stacking.

Sources: `sklearn/ensemble/_weight_boosting.py`, `_bagging.py`, `_voting.py`, `_stacking.py`.
Members that are plain trees become one tree ensemble, which adds up the same numbers in the same
order.
Members of bagging, voting and stacking number the classes from 0; ties go to the first class.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame, Outputs, Recurse, build_labels
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
from sqlml.importers.sklearn.meta.members import (
    Member,
    apply_number,
    as_float64,
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
    classes = two_or_more_classes(model)
    builder, width = frame.builder, len(classes)
    frame = _reject_nan(model, frame)
    gathered = _votes(model, frame, recurse, classes)
    score = apply_number(builder, "div", gathered, model.estimator_weights_.sum())
    if width == 2:
        first, second = (builder.op("select", score, indices=np.array([i])) for i in (0, 1))
        score = builder.op("add", builder.op("neg", first), second)
        both = builder.op("concat", builder.op("neg", score), score)
        proba = builder.op("softmax", apply_number(builder, "div", both, 2), sum_dtype="float64")
        label = binary_label(builder, score)
    else:
        link = apply_number(builder, "div", score, width - 1)
        proba = builder.op("softmax", link, sum_dtype="float64")
        label = argmax_label(builder, score)
    return Outputs({"label": label, "proba": proba, "score": score}, build_labels(classes))


def adaboost_regressor(model: Any, frame: Frame, recurse: Recurse) -> Outputs:
    """Return the weighted median: the prediction at which half of the weight is reached."""
    check(model, "estimators_", "estimator_weights_")
    frame = _reject_nan(model, frame)
    builder, trees = frame.builder, model.estimators_
    if all_trees(trees):
        target = np.arange(len(trees), dtype=np.int32)
        x = tree_input(model, frame, trees[0])
        predictions = sum_of_trees(builder, x, member_trees(trees), target=target)
    else:
        predictions = builder.concat(
            [
                as_float64(builder, member.output_of("predict"))
                for member in members(model, frame, recurse)
            ]
        )
    weights = np.asarray(model.estimator_weights_, np.float64)[: len(trees)]
    return Outputs({"label": builder.op("weighted_median", predictions, weights=weights)})


def _reject_nan(model: Any, frame: Frame) -> Frame:
    """Reject NaN, as AdaBoost does regardless of its learners."""
    value = numbers(frame, type(model).__name__, rows="sparse")
    return Frame.from_value(frame.builder, value, frame.names, frame.sparse)


def _votes(model: Any, frame: Frame, recurse: Recurse, classes: list[Any]) -> Value:
    """Sum all learners' weighted votes, (n, K)."""
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
        hit = builder.op("gt", member.votes(member.class_indices(classes), width), 0.0)
        parts.append(builder.op("where", hit, pro, con))
    return sum_values(builder, parts)


def bagging_classifier(model: Any, frame: Frame, recurse: Recurse) -> Outputs:
    """Return the mean of the members' probabilities, or of their votes without probabilities."""
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
            columns = frame.select(features)
            member = Member.of(model, f"estimators_[{i}]", estimator, columns, recurse)
            at = member.class_indices(range(width))
            if "proba" in member.values:
                parts.append(
                    spread(builder, as_float64(builder, member.values["proba"]), at, width)
                )
            else:
                parts.append(member.votes(at, width))
            scores += [as_float64(builder, score) for score in member.available("score").values()]
        summed = sum_values(builder, parts)
    proba = apply_number(builder, "div", summed, len(members))
    values = {"label": argmax_label(builder, proba), "proba": proba}
    if len(scores) == len(members) and len({score.type.width for score in scores}) == 1:
        values["score"] = apply_number(builder, "div", sum_values(builder, scores), len(members))
    return Outputs(values, build_labels(classes))


def bagging_regressor(model: Any, frame: Frame, recurse: Recurse) -> Outputs:
    """Return the mean of the members' predictions."""
    check(model, "estimators_", "estimators_features_")
    builder, members = frame.builder, _bagging_members(model)
    if all_trees([member for member, _ in members]):
        summed = tree_sum(model, frame, members)
    else:
        parts = []
        for i, (estimator, features) in enumerate(members):
            columns, name = frame.select(features), f"estimators_[{i}]"
            member = Member.of(model, name, estimator, columns, recurse, several=True)
            parts.append(as_float64(builder, member.output_of("predict")))
        summed = sum_values(builder, parts)
    return Outputs({"label": apply_number(builder, "div", summed, len(members))})


def _bagging_members(model: Any) -> list[tuple[Any, Sequence[int]]]:
    """Return the members with the numbers of the columns that they read.

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


def voting_classifier(model: Any, frame: Frame, recurse: Recurse) -> Outputs:
    """Count labels (hard voting) or average probabilities (soft voting).

    `transform` is the members' class numbers, or their probabilities side by side. There is none
    for flatten_transform=False, because scikit-learn then returns three axes.
    """
    check(model, "estimators_", "classes_", "le_")
    classes = class_list(model)
    builder, width = frame.builder, len(classes)
    weights = _weights(model)
    soft = model.voting == "soft"
    parts: list[Value] = []
    asked: list[Value] = []
    for member in _voting_members(model, frame, recurse):
        at = member.class_indices(range(width))
        if soft and at != list(range(width)):
            raise UnsupportedModelError(
                f"{member.where} does not know all {width} classes; fit it again"
            )
        asked.append(member.output_of("predict_proba" if soft else "predict"))
        parts.append(asked[-1] if soft else member.votes(at, width))
    if soft:
        proba = _mean(builder, parts, weights)
        values = {"label": argmax_label(builder, proba), "proba": proba}
    else:
        counted = _weighted(builder, parts, weights)
        values = {"label": argmax_label(builder, sum_values(builder, counted))}
    if not soft or model.flatten_transform:
        values["transform"] = builder.op("concat", *asked)
    return Outputs(values, build_labels(classes))


def voting_regressor(model: Any, frame: Frame, recurse: Recurse) -> Outputs:
    """Return the weighted mean of the members; `transform` is their predictions side by side."""
    check(model, "estimators_")
    builder = frame.builder
    parts = [member.output_of("predict") for member in _voting_members(model, frame, recurse)]
    return Outputs(
        {"label": _mean(builder, parts, _weights(model)), "transform": builder.op("concat", *parts)}
    )


def _voting_members(model: Any, frame: Frame, recurse: Recurse) -> Iterator[Member]:
    names = [name for name, member in model.estimators if not is_dropped(member)]
    for name, member in zip(names, model.estimators_, strict=True):
        yield Member.of(model, repr(name), member, frame, recurse)


def _weights(model: Any) -> list[float] | None:
    """Return the weights of the members that are not dropped.

    Raises:
        UnsupportedModelError: the weights cannot be averaged or counted.
    """
    if model.weights is None:
        return None
    weights = [
        float(weight)
        for (_, member), weight in zip(model.estimators, model.weights, strict=True)
        if not is_dropped(member)
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
        apply_number(builder, "mul", part, weight)
        for part, weight in zip(parts, weights, strict=True)
    ]


def _mean(builder: Builder, parts: list[Value], weights: list[float] | None) -> Value:
    """Sum and divide once at the end, like np.average.

    The mean of members that all return float32 is float32, unless weights widen them.
    """
    if weights is not None or len({part.type.dtype for part in parts}) > 1:
        parts = [as_float64(builder, part) for part in parts]
    scale = float(len(parts)) if weights is None else float(np.sum(weights))
    return apply_number(
        builder, "div", sum_values(builder, _weighted(builder, parts, weights)), scale
    )


def stacking_classifier(model: Any, frame: Frame, recurse: Recurse) -> Outputs:
    """Return the final estimator's prediction; it numbers the classes from 0."""
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
    labels = build_labels([classes[code] for code in known.values])
    offered = last.available("label", "proba", "score")
    return Outputs({**offered, "transform": stacked.matrix()}, labels)


def stacking_regressor(model: Any, frame: Frame, recurse: Recurse) -> Outputs:
    """Return the final estimator's prediction."""
    check(model, "estimators_", "final_estimator_", "stack_method_")
    stacked = _stacked(model, frame, recurse, binary=False)
    last = Member.of(model, "final_estimator_", model.final_estimator_, stacked, recurse)
    return Outputs({"label": last.output_of("predict"), "transform": stacked.matrix()})


def _stacked(model: Any, frame: Frame, recurse: Recurse, binary: bool) -> Frame:
    """Return the members' outputs side by side, and with passthrough also the columns.

    Of two probabilities only the second is kept. `transform` is the input of the final estimator.
    """
    builder = frame.builder
    names = [name for name, member in model.estimators if not is_dropped(member)]
    parts: list[Frame] = []
    for name, member, method in zip(names, model.estimators_, model.stack_method_, strict=True):
        value = Member.of(model, repr(name), member, frame, recurse).output_of(method)
        value = as_float64(builder, value)
        if binary and method == "predict_proba":
            value = builder.op("select", value, indices=np.arange(1, value.type.width))
        parts.append(Frame.from_value(builder, value, stem=name))
    if model.passthrough:
        parts.append(Frame.from_value(builder, frame.matrix(rows="sparse"), frame.names))
    return Frame.hstack(builder, parts)
