"""Kernels of `sklearn.metrics.pairwise` and libsvm, and estimators that use them."""

from __future__ import annotations

from typing import Any

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame, Outputs
from sqlml.importers.powers import raise_to_power
from sqlml.importers.sklearn.estimator_checks import (
    check_array,
    check_bounds,
    check_estimator,
    make_callable_error,
)
from sqlml.ir.builder import Builder, Value
from sqlml.types import Array

NON_NEGATIVE = frozenset({"chi2", "additive_chi2"})

KERNELS = frozenset(
    "linear poly polynomial rbf laplacian sigmoid cosine chi2 additive_chi2".split()
)


def require_kernel_name(model: Any) -> str:
    class_name = type(model).__name__
    kernel = model.kernel
    if callable(kernel):
        raise make_callable_error(model, "kernel", "a kernel by name")
    if kernel == "precomputed":
        raise UnsupportedModelError(
            f"{class_name} has kernel='precomputed': its input is a matrix of kernel values, not a "
            "table of features; use a kernel by name"
        )
    if kernel not in KERNELS:
        raise UnsupportedModelError(f"sqlml does not support kernel {kernel!r} of {class_name}")
    return str(kernel)


def compute_model_kernel(
    model: Any, frame: Frame, points: Any, gamma: float | None, degree: float, coef0: float
) -> Value:
    """Return the model's kernel between each row of the frame and each point, (n, m)."""
    name = require_kernel_name(model)
    step = type(model).__name__
    if name in NON_NEGATIVE:
        step = f"{step} with kernel={name!r}"
        x = check_bounds(frame, frame.matrix(), step, low=np.zeros(frame.width))
    else:
        x = check_array(frame, step)
    return compute_kernel(frame.builder, x, to_dense(points), name, gamma, degree, coef0)


def compute_kernel(
    builder: Builder,
    x: Value,
    points: Array,
    kernel: str,
    gamma: float | None = None,
    degree: float = 3,
    coef0: float = 1,
) -> Value:
    """Return the kernel between each row of `x`, (n, k), and each of the `points`, (m, k).

    `gamma` defaults to 1 / k or, for the kernel chi2, to 1.
    """
    op = builder.op
    points = np.asarray(points, np.float64)
    scale = 1.0 / points.shape[1] if gamma is None else float(gamma)
    if kernel == "cosine":
        x_norm = op("sqrt", op("sum", op("square", x), axis=1))
        x = op("div", x, op("where", op("eq", x_norm, 0.0), 1.0, x_norm))
        point_norms = np.sqrt((points * points).sum(axis=1, keepdims=True))
        points = np.asarray(points / np.where(point_norms == 0, 1.0, point_norms))
        return op("pairwise", x, points=points, metric="dot")
    if kernel in ("rbf", "laplacian"):
        metric = "sqeuclidean" if kernel == "rbf" else "manhattan"
        return exponentiate(builder, op("pairwise", x, points=points, metric=metric), -scale)
    if kernel in NON_NEGATIVE:
        distance = op("pairwise", x, points=points, metric="chi2")
        if kernel == "additive_chi2":
            return op("neg", distance)
        return exponentiate(builder, distance, -(1.0 if gamma is None else float(gamma)))
    product = op("pairwise", x, points=points, metric="dot")
    if kernel == "linear":
        return product
    product = op("add", op("mul", product, scale), float(coef0))
    return op("tanh", product) if kernel == "sigmoid" else raise_to_power(builder, product, degree)


def exponentiate(builder: Builder, x: Value, factor: float) -> Value:
    return builder.op("exp", builder.op("mul", x, factor))


def to_dense(matrix: Any) -> Array:
    """Convert a fitted matrix, which may be sparse, to dense float64."""
    return np.asarray(matrix.toarray() if hasattr(matrix, "toarray") else matrix, np.float64)


