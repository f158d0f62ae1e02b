"""Kernels between rows and fixed points, as libsvm and `sklearn.metrics.pairwise` define them."""

from __future__ import annotations

from typing import Any

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame
from sqlml.importers.sklearn.checked import numbers, within
from sqlml.ir.builder import Builder, Value
from sqlml.types import Array

NON_NEGATIVE = frozenset({"chi2", "additive_chi2"})
"""Kernels that refuse negative numbers."""

KERNELS = frozenset(
    "linear poly polynomial rbf laplacian sigmoid cosine chi2 additive_chi2".split()
)


def kernel_name(model: Any) -> str:
    """The name of the model's kernel, where it is one that we cover.

    Raises:
        UnsupportedModelError: it is precomputed, a function, or none that we know.
    """
    step, kernel = type(model).__name__, model.kernel
    if callable(kernel):
        raise UnsupportedModelError(
            f"{step} has a Python function as its kernel, which cannot run inside SQL; "
            "use a kernel by name"
        )
    if kernel == "precomputed":
        raise UnsupportedModelError(
            f"{step} has kernel='precomputed': its input is a matrix of kernel values, not a "
            "table of features; use a kernel by name"
        )
    if kernel not in KERNELS:
        raise UnsupportedModelError(f"{step} has kernel {kernel!r}, which sqlml does not cover")
    return str(kernel)


def kernel_of(
    model: Any, frame: Frame, points: Any, gamma: float | None, degree: float, coef0: float
) -> Value:
    """(n, m) values of the model's kernel between the rows and `points` (m, k).

    Raises:
        UnsupportedModelError: as `kernel_name` does.
    """
    name, step = kernel_name(model), type(model).__name__
    if name in NON_NEGATIVE:
        step = f"{step} with kernel={name!r}"
        x = within(frame, frame.matrix(), step, low=np.zeros(frame.width))
    else:
        x = numbers(frame, step)
    return kernel_values(frame.builder, x, dense(points), name, gamma, degree, coef0)


def kernel_values(
    builder: Builder,
    x: Value,
    points: Array,
    kernel: str,
    gamma: float | None = None,
    degree: float = 3,
    coef0: float = 1,
) -> Value:
    """(n, m) kernel values of rows `x` and `points` (m, k); gamma defaults to 1 / k."""
    points = np.asarray(points, np.float64)
    scale = 1.0 / points.shape[1] if gamma is None else float(gamma)
    if kernel == "cosine":
        return builder.op("pairwise", _unit(builder, x), points=_units(points), metric="dot")
    if kernel in ("rbf", "laplacian"):
        metric = "sqeuclidean" if kernel == "rbf" else "manhattan"
        return exponential(builder, builder.op("pairwise", x, points=points, metric=metric), -scale)
    if kernel in NON_NEGATIVE:
        distance = builder.op("pairwise", x, points=points, metric="chi2")
        if kernel == "additive_chi2":
            return builder.op("neg", distance)
        # gamma is 1, not 1 / k, where chi2 is given none
        return exponential(builder, distance, -(1.0 if gamma is None else float(gamma)))
    product = builder.op("pairwise", x, points=points, metric="dot")
    if kernel == "linear":
        return product
    product = builder.op("mul", product, scale)
    product = builder.op("add", product, float(coef0))
    return builder.op("tanh", product) if kernel == "sigmoid" else power(builder, product, degree)


def exponential(builder: Builder, x: Value, factor: float) -> Value:
    """exp(factor * x)."""
    return builder.op("exp", builder.op("mul", x, factor))


MOST_FACTORS = 64
"""Largest whole exponent that is multiplied out."""


def power(builder: Builder, x: Value, exponent: float) -> Value:
    """x to the power of `exponent`; whole exponents by squaring, as libsvm's powi does."""
    if exponent != int(exponent) or not 0 <= exponent <= MOST_FACTORS:
        return builder.op("pow", x, float(exponent))
    made: Value | None = None
    left = int(exponent)
    while left:
        if left % 2:
            made = x if made is None else builder.op("mul", made, x)
        left //= 2
        if left:
            x = builder.op("mul", x, x)
    if made is None:  # the power 0 is 1, whatever x is
        zeros = builder.op("mul", x, 0.0)
        return builder.op("add", zeros, 1.0)
    return made


def _unit(builder: Builder, x: Value) -> Value:
    length = builder.op("sqrt", builder.op("sum", builder.op("square", x), axis=1))
    zero = builder.op("eq", length, 0.0)
    return builder.op("div", x, builder.op("where", zero, 1.0, length))


def _units(points: Array) -> Array:
    length = np.sqrt((points * points).sum(axis=1, keepdims=True))
    return np.asarray(points / np.where(length == 0, 1.0, length))


def dense(matrix: Any) -> Array:
    """A matrix as float64, where the source keeps it sparse when it was fitted on sparse rows."""
    return np.asarray(matrix.toarray() if hasattr(matrix, "toarray") else matrix, np.float64)
