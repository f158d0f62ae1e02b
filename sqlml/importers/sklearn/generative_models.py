"""Generative models: Gaussian mixtures, discriminant analysis, naive Bayes and EllipticEnvelope.

Each computes joint log-probabilities (n, K) of classes or components. Sums run in the order of the
source; the first of equal classes is the label.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame, Outputs, Rows, build_labels
from sqlml.importers.sklearn.classify import (
    argmax_label,
    binary_label,
    class_list,
    collapse_two_scores,
    outlier_outputs,
    score_label,
    score_proba,
)
from sqlml.importers.sklearn.cluster import component_labels
from sqlml.importers.sklearn.estimator_checks import check, numbers
from sqlml.ir.builder import Builder, Value
from sqlml.types import Array

MAX_VALUES = 2048
"""Most numbers of one row that a group makes: classes times columns, if more than one class."""


def by_group(builder: Builder, classes: int, width: int, make: Callable[[slice], Value]) -> Value:
    """Return (n, classes), computed with `make` for slices of the classes.

    Args:
        width: numbers of one row that `make` needs for each class.
    """
    size = max(1, MAX_VALUES // max(1, width))
    return builder.concat([make(slice(i, i + size)) for i in range(0, classes, size)])


def log_sum_exp(builder: Builder, x: Value) -> Value:
    """Return the log of the sum of exp(x), (n, 1), like scikit-learn and SciPy.

    The largest terms are kept apart from the others, which `log1p` adds without losing them. A row
    of only -inf stays -inf.
    """
    top = builder.op("max", x, axis=1)
    is_top = builder.op("eq", x, top)
    finite = builder.op("lt", builder.op("abs", top), np.inf)
    shift = builder.op("where", finite, top, 0.0)
    rest = builder.op("where", is_top, -np.inf, x)
    small = builder.op("sum", builder.op("exp", builder.op("sub", rest, shift)), axis=1)
    tops = builder.op("sum", builder.op("cast", is_top, dtype="float64"), axis=1)
    share = builder.op("div", small, tops)
    small = builder.op("where", builder.op("eq", small, 0.0), small, share)
    many = builder.op("add", builder.op("log1p", small), builder.op("log", tops))
    return builder.op("add", many, top)


def shares(builder: Builder, x: Value) -> Value:
    """Return exp(x - log_sum_exp(x)), the probability of each class, (n, K)."""
    return builder.op("exp", builder.op("sub", x, log_sum_exp(builder, x)))


def shares_below_max(builder: Builder, x: Value) -> Value:
    """Return exp(d - log(sum(exp(d)))) with d = x - max(x), another order of the same sum."""
    below = builder.op("sub", x, builder.op("max", x, axis=1))
    total = builder.op("log", builder.op("sum", builder.op("exp", below), axis=1))
    return builder.op("exp", builder.op("sub", below, total))


_FITTED = ("weights_", "means_", "precisions_cholesky_")


def gaussian_mixture(model: Any, frame: Frame) -> Outputs:
    """Return log N(x; mean, covariance) + log weight for each component."""
    check(model, *_FITTED)
    gaussian = _log_gaussian(model, frame)
    with np.errstate(divide="ignore"):
        weights = np.log(np.asarray(model.weights_))
    return _outputs(frame, _add(frame.builder, gaussian, weights))


def bayesian_gaussian_mixture(model: Any, frame: Frame) -> Outputs:
    """Return the joint log-probabilities expected under the variational posterior."""
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
    """Return the logarithmic derivative of the gamma function for x > 0.

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
    result: Array = np.log(x) - 0.5 / x - series + before
    return result


def _expected_log_weights(model: Any) -> Array:
    if model.weight_concentration_prior_type == "dirichlet_process":
        a, b = (np.asarray(v, np.float64) for v in model.weight_concentration_)
        both = digamma(a + b)
        before = np.cumsum(digamma(b) - both)[:-1]
        process: Array = digamma(a) - both + np.hstack((0, before))
        return process
    concentration = np.asarray(model.weight_concentration_, np.float64)
    finite: Array = digamma(concentration) - digamma(concentration.sum())
    return finite


def _log_gaussian(model: Any, frame: Frame) -> Value:
    """Return log-densities (n, K), with the formula of the covariance type.

    Terms that depend only on the model keep its dtype, even float32, as in the source.
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
    """Return |x P - mean P|^2, (n, K), with P (K, F, F) the root of each component's precision."""
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


