"""Subclasses that override nothing are what they extend; others are refused."""

from __future__ import annotations

from typing import Any

import catboost
import lightgbm
import numpy as np
import pytest
import xgboost
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import sqlml
from sqlml import errors

X = np.random.default_rng(0).random((60, 2))
Y = X[:, 0] > X[:, 1]


class Named(LogisticRegression):
    """Nothing but a name."""


class Trained(Named):
    """Other defaults, another fit, and a helper of its own."""

    limit = 3

    def __init__(self, C: float = 3.0) -> None:
        super().__init__(C=C)

    def fit(self, X: Any, y: Any) -> Trained:
        super().fit(X[y | ~y], y)
        return self

    def told(self) -> str:
        return f"{self.coef_}"


class Scaler(StandardScaler):
    pass


class Boosted(xgboost.XGBClassifier):
    pass


class Light(lightgbm.LGBMClassifier):
    pass


class Cat(catboost.CatBoostClassifier):
    pass


class Mixin:
    def hello(self) -> int:
        return 1


class Mixed(Mixin, LogisticRegression):
    pass


@pytest.mark.parametrize(
    "model",
    [
        Named(),
        Trained(),
        Mixed(),
        make_pipeline(Scaler(), Trained()),
        Boosted(n_estimators=3),
        Light(n_estimators=3, verbose=-1),
        Cat(iterations=3, verbose=0, allow_writing_files=False),
    ],
    ids=lambda model: type(model).__name__,
)
def test_what_overrides_nothing(model: Any) -> None:
    model.fit(X, Y)
    found = sqlml.compile(model).predict_proba(X)
    np.testing.assert_allclose(found, model.predict_proba(X), rtol=1e-6)


class Predicts(LogisticRegression):
    def predict(self, X: Any) -> Any:
        return ~super().predict(X)


class Decides(LogisticRegression):
    def decision_function(self, X: Any) -> Any:
        return -super().decision_function(X)


class Learned(LogisticRegression):
    @property
    def coef_(self) -> Any:
        return -self.__dict__["coef_"]

    @coef_.setter
    def coef_(self, value: Any) -> None:
        self.__dict__["coef_"] = value


class Missing(LogisticRegression):
    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)


class MixinThatPredicts:
    def predict_proba(self, X: Any) -> Any:
        return None


class MixedIn(MixinThatPredicts, LogisticRegression):
    pass


@pytest.mark.parametrize("kind", [Predicts, Decides, Learned, Missing, MixedIn])
def test_what_may_compute_something_else(kind: Any) -> None:
    model = kind().fit(X, Y)
    with pytest.raises(errors.UnsupportedModelError, match="a subclass may compute something else"):
        sqlml.compile(model)
