"""Linear models of scikit-learn, with the parameters that change what they predict."""

from __future__ import annotations

import numpy as np
import pandas as pd
from sklearn.linear_model import (
    ARDRegression,
    BayesianRidge,
    ElasticNet,
    ElasticNetCV,
    GammaRegressor,
    HuberRegressor,
    Lars,
    LarsCV,
    Lasso,
    LassoCV,
    LassoLars,
    LassoLarsCV,
    LassoLarsIC,
    LinearRegression,
    LogisticRegression,
    LogisticRegressionCV,
    OrthogonalMatchingPursuit,
    OrthogonalMatchingPursuitCV,
    PassiveAggressiveClassifier,
    PassiveAggressiveRegressor,
    Perceptron,
    PoissonRegressor,
    QuantileRegressor,
    RANSACRegressor,
    Ridge,
    RidgeClassifier,
    RidgeClassifierCV,
    RidgeCV,
    SGDClassifier,
    SGDOneClassSVM,
    SGDRegressor,
    TheilSenRegressor,
    TweedieRegressor,
)
from sklearn.svm import LinearSVC, LinearSVR
from sklearn.tree import DecisionTreeRegressor

from sqlml.types import Array
from tests.contract.estimators.case import Case, numbers, real, three, two

EVERY_KIND = ("string", "int64", "bool", "float64")


def narrow(rows: int, seed: int) -> pd.DataFrame:
    """`numbers` with columns of like size, for what learns by gradients or takes exp."""
    frame = numbers(rows, seed)
    frame["wide"] /= 40
    frame["whole"] /= 10
    frame["constant"] /= 10
    return frame


def above_zero(table: pd.DataFrame, seed: int) -> Array:
    """A target above 0."""
    return np.exp(real(table, seed) / 2)