def linear_discriminant(model: Any, frame: Frame) -> Outputs:
    """Return x @ coef_ + intercept_ as score; a sigmoid for two classes, a softmax for more.

    `transform` is the projection on the discriminants, which the solver "lsqr" lacks.
    """
    check(model, "coef_", "intercept_", "classes_")
    builder, x = frame.builder, numbers(frame, "LinearDiscriminantAnalysis")
    score = builder.linear(x, np.atleast_2d(model.coef_).T, model.intercept_)
    values = {
        "label": score_label(builder, score),
        "score": score,
        "proba": score_proba(builder, score),
    }
    if model.solver != "lsqr":
        check(model, "scalings_", "_max_components")
        values["transform"] = _discriminants(model, builder, x)
    return Outputs(values, build_labels(class_list(model)))


def _discriminants(model: Any, builder: Builder, x: Value) -> Value:
    if model.solver == "svd":
        check(model, "xbar_")
        x = builder.op("sub", x, np.asarray(model.xbar_, np.float64))
    return builder.linear(x, np.asarray(model.scalings_)[:, : int(model._max_components)])


def quadratic_discriminant(model: Any, frame: Frame) -> Outputs:
    """Return -(|(x - mean) R S^-1/2|^2 + log|S|) / 2 + log prior for each class.

    The label is the first of the largest; the score of two classes is the difference of theirs.
    """
    check(model, "means_", "scalings_", "rotations_", "priors_", "classes_")
    builder, x = frame.builder, numbers(frame, "QuadraticDiscriminantAnalysis")
    means = np.asarray(model.means_, np.float64)
    classes, width = means.shape
    scalings = [np.asarray(s) for s in model.scalings_]
    rotations = [
        np.asarray(r) * s ** (-0.5) for r, s in zip(model.rotations_, scalings, strict=True)
    ]
    x = builder.op("reshape", x, shape=(1, width))

    def norms(group: slice) -> Value:
        centred = builder.op("sub", x, means[group])
        turn = np.stack(rotations[group]).astype(np.float64)
        turned = builder.op("batch_matmul", centred, turn)
        norm = builder.op("sum", builder.op("square", turned), axis=2)
        return builder.op("reshape", norm, shape=(len(turn),))

    norm = by_group(builder, classes, width, norms)
    log_det = np.array([np.log(s).sum() for s in scalings], np.float64)
    halved = builder.op("mul", builder.op("add", norm, log_det), -0.5)
    with np.errstate(divide="ignore"):  # a prior may be 0
        prior = np.log(np.asarray(model.priors_, np.float64))
    joint = builder.op("add", halved, prior)
    values = {
        "label": argmax_label(builder, joint),
        "score": collapse_two_scores(builder, joint),
        "proba": shares_below_max(builder, joint),
    }
    return Outputs(values, build_labels(class_list(model)))


def gaussian_nb(model: Any, frame: Frame) -> Outputs:
    """Return log prior - sum(log(2 pi var)) / 2 - sum((x - theta)^2 / var) / 2 for each class."""
    check(model, "theta_", "var_", "class_prior_", "classes_")
    builder = frame.builder
    theta, var = np.asarray(model.theta_), np.asarray(model.var_)
    classes, width = theta.shape
    x = builder.op("reshape", numbers(frame, "GaussianNB"), shape=(1, width))

    def distances(group: slice) -> Value:
        centre, spread = theta[group].astype(np.float64), var[group].astype(np.float64)
        squared = builder.op("square", builder.op("sub", x, centre))
        scaled = builder.op("div", squared, spread)
        return builder.op("reshape", builder.op("sum", scaled, axis=2), shape=(len(centre),))

    distance = by_group(builder, classes, width, distances)
    distance = builder.op("mul", 0.5, distance)
    with np.errstate(all="ignore"):  # a class may have the prior 0
        log_prior = np.log(np.asarray(model.class_prior_)).astype(np.float64)
        constant = -0.5 * np.log(2.0 * np.pi * var).sum(axis=1).astype(np.float64)
    joint = builder.op("sub", constant, distance)
    return _classifier_outputs(model, frame, builder.op("add", log_prior, joint))


def multinomial_nb(model: Any, frame: Frame) -> Outputs:
    """Return x @ feature_log_prob_ + class_log_prior_; negative numbers pass, as in predict."""
    check(model, "feature_log_prob_", "class_log_prior_", "classes_")
    return _linear(model, frame, model.feature_log_prob_, model.class_log_prior_)


