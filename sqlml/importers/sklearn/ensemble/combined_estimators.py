"""Ensembles of any estimators: AdaBoost, bagging, voting and stacking.

If all members are decision trees, they become one tree ensemble, which adds the same numbers in the
same order. Members of bagging, voting and stacking predict class numbers from 0, not labels.
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
    are_plain_trees,
    join_member_trees,
    read_tree_input,
    sum_members,
    sum_trees,
)
from sqlml.importers.sklearn.estimator_checks import check_array, check_estimator
from sqlml.importers.sklearn.meta.members import (
    Member,
    apply_constant,
    import_members,
    is_dropped,
    spread,
    sum_values,
)
from sqlml.ir.builder import Builder, Value


def adaboost_classifier(model: Any, frame: Frame, recurse: Recurse) -> Outputs:
    """Sum the learners' weighted votes, which are negative for classes that are not predicted."""
    check_estimator(model, "estimators_", "estimator_weights_", "classes_")
    if getattr(model, "algorithm", "SAMME") == "SAMME.R":
        raise UnsupportedModelError(
            "AdaBoostClassifier(algorithm='SAMME.R') was removed from scikit-learn; fit it with "
            "SAMME"
        )
    classes = classify.two_or_more_classes(model)
    b, width = frame.builder, len(classes)
    votes = _count_weighted_votes(model, _reject_nan(model, frame), recurse, classes)
    score = apply_constant(b, "div", votes, model.estimator_weights_.sum())
    if width == 2:
        first_score, second_score = (b.op("select", score, indices=np.array([i])) for i in (0, 1))
        score = b.op("add", b.op("neg", first_score), second_score)
        scores = b.op("concat", b.op("neg", score), score)
        label, margin = classify.label_by_threshold(b, score), apply_constant(b, "div", scores, 2)
    else:
        label, margin = classify.argmax_label(b, score), apply_constant(b, "div", score, width - 1)
    proba = b.op("softmax", margin, sum_dtype="float64")
    return Outputs({"label": label, "proba": proba, "score": score}, build_labels(classes))


def adaboost_regressor(model: Any, frame: Frame, recurse: Recurse) -> Outputs:
    """Return the median of the learners' predictions, weighted by `estimator_weights_`."""
    check_estimator(model, "estimators_", "estimator_weights_")
    frame = _reject_nan(model, frame)
    b, learners = frame.builder, model.estimators_
    if are_plain_trees(learners):
        target = np.arange(len(learners), dtype=np.int32)
        x = read_tree_input(model, frame, learners[0])
        predictions = sum_trees(b, x, join_member_trees(learners), target=target)
    else:
        columns = [member.get_output("predict") for member in import_members(model, frame, recurse)]
        predictions = b.concat([b.cast(column, "float64") for column in columns])
    weights = np.asarray(model.estimator_weights_, np.float64)[: len(learners)]
    return Outputs({"label": b.op("weighted_median", predictions, weights=weights)})


def _reject_nan(model: Any, frame: Frame) -> Frame:
    value = check_array(frame, type(model).__name__, rows="sparse")
    return Frame.from_value(frame.builder, value, frame.names, frame.sparse)


def _count_weighted_votes(model: Any, frame: Frame, recurse: Recurse, classes: list[Any]) -> Value:
    b, n_classes = frame.builder, len(classes)
    learners = model.estimators_
    weights = [float(w) for w in model.estimator_weights_[: len(learners)]]
    weights_against = [-1 / (n_classes - 1) * weight for weight in weights]
    if are_plain_trees(learners) and all(np.array_equal(t.classes_, classes) for t in learners):
        raw_trees = join_member_trees(learners)
        is_predicted = raw_trees.value.argmax(axis=1)[:, None] == np.arange(n_classes)
        tree_of_node = np.repeat(np.arange(len(learners)), [t.tree_.node_count for t in learners])
        values = (np.array(w)[tree_of_node, None] for w in (weights, weights_against))
        raw_trees = replace(raw_trees, value=np.where(is_predicted, *values))
        return sum_trees(b, read_tree_input(model, frame, learners[0]), raw_trees)
    votes: list[Value] = []
    imported = import_members(model, frame, recurse)
    for member, weight_for, weight_against in zip(imported, weights, weights_against, strict=True):
        member_votes = member.build_votes(member.find_class_indices(classes), n_classes)
        is_predicted_class = b.op("gt", member_votes, 0.0)
        votes.append(b.op("where", is_predicted_class, weight_for, weight_against))
    return sum_values(b, votes)


