"""Kernels of `sklearn.metrics.pairwise` and libsvm, and estimators that approximate kernels."""

from __future__ import annotations

from typing import Any

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame, Outputs
from sqlml.importers.sklearn.estimator_checks import check, check_bounds, explain_function, numbers
from sqlml.ir.builder import Builder, Value
from sqlml.types import Array

NON_NEGATIVE = frozenset({"chi2", "additive_chi2"})

KERNELS = frozenset(
    "linear poly polynomial rbf laplacian sigmoid cosine chi2 additive_chi2".split()
)


def kernel_name(model: Any) -> str:
    step, kernel = type(model).__name__, model.kernel
    if callable(kernel):
        raise explain_function(model, "kernel", "a kernel by name")
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
    """Return the kernel values (n, m) between the rows and `points` (m, k)."""
    name, step = kernel_name(model), type(model).__name__
    if name in NON_NEGATIVE:
        step = f"{step} with kernel={name!r}"
        x = check_bounds(frame, frame.matrix(), step, low=np.zeros(frame.width))
    else:
        x = numbers(frame, step)
    return kernel_values(frame.builder, x, dense(points), name, gamma, degree, coef0)


def kernel_values(
    b: Builder,
    x: Value,
    points: Array,
    kernel: str,
    gamma: float | None = None,
    degree: float = 3,
    coef0: float = 1,
) -> Value:
    """Return kernel values (n, m) of rows `x` and `points` (m, k); gamma defaults to 1 / k."""
    points = np.asarray(points, np.float64)
    scale = 1.0 / points.shape[1] if gamma is None else float(gamma)
    if kernel == "cosine":
        length = b.op("sqrt", b.op("sum", b.op("square", x), axis=1))
        x = b.op("div", x, b.op("where", b.op("eq", length, 0.0), 1.0, length))
        lengths = np.sqrt((points * points).sum(axis=1, keepdims=True))
        points = np.asarray(points / np.where(lengths == 0, 1.0, lengths))
        return b.op("pairwise", x, points=points, metric="dot")
    if kernel in ("rbf", "laplacian"):
        metric = "sqeuclidean" if kernel == "rbf" else "manhattan"
        return exponential(b, b.op("pairwise", x, points=points, metric=metric), -scale)
    if kernel in NON_NEGATIVE:
        distance = b.op("pairwise", x, points=points, metric="chi2")
        if kernel == "additive_chi2":
            return b.op("neg", distance)
        # The default gamma of chi2 is 1, not 1 / k.
        return exponential(b, distance, -(1.0 if gamma is None else float(gamma)))
    product = b.op("pairwise", x, points=points, metric="dot")
    if kernel == "linear":
        return product
    product = b.op("add", b.op("mul", product, scale), float(coef0))
    return b.op("tanh", product) if kernel == "sigmoid" else power(b, product, degree)


def exponential(b: Builder, x: Value, factor: float) -> Value:
    return b.op("exp", b.op("mul", x, factor))


MOST_FACTORS = 64


def power(b: Builder, x: Value, exponent: float) -> Value:
    """Return x to the power of `exponent`; integer exponents by squaring, like libsvm's powi."""
    if exponent != int(exponent) or not 0 <= exponent <= MOST_FACTORS:
        return b.op("pow", x, float(exponent))
    product: Value | None = None
    remaining = int(exponent)
    while remaining:
        if remaining % 2:
            product = x if product is None else b.op("mul", product, x)
        remaining //= 2
        if remaining:
            x = b.op("mul", x, x)
    if product is None:  # The power 0 is 1 for any x.
        return b.op("add", b.op("mul", x, 0.0), 1.0)
    return product


def dense(matrix: Any) -> Array:
    """Return a matrix as float64; the source keeps it sparse if it was fitted on sparse rows."""
    return np.asarray(matrix.toarray() if hasattr(matrix, "toarray") else matrix, np.float64)


def kernel_ridge(model: Any, frame: Frame) -> Outputs:
    check(model, "dual_coef_", "X_fit_")
    weights = np.asarray(model.dual_coef_)
    values = kernel_of(model, frame, model.X_fit_, model.gamma, model.degree, model.coef0)
    return Outputs({"label": frame.builder.linear(values, weights.reshape(len(weights), -1))})


def kernel_pca(model: Any, frame: Frame) -> Frame:
    """Return the centred kernel values times the scaled eigenvectors."""
    check(model, "X_fit_", "eigenvalues_", "eigenvectors_", "_centerer", "gamma_")
    b = frame.builder
    values = kernel_of(model, frame, model.X_fit_, model.gamma_, model.degree, model.coef0)
    eigenvalues = np.asarray(model.eigenvalues_, np.float64)
    vectors = np.asarray(model.eigenvectors_, np.float64)
    is_nonzero = eigenvalues != 0
    scaled = np.zeros_like(vectors)
    scaled[:, is_nonzero] = vectors[:, is_nonzero] / np.sqrt(eigenvalues[is_nonzero])
    return Frame.from_value(b, b.linear(_centre(b, values, model._centerer), scaled))


def kernel_centerer(model: Any, frame: Frame) -> Frame:
    """Return kernel values minus the means of their rows and of the fitted rows."""
    check(model, "K_fit_rows_", "K_fit_all_")
    centred = _centre(frame.builder, numbers(frame, "KernelCenterer"), model)
    return Frame.from_value(frame.builder, centred, frame.names)


