"""Calibrated classifiers, classifiers with another threshold, and classifiers of encoded targets.

As in `sklearn/calibration.py`, a sigmoid (Platt, 1999), isotonic regression (Zadrozny and Elkan,
2002) or a temperature (Guo et al., 2017) calibrates the member's decision_function or, if it has
none, its predict_proba. EncodedTargetClassifier is a class of sqlml.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame, Outputs, Recurse, Schema, build_labels
from sqlml.importers.model_checks import explain_unfitted
from sqlml.importers.sklearn import classify
from sqlml.importers.sklearn.estimator_checks import check_estimator
from sqlml.importers.sklearn.isotonic import interpolate
from sqlml.importers.sklearn.meta.members import OUTPUT, Member, apply_constant, spread, sum_values
from sqlml.ir.builder import Builder, Value

EPSILON = 1e-12
"""The number that is added to a probability before temperature scaling takes its logarithm."""


def calibrated_classifier(model: Any, frame: Frame, recurse: Recurse) -> Outputs:
    """Average the calibrated probabilities of the members, one for each fold of training rows."""
    check_estimator(model, "calibrated_classifiers_", "classes_")
    classes = classify.two_or_more_classes(model)
    b = frame.builder
    probabilities = [
        _calibrate_member(model, f"calibrated_classifiers_[{i}]", pair, frame, recurse, classes)
        for i, pair in enumerate(model.calibrated_classifiers_)
    ]
    proba = apply_constant(b, "div", sum_values(b, probabilities), len(probabilities))
    values = {"label": classify.argmax_label(b, proba), "proba": proba}
    return Outputs(values, build_labels(classes))


def _calibrate_member(
    owner: Any, name: str, pair: Any, frame: Frame, recurse: Recurse, classes: list[Any]
) -> Value:
    """Return the calibrated probabilities, (n, K), of `pair`, a member and its calibrators."""
    b, n_classes = frame.builder, len(classes)
    member = Member.of(owner, name, pair.estimator, frame, recurse)
    member_classes = member.classes
    has_score = "score" in member.values
    if not has_score and "proba" not in member.values:
        raise UnsupportedModelError(
            f"{member.where} has neither decision_function nor predict_proba"
        )
    response = b.cast(member.values["score" if has_score else "proba"], "float64")
    if not has_score and len(member_classes) == 2:
        response = b.op("select", response, indices=np.array([1]))
    if pair.method == "temperature":
        proba = _scale_temperature(b, response, has_score, float(pair.calibrators[0].beta_))
    elif pair.method in ("sigmoid", "isotonic"):
        proba = _calibrate_columns(b, response, pair, member.find_class_indices(classes), n_classes)
    else:
        raise UnsupportedModelError(
            f"CalibratedClassifierCV(method={pair.method!r}) is not known to sqlml; use sigmoid"
        )
    if proba.type.width != n_classes:
        raise UnsupportedModelError(
            f"{member.where} does not know all {n_classes} classes; fit it again"
        )
    # As in scikit-learn, values that exceed 1 by at most 1e-5 become 1.
    is_above = b.op("and", b.op("gt", proba, 1.0), b.op("le", proba, 1.0 + 1e-5))
    return b.op("where", is_above, 1.0, proba)


def _calibrate_columns(
    builder: Builder, response: Value, pair: Any, class_indices: list[int], n_classes: int
) -> Value:
    """Calibrate each column of `response`; if there are three or more classes, normalize rows."""
    num_columns = min(len(class_indices), response.type.width, len(pair.calibrators))
    columns = [
        _calibrate_column(
            builder, builder.op("select", response, indices=np.array([i])), calibrator
        )
        for i, calibrator in enumerate(pair.calibrators[:num_columns])
    ]
    if n_classes == 2:
        return classify.add_complement(builder, columns[0])
    # A member that was fitted on fewer classes has fewer columns; the missing classes get 0.
    proba = spread(builder, builder.concat(columns), class_indices[:num_columns], n_classes)
    return classify.normalise(builder, proba)


def _calibrate_column(builder: Builder, value: Value, calibrator: Any) -> Value:
    if hasattr(calibrator, "a_"):
        exponent = apply_constant(builder, "mul", value, calibrator.a_)
        exponent = apply_constant(builder, "add", exponent, calibrator.b_)
        return builder.op("sigmoid", builder.op("neg", exponent))
    return interpolate(builder, value, calibrator)


def _scale_temperature(builder: Builder, response: Value, is_score: bool, beta: float) -> Value:
    """Return softmax(beta * logits); the logits are scores, or logarithms of probabilities."""
    if response.type.width == 1 and is_score:
        logits = builder.op("concat", builder.op("neg", response), response)
    elif is_score:
        logits = response
    else:
        proba = classify.add_complement(builder, response) if response.type.width == 1 else response
        logits = builder.op("log", apply_constant(builder, "add", proba, EPSILON))
    return builder.op("softmax", apply_constant(builder, "mul", logits, beta), sum_dtype="float64")


def fixed_threshold_classifier(model: Any, frame: Frame, recurse: Recurse) -> Outputs:
    """Classify with the model's `threshold`; "auto" means 0.5 for probabilities, 0 for scores."""
    check_estimator(model)
    member = Member.of(model, "estimator", get_inner_estimator(model), frame, recurse)
    method, threshold = _find_response_method(model, member), model.threshold
    if isinstance(threshold, str):
        threshold = 0.5 if method == "predict_proba" else 0.0
    return _classify(model, member, method, threshold, model.pos_label)