def import_kernel_ridge(model: Any, frame: Frame) -> Outputs:
    check_estimator(model, "dual_coef_", "X_fit_")
    weights = np.asarray(model.dual_coef_)
    kernel_parameters = (model.gamma, model.degree, model.coef0)
    kernel = compute_model_kernel(model, frame, model.X_fit_, *kernel_parameters)
    return Outputs({"label": frame.builder.linear(kernel, weights.reshape(len(weights), -1))})


def import_kernel_pca(model: Any, frame: Frame) -> Frame:
    """Return the centred kernel of each row, multiplied by the scaled eigenvectors."""
    check_estimator(model, "X_fit_", "eigenvalues_", "eigenvectors_", "_centerer", "gamma_")
    builder = frame.builder
    degree, coef0 = model.degree, model.coef0
    kernel_values = compute_model_kernel(model, frame, model.X_fit_, model.gamma_, degree, coef0)
    eigenvalues = np.asarray(model.eigenvalues_, np.float64)
    eigenvectors = np.asarray(model.eigenvectors_, np.float64)
    is_nonzero = eigenvalues != 0
    scaled = np.zeros_like(eigenvectors)
    scaled[:, is_nonzero] = eigenvectors[:, is_nonzero] / np.sqrt(eigenvalues[is_nonzero])
    centred = _centre_kernel(builder, kernel_values, model._centerer)
    return Frame.from_value(builder, builder.linear(centred, scaled))


def import_kernel_centerer(model: Any, frame: Frame) -> Frame:
    """Subtract the row mean and the fitted column means from a kernel matrix."""
    check_estimator(model, "K_fit_rows_", "K_fit_all_")
    centred = _centre_kernel(frame.builder, check_array(frame, "KernelCenterer"), model)
    return Frame.from_value(frame.builder, centred, frame.names)


def import_nystroem(model: Any, frame: Frame) -> Frame:
    """Return kernel(x, components_) @ normalization_.T."""
    check_estimator(model, "components_", "normalization_")
    keys = ("gamma", "degree", "coef0")
    parameters = {"gamma": None, "degree": 3, "coef0": 1, **(model.kernel_params or {})}
    parameters |= {key: getattr(model, key) for key in keys if getattr(model, key) is not None}
    gamma, degree, coef0 = (parameters[key] for key in keys)
    kernel_values = compute_model_kernel(model, frame, model.components_, gamma, degree, coef0)
    normalization = np.asarray(model.normalization_)
    return Frame.from_value(frame.builder, frame.builder.linear(kernel_values, normalization.T))


def _centre_kernel(builder: Builder, kernel_values: Value, centerer: Any) -> Value:
    op = builder.op
    column_means = np.asarray(centerer.K_fit_rows_, np.float64)
    row_mean = op("div", op("sum", kernel_values, axis=1), float(column_means.size))
    kernel_values = op("sub", op("sub", kernel_values, column_means), row_mean)
    return op("add", kernel_values, np.full(1, float(centerer.K_fit_all_)))


_DEFAULT_INTERVALS = {1: 0.8, 2: 0.5, 3: 0.4}
"""Maps the sample_steps of AdditiveChi2Sampler to the default sample_interval."""


def import_rbf_sampler(model: Any, frame: Frame) -> Frame:
    """Return cos(x @ random_weights_ + random_offset_) * sqrt(2 / n_components)."""
    check_estimator(model, "random_weights_", "random_offset_")
    scale = (2.0 / model.n_components) ** 0.5
    return _compute_cosines(model, frame, check_array(frame, "RBFSampler"), scale)


def import_skewed_chi2_sampler(model: Any, frame: Frame) -> Frame:
    """Return sqrt(2 / n) * cos(log(x + skewedness) @ random_weights_ + random_offset_)."""
    check_estimator(model, "random_weights_", "random_offset_")
    skew = float(model.skewedness)
    low = np.full(frame.width, np.nextafter(-skew, np.inf))
    x = check_bounds(frame, frame.matrix(), "SkewedChi2Sampler", low=low)
    x = frame.builder.op("log", frame.builder.op("add", x, skew))
    return _compute_cosines(model, frame, x, np.sqrt(2.0) / np.sqrt(model.n_components))


