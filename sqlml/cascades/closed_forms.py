"""`closed_form`: estimators that numpy fits, since a formula says what they learn.

They have the names and attributes of scikit-learn's, which is all that the importers read.
The formulas are those of Hastie, Tibshirani and Friedman, The Elements of Statistical Learning,
equations 3.6 and 3.44, and of scikit-learn's `naive_bayes.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from sqlml.types import Array


def closed_form(path: str, parameters: Mapping[str, Any], matrix: Any, target: Array) -> Any:
    """The estimator of a class and parameters, fitted; None if no formula says how.

    Args:
        path: of scikit-learn's class.
        matrix: (n, k), an array. target: (n,) numbers, or codes of classes from 0 on.
    """
    fit = CLOSED_FORMS.get(path)
    if fit is None or not isinstance(matrix, np.ndarray):
        return None
    try:
        learned = fit(matrix.astype(np.float64), target, **parameters)
    except (TypeError, np.linalg.LinAlgError):  # a parameter that changes the formula
        return None
    module, _, name = path.rpartition(".")
    made = type(name, (), {"__module__": module, "get_params": lambda _, deep: parameters})()
    for attribute, value in {**learned, "n_features_in_": matrix.shape[1]}.items():
        setattr(made, attribute, value)
    return made


def _linear_regression(x: Array, y: Array, *, fit_intercept: bool = True) -> dict[str, Any]:
    return _least_squares(x, y, fit_intercept, lambda a, b: np.linalg.lstsq(a, b)[0])


def _ridge(x: Array, y: Array, *, alpha: float = 1.0, fit_intercept: bool = True) -> dict[str, Any]:
    def solved(a: Array, b: Array) -> Array:
        weights: Array = np.linalg.solve(a.T @ a + alpha * np.eye(a.shape[1]), a.T @ b)
        return weights

    return _least_squares(x, y, fit_intercept, solved)


def _least_squares(
    x: Array, y: Array, centred: bool, solve: Callable[[Array, Array], Array]
) -> dict[str, Any]:
    middle, mean = (x.mean(axis=0), y.mean()) if centred else (np.zeros(x.shape[1]), 0.0)
    weights = solve(x - middle, y - mean)
    return {"coef_": weights, "intercept_": float(mean - middle @ weights)}


def _gaussian(x: Array, y: Array, *, var_smoothing: float = 1e-9) -> dict[str, Any]:
    members = [x[y == c] for c in range(int(y.max()) + 1)]
    least = var_smoothing * x.var(axis=0).max()
    return {
        "theta_": np.array([own.mean(axis=0) for own in members]),
        "var_": np.array([own.var(axis=0) + least for own in members]),
        "class_prior_": np.array([len(own) for own in members]) / len(y),
        "classes_": np.arange(len(members)),
    }


def _multinomial(
    x: Array, y: Array, *, alpha: float = 1.0, fit_prior: bool = True
) -> dict[str, Any]:
    counts = _counts(x, y) + alpha
    return {
        "feature_log_prob_": np.log(counts) - np.log(counts.sum(axis=1, keepdims=True)),
        **_priors(y, fit_prior),
    }


def _bernoulli(
    x: Array, y: Array, *, alpha: float = 1.0, binarize: float | None = 0.0, fit_prior: bool = True
) -> dict[str, Any]:
    given = x if binarize is None else (x > binarize).astype(np.float64)
    counts = _counts(given, y) + alpha
    members = np.bincount(y)[:, None] + 2 * alpha
    return {
        "feature_log_prob_": np.log(counts) - np.log(members),
        "binarize": binarize,
        **_priors(y, fit_prior),
    }


def _counts(x: Array, y: Array) -> Array:
    """(classes, k): the sums of the rows of each class."""
    return np.array([x[y == c].sum(axis=0) for c in range(int(y.max()) + 1)])


def _priors(y: Array, fitted: bool) -> dict[str, Any]:
    members = np.bincount(y)
    shares = members / y.size if fitted else np.full(members.size, 1 / members.size)
    return {"class_log_prior_": np.log(shares), "classes_": np.arange(members.size)}


CLOSED_FORMS: Mapping[str, Callable[..., dict[str, Any]]] = MappingProxyType(
    {
        "sklearn.linear_model._base.LinearRegression": _linear_regression,
        "sklearn.linear_model._ridge.Ridge": _ridge,
        "sklearn.naive_bayes.GaussianNB": _gaussian,
        "sklearn.naive_bayes.MultinomialNB": _multinomial,
        "sklearn.naive_bayes.BernoulliNB": _bernoulli,
    }
)
"""scikit-learn's class -> how it is fitted: (n, k) float64, (n,), parameters -> attributes."""
