"""Ensembles of any estimators: AdaBoost, bagging, voting and stacking.

If all members are decision trees, they become one tree ensemble, which adds the same numbers in the
same order. Members of bagging, voting and stacking predict class indices, not labels.
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
    spread_columns,
    sum_values,
)
from sqlml.ir.builder import Builder, Value


def import_adaboost_classifier(model: Any, frame: Frame, recurse: Recurse) -> Outputs:
    """Sum the weighted votes of the learners; classes that are not predicted get negative votes."""
    check_estimator(model, "estimators_", "estimator_weights_", "classes_")
    if getattr(model, "algorithm", "SAMME") == "SAMME.R":
        raise UnsupportedModelError(
            "AdaBoostClassifier(algorithm='SAMME.R') was removed from scikit-learn; fit it with "
            "SAMME"
        )
    classes = classify.require_multiple_classes(model)
    builder = frame.builder
    op = builder.op
    width = len(classes)
    votes = _count_weighted_votes(model, _reject_nan(model, frame), recurse, classes)
    score = apply_constant(builder, "div", votes, model.estimator_weights_.sum())
    if width == 2:
        first_score, second_score = (op("select", score, indices=np.array([i])) for i in (0, 1))
        score = op("add", op("neg", first_score), second_score)
        scores = op("concat", op("neg", score), score)
        label = classify.label_by_threshold(builder, score)
        margin = apply_constant(builder, "div", scores, 2)
    else:
        label = classify.label_by_argmax(builder, score)
        margin = apply_constant(builder, "div", score, width - 1)
    proba = op("softmax", margin, sum_dtype="float64")
    return Outputs({"label": label, "proba": proba, "score": score}, build_labels(classes))


def import_adaboost_regressor(model: Any, frame: Frame, recurse: Recurse) -> Outputs:
    """Return the weighted median of the learners' predictions."""
    check_estimator(model, "estimators_", "estimator_weights_")
    frame = _reject_nan(model, frame)
    builder = frame.builder
    learners = model.estimators_
    if are_plain_trees(learners):
        first_outputs = np.arange(len(learners), dtype=np.int32)
        x = read_tree_input(model, frame, learners[0])
        raw_trees = join_member_trees(learners)
        predictions = sum_trees(builder, x, raw_trees, first_outputs=first_outputs)
    else:
        columns = [member.get_output("predict") for member in import_members(model, frame, recurse)]
        predictions = builder.concat([builder.cast(column, "float64") for column in columns])
    weights = np.asarray(model.estimator_weights_, np.float64)[: len(learners)]
    return Outputs({"label": builder.op("weighted_median", predictions, weights=weights)})


def _reject_nan(model: Any, frame: Frame) -> Frame:
    checked = check_array(frame, type(model).__name__, rows="sparse")
    return Frame.from_value(frame.builder, checked, frame.names, frame.sparse)


def _count_weighted_votes(model: Any, frame: Frame, recurse: Recurse, classes: list[Any]) -> Value:
    builder = frame.builder
    n_classes = len(classes)
    learners = model.estimators_
    weights = [float(w) for w in model.estimator_weights_[: len(learners)]]
    weights_against = [-1 / (n_classes - 1) * weight for weight in weights]
    if are_plain_trees(learners) and all(np.array_equal(t.classes_, classes) for t in learners):
        raw_trees = join_member_trees(learners)
        is_predicted = raw_trees.value.argmax(axis=1)[:, None] == np.arange(n_classes)
        tree_of_node = np.repeat(np.arange(len(learners)), [t.tree_.node_count for t in learners])
        values = (np.array(w)[tree_of_node, None] for w in (weights, weights_against))
        raw_trees = replace(raw_trees, value=np.where(is_predicted, *values))
        return sum_trees(builder, read_tree_input(model, frame, learners[0]), raw_trees)
    votes: list[Value] = []
    imported = import_members(model, frame, recurse)
    for member, weight_for, weight_against in zip(imported, weights, weights_against, strict=True):
        member_votes = member.build_votes(member.find_class_indices(classes), n_classes)
        is_predicted_class = builder.op("gt", member_votes, 0.0)
        votes.append(builder.op("where", is_predicted_class, weight_for, weight_against))
    return sum_values(builder, votes)


