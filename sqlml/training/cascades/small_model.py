"""`small_model`: a model of the same class as another, over some of its features."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from sqlml.errors import MissingDependencyError, UnsupportedModelError
from sqlml.importers.frame import Outputs
from sqlml.ir.builder import Builder, Value
from sqlml.ir.ops import verify
from sqlml.ir.program import Program
from sqlml.training.cascades.parts import (
    CONFIDENCE,
    LastEstimator,
    Rows,
    feature_matrix,
    with_estimator,
)
from sqlml.training.cascades.recipe import Recipe
from sqlml.types import Array, Labels

# `closed_form`: estimators that numpy fits, since a formula says what they learn.
#
# They have the names and attributes of scikit-learn's, which is all that the importers read.
# The formulas are those of Hastie, Tibshirani and Friedman, The Elements of Statistical Learning,
# equations 3.6 and 3.44, and of scikit-learn's `naive_bayes.py`.


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


def small_classifier(
    program: Program,
    last: LastEstimator,
    places: Sequence[int],
    recipe: Recipe,
    rows: Rows,
    labels: Array,
) -> Program:
    """A classifier of the same labels over the columns at `places`, with outputs `label`, the place
    of a label among the model's, and `CONFIDENCE`.

    Args:
        rows: to train on.
        labels: (n,) int, the place of each row's label among the model's.

    Raises:
        UnsupportedModelError: it cannot be trained, or sqlml cannot import it.
        MissingDependencyError: its library is not installed.
    """
    matrix = feature_matrix(program, last, places, rows)
    known, codes = np.unique(labels, return_inverse=True)
    estimator = _fitted(recipe, matrix, codes)
    b, made = with_estimator(program, last, places, estimator, not isinstance(matrix, np.ndarray))
    label = made.values["label"]
    if known.size < len(program.labels[0]) or not np.array_equal(known, np.arange(known.size)):
        label = b.op("reshape", b.op("take", known.astype(np.int64)[:, None], label), shape=(1,))
    return verify(b.build({"label": label, CONFIDENCE: _confidence(b, made)}))


def small_scorer(
    program: Program,
    last: LastEstimator,
    places: Sequence[int],
    recipe: Recipe,
    rows: Rows,
    scores: Array,
) -> Program:
    """A regression of `scores` (n,) over the columns at `places`, with the one output `score`.

    Raises:
        UnsupportedModelError, MissingDependencyError: as `small_classifier`.
    """
    matrix = feature_matrix(program, last, places, rows)
    estimator = _fitted(recipe, matrix, scores)
    b, made = with_estimator(program, last, places, estimator, not isinstance(matrix, np.ndarray))
    return verify(b.build({CONFIDENCE: b.cast(made.values["label"], "float64")}))


def _fitted(recipe: Recipe, matrix: Any, target: Array) -> Any:
    try:
        estimator = recipe.estimator()
    except MissingDependencyError:
        made = closed_form(recipe.path, recipe.parameters, matrix, target)
        if made is None:
            raise
        return made
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return estimator.fit(matrix, target)
    except Exception as error:  # a library raises what it likes
        reason = (str(error).splitlines() or [""])[0]
        raise UnsupportedModelError(
            f"no small {type(estimator).__name__} can be trained on these features: "
            f"{type(error).__name__}: {reason}"
        ) from error


def _confidence(b: Builder, made: Outputs) -> Value:
    """How sure a classifier is: its largest probability; without probabilities its distance from
    the other class, or the largest score."""
    if "proba" in made.values:
        return b.cast(b.op("max", made.values["proba"], axis=1), "float64")
    if "score" not in made.values:
        raise UnsupportedModelError(
            "the model gives neither probabilities nor scores, so that nobody knows how sure a "
            "small one is"
        )
    score = made.values["score"]
    sure = b.op("abs", score) if score.type.width == 1 else b.op("max", score, axis=1)
    return b.cast(sure, "float64")


def confident(small: Program, threshold: float, labels: tuple[Labels, ...]) -> Program:
    """A small classifier whose label is -1 unless it is surer than `threshold`."""
    b = Builder(small.nodes)
    label, sure = (b.value(small.outputs[name]) for name in ("label", CONFIDENCE))
    unsure = b.constant(np.full(1, -1, np.int64))
    made = b.op("where", b.op("gt", sure, threshold), label, unsure)
    return b.build({"label": made}, labels)
