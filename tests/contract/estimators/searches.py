"""Searches over parameters, and an estimator that is frozen: both stand for the one inside."""

from __future__ import annotations

from typing import Any

from sklearn.experimental import enable_halving_search_cv  # noqa: F401  # its import is its use
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import (
    GridSearchCV,
    HalvingGridSearchCV,
    HalvingRandomSearchCV,
    RandomizedSearchCV,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from tests.contract.estimators.case import Case, numbers, real, three, two


def frozen() -> Any:
    """A Ridge that was fitted before."""
    table = numbers(100, 3)
    return FrozenEstimator(Ridge().fit(table, real(table, 4)))


def scaled() -> Any:
    return make_pipeline(StandardScaler(), LogisticRegression())


STRENGTHS = {"logisticregression__C": [0.1, 1.0]}
DEPTHS = {"max_depth": [2, 4]}

CASES: tuple[Case, ...] = (
    Case("GridSearchCV", lambda: GridSearchCV(scaled(), STRENGTHS, cv=2), three),
    Case(
        "RandomizedSearchCV",
        lambda: RandomizedSearchCV(
            DecisionTreeClassifier(random_state=0), DEPTHS, n_iter=2, cv=2, random_state=0
        ),
        two,
    ),
    Case(
        "HalvingGridSearchCV",
        lambda: HalvingGridSearchCV(scaled(), STRENGTHS, cv=2, random_state=0),
        two,
    ),
    Case(
        "HalvingRandomSearchCV",
        lambda: HalvingRandomSearchCV(
            DecisionTreeClassifier(random_state=0), DEPTHS, cv=2, random_state=0
        ),
        two,
    ),
    Case("FrozenEstimator", frozen, real),
)
