"""Support vector machines of libsvm: SVC, NuSVC, SVR, NuSVR and OneClassSVM.

The formulas are those of `svm_predict_values` in `sklearn/svm/src/libsvm/svm.cpp`: every pair of
classes has a score over its own support vectors in their order, and a vote.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame, Outputs, Schema, build_labels
from sqlml.importers.sklearn import classify
from sqlml.importers.sklearn.estimator_checks import check
from sqlml.importers.sklearn.kernel_models import dense, kernel_name, kernel_of
from sqlml.ir.builder import Builder, Value
from sqlml.types import Array

_FITTED = ("support_vectors_", "_dual_coef_", "_intercept_", "_gamma")

LEAST_PROBABILITY = 1e-7
"""libsvm cuts the probability of a pair to [1e-7, 1 - 1e-7]."""


def schema(model: Any) -> Schema:
    check(model, *_FITTED)
    kernel_name(model)
    names = getattr(model, "feature_names_in_", None)
    return Schema(None if names is None else tuple(map(str, names)), int(model.n_features_in_))


def support_vector_regressor(model: Any, frame: Frame) -> Outputs:
    """Return the sum of kernels times coefficients plus the intercept: SVR and NuSVR."""
    check(model, *_FITTED)
    return Outputs({"label": _one_score(model, frame)})


def one_class_svm(model: Any, frame: Frame) -> Outputs:
    """Return label 1 for positive scores and -1 for others; `samples` is the score plus offset_."""
    check(model, *_FITTED, "offset_")
    score = _one_score(model, frame)
    samples = frame.builder.op("add", score, np.asarray(model.offset_, np.float64).reshape(1))
    return classify.outlier_outputs(classify.binary_label(frame.builder, score), score, samples)


def support_vector_classifier(model: Any, frame: Frame) -> Outputs:
    """Return the votes of the pairs of classes for SVC and NuSVC, with Platt's probabilities."""
    check(model, *_FITTED, "classes_", "_n_support")
    classes = classify.class_list(model)
    b, k = frame.builder, len(classes)
    if model.break_ties and model.decision_function_shape == "ovo":
        raise UnsupportedModelError(
            f"{type(model).__name__} with break_ties=True and decision_function_shape='ovo' "
            "raises on every predict; set decision_function_shape='ovr'"
        )
    pairs = b.linear(_kernel(model, frame), _pair_weights(model, k), _intercepts(model))
    # A pair's score is positive for its first class.
    second = b.op("cast", b.op("le", pairs, 0.0), dtype="float64")
    label = classify.argmax_label(b, classify.count_votes(b, second, k))
    score = b.op("neg", pairs) if k == 2 else pairs
    if k > 2 and model.decision_function_shape == "ovr":
        # A score of 0 votes for the first class here, and for the second in the label.
        score = classify.ovr_decision(b, b.op("lt", pairs, 0.0), b.op("neg", pairs), k)
        if model.break_ties:
            label = classify.argmax_label(b, score)
    values = {"label": label, "score": score}
    if model.probability is True or model.probability == 1:
        values["proba"] = _probabilities(model, b, pairs, k)
    return Outputs(values, build_labels(classes))


def _probabilities(model: Any, b: Builder, pairs: Value, k: int) -> Value:
    """Couple Platt's sigmoids of the pairs' scores to one probability per class."""
    slope, shift = (np.asarray(a, np.float64) for a in (model._probA, model._probB))
    if slope.size != k * (k - 1) // 2:
        raise UnsupportedModelError(
            f"{type(model).__name__} has probability=True but was fitted without it; fit it again"
        )
    raised = b.op("add", b.op("mul", pairs, slope), shift)
    single = b.op("maximum", b.op("sigmoid", b.op("neg", raised)), LEAST_PROBABILITY)
    single = b.op("minimum", single, 1 - LEAST_PROBABILITY)
    return b.op("couple", single, classes=k)


def _one_score(model: Any, frame: Frame) -> Value:
    weights = dense(model._dual_coef_)
    if not weights.size:
        raise UnsupportedModelError(
            f"{type(model).__name__} has no support vectors and predicts a constant; fit it with "
            "a smaller epsilon"
        )
    return frame.builder.linear(_kernel(model, frame), weights.T, _intercepts(model))


def _kernel(model: Any, frame: Frame) -> Value:
    gamma, degree, coef0 = float(model._gamma), int(model.degree), float(model.coef0)
    return kernel_of(model, frame, model.support_vectors_, gamma, degree, coef0)


def _intercepts(model: Any) -> Array:
    return np.asarray(model._intercept_, np.float64).reshape(-1)


def _pair_weights(model: Any, k: int) -> Array:
    """Return (support vectors, pairs) coefficients, 0 for the vectors of other classes."""
    coefficients = dense(model._dual_coef_)
    ends = np.cumsum(np.asarray(model._n_support, np.int64)).tolist()
    slices = [slice(start, end) for start, end in zip([0, *ends], ends, strict=False)]
    weights = np.zeros((coefficients.shape[1], k * (k - 1) // 2))
    for pair, (i, j) in enumerate(combinations(range(k), 2)):
        weights[slices[i], pair] = coefficients[j - 1, slices[i]]
        weights[slices[j], pair] = coefficients[i, slices[j]]
    return weights
