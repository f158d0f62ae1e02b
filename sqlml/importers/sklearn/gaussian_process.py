"""Gaussian processes: GaussianProcessRegressor, GaussianProcessClassifier and their kernels.

Kernels are those of `sklearn.gaussian_process.kernels`. The models follow algorithms 2.1 and 3.2 of
Rasmussen and Williams, "Gaussian Processes for Machine Learning" (2006); the classifier uses the
Laplace approximation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame, Outputs, build_labels
from sqlml.importers.sklearn.classify import add_complement, argmax_label, binary_label, class_list
from sqlml.importers.sklearn.estimator_checks import check, numbers
from sqlml.importers.sklearn.kernel_models import (
    KERNELS,
    NON_NEGATIVE,
    exponential,
    kernel_values,
    power,
)
from sqlml.ir.builder import Builder, Value
from sqlml.types import Array

Term = Value | float
"""Values that depend on the rows, or one number for all of them."""


def covariance(builder: Builder, kernel: Any, x: Value, points: Array) -> Term:
    """Return k(x, points), (n, m), or one number if the kernel is constant.

    Raises:
        UnsupportedModelError: a kernel that we do not cover.
    """
    return _covered(kernel)[0](builder, kernel, x, np.asarray(points, np.float64))


def variance(builder: Builder, kernel: Any, x: Value) -> Term:
    """Return k(x, x) of each row, (n, 1), or one number."""
    return _covered(kernel)[1](builder, kernel, x)


def _covered(kernel: Any) -> tuple[Callable[..., Term], Callable[..., Term]]:
    name = type(kernel).__name__
    known = type(kernel).__module__ == "sklearn.gaussian_process.kernels" and name in _KERNELS
    if not known:
        raise UnsupportedModelError(
            f"the Gaussian process has a kernel {name}, which sqlml does not cover; it covers "
            + ", ".join(_KERNELS)
        )
    return _KERNELS[name]


def as_value(builder: Builder, term: Term, x: Value, width: int) -> Value:
    """Return a term as (n, width) values."""
    if isinstance(term, Value):
        return term
    first = builder.op("select", x, indices=np.zeros(1, np.int64))
    zeros = builder.op("mul", first, 0.0)
    return builder.op("add", zeros, np.full(width, term))


def _constant(value: Callable[[Any], float]) -> Callable[..., Term]:
    return lambda builder, kernel, *rest: float(value(kernel))


def _operation(op: str, compute: Callable[..., Term]) -> Callable[..., Term]:
    def both(builder: Builder, kernel: Any, *rest: Any) -> Term:
        a, b = (compute(builder, part, *rest) for part in (kernel.k1, kernel.k2))
        if isinstance(a, Value) or isinstance(b, Value):
            return builder.op(op, a, b)
        return a + b if op == "add" else a * b

    return both


def _raise_to(compute: Callable[..., Term]) -> Callable[..., Term]:
    def raised(builder: Builder, kernel: Any, *rest: Any) -> Term:
        base = compute(builder, kernel.kernel, *rest)
        if isinstance(base, Value):
            return power(builder, base, kernel.exponent)
        return float(base**kernel.exponent)

    return raised


def _scaled(b: Builder, x: Value, points: Array, length: Any, metric: str) -> Value:
    """Return distances of rows and points divided by the length scales."""
    length = np.ravel(np.asarray(length, np.float64))
    x = b.op("div", x, length)
    distance = b.op("pairwise", x, points=points / length, metric="sqeuclidean")
    return b.op("sqrt", distance) if metric == "euclidean" else distance


def _rbf(b: Builder, kernel: Any, x: Value, points: Array) -> Term:
    return exponential(b, _scaled(b, x, points, kernel.length_scale, "sqeuclidean"), -0.5)


def _matern(b: Builder, kernel: Any, x: Value, points: Array) -> Term:
    nu = kernel.nu
    if nu == np.inf:
        return _rbf(b, kernel, x, points)
    if nu not in (0.5, 1.5, 2.5):
        raise UnsupportedModelError(
            f"the Gaussian process has a Matern kernel with nu={nu}, a Bessel function that sqlml "
            "does not compute; use nu=0.5, 1.5, 2.5 or inf"
        )
    d = _scaled(b, x, points, kernel.length_scale, "euclidean")
    if nu == 0.5:
        return exponential(b, d, -1.0)
    d = b.op("mul", d, math.sqrt(2 * nu))
    rise = b.op("add", 1.0, d)
    if nu == 2.5:
        third = b.op("div", b.op("square", d), 3.0)
        rise = b.op("add", rise, third)
    return b.op("mul", rise, exponential(b, d, -1.0))


def _rational_quadratic(b: Builder, kernel: Any, x: Value, points: Array) -> Term:
    distance = b.op("pairwise", x, points=points, metric="sqeuclidean")
    size = 2 * kernel.alpha * kernel.length_scale**2
    base = b.op("div", distance, float(size))
    base = b.op("add", 1.0, base)
    return b.op("pow", base, -float(kernel.alpha))


def _exp_sine_squared(b: Builder, kernel: Any, x: Value, points: Array) -> Term:
    d = b.op("sqrt", b.op("pairwise", x, points=points, metric="sqeuclidean"))
    d = b.op("mul", d, math.pi / kernel.periodicity)
    wave = b.op("div", b.op("sin", d), float(kernel.length_scale))
    return exponential(b, b.op("square", wave), -2.0)


def _dot_product(b: Builder, kernel: Any, x: Value, points: Array) -> Term:
    product = b.op("pairwise", x, points=points, metric="dot")
    return b.op("add", product, float(kernel.sigma_0**2))


def _own_dot_product(b: Builder, kernel: Any, x: Value) -> Term:
    product = b.op("sum", b.op("square", x), axis=1)
    return b.op("add", product, float(kernel.sigma_0**2))


def _pairwise(b: Builder, kernel: Any, x: Value, points: Array) -> Term:
    name = kernel.metric
    if callable(name) or name not in KERNELS - NON_NEGATIVE:
        raise UnsupportedModelError(
            f"the Gaussian process has a PairwiseKernel with metric {name!r}, which sqlml does "
            f"not cover; it covers {', '.join(sorted(KERNELS - NON_NEGATIVE))}"
        )
    more = kernel.pairwise_kernels_kwargs or {}
    gamma = kernel.gamma
    return kernel_values(b, x, points, name, gamma, more.get("degree", 3), more.get("coef0", 1))


def _own_pairwise(b: Builder, kernel: Any, x: Value) -> Term:
    if kernel.metric in ("rbf", "laplacian"):
        return 1.0
    raise UnsupportedModelError(
        f"the Gaussian process needs the variance of a PairwiseKernel {kernel.metric!r}, which "
        "sqlml does not cover; use RBF or DotProduct"
    )


_one = _constant(lambda kernel: 1.0)

_KERNELS: Mapping[str, tuple[Callable[..., Term], Callable[..., Term]]] = MappingProxyType(
    {
        "RBF": (_rbf, _one),
        "Matern": (_matern, _one),
        "RationalQuadratic": (_rational_quadratic, _one),
        "ExpSineSquared": (_exp_sine_squared, _one),
        "DotProduct": (_dot_product, _own_dot_product),
        "ConstantKernel": (
            _constant(lambda kernel: kernel.constant_value),
            _constant(lambda kernel: kernel.constant_value),
        ),
        # Noise of a fitted row is its own; it says nothing about another row.
        "WhiteKernel": (
            _constant(lambda kernel: 0.0),
            _constant(lambda kernel: kernel.noise_level),
        ),
        "Sum": (_operation("add", covariance), _operation("add", variance)),
        "Product": (_operation("mul", covariance), _operation("mul", variance)),
        "Exponentiation": (_raise_to(covariance), _raise_to(variance)),
        "PairwiseKernel": (_pairwise, _own_pairwise),
    }
)


_SLOPES = (0.41, 0.4, 0.37, 0.44, 0.39)
_SHARES = (-1854.8214151, 3516.89893646, 221.29346712, 128.12323805, -2010.49422654)
"""The logistic sigmoid as a sum of error functions (Williams and Barber, 1998, appendix A)."""


def gaussian_process_regressor(model: Any, frame: Frame) -> Outputs:
    """Return the posterior mean k(x, X_train_) @ alpha_, scaled back to the targets."""
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
    """Return the probabilities of one process, or normalised of one process per class.

    Raises:
        UnsupportedModelError: multi_class="one_vs_one" with more than two classes.
    """
    check(model, "base_estimator_", "classes_")
    classes = class_list(model)
    builder = frame.builder
    x = numbers(frame, "GaussianProcessClassifier")
    if len(classes) == 2:
        mean, proba = _binary(builder, model.base_estimator_, x)
        values = {"label": binary_label(builder, mean), "proba": add_complement(builder, proba)}
        return Outputs(values, build_labels(classes))
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
    return Outputs(
        {"label": label, "proba": builder.op("div", proba, total)}, build_labels(classes)
    )


def _binary(builder: Builder, process: Any, x: Value) -> tuple[Value, Value]:
    """Return the latent mean and the probability of the second class, each (n, 1)."""
    points = np.asarray(process.X_train_, np.float64)
    m = len(points)
    values = as_value(builder, covariance(builder, process.kernel_, x, points), x, m)
    weights = (np.asarray(process.y_train_, np.float64) - process.pi_).reshape(m, 1)
    mean = builder.linear(values, weights)
    # v = L^-1 W^(1/2) k, with the inverse taken once: L has a diagonal of at least 1.
    spread = np.linalg.solve(process.L_, np.diag(process.W_sr_)).T
    v = builder.linear(values, spread)
    explained = builder.op("sum", builder.op("square", v), axis=1)
    prior_variance = as_value(builder, variance(builder, process.kernel_, x), x, 1)
    return mean, _average_sigmoid(builder, mean, builder.op("sub", prior_variance, explained))


def _average_sigmoid(b: Builder, mean: Value, var: Value) -> Value:
    """Approximate the mean of the sigmoid under a normal distribution, like the source."""
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