def tuned_threshold_classifier(model: Any, frame: Frame, recurse: Recurse) -> Outputs:
    check_estimator(model, "estimator_", "best_threshold_", "_curve_scorer")
    member = Member.of(model, "estimator_", model.estimator_, frame, recurse)
    method, pos_label = _find_response_method(model, member), model._curve_scorer._get_pos_label()
    return _classify(model, member, method, np.float64(model.best_threshold_), pos_label)


def get_inner_estimator(model: Any) -> Any:
    return getattr(model, "estimator_", model.estimator)


def read_threshold_schema(model: Any) -> Schema:
    schema = Schema.from_model(get_inner_estimator(model))
    if schema is None:
        raise explain_unfitted(model)
    return schema


def _find_response_method(model: Any, member: Member) -> str:
    methods = [model.response_method]
    if methods == ["auto"]:
        methods = ["predict_proba", "decision_function"]
    for method in methods:
        if method in OUTPUT and OUTPUT[method] in member.values:
            return str(method)
    raise UnsupportedModelError(
        f"the classifier in {type(model).__name__} has no {' or '.join(map(str, methods))}"
    )


def _classify(model: Any, member: Member, method: str, threshold: Any, pos_label: Any) -> Outputs:
    """Return `pos_label` if its score from `method` reaches `threshold`, else the other class."""
    b, labels = member.builder, member.classes
    if len(labels) != 2:
        raise UnsupportedModelError(
            f"the classifier in {type(model).__name__} has {len(labels)} classes, not two"
        )
    if pos_label is not None and pos_label not in labels.values:
        raise UnsupportedModelError(
            f"{type(model).__name__} has pos_label={pos_label!r}, which is not one of its classes"
        )
    positive_index = 1 if pos_label is None else labels.values.index(pos_label)
    score = member.values[OUTPUT[method]]
    if method == "predict_proba":
        score = b.op("select", score, indices=np.array([positive_index]))
    elif not positive_index:
        score = b.op("neg", score)
    # numpy casts a Python float to the dtype of the scores, but a numpy float stays float64.
    if type(threshold) not in (int, float):
        score = b.cast(score, "float64")
    is_above = apply_constant(b, "ge", score, float(threshold))
    label = b.op("where", is_above, positive_index, 1 - positive_index)
    return Outputs({"label": label, **member.get_available("proba", "score")}, labels)


def encoded_target_classifier(model: Any, frame: Frame, recurse: Recurse) -> Outputs:
    """Return the outputs of the inner classifier, labelled with the original classes."""
    check_estimator(model, "classes_", "classifier_")
    outputs = recurse(model.classifier_, frame)
    labels = build_labels(list(model.classes_))
    if not isinstance(outputs, Outputs) or [len(s) for s in outputs.label_sets] != [len(labels)]:
        raise UnsupportedModelError(
            f"the classifier in {type(model).__name__} does not have {len(labels)} classes"
        )
    return Outputs(outputs.values, labels)