def complement_nb(model: Any, frame: Frame) -> Outputs:
    """Return x @ feature_log_prob_; the class prior counts only if there is a single class."""
    check(model, "feature_log_prob_", "class_log_prior_", "classes_")
    prior = np.asarray(model.class_log_prior_, np.float64)
    bias = prior if len(model.classes_) == 1 else np.zeros(prior.shape)
    return _linear(model, frame, model.feature_log_prob_, bias)


def bernoulli_nb(model: Any, frame: Frame) -> Outputs:
    """Return x @ (log p - log(1 - p)) + log prior + sum(log(1 - p)), with x > `binarize` as 1.

    With binarize=None the numbers are used unchanged.
    """
    check(model, "feature_log_prob_", "class_log_prior_", "classes_")
    present = np.asarray(model.feature_log_prob_, np.float64)
    with np.errstate(all="ignore"):  # p may be 0 or 1 without smoothing
        absent = np.log(1 - np.exp(present))
        bias = np.asarray(model.class_log_prior_, np.float64) + absent.sum(axis=1)
        weights = present - absent
    threshold = None if model.binarize is None else float(model.binarize)
    return _linear(model, frame, weights, bias, threshold)


def categorical_nb(model: Any, frame: Frame) -> Outputs:
    """Sum the log-probabilities of each column's category, and the log prior.

    Numbers are truncated to integers. A category that is negative or larger than any in training is
    an error, as in scikit-learn.
    """
    check(model, "feature_log_prob_", "class_log_prior_", "classes_")
    builder = frame.builder
    x = builder.op("trunc", numbers(frame, "CategoricalNB"))
    tables = [np.asarray(t, np.float64).T for t in model.feature_log_prob_]
    sizes = [len(t) for t in tables]
    codes = [_category(frame, x, i, size) for i, size in enumerate(sizes)]
    first = np.cumsum([0, *sizes[:-1]]).astype(np.int64)
    at = builder.op("add", builder.op("concat", *codes), first)
    parts = builder.op("take", np.concatenate(tables), at)
    classes = tables[0].shape[1]
    joint = builder.op("reshape", builder.op("sum", parts, axis=1), shape=(classes,))
    prior = np.asarray(model.class_log_prior_, np.float64)
    return _classifier_outputs(model, frame, builder.op("add", joint, prior))


def _category(frame: Frame, x: Value, i: int, size: int) -> Value:
    builder = frame.builder
    column = builder.op("select", x, indices=np.array([i], np.int64))
    code = builder.op("encode", column, categories=np.arange(size, dtype=np.float64), missing=-1)
    return builder.op("require_known", code, feature=frame.names[i], step="CategoricalNB")


def _linear(
    model: Any, frame: Frame, weights: Any, bias: Any, threshold: float | None = None
) -> Outputs:
    # Sparse rows can be compared only with 0 without making them dense.
    rows: Rows = "dense" if threshold else "sparse"
    x, builder = numbers(frame, type(model).__name__, rows=rows), frame.builder
    if threshold is not None and x.type.sparse:
        x = builder.op("map_stored", x, function="positive")
    elif threshold is not None:
        above = builder.op("gt", x, threshold)
        x = builder.op("cast", above, dtype="float64")
    return _classifier_outputs(model, frame, builder.linear(x, np.asarray(weights).T, bias))


def _classifier_outputs(model: Any, frame: Frame, joint: Value) -> Outputs:
    values = {"label": argmax_label(frame.builder, joint), "proba": shares(frame.builder, joint)}
    return Outputs(values, build_labels(class_list(model)))


def elliptic_envelope(model: Any, frame: Frame) -> Outputs:
    """Return label 1 if the Mahalanobis distance is at most -offset_, else -1.

    score_samples is the negated distance. Its root is taken and squared again, as the source does
    through SciPy.
    """
    check(model, "location_", "offset_", "covariance_")
    builder, x = frame.builder, numbers(frame, "EllipticEnvelope")
    delta = builder.op("sub", x, np.asarray(model.location_, np.float64))
    turned = builder.linear(delta, np.asarray(model.get_precision()).T)
    squared = builder.op("sum", builder.op("mul", delta, turned), axis=1)
    squared = builder.op("square", builder.op("sqrt", squared))
    samples = builder.op("neg", squared)
    score = builder.op("sub", samples, float(model.offset_))
    return outlier_outputs(binary_label(builder, score, "ge"), score, samples)