def import_bagging_classifier(model: Any, frame: Frame, recurse: Recurse) -> Outputs:
    """Average the members' probabilities; without predict_proba, a member votes for a label."""
    check_estimator(model, "estimators_", "estimators_features_", "classes_")
    classes = classify.read_classes(model)
    builder = frame.builder
    members = _pair_members_with_features(model)
    n_classes = len(classes)
    scores: list[Value] = []
    if are_plain_trees([member for member, _ in members]) and all(
        np.array_equal(member.classes_, np.arange(n_classes)) for member, _ in members
    ):
        total = sum_members(model, frame, members)
    else:
        probabilities: list[Value] = []
        for i, (estimator, features) in enumerate(members):
            columns = frame.select(features)
            member = Member.read(model, f"estimators_[{i}]", estimator, columns, recurse)
            indices = member.find_class_indices(range(n_classes))
            if "proba" in member.values:
                proba = builder.cast(member.values["proba"], "float64")
                probabilities.append(spread_columns(builder, proba, indices, n_classes))
            else:
                probabilities.append(member.build_votes(indices, n_classes))
            member_scores = member.get_available("score").values()
            scores += [builder.cast(score, "float64") for score in member_scores]
        total = sum_values(builder, probabilities)
    proba = apply_constant(builder, "div", total, len(members))
    values = {"label": classify.label_by_argmax(builder, proba), "proba": proba}
    if len(scores) == len(members) and len({score.type.width for score in scores}) == 1:
        values["score"] = apply_constant(builder, "div", sum_values(builder, scores), len(members))
    return Outputs(values, build_labels(classes))


def import_bagging_regressor(model: Any, frame: Frame, recurse: Recurse) -> Outputs:
    check_estimator(model, "estimators_", "estimators_features_")
    builder = frame.builder
    members = _pair_members_with_features(model)
    if are_plain_trees([member for member, _ in members]):
        total = sum_members(model, frame, members)
    else:
        predictions = []
        for i, (estimator, features) in enumerate(members):
            columns = frame.select(features)
            name = f"estimators_[{i}]"
            member = Member.read(model, name, estimator, columns, recurse, many=True)
            predictions.append(builder.cast(member.get_output("predict"), "float64"))
        total = sum_values(builder, predictions)
    return Outputs({"label": apply_constant(builder, "div", total, len(members))})


def _pair_members_with_features(model: Any) -> list[tuple[Any, Sequence[int]]]:
    if model.n_estimators != len(model.estimators_):
        raise UnsupportedModelError(
            f"{type(model).__name__} has {len(model.estimators_)} fitted members and "
            f"n_estimators={model.n_estimators}; call its fit() again"
        )
    features = [[int(i) for i in indices] for indices in model.estimators_features_]
    return list(zip(model.estimators_, features, strict=True))


def import_voting_classifier(model: Any, frame: Frame, recurse: Recurse) -> Outputs:
    """Count the labels of the members (hard voting), or average the probabilities (soft voting).

    The output `transform` has the labels or probabilities of all members side by side. It is
    omitted for soft voting with flatten_transform=False, because it would have three axes.
    """
    check_estimator(model, "estimators_", "classes_", "le_")
    classes = classify.read_classes(model)
    builder = frame.builder
    n_classes = len(classes)
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
        proba = _average_values(builder, votes, weights)
        values = {"label": classify.label_by_argmax(builder, proba), "proba": proba}
    else:
        total = sum_values(builder, _apply_weights(builder, votes, weights))
        values = {"label": classify.label_by_argmax(builder, total)}
    if not is_soft or model.flatten_transform:
        values["transform"] = builder.op("concat", *outputs)
    return Outputs(values, build_labels(classes))


