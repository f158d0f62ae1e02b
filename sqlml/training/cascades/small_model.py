"""Small models: estimators of the same class as a model's last one, fitted to some of its features.

Without scikit-learn, numpy fits the estimators in `CLOSED_FORMS`. They have the names and
attributes of scikit-learn's estimators, which the importers read. The formulas are from Hastie,
Tibshirani and Friedman, The Elements of Statistical Learning, equations 3.6 and 3.44, and from
scikit-learn's `naive_bayes.py`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from sqlml.errors import MissingDependencyError, UnsupportedModelError
from sqlml.importers.frame import Outputs
from sqlml.ir.builder import Builder, Value
from sqlml.ir.ops import verify
from sqlml.ir.program import Program
from sqlml.training.cascades.last_estimator import (
    CONFIDENCE,
    LastEstimator,
    Rows,
    append_estimator,
    compute_features,
)
from sqlml.training.cascades.recipe import Recipe
from sqlml.types import Array, Labels


def fit_closed_form(path: str, parameters: Mapping[str, Any], matrix: Any, target: Array) -> Any:
    """Fit the scikit-learn class at `path` with a formula from `CLOSED_FORMS`.

    `matrix` has the shape (n, k). `target`, of shape (n,), holds numbers or zero-based class codes.
    Return None if the class has no formula, or if the formula lacks one of `parameters` or fails.
    """
    fit = CLOSED_FORMS.get(path)
    if fit is None or not isinstance(matrix, np.ndarray):
        return None
    try:
        attributes = fit(matrix.astype(np.float64), target, **parameters)
    except (TypeError, np.linalg.LinAlgError):  # A parameter or matrix without a formula.
        return None
    module, _, name = path.rpartition(".")
    estimator = type(name, (), {"__module__": module, "get_params": lambda _, deep: parameters})()
    for attribute, value in {**attributes, "n_features_in_": matrix.shape[1]}.items():
        setattr(estimator, attribute, value)
    return estimator


def _fit_linear_regression(x: Array, y: Array, *, fit_intercept: bool = True) -> dict[str, Any]:
    return _fit_least_squares(x, y, fit_intercept, lambda x, y: np.linalg.lstsq(x, y)[0])


def _fit_ridge(
    x: Array, y: Array, *, alpha: float = 1.0, fit_intercept: bool = True
) -> dict[str, Any]:
    def solve(x: Array, y: Array) -> Array:
        return np.asarray(np.linalg.solve(x.T @ x + alpha * np.eye(x.shape[1]), x.T @ y))

    return _fit_least_squares(x, y, fit_intercept, solve)


def _fit_least_squares(
    x: Array, y: Array, fit_intercept: bool, solve: Callable[[Array, Array], Array]
) -> dict[str, Any]:
    x_mean, y_mean = (x.mean(axis=0), y.mean()) if fit_intercept else (np.zeros(x.shape[1]), 0.0)
    weights = solve(x - x_mean, y - y_mean)
    return {"coef_": weights, "intercept_": float(y_mean - x_mean @ weights)}


def _fit_gaussian(x: Array, y: Array, *, var_smoothing: float = 1e-9) -> dict[str, Any]:
    rows_by_class = [x[y == code] for code in range(int(y.max()) + 1)]
    min_variance = var_smoothing * x.var(axis=0).max()
    return {
        "theta_": np.array([rows.mean(axis=0) for rows in rows_by_class]),
        "var_": np.array([rows.var(axis=0) + min_variance for rows in rows_by_class]),
        "class_prior_": np.array([len(rows) for rows in rows_by_class]) / len(y),
        "classes_": np.arange(len(rows_by_class)),
    }


def _fit_multinomial(
    x: Array, y: Array, *, alpha: float = 1.0, fit_prior: bool = True
) -> dict[str, Any]:
    counts = _sum_by_class(x, y) + alpha
    return {
        "feature_log_prob_": np.log(counts) - np.log(counts.sum(axis=1, keepdims=True)),
        **_make_prior_attributes(y, fit_prior),
    }


def _fit_bernoulli(
    x: Array, y: Array, *, alpha: float = 1.0, binarize: float | None = 0.0, fit_prior: bool = True
) -> dict[str, Any]:
    binarized = x if binarize is None else (x > binarize).astype(np.float64)
    counts = _sum_by_class(binarized, y) + alpha
    member_counts = np.bincount(y)[:, None] + 2 * alpha
    return {
        "feature_log_prob_": np.log(counts) - np.log(member_counts),
        "binarize": binarize,
        **_make_prior_attributes(y, fit_prior),
    }


def _sum_by_class(x: Array, y: Array) -> Array:
    return np.array([x[y == code].sum(axis=0) for code in range(int(y.max()) + 1)])


def _make_prior_attributes(y: Array, fit_prior: bool) -> dict[str, Any]:
    counts = np.bincount(y)
    shares = counts / y.size if fit_prior else np.full(counts.size, 1 / counts.size)
    return {"class_log_prior_": np.log(shares), "classes_": np.arange(counts.size)}


CLOSED_FORMS: Mapping[str, Callable[..., dict[str, Any]]] = {
    "sklearn.linear_model._base.LinearRegression": _fit_linear_regression,
    "sklearn.linear_model._ridge.Ridge": _fit_ridge,
    "sklearn.naive_bayes.GaussianNB": _fit_gaussian,
    "sklearn.naive_bayes.MultinomialNB": _fit_multinomial,
    "sklearn.naive_bayes.BernoulliNB": _fit_bernoulli,
}
"""Maps the path of a scikit-learn class to a function that returns the fitted attributes.

