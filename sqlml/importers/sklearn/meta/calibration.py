"""Calibrated classifiers, classifiers with another threshold, and classifiers of encoded targets.

As in `sklearn/calibration.py`, a sigmoid (Platt, 1999), isotonic regression (Zadrozny and Elkan,
2002) or a temperature (Guo et al., 2017) calibrates the scores of a member or, without scores, the
probabilities. EncodedTargetClassifier is a class of sqlml.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame, Outputs, Recurse, Schema, build_labels
from sqlml.importers.model_checks import make_unfitted_error
from sqlml.importers.sklearn import classify
from sqlml.importers.sklearn.estimator_checks import check_estimator
from sqlml.importers.sklearn.isotonic import interpolate_isotonic
from sqlml.importers.sklearn.meta.members import (
    OUTPUT_BY_METHOD,
    Member,
    apply_constant,
    spread_columns,
    sum_values,
)
from sqlml.ir.builder import Builder, Value

EPSILON = 1e-12
"""The number that temperature scaling adds to probabilities before taking the logarithm."""


def import_calibrated_classifier(model: Any, frame: Frame, recurse: Recurse) -> Outputs:
    """Average the calibrated probabilities of the members."""
    check_estimator(model, "calibrated_classifiers_", "classes_")
    classes = classify.require_multiple_classes(model)
    builder = frame.builder
    probabilities: list[Value] = []
    for i, pair in enumerate(model.calibrated_classifiers_):
        name = f"calibrated_classifiers_[{i}]"
        probabilities.append(_calibrate_member(model, name, pair, frame, recurse, classes))
    proba = apply_constant(builder, "div", sum_values(builder, probabilities), len(probabilities))
    values = {"label": classify.label_by_argmax(builder, proba), "proba": proba}
    return Outputs(values, build_labels(classes))


def _calibrate_member(
    owner: Any, name: str, pair: Any, frame: Frame, recurse: Recurse, classes: list[Any]
) -> Value:
    """Return the calibrated probabilities of `pair`, a member and its calibrators."""
    builder = frame.builder
    op = builder.op
    n_classes = len(classes)
    member = Member.read(owner, name, pair.estimator, frame, recurse)
    member_classes = member.classes
    has_score = "score" in member.values
    if not has_score and "proba" not in member.values:
        raise UnsupportedModelError(
            f"{member.where} has neither decision_function nor predict_proba"
        )
    response = builder.cast(member.values["score" if has_score else "proba"], "float64")
    if not has_score and len(member_classes) == 2:
        response = op("select", response, indices=np.array([1]))
    if pair.method == "temperature":
        proba = _scale_temperature(builder, response, has_score, float(pair.calibrators[0].beta_))
    elif pair.method in ("sigmoid", "isotonic"):
        class_indices = member.find_class_indices(classes)
        proba = _calibrate_columns(builder, response, pair, class_indices, n_classes)
    else:
        raise UnsupportedModelError(
            f"CalibratedClassifierCV(method={pair.method!r}) is not known to sqlml; use sigmoid"
        )
    if proba.type.width != n_classes:
        raise UnsupportedModelError(
            f"{member.where} does not know all {n_classes} classes; fit it again"
        )
    # As in scikit-learn, values that exceed 1 by at most 1e-5 become 1.
    is_above = op("and", op("gt", proba, 1.0), op("le", proba, 1.0 + 1e-5))
    return op("where", is_above, 1.0, proba)


def _calibrate_columns(
    builder: Builder, response: Value, pair: Any, class_indices: list[int], n_classes: int
) -> Value:
    """Calibrate each column of `response`; with three or more classes, normalize each row."""
    num_columns = min(len(class_indices), response.type.width, len(pair.calibrators))
    columns = []
    for i, calibrator in enumerate(pair.calibrators[:num_columns]):
        column = builder.op("select", response, indices=np.array([i]))
        columns.append(_calibrate_column(builder, column, calibrator))
    if n_classes == 2:
        return classify.add_complement(builder, columns[0])
    # A member that was fitted on fewer classes has fewer columns; the missing classes get 0.
    proba = spread_columns(builder, builder.concat(columns), class_indices[:num_columns], n_classes)
    return classify.normalize_proba(builder, proba)


def _calibrate_column(builder: Builder, response: Value, calibrator: Any) -> Value:
    if hasattr(calibrator, "a_"):
        exponent = apply_constant(builder, "mul", response, calibrator.a_)
        exponent = apply_constant(builder, "add", exponent, calibrator.b_)
        return builder.op("sigmoid", builder.op("neg", exponent))
    return interpolate_isotonic(builder, response, calibrator)


def _scale_temperature(builder: Builder, response: Value, is_score: bool, beta: float) -> Value:
    """Return softmax(beta * logits); logits are scores or logarithms of probabilities."""
    op = builder.op
    if response.type.width == 1 and is_score:
        logits = op("concat", op("neg", response), response)
    elif is_score:
        logits = response
    else:
        proba = classify.add_complement(builder, response) if response.type.width == 1 else response
        logits = op("log", apply_constant(builder, "add", proba, EPSILON))
    return op("softmax", apply_constant(builder, "mul", logits, beta), sum_dtype="float64")


def import_fixed_threshold_classifier(model: Any, frame: Frame, recurse: Recurse) -> Outputs:
    """Classify with a threshold; "auto" means 0.5 for probabilities and 0 for scores."""
    check_estimator(model)
    member = Member.read(model, "estimator", get_inner_estimator(model), frame, recurse)
    method = _find_response_method(model, member)
    threshold = model.threshold
    if isinstance(threshold, str):
        threshold = 0.5 if method == "predict_proba" else 0.0
    return _classify_by_threshold(model, member, method, threshold, model.pos_label)


def import_tuned_threshold_classifier(model: Any, frame: Frame, recurse: Recurse) -> Outputs:
    check_estimator(model, "estimator_", "best_threshold_", "_curve_scorer")
    member = Member.read(model, "estimator_", model.estimator_, frame, recurse)
    method = _find_response_method(model, member)
    pos_label = model._curve_scorer._get_pos_label()
    threshold = np.float64(model.best_threshold_)
    return _classify_by_threshold(model, member, method, threshold, pos_label)


def get_inner_estimator(model: Any) -> Any:
    return getattr(model, "estimator_", model.estimator)


def read_threshold_schema(model: Any) -> Schema:
    schema = Schema.from_model(get_inner_estimator(model))
    if schema is None:
        raise make_unfitted_error(model)
    return schema


def _find_response_method(model: Any, member: Member) -> str:
    methods = [model.response_method]
    if methods == ["auto"]:
        methods = ["predict_proba", "decision_function"]
    for method in methods:
        if method in OUTPUT_BY_METHOD and OUTPUT_BY_METHOD[method] in member.values:
            return str(method)
    raise UnsupportedModelError(
        f"the classifier in {type(model).__name__} has no {' or '.join(map(str, methods))}"
    )


def _classify_by_threshold(
    model: Any, member: Member, method: str, threshold: Any, pos_label: Any
) -> Outputs:
    """Return `pos_label` if the result of `method` reaches `threshold`, else the other class."""
    labels = member.classes
    if len(labels) != 2:
        raise UnsupportedModelError(
            f"the classifier in {type(model).__name__} has {len(labels)} classes, not two"
        )
    if pos_label is not None and pos_label not in labels.values:
        raise UnsupportedModelError(
            f"{type(model).__name__} has pos_label={pos_label!r}, which is not one of its classes"
        )
    positive_index = 1 if pos_label is None else labels.values.index(pos_label)
    score = member.values[OUTPUT_BY_METHOD[method]]
    if method == "predict_proba":
        score = member.builder.op("select", score, indices=np.array([positive_index]))
    elif not positive_index:
        score = member.builder.op("neg", score)
    # numpy casts a Python float to the dtype of the scores, but a numpy float stays float64.
    if type(threshold) not in (int, float):
        score = member.builder.cast(score, "float64")
    is_above = apply_constant(member.builder, "ge", score, float(threshold))
    label = member.builder.op("where", is_above, positive_index, 1 - positive_index)
    return Outputs({"label": label, **member.get_available("proba", "score")}, labels)


def import_encoded_target_classifier(model: Any, frame: Frame, recurse: Recurse) -> Outputs:
    """Return the outputs of the inner classifier, labelled with the original classes."""
    check_estimator(model, "classes_", "classifier_")
    outputs = recurse(model.classifier_, frame)
    labels = build_labels(list(model.classes_))
    if not isinstance(outputs, Outputs) or [len(s) for s in outputs.label_sets] != [len(labels)]:
        raise UnsupportedModelError(
            f"the classifier in {type(model).__name__} does not have {len(labels)} classes"
        )
    return Outputs(outputs.values, labels)
