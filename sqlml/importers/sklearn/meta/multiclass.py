"""Classifiers of many classes and models of many targets, made of one estimator for each.

`sklearn/multiclass.py` and `sklearn/multioutput.py`. MultiOutputRegressor and -Classifier have one
independent estimator per target. A chain passes the columns and the predictions of earlier
estimators to each one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame, Outputs, Recurse, build_labels
from sqlml.importers.sklearn.classify import (
    add_complement,
    argmax_label,
    binary_label,
    class_list,
    ovr_decision,
    two_or_more_classes,
)
from sqlml.importers.sklearn.cluster import assign_nearest
from sqlml.importers.sklearn.dummy import repeat_rows
from sqlml.importers.sklearn.estimator_checks import check, numbers, path_of
from sqlml.importers.sklearn.meta.members import (
    Member,
    apply_number,
    as_float64,
    as_numbers,
    members,
    sum_values,
)
from sqlml.ir.builder import Builder, Value
from sqlml.types import Labels

CONSTANT = "sklearn.multiclass._ConstantPredictor"
"""The class of members whose training rows were all of one class."""


@dataclass(frozen=True, slots=True)
class Binary:
    """One member: its confidence in the second class (n, 1), and its output values.

    The second class is predicted if the confidence exceeds `threshold`.
    """

    confidence: Value
    values: dict[str, Value]
    threshold: float


def one_vs_rest_classifier(model: Any, frame: Frame, recurse: Recurse) -> Outputs:
    """Return the class with the most confident member; probabilities are divided by their sum.

    In a model fitted on an indicator matrix, each member decides about its own label.
    """
    check(model, "estimators_", "classes_", "label_binarizer_")
    builder = frame.builder
    members = _members(model, frame, recurse)
    if model.label_binarizer_.y_type_.startswith("multilabel"):
        return _multilabel(builder, members)
    classes = two_or_more_classes(model)
    confidences = [member.confidence for member in members]
    if len(members) == 1:
        label = binary_label(builder, confidences[0], threshold=members[0].threshold)
    else:
        label = argmax_label(builder, builder.concat(confidences))
    values = {"label": label, **_scores(builder, members)}
    if all("proba" in member.values for member in members):
        second = [_second(builder, member.values["proba"]) for member in members]
        values["proba"] = _proba(builder, second)
    return Outputs(values, build_labels(classes))


def _multilabel(builder: Builder, members: list[Binary]) -> Outputs:
    """Compare all members with the threshold that suits the first of them."""
    confidence = builder.concat([member.confidence for member in members])
    label = binary_label(builder, confidence, threshold=members[0].threshold)
    values = {"label": label, **_scores(builder, members)}
    if all("proba" in member.values for member in members):
        second = [_second(builder, member.values["proba"]) for member in members]
        values["proba"] = builder.concat(second)
    return Outputs(values, (Labels("int64", (0, 1)),) * len(members))


def one_vs_one_classifier(model: Any, frame: Frame, recurse: Recurse) -> Outputs:
    """Count the votes of all pairs of classes; confidences decide between equal votes."""
    check(model, "estimators_", "classes_")
    classes = two_or_more_classes(model)
    if model.pairwise_indices_ is not None:
        raise UnsupportedModelError(
            "OneVsOneClassifier around a model of precomputed kernels needs the training rows; "
            "fit it with a kernel that the model computes itself"
        )
    builder = frame.builder
    members = _members(model, as_numbers(frame), recurse)
    predictions = builder.concat([member.values["predict"] for member in members])
    confidences = builder.concat([member.confidence for member in members])
    score = ovr_decision(builder, predictions, confidences, len(classes))
    if len(classes) == 2:
        score = builder.op("select", score, indices=np.array([1]))
        label = binary_label(builder, score, threshold=members[0].threshold)
    else:
        label = argmax_label(builder, score)
    return Outputs({"label": label, "score": score}, build_labels(classes))


def output_code_classifier(model: Any, frame: Frame, recurse: Recurse) -> Outputs:
    """Return the class whose code is nearest to the members' confidences; the first of equals."""
    check(model, "estimators_", "classes_", "code_book_")
    classes = class_list(model)
    builder = frame.builder
    members = _members(model, frame, recurse)
    codes = np.asarray(model.code_book_, np.float64)
    y = builder.concat([member.confidence for member in members])
    return Outputs({"label": assign_nearest(builder, y, codes)}, build_labels(classes))


def _members(model: Any, frame: Frame, recurse: Recurse) -> list[Binary]:
    return [_member(model, i, member, frame, recurse) for i, member in enumerate(model.estimators_)]


def _member(model: Any, i: int, member: Any, frame: Frame, recurse: Recurse) -> Binary:
    """Return the confidence: predict of a regressor, else decision_function, else a probability."""
    builder = frame.builder
    if path_of(member) == CONSTANT:
        constant = float(np.ravel(member.y_)[0])
        value = repeat_rows(frame, np.array([constant]))
        proba = repeat_rows(frame, np.array([1 - constant, constant]))
        return Binary(value, {"predict": value, "score": value, "proba": proba}, 0.5)
    inner = Member.of(model, f"estimators_[{i}]", member, frame, recurse)
    values = {"predict": inner.output_of("predict")}
    if inner.outputs.labels is None:
        return Binary(as_float64(builder, values["predict"]), values, 0.5)
    if len(inner.classes) != 2:
        raise UnsupportedModelError(
            f"{inner.where} distinguishes {len(inner.classes)} classes, not two; fit it again"
        )
    values |= inner.available("score", "proba")
    if "score" in values:
        return Binary(values["score"], values, 0.0)
    if "proba" in values:
        return Binary(as_float64(builder, _second(builder, values["proba"])), values, 0.5)
    raise UnsupportedModelError(f"{inner.where} has neither decision_function nor predict_proba")


