"""Models of each family that is exported to other databases, and rows to score.

Rows have ties with thresholds, since numbers are rounded, and missing values where the model takes
them; all others are refused with NULL.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import lightgbm as lgb
import numpy as np
import pandas as pd
import xgboost as xgb
from feature_engine.datetime import DatetimeFeatures
from sklearn.cluster import KMeans
from sklearn.compose import make_column_transformer
from sklearn.decomposition import PCA
from sklearn.ensemble import (
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression, PoissonRegressor
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    KBinsDiscretizer,
    OneHotEncoder,
    OrdinalEncoder,
    PowerTransformer,
    StandardScaler,
)
from sklearn.tree import DecisionTreeRegressor

NAMES = ["a", "B.b", "c", "d"]
KINDS = ["a", "A", "a ", " a", "it's", "ä\\n", '"', "$sqlml$", "sqlml_v99", "", "日本"]


@cache
def rows(count: int, seed: int = 0) -> pd.DataFrame:
    """Numbers rounded to a hundredth; a tenth of those in `c` and `d` is missing."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(rng.normal(size=(count, 4)).round(2), columns=NAMES)
    holes = rng.random((count, 2)) < 0.1
    frame[["c", "d"]] = frame[["c", "d"]].mask(holes)
    frame["kind"] = np.array(KINDS, dtype=object)[rng.integers(len(KINDS), size=count)]
    return frame


def _targets(frame: pd.DataFrame) -> tuple[Any, Any, Any]:
    value = frame["a"] + frame["B.b"] * frame["c"].fillna(0)
    two = np.where(value > 0, "it's so", "no")
    return value.to_numpy(), two, np.array(["low", "mid", "high"])[np.digitize(value, [-0.5, 0.5])]


def _trained(make: Callable[[], Any], target: int, columns: list[str], filled: bool) -> Any:
    frame = rows(1500, 1)
    x = frame[columns]
    if filled:
        x = x.fillna(dict.fromkeys(NAMES, 0.0))
    return make().fit(x, _targets(frame)[target])


def _encoded(encoder: Any, model: Any) -> Any:
    return make_pipeline(
        make_column_transformer((encoder, ["kind"]), remainder="passthrough"), model
    )


FAMILIES: Mapping[str, tuple[Callable[[], Any], int, list[str], bool]] = {
    "linear": (LinearRegression, 0, NAMES, True),
    "scaled logistic": (
        lambda: make_pipeline(StandardScaler(), LogisticRegression()), 1, NAMES, True,
    ),
    "logistic of three": (LogisticRegression, 2, NAMES, True),
    "imputed": (lambda: make_pipeline(SimpleImputer(), LogisticRegression()), 1, NAMES, False),
    "components": (
        lambda: make_pipeline(SimpleImputer(), PCA(2), LogisticRegression()), 1, NAMES, False,
    ),
    "power": (lambda: make_pipeline(PowerTransformer(), LinearRegression()), 0, NAMES, True),
    "bins": (
        lambda: make_pipeline(
            KBinsDiscretizer(4, encode="ordinal", strategy="uniform", subsample=None),
            LinearRegression(),
        ), 0, NAMES, True,
    ),
    "one-hot": (
        lambda: _encoded(OneHotEncoder(handle_unknown="ignore"), LogisticRegression()),
        1, [*NAMES, "kind"], True,
    ),
    "ordinal": (
        lambda: _encoded(
            OrdinalEncoder(), RandomForestClassifier(5, random_state=0)
        ), 1, [*NAMES, "kind"], False,
    ),
    "bayes": (GaussianNB, 2, NAMES, True),
    "net": (
        lambda: MLPClassifier((6,), activation="tanh", max_iter=40, random_state=0), 1, NAMES, True,
    ),
    "deep tree": (lambda: DecisionTreeRegressor(random_state=0), 0, NAMES, False),
    "forest": (lambda: RandomForestClassifier(12, max_depth=7, random_state=0), 2, NAMES, False),
    "boosting": (lambda: GradientBoostingClassifier(n_estimators=15), 1, NAMES, True),
    "histograms": (lambda: HistGradientBoostingClassifier(max_iter=12), 1, NAMES, False),
    "lightgbm": (lambda: lgb.LGBMClassifier(n_estimators=15, verbose=-1), 2, NAMES, False),
    "sets of categories": (
        lambda: _encoded(
            OrdinalEncoder(),
            HistGradientBoostingClassifier(max_iter=8, categorical_features=[0]),
        ), 1, ["kind", *NAMES], False,
    ),
    "clusters": (lambda: KMeans(4, n_init=1, random_state=0), 0, NAMES, True),
}  # fmt: skip
"""Name -> how it is made, which of the targets it predicts, its columns, and whether it takes no
missing values."""


@cache
def model(name: str) -> Any:
    return _trained(*FAMILIES[name])


@cache
def boosted(objective: str) -> Any:
    """Of XGBoost, whose sums are float32."""
    frame = rows(1500, 1)
    value, two, three = _targets(frame)
    labels = {
        "binary:logistic": (two == "no").astype(int),
        "multi:softprob": np.unique(three, return_inverse=True)[1],
        "reg:squarederror": value,
        "count:poisson": np.exp(value).clip(0, 9).round(),
    }[objective]
    kind = xgb.XGBClassifier if objective[0] in "bm" else xgb.XGBRegressor
    return kind(n_estimators=30, max_depth=5, objective=objective).fit(frame[NAMES], labels)


SEVERAL: Mapping[str, Callable[[], Any]] = {
    "numbers": LinearRegression,
    "classes": lambda: RandomForestClassifier(6, max_depth=5, random_state=0),
    "flags": lambda: MLPClassifier((4,), max_iter=40, random_state=0),
}
"""Models of several targets, by what these are; that of flags gives one probability of each."""


@cache
def of_several(kind: str) -> Any:
    frame = rows(1500, 1).fillna(dict.fromkeys(NAMES, 0.0))
    value, two, three = _targets(frame)
    targets = {"numbers": [value, -value], "classes": [two, three], "flags": [value > 0, value > 1]}
    return SEVERAL[kind]().fit(frame[NAMES], np.stack(targets[kind], axis=1))


def moments(count: int) -> pd.DataFrame:
    """Dates of four centuries, to the microsecond; some at midnight, some just before it, some
    missing."""
    rng, day = np.random.default_rng(2), 86_400 * 10**6
    made = rng.integers(-5 * 10**15, 8 * 10**15, count)
    made[::5] -= made[::5] % day
    made[1::5] -= made[1::5] % day + 1
    return pd.DataFrame({"at": made.astype("datetime64[us]")}).mask(rng.random((count, 1)) < 0.05)


@cache
def of_dates() -> Any:
    """Each number that is read off a date has a weight of its own, which tells it from others."""
    frame = moments(500).dropna()
    steps = make_pipeline(DatetimeFeatures("at", features_to_extract="all"), LinearRegression())
    return steps.fit(frame, np.random.default_rng(0).normal(size=len(frame)))


def poisson() -> Any:
    frame = rows(1500, 1).fillna(dict.fromkeys(NAMES, 0.0))
    return PoissonRegressor().fit(frame[NAMES], np.exp(frame["a"]).round())
