"""FixedThresholdClassifier and TunedThresholdClassifierCV: another cut between two classes.

`sklearn/model_selection/_classification_threshold.py`: the positive class from `score >=
threshold` on; probabilities and scores are the inner classifier's own.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame, Outputs, Recurse, Schema
from sqlml.importers.sklearn.fitted import check
from sqlml.importers.sklearn.meta.members import OUTPUT, Member, scaled, wide
from sqlml.importers.unfitted import unfitted
from sqlml.ir.builder import Value

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
    return _cut(member, score, float(threshold), _positive(member, model.pos_label))


def tuned_threshold_classifier(model: Any, frame: Frame, recurse: Recurse) -> Outputs:
    """The threshold is `best_threshold_`, found by cross-validation."""
    check(model, "estimator_", "best_threshold_", "_curve_scorer")
    member = Member.of(model, "estimator_", model.estimator_, frame, recurse)
    pos_label = model._curve_scorer._get_pos_label()
    score = wide(frame.builder, _score(model, member, _method(model, member), pos_label))
    return _cut(member, score, float(model.best_threshold_), _positive(member, pos_label))


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


def _cut(member: Member, score: Value, threshold: float, positive: int) -> Outputs:
    above = scaled(member.builder, "ge", score, threshold)
    label = member.builder.op("where", above, positive, 1 - positive)
    return Outputs({"label": label, **member.own("proba", "score")}, member.classes)
