"""Linear models of scikit-learn: regressors, classifiers and the two GLM links."""

from __future__ import annotations

from typing import Any

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame, Outputs, labels_of
from sqlml.importers.sklearn.checked import numbers
from sqlml.importers.sklearn.classify import (
    argmax_label,
    binary_label,
    class_list,
    normalised,
    with_complement,
)
from sqlml.importers.sklearn.fitted import check, check_single_output
from sqlml.ir.builder import Builder, Value


def linear_regressor(model: Any, frame: Frame) -> Outputs:
    """x @ coef_ + intercept_ (LinearRegression, Ridge, Lasso, ElasticNet, SGD, LinearSVR ...)."""
    check(model, "coef_", "intercept_")
    return Outputs({"label": _scores(model, frame)})


def log_link_regressor(model: Any, frame: Frame) -> Outputs:
    """exp(x @ coef_ + intercept_) for PoissonRegressor, GammaRegressor and TweedieRegressor."""
    check(model, "coef_", "intercept_")
    score = _scores(model, frame)
    if getattr(model, "link", "log") == "identity" or (
        getattr(model, "link", "log") == "auto" and model.power <= 0
    ):
        return Outputs({"label": score})
    return Outputs({"label": frame.builder.op("exp", score)})


def linear_classifier(model: Any, frame: Frame) -> Outputs:
    """Label and score of a linear classifier without probabilities."""
    check(model, "coef_", "intercept_")
    return _classified(model, frame)


def logistic_regression(model: Any, frame: Frame) -> Outputs:
    """Sigmoid for two classes, softmax (multinomial) for more.

    scikit-learn before 1.8 has `multi_class`: "ovr" normalises sigmoids, and "multinomial" takes
    two classes for a softmax over -score and score.
    """
    check(model, "coef_", "intercept_", "classes_")
    multi_class = getattr(model, "multi_class", None)
    one_vs_rest = multi_class == "ovr" or (multi_class is not None and model.solver == "liblinear")
    made = _classified(model, frame)
    score = made.values["score"]
    if score.type.width == 1 and multi_class == "multinomial":
        both = frame.builder.op("concat", frame.builder.op("neg", score), score)
        proba = frame.builder.op("softmax", both, sum_dtype="float64")
    elif score.type.width == 1:
        proba = with_complement(frame.builder, frame.builder.op("sigmoid", score))
    elif one_vs_rest:
        proba = normalised(frame.builder, frame.builder.op("sigmoid", score))
    else:
        proba = frame.builder.op("softmax", score, sum_dtype="float64")
    return Outputs({**made.values, "proba": proba}, made.labels)


def sgd_classifier(model: Any, frame: Frame) -> Outputs:
    """Probabilities for log_loss and modified_huber, label and score alone for other losses."""
    check(model, "coef_", "intercept_", "classes_")
    made = _classified(model, frame)
    score, builder = made.values["score"], frame.builder
    if model.loss == "log_loss":
        single = builder.op("sigmoid", score)
    elif model.loss == "modified_huber":
        single = _half_clipped(builder, score)
    else:
        return made
    if score.type.width == 1:
        proba = with_complement(builder, single)
    else:
        proba = normalised(builder, single)
    return Outputs({**made.values, "proba": proba}, made.labels)


def _half_clipped(builder: Builder, score: Value) -> Value:
    """(clip(score, -1, 1) + 1) / 2, the probability under the modified Huber loss."""
    one = builder.constant(np.ones(1))
    score = builder.op("maximum", score, builder.constant(-np.ones(1)))
    score = builder.op("minimum", score, one)
    return builder.op("div", builder.op("add", score, one), builder.constant(np.full(1, 2.0)))


def _classified(model: Any, frame: Frame) -> Outputs:
    if getattr(getattr(model, "_label_binarizer", None), "y_type_", "").startswith("multilabel"):
        raise UnsupportedModelError(
            f"{type(model).__name__} predicts several labels at once, which a SQL function cannot "
            "return yet; fit one model per label"
        )
    classes = class_list(model)
    if len(classes) < 2:
        raise UnsupportedModelError(
            f"{type(model).__name__} was fitted on a single class; fit it on two or more"
        )
    weights, bias = _weights(model)
    score = _linear(model, frame, weights, bias)
    if score.type.width == 1:
        label = binary_label(frame.builder, score)
    else:
        label = argmax_label(frame.builder, score)
    return Outputs({"label": label, "score": score}, labels_of(classes))


def _scores(model: Any, frame: Frame) -> Value:
    weights, bias = _weights(model)
    check_single_output(model, weights.shape[1])
    return _linear(model, frame, weights, bias)


def _weights(model: Any) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    coefficients = np.atleast_2d(np.asarray(model.coef_, np.float64)).T
    intercept = np.ravel(np.asarray(model.intercept_, np.float64))
    return coefficients, np.broadcast_to(intercept, coefficients.shape[1:])


def _linear(model: Any, frame: Frame, weights: Any, bias: Any) -> Value:
    x = numbers(frame, type(model).__name__)
    return frame.builder.op("linear", x, weights=weights, bias=bias)
