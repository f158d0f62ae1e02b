"""Support vector machines of libsvm: SVC, NuSVC, SVR, NuSVR and OneClassSVM.

The formulas are those of `svm_predict_values` in `sklearn/svm/src/libsvm/svm.cpp`: every pair of
classes has a score, the sum over its own support vectors in their order; the classes' votes decide.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame, Outputs, Schema, labels_of
from sqlml.importers.sklearn.classify import (
    argmax_label,
    binary_label,
    class_list,
    outlier_outputs,
    ovr_decision,
    pair_signs,
)
from sqlml.importers.sklearn.estimator_checks import check
from sqlml.importers.sklearn.kernel_models import dense, kernel_name, kernel_of
from sqlml.ir.builder import Builder, Value
from sqlml.types import Array

_FITTED = ("support_vectors_", "_dual_coef_", "_intercept_", "_gamma")

LEAST_PROBABILITY = 1e-7
"""libsvm cuts the probability of a pair to [1e-7, 1 - 1e-7]."""


def schema(model: Any) -> Schema:
    """The columns of a support vector machine; one with a Python kernel has none.

    Raises:
        UnsupportedModelError: not fitted, or its kernel is not one that we cover.
    """
    check(model, *_FITTED)
    kernel_name(model)
    names = getattr(model, "feature_names_in_", None)
    return Schema(None if names is None else tuple(map(str, names)), int(model.n_features_in_))


def support_vector_regressor(model: Any, frame: Frame) -> Outputs:
    """SVR and NuSVR: the sum of the kernels times their coefficients, plus the intercept."""
    check(model, *_FITTED)
    return Outputs({"label": _one_score(model, frame)})


def one_class_svm(model: Any, frame: Frame) -> Outputs:
    """Label 1 where the score is positive, -1 elsewhere; samples are the score plus offset_."""
    check(model, *_FITTED, "offset_")
    score = _one_score(model, frame)
    offset = np.asarray(model.offset_, np.float64).reshape(1)
    samples = frame.builder.op("add", score, offset)
    return outlier_outputs(binary_label(frame.builder, score), score, samples)


def support_vector_classifier(model: Any, frame: Frame) -> Outputs:
    """SVC and NuSVC: votes of the pairs of classes, and Platt's probabilities where asked for."""
    check(model, *_FITTED, "classes_", "_n_support")
    classes = class_list(model)
    builder, k = frame.builder, len(classes)
    if model.break_ties and model.decision_function_shape == "ovo":
        raise UnsupportedModelError(
            f"{type(model).__name__} with break_ties=True and decision_function_shape='ovo' "
            "raises on every predict; set decision_function_shape='ovr'"
        )
    values = _kernel(model, frame)
    pairs = builder.linear(values, _pair_weights(model, k), _intercepts(model))
    # A pair's score is positive for its first class.
    second = builder.op("cast", builder.op("le", pairs, 0.0), dtype="float64")
    signs = pair_signs(k)
    firsts = (signs < 0).sum(axis=0).astype(np.float64)
    label = argmax_label(builder, builder.linear(second, signs, firsts))
    score = builder.op("neg", pairs) if k == 2 else pairs
    if k > 2 and model.decision_function_shape == "ovr":
        # A score of 0 votes for the first class here, and for the second in the label.
        score = ovr_decision(builder, builder.op("lt", pairs, 0.0), builder.op("neg", pairs), k)
        if model.break_ties:
            label = argmax_label(builder, score)
    made = {"label": label, "score": score}
    if model.probability is True or model.probability == 1:
        made["proba"] = _probabilities(model, builder, pairs, k)
    return Outputs(made, labels_of(classes))


def _probabilities(model: Any, builder: Builder, pairs: Value, k: int) -> Value:
    """Platt's sigmoid of each pair's score, coupled to one probability per class."""
    slope, shift = (np.asarray(a, np.float64) for a in (model._probA, model._probB))
    if slope.size != k * (k - 1) // 2:
        raise UnsupportedModelError(
            f"{type(model).__name__} has probability=True but was fitted without it; fit it again"
        )
    raised = builder.op("mul", pairs, slope)
    raised = builder.op("add", raised, shift)
    single = builder.op("sigmoid", builder.op("neg", raised))
    single = builder.op("maximum", single, LEAST_PROBABILITY)
    single = builder.op("minimum", single, 1 - LEAST_PROBABILITY)
    return builder.op("couple", single, classes=k)


def _one_score(model: Any, frame: Frame) -> Value:
    weights = dense(model._dual_coef_)
    if not weights.size:
        raise UnsupportedModelError(
            f"{type(model).__name__} has no support vectors and predicts a constant; fit it with "
            "a smaller epsilon"
        )
    values = _kernel(model, frame)
    return frame.builder.linear(values, weights.T, _intercepts(model))


def _kernel(model: Any, frame: Frame) -> Value:
    gamma, degree, coef0 = float(model._gamma), int(model.degree), float(model.coef0)
    return kernel_of(model, frame, model.support_vectors_, gamma, degree, coef0)


def _intercepts(model: Any) -> Array:
    return np.asarray(model._intercept_, np.float64).reshape(-1)


def _pair_weights(model: Any, k: int) -> Array:
    """(support vectors, pairs): the coefficients of each pair, 0 for other classes' vectors."""
    coefficients = dense(model._dual_coef_)
    counts = np.asarray(model._n_support, np.int64)
    end = np.cumsum(counts)
    held = [slice(e - c, e) for e, c in zip(end, counts, strict=True)]
    weights = np.zeros((coefficients.shape[1], k * (k - 1) // 2))
    for pair, (i, j) in enumerate(combinations(range(k), 2)):
        weights[held[i], pair] = coefficients[j - 1, held[i]]
        weights[held[j], pair] = coefficients[i, held[j]]
    return weights
