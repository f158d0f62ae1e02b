"""Columns of dates and timestamps feed models that were fitted on them, wherever one is called."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import sqlml
from sqlml import errors
from sqlml.catalog.catalog_connection import IS_DUCKDB_2

RANDOM = np.random.default_rng(0)
ROWS = pd.DataFrame(
    {
        "signup": pd.Timestamp("2020-01-01")
        + pd.to_timedelta(RANDOM.integers(0, 10**9, 200), unit="s"),
        "seen": pd.Timestamp("2021-01-01")
        + pd.to_timedelta(RANDOM.integers(0, 10**9, 200), unit="s"),
        "x": RANDOM.normal(size=200),
    }
)
ROWS.loc[3, "seen"] = pd.NaT
Y = (ROWS["signup"].dt.month > 6).astype(int)


class Dates(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """What people make of dates, and its SQL."""

    def fit(self, X: Any, y: Any = None) -> Dates:
        return self

    def transform(self, X: Any) -> Any:
        days = (X["seen"].dt.normalize() - X["signup"].dt.normalize()).dt.days
        parts = X["signup"].dt.month, X["signup"].dt.dayofweek, X["signup"].dt.hour
        return np.column_stack([*parts, days.fillna(-1), X["seen"].isna()]).astype(float)

    def to_sql(self, columns: Any) -> dict[str, str]:
        return {
            "month": "month(signup)",
            "weekday": "isodow(signup) - 1",
            "hour": "hour(signup)",
            "days": "coalesce(date_diff('day', signup, seen), -1)",
            "gone": "seen IS NULL",
        }


COLUMNS = ColumnTransformer([("d", Dates(), ["signup", "seen"]), ("s", StandardScaler(), ["x"])])
MODEL = make_pipeline(COLUMNS, LogisticRegression(max_iter=500)).fit(ROWS, Y)
WANT = MODEL.predict_proba(ROWS)[:, 1]
CALL = "SELECT predict_proba('m', *, class := 1) AS p FROM "


@pytest.fixture(scope="module")
def con() -> Iterator[sqlml.Session]:
    with sqlml.connect() as made:
        made.create_model("m", MODEL)
        made.execute("CREATE TABLE t AS SELECT * FROM ROWS")
        yield made


def given(con: sqlml.Session, rows: str) -> Any:
    return con.sql(CALL + rows).fetchnumpy()["p"]


@pytest.mark.parametrize("backend", ["native", "sql", "onnxruntime", "torch"])
def test_timestamps(con: sqlml.Session, backend: str) -> None:
    con.execute(f"SET sqlml_backend = '{backend}'")
    np.testing.assert_allclose(given(con, "t"), WANT, rtol=1e-12)
    con.execute("RESET sqlml_backend")


def test_dates_and_other_resolutions(con: sqlml.Session) -> None:
    con.execute(
        "CREATE TABLE d AS SELECT signup::DATE AS signup, seen::TIMESTAMP_S AS seen, x FROM t"
    )
    rows = ROWS.assign(signup=ROWS["signup"].dt.normalize())
    np.testing.assert_allclose(given(con, "d"), MODEL.predict_proba(rows)[:, 1], rtol=1e-12)
    nanoseconds = "(SELECT signup::TIMESTAMP_NS AS signup, seen::TIMESTAMP_MS AS seen, x FROM t)"
    np.testing.assert_allclose(given(con, nanoseconds), WANT, rtol=1e-12)


def test_infinity_counts_as_missing(con: sqlml.Session) -> None:
    one = "(SELECT * REPLACE ('infinity'::TIMESTAMP AS seen) FROM t LIMIT 1)"
    none = "(SELECT * REPLACE (NULL::TIMESTAMP AS seen) FROM t LIMIT 1)"
    assert given(con, one) == given(con, none)


@pytest.mark.parametrize(
    ("value", "fix"),
    [
        ("'2024-07-01'", r"CAST\(.*'2024-07-01'.* AS TIMESTAMP\)"),
        ("3", "takes dates and timestamps without a time zone"),
        ("TIMESTAMPTZ '2024-07-01 00:00:00+00'", r"timezone\('UTC', "),
    ],
)
def test_what_is_no_date_is_refused(con: sqlml.Session, value: str, fix: str) -> None:
    with pytest.raises(errors.ColumnTypeError, match=fix):
        con.sql(f"SELECT predict('m', * REPLACE ({value} AS signup)) FROM t")


def test_what_the_model_reads_is_told(con: sqlml.Session) -> None:
    assert dict(con.model("m").inputs) == {
        "signup": "TIMESTAMP",
        "seen": "TIMESTAMP",
        "x": "DOUBLE",
    }
    assert "seen TIMESTAMP" in str(con.explain("SELECT predict('m', *) FROM t"))
    told = con.sql("SELECT * FROM ml_feature_info(MODEL m)").fetchall()
    assert [row[1] for row in told] == ["TIMESTAMP", "TIMESTAMP", "DOUBLE"]


def test_contributions_are_per_date(con: sqlml.Session) -> None:
    ((made,),) = con.sql(
        "SELECT explain('m', *, background := (FROM t LIMIT 20)) FROM t LIMIT 1"
    ).fetchall()
    assert abs(made["signup"]) > abs(made["seen"]) + abs(made["x"])


@pytest.mark.skipif(not IS_DUCKDB_2, reason="1.5 makes a struct of all columns of a row")
def test_a_plain_connection(tmp_path: Path) -> None:
    with duckdb.connect(str(tmp_path / "shop.duckdb")) as plain, sqlml.attach(plain) as con:
        con.create_model("m", MODEL)
        plain.execute("CREATE TABLE t AS SELECT * FROM ROWS")
        told = plain.execute("SELECT predict_proba('m', t, 1) FROM t").fetchall()
        np.testing.assert_allclose([p for (p,) in told], WANT, rtol=1e-12)
        with pytest.raises(duckdb.Error, match="takes dates, but the column is VARCHAR"):
            plain.execute("SELECT predict('m', r) FROM (SELECT * REPLACE ('a' AS seen) FROM t) r")


def test_files_keep_what_is_a_date(con: sqlml.Session, tmp_path: Path) -> None:
    con.execute(f"EXPORT MODEL m TO '{tmp_path / 'm.sqlml'}'")
    con.execute(f"CREATE MODEL again FROM '{tmp_path / 'm.sqlml'}'")
    np.testing.assert_allclose(
        con.sql(CALL.replace("'m'", "'again'") + "t").fetchnumpy()["p"], WANT, rtol=1e-12
    )
    assert con.model("again").inputs["seen"] == "TIMESTAMP"
    with pytest.raises(errors.ConfigError, match="the model reads it as a date or timestamp"):
        con.create_model("n", MODEL, inputs={"signup": "VARCHAR", "seen": "DATE", "x": "DOUBLE"})


@pytest.mark.parametrize(
    "rows",
    [
        ROWS,
        ROWS.astype({"signup": "datetime64[ns]", "seen": "datetime64[s]"}),
        ROWS.astype({"signup": "timestamp[us][pyarrow]"}),
        pl.from_pandas(ROWS),
        pa.Table.from_pandas(ROWS),
        ROWS.astype(object).where(ROWS.notna(), None).to_dict("records"),
        ROWS.to_dict("list"),
    ],
    ids="pandas units arrow-backed polars arrow records mapping".split(),
)
def test_a_scorer_takes_dates_as_people_hold_them(rows: Any) -> None:
    np.testing.assert_allclose(sqlml.compile(MODEL).predict_proba(rows)[:, 1], WANT, rtol=1e-12)


def test_a_scorer_takes_days() -> None:
    rows = ROWS.assign(signup=ROWS["signup"].dt.normalize())
    days = ROWS.assign(signup=[datetime.date(d.year, d.month, d.day) for d in ROWS["signup"]])
    np.testing.assert_allclose(
        sqlml.compile(MODEL).predict_proba(days), MODEL.predict_proba(rows), rtol=1e-12
    )


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (ROWS.assign(signup=1), "takes dates, but the column is int64"),
        (ROWS.assign(signup="2020-01-01"), "takes dates, but the column is .*string"),
        (ROWS.assign(signup=ROWS["signup"].dt.tz_localize("UTC")), "dates without a time zone"),
        (np.zeros((2, 3)), "takes dates, but the column is one of an array of numbers"),
    ],
)
def test_a_scorer_refuses_what_is_no_date(rows: Any, message: str) -> None:
    with pytest.raises(errors.InputTypeError, match=message):
        sqlml.compile(MODEL).predict(rows)


def test_categories_of_dates_travel_in_full(con: sqlml.Session) -> None:
    """Beside no number, which would make DOUBLEs of all: FLOAT holds no microseconds."""
    days = ROWS[["signup"]]
    model = make_pipeline(OneHotEncoder(handle_unknown="error"), LogisticRegression()).fit(days, Y)
    con.create_model("by_day", model)
    got = con.sql("SELECT predict_proba('by_day', *, class := 1) AS p FROM t").fetchnumpy()["p"]
    np.testing.assert_allclose(got, model.predict_proba(days)[:, 1], rtol=1e-12)