def _scores(builder: Builder, members: list[Binary]) -> dict[str, Value]:
    if not all("score" in member.values for member in members):
        return {}
    return {"score": builder.concat([member.values["score"] for member in members])}


def _proba(builder: Builder, second: list[Value]) -> Value:
    """Divide the members' probabilities of the second class by their sum if it is not 0."""
    if len(second) == 1:
        proba = add_complement(builder, second[0])
        columns = [builder.op("select", proba, indices=np.array([i])) for i in (0, 1)]
        return _divide_by_sum(builder, proba, sum_values(builder, columns))
    return _divide_by_sum(builder, builder.concat(second), sum_values(builder, second))


def _second(builder: Builder, proba: Value) -> Value:
    return builder.op("select", proba, indices=np.array([1]))


def _divide_by_sum(builder: Builder, proba: Value, sums: Value) -> Value:
    nothing = apply_number(builder, "eq", sums, 0)
    return builder.op("where", nothing, proba, builder.op("div", proba, sums))


T = TypeVar("T", Value, Labels)


def multi_output_regressor(model: Any, frame: Frame, recurse: Recurse) -> Outputs:
    """Return the estimators' predictions side by side, (n, targets); labels as numbers."""
    check(model, "estimators_")
    columns = [member.output_of("predict") for member in members(model, frame, recurse)]
    return Outputs({"label": frame.builder.concat(columns)})


def multi_output_classifier(model: Any, frame: Frame, recurse: Recurse) -> Outputs:
    """Return the labels of all targets, and the probabilities if all estimators have them."""
    check(model, "estimators_")
    estimators = list(members(model, frame, recurse))
    labels = tuple(member.classes for member in estimators)
    values = {
        output: frame.builder.concat([member.values[output] for member in estimators])
        for output in ("label", "proba")
        if all(output in member.values for member in estimators)
    }
    return Outputs(values, labels)


def regressor_chain(model: Any, frame: Frame, recurse: Recurse) -> Outputs:
    """Return (n, targets) float64; each estimator also reads the predictions of earlier ones."""
    check(model, "estimators_", "order_")
    chain = _chain(model, frame, recurse, "predict")
    columns = [as_float64(frame.builder, member.output_of("predict")) for member in chain]
    return Outputs({"label": frame.builder.concat(_in_order(model, columns))})


def classifier_chain(model: Any, frame: Frame, recurse: Recurse) -> Outputs:
    """Return labels, and the probability and score of each target's second class.

    With more than two classes there are no probabilities and scores: scikit-learn raises there.
    """
    check(model, "estimators_", "order_", "chain_method_")
    builder = frame.builder
    chain = _chain(model, frame, recurse, str(model.chain_method_))
    labels = _in_order(model, [member.classes for member in chain])
    columns = [member.values["label"] for member in chain]
    values = {"label": builder.concat(_in_order(model, columns))}
    if all(len(known) == 2 for known in labels):
        for output, method in (("proba", "predict_proba"), ("score", "decision_function")):
            if hasattr(model, method) and all(output in member.values for member in chain):
                columns = [_feature(model, i, member, method) for i, member in enumerate(chain)]
                values[output] = builder.concat(_in_order(model, columns))
    if len(labels) == 1 and "proba" in values:
        values["proba"] = chain[0].values["proba"]
    return Outputs(values, tuple(labels))


def _chain(model: Any, frame: Frame, recurse: Recurse, method: str) -> list[Member]:
    """Return the estimators in the chain's order; later ones read `method` of earlier ones."""
    builder = frame.builder
    x = numbers(frame, type(model).__name__)
    names, parts = list(frame.names), [x]
    estimators: list[Member] = []
    for place, estimator in enumerate(model.estimators_):
        columns = Frame.from_value(builder, builder.concat(parts), names, frame.sparse)
        estimators.append(Member.of(model, f"estimators_[{place}]", estimator, columns, recurse))
        if place + 1 < len(model.estimators_):
            parts.append(as_float64(builder, _feature(model, place, estimators[-1], method)))
            names.append(f"target {int(model.order_[place])}")
    return estimators


def _feature(model: Any, place: int, member: Member, method: str) -> Value:
    """Return the one column that a chain keeps of an estimator's `method`.

    Raises:
        UnsupportedModelError: probabilities or scores of other than two classes, on which
            scikit-learn raises.
    """
    if method == "predict":
        return member.output_of(method)
    if len(member.classes) != 2:
        raise UnsupportedModelError(
            f"{type(model).__name__}(chain_method={method!r}) works only for two classes, and "
            f"estimators_[{place}] has a different number; use chain_method='predict'"
        )
    if method == "decision_function":
        return member.output_of(method)
    proba = member.output_of("predict_proba")
    second = member.builder.op("select", proba, indices=np.array([1]))
    return member.builder.op("log", second) if method == "predict_log_proba" else second


def _in_order(model: Any, columns: Sequence[T]) -> list[T]:
    """Reorder values from the order of the chain to the order of the targets."""
    places = np.argsort(np.asarray(model.order_, np.int64))
    return [columns[int(place)] for place in places]
