"""Macros of plain connections for models that read very many columns."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import sqlml
from sqlml.planner.model_sql.macro_bodies import MAX_SCANNED_COLUMNS

pytestmark = pytest.mark.version

WIDTH = MAX_SCANNED_COLUMNS + 20
NAMES = [f"it's {k}" if k == 7 else f"c{k}" for k in range(WIDTH)]
IS_2 = not duckdb.__version__.startswith("1.")


@pytest.fixture(scope="module")
def con() -> Iterator[sqlml.Session]:
    """Wide rows of many types, with NULLs, and models of them."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.integers(-9, 9, (300, WIDTH)).astype(float), columns=NAMES)
    frame.iloc[::7, 3] = np.nan
    frame["plan"] = rng.choice(["a", "b", "c;DOUBLE"], 300)
    columns = make_column_transformer(
        (SimpleImputer(), NAMES), (OneHotEncoder(handle_unknown="ignore"), ["plan"])
    )
    kind = np.where(frame["c0"] > frame["c1"], "up", "it's down")
    sql = ", ".join(
        f'"{n}"::{("DOUBLE", "FLOAT", "SMALLINT", "DECIMAL(9, 2)")[k % 4]} AS "{n}"'
        for k, n in enumerate(NAMES)
    )
    con = sqlml.connect()
    con.connection.register("given", frame)
    con.execute(f"CREATE TABLE t AS SELECT row_number() OVER () AS id, {sql}, plan FROM given")
    con.create_model(
        "kind", make_pipeline(columns, LogisticRegression()).fit(frame, kind), verify=False
    )
    x = frame[NAMES].fillna(0.0)
    con.create_model(
        "strict", LinearRegression().fit(x, x.sum(axis=1)), on_null="null", verify=False
    )
    yield con
    con.close()


@pytest.mark.parametrize(
    "call, starred",
    [
        ("predict('kind', t)", "predict('kind', *)"),
        ("predict_proba('kind', t)['up']", "predict_proba('kind', *)['up']"),
        ("predict_proba('kind', t, 'up')", "predict_proba('kind', *, class := 'up')"),
        ("predict_score('kind', t)", "predict_score('kind', *)"),
        ("predict('strict', t)", "predict('strict', *)"),
    ],
)
def test_the_same_as_in_a_session(con: Any, plain: Any, call: str, starred: str) -> None:
    got = plain.execute(f"SELECT {call} FROM t ORDER BY id").fetchall()
    want = con.execute(f"SELECT {starred} FROM t ORDER BY id").fetchall()
    for (value,), (expected,) in zip(got, want, strict=True):
        assert value == (
            expected if not isinstance(expected, float) else pytest.approx(expected, rel=1e-9)
        )
    assert any(v is None for (v,) in got) is ("strict" in call)


@pytest.mark.parametrize(
    "row, says",
    [
        ("* REPLACE (c5::VARCHAR AS c5)", "feature c5 of the model takes numbers, but the column"),
        ("* REPLACE (1 AS plan)", "feature plan of the model takes strings, but the column is INT"),
        ("* EXCLUDE (c9)", 'key "c9"'),
        ("""* REPLACE ([1] AS "it's 7")""", "feature it's 7 of the model takes numbers"),
    ],
)
def test_errors_name_what_is_wrong(plain: Any, row: str, says: str) -> None:
    with pytest.raises(duckdb.Error) as error:
        plain.execute(f"SELECT predict('kind', s) FROM (SELECT {row} FROM t) s").fetchall()
    assert says in str(error.value)


def test_parameters_and_nulls_without_a_type_are_numbers(con: Any, plain: Any) -> None:
    query = "SELECT {} FROM (SELECT * REPLACE (NULL AS c3) FROM t) s ORDER BY id"
    got = plain.execute(query.format("predict_score('kind', s)")).fetchall()
    want = con.execute(query.format("predict_score('kind', *)")).fetchall()
    assert [v for (v,) in got] == pytest.approx([v for (v,) in want], rel=1e-9)


@pytest.mark.parametrize("width", [MAX_SCANNED_COLUMNS, 2 * MAX_SCANNED_COLUMNS])
def test_a_subquery_chooses_what_is_scanned(con: Any, plain: Any, width: int) -> None:
    names = ", ".join(f"c{k}" for k in range(width))
    x = np.random.default_rng(1).normal(size=(width, width))
    con.create_model("w", LinearRegression().fit(x, x[:, 0]), inputs=names.split(", "))
    values = ", ".join(f"{k}.5 AS c{k}" for k in range(width))
    con.execute(f"CREATE OR REPLACE TABLE wide AS SELECT {values}, 1 AS other")
    ((_, plan),) = plain.execute(
        f"EXPLAIN SELECT predict('w', s) FROM (SELECT {names} FROM wide) s"
    ).fetchall()
    con.execute("DROP MODEL w")
    assert "other" not in plan


def test_planning_takes_time_in_proportion_to_the_columns(con: Any, plain: Any) -> None:
    taken = []
    for width in (100, 1600):
        x = np.random.default_rng(1).normal(size=(4, width))
        names = [f"c{k}" for k in range(width)]
        con.create_model("w", LinearRegression().fit(x, x[:, 0]), inputs=names, verify=False)
        con.execute(
            f"CREATE OR REPLACE TABLE w AS SELECT {', '.join(f'1.5 AS {n}' for n in names)}"
        )
        rounds = []
        for _ in range(2):
            begin = time.process_time()
            plain.execute("SELECT predict('w', w) FROM w").fetchall()
            rounds.append(time.process_time() - begin)
        taken.append(min(rounds))
        con.execute("DROP MODEL w")
    assert taken[1] < 80 * taken[0]  # 16 times the columns; their square would be 256 times
