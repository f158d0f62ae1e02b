"""Linear models: regressors, classifiers and generalised linear models."""

from __future__ import annotations

from typing import Any

import numpy as np

from sqlml.importers.frame import Frame, Outputs, build_labels
from sqlml.importers.sklearn import classify
from sqlml.importers.sklearn.estimator_checks import check_array, check_estimator, choose_dtype
from sqlml.ir.builder import Value
from sqlml.types import DType, Labels


def import_linear_regressor(model: Any, frame: Frame) -> Outputs:
    """Import a linear regressor, such as Ridge: x @ coef_.T + intercept_."""
    check_estimator(model, "coef_", "intercept_")
    return Outputs({"label": _compute_scores(model, frame)})


def import_log_link_regressor(model: Any, frame: Frame) -> Outputs:
    """Import a Poisson, gamma or Tweedie regressor: exp(x @ coef_ + intercept_)."""
    check_estimator(model, "coef_", "intercept_")
    score = _compute_scores(model, frame)
    link = getattr(model, "link", "log")
    is_identity = link == "identity" or (link == "auto" and model.power <= 0)
    return Outputs({"label": score if is_identity else frame.builder.op("exp", score)})


def import_linear_classifier(model: Any, frame: Frame) -> Outputs:
    check_estimator(model, "coef_", "intercept_")
    return _build_classifier_outputs(model, frame)


def import_logistic_regression(model: Any, frame: Frame) -> Outputs:
    """Return label, score and probabilities: a sigmoid for two classes, a softmax for more.

    Before scikit-learn 1.8, the option `multi_class` may be "ovr", which normalizes one sigmoid per
    class, or "multinomial", which for two classes means the softmax of -score and score.
    """
    check_estimator(model, "coef_", "intercept_", "classes_")
    multi_class = getattr(model, "multi_class", None)
    is_ovr = multi_class == "ovr" or (multi_class is not None and model.solver == "liblinear")
    outputs = _build_classifier_outputs(model, frame)
    score = outputs.values["score"]
    builder = frame.builder
    if score.type.width == 1 and multi_class == "multinomial":
        proba = classify.to_proba(builder, builder.op("concat", builder.op("neg", score), score))
    elif score.type.width > 1 and is_ovr:
        proba = classify.normalize_proba(builder, builder.op("sigmoid", score))
    else:
        proba = classify.to_proba(builder, score)
    return Outputs({**outputs.values, "proba": proba}, outputs.labels)


def import_sgd_one_class_svm(model: Any, frame: Frame) -> Outputs:
    """Return label 1 if the score x @ coef_ - offset_ is at least 0, otherwise -1."""
    check_estimator(model, "coef_", "offset_")
    builder = frame.builder
    offset = np.ravel(np.asarray(model.offset_, np.float64))
    weights = np.reshape(model.coef_, (-1, 1)).astype(float)
    product = _multiply_weights(model, frame, weights, np.zeros(1))
    score = builder.op("sub", product, offset)
    label = classify.label_by_threshold(builder, score, tie="ge")
    return classify.build_outlier_outputs(label, score, builder.op("add", score, offset))


def import_sgd_classifier(model: Any, frame: Frame) -> Outputs:
    """Return label and score; some losses also have probabilities."""
    check_estimator(model, "coef_", "intercept_", "classes_")
    outputs = _build_classifier_outputs(model, frame)
    score = outputs.values["score"]
    op = frame.builder.op
    if model.loss == "log_loss":
        positive_proba = op("sigmoid", score)
    elif model.loss == "modified_huber":
        clipped = op("minimum", op("maximum", score, -1.0), 1.0)
        positive_proba = op("div", op("add", clipped, 1.0), 2.0)
    else:
        return outputs
    to_proba = classify.add_complement if score.type.width == 1 else classify.normalize_proba
    proba = to_proba(frame.builder, positive_proba)
    return Outputs({**outputs.values, "proba": proba}, outputs.labels)


def _build_classifier_outputs(model: Any, frame: Frame) -> Outputs:
    binarizer = getattr(model, "_label_binarizer", None)
    if getattr(binarizer, "y_type_", "").startswith("multilabel"):
        # If RidgeClassifier was fitted on a 0/1 matrix, it predicts 1 where the score is above 0.
        score = _compute_scores(model, frame)
        label = classify.label_by_threshold(frame.builder, score)
        labels = (Labels("int64", (0, 1)),) * score.type.width
        return Outputs({"label": label, "score": score}, labels)
    classes = classify.require_multiple_classes(model)
    score = _compute_scores(model, frame)
    label = classify.label_by_score(frame.builder, score)
    return Outputs({"label": label, "score": score}, build_labels(classes))


def _compute_scores(model: Any, frame: Frame) -> Value:
    weights = np.atleast_2d(np.asarray(model.coef_, np.float64)).T
    intercept = np.ravel(np.asarray(model.intercept_, np.float64))
    return _multiply_weights(model, frame, weights, np.broadcast_to(intercept, weights.shape[1:]))


def _multiply_weights(model: Any, frame: Frame, weights: Any, bias: Any) -> Value:
    is_float32 = np.asarray(model.coef_).dtype == np.float32 and choose_dtype(frame) == "float32"
    dtype: DType = "float32" if is_float32 else "float64"
    x = check_array(frame, type(model).__name__, dtype=dtype, rows="sparse")
    if not is_float32:
        return frame.builder.op("linear", x, weights=weights, bias=bias)
    # As in SciPy, sparse float32 rows are summed in float32; the intercept is added in its dtype.
    adds_bias_later = np.asarray(model.intercept_).dtype != np.float32
    float32_bias = (np.zeros_like(bias) if adds_bias_later else bias).astype(np.float32)
    score = frame.builder.op("linear", x, weights=weights.astype(np.float32), bias=float32_bias)
    score = frame.builder.op("cast", score, dtype="float64")
    return frame.builder.op("add", score, bias) if adds_bias_later else score
