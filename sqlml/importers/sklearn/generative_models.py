"""Gaussian mixtures, discriminant analysis, naive Bayes and EllipticEnvelope.

Each computes joint log-probabilities (n, K), with sums in the order of the source.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame, Outputs, Rows, build_labels
from sqlml.importers.sklearn import classify
from sqlml.importers.sklearn.cluster import build_cluster_labels
from sqlml.importers.sklearn.estimator_checks import check_array, check_estimator
from sqlml.ir.builder import Builder, Value
from sqlml.types import Array

MAX_VALUES = 2048
"""The largest number of intermediate values per row that `compute_by_group` computes at once."""


def compute_by_group(
    builder: Builder, count: int, width: int, make: Callable[[slice], Value]
) -> Value:
    """Concatenate the results of `make` for slices of classes, which bounds the memory per row."""
    group_size = max(1, MAX_VALUES // max(1, width))
    return builder.concat([make(slice(i, i + group_size)) for i in range(0, count, group_size)])


def compute_log_sum_exp(builder: Builder, x: Value) -> Value:
    """Return log(sum(exp(x))) of each row, (n, 1), rounded like SciPy's logsumexp.

    The largest terms are counted, and log1p adds the other terms without losing digits.
    """
    op = builder.op
    maximum = op("max", x, axis=1)
    is_max = op("eq", x, maximum)
    shift = op("where", op("lt", op("abs", maximum), np.inf), maximum, 0.0)
    small_sum = op("sum", op("exp", op("sub", op("where", is_max, -np.inf, x), shift)), axis=1)
    max_count = op("sum", builder.cast(is_max, "float64"), axis=1)
    is_zero = op("eq", small_sum, 0.0)
    small_sum = op("where", is_zero, small_sum, op("div", small_sum, max_count))
    return op("add", op("add", op("log1p", small_sum), op("log", max_count)), maximum)


def compute_softmax(builder: Builder, x: Value) -> Value:
    """Return the probability of each class, exp(x - compute_log_sum_exp(x))."""
    return builder.op("exp", builder.op("sub", x, compute_log_sum_exp(builder, x)))


def compute_shifted_softmax(builder: Builder, x: Value) -> Value:
    """Return the softmax of x - max(x), which rounds differently than `compute_softmax`."""
    op = builder.op
    difference = op("sub", x, op("max", x, axis=1))
    log_total = op("log", op("sum", op("exp", difference), axis=1))
    return op("exp", op("sub", difference, log_total))


_MIXTURE_ATTRIBUTES = ("weights_", "means_", "precisions_cholesky_")
_POSTERIOR_ATTRIBUTES = ("weight_concentration_", "degrees_of_freedom_", "mean_precision_")


def import_gaussian_mixture(model: Any, frame: Frame) -> Outputs:
    """Return the most probable component; `samples` is the log-density of the mixture."""
    check_estimator(model, *_MIXTURE_ATTRIBUTES)
    log_gaussian = _compute_log_gaussian(model, frame)
    with np.errstate(divide="ignore"):
        log_weights = np.log(np.asarray(model.weights_))
    return _build_mixture_outputs(frame, _add_row(frame.builder, log_gaussian, log_weights))


def import_bayesian_gaussian_mixture(model: Any, frame: Frame) -> Outputs:
    """Return the most probable component under the variational posterior."""
    check_estimator(model, *_MIXTURE_ATTRIBUTES, *_POSTERIOR_ATTRIBUTES)
    width = np.asarray(model.means_).shape[1]
    degrees_of_freedom = np.asarray(model.degrees_of_freedom_, np.float64)
    half_degrees = 0.5 * (degrees_of_freedom - np.arange(width, dtype=np.float64)[:, None])
    log_lambda = width * np.log(2.0) + digamma(half_degrees).sum(axis=0)
    log_gaussian = _compute_log_gaussian(model, frame)
    log_gaussian = frame.builder.op("sub", log_gaussian, 0.5 * width * np.log(degrees_of_freedom))
    precision = np.asarray(model.mean_precision_, np.float64)
    log_gaussian = _add_row(frame.builder, log_gaussian, 0.5 * (log_lambda - width / precision))
    log_weights = _compute_expected_log_weights(model)
    return _build_mixture_outputs(frame, _add_row(frame.builder, log_gaussian, log_weights))


def digamma(x: Array) -> Array:
    """Return the logarithmic derivative of the gamma function for x > 0.

    A recurrence raises x to at least 10, where the asymptotic series holds (DLMF 5.5.2, 5.11.2).

    >>> bool(abs(digamma(np.array([1.0]))[0] + 0.5772156649015329) < 1e-15)
    True
    """
    x = np.array(x, np.float64)
    shift = np.zeros(x.shape)
    while (x < 10).any():
        is_small = x < 10
        shift -= np.where(is_small, 1 / x, 0)
        x = x + is_small
    square = 1 / (x * x)
    series = np.zeros(x.shape)
    for term in (1 / 12, -691 / 32760, 1 / 132, -1 / 240, 1 / 252, -1 / 120, 1 / 12):
        series = square * (term + series)
    return np.asarray(np.log(x) - 0.5 / x - series + shift)


def _compute_expected_log_weights(model: Any) -> Array:
    if model.weight_concentration_prior_type == "dirichlet_process":
        alpha, beta = (np.asarray(v, np.float64) for v in model.weight_concentration_)
        digamma_sum = digamma(alpha + beta)
        previous_terms = np.cumsum(digamma(beta) - digamma_sum)[:-1]
        return np.asarray(digamma(alpha) - digamma_sum + np.hstack((0, previous_terms)))
    concentration = np.asarray(model.weight_concentration_, np.float64)
    return np.asarray(digamma(concentration) - digamma(concentration.sum()))


def _compute_log_gaussian(model: Any, frame: Frame) -> Value:
    """Return the log-density of each component; constants keep the dtype of the model."""
    builder = frame.builder
    op = builder.op
    x = check_array(frame, type(model).__name__)
    means, precisions_chol = np.asarray(model.means_), np.asarray(model.precisions_cholesky_)
    n_components, width = means.shape
    if model.covariance_type == "full":
        distance = _compute_mahalanobis(builder, x, means, precisions_chol)
        log_det = np.log(np.diagonal(precisions_chol, axis1=1, axis2=2)).sum(axis=1)
    elif model.covariance_type == "tied":
        tied_chol = np.broadcast_to(precisions_chol, (n_components, *precisions_chol.shape))
        distance = _compute_mahalanobis(builder, x, means, tied_chol)
        log_det = np.full(n_components, np.log(np.diagonal(precisions_chol)).sum())
    elif model.covariance_type == "diag":
        precisions = precisions_chol**2
        cross_product = builder.linear(x, (means * precisions).T)
        distance = _subtract_twice(builder, (means**2 * precisions).sum(axis=1), cross_product)
        distance = op("add", distance, builder.linear(op("square", x), precisions.T))
        log_det = np.log(precisions_chol).sum(axis=1)
    elif model.covariance_type == "spherical":
        precisions = precisions_chol**2
        scale = precisions.astype(np.float64)
        cross_product = op("mul", builder.linear(x, means.T), scale)
        distance = _subtract_twice(builder, (means**2).sum(axis=1) * precisions, cross_product)
        distance = op("add", distance, op("mul", op("sum", op("square", x), axis=1), scale))
        log_det = width * np.log(precisions_chol)
    else:
        raise UnsupportedModelError(
            f"{type(model).__name__} has covariance_type {model.covariance_type!r}, which sqlml "
            "does not know; fit it with 'full', 'tied', 'diag' or 'spherical'"
        )
    shifted_distance = _add_row(builder, distance, np.full(1, width * math.log(2 * math.pi)))
    return _add_row(builder, op("mul", shifted_distance, -0.5), log_det)


def _compute_mahalanobis(builder: Builder, x: Value, means: Array, precisions_chol: Array) -> Value:
    """Return |x P - mean P|^2 for each mean and its matrix P in `precisions_chol`."""
    op = builder.op
    n_components, width = means.shape

    def compute_distances(group: slice) -> Value:
        pairs = list(zip(means[group], precisions_chol[group], strict=True))
        weights = np.concatenate([chol for _, chol in pairs], axis=1)
        offsets = np.concatenate([mean @ chol for mean, chol in pairs])
        projected = builder.linear(x, weights, -offsets)
        projected = op("reshape", op("square", projected), shape=(len(pairs), width))
        return op("reshape", op("sum", projected, axis=2), shape=(len(pairs),))

    return compute_by_group(builder, n_components, width, compute_distances)


def _subtract_twice(builder: Builder, squares: Array, cross_product: Value) -> Value:
    return builder.op("sub", squares.astype(np.float64), builder.op("mul", cross_product, 2.0))


def _add_row(builder: Builder, x: Value, row: Array) -> Value:
    return builder.op("add", x, np.asarray(row, np.float64))


def _build_mixture_outputs(frame: Frame, joint: Value) -> Outputs:
    builder = frame.builder
    total = compute_log_sum_exp(builder, joint)
    label = classify.label_by_argmax(builder, joint)
    proba = builder.op("exp", builder.op("sub", joint, total))
    values = {"label": label, "proba": proba, "samples": total}
    return Outputs(values, build_cluster_labels(joint.type.width))


def import_linear_discriminant(model: Any, frame: Frame) -> Outputs:
    """Return x @ coef_.T + intercept_ as score; `proba` is a sigmoid or a softmax."""
    check_estimator(model, "coef_", "intercept_", "classes_")
    builder = frame.builder
    x = check_array(frame, "LinearDiscriminantAnalysis")
    score = builder.linear(x, np.atleast_2d(model.coef_).T, model.intercept_)
    values = {"label": classify.label_by_score(builder, score), "score": score}
    values["proba"] = classify.to_proba(builder, score)
    if model.solver != "lsqr":
        check_estimator(model, "scalings_", "_max_components")
        if model.solver == "svd":
            check_estimator(model, "xbar_")
            x = builder.op("sub", x, np.asarray(model.xbar_, np.float64))
        scalings = np.asarray(model.scalings_)[:, : int(model._max_components)]
        values["transform"] = builder.linear(x, scalings)
    return Outputs(values, build_labels(classify.read_classes(model)))


def import_quadratic_discriminant(model: Any, frame: Frame) -> Outputs:
    """Return the Gaussian log-density of each class plus the log of the prior."""
    check_estimator(model, "means_", "scalings_", "rotations_", "priors_", "classes_")
    builder = frame.builder
    op = builder.op
    x = check_array(frame, "QuadraticDiscriminantAnalysis")
    means = np.asarray(model.means_, np.float64)
    n_classes, width = means.shape
    scalings = [np.asarray(s) for s in model.scalings_]
    pairs = zip(model.rotations_, scalings, strict=True)
    rotations = [np.asarray(rotation) * scale ** (-0.5) for rotation, scale in pairs]
    x = op("reshape", x, shape=(1, width))

    def compute_norms(group: slice) -> Value:
        centred = op("sub", x, means[group])
        group_rotations = np.stack(rotations[group]).astype(np.float64)
        norm = op("sum", op("square", op("batch_matmul", centred, group_rotations)), axis=2)
        return op("reshape", norm, shape=(len(group_rotations),))

    norm = compute_by_group(builder, n_classes, width, compute_norms)
    log_det = np.array([np.log(s).sum() for s in scalings], np.float64)
    log_likelihood = op("mul", op("add", norm, log_det), -0.5)
    with np.errstate(divide="ignore"):  # A prior may be 0.
        log_prior = np.log(np.asarray(model.priors_, np.float64))
    joint = op("add", log_likelihood, log_prior)
    label = classify.label_by_argmax(builder, joint)
    score = classify.collapse_two_scores(builder, joint)
    values = {"label": label, "score": score, "proba": compute_shifted_softmax(builder, joint)}
    return Outputs(values, build_labels(classify.read_classes(model)))


def import_gaussian_nb(model: Any, frame: Frame) -> Outputs:
    """Return the log-density of independent normal features plus the log of the prior."""
    check_estimator(model, "theta_", "var_", "class_prior_", "classes_")
    op = frame.builder.op
    theta, var = np.asarray(model.theta_), np.asarray(model.var_)
    n_classes, width = theta.shape
    x = op("reshape", check_array(frame, "GaussianNB"), shape=(1, width))

    def compute_distances(group: slice) -> Value:
        means, variances = theta[group].astype(np.float64), var[group].astype(np.float64)
        scaled_squares = op("div", op("square", op("sub", x, means)), variances)
        return op("reshape", op("sum", scaled_squares, axis=2), shape=(len(means),))

    distance = op("mul", 0.5, compute_by_group(frame.builder, n_classes, width, compute_distances))
    with np.errstate(all="ignore"):  # A class may have the prior 0.
        log_prior = np.log(np.asarray(model.class_prior_)).astype(np.float64)
        constant = -0.5 * np.log(2.0 * np.pi * var).sum(axis=1).astype(np.float64)
    joint = op("add", log_prior, op("sub", constant, distance))
    return _build_classifier_outputs(model, frame, joint)


def import_multinomial_nb(model: Any, frame: Frame) -> Outputs:
    """Return x @ feature_log_prob_.T + class_log_prior_; x may be negative."""
    check_estimator(model, "feature_log_prob_", "class_log_prior_", "classes_")
    return _build_linear_outputs(model, frame, model.feature_log_prob_, model.class_log_prior_)


def import_complement_nb(model: Any, frame: Frame) -> Outputs:
    """Return x @ feature_log_prob_.T; only a single class also adds the prior."""
    check_estimator(model, "feature_log_prob_", "class_log_prior_", "classes_")
    prior = np.asarray(model.class_log_prior_, np.float64)
    bias = prior if len(model.classes_) == 1 else np.zeros(prior.shape)
    return _build_linear_outputs(model, frame, model.feature_log_prob_, bias)


def import_bernoulli_nb(model: Any, frame: Frame) -> Outputs:
    """Return the log-probability of the binarized features plus the log of the prior."""
    check_estimator(model, "feature_log_prob_", "class_log_prior_", "classes_")
    log_present = np.asarray(model.feature_log_prob_, np.float64)
    with np.errstate(all="ignore"):  # Without smoothing, 0 and 1 are possible.
        log_absent = np.log(1 - np.exp(log_present))
        bias = np.asarray(model.class_log_prior_, np.float64) + log_absent.sum(axis=1)
        weights = log_present - log_absent
    threshold = None if model.binarize is None else float(model.binarize)
    return _build_linear_outputs(model, frame, weights, bias, threshold)


def import_categorical_nb(model: Any, frame: Frame) -> Outputs:
    """Return the log-probabilities of the truncated columns plus the log of the prior."""
    check_estimator(model, "feature_log_prob_", "class_log_prior_", "classes_")
    op = frame.builder.op
    x = op("trunc", check_array(frame, "CategoricalNB"))
    tables = [np.asarray(table, np.float64).T for table in model.feature_log_prob_]
    sizes = [len(table) for table in tables]
    codes = []
    for i, size in enumerate(sizes):
        column = op("select", x, indices=np.array([i], np.int64))
        code = op("encode", column, categories=np.arange(size, dtype=np.float64), missing=-1)
        codes.append(op("require_known", code, feature=frame.names[i], step="CategoricalNB"))
    row_indices = op("add", op("concat", *codes), np.cumsum([0, *sizes[:-1]]).astype(np.int64))
    log_probabilities = op("take", np.concatenate(tables), row_indices)
    joint = op("reshape", op("sum", log_probabilities, axis=1), shape=(tables[0].shape[1],))
    log_prior = np.asarray(model.class_log_prior_, np.float64)
    return _build_classifier_outputs(model, frame, op("add", joint, log_prior))


def _build_linear_outputs(
    model: Any, frame: Frame, weights: Any, bias: Any, threshold: float | None = None
) -> Outputs:
    # In sparse rows, comparing with a number other than 0 would change cells that are not stored.
    rows: Rows = "dense" if threshold else "sparse"
    x = check_array(frame, type(model).__name__, rows=rows)
    if threshold is not None and x.type.sparse:
        x = frame.builder.op("map_stored", x, function="positive")
    elif threshold is not None:
        x = frame.builder.op("cast", frame.builder.op("gt", x, threshold), dtype="float64")
    joint = frame.builder.linear(x, np.asarray(weights).T, bias)
    return _build_classifier_outputs(model, frame, joint)


def _build_classifier_outputs(model: Any, frame: Frame, joint: Value) -> Outputs:
    label = classify.label_by_argmax(frame.builder, joint)
    proba = compute_softmax(frame.builder, joint)
    return Outputs({"label": label, "proba": proba}, build_labels(classify.read_classes(model)))


def import_elliptic_envelope(model: Any, frame: Frame) -> Outputs:
    """Return label 1 if the squared Mahalanobis distance is at most -offset_, otherwise -1."""
    check_estimator(model, "location_", "offset_", "covariance_")
    op = frame.builder.op
    x = check_array(frame, "EllipticEnvelope")
    delta = op("sub", x, np.asarray(model.location_, np.float64))
    projected = frame.builder.linear(delta, np.asarray(model.get_precision()).T)
    squared_distance = op("sum", op("mul", delta, projected), axis=1)
    squared_distance = op("square", op("sqrt", squared_distance))  # This rounds as SciPy does.
    samples = op("neg", squared_distance)
    score = op("sub", samples, float(model.offset_))
    label = classify.label_by_threshold(frame.builder, score, "ge")
    return classify.build_outlier_outputs(label, score, samples)