def import_additive_chi2_sampler(model: Any, frame: Frame) -> Frame:
    """Return sqrt(x * interval) and, for each further step, a scaled cosine and sine of log(x)."""
    check_estimator(model)
    op = frame.builder.op
    interval = model.sample_interval
    interval = float(_DEFAULT_INTERVALS[model.sample_steps] if interval is None else interval)
    x = check_bounds(frame, frame.matrix(), "AdditiveChi2Sampler", low=np.zeros(frame.width))
    is_zero = op("eq", x, 0.0)
    blocks = [op("sqrt", op("mul", x, interval))]
    log_step = op("mul", op("log", x), interval)
    step = op("mul", op("mul", x, 2.0), interval)
    for j in range(1, model.sample_steps):
        factor = op("sqrt", op("div", step, np.cosh(np.pi * j * interval)))
        for wave in ("cos", "sin"):
            component = op("mul", factor, op(wave, op("mul", log_step, float(j))))
            blocks.append(op("where", is_zero, 0.0, component))
    return Frame.from_value(frame.builder, frame.builder.concat(blocks))


def import_polynomial_count_sketch(model: Any, frame: Frame) -> Frame:
    """Return the circular convolution of `degree` count sketches of x (Pham and Pagh, 2013).

    Matrices of cosines and sines compute discrete Fourier transforms. A convolution is a product of
    spectra, which are pairs of a real and an imaginary part.
    """
    check_estimator(model, "indexHash_", "bitHash_")
    builder = frame.builder
    op = builder.op
    size = int(model.n_components)
    x = check_array(frame, "PolynomialCountSketch")
    # A constant per column keeps onnxruntime from fusing this product into a float32 operator.
    x = op("mul", np.full(frame.width, np.sqrt(model.gamma)), x)
    angle = 2 * np.pi * (np.outer(np.arange(size), np.arange(size)) % size) / size
    cosine, sine = np.cos(angle), np.sin(angle)
    spectra: list[tuple[Value, Value]] = []
    for index, bit in zip(model.indexHash_, model.bitHash_, strict=True):
        hash_matrix = np.zeros((len(index), size))
        hash_matrix[np.arange(len(index)), index] = bit
        shift = 0.0
        if model.coef0 != 0:  # The last row belongs to a constant column of sqrt(coef0).
            shift, hash_matrix = np.sqrt(model.coef0) * hash_matrix[-1], hash_matrix[:-1]
        sketch = builder.linear(x, hash_matrix, shift)
        spectra.append((builder.linear(sketch, cosine), builder.linear(sketch, -sine)))
    if not spectra:
        raise UnsupportedModelError("PolynomialCountSketch has degree 0; fit it with 1 or more")
    real, imaginary = spectra[0]
    for other_real, other_imaginary in spectra[1:]:
        product = op("sub", op("mul", real, other_real), op("mul", imaginary, other_imaginary))
        imaginary = op("add", op("mul", real, other_imaginary), op("mul", imaginary, other_real))
        real = product
    product_spectrum = op("concat", real, imaginary)
    inverse_transform = np.concatenate([cosine, -sine]) / size
    return Frame.from_value(builder, builder.linear(product_spectrum, inverse_transform))


def import_neighborhood_components(model: Any, frame: Frame) -> Frame:
    check_estimator(model, "components_")
    x = check_array(frame, "NeighborhoodComponentsAnalysis")
    return Frame.from_value(frame.builder, frame.builder.linear(x, np.asarray(model.components_).T))


def _compute_cosines(model: Any, frame: Frame, x: Value, scale: float) -> Frame:
    projected = frame.builder.linear(x, model.random_weights_, model.random_offset_)
    cosines = frame.builder.op("cos", projected)
    return Frame.from_value(frame.builder, frame.builder.op("mul", cosines, scale))
