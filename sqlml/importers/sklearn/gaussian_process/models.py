"""GaussianProcessRegressor (its mean) and GaussianProcessClassifier (Laplace approximation).

Rasmussen and Williams, "Gaussian Processes for Machine Learning" (2006), algorithms 2.1 and 3.2.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame, Outputs, labels_of
from sqlml.importers.sklearn.checked import numbers
from sqlml.importers.sklearn.classify import argmax_label, binary_label, class_list, with_complement
from sqlml.importers.sklearn.fitted import check
from sqlml.importers.sklearn.gaussian_process.covariances import as_value, covariance, variance
from sqlml.ir.builder import Builder, Value

_SLOPES = (0.41, 0.4, 0.37, 0.44, 0.39)
_SHARES = (-1854.8214151, 3516.89893646, 221.29346712, 128.12323805, -2010.49422654)
"""The logistic sigmoid as a sum of error functions (Williams and Barber, 1998, appendix A)."""


def gaussian_process_regressor(model: Any, frame: Frame) -> Outputs:
    """The mean of the posterior: k(x, X_train_) @ alpha_, scaled back to the targets."""
    check(model, "X_train_", "alpha_", "kernel_")
    builder = frame.builder
    points = np.asarray(model.X_train_, np.float64)
    x = numbers(frame, "GaussianProcessRegressor")
    values = as_value(builder, covariance(builder, model.kernel_, x, points), x, len(points))
    weights = np.asarray(model.alpha_).reshape(len(points), -1)
    targets = weights.shape[1]
    mean = builder.linear(values, weights)
    scale, shift = (
        np.broadcast_to(np.asarray(v, np.float64).ravel(), (targets,))
        for v in (model._y_train_std, model._y_train_mean)
    )
    return Outputs({"label": builder.op("add", builder.op("mul", scale, mean), shift)})


def gaussian_process_classifier(model: Any, frame: Frame) -> Outputs:
    """Binary, or one process per class against the rest, whose probabilities are normalised.

    Raises:
        UnsupportedModelError: multi_class="one_vs_one" with more than two classes.
    """
    check(model, "base_estimator_", "classes_")
    classes = class_list(model)
    builder = frame.builder
    x = numbers(frame, "GaussianProcessClassifier")
    if len(classes) == 2:
        mean, proba = _binary(builder, model.base_estimator_, x)
        made = {"label": binary_label(builder, mean), "proba": with_complement(builder, proba)}
        return Outputs(made, labels_of(classes))
    if model.multi_class != "one_vs_rest":
        raise UnsupportedModelError(
            "GaussianProcessClassifier with multi_class='one_vs_one' raises on predict_proba; "
            "fit it with multi_class='one_vs_rest'"
        )
    shares = [_binary(builder, part, x)[1] for part in model.base_estimator_.estimators_]
    proba = builder.op("concat", *shares)
    label = argmax_label(builder, proba)
    total = builder.op("sum", proba, axis=1)
    nothing = builder.op("eq", total, 0.0)
    total = builder.op("where", nothing, 1.0, total)
    return Outputs({"label": label, "proba": builder.op("div", proba, total)}, labels_of(classes))


def _binary(builder: Builder, process: Any, x: Value) -> tuple[Value, Value]:
    """(n, 1) latent mean and probability of the second class."""
    points = np.asarray(process.X_train_, np.float64)
    m = len(points)
    values = as_value(builder, covariance(builder, process.kernel_, x, points), x, m)
    weights = (np.asarray(process.y_train_, np.float64) - process.pi_).reshape(m, 1)
    mean = builder.linear(values, weights)
    # v = L^-1 W^(1/2) k, with the inverse taken once: L has a diagonal of at least 1.
    spread = np.linalg.solve(process.L_, np.diag(process.W_sr_)).T
    v = builder.linear(values, spread)
    explained = builder.op("sum", builder.op("square", v), axis=1)
    own = as_value(builder, variance(builder, process.kernel_, x), x, 1)
    return mean, _averaged(builder, mean, builder.op("sub", own, explained))


def _averaged(b: Builder, mean: Value, var: Value) -> Value:
    """The sigmoid's mean under a normal distribution, as the source approximates it."""
    alpha = b.op("div", 1.0, b.op("mul", 2.0, var))
    slopes = np.array(_SLOPES)
    widened = b.op("add", alpha, slopes**2)
    root = b.op("sqrt", b.op("div", alpha, widened))
    inner = b.op("mul", b.op("mul", slopes, mean), root)
    # erf(z) = 2 * Phi(z * sqrt(2)) - 1
    phi = b.op("ndtr", b.op("mul", inner, 2.0**0.5))
    erf = b.op("sub", b.op("mul", 2.0, phi), 1.0)
    upper = b.op("mul", b.op("sqrt", b.op("div", np.pi, alpha)), erf)
    lower = b.op("mul", 2.0, b.op("sqrt", b.op("mul", var, 2 * np.pi)))
    integrals = b.op("div", upper, lower)
    weighted = b.op("mul", np.array(_SHARES), integrals)
    half = 0.5 * float(np.sum(_SHARES))
    return b.op("add", b.op("sum", weighted, axis=1), half)
