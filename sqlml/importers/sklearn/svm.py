"""Support vector machines of libsvm: SVC, NuSVC, SVR, NuSVR and OneClassSVM.

As in `svm_predict_values` of libsvm (`svm.cpp`), each pair of classes has a score, which is summed
over the support vectors of both classes in order, and casts a vote.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.class_pairs import count_votes, spread_pair_weights
from sqlml.importers.frame import Frame, Outputs, Schema, build_labels
from sqlml.importers.sklearn import classify, kernel_models
from sqlml.importers.sklearn.estimator_checks import check_estimator
from sqlml.ir.builder import Builder, Value
from sqlml.types import Array

_LIBSVM_ATTRIBUTES = ("support_vectors_", "_dual_coef_", "_intercept_", "_gamma")

MIN_PROBABILITY = 1e-7
"""libsvm clips the probability of a pair to [1e-7, 1 - 1e-7]."""


def read_schema(model: Any) -> Schema:
    check_estimator(model, *_LIBSVM_ATTRIBUTES)
    kernel_models.require_kernel_name(model)
    names = getattr(model, "feature_names_in_", None)
    return Schema(None if names is None else tuple(map(str, names)), int(model.n_features_in_))


def import_support_vector_regressor(model: Any, frame: Frame) -> Outputs:
    """Import SVR or NuSVR: kernel(x, support_vectors_) @ coefficients + intercept."""
    check_estimator(model, *_LIBSVM_ATTRIBUTES)
    return Outputs({"label": _compute_single_score(model, frame)})


def import_one_class_svm(model: Any, frame: Frame) -> Outputs:
    """Return label 1 for a positive score, otherwise -1."""
    check_estimator(model, *_LIBSVM_ATTRIBUTES, "offset_")
    score = _compute_single_score(model, frame)
    samples = frame.builder.op("add", score, np.asarray(model.offset_, np.float64).reshape(1))
    label = classify.label_by_threshold(frame.builder, score)
    return classify.build_outlier_outputs(label, score, samples)


def import_support_vector_classifier(model: Any, frame: Frame) -> Outputs:
    """Return the class with the most votes, the scores and, if fitted, the probabilities."""
    check_estimator(model, *_LIBSVM_ATTRIBUTES, "classes_", "_n_support")
    classes = classify.read_classes(model)
    builder = frame.builder
    op = builder.op
    n_classes = len(classes)
    if model.break_ties and model.decision_function_shape == "ovo":
        raise UnsupportedModelError(
            f"{type(model).__name__} with break_ties=True and decision_function_shape='ovo' "
            "raises on every predict; set decision_function_shape='ovr'"
        )
    kernel = _compute_kernel(model, frame)
    weights = _build_pair_weights(model)
    pair_scores = builder.linear(kernel, weights, _read_intercepts(model))
    # A pair's score is positive for its first class.
    second_class_votes = op("cast", op("le", pair_scores, 0.0), dtype="float64")
    votes = count_votes(builder, second_class_votes, n_classes)
    label = classify.label_by_argmax(builder, votes)
    score = op("neg", pair_scores) if n_classes == 2 else pair_scores
    if n_classes > 2 and model.decision_function_shape == "ovr":
        # As in scikit-learn, a score of 0 votes for the first class here, but not in the label.
        predictions, confidences = op("lt", pair_scores, 0.0), op("neg", pair_scores)
        score = classify.compute_ovr_scores(builder, predictions, confidences, n_classes)
        if model.break_ties:
            label = classify.label_by_argmax(builder, score)
    values = {"label": label, "score": score}
    if model.probability is True or model.probability == 1:
        values["proba"] = _build_probabilities(model, builder, pair_scores, n_classes)
    return Outputs(values, build_labels(classes))


def _build_probabilities(model: Any, builder: Builder, pair_scores: Value, n_classes: int) -> Value:
    """Convert pair scores to class probabilities, with a Platt sigmoid for each pair."""
    op = builder.op
    slope, shift = (np.asarray(a, np.float64) for a in (model._probA, model._probB))
    if slope.size != n_classes * (n_classes - 1) // 2:
        raise UnsupportedModelError(
            f"{type(model).__name__} has probability=True but was fitted without it; fit it again"
        )
    logits = op("add", op("mul", pair_scores, slope), shift)
    pair_probability = op("maximum", op("sigmoid", op("neg", logits)), MIN_PROBABILITY)
    pair_probability = op("minimum", pair_probability, 1 - MIN_PROBABILITY)
    return op("couple", pair_probability, classes=n_classes)


def _compute_single_score(model: Any, frame: Frame) -> Value:
    weights = kernel_models.to_dense(model._dual_coef_)
    if not weights.size:
        raise UnsupportedModelError(
            f"{type(model).__name__} has no support vectors and predicts a constant; fit it with "
            "a smaller epsilon"
        )
    return frame.builder.linear(_compute_kernel(model, frame), weights.T, _read_intercepts(model))


def _compute_kernel(model: Any, frame: Frame) -> Value:
    gamma, degree, coef0 = float(model._gamma), int(model.degree), float(model.coef0)
    points = model.support_vectors_
    return kernel_models.compute_model_kernel(model, frame, points, gamma, degree, coef0)


def _read_intercepts(model: Any) -> Array:
    return np.asarray(model._intercept_, np.float64).reshape(-1)


def _build_pair_weights(model: Any) -> Array:
    coefficients = kernel_models.to_dense(model._dual_coef_)
    return spread_pair_weights(coefficients, np.asarray(model._n_support, np.int64))