def bagging_classifier(model: Any, frame: Frame, recurse: Recurse) -> Outputs:
    """Average the members' probabilities; a member without predict_proba votes for its label."""
    check_estimator(model, "estimators_", "estimators_features_", "classes_")
    classes = classify.read_classes(model)
    b, members, n_classes = frame.builder, _pair_members_with_features(model), len(classes)
    scores: list[Value] = []
    if are_plain_trees([member for member, _ in members]) and all(
        np.array_equal(member.classes_, np.arange(n_classes)) for member, _ in members
    ):
        total = sum_members(model, frame, members)
    else:
        probabilities: list[Value] = []
        for i, (estimator, features) in enumerate(members):
            columns = frame.select(features)
            member = Member.of(model, f"estimators_[{i}]", estimator, columns, recurse)
            indices = member.find_class_indices(range(n_classes))
            if "proba" in member.values:
                proba = b.cast(member.values["proba"], "float64")
                probabilities.append(spread(b, proba, indices, n_classes))
            else:
                probabilities.append(member.build_votes(indices, n_classes))
            scores += [b.cast(score, "float64") for score in member.get_available("score").values()]
        total = sum_values(b, probabilities)
    proba = apply_constant(b, "div", total, len(members))
    values = {"label": classify.argmax_label(b, proba), "proba": proba}
    if len(scores) == len(members) and len({score.type.width for score in scores}) == 1:
        values["score"] = apply_constant(b, "div", sum_values(b, scores), len(members))
    return Outputs(values, build_labels(classes))


def bagging_regressor(model: Any, frame: Frame, recurse: Recurse) -> Outputs:
    check_estimator(model, "estimators_", "estimators_features_")
    b, members = frame.builder, _pair_members_with_features(model)
    if are_plain_trees([member for member, _ in members]):
        total = sum_members(model, frame, members)
    else:
        predictions = []
        for i, (estimator, features) in enumerate(members):
            columns, name = frame.select(features), f"estimators_[{i}]"
            member = Member.of(model, name, estimator, columns, recurse, many=True)
            predictions.append(b.cast(member.get_output("predict"), "float64"))
        total = sum_values(b, predictions)
    return Outputs({"label": apply_constant(b, "div", total, len(members))})


def _pair_members_with_features(model: Any) -> list[tuple[Any, Sequence[int]]]:
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
    """Count the members' labels (hard voting), or average their probabilities (soft voting).

    The output `transform` has the labels or probabilities of all members side by side. With soft
    voting and flatten_transform=False, it is left out, because it would have three axes.
    """
    check_estimator(model, "estimators_", "classes_", "le_")
    classes = classify.read_classes(model)
    b, n_classes = frame.builder, len(classes)
    weights = _read_weights(model)
    is_soft = model.voting == "soft"
    votes, outputs = list[Value](), list[Value]()
    for member in _import_voting_members(model, frame, recurse):
        indices = member.find_class_indices(range(n_classes))
        if is_soft and indices != list(range(n_classes)):
            raise UnsupportedModelError(
                f"{member.where} does not know all {n_classes} classes; fit it again"
            )
        outputs.append(member.get_output("predict_proba" if is_soft else "predict"))
        votes.append(outputs[-1] if is_soft else member.build_votes(indices, n_classes))
    if is_soft:
        proba = _average(b, votes, weights)
        values = {"label": classify.argmax_label(b, proba), "proba": proba}
    else:
        total = sum_values(b, _apply_weights(b, votes, weights))
        values = {"label": classify.argmax_label(b, total)}
    if not is_soft or model.flatten_transform:
        values["transform"] = b.op("concat", *outputs)
    return Outputs(values, build_labels(classes))


