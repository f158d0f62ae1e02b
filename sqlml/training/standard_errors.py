"""Standard errors and p-values of the weights of linear and logistic regression.

They come from the classical theory of least squares and of maximum likelihood, as in statsmodels:
the covariance of the weights is the inverse of the (weighted) Gram matrix, times the variance of
the residuals for least squares.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sqlml.errors import ConfigError
from sqlml.training.row_store import BlockMatrix, EstimatorRows
from sqlml.types import Array

_MAX_WEIGHTS = 2000
_MAX_STEPS = 50
_DEPENDENT = (
    "calculate_p_values: the columns are linearly dependent, so their weights have no standard "
    "errors; leave out columns that follow from others"
)


@dataclass(frozen=True, slots=True, eq=False)
class Inference:
    """The covariance (k + 1, k + 1) of the intercept and the weights, and the theory behind it.

    theta: the intercept and the weights. degrees: the degrees of freedom of Student's distribution
    of the statistics, or None for the normal distribution.
    """

    theta: Array
    covariance: Array
    degrees: float | None

    def tabulate(self, shifts: Array, scales: Array) -> tuple[tuple[Any, ...], ...]:
        """Return a row per weight, the intercept first: standard error and p-value, twice.

        The first two belong to the weights in the units of the inputs, from which `shifts` (k,)
        were subtracted before a division by `scales` (k,). The others belong to the model's own.
        """
        to_inputs = np.diag(np.concatenate(([1.0], 1.0 / scales)))
        to_inputs[0, 1:] = -shifts / scales
        in_inputs = Inference(
            to_inputs @ self.theta, to_inputs @ self.covariance @ to_inputs.T, self.degrees
        )
        columns = (*in_inputs._test_weights(), *self._test_weights())
        return tuple(zip(*(column.tolist() for column in columns), strict=True))

    def _test_weights(self) -> Sequence[Array]:
        from scipy import stats

        errors = np.sqrt(np.maximum(np.diag(self.covariance), 0.0))
        with np.errstate(all="ignore"):
            statistics = np.abs(self.theta) / errors
        distribution = stats.norm if self.degrees is None else stats.t(self.degrees)
        p_values = 2 * distribution.sf(statistics)
        return errors, np.where(np.isfinite(p_values), p_values, 0.0)


def infer(estimator: Any, rows: EstimatorRows) -> Inference:
    """Return the covariance of the weights of a fitted estimator without penalties.

    A logistic regression is changed to the exact optimum, by Newton's method.
    """
    design = _build_design(rows)
    weight = np.ones(len(design)) if rows.weight is None else np.asarray(rows.weight, float)
    design, weight, y = design[weight > 0], weight[weight > 0], np.asarray(rows.y)[weight > 0]
    count, width = design.shape
    if _is_dependent(design):
        raise ConfigError(_DEPENDENT)
    if hasattr(estimator, "classes_"):
        return _infer_logistic(estimator, design, y, weight)
    if count <= width:
        raise ConfigError(
            f"calculate_p_values needs more rows than weights: {count} rows, {width} weights"
        )
    root = np.sqrt(weight)[:, None]
    theta = np.concatenate(([estimator.intercept_], np.ravel(estimator.coef_)))
    residuals = y - design @ theta
    variance = float(weight @ residuals**2) / (count - width)
    return Inference(theta, variance * _invert(design * root), float(count - width))


def _build_design(rows: EstimatorRows) -> Array:
    """Return the rows (n, k + 1) with a first column of ones for the intercept."""
    X = rows.X
    if isinstance(X, BlockMatrix):
        raise ConfigError("calculate_p_values needs the rows in memory: set out_of_core = false")
    if X.shape[1] >= _MAX_WEIGHTS:
        raise ConfigError(
            f"calculate_p_values takes at most {_MAX_WEIGHTS - 1:,} columns, and the encoded "
            f"columns are {X.shape[1]:,}"
        )
    dense = X.toarray() if hasattr(X, "toarray") else np.asarray(X)
    return np.column_stack((np.ones(len(dense)), dense.astype(np.float64)))


def _is_dependent(design: Array) -> bool:
    """Return whether the columns are linearly dependent, whatever their units are."""
    norms = np.linalg.norm(design, axis=0)
    return bool((norms == 0).any() or np.linalg.matrix_rank(design / norms) < len(norms))


def _invert(scaled_design: Array) -> Array:
    """Return the inverse of the Gram matrix, by way of the triangle of a QR decomposition."""
    triangle = np.linalg.qr(scaled_design, mode="r")
    inverse = np.linalg.inv(triangle)
    return np.asarray(inverse @ inverse.T)


def _infer_logistic(estimator: Any, design: Array, y: Array, weight: Array) -> Inference:
    from scipy.special import expit

    if len(estimator.classes_) != 2:
        raise ConfigError("calculate_p_values needs a label of two classes")
    is_positive = (y == estimator.classes_[1]).astype(np.float64)
    theta = np.concatenate((estimator.intercept_, estimator.coef_[0]))
    for _ in range(_MAX_STEPS):
        probability = expit(design @ theta)
        spread = weight * probability * (1 - probability)
        scaled_design = design * np.sqrt(spread)[:, None]
        if _is_dependent(scaled_design):
            break
        covariance = _invert(scaled_design)
        step = covariance @ (design.T @ (weight * (is_positive - probability)))
        if not np.isfinite(step).all() or np.abs(step).max() > 1e6:
            break
        if np.abs(step).max() <= 1e-12 * max(1.0, np.abs(theta).max()):
            estimator.intercept_, estimator.coef_ = theta[:1], theta[None, 1:]
            return Inference(theta, covariance, None)
        theta = theta + step
    raise ConfigError(
        "calculate_p_values: the columns separate the classes without error, so the weights grow "
        "without limit and have no standard errors; leave out calculate_p_values"
    )
