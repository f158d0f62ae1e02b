"""Decompositions whose transform is a projection: PCA, ICA, factor analysis, sparse codes and PLS.

NMF and LatentDirichletAllocation are not supported, because they solve a problem for each batch.
"""

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

MAX_DENSITY_COLUMNS = 1024


def pca(model: Any, frame: Frame) -> Outputs:
    """Import PCA or IncrementalPCA: x @ components - mean @ components, optionally whitened.

    As in scikit-learn, the mean is subtracted after the projection, and whitening never divides by
    less than the machine epsilon of the components' dtype.
    """
    check_estimator(model, "components_", "mean_", "explained_variance_")
    components = np.asarray(model.components_)
    offset = np.asarray(model.mean_).reshape(1, -1) @ components.T
    x = check_array(frame, type(model).__name__, rows="sparse")
    value = frame.builder.linear(x, components.T, -offset[0])
    if model.whiten:
        scale = np.sqrt(np.asarray(model.explained_variance_))
        scale = np.maximum(scale, np.finfo(scale.dtype).eps).astype(np.float64)
        value = frame.builder.op("div", value, scale)
    return _build_outputs(model, frame, x, value)


def projection(model: Any, frame: Frame) -> Frame:
    """Import TruncatedSVD or a random projection, which return x @ components."""
    check_estimator(model, "components_")
    x = check_array(frame, type(model).__name__, rows="sparse")
    return _make_frame(model, frame, frame.builder.linear(x, to_dense(model.components_).T))


def fast_ica(model: Any, frame: Frame) -> Frame:
    """Return (x - mean) @ components or, if whiten=False, x @ components."""
    check_estimator(model, "components_")
    x = check_array(frame, "FastICA")
    if model.whiten:
        x = _subtract_mean(frame.builder, x, model.mean_)
    return _make_frame(model, frame, frame.builder.linear(x, to_dense(model.components_).T))


def factor_analysis(model: Any, frame: Frame) -> Outputs:
    """Return the expected factors of x (Barber, 2012, eq. 21.2.33) and its log-density."""
    check_estimator(model, "components_", "mean_", "noise_variance_")
    components = np.asarray(model.components_)
    scaled_components = components / np.asarray(model.noise_variance_)
    covariance = np.linalg.inv(np.eye(len(components)) + scaled_components @ components.T)
    x = check_array(frame, "FactorAnalysis")
    value = frame.builder.linear(_subtract_mean(frame.builder, x, model.mean_), scaled_components.T)
    return _build_outputs(model, frame, x, frame.builder.linear(value, covariance))


def sparse_pca(model: Any, frame: Frame) -> Frame:
    """Return the coefficients of a ridge regression of x - mean on SparsePCA's components."""
    check_estimator(model, "components_", "mean_")
    components, alpha = to_dense(model.components_), float(model.ridge_alpha)
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


def sparse_coding(model: Any, frame: Frame) -> Frame:
    """Import SparseCoder or dictionary learning, which return x @ dictionary, shrunk towards 0."""
    attribute = "dictionary" if hasattr(model, "dictionary") else "components_"
    check_estimator(model, attribute)
    if model.transform_algorithm != "threshold":
        raise UnsupportedModelError(
            f"{type(model).__name__}(transform_algorithm={model.transform_algorithm!r}) searches "
            "for the code of each row by iteration; use transform_algorithm='threshold'"
        )
    b = frame.builder
    dictionary = to_dense(getattr(model, attribute))
    alpha = model.transform_alpha
    alpha = float(getattr(model, "alpha", 1.0) if alpha is None else alpha)
    projection = b.linear(check_array(frame, type(model).__name__), dictionary.T)
    shrunk_size = b.op("sub", b.op("abs", projection), alpha)
    code = b.op("mul", b.op("sign", projection), b.op("maximum", shrunk_size, 0.0))
    if model.positive_code:
        code = b.op("maximum", code, 0.0)
    if model.split_sign:
        negative_part = b.op("neg", b.op("minimum", code, 0.0))
        code = b.op("concat", b.op("maximum", code, 0.0), negative_part)
    return _make_frame(model, frame, code)


def pls(model: Any, frame: Frame) -> Outputs:
    """Return (x - mean) @ coef_ + intercept_, (n, targets); `coef_` includes the scale of x."""
    check_estimator(model, "coef_", "intercept_", "x_rotations_", "_x_mean", "_x_std")
    b = frame.builder
    centred = _subtract_mean(b, check_array(frame, type(model).__name__), model._x_mean)
    weights = np.asarray(model.coef_).T
    bias = np.broadcast_to(model.intercept_, weights.shape[1:])
    scores = _rotate(b, centred, model._x_std, model.x_rotations_)
    return Outputs({"label": b.linear(centred, weights, bias), "transform": scores})


def pls_svd(model: Any, frame: Frame) -> Frame:
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
    """Return the log-density, (n, 1), of x, (n, F), under the model's normal distribution.

    It is -((x - mean) @ precision . (x - mean) + F log(2 pi) - log|precision|) / 2. If the
    covariance matrix has no inverse, or over `MAX_DENSITY_COLUMNS` columns, return None.
    """
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
    distance = builder.op(
        "sum", builder.op("mul", centred, builder.linear(centred, precision)), axis=1
    )
    sign, log_det = np.linalg.slogdet(precision)
    log_det = float(log_det) if sign > 0 else -np.inf
    offset = 0.5 * (len(precision) * math.log(2 * math.pi) - log_det)
    return builder.op("sub", builder.op("mul", distance, -0.5), offset)


def _subtract_mean(builder: Builder, x: Value, mean: Any) -> Value:
    return builder.op("sub", x, np.asarray(mean, np.float64))


def _make_frame(model: Any, frame: Frame, value: Value) -> Frame:
    return Frame.from_value(frame.builder, value, stem=type(model).__name__.lower())
