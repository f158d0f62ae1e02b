"""The demo's three models of whether a flight arrives more than 15 minutes late."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sqlml.errors import MissingDependencyError
from sqlml.session.session import Session

LATE = "late"
ON_TIME = "on time"

NUMBERS = tuple(
    "sched_dep_time sched_arr_time dep_delay distance temp dewp humid wind_dir wind_speed "
    "wind_gust precip pressure visib built engines seats".split()
)
"""Numeric features; those of the weather and the aircraft have missing values."""

FEW = ("carrier", "origin", "engine")
MANY = ("dest", "manufacturer")
"""Categorical features with a few and with many values; engine and manufacturer may miss."""


@dataclass(frozen=True, slots=True)
class Fitted:
    """A fitted classifier, its name in SQL, and its features in training order.

    `late` is the class that means late: a string, or 1 where the library takes no strings.
    `as_floats`: it takes no columns of pandas' integers with gaps.
    """

    name: str
    model: Any
    features: tuple[str, ...]
    late: str | int
    seconds: float
    as_floats: bool = False

    @property
    def description(self) -> str:
        """The classes that do the work, outermost first."""
        model = getattr(self.model, "classifier_", self.model)
        steps = getattr(model, "steps", [("", model)])
        return " > ".join(type(step).__name__ for _, step in steps)

    def predict_late(self, frame: Any) -> Any:
        """The library's own probability of late, (n,), for the rows of a pandas frame."""
        place = list(self.model.classes_).index(self.late)
        return self.model.predict_proba(self._columns(frame))[:, place]

    def predict(self, frame: Any) -> Any:
        """The library's own labels, (n,), for the rows of a pandas frame."""
        return self.model.predict(self._columns(frame))

    def _columns(self, frame: Any) -> Any:
        columns = frame[list(self.features)]
        return columns.astype(float) if self.as_floats else columns


def fit(frame: Any) -> tuple[Fitted, ...]:
    """Fit two of them on a pandas frame with the features and the boolean column `late`.

    Raises:
        MissingDependencyError: scikit-learn or XGBoost is not installed.
    """
    # OpenMP's threads wait for each other in a busy loop, and where another process wants a core
    # too, fitting takes ten times as long. Whoever loaded OpenMP before or has set this decides.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    late = frame["late"].to_numpy(dtype=bool)
    words = [LATE if x else ON_TIME for x in late]
    return (
        _timed("delay_sklearn", _sklearn_pipeline, frame, words, NUMBERS + FEW + MANY, LATE),
        _timed("delay_xgboost", _xgboost, frame, late.astype(int), NUMBERS, 1),
    )


def trained(con: Session, statement: str) -> Fitted:
    """The third, trained by CREATE MODEL .. AS SELECT."""
    start = time.perf_counter()
    con.execute(statement).fetchall()
    seconds = time.perf_counter() - start
    name = "delay_lightgbm"
    return Fitted(name, con.estimator(name), NUMBERS, LATE, seconds, as_floats=True)


def _timed(
    name: str,
    make: Callable[[], Any],
    frame: Any,
    labels: Any,
    features: tuple[str, ...],
    late: str | int,
) -> Fitted:
    try:
        model = make()
    except ImportError as error:
        raise MissingDependencyError(
            f"the demo needs {error.name}, which is not installed; in a clone of sqlml: "
            "make demo, or pip install '.[demo]'"
        ) from None
    start = time.perf_counter()
    model.fit(frame[list(features)], labels)
    return Fitted(name, model, features, late, time.perf_counter() - start)


def _sklearn_pipeline() -> Any:
    from sklearn.compose import ColumnTransformer
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder

    few = make_pipeline(
        SimpleImputer(strategy="constant", fill_value="unknown"),
        OneHotEncoder(handle_unknown="ignore", sparse_output=False),
    )
    many = make_pipeline(
        SimpleImputer(strategy="most_frequent"),
        OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1),
    )
    columns = ColumnTransformer(
        [
            ("numbers", SimpleImputer(strategy="median"), list(NUMBERS)),
            ("few", few, list(FEW)),
            ("many", many, list(MANY)),
        ]
    )
    return make_pipeline(
        columns, HistGradientBoostingClassifier(max_iter=100, learning_rate=0.2, random_state=0)
    )


def _xgboost() -> Any:
    from xgboost import XGBClassifier

    return XGBClassifier(n_estimators=200, max_depth=6, learning_rate=0.15, random_state=0)
