"""Support vector machines of libsvm: SVC, NuSVC, SVR, NuSVR and OneClassSVM.

The formulas are those of `svm_predict_values` in `sklearn/svm/src/libsvm/svm.cpp`: each pair of
classes has a score, summed over the support vectors of both classes in order, and casts a vote.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np

from sqlml.errors import UnsupportedModelError
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


def support_vector_regressor(model: Any, frame: Frame) -> Outputs:
    """Import SVR or NuSVR: kernel(x, support_vectors_) @ coefficients + intercept."""
    check_estimator(model, *_LIBSVM_ATTRIBUTES)
    return Outputs({"label": _compute_single_score(model, frame)})


def one_class_svm(model: Any, frame: Frame) -> Outputs:
    """Return label 1 for a positive score, otherwise -1; `samples` is the score plus `offset_`."""
    check_estimator(model, *_LIBSVM_ATTRIBUTES, "offset_")
    b, score = frame.builder, _compute_single_score(model, frame)
    samples = b.op("add", score, np.asarray(model.offset_, np.float64).reshape(1))
    return classify.outlier_outputs(classify.label_by_threshold(b, score), score, samples)


def support_vector_classifier(model: Any, frame: Frame) -> Outputs:
    """Return the class with the most votes of class pairs, scores and, if fitted, probabilities."""
    check_estimator(model, *_LIBSVM_ATTRIBUTES, "classes_", "_n_support")
    classes = classify.read_classes(model)
    b, n_classes = frame.builder, len(classes)
    if model.break_ties and model.decision_function_shape == "ovo":
        raise UnsupportedModelError(
            f"{type(model).__name__} with break_ties=True and decision_function_shape='ovo' "
            "raises on every predict; set decision_function_shape='ovr'"
        )
    kernel, weights = _compute_kernel(model, frame), _build_pair_weights(model, n_classes)
    pair_scores = b.linear(kernel, weights, _read_intercepts(model))
    # A pair's score is positive for its first class.
    second_class_votes = b.op("cast", b.op("le", pair_scores, 0.0), dtype="float64")
    label = classify.argmax_label(b, classify.count_votes(b, second_class_votes, n_classes))
    score = b.op("neg", pair_scores) if n_classes == 2 else pair_scores
    if n_classes > 2 and model.decision_function_shape == "ovr":
        # As in scikit-learn, a score of 0 votes for the first class here, but not in the label.
        predictions, confidences = b.op("lt", pair_scores, 0.0), b.op("neg", pair_scores)
        score = classify.compute_ovr_scores(b, predictions, confidences, n_classes)
        if model.break_ties:
            label = classify.argmax_label(b, score)
    values = {"label": label, "score": score}
    if model.probability is True or model.probability == 1:
        values["proba"] = _couple_probabilities(model, b, pair_scores, n_classes)
    return Outputs(values, build_labels(classes))


def _couple_probabilities(
    model: Any, builder: Builder, pair_scores: Value, n_classes: int
) -> Value:
    """Convert the pair scores to one probability per class, with a Platt sigmoid for each pair."""
    slope, shift = (np.asarray(a, np.float64) for a in (model._probA, model._probB))
    if slope.size != n_classes * (n_classes - 1) // 2:
        raise UnsupportedModelError(
            f"{type(model).__name__} has probability=True but was fitted without it; fit it again"
        )
    logits = builder.op("add", builder.op("mul", pair_scores, slope), shift)
    pair_probability = builder.op(
        "maximum", builder.op("sigmoid", builder.op("neg", logits)), MIN_PROBABILITY
    )
    pair_probability = builder.op("minimum", pair_probability, 1 - MIN_PROBABILITY)
    return builder.op("couple", pair_probability, classes=n_classes)


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


def _build_pair_weights(model: Any, n_classes: int) -> Array:
    """Return each support vector's coefficient for each pair: 0 if its class is not in the pair."""
    coefficients = kernel_models.to_dense(model._dual_coef_)
    ends = np.cumsum(np.asarray(model._n_support, np.int64)).tolist()
    slices = [slice(start, end) for start, end in zip([0, *ends], ends, strict=False)]
    weights = np.zeros((coefficients.shape[1], n_classes * (n_classes - 1) // 2))
    for pair, (i, j) in enumerate(combinations(range(n_classes), 2)):
        weights[slices[i], pair] = coefficients[j - 1, slices[i]]
        weights[slices[j], pair] = coefficients[i, slices[j]]
    return weights