def voting_regressor(model: Any, frame: Frame, recurse: Recurse) -> Outputs:
    """Return the weighted mean of the members' predictions; `transform` has all predictions."""
    check_estimator(model, "estimators_")
    b = frame.builder
    imported = _import_voting_members(model, frame, recurse)
    predictions = [member.get_output("predict") for member in imported]
    label = _average(b, predictions, _read_weights(model))
    return Outputs({"label": label, "transform": b.op("concat", *predictions)})


def _import_voting_members(model: Any, frame: Frame, recurse: Recurse) -> Iterator[Member]:
    names = [name for name, member in model.estimators if not is_dropped(member)]
    for name, member in zip(names, model.estimators_, strict=True):
        yield Member.of(model, repr(name), member, frame, recurse)


def _read_weights(model: Any) -> list[float] | None:
    if model.weights is None:
        return None
    pairs = zip(model.estimators, model.weights, strict=True)
    weights = [float(weight) for (_, member), weight in pairs if not is_dropped(member)]
    if min(weights) < 0 or sum(weights) == 0:
        raise UnsupportedModelError(
            f"{type(model).__name__}(weights={list(model.weights)}) has a negative weight, or only "
            "zeros; give each member a weight of 0 or more, and at least one a positive weight"
        )
    return weights


def _apply_weights(
    builder: Builder, values: list[Value], weights: list[float] | None
) -> list[Value]:
    if weights is None:
        return values
    return [apply_constant(builder, "mul", *pair) for pair in zip(values, weights, strict=True)]


def _average(builder: Builder, values: list[Value], weights: list[float] | None) -> Value:
    """Return the mean of `values`, weighted if there are weights; without them, keep float32."""
    if weights is not None or len({value.type.dtype for value in values}) > 1:
        values = [builder.cast(value, "float64") for value in values]
    total_weight = float(len(values)) if weights is None else float(np.sum(weights))
    return apply_constant(
        builder, "div", sum_values(builder, _apply_weights(builder, values, weights)), total_weight
    )


def stacking_classifier(model: Any, frame: Frame, recurse: Recurse) -> Outputs:
    """Return the outputs of the final estimator, which predicts the indices of the classes."""
    check_estimator(model, "estimators_", "final_estimator_", "stack_method_", "classes_")
    classes = classify.read_classes(model)
    stacked = _stack_outputs(model, frame, recurse, binary=len(classes) == 2)
    final_member = Member.of(model, "final_estimator_", model.final_estimator_, stacked, recurse)
    codes = final_member.classes
    if codes.kind != "int64" or not all(0 <= code < len(classes) for code in codes.values):
        raise UnsupportedModelError(
            "final_estimator_ of StackingClassifier does not predict class numbers; fit the "
            "StackingClassifier again"
        )
    labels = build_labels([classes[code] for code in codes.values])
    member_values = final_member.get_available("label", "proba", "score")
    return Outputs({**member_values, "transform": stacked.matrix()}, labels)


def stacking_regressor(model: Any, frame: Frame, recurse: Recurse) -> Outputs:
    check_estimator(model, "estimators_", "final_estimator_", "stack_method_")
    stacked = _stack_outputs(model, frame, recurse, binary=False)
    final_member = Member.of(model, "final_estimator_", model.final_estimator_, stacked, recurse)
    return Outputs({"label": final_member.get_output("predict"), "transform": stacked.matrix()})


def _stack_outputs(model: Any, frame: Frame, recurse: Recurse, binary: bool) -> Frame:
    """Return the columns of the final estimator: the members' outputs, and any passed-on inputs.

    If `binary`, the probability of the first class is left out.
    """
    b = frame.builder
    names = [name for name, member in model.estimators if not is_dropped(member)]
    frames: list[Frame] = []
    for name, member, method in zip(names, model.estimators_, model.stack_method_, strict=True):
        value = Member.of(model, repr(name), member, frame, recurse).get_output(method)
        value = b.cast(value, "float64")
        if binary and method == "predict_proba":
            value = b.op("select", value, indices=np.arange(1, value.type.width))
        frames.append(Frame.from_value(b, value, stem=name))
    if model.passthrough:
        frames.append(Frame.from_value(b, frame.matrix(rows="sparse"), frame.names))
    return Frame.hstack(b, frames)
