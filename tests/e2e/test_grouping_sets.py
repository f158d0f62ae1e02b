"""A literal that is a key of grouping sets is replaced by the engine, but not in a model's SQL."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.tree import DecisionTreeClassifier

import sqlml
from sqlml import errors
from sqlml.catalog.catalog_connection import IS_DUCKDB_2

ROWS = pd.DataFrame({"s": ["red", "blue", "green"] * 20, "a": [float(i) for i in range(60)]})
LABELS = ["yes" if (s == "red") or a > 30 else "no" for s, a in zip(ROWS.s, ROWS.a, strict=True)]


def encoded(estimator: object) -> object:
    columns = make_column_transformer((OneHotEncoder(), ["s"]), remainder="passthrough")
    return make_pipeline(columns, estimator)


@pytest.fixture(scope="module")
def con() -> Iterator[sqlml.Session]:
    with sqlml.connect() as con:
        con.register("t", ROWS)
        con.create_model("words", encoded(LogisticRegression()).fit(ROWS, LABELS))
        con.create_model("tree", encoded(DecisionTreeClassifier(max_depth=3)).fit(ROWS, LABELS))
        con.create_model("line", LinearRegression().fit(ROWS[["a"]], 1 + 2 * ROWS.a))
        yield con


CALLS = [
    "predict('words', s := max(s), a := min(a))",
    "predict('tree', s := max(s), a := min(a))",
    "predict_proba('words', s := max(s), a := min(a), class := 'yes')",
    "predict_proba('tree', s := max(s), a := min(a))['yes']",
    "explain('words', s := max(s), a := min(a))",
    "round(predict('line', a := min(a)), 6)",
]


@pytest.mark.by_day(3)
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("literal", ["'red'", "'yes'", "0.5", "1", "-2.0", "TRUE", "'x'"])
@pytest.mark.parametrize("sets", ["GROUPING SETS ((k), ())", "ROLLUP (k)", "CUBE (1)"])
def test_a_literal_does_not_change_predictions(
    con: sqlml.Session, call: str, literal: str, sets: str
) -> None:
    (expected,) = con.execute(f"SELECT {call} FROM t").fetchone()
    try:
        rows = con.execute(f"SELECT {literal} AS k, {call} AS p FROM t GROUP BY {sets}").fetchall()
    except errors.BindError as error:
        assert f"{literal} is a key of grouping sets" in str(error) and literal != "'x'"
    else:
        assert [row[1] for row in rows] == [expected, expected]
    mended = f"SELECT k, {call} AS p FROM (SELECT *, {literal} AS k FROM t) GROUP BY ROLLUP (k)"
    assert [row[1] for row in con.execute(mended).fetchall()] == [expected, expected]


@pytest.mark.parametrize("key", [1, 3])
def test_integers_are_keys_beside_maps(con: sqlml.Session, key: int) -> None:
    """The positions of the MAP's values are no literals that the engine would replace."""
    for call in (
        "predict_proba('words', s := max(s), a := min(a))",
        "explain('words', s := max(s), a := min(a), baseline := true)",
    ):
        (expected,) = con.execute(f"SELECT {call} FROM t").fetchone()
        query = f"SELECT {key} AS k, {call} AS p FROM t GROUP BY ROLLUP (k)"
        try:
            rows = con.execute(query).fetchall()
        except errors.BindError as error:
            # On DuckDB 1.5, the call contains numbers of packed columns.
            assert not IS_DUCKDB_2 and f"{key} is a key of grouping sets" in str(error)
        else:
            assert [row[1] for row in rows] == [expected, expected]


def test_literals_that_are_no_keys_are_left_alone(con: sqlml.Session) -> None:
    query = "SELECT 'red' AS k, s, predict('words', s := max(s), a := min(a)) FROM t "
    for groups in ("ROLLUP (s)", "ROLLUP (2)", "k, s", "1, s"):
        rows = con.execute(f"{query} GROUP BY {groups} ORDER BY ALL").fetchall()
        assert len(rows) == (4 if "ROLLUP" in groups else 3)


def test_literals_within_keys_are_left_alone(con: sqlml.Session) -> None:
    call = "predict('words', s := max(s), a := min(a))"
    query = f"SELECT s || 'red' AS k, -length(s || 'yes') AS j, {call} FROM t GROUP BY "
    for groups in ("ROLLUP (s || 'red', j)", "CUBE (k, 2)", "GROUPING SETS ((s || 'red'), (j))"):
        assert len(con.execute(query + groups).fetchall()) >= 4
