"""Gaussian processes: GaussianProcessRegressor, GaussianProcessClassifier and their kernels.

The models follow algorithms 2.1 and 3.2 of Rasmussen and Williams, "Gaussian Processes for Machine
Learning" (2006). The classifier uses the Laplace approximation.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame, Outputs, build_labels
from sqlml.importers.powers import raise_to_power
from sqlml.importers.sklearn import classify, kernel_models
from sqlml.importers.sklearn.estimator_checks import check_array, check_estimator
from sqlml.ir.builder import Builder, Value
from sqlml.types import Array

Term = Value | float
"""The values of a kernel: a Value with numbers for each row, or one number for all rows."""

_KERNELS = (
    "RBF Matern RationalQuadratic ExpSineSquared DotProduct ConstantKernel WhiteKernel Sum Product "
    "Exponentiation PairwiseKernel"
).split()


def compute_covariance(builder: Builder, kernel: Any, x: Value, points: Array) -> Term:
    """Return the kernel of each row and point, (n, m), or the number of a constant kernel."""
    op = builder.op
    match _require_known_kernel(kernel):
        case "ConstantKernel":
            return float(kernel.constant_value)
        case "WhiteKernel":
            return 0.0  # The noise of a new row does not depend on the training rows' noise.
        case ("Sum" | "Product") as name:
            left = compute_covariance(builder, kernel.k1, x, points)
            right = compute_covariance(builder, kernel.k2, x, points)
            return _combine_terms(builder, name, left, right)
        case "Exponentiation":
            inner = compute_covariance(builder, kernel.kernel, x, points)
            return _compute_power(builder, inner, kernel.exponent)
        case "RBF":
            distance = _compute_squared_distances(builder, x, points, kernel.length_scale)
            return kernel_models.exponentiate(builder, distance, -0.5)
        case "Matern":
            return _compute_matern(builder, kernel, x, points)
        case "RationalQuadratic":
            distance = op("pairwise", x, points=points, metric="sqeuclidean")
            scale = float(2 * kernel.alpha * kernel.length_scale**2)
            return op("pow", op("add", 1.0, op("div", distance, scale)), -float(kernel.alpha))
        case "ExpSineSquared":
            distance = op("sqrt", op("pairwise", x, points=points, metric="sqeuclidean"))
            angle = op("mul", distance, math.pi / kernel.periodicity)
            wave = op("div", op("sin", angle), float(kernel.length_scale))
            return kernel_models.exponentiate(builder, op("square", wave), -2.0)
        case "DotProduct":
            product = op("pairwise", x, points=points, metric="dot")
            return op("add", product, float(kernel.sigma_0**2))
    return _compute_pairwise_kernel(builder, kernel, x, points)


def compute_variance(builder: Builder, kernel: Any, x: Value) -> Term:
    """Return the kernel of each row with itself, (n, 1), or one number for all rows."""
    op = builder.op
    match _require_known_kernel(kernel):
        case "ConstantKernel":
            return float(kernel.constant_value)
        case "WhiteKernel":
            return float(kernel.noise_level)
        case ("Sum" | "Product") as name:
            left = compute_variance(builder, kernel.k1, x)
            right = compute_variance(builder, kernel.k2, x)
            return _combine_terms(builder, name, left, right)
        case "Exponentiation":
            inner = compute_variance(builder, kernel.kernel, x)
            return _compute_power(builder, inner, kernel.exponent)
        case "DotProduct":
            return op("add", op("sum", op("square", x), axis=1), float(kernel.sigma_0**2))
        case "PairwiseKernel" if kernel.metric not in ("rbf", "laplacian"):
            raise UnsupportedModelError(
                f"the Gaussian process needs the variance of a PairwiseKernel {kernel.metric!r}, "
                "which sqlml does not support; use RBF or DotProduct"
            )
    return 1.0


def _require_known_kernel(kernel: Any) -> str:
    name = type(kernel).__name__
    if type(kernel).__module__ != "sklearn.gaussian_process.kernels" or name not in _KERNELS:
        raise UnsupportedModelError(
            f"the Gaussian process has a kernel {name}, which sqlml does not support; it supports "
            + ", ".join(_KERNELS)
        )
    return name


def _combine_terms(builder: Builder, name: str, left: Term, right: Term) -> Term:
    if isinstance(left, Value) or isinstance(right, Value):
        return builder.op("add" if name == "Sum" else "mul", left, right)
    return left + right if name == "Sum" else left * right


def _compute_power(builder: Builder, base: Term, exponent: float) -> Term:
    if isinstance(base, Value):
        return raise_to_power(builder, base, exponent)
    return float(base**exponent)


def expand_term(builder: Builder, term: Term, x: Value, width: int) -> Value:
    if isinstance(term, Value):
        return term
    zeros = builder.op("mul", builder.op("select", x, indices=np.zeros(1, np.int64)), 0.0)
    return builder.op("add", zeros, np.full(width, term))


def _compute_squared_distances(builder: Builder, x: Value, points: Array, scale: Any) -> Value:
    lengths = np.ravel(np.asarray(scale, np.float64))
    scaled = builder.op("div", x, lengths)
    return builder.op("pairwise", scaled, points=points / lengths, metric="sqeuclidean")


def _compute_matern(builder: Builder, kernel: Any, x: Value, points: Array) -> Term:
    op = builder.op
    nu = kernel.nu
    squared_distances = _compute_squared_distances(builder, x, points, kernel.length_scale)
    if nu == np.inf:
        return kernel_models.exponentiate(builder, squared_distances, -0.5)
    if nu not in (0.5, 1.5, 2.5):
        raise UnsupportedModelError(
            f"the Gaussian process has a Matern kernel with nu={nu}, a Bessel function that sqlml "
            "does not compute; use nu=0.5, 1.5, 2.5 or inf"
        )
    distance = op("sqrt", squared_distances)
    if nu == 0.5:
        return kernel_models.exponentiate(builder, distance, -1.0)
    distance = op("mul", distance, math.sqrt(2 * nu))
    polynomial = op("add", 1.0, distance)
    if nu == 2.5:
        polynomial = op("add", polynomial, op("div", op("square", distance), 3.0))
    return op("mul", polynomial, kernel_models.exponentiate(builder, distance, -1.0))


def _compute_pairwise_kernel(builder: Builder, kernel: Any, x: Value, points: Array) -> Term:
    name, supported = kernel.metric, kernel_models.KERNELS - kernel_models.NON_NEGATIVE
    if callable(name) or name not in supported:
        raise UnsupportedModelError(
            f"the Gaussian process has a PairwiseKernel with metric {name!r}, which sqlml does "
            f"not support; it supports {', '.join(sorted(supported))}"
        )
    parameters = kernel.pairwise_kernels_kwargs or {}
    degree, coef0 = parameters.get("degree", 3), parameters.get("coef0", 1)
    return kernel_models.compute_kernel(builder, x, points, name, kernel.gamma, degree, coef0)


_SLOPES = (0.41, 0.4, 0.37, 0.44, 0.39)
_SHARES = (-1854.8214151, 3516.89893646, 221.29346712, 128.12323805, -2010.49422654)
"""Weights of erf(slope * z); the sum is about the sigmoid (Williams and Barber, 1998, app. A)."""


def import_gaussian_process_regressor(model: Any, frame: Frame) -> Outputs:
    """Return the posterior mean in the unit of the targets."""
    check_estimator(model, "X_train_", "alpha_", "kernel_")
    builder = frame.builder
    points = np.asarray(model.X_train_, np.float64)
    x = check_array(frame, "GaussianProcessRegressor")
    term = compute_covariance(builder, model.kernel_, x, points)
    covariance = expand_term(builder, term, x, len(points))
    weights = np.asarray(model.alpha_).reshape(len(points), -1)
    mean = builder.linear(covariance, weights)
    factors = (np.asarray(v, np.float64).ravel() for v in (model._y_train_std, model._y_train_mean))
    scale, shift = (np.broadcast_to(factor, weights.shape[1:]) for factor in factors)
    return Outputs({"label": builder.op("add", builder.op("mul", scale, mean), shift)})


def import_gaussian_process_classifier(model: Any, frame: Frame) -> Outputs:
    check_estimator(model, "base_estimator_", "classes_")
    classes = classify.read_classes(model)
    builder = frame.builder
    op = builder.op
    x = check_array(frame, "GaussianProcessClassifier")
    if len(classes) == 2:
        mean, proba = _predict_binary(builder, model.base_estimator_, x)
        label = classify.label_by_threshold(builder, mean)
        class_proba = classify.add_complement(builder, proba)
        return Outputs({"label": label, "proba": class_proba}, build_labels(classes))
    if model.multi_class != "one_vs_rest":
        raise UnsupportedModelError(
            "GaussianProcessClassifier with multi_class='one_vs_one' raises on predict_proba; "
            "fit it with multi_class='one_vs_rest'"
        )
    processes = model.base_estimator_.estimators_
    proba = builder.concat([_predict_binary(builder, process, x)[1] for process in processes])
    total = op("sum", proba, axis=1)
    normalized = op("div", proba, op("where", op("eq", total, 0.0), 1.0, total))
    values = {"label": classify.label_by_argmax(builder, proba), "proba": normalized}
    return Outputs(values, build_labels(classes))


def _predict_binary(builder: Builder, process: Any, x: Value) -> tuple[Value, Value]:
    """Return the latent mean and the probability of the second class, each (n, 1)."""
    op = builder.op
    points = np.asarray(process.X_train_, np.float64)
    term = compute_covariance(builder, process.kernel_, x, points)
    covariance = expand_term(builder, term, x, len(points))
    weights = (np.asarray(process.y_train_, np.float64) - process.pi_).reshape(-1, 1)
    mean = builder.linear(covariance, weights)
    # This computes v = L^-1 W^(1/2) k. L can be inverted, because its diagonal is at least 1.
    v = builder.linear(covariance, np.linalg.solve(process.L_, np.diag(process.W_sr_)).T)
    explained_variance = op("sum", op("square", v), axis=1)
    prior_variance = expand_term(builder, compute_variance(builder, process.kernel_, x), x, 1)
    return mean, _average_sigmoid(builder, mean, op("sub", prior_variance, explained_variance))


def _average_sigmoid(builder: Builder, mean: Value, var: Value) -> Value:
    """Approximate the mean of sigmoid(z) for z ~ N(mean, var) by a sum of error functions."""
    op = builder.op
    alpha = op("div", 1.0, op("mul", 2.0, var))
    slopes = np.array(_SLOPES)
    root = op("sqrt", op("div", alpha, op("add", alpha, slopes**2)))
    inner = op("mul", op("mul", slopes, mean), root)
    # The error function is erf(z) = 2 * Phi(z * sqrt(2)) - 1.
    phi = op("ndtr", op("mul", inner, 2.0**0.5))
    erf = op("sub", op("mul", 2.0, phi), 1.0)
    numerator = op("mul", op("sqrt", op("div", np.pi, alpha)), erf)
    denominator = op("mul", 2.0, op("sqrt", op("mul", var, 2 * np.pi)))
    weighted = op("mul", np.array(_SHARES), op("div", numerator, denominator))
    return op("add", op("sum", weighted, axis=1), 0.5 * float(np.sum(_SHARES)))