CASES: tuple[Case, ...] = (
    Case("LinearRegression", LinearRegression, real),
    Case("LinearRegression no intercept", lambda: LinearRegression(fit_intercept=False), real),
    Case("LinearRegression positive", lambda: LinearRegression(positive=True), real),
    Case("Ridge", Ridge, real),
    *(
        Case(
            f"Ridge {solver}",
            lambda solver=solver: Ridge(solver=solver, random_state=0),
            real,
            data=narrow,
        )
        for solver in ("svd", "cholesky", "lsqr", "sparse_cg", "sag", "saga")
    ),
    Case("Ridge lbfgs", lambda: Ridge(positive=True, solver="lbfgs"), real),
    Case("RidgeCV", RidgeCV, real),
    Case("RidgeCV folds", lambda: RidgeCV([0.1, 10], cv=3, fit_intercept=False), real),
    Case("Lasso", lambda: Lasso(0.1), real),
    Case("Lasso random", lambda: Lasso(0.01, selection="random", random_state=0), real),
    Case("Lasso of zeros", lambda: Lasso(1e9), real),
    Case("LassoCV", lambda: LassoCV(cv=3), real),
    Case("ElasticNet", lambda: ElasticNet(0.1, l1_ratio=0.3), real),
    Case("ElasticNetCV", lambda: ElasticNetCV(l1_ratio=[0.2, 0.9], cv=3), real),
    Case("Lars", Lars, real),
    Case("Lars two columns", lambda: Lars(n_nonzero_coefs=2, fit_intercept=False), real),
    Case("LarsCV", lambda: LarsCV(cv=3), real),
    Case("LassoLars", lambda: LassoLars(0.01), real),
    Case("LassoLarsCV", lambda: LassoLarsCV(cv=3, positive=True), real),
    *(Case(f"LassoLarsIC {c}", lambda c=c: LassoLarsIC(criterion=c), real) for c in ("aic", "bic")),
    Case("OrthogonalMatchingPursuit", OrthogonalMatchingPursuit, real),
    Case("OrthogonalMatchingPursuit tol", lambda: OrthogonalMatchingPursuit(tol=1.0), real),
    Case("OrthogonalMatchingPursuitCV", lambda: OrthogonalMatchingPursuitCV(cv=3), real),
    Case("BayesianRidge", BayesianRidge, real),
    Case("ARDRegression", ARDRegression, real),
    Case("HuberRegressor", HuberRegressor, real, data=narrow),
    Case("QuantileRegressor", lambda: QuantileRegressor(quantile=0.8, alpha=0.01), real),
    Case("TheilSenRegressor", lambda: TheilSenRegressor(random_state=0), real, data=narrow),
    Case("RANSACRegressor", lambda: RANSACRegressor(random_state=0), real, data=narrow),
    Case(
        "RANSACRegressor tree",
        lambda: RANSACRegressor(DecisionTreeRegressor(max_depth=4), min_samples=80, random_state=0),
        real,
        data=narrow,
        bits=frozenset({"label"}),
    ),
    Case("SGDRegressor", lambda: SGDRegressor(random_state=0), real, data=narrow),
    Case(
        "SGDRegressor huber averaged",
        lambda: SGDRegressor(loss="huber", average=True, penalty="l1", random_state=0),
        real,
        data=narrow,
    ),
    Case("PassiveAggressiveRegressor", lambda: PassiveAggressiveRegressor(random_state=0), real),
    Case("LinearSVR", lambda: LinearSVR(random_state=0), real, data=narrow),
    Case(
        "LinearSVR squared",
        lambda: LinearSVR(loss="squared_epsilon_insensitive", dual=False, fit_intercept=False),
        real,
    ),
    Case("PoissonRegressor", PoissonRegressor, above_zero, data=narrow),
    Case("GammaRegressor", lambda: GammaRegressor(alpha=0.1), above_zero, data=narrow),
    *(
        Case(
            f"TweedieRegressor {p}", lambda p=p: TweedieRegressor(power=p), above_zero, data=narrow
        )
        for p in (0, 1, 1.5, 2, 3)
    ),
    Case(
        "TweedieRegressor identity",
        lambda: TweedieRegressor(power=0, link="identity"),
        real,
        data=narrow,
    ),
    Case("TweedieRegressor log", lambda: TweedieRegressor(power=0, link="log"), real, data=narrow),
    Case("LogisticRegression two", LogisticRegression, two, labels=EVERY_KIND),
    Case("LogisticRegression three", LogisticRegression, three, labels=EVERY_KIND[:2]),
    *(
        Case(
            f"LogisticRegression {solver}",
            lambda solver=solver: LogisticRegression(solver=solver, random_state=0),
            two if solver == "liblinear" else three,
            data=narrow,
        )
        for solver in ("liblinear", "newton-cg", "newton-cholesky", "sag", "saga")
    ),
    Case(
        "LogisticRegression l1 no intercept",
        lambda: LogisticRegression(
            C=0.1, l1_ratio=1.0, solver="liblinear", fit_intercept=False, random_state=0
        ),
        two,
        data=narrow,
    ),
    Case("LogisticRegressionCV two", lambda: LogisticRegressionCV(Cs=2, cv=3), two, data=narrow),
    Case(
        "LogisticRegressionCV three", lambda: LogisticRegressionCV(Cs=2, cv=3), three, data=narrow
    ),
    Case("RidgeClassifier two", RidgeClassifier, two, labels=EVERY_KIND),
    Case("RidgeClassifier three", RidgeClassifier, three),
    Case("RidgeClassifierCV", lambda: RidgeClassifierCV([0.1, 1]), three),
    Case("Perceptron two", lambda: Perceptron(random_state=0), two),
    Case("Perceptron three", lambda: Perceptron(random_state=0), three, data=narrow),
    *(
        Case(
            f"SGDClassifier {loss} {target.__name__}",
            lambda loss=loss: SGDClassifier(loss=loss, random_state=0),
            target,
            data=narrow,
        )
        for loss in ("hinge", "log_loss", "modified_huber", "perceptron", "squared_error")
        for target in (two, three)
    ),
    Case("SGDOneClassSVM", lambda: SGDOneClassSVM(nu=0.2, random_state=0), data=narrow),
    Case(
        "SGDOneClassSVM averaged",
        lambda: SGDOneClassSVM(average=True, fit_intercept=False, random_state=0),
        data=narrow,
    ),
    Case(
        "PassiveAggressiveClassifier two", lambda: PassiveAggressiveClassifier(random_state=0), two
    ),
    Case(
        "PassiveAggressiveClassifier three",
        lambda: PassiveAggressiveClassifier(loss="squared_hinge", random_state=0),
        three,
    ),
    Case("LinearSVC two", lambda: LinearSVC(random_state=0), two, data=narrow),
    Case("LinearSVC three", lambda: LinearSVC(penalty="l1", dual=False), three, data=narrow),
    *(
        Case(
            f"LinearSVC crammer_singer {target.__name__}",
            lambda: LinearSVC(multi_class="crammer_singer", random_state=0),
            target,
            data=narrow,
        )
        for target in (two, three)
    ),
)
