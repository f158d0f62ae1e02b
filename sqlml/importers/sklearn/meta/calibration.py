"""CalibratedClassifierCV: members' scores turned into probabilities, and their mean.

`sklearn/calibration.py`: a sigmoid (Platt, 1999), isotonic regression (Zadrozny and Elkan, 2002)
or a temperature (Guo et al., 2017) on decision_function where the member has it, else on
predict_proba.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame, Outputs, Recurse, Schema, labels_of
from sqlml.importers.model_checks import unfitted
from sqlml.importers.sklearn.classify import (
    argmax_label,
    normalised,
    two_or_more_classes,
    with_complement,
)
from sqlml.importers.sklearn.estimator_checks import check
from sqlml.importers.sklearn.isotonic import interpolated
from sqlml.importers.sklearn.meta.members import OUTPUT, Member, scaled, spread, total, wide
from sqlml.ir.builder import Builder, Value

EPSILON = 1e-12
"""What is added to a probability before its logarithm is taken for a temperature."""


def calibrated_classifier(model: Any, frame: Frame, recurse: Recurse) -> Outputs:
    """The mean of all pairs of a member and its calibrators."""
    check(model, "calibrated_classifiers_", "classes_")
    classes = two_or_more_classes(model)
    builder = frame.builder
    parts = [
        _calibrated(model, f"calibrated_classifiers_[{i}]", pair, frame, recurse, classes)
        for i, pair in enumerate(model.calibrated_classifiers_)
    ]
    proba = scaled(builder, "div", total(builder, parts), len(parts))
    return Outputs({"label": argmax_label(builder, proba), "proba": proba}, labels_of(classes))


def _calibrated(
    owner: Any, name: str, pair: Any, frame: Frame, recurse: Recurse, classes: list[Any]
) -> Value:
    """(n, K) probabilities of one pair; the member of a temperature may number its classes."""
    builder, width = frame.builder, len(classes)
    member = Member.of(owner, name, pair.estimator, frame, recurse)
    known = member.classes
    scored = "score" in member.values
    if not scored and "proba" not in member.values:
        raise UnsupportedModelError(
            f"{member.where} has neither decision_function nor predict_proba"
        )
    response = wide(builder, member.values["score" if scored else "proba"])
    if not scored and len(known) == 2:
        response = builder.op("select", response, indices=np.array([1]))
    if pair.method == "temperature":
        proba = _temperature(builder, response, scored, float(pair.calibrators[0].beta_))
    elif pair.method in ("sigmoid", "isotonic"):
        proba = _one_by_one(builder, response, pair, member.places(classes), width)
    else:
        raise UnsupportedModelError(
            f"CalibratedClassifierCV(method={pair.method!r}) is not known to sqlml; use sigmoid"
        )
    if proba.type.width != width:
        raise UnsupportedModelError(
            f"{member.where} does not know all {width} classes; fit it again"
        )
    return _cut(builder, proba)


def _one_by_one(builder: Builder, response: Value, pair: Any, at: list[int], width: int) -> Value:
    """Each column of the response by its own calibrator; normalised for three classes or more."""
    count = min(len(at), response.type.width, len(pair.calibrators))
    columns = [
        _calibrate(builder, builder.op("select", response, indices=np.array([i])), calibrator)
        for i, calibrator in enumerate(pair.calibrators[:count])
    ]
    if width == 2:
        return with_complement(builder, columns[0])
    # A pair that knows fewer classes has fewer columns; the others stay 0.
    return normalised(builder, spread(builder, builder.op("concat", *columns), at[:count], width))


def _calibrate(builder: Builder, value: Value, calibrator: Any) -> Value:
    if hasattr(calibrator, "a_"):
        link = scaled(builder, "mul", value, calibrator.a_)
        link = scaled(builder, "add", link, calibrator.b_)
        return builder.op("sigmoid", builder.op("neg", link))
    return interpolated(builder, value, calibrator)


def _temperature(builder: Builder, response: Value, scored: bool, beta: float) -> Value:
    """softmax(beta * logits); probabilities become logits by their logarithm."""
    if response.type.width == 1 and scored:
        logits = builder.op("concat", builder.op("neg", response), response)
    elif scored:
        logits = response
    else:
        proba = with_complement(builder, response) if response.type.width == 1 else response
        logits = builder.op("log", scaled(builder, "add", proba, EPSILON))
    return builder.op("softmax", scaled(builder, "mul", logits, beta), sum_dtype="float64")


def _cut(builder: Builder, proba: Value) -> Value:
    """What exceeds 1 by no more than 1e-5 is 1."""
    above = builder.op("and", builder.op("gt", proba, 1.0), builder.op("le", proba, 1.0 + 1e-5))
    return builder.op("where", above, 1.0, proba)


# FixedThresholdClassifier and TunedThresholdClassifierCV: another cut between two classes.
#
# `sklearn/model_selection/_classification_threshold.py`: the positive class from `score >=
# threshold` on; probabilities and scores are the inner classifier's own.


METHODS = ("predict_proba", "decision_function")


def fixed_threshold_classifier(model: Any, frame: Frame, recurse: Recurse) -> Outputs:
    """The threshold is a parameter; "auto" is 0.5 for probabilities and 0 for scores."""
    check(model)
    inner = inner_estimator(model)
    member = Member.of(model, "estimator", inner, frame, recurse)
    method = _method(model, member)
    threshold = model.threshold
    if isinstance(threshold, str):
        threshold = 0.5 if method == "predict_proba" else 0.0
    # numpy brings Python's own floats to the dtype of the scores, and keeps its own at float64
    narrow = type(threshold) in (int, float)
    score = _score(model, member, method, model.pos_label)
    score = score if narrow else wide(frame.builder, score)
    return _apply_threshold(member, score, float(threshold), _positive(member, model.pos_label))


def tuned_threshold_classifier(model: Any, frame: Frame, recurse: Recurse) -> Outputs:
    """The threshold is `best_threshold_`, found by cross-validation."""
    check(model, "estimator_", "best_threshold_", "_curve_scorer")
    member = Member.of(model, "estimator_", model.estimator_, frame, recurse)
    pos_label = model._curve_scorer._get_pos_label()
    score = wide(frame.builder, _score(model, member, _method(model, member), pos_label))
    return _apply_threshold(
        member, score, float(model.best_threshold_), _positive(member, pos_label)
    )


def inner_estimator(model: Any) -> Any:
    """The fitted classifier inside: one given fitted needs no fit of the model itself."""
    return getattr(model, "estimator_", model.estimator)


def threshold_schema(model: Any) -> Schema:
    """The columns of the classifier inside.

    Raises:
        UnsupportedModelError: that is not fitted.
    """
    inner = inner_estimator(model)
    schema = Schema.recorded(inner)
    if schema is None:
        raise unfitted(model)
    return schema


def _method(model: Any, member: Member) -> str:
    wanted = METHODS if model.response_method == "auto" else (model.response_method,)
    for method in wanted:
        if method in OUTPUT and OUTPUT[method] in member.values:
            return str(method)
    raise UnsupportedModelError(
        f"the classifier in {type(model).__name__} has no {' or '.join(map(str, wanted))}"
    )


def _positive(member: Member, pos_label: Any) -> int:
    return 1 if pos_label is None else member.classes.values.index(pos_label)


def _score(model: Any, member: Member, method: str, pos_label: Any) -> Value:
    """(n, 1): the probability of the positive class, or the score in favour of it."""
    labels = member.classes
    if len(labels) != 2:
        raise UnsupportedModelError(
            f"the classifier in {type(model).__name__} has {len(labels)} classes, not two"
        )
    if pos_label is not None and pos_label not in labels.values:
        raise UnsupportedModelError(
            f"{type(model).__name__} has pos_label={pos_label!r}, which is not one of its classes"
        )
    positive = _positive(member, pos_label)
    score = member.values[OUTPUT[method]]
    if method == "predict_proba":
        return member.builder.op("select", score, indices=np.array([positive]))
    return score if positive else member.builder.op("neg", score)


def _apply_threshold(member: Member, score: Value, threshold: float, positive: int) -> Outputs:
    above = scaled(member.builder, "ge", score, threshold)
    label = member.builder.op("where", above, positive, 1 - positive)
    return Outputs({"label": label, **member.own("proba", "score")}, member.classes)


# EncodedTargetClassifier: a classifier of numbered classes, and the names of the classes.
#
# sqlml's own (`sqlml/training/estimators/encoded_target.py`); what CREATE MODEL .. AS SELECT
# makes.


def encoded_target_classifier(model: Any, frame: Frame, recurse: Recurse) -> Outputs:
    """What the classifier inside answers, its classes by their names.

    Raises:
        UnsupportedModelError: it does not tell classes, or not as many.
    """
    check(model, "classes_", "classifier_")
    made = recurse(model.classifier_, frame)
    labels = labels_of(list(model.classes_))
    if not isinstance(made, Outputs) or [len(s) for s in made.label_sets] != [len(labels)]:
        raise UnsupportedModelError(
            f"the classifier of this {type(model).__name__} does not tell its {len(labels)} classes"
        )
    return Outputs(made.values, labels)
