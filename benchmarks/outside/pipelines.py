"""Forty pipelines of scikit-learn that skl2onnx converts, over numbers, strings and integers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from sklearn import ensemble, linear_model, svm
from sklearn.calibration import CalibratedClassifierCV
from sklearn.cluster import KMeans
from sklearn.compose import make_column_transformer
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
from sklearn.feature_selection import SelectKBest
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import BernoulliNB, GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    OrdinalEncoder,
    PolynomialFeatures,
    RobustScaler,
    StandardScaler,
)
from sklearn.tree import DecisionTreeClassifier

NUMBERS = [f"n{i}" for i in range(20)]
LEVELS = {"s0": 8, "s1": 40, "s2": 300}
"""Maps a column of strings to the number of different strings."""
INTEGERS = {"i0": 25}


@dataclass(frozen=True, slots=True)
class Task:
    """A pipeline to fit, and the columns that it reads. `target` is "class", "value" or "count"."""

    pipeline: Any
    columns: tuple[str, ...]
    target: str = "class"


def make_table(rows: int, seed: int) -> pd.DataFrame:
    """Return numbers in float32, strings, integers, and the targets `class`, `value`, `count`."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({name: rng.normal(size=rows).astype(np.float32) for name in NUMBERS})
    for name, count in LEVELS.items():
        frame[name] = rng.choice([f"v{level}" for level in range(count)], rows)
    for name, count in INTEGERS.items():
        frame[name] = rng.integers(0, count, rows)
    margin = frame.n0 + frame.n1 * frame.n2 + (frame.s0 == "v1") + frame.i0 % 3
    frame["class"] = (margin > 1).astype(int)
    frame["value"] = frame.n0 * 2 + frame.n1 + frame.i0 * 0.1
    frame["count"] = np.rint(np.abs(frame["value"]))
    return frame


def _mix(model: Any, *, imputes: bool = False) -> Any:
    """Scale the numbers, and encode the strings and the integers as one-hot columns."""
    numbers = make_pipeline(*([SimpleImputer()] if imputes else []), StandardScaler())
    one_hot = OneHotEncoder(handle_unknown="ignore")
    encoder = make_column_transformer((numbers, NUMBERS), (one_hot, [*LEVELS, *INTEGERS]))
    return make_pipeline(encoder, model)


def _scale(model: Any) -> Any:
    return make_pipeline(StandardScaler(), model)


def make_tasks() -> Mapping[str, Task]:
    """Return the pipelines, not fitted, by name."""
    forest = {"n_estimators": 50, "max_depth": 8, "random_state": 0}
    tree = DecisionTreeClassifier(max_depth=8, random_state=0)
    logistic = LogisticRegression(max_iter=200)
    members = [("a", logistic), ("b", DecisionTreeClassifier(max_depth=5, random_state=0))]
    ordinal = make_column_transformer(("passthrough", NUMBERS), (OrdinalEncoder(), list(LEVELS)))
    small_net, net = {"hidden_layer_sizes": (20,)}, {"hidden_layer_sizes": (32, 16)}
    training = {"max_iter": 10, "random_state": 0}
    everything, numbers = (*NUMBERS, *LEVELS, *INTEGERS), tuple(NUMBERS)
    mixed = {
        "mixed, logistic regression": _mix(logistic),
        "mixed, imputed logistic regression": _mix(logistic, imputes=True),
        "mixed, SGD": _mix(linear_model.SGDClassifier(loss="log_loss", random_state=0)),
        "mixed, tree": _mix(tree),
        "mixed, forest": _mix(ensemble.RandomForestClassifier(**forest)),
        "mixed, extra trees": _mix(ensemble.ExtraTreesClassifier(**forest)),
        "mixed, boosting": _mix(ensemble.GradientBoostingClassifier(n_estimators=30)),
        "mixed, network": _mix(MLPClassifier(**small_net, **training)),
    }
    classifiers = {
        "logistic regression": _scale(logistic),
        "perceptron": _scale(linear_model.Perceptron()),
        "tree": _scale(tree),
        "forest": _scale(ensemble.RandomForestClassifier(**forest)),
        "boosting": _scale(ensemble.GradientBoostingClassifier(n_estimators=30)),
        "boosted trees": _scale(ensemble.AdaBoostClassifier(n_estimators=20, random_state=0)),
        "bagged trees": _scale(ensemble.BaggingClassifier(n_estimators=10, random_state=0)),
        "votes": _scale(ensemble.VotingClassifier(members, voting="soft", flatten_transform=False)),
        "stack": _scale(ensemble.StackingClassifier(members)),
        "isolation forest": _scale(ensemble.IsolationForest(n_estimators=30, random_state=0)),
        "network": _scale(MLPClassifier(**net, **training)),
        "support vectors": _scale(svm.SVC()),
        "Gaussian naive Bayes": _scale(GaussianNB()),
        "Bernoulli naive Bayes": _scale(BernoulliNB()),
        "nearest neighbours": _scale(KNeighborsClassifier(5)),
        "linear discriminants": _scale(LinearDiscriminantAnalysis()),
        "quadratic discriminants": _scale(QuadraticDiscriminantAnalysis()),
        "clusters": _scale(KMeans(8, n_init=1, random_state=0)),
        "calibrated": _scale(CalibratedClassifierCV(logistic, cv=2)),
        "components": make_pipeline(StandardScaler(), PCA(5), logistic),
        "norms": make_pipeline(Normalizer(), logistic),
        "best columns": make_pipeline(MinMaxScaler(), SelectKBest(k=8), logistic),
        "imputed tree": make_pipeline(SimpleImputer(), RobustScaler(), tree),
    }
    regressors = {
        "linear regression": _scale(linear_model.LinearRegression()),
        "lasso": _scale(linear_model.Lasso(alpha=0.01)),
        "elastic net": _scale(linear_model.ElasticNet(alpha=0.01)),
        "polynomials": make_pipeline(StandardScaler(), PolynomialFeatures(2), linear_model.Ridge()),
        "forest of values": _scale(ensemble.RandomForestRegressor(**forest)),
        "network of values": _scale(MLPRegressor(**net, **training)),
        "support vectors of values": _scale(svm.SVR()),
    }
    counts = {"Poisson": _scale(linear_model.PoissonRegressor())}
    return {
        **{name: Task(model, everything) for name, model in mixed.items()},
        "mixed, ridge": Task(_mix(linear_model.Ridge()), everything, "value"),
        **{name: Task(model, numbers) for name, model in classifiers.items()},
        "ordinal, forest": Task(
            make_pipeline(ordinal, ensemble.RandomForestClassifier(**forest)), (*NUMBERS, *LEVELS)
        ),
        **{name: Task(model, numbers, "value") for name, model in regressors.items()},
        **{name: Task(model, numbers, "count") for name, model in counts.items()},
    }
