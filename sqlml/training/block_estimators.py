"""`BLOCK_ESTIMATORS`: what learns from rows block by block in place of an estimator of scikit-learn
that needs them all at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

Parameters = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class BlockEstimator:
    """An estimator with partial_fit.

    path: of its class. kept: parameters that mean the same to both. dropped: parameters of the
    other that say how it finds the same solution. converted: the other's parameters and the number
    of rows -> those that mean something else. passes: whether several over the rows gain anything.
    """

    path: str
    kept: tuple[str, ...]
    dropped: tuple[str, ...]
    converted: Callable[[Parameters, int], dict[str, Any]]
    passes: bool = True

    def refused(self, given: Parameters) -> list[str]:
        """Those of the other's parameters that it does not know."""
        own = (*self.kept, *self.dropped, *OF_PASSES, *_CONVERTED)
        return [name for name in given if name not in own]

    def parameters(self, given: Parameters, rows: int) -> dict[str, Any]:
        """Its parameters.

        Args:
            given: those of the estimator in whose place it is. rows: that it learns from.
        """
        made = {name: given[name] for name in self.kept if name in given}
        return {**made, **self.converted(given, rows)}


OF_PASSES: Mapping[str, tuple[type | tuple[type, ...], str]] = MappingProxyType(
    {"max_iter": (int, "an integer"), "tol": ((int, float), "a number of at least 0")}
)
"""Parameters of how often the rows are read -> their types, and what an error calls them: passes at
most, and the share by which each must lower the loss."""

_CONVERTED = ("alpha", "C", "l1_ratio")
_STEPS = {"learning_rate": "invscaling", "power_t": 0.25, "shuffle": True}


def _descent(penalty: str | None, alpha: float, rows: int) -> dict[str, Any]:
    """Stochastic gradient descent whose coefficients are averaged from the second pass on (Polyak
    and Juditsky, 1992), but for those with a penalty on absolute values, whose means scikit-learn
    gets wrong."""
    averaged = penalty in (None, "l2")
    return {**_STEPS, "penalty": penalty, "alpha": alpha, "average": rows if averaged else False}


def _plain(given: Parameters, rows: int) -> dict[str, Any]:
    return _descent(None, 0.0, rows)


def _ridge(given: Parameters, rows: int) -> dict[str, Any]:
    """Ridge weighs the coefficients against a sum over the rows, and descent against a mean."""
    return _descent("l2", given.get("alpha", 1.0) / rows, rows)


def _lasso(given: Parameters, rows: int) -> dict[str, Any]:
    return _descent("l1", given.get("alpha", 1.0), rows)


def _elastic_net(given: Parameters, rows: int) -> dict[str, Any]:
    made = _descent("elasticnet", given.get("alpha", 1.0), rows)
    return {**made, "l1_ratio": given.get("l1_ratio", 0.5)}


def _logistic(given: Parameters, rows: int) -> dict[str, Any]:
    """C weighs a sum over the rows against the coefficients."""
    alpha = 1 / (given.get("C", 1.0) * rows)
    l1_ratio = given.get("l1_ratio") or 0.0
    made = _descent("elasticnet" if l1_ratio else "l2", alpha, rows)
    return {**made, "loss": "log_loss", **({"l1_ratio": l1_ratio} if l1_ratio else {})}


def _nothing(given: Parameters, rows: int) -> dict[str, Any]:
    return {}


_REGRESSOR = "sklearn.linear_model.SGDRegressor"
_LINEAR = ("fit_intercept", "random_state")

BLOCK_ESTIMATORS: Mapping[str, BlockEstimator] = MappingProxyType(
    {
        "LinearRegression": BlockEstimator(_REGRESSOR, _LINEAR, ("n_jobs",), _plain),
        "Ridge": BlockEstimator(_REGRESSOR, _LINEAR, ("solver",), _ridge),
        "Lasso": BlockEstimator(_REGRESSOR, _LINEAR, ("selection",), _lasso),
        "ElasticNet": BlockEstimator(_REGRESSOR, _LINEAR, ("selection",), _elastic_net),
        "LogisticRegression": BlockEstimator(
            "sklearn.linear_model.SGDClassifier", _LINEAR, ("solver", "n_jobs"), _logistic
        ),
        "KMeans": BlockEstimator(
            "sklearn.cluster.MiniBatchKMeans",
            ("n_clusters", "init", "random_state"),
            ("algorithm", "n_init"),
            _nothing,
        ),
        "PCA": BlockEstimator(
            "sklearn.decomposition.IncrementalPCA",
            ("n_components", "whiten"),
            ("svd_solver", "random_state", "iterated_power"),
            _nothing,
            passes=False,
        ),
    }
)
"""Class of an estimator -> what learns in its place."""


def block_estimator(path: str, parameters: Parameters) -> BlockEstimator | None:
    """What learns in place of an estimator with these parameters; None: nothing does.

    Args:
        path: of the estimator's class.
    """
    found = BLOCK_ESTIMATORS.get(path.rpartition(".")[2])
    if found is None or not path.startswith("sklearn.") or found.refused(parameters):
        return None
    components = parameters.get("n_components")
    return None if components is not None and type(components) is not int else found
