"""Naive Bayes: joint log-likelihoods of the classes, their argmax, and shares as probabilities.

Sums run in the order of `sklearn/naive_bayes.py`; a tie is the first class.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sqlml.importers.frame import Frame, Outputs, Rows, labels_of
from sqlml.importers.sklearn.checked import numbers
from sqlml.importers.sklearn.classify import argmax_label, class_list
from sqlml.importers.sklearn.fitted import check
from sqlml.importers.sklearn.log_probability import by_group, shares
from sqlml.ir.builder import Value


def gaussian_nb(model: Any, frame: Frame) -> Outputs:
    """log prior - sum(log(2 pi var)) / 2 - sum((x - theta)^2 / var) / 2 for each class."""
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
    return _classified(model, frame, builder.op("add", log_prior, joint))


def multinomial_nb(model: Any, frame: Frame) -> Outputs:
    """x @ feature_log_prob_ + class_log_prior_; negative numbers pass, as in predict."""
    check(model, "feature_log_prob_", "class_log_prior_", "classes_")
    return _linear(model, frame, model.feature_log_prob_, model.class_log_prior_)


def complement_nb(model: Any, frame: Frame) -> Outputs:
    """x @ feature_log_prob_; the class prior counts only where there is a single class."""
    check(model, "feature_log_prob_", "class_log_prior_", "classes_")
    prior = np.asarray(model.class_log_prior_, np.float64)
    bias = prior if len(model.classes_) == 1 else np.zeros(prior.shape)
    return _linear(model, frame, model.feature_log_prob_, bias)


def bernoulli_nb(model: Any, frame: Frame) -> Outputs:
    """x @ (log p - log(1 - p)) + log prior + sum(log(1 - p)), x above `binarize` being 1.

    With binarize=None the numbers are taken as they are.
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
    """The sum of each column's log-probability of its category, plus the log prior.

    Numbers are cut to whole ones. A category that is negative, or that training never counted up
    to, is an error: scikit-learn raises too.
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
    return _classified(model, frame, builder.op("add", joint, prior))


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
    return _classified(model, frame, builder.linear(x, np.asarray(weights).T, bias))


def _classified(model: Any, frame: Frame, joint: Value) -> Outputs:
    values = {"label": argmax_label(frame.builder, joint), "proba": shares(frame.builder, joint)}
    return Outputs(values, labels_of(class_list(model)))
