"""Models to explain: a table `shop`, and the models that are fitted to it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xgboost
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import sqlml

FEATURES = ["a", "b", "c"]


def _rows() -> pd.DataFrame:
    draw = np.random.default_rng(6)
    made = pd.DataFrame(draw.normal(size=(300, 3)), columns=FEATURES)
    made["plan"] = draw.choice(["basic", "pro"], 300)
    made["answer"] = np.where(made.a * made.b + made.c > 0, "yes", "no")
    made["grade"] = (made.b + draw.normal(size=300)).clip(-1, 1).round().astype(int) + 5
    made["price"] = made.a * 2 + draw.normal(size=300)
    return made


ROWS = _rows()
X = ROWS[FEATURES]
SMALL = {"n_estimators": 6, "max_depth": 3, "random_state": 0}
PLANS = make_pipeline(
    make_column_transformer((OneHotEncoder(), ["plan"]), (StandardScaler(), ["a"])),
    LogisticRegression(),
)
FITTED = {
    "answers": RandomForestClassifier(**SMALL).fit(X, ROWS.answer),
    "grades": RandomForestClassifier(**SMALL).fit(X, ROWS.grade),
    "prices": xgboost.XGBRegressor(**SMALL).fit(X, ROWS.price),
    "both": RandomForestRegressor(**SMALL).fit(X, ROWS[["price", "a"]]),
    "pair": RandomForestClassifier(**SMALL).fit(X, ROWS[["answer", "grade"]].astype(str)),
    "plans": PLANS.fit(ROWS[["plan", "a"]], ROWS.answer),
    "bayes": GaussianNB().fit(X, ROWS.answer),
    "scaler": StandardScaler().fit(X),
}


@contextmanager
def explained_models() -> Iterator[sqlml.Session]:
    """A session with the table and the models."""
    with sqlml.connect() as con:
        con.register("frame", ROWS)
        con.execute("CREATE TABLE shop AS SELECT row_number() OVER () AS id, * FROM frame")
        for name, model in FITTED.items():
            con.create_model(name, model, verify=False)
        yield con


def contributions_of(name: str, baseline: bool = False, **options: Any) -> list[dict[str, float]]:
    """What `explain` gives of all rows, from Python."""
    scorer = sqlml.compile(FITTED[name])
    read = {feature.name: ROWS[feature.name] for feature in scorer.features}
    made = scorer.explain(read, **options)
    maps = [dict(zip(made.features, row, strict=True)) for row in made.values.tolist()]
    if baseline:
        maps = [m | {"baseline": b} for m, b in zip(maps, made.baseline.tolist(), strict=True)]
    return maps


def same_maps(got: list[Any], want: list[dict[str, float]]) -> None:
    assert len(got) == len(want)
    for one, other in zip(got, want, strict=True):
        assert one.keys() == other.keys()
        assert one == pytest.approx(other, rel=1e-12, abs=1e-12)
