"""Integers, booleans and dates as categories: the library's results, without Python on the way."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.ensemble import GradientBoostingRegressor, RandomForestClassifier
from sklearn.ensemble import HistGradientBoostingClassifier as Boosting
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler, TargetEncoder
from sklearn.tree import DecisionTreeClassifier

import sqlml
from sqlml.backends.base import BACKENDS

ROWS = 4000
SITES = 2500
"""More categories than the columns that the register machine can hold."""

CATEGORIES = ["site", "level", "member", "day", "plan"]
NUMBERS = ["size", "age"]


def make_rows(seed: int, site_count: int = SITES) -> pd.DataFrame:
    """Rows with sites of large numbers, negative levels, booleans, days, strings and numbers."""
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "site": rng.integers(0, site_count, ROWS) * 1_000_003 - 10_000,
            "level": rng.integers(-4, 5, ROWS).astype("int8"),
            "member": rng.random(ROWS) < 0.5,
            "day": pd.Timestamp("1969-12-20") + pd.to_timedelta(rng.integers(0, 25, ROWS), "D"),
            "plan": rng.choice(["basic", "it's", "pro"], ROWS),
            "size": rng.normal(size=ROWS),
            "age": rng.integers(18, 90, ROWS).astype(float),
        }
    )


def encode(encoder: Any, model: Any) -> Any:
    columns = make_column_transformer((StandardScaler(), NUMBERS), (encoder, CATEGORIES))
    return make_pipeline(columns, model)


def one_hot(model: Any, **options: Any) -> Any:
    return encode(OneHotEncoder(**{"handle_unknown": "ignore", **options}), model)


ORDINAL = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1)
MODELS: dict[str, Any] = {
    "tree": one_hot(DecisionTreeClassifier(max_depth=8, random_state=0)),
    "deep tree": one_hot(DecisionTreeClassifier(random_state=0)),
    "forest": one_hot(RandomForestClassifier(30, random_state=0)),
    "boosted": one_hot(GradientBoostingRegressor(n_estimators=20, random_state=0)),
    "rare": one_hot(
        RandomForestClassifier(8, max_depth=6, random_state=0),
        handle_unknown="infrequent_if_exist",
        min_frequency=30,
    ),
    "logistic": one_hot(LogisticRegression(max_iter=30)),
    "dropped": one_hot(LogisticRegression(max_iter=30), drop="first"),
    "ordinal": encode(ORDINAL, Boosting(max_iter=10)),
    "target": encode(TargetEncoder(random_state=0), LogisticRegression(max_iter=30)),
}


@pytest.fixture(scope="module")
def con() -> Iterator[sqlml.Session]:
    rows = make_rows(0)
    label = (rows["size"] + rows.level % 3 + rows.member + (rows.site % 7 == 0) > 2).astype(int)
    with sqlml.connect() as con:
        for name, model in MODELS.items():
            con.create_model(name, model.fit(rows, label), verify=False)
        con.register("given", make_rows(1, SITES + 300))
        con.execute(
            "CREATE TABLE t AS SELECT row_number() OVER () AS id, * REPLACE (day::DATE AS day) "
            "FROM given"
        )
        con.unregister("given")
        yield con


def find_call(name: str) -> str:
    is_classifier = hasattr(MODELS[name], "predict_proba")
    return f"predict_proba('{name}', *, class := 1)" if is_classifier else f"predict('{name}', *)"


def ask_library(name: str, rows: pd.DataFrame) -> np.ndarray:
    model = MODELS[name]
    return (
        model.predict_proba(rows)[:, 1] if hasattr(model, "predict_proba") else model.predict(rows)
    )


@pytest.mark.parametrize("name", MODELS)
def test_scores_are_those_of_the_library(con: sqlml.Session, name: str) -> None:
    call = find_call(name)
    with np.errstate(all="ignore"):
        want = ask_library(name, make_rows(1, SITES + 300))
    got = con.execute(f"SELECT {call} AS p FROM t ORDER BY id").fetchnumpy()["p"]
    np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-15)
    few = con.execute(f"SELECT {call} AS p FROM t WHERE id <= 5 ORDER BY id").fetchnumpy()["p"]
    np.testing.assert_array_equal(few, got[:5])
    if duckdb.__version__ >= "2":
        plan = con.plan(f"SELECT {call} FROM t")
        assert plan is not None and str(plan.calls[0].route) == "native, without Python"


@pytest.mark.parametrize("strategy", BACKENDS["native"].strategies)
@pytest.mark.parametrize("name", ["tree", "forest", "boosted", "rare"])
def test_each_kernel_gives_the_same(con: sqlml.Session, name: str, strategy: str) -> None:
    call = find_call(name)
    query = f"SELECT {call} AS p FROM t ORDER BY id"
    want = con.execute(query).fetchnumpy()["p"]
    con.execute(f"SET sqlml_strategy = '{strategy}'")
    try:
        got = con.execute(query).fetchnumpy()["p"]
    except sqlml.errors.BackendError as error:
        assert "too many leaves, thresholds or categories" in str(error)
    else:
        np.testing.assert_array_equal(got, want)
    finally:
        con.execute("RESET sqlml_strategy")


@pytest.mark.parametrize("name", ["tree", "logistic", "ordinal"])
def test_a_missing_category_is_an_unknown_one(con: sqlml.Session, name: str) -> None:
    rows = make_rows(1, SITES + 300).head(50)
    unknown = rows.assign(site=-1, level=100, member=2, day=pd.Timestamp("2050-01-01"), plan="?")
    with np.errstate(all="ignore"):
        want = ask_library(name, unknown)
    # An untyped NULL is an INTEGER in DuckDB 1.5.
    nulls = ", ".join(f"if(id < 0, {column}, NULL) AS {column}" for column in CATEGORIES)
    query = f"SELECT {find_call(name)} AS p FROM (SELECT * REPLACE ({nulls}) FROM t WHERE id <= 50)"
    got = con.execute(query).fetchnumpy()["p"]
    np.testing.assert_allclose(sorted(got), sorted(want), rtol=1e-12)