The arguments of the function are x (n, k), y (n,), and the parameters of the class as keywords."""


def train_small_classifier(
    last_estimator: LastEstimator, indices: Sequence[int], recipe: Recipe, rows: Rows, labels: Array
) -> Program:
    """Train a classifier on the columns `indices`, with outputs `label` and `CONFIDENCE`.

    `labels`, (n,), and the output `label` are indices into the labels of the full model.
    """
    classes, codes = np.unique(labels, return_inverse=True)
    builder, outputs = _append_fitted(last_estimator, indices, recipe, rows, codes)
    label = outputs.values["label"]
    if not np.array_equal(classes, np.arange(len(last_estimator.program.labels[0]))):
        label = builder.op("take", classes.astype(np.int64)[:, None], label)
        label = builder.op("reshape", label, shape=(1,))
    confidence = _build_confidence(builder, outputs)
    return verify(builder.build({"label": label, CONFIDENCE: confidence}))


def train_small_scorer(
    last_estimator: LastEstimator, indices: Sequence[int], recipe: Recipe, rows: Rows, scores: Array
) -> Program:
    """Train a regression of `scores` (n,) on the columns `indices`, with output `CONFIDENCE`."""
    builder, outputs = _append_fitted(last_estimator, indices, recipe, rows, scores)
    return verify(builder.build({CONFIDENCE: builder.cast(outputs.values["label"], "float64")}))


def _append_fitted(
    last_estimator: LastEstimator, indices: Sequence[int], recipe: Recipe, rows: Rows, target: Array
) -> tuple[Builder, Outputs]:
    matrix = compute_features(last_estimator, indices, rows)
    estimator = _fit_estimator(recipe, matrix, target)
    is_sparse = not isinstance(matrix, np.ndarray)
    return append_estimator(last_estimator, indices, estimator, sparse=is_sparse)


def _fit_estimator(recipe: Recipe, matrix: Any, target: Array) -> Any:
    try:
        estimator = recipe.make_estimator()
    except MissingDependencyError:
        fitted = fit_closed_form(recipe.path, recipe.parameters, matrix, target)
        if fitted is None:
            raise
        return fitted
    try:
        with warnings.catch_warnings(action="ignore"), np.errstate(all="ignore"):
            return estimator.fit(matrix, target)
    except Exception as error:  # A library may raise any exception.
        reason = (str(error).splitlines() or [""])[0]
        fault = f"{type(error).__name__}: {reason}"
        message = f"no small {type(estimator).__name__} can be trained on these features: {fault}"
        raise UnsupportedModelError(message) from error


def _build_confidence(builder: Builder, outputs: Outputs) -> Value:
    """Build a classifier's largest probability, or the magnitude of its largest score."""
    if "proba" in outputs.values:
        return builder.cast(builder.op("max", outputs.values["proba"], axis=1), "float64")
    if "score" not in outputs.values:
        raise UnsupportedModelError(
            "the model has neither probabilities nor scores, so the confidence of a small model "
            "is unknown"
        )
    score = outputs.values["score"]
    is_single = score.type.width == 1
    confidence = builder.op("abs", score) if is_single else builder.op("max", score, axis=1)
    return builder.cast(confidence, "float64")


def reject_uncertain_labels(
    small_model: Program, threshold: float, labels: tuple[Labels, ...]
) -> Program:
    """Return a small classifier whose label is -1 unless its confidence exceeds `threshold`."""
    builder = Builder(small_model.nodes)
    label, confidence = (builder.value(small_model.outputs[name]) for name in ("label", CONFIDENCE))
    no_answer = builder.constant(np.full(1, -1, np.int64))
    answer = builder.op("where", builder.op("gt", confidence, threshold), label, no_answer)
    return builder.build({"label": answer}, labels)