def nystroem(model: Any, frame: Frame) -> Frame:
    """Return the kernel values at the chosen points times normalization_."""
    check(model, "components_", "normalization_")
    parameters = {"gamma": None, "degree": 3, "coef0": 1, **(model.kernel_params or {})}
    for key in ("gamma", "degree", "coef0"):
        if getattr(model, key) is not None:
            parameters[key] = getattr(model, key)
    gamma, degree, coef0 = (parameters[key] for key in ("gamma", "degree", "coef0"))
    values = kernel_of(model, frame, model.components_, gamma, degree, coef0)
    normal = np.asarray(model.normalization_)
    return Frame.from_value(frame.builder, frame.builder.linear(values, normal.T))


def _centre(b: Builder, values: Value, centerer: Any) -> Value:
    rows = np.asarray(centerer.K_fit_rows_, np.float64)
    mean = b.op("div", b.op("sum", values, axis=1), float(rows.size))
    values = b.op("sub", b.op("sub", values, rows), mean)
    return b.op("add", values, np.full(1, float(centerer.K_fit_all_)))


_INTERVALS = {1: 0.8, 2: 0.5, 3: 0.4}
"""AdditiveChi2Sampler's default sample_interval by sample_steps."""


def rbf_sampler(model: Any, frame: Frame) -> Frame:
    """Return cos(x @ random_weights_ + random_offset_) * sqrt(2 / n_components)."""
    check(model, "random_weights_", "random_offset_")
    scale = (2.0 / model.n_components) ** 0.5
    return _cosines(model, frame, numbers(frame, "RBFSampler"), scale)


def skewed_chi2_sampler(model: Any, frame: Frame) -> Frame:
    """Return cos(log(x + skewedness) W + b) sqrt(2 / n); x at or below -skewedness raises."""
    check(model, "random_weights_", "random_offset_")
    b, skew = frame.builder, float(model.skewedness)
    low = np.full(frame.width, np.nextafter(-skew, np.inf))
    x = check_bounds(frame, frame.matrix(), "SkewedChi2Sampler", low=low)
    x = b.op("log", b.op("add", x, skew))
    return _cosines(model, frame, x, np.sqrt(2.0) / np.sqrt(model.n_components))


def additive_chi2_sampler(model: Any, frame: Frame) -> Frame:
    """Return sqrt(x * interval), then for each step a cosine and a sine of log(x); 0 if x is 0."""
    check(model)
    b = frame.builder
    interval = model.sample_interval
    interval = float(_INTERVALS[model.sample_steps] if interval is None else interval)
    x = check_bounds(frame, frame.matrix(), "AdditiveChi2Sampler", low=np.zeros(frame.width))
    empty = b.op("eq", x, 0.0)

    parts = [b.op("sqrt", b.op("mul", x, interval))]
    log_step = b.op("mul", b.op("log", x), interval)
    step = b.op("mul", b.op("mul", x, 2.0), interval)
    for j in range(1, model.sample_steps):
        factor = b.op("sqrt", b.op("div", step, np.cosh(np.pi * j * interval)))
        for wave in ("cos", "sin"):
            component = b.op("mul", factor, b.op(wave, b.op("mul", log_step, float(j))))
            parts.append(b.op("where", empty, 0.0, component))
    return Frame.from_value(b, b.concat(parts))


def polynomial_count_sketch(model: Any, frame: Frame) -> Frame:
    """Return the circular convolution of `degree` count sketches, by Fourier transforms."""
    check(model, "indexHash_", "bitHash_")
    builder, size = frame.builder, int(model.n_components)
    x = numbers(frame, "PolynomialCountSketch")
    # One number a column: onnxruntime would fuse a single one into the product, as a float32.
    x = builder.op("mul", np.full(frame.width, np.sqrt(model.gamma)), x)
    angle = 2 * np.pi * (np.outer(np.arange(size), np.arange(size)) % size) / size
    cosine, sine = np.cos(angle), np.sin(angle)
    spectra: list[tuple[Value, Value]] = []
    for index, bit in zip(model.indexHash_, model.bitHash_, strict=True):
        hashed = np.zeros((len(index), size))
        hashed[np.arange(len(index)), index] = bit
        shift = 0.0
        if model.coef0 != 0:  # The last row of the table belongs to the constant.
            shift, hashed = np.sqrt(model.coef0) * hashed[-1], hashed[:-1]
        sketch = builder.linear(x, hashed, shift)
        spectra.append((builder.linear(sketch, cosine), builder.linear(sketch, -sine)))
    if not spectra:
        raise UnsupportedModelError("PolynomialCountSketch has degree 0; fit it with 1 or more")
    real, imaginary = spectra[0]
    for a, b in spectra[1:]:
        real, imaginary = (
            builder.op("sub", builder.op("mul", real, a), builder.op("mul", imaginary, b)),
            builder.op("add", builder.op("mul", real, b), builder.op("mul", imaginary, a)),
        )
    both = builder.op("concat", real, imaginary)
    back = np.concatenate([cosine, -sine]) / size
    return Frame.from_value(builder, builder.linear(both, back))


def neighborhood_components(model: Any, frame: Frame) -> Frame:
    check(model, "components_")
    x = numbers(frame, "NeighborhoodComponentsAnalysis")
    return Frame.from_value(frame.builder, frame.builder.linear(x, np.asarray(model.components_).T))


def _cosines(model: Any, frame: Frame, x: Value, scale: float) -> Frame:
    projected = frame.builder.linear(x, model.random_weights_, model.random_offset_)
    waves = frame.builder.op("cos", projected)
    return Frame.from_value(frame.builder, frame.builder.op("mul", waves, scale))
