"""Models to evaluate: a table `shop`, and the models that are fitted to it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import pandas as pd
from sklearn.cluster import KMeans
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.mixture import GaussianMixture
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

import sqlml

CLOSE = {"rtol": 1e-12, "atol": 1e-13}
FEATURES = ["a", "b", "c"]


def _rows() -> pd.DataFrame:
    """Rows whose scores have many ties (`c` alone decides them in places), NULLs and groups."""
    draw = np.random.default_rng(4)
    made = pd.DataFrame(draw.normal(size=(600, 3)).round(1), columns=FEATURES)
    made["answer"] = np.where(made.a + draw.normal(size=600) > 0, "yes", "no")
    made["grade"] = (made.b + draw.normal(size=600)).clip(-1, 1).round().astype(int) + 5
    made["price"] = made.a * 2 + draw.normal(size=600)
    made["other"] = made.b - 1
    made["worth"] = draw.random(600) * (draw.random(600) > 0.1)
    made["Shop's"] = draw.choice(["north", "south"], 600)
    return made


ROWS = _rows()
X = ROWS[FEATURES]
SMALL = {"n_estimators": 7, "max_depth": 3, "random_state": 0}
FITTED: Mapping[str, Any] = {
    "answers": RandomForestClassifier(**SMALL).fit(X[:200], ROWS.answer[:200]),
    "grades": RandomForestClassifier(**SMALL).fit(X[:200], ROWS.grade[:200]),
    "prices": RandomForestRegressor(**SMALL).fit(X[:200], ROWS.price[:200]),
    "both": RandomForestRegressor(**SMALL).fit(X, ROWS[["price", "other"]]),
    "two": RandomForestClassifier(**SMALL).fit(X, ROWS[["answer", "grade"]].astype(str)),
    "margins": LinearSVC().fit(X, ROWS.answer == "yes"),
    "groups": make_pipeline(StandardScaler(), KMeans(3, random_state=0)).fit(X),
    "mixture": GaussianMixture(2, random_state=0).fit(X),
}


@contextmanager
def evaluated_models() -> Iterator[sqlml.Session]:
    """A session with the table and the models."""
    with sqlml.connect() as con:
        con.register("frame", ROWS)
        con.execute("CREATE TABLE shop AS FROM frame")
        for name, model in FITTED.items():
            con.create_model(name, model, verify=False)
        yield con


def one_row(con: sqlml.Session, query: str) -> dict[str, Any]:
    found = con.sql(query)
    (row,) = found.fetchall()
    return dict(zip(found.columns, row, strict=True))


def compare(found: Mapping[str, Any], wanted: Mapping[str, float]) -> None:
    for name, value in wanted.items():
        np.testing.assert_allclose(found[name], value, err_msg=name, **CLOSE)
