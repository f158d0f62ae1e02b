"""Gaussian mixtures: the label is the number of the likeliest component."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame, Outputs
from sqlml.importers.sklearn.checked import numbers
from sqlml.importers.sklearn.classify import argmax_label
from sqlml.importers.sklearn.cluster.centres import component_labels
from sqlml.importers.sklearn.fitted import check
from sqlml.importers.sklearn.log_probability import by_group, log_sum_exp
from sqlml.ir.builder import Builder, Value
from sqlml.types import Array

_FITTED = ("weights_", "means_", "precisions_cholesky_")


def gaussian_mixture(model: Any, frame: Frame) -> Outputs:
    """log N(x; mean, covariance) + log weight for each component."""
    check(model, *_FITTED)
    gaussian = _log_gaussian(model, frame)
    with np.errstate(divide="ignore"):
        weights = np.log(np.asarray(model.weights_))
    return _outputs(frame, _add(frame.builder, gaussian, weights))


def bayesian_gaussian_mixture(model: Any, frame: Frame) -> Outputs:
    """Gaussians with weights and precisions expected under the variational posterior."""
    check(model, *_FITTED, "weight_concentration_", "degrees_of_freedom_", "mean_precision_")
    width = np.asarray(model.means_).shape[1]
    freedom = np.asarray(model.degrees_of_freedom_, np.float64)
    log_lambda = width * np.log(2.0) + digamma(
        0.5 * (freedom - np.arange(width, dtype=np.float64)[:, None])
    ).sum(axis=0)
    gaussian = _log_gaussian(model, frame)
    gaussian = frame.builder.op("sub", gaussian, 0.5 * width * np.log(freedom))
    precision = np.asarray(model.mean_precision_, np.float64)
    gaussian = _add(frame.builder, gaussian, 0.5 * (log_lambda - width / precision))
    return _outputs(frame, _add(frame.builder, gaussian, _expected_log_weights(model)))


def digamma(x: Array) -> Array:
    """The logarithmic derivative of the gamma function for x > 0.

    Moved up to 10 by its recurrence, then the asymptotic series (DLMF 5.5.2 and 5.11.2).

    >>> bool(abs(digamma(np.array([1.0]))[0] + 0.5772156649015329) < 1e-15)
    True
    """
    x = np.array(x, np.float64)
    before = np.zeros(x.shape)
    while (x < 10).any():
        small = x < 10
        before -= np.where(small, 1 / x, 0)
        x = x + small
    square = 1 / (x * x)
    series = np.zeros(x.shape)
    for term in (1 / 12, -691 / 32760, 1 / 132, -1 / 240, 1 / 252, -1 / 120, 1 / 12):
        series = square * (term + series)
    made: Array = np.log(x) - 0.5 / x - series + before
    return made


def _expected_log_weights(model: Any) -> Array:
    if model.weight_concentration_prior_type == "dirichlet_process":
        a, b = (np.asarray(v, np.float64) for v in model.weight_concentration_)
        both = digamma(a + b)
        before = np.cumsum(digamma(b) - both)[:-1]
        process: Array = digamma(a) - both + np.hstack((0, before))
        return process
    concentration = np.asarray(model.weight_concentration_, np.float64)
    made: Array = digamma(concentration) - digamma(concentration.sum())
    return made


def _log_gaussian(model: Any, frame: Frame) -> Value:
    """(n, K) log-densities, by the covariance type's own formula.

    What depends only on the model keeps its dtype, even float32, as in the source.
    """
    builder, x = frame.builder, numbers(frame, type(model).__name__)
    means, roots = np.asarray(model.means_), np.asarray(model.precisions_cholesky_)
    classes, width = means.shape
    if model.covariance_type == "full":
        distance = _mahalanobis(builder, x, means, roots)
        log_det = np.log(np.diagonal(roots, axis1=1, axis2=2)).sum(axis=1)
    elif model.covariance_type == "tied":
        distance = _mahalanobis(builder, x, means, np.broadcast_to(roots, (classes, *roots.shape)))
        log_det = np.full(classes, np.log(np.diagonal(roots)).sum())
    elif model.covariance_type == "diag":
        precisions = roots**2
        cross = builder.linear(x, (means * precisions).T)
        distance = _expanded(builder, (means**2 * precisions).sum(axis=1), cross)
        squares = builder.linear(builder.op("square", x), precisions.T)
        distance = builder.op("add", distance, squares)
        log_det = np.log(roots).sum(axis=1)
    elif model.covariance_type == "spherical":
        precisions = roots**2
        scale = precisions.astype(np.float64)
        cross = builder.op("mul", builder.linear(x, means.T), scale)
        distance = _expanded(builder, (means**2).sum(axis=1) * precisions, cross)
        norm = builder.op("sum", builder.op("square", x), axis=1)
        distance = builder.op("add", distance, builder.op("mul", norm, scale))
        log_det = width * np.log(roots)
    else:
        raise UnsupportedModelError(
            f"{type(model).__name__} has covariance_type {model.covariance_type!r}, which sqlml "
            "does not know; fit it with 'full', 'tied', 'diag' or 'spherical'"
        )
    moved = _add(builder, distance, np.full(1, width * math.log(2 * math.pi)))
    halved = builder.op("mul", moved, -0.5)
    return _add(builder, halved, log_det)


def _mahalanobis(builder: Builder, x: Value, means: Array, roots: Array) -> Value:
    """(n, K) of |x P - mean P|^2 with P (K, F, F) the root of each component's precision."""
    classes, width = means.shape

    def distances(group: slice) -> Value:
        pairs = list(zip(means[group], roots[group], strict=True))
        weights = np.concatenate([p for _, p in pairs], axis=1)
        offset = np.concatenate([m @ p for m, p in pairs])
        turned = builder.linear(x, weights, -offset)
        turned = builder.op("reshape", builder.op("square", turned), shape=(len(pairs), width))
        return builder.op("reshape", builder.op("sum", turned, axis=2), shape=(len(pairs),))

    return by_group(builder, classes, width, distances)


def _expanded(builder: Builder, first: Array, cross: Value) -> Value:
    twice = builder.op("mul", cross, 2.0)
    return builder.op("sub", first.astype(np.float64), twice)


def _add(builder: Builder, x: Value, row: Array) -> Value:
    return builder.op("add", x, np.asarray(row, np.float64))


def _outputs(frame: Frame, joint: Value) -> Outputs:
    builder = frame.builder
    total = log_sum_exp(builder, joint)
    values = {
        "label": argmax_label(builder, joint),
        "proba": builder.op("exp", builder.op("sub", joint, total)),
        "samples": total,
    }
    return Outputs(values, component_labels(joint.type.width))
