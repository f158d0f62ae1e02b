"""Statements that write: what they insert is scored, and planning inserts nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
import pytest

from tests.spark.conftest import FEATURES

CALL = "predict('churn', *)"


@pytest.fixture
def target(spark: Any) -> Iterator[str]:
    spark.sql("CREATE TABLE written (id BIGINT, y STRING) USING parquet")
    yield "written"
    spark.sql("DROP TABLE written")


@pytest.mark.by_day(4)
@pytest.mark.parametrize(
    "statement",
    [
        f"INSERT INTO written SELECT id, {CALL} FROM customers",
        f"WITH s AS (SELECT * FROM customers) INSERT INTO written SELECT id, {CALL} FROM s",
        f"WITH s AS (SELECT *, {CALL} AS y FROM customers) INSERT INTO written SELECT id, y FROM s",
        f"FROM customers INSERT INTO written SELECT id, {CALL}",
        f"FROM customers INSERT INTO written SELECT id, {CALL} WHERE id < 1500 "
        f"INSERT INTO written SELECT id, {CALL} WHERE id >= 1500",
        f"INSERT OVERWRITE written SELECT id, {CALL} FROM customers WHERE {CALL} IS NOT NULL",
        f"INSERT INTO written FROM customers |> SELECT id, {CALL} AS y",
    ],
)
def test_inserting(con: Any, target: str, frame: pd.DataFrame, churn: Any, statement: str) -> None:
    con.sql(statement)
    found = [tuple(row) for row in con.sql("SELECT * FROM written ORDER BY id").collect()]
    assert found == list(zip(frame.id, churn.predict(frame[FEATURES]), strict=True))


@pytest.mark.parametrize(
    "query", [f"SELECT id, {CALL} AS y FROM customers", f"FROM customers |> SELECT id, {CALL} AS y"]
)
def test_a_table_of_scores(con: Any, frame: pd.DataFrame, churn: Any, query: str) -> None:
    con.sql(f"CREATE TABLE scored USING parquet AS {query}")
    try:
        found = [tuple(row) for row in con.sql("SELECT * FROM scored ORDER BY id").collect()]
    finally:
        con.sql("DROP TABLE scored")
    assert found == list(zip(frame.id, churn.predict(frame[FEATURES]), strict=True))


def test_values_call_no_model(con: Any) -> None:
    from pyspark.errors import AnalysisException

    with pytest.raises(AnalysisException, match="UNION ALL"):
        con.sql("VALUES (1, predict('churn', age := 1, income := 2, plan := 'pro'))")
