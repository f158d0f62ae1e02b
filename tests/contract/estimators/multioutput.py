"""Estimators of several targets: regressors, classifiers with several outputs, and chains."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.ensemble import (
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.linear_model import (
    ElasticNet,
    Lasso,
    LinearRegression,
    LogisticRegression,
    MultiTaskElasticNet,
    MultiTaskElasticNetCV,
    MultiTaskLasso,
    MultiTaskLassoCV,
    Ridge,
    RidgeClassifier,
    RidgeClassifierCV,
    RidgeCV,
)
from sklearn.multioutput import (
    ClassifierChain,
    MultiOutputClassifier,
    MultiOutputRegressor,
    RegressorChain,
)
from sklearn.neighbors import KNeighborsClassifier, RadiusNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import (
    DecisionTreeClassifier,
    DecisionTreeRegressor,
    ExtraTreeClassifier,
    ExtraTreeRegressor,
)

from sqlml.types import Array
from tests.contract.estimators.case import Case, gaps, real, three


def reals(table: pd.DataFrame, seed: int) -> Array:
    """Three real targets (n, 3) that depend on the columns in different ways."""
    first, second = real(table, seed), real(table.iloc[:, ::-1], seed + 1)
    return np.stack([first, second * 3 - 1, first * second], axis=1)


def classes(table: pd.DataFrame, seed: int) -> Array:
    """Class numbers (n, 3) of targets with three, two and three classes."""
    both = three(table, seed), three(table.iloc[:, ::-1], seed + 1)
    return np.stack([both[0], np.minimum(both[1], 1), (both[0] + both[1]) % 3], axis=1)


def flags(table: pd.DataFrame, seed: int) -> Array:
    """An indicator matrix (n, 3) of 0 and 1; float, so that nobody renames its classes."""
    return np.minimum(classes(table, seed), 1).astype(np.float64)


def _chain(order: Any, method: str = "predict") -> ClassifierChain:
    return ClassifierChain(_logistic(), order=order, chain_method=method, random_state=0)


def _logistic() -> Any:
    return make_pipeline(StandardScaler(), LogisticRegression())


TREE = {"max_depth": 5, "random_state": 0}
FOREST = {"n_estimators": 6, **TREE}
EXACT = frozenset({"label"})
KINDS = ("string", "int64", "bool", "float64")

REGRESSORS: tuple[Case, ...] = (
    Case("LinearRegression, 3 targets", LinearRegression, reals),
    Case("LinearRegression, 3 targets, positive", lambda: LinearRegression(positive=True), reals),
    Case(
        "LinearRegression, 3 targets, no intercept",
        lambda: LinearRegression(fit_intercept=False),
        reals,
    ),
    Case("Ridge, 3 targets", lambda: Ridge(alpha=[0.1, 1, 10]), reals),
    Case("RidgeCV, 3 targets", lambda: RidgeCV(alpha_per_target=True), reals),
    Case("Lasso, 3 targets", lambda: Lasso(0.05), reals),
    Case("ElasticNet, 3 targets", lambda: ElasticNet(0.05), reals),
    Case("MultiTaskLasso", lambda: MultiTaskLasso(0.05), reals),
    Case("MultiTaskLassoCV", lambda: MultiTaskLassoCV(alphas=5, cv=3), reals),
    Case("MultiTaskElasticNet", lambda: MultiTaskElasticNet(0.05), reals),
    Case("MultiTaskElasticNetCV", lambda: MultiTaskElasticNetCV(alphas=5, cv=3), reals),
    Case(
        "DecisionTreeRegressor, 3 targets", lambda: DecisionTreeRegressor(**TREE), reals, bits=EXACT
    ),
    Case(
        "ExtraTreeRegressor, 3 targets", lambda: ExtraTreeRegressor(**TREE), reals, gaps, bits=EXACT
    ),
    Case("RandomForestRegressor, 3 targets", lambda: RandomForestRegressor(**FOREST), reals, gaps),
    Case("ExtraTreesRegressor, 3 targets", lambda: ExtraTreesRegressor(**FOREST), reals),
    Case("DummyRegressor, 3 targets", lambda: DummyRegressor(strategy="median"), reals, bits=EXACT),
    Case("MultiOutputRegressor, linear", lambda: MultiOutputRegressor(Ridge()), reals),
    Case(
        "MultiOutputRegressor, boosted",
        lambda: MultiOutputRegressor(HistGradientBoostingRegressor(max_iter=4, random_state=0)),
        reals,
        gaps,
        bits=EXACT,
    ),
    Case("RegressorChain", lambda: RegressorChain(Ridge()), reals),
    Case("RegressorChain, order", lambda: RegressorChain(Ridge(), order=[2, 0, 1], cv=3), reals),
    Case(
        "RegressorChain, trees",
        lambda: RegressorChain(DecisionTreeRegressor(**TREE), order="random", random_state=1),
        reals,
        bits=EXACT,
    ),
)

CLASSIFIERS: tuple[Case, ...] = (
    Case(
        "DecisionTreeClassifier, 3 targets",
        lambda: DecisionTreeClassifier(**TREE),
        classes,
        labels=KINDS,
        bits=frozenset({"proba"}),
    ),
    Case("ExtraTreeClassifier, 3 targets", lambda: ExtraTreeClassifier(**TREE), classes, gaps),
    Case("RandomForestClassifier, 3 targets", lambda: RandomForestClassifier(**FOREST), classes),
    Case("ExtraTreesClassifier, 3 targets", lambda: ExtraTreesClassifier(**FOREST), classes, gaps),
    Case("KNeighborsClassifier, 3 targets", KNeighborsClassifier, classes),
    Case(
        "KNeighborsClassifier, 3 targets, by distance",
        lambda: KNeighborsClassifier(7, weights="distance"),
        classes,
    ),
    Case(
        "RadiusNeighborsClassifier, 3 targets",
        lambda: RadiusNeighborsClassifier(2.0, weights="distance", outlier_label="most_frequent"),
        classes,
    ),
    Case("DummyClassifier, 3 targets", DummyClassifier, classes),
    Case(
        "MultiOutputClassifier", lambda: MultiOutputClassifier(_logistic()), classes, labels=KINDS
    ),
    Case(
        "MultiOutputClassifier without probabilities",
        lambda: MultiOutputClassifier(RidgeClassifier()),
        classes,
    ),
)

MULTILABEL: tuple[Case, ...] = tuple(
    Case(name, make, flags, labels=("int64",))
    for name, make in (
        ("RandomForestClassifier, multilabel", lambda: RandomForestClassifier(**FOREST)),
        ("RidgeClassifier, multilabel", RidgeClassifier),
        ("RidgeClassifierCV, multilabel", RidgeClassifierCV),
        ("MultiOutputClassifier, multilabel", lambda: MultiOutputClassifier(_logistic())),
        ("ClassifierChain", lambda: _chain(None)),
        ("ClassifierChain, order", lambda: _chain([2, 0, 1])),
        ("ClassifierChain, random order", lambda: _chain("random")),
        ("ClassifierChain, predict_proba", lambda: _chain([1, 0, 2], "predict_proba")),
        ("ClassifierChain, predict_log_proba", lambda: _chain(None, "predict_log_proba")),
        ("ClassifierChain, decision_function", lambda: _chain([1, 2, 0], "decision_function")),
        (
            "ClassifierChain of forests",
            lambda: ClassifierChain(
                RandomForestClassifier(**FOREST), cv=3, chain_method="predict_proba"
            ),
        ),
        ("ClassifierChain without probabilities", lambda: ClassifierChain(RidgeClassifier())),
    )
)

CASES: tuple[Case, ...] = (*REGRESSORS, *CLASSIFIERS, *MULTILABEL)
