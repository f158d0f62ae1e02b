"""OneVsRestClassifier, OneVsOneClassifier and OutputCodeClassifier (`sklearn/multiclass.py`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame, Outputs, Recurse, labels_of
from sqlml.importers.sklearn.classify import (
    argmax_label,
    binary_label,
    class_list,
    two_or_more_classes,
    with_complement,
)
from sqlml.importers.sklearn.cluster.centres import nearest
from sqlml.importers.sklearn.dummy import each_row
from sqlml.importers.sklearn.fitted import check, path_of
from sqlml.importers.sklearn.meta.members import Member, as_numbers, scaled, total, wide
from sqlml.importers.sklearn.meta.one_vs_one import ovr_decision
from sqlml.ir.builder import Builder, Value
from sqlml.types import Labels

CONSTANT = "sklearn.multiclass._ConstantPredictor"
"""What stands in for a member whose training rows were all of one class."""


@dataclass(frozen=True, slots=True)
class Binary:
    """One member: its confidence in the second class (n, 1), and its output values.

    `threshold` is what the confidence must exceed for the second class.
    """

    confidence: Value
    values: dict[str, Value]
    threshold: float


def one_vs_rest_classifier(model: Any, frame: Frame, recurse: Recurse) -> Outputs:
    """The class whose member is most confident; probabilities are divided by their sum.

    Fitted on an indicator matrix, each member says whether its own label is there.
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
        label = argmax_label(builder, builder.beside(confidences))
    values = {"label": label, **_scores(builder, members)}
    if all("proba" in member.values for member in members):
        second = [_second(builder, member.values["proba"]) for member in members]
        values["proba"] = _proba(builder, second)
    return Outputs(values, labels_of(classes))


def _multilabel(builder: Builder, members: list[Binary]) -> Outputs:
    """All members are asked for more than the threshold that suits the first of them."""
    confidence = builder.beside([member.confidence for member in members])
    label = binary_label(builder, confidence, threshold=members[0].threshold)
    values = {"label": label, **_scores(builder, members)}
    if all("proba" in member.values for member in members):
        second = [_second(builder, member.values["proba"]) for member in members]
        values["proba"] = builder.beside(second)
    return Outputs(values, (Labels("int64", (0, 1)),) * len(members))


def one_vs_one_classifier(model: Any, frame: Frame, recurse: Recurse) -> Outputs:
    """Votes of all pairs of classes, and confidences where votes are equal."""
    check(model, "estimators_", "classes_")
    classes = two_or_more_classes(model)
    if model.pairwise_indices_ is not None:
        raise UnsupportedModelError(
            "OneVsOneClassifier around a model of precomputed kernels needs the training rows; "
            "fit it with a kernel that the model computes itself"
        )
    builder = frame.builder
    members = _members(model, as_numbers(frame), recurse)
    predictions = builder.beside([member.values["predict"] for member in members])
    confidences = builder.beside([member.confidence for member in members])
    score = ovr_decision(builder, predictions, confidences, len(classes))
    if len(classes) == 2:
        score = builder.op("select", score, indices=np.array([1]))
        label = binary_label(builder, score, threshold=members[0].threshold)
    else:
        label = argmax_label(builder, score)
    return Outputs({"label": label, "score": score}, labels_of(classes))


def output_code_classifier(model: Any, frame: Frame, recurse: Recurse) -> Outputs:
    """The class whose code is nearest to the members' confidences, the first of equal ones."""
    check(model, "estimators_", "classes_", "code_book_")
    classes = class_list(model)
    builder = frame.builder
    members = _members(model, frame, recurse)
    codes = np.asarray(model.code_book_, np.float64)
    y = builder.beside([member.confidence for member in members])
    return Outputs({"label": nearest(builder, y, codes)}, labels_of(classes))


def _members(model: Any, frame: Frame, recurse: Recurse) -> list[Binary]:
    return [_member(model, i, member, frame, recurse) for i, member in enumerate(model.estimators_)]


def _member(model: Any, i: int, member: Any, frame: Frame, recurse: Recurse) -> Binary:
    """Confidence is predict of a regressor, else decision_function, else a probability."""
    builder = frame.builder
    if path_of(member) == CONSTANT:
        constant = float(np.ravel(member.y_)[0])
        value = each_row(frame, np.array([constant]))
        proba = each_row(frame, np.array([1 - constant, constant]))
        return Binary(value, {"predict": value, "score": value, "proba": proba}, 0.5)
    found = Member.of(model, f"estimators_[{i}]", member, frame, recurse)
    values = {"predict": found.answer("predict")}
    if found.made.labels is None:
        return Binary(wide(builder, values["predict"]), values, 0.5)
    if len(found.classes) != 2:
        raise UnsupportedModelError(
            f"{found.where} distinguishes {len(found.classes)} classes, not two; fit it again"
        )
    values |= found.own("score", "proba")
    if "score" in values:
        return Binary(values["score"], values, 0.0)
    if "proba" in values:
        return Binary(wide(builder, _second(builder, values["proba"])), values, 0.5)
    raise UnsupportedModelError(f"{found.where} has neither decision_function nor predict_proba")


def _scores(builder: Builder, members: list[Binary]) -> dict[str, Value]:
    if not all("score" in member.values for member in members):
        return {}
    return {"score": builder.beside([member.values["score"] for member in members])}


def _proba(builder: Builder, second: list[Value]) -> Value:
    """The members' probabilities of the second class, divided by their sum where it is not 0."""
    if len(second) == 1:
        proba = with_complement(builder, second[0])
        columns = [builder.op("select", proba, indices=np.array([i])) for i in (0, 1)]
        return _divided(builder, proba, total(builder, columns))
    return _divided(builder, builder.beside(second), total(builder, second))


def _second(builder: Builder, proba: Value) -> Value:
    return builder.op("select", proba, indices=np.array([1]))


def _divided(builder: Builder, proba: Value, sums: Value) -> Value:
    nothing = scaled(builder, "eq", sums, 0)
    return builder.op("where", nothing, proba, builder.op("div", proba, sums))
