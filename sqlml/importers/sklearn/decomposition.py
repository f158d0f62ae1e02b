"""Decompositions that project rows: PCA, ICA, factor analysis, sparse codes and PLS."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame, Outputs
from sqlml.importers.sklearn.estimator_checks import check_array, check_estimator
from sqlml.importers.sklearn.kernel_models import to_dense
from sqlml.ir.builder import Builder, Value
from sqlml.types import Array

MAX_DENSITY_COLUMNS = 1024


def import_pca(model: Any, frame: Frame) -> Outputs:
    """Import PCA or IncrementalPCA: x @ components_.T - mean_ @ components_.T, optionally whitened.

    As in scikit-learn, the mean is subtracted after the projection, and whitening never divides by
    less than the machine epsilon of the components' dtype.
    """
    variances = ("explained_variance_", "explained_variance_ratio_")
    check_estimator(model, "components_", "mean_", *variances)
    components = np.asarray(model.components_)
    offset = np.asarray(model.mean_).reshape(1, -1) @ components.T
    x = check_array(frame, type(model).__name__, rows="sparse")
    projected = _project(model, frame.builder, x, model.mean_, -offset[0])
    if model.whiten:
        scale = np.sqrt(np.asarray(model.explained_variance_))
        scale = np.maximum(scale, np.finfo(scale.dtype).eps).astype(np.float64)
        projected = frame.builder.op("div", projected, scale)
    return _build_outputs(model, frame, x, projected)


def import_projection(model: Any, frame: Frame) -> Frame:
    """Import TruncatedSVD or a random projection: x @ components_.T."""
    check_estimator(model, "components_")
    x = check_array(frame, type(model).__name__, rows="sparse")
    if not hasattr(model, "explained_variance_ratio_"):
        return _make_frame(model, frame, frame.builder.linear(x, to_dense(model.components_).T))
    zeros = np.zeros(x.type.width)
    return _make_frame(model, frame, _project(model, frame.builder, x, zeros, np.zeros(1)))


def _project(model: Any, builder: Builder, x: Value, mean: Any, bias: Array) -> Value:
    """Return x @ components_.T + bias, with the facts that the inverse of the projection needs."""
    weights = np.asarray(model.components_, np.float64).T
    return builder.op(
        "linear",
        x,
        weights=weights,
        bias=np.broadcast_to(np.asarray(bias, np.float64), weights.shape[1:]).copy(),
        mean=np.asarray(mean, np.float64),
        explained_variance=np.asarray(model.explained_variance_, np.float64),
        variance_ratio=np.asarray(model.explained_variance_ratio_, np.float64),
    )


def import_fast_ica(model: Any, frame: Frame) -> Frame:
    """Return (x - mean_) @ components_.T; without whitening, the mean is not subtracted."""
    check_estimator(model, "components_")
    x = check_array(frame, "FastICA")
    if model.whiten:
        x = _subtract_mean(frame.builder, x, model.mean_)
    return _make_frame(model, frame, frame.builder.linear(x, to_dense(model.components_).T))


def import_factor_analysis(model: Any, frame: Frame) -> Outputs:
    """Return the expected factors (Barber, 2012, eq. 21.2.33) and the log-density."""
    check_estimator(model, "components_", "mean_", "noise_variance_")
    components = np.asarray(model.components_)
    scaled_components = components / np.asarray(model.noise_variance_)
    covariance = np.linalg.inv(np.eye(len(components)) + scaled_components @ components.T)
    x = check_array(frame, "FactorAnalysis")
    centred = _subtract_mean(frame.builder, x, model.mean_)
    scaled = frame.builder.linear(centred, scaled_components.T)
    return _build_outputs(model, frame, x, frame.builder.linear(scaled, covariance))


def import_sparse_pca(model: Any, frame: Frame) -> Frame:
    """Return the coefficients of a ridge regression of x - mean_ on the components."""
    check_estimator(model, "components_", "mean_")
    components = to_dense(model.components_)
    alpha = float(model.ridge_alpha)
    n_components, n_features = components.shape
    try:
        if n_components > n_features:  # The dual system of equations is smaller.
            gram = components.T @ components + alpha * np.eye(n_features)
            weights = np.linalg.solve(gram, components.T)
        else:
            gram = components @ components.T + alpha * np.eye(n_components)
            weights = np.linalg.solve(gram, components).T
    except np.linalg.LinAlgError:
        raise UnsupportedModelError(
            f"{type(model).__name__} has linearly dependent components and ridge_alpha={alpha:g}, "
            "so its transform has no unique solution; fit it with a larger ridge_alpha"
        ) from None
    x = _subtract_mean(frame.builder, check_array(frame, type(model).__name__), model.mean_)
    return _make_frame(model, frame, frame.builder.linear(x, weights))


def import_sparse_coding(model: Any, frame: Frame) -> Frame:
    """Import SparseCoder or dictionary learning: x @ dictionary.T, shrunk towards 0."""
    attribute = "dictionary" if hasattr(model, "dictionary") else "components_"
    check_estimator(model, attribute)
    if model.transform_algorithm != "threshold":
        raise UnsupportedModelError(
            f"{type(model).__name__}(transform_algorithm={model.transform_algorithm!r}) searches "
            "for the code of each row by iteration; use transform_algorithm='threshold'"
        )
    op = frame.builder.op
    dictionary = to_dense(getattr(model, attribute))
    alpha = model.transform_alpha
    alpha = float(getattr(model, "alpha", 1.0) if alpha is None else alpha)
    x = check_array(frame, type(model).__name__)
    projected = frame.builder.linear(x, dictionary.T)
    shrunk_size = op("sub", op("abs", projected), alpha)
    code = op("mul", op("sign", projected), op("maximum", shrunk_size, 0.0))
    if model.positive_code:
        code = op("maximum", code, 0.0)
    if model.split_sign:
        negative_part = op("neg", op("minimum", code, 0.0))
        code = op("concat", op("maximum", code, 0.0), negative_part)
    return _make_frame(model, frame, code)


def import_pls(model: Any, frame: Frame) -> Outputs:
    """Return (x - mean) @ coef_.T + intercept_, (n, targets); `coef_` includes the scale of x."""
    check_estimator(model, "coef_", "intercept_", "x_rotations_", "_x_mean", "_x_std")
    builder = frame.builder
    centred = _subtract_mean(builder, check_array(frame, type(model).__name__), model._x_mean)
    weights = np.asarray(model.coef_).T
    bias = np.broadcast_to(model.intercept_, weights.shape[1:])
    scores = _rotate(builder, centred, model._x_std, model.x_rotations_)
    return Outputs({"label": builder.linear(centred, weights, bias), "transform": scores})


def import_pls_svd(model: Any, frame: Frame) -> Frame:
    """Return (x - mean) / deviation @ x_weights_."""
    check_estimator(model, "x_weights_", "_x_mean", "_x_std")
    centred = _subtract_mean(frame.builder, check_array(frame, "PLSSVD"), model._x_mean)
    scores = _rotate(frame.builder, centred, model._x_std, model.x_weights_)
    return _make_frame(model, frame, scores)


def _rotate(builder: Builder, centred: Value, deviation: Any, rotations: Any) -> Value:
    return builder.linear(builder.op("div", centred, np.asarray(deviation, np.float64)), rotations)


def _build_outputs(model: Any, frame: Frame, x: Value, transformed: Value) -> Outputs:
    values = {"transform": transformed}
    # score_samples accepts only dense rows.
    if hasattr(model, "score_samples") and not (frame.sparse or x.type.sparse):
        density = _compute_log_density(model, frame.builder, x)
        if density is not None:
            values["samples"] = density
    return Outputs(values)


def _compute_log_density(model: Any, builder: Builder, x: Value) -> Value | None:
    """Return the log-density of each row, or None if the precision matrix is unavailable."""
    op = builder.op
    if x.type.width > MAX_DENSITY_COLUMNS:
        return None
    try:
        # The matrix may be badly conditioned, but scikit-learn computes the same result from it.
        with warnings.catch_warnings(action="ignore"):
            precision = np.asarray(model.get_precision())
    except (np.linalg.LinAlgError, ValueError):
        return None
    if not np.isfinite(precision).all():
        return None
    centred = _subtract_mean(builder, x, model.mean_)
    distance = op("sum", op("mul", centred, builder.linear(centred, precision)), axis=1)
    sign, log_det = np.linalg.slogdet(precision)
    log_det = float(log_det) if sign > 0 else -np.inf
    offset = 0.5 * (len(precision) * math.log(2 * math.pi) - log_det)
    return op("sub", op("mul", distance, -0.5), offset)


def _subtract_mean(builder: Builder, x: Value, mean: Any) -> Value:
    return builder.op("sub", x, np.asarray(mean, np.float64))


def _make_frame(model: Any, frame: Frame, transformed: Value) -> Frame:
    return Frame.from_value(frame.builder, transformed, stem=type(model).__name__.lower())
