"""CalibratedClassifierCV: members' scores turned into probabilities, and their mean.

`sklearn/calibration.py`: a sigmoid (Platt, 1999), isotonic regression (Zadrozny and Elkan, 2002)
or a temperature (Guo et al., 2017) on decision_function where the member has it, else on
predict_proba.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame, Outputs, Recurse, labels_of
from sqlml.importers.sklearn.classify import (
    argmax_label,
    normalised,
    two_or_more_classes,
    with_complement,
)
from sqlml.importers.sklearn.fitted import check
from sqlml.importers.sklearn.isotonic import interpolated
from sqlml.importers.sklearn.meta.members import Member, scaled, spread, total, wide
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