def import_voting_regressor(model: Any, frame: Frame, recurse: Recurse) -> Outputs:
    """Return the weighted mean of the members' predictions; `transform` has all predictions."""
    check_estimator(model, "estimators_")
    imported = _import_voting_members(model, frame, recurse)
    predictions = [member.get_output("predict") for member in imported]
    label = _average_values(frame.builder, predictions, _read_weights(model))
    return Outputs({"label": label, "transform": frame.builder.op("concat", *predictions)})


def _import_voting_members(model: Any, frame: Frame, recurse: Recurse) -> Iterator[Member]:
    names = [name for name, member in model.estimators if not is_dropped(member)]
    for name, member in zip(names, model.estimators_, strict=True):
        yield Member.read(model, repr(name), member, frame, recurse)


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


def _average_values(builder: Builder, values: list[Value], weights: list[float] | None) -> Value:
    """Return the mean or, with weights, the weighted mean; only the mean may stay float32."""
    if weights is not None or len({value.type.dtype for value in values}) > 1:
        values = [builder.cast(value, "float64") for value in values]
    total_weight = float(len(values)) if weights is None else float(np.sum(weights))
    total = sum_values(builder, _apply_weights(builder, values, weights))
    return apply_constant(builder, "div", total, total_weight)


def import_stacking_classifier(model: Any, frame: Frame, recurse: Recurse) -> Outputs:
    """Return the outputs of the final estimator, which predicts class indices."""
    check_estimator(model, "estimators_", "final_estimator_", "stack_method_", "classes_")
    classes = classify.read_classes(model)
    stacked = _stack_outputs(model, frame, recurse, binary=len(classes) == 2)
    final_member = Member.read(model, "final_estimator_", model.final_estimator_, stacked, recurse)
    codes = final_member.classes
    if codes.kind != "int64" or not all(0 <= code < len(classes) for code in codes.values):
        raise UnsupportedModelError(
            "final_estimator_ of StackingClassifier does not predict class numbers; fit the "
            "StackingClassifier again"
        )
    labels = build_labels([classes[code] for code in codes.values])
    member_values = final_member.get_available("label", "proba", "score")
    return Outputs({**member_values, "transform": stacked.matrix()}, labels)


def import_stacking_regressor(model: Any, frame: Frame, recurse: Recurse) -> Outputs:
    check_estimator(model, "estimators_", "final_estimator_", "stack_method_")
    stacked = _stack_outputs(model, frame, recurse, binary=False)
    final_member = Member.read(model, "final_estimator_", model.final_estimator_, stacked, recurse)
    return Outputs({"label": final_member.get_output("predict"), "transform": stacked.matrix()})


def _stack_outputs(model: Any, frame: Frame, recurse: Recurse, binary: bool) -> Frame:
    """Return the members' outputs, followed by the input columns if `passthrough` is true.

    If these columns are a sparse matrix, scikit-learn makes the outputs sparse, too.
    """
    builder = frame.builder
    names = [name for name, member in model.estimators if not is_dropped(member)]
    frames: list[Frame] = []
    for name, member, method in zip(names, model.estimators_, model.stack_method_, strict=True):
        output = Member.read(model, repr(name), member, frame, recurse).get_output(method)
        output = builder.cast(output, "float64")
        if binary and method == "predict_proba":
            output = builder.op("select", output, indices=np.arange(1, output.type.width))
        frames.append(Frame.from_value(builder, output, stem=name))
    if model.passthrough:
        frames.append(Frame.from_value(builder, frame.matrix(rows="sparse"), frame.names))
    stacked = Frame.hstack(builder, frames)
    return replace(stacked, sparse=frame.sparse) if model.passthrough else stacked
