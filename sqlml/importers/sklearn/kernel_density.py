"""KernelDensity: the logarithm of a sum of kernels around all fitted points."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame, Outputs
from sqlml.importers.sklearn.estimator_checks import check, numbers
from sqlml.importers.sklearn.neighbors import metric_attrs
from sqlml.ir.builder import Builder, Value

MOST_TOLERANCE = 1e-9
"""Relative tolerance of the source's own sum, up to which an exact sum is the same number."""


def kernel_density(model: Any, frame: Frame) -> Outputs:
    """Return the normalised log(sum of weight * kernel(distance / bandwidth_)).

    The result is -inf if no point is near.

    Raises:
        UnsupportedModelError: atol or rtol allow the source to stop before its sum is exact.
    """
    check(model, "tree_", "bandwidth_")
    if model.atol > 0 or model.rtol > MOST_TOLERANCE:
        raise UnsupportedModelError(
            f"KernelDensity with atol={model.atol} and rtol={model.rtol} stops searching its tree "
            "before the sum is exact; fit it with atol=0 and rtol=0"
        )
    builder, tree = frame.builder, model.tree_
    points = np.asarray(tree.data, np.float64)
    attrs = metric_attrs(model, model.metric, model.metric_params or {})
    reduced = builder.op("pairwise", numbers(frame, "KernelDensity"), points=points, **attrs)
    logs = _KERNELS[model.kernel](builder, _distance(builder, reduced, attrs), model.bandwidth_)
    total = float(len(points))
    if tree.sample_weight is not None:
        weights, total = np.asarray(tree.sample_weight, np.float64), float(tree.sum_weight)
        with np.errstate(divide="ignore"):
            logs = builder.op("add", logs, np.log(weights))
    most = builder.op("max", logs, axis=1)
    nothing = builder.op("eq", most, -np.inf)
    most = builder.op("where", nothing, 0.0, most)
    summed = builder.op("sum", builder.op("exp", builder.op("sub", logs, most)), axis=1)
    density = builder.op("add", builder.op("log", summed), most)
    norm = _log_norm(model.kernel, float(model.bandwidth_), points.shape[1]) - math.log(total)
    return Outputs({"samples": builder.op("add", density, norm)})


def _distance(builder: Builder, reduced: Value, attrs: dict[str, Any]) -> Value:
    if attrs["metric"] in ("sqeuclidean", "mahalanobis"):
        return builder.op("sqrt", reduced)
    if attrs["metric"] == "minkowski":
        return builder.op("pow", reduced, 1.0 / attrs["p"])
    return reduced


def _inside(builder: Builder, distance: Value, width: float, value: Value | float) -> Value:
    """Return `value` where the distance is below the bandwidth, and -inf elsewhere."""
    return builder.op("where", builder.op("lt", distance, width), value, -np.inf)


def _gaussian(b: Builder, d: Value, h: float) -> Value:
    return b.op("div", b.op("mul", b.op("mul", d, d), -0.5), h * h)


def _tophat(b: Builder, d: Value, h: float) -> Value:
    return _inside(b, d, h, 0.0)


def _epanechnikov(b: Builder, d: Value, h: float) -> Value:
    share = b.op("div", b.op("mul", d, d), h * h)
    return _inside(b, d, h, b.op("log", b.op("sub", 1.0, share)))


def _exponential(b: Builder, d: Value, h: float) -> Value:
    return b.op("div", b.op("neg", d), h)


def _linear(b: Builder, d: Value, h: float) -> Value:
    return _inside(b, d, h, b.op("log", b.op("sub", 1.0, b.op("div", d, h))))


def _cosine(b: Builder, d: Value, h: float) -> Value:
    angle = b.op("div", b.op("mul", d, 0.5 * math.pi), h)
    return _inside(b, d, h, b.op("log", b.op("cos", angle)))


_KERNELS = {
    "gaussian": _gaussian,
    "tophat": _tophat,
    "epanechnikov": _epanechnikov,
    "exponential": _exponential,
    "linear": _linear,
    "cosine": _cosine,
}


def _log_norm(kernel: str, h: float, d: int) -> float:
    """Return the log of the factor that normalises the kernel's integral over d dimensions."""

    def log_volume(n: int) -> float:
        return 0.5 * n * math.log(math.pi) - math.lgamma(0.5 * n + 1)

    def log_surface(n: int) -> float:
        return math.log(2 * math.pi) + log_volume(n - 1)

    if kernel == "gaussian":
        factor = 0.5 * d * math.log(2 * math.pi)
    elif kernel == "tophat":
        factor = log_volume(d)
    elif kernel == "epanechnikov":
        factor = log_volume(d) + math.log(2.0 / (d + 2.0))
    elif kernel == "exponential":
        factor = log_surface(d - 1) + math.lgamma(d)
    elif kernel == "linear":
        factor = log_volume(d) - math.log(d + 1.0)
    else:
        total, term = 0.0, 2.0 / math.pi
        for k in range(1, d + 1, 2):
            total += term
            term *= -(d - k) * (d - k - 1) * (2.0 / math.pi) ** 2
        factor = math.log(total) + log_surface(d - 1)
    return -factor - d * math.log(h)
