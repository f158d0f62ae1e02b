"""The FROM clause that can take a column more, and the filters that may go below it."""

from __future__ import annotations

import pytest

from sqlml.planner.rewrites.widened_from import find_source
from sqlml.planner.syntax.outline import WidenableSource
from sqlml.planner.syntax.read_outline import read_outline

CALL = "predict('m', *)"


def source(sql: str) -> WidenableSource | None:
    """Of the last call of a statement in Spark's words."""
    outline = read_outline(sql, "spark")
    return find_source(outline.calls[-1], outline)


def filters(sql: str) -> list[str]:
    found = source(sql)
    assert found is not None
    return [sql[place.start : place.end] for place in found.filters]


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        (f"SELECT a FROM t WHERE b > 1 AND {CALL} = 2 AND c IN (1, 2)", ["b > 1", "c IN (1, 2)"]),
        (f"SELECT a FROM t WHERE b BETWEEN 1 AND 2 AND {CALL} = 2", ["b BETWEEN 1 AND 2"]),
        (f"SELECT a FROM t WHERE (b OR c) AND {CALL} = 2", ["(b OR c)"]),
        (f"SELECT a FROM t WHERE b OR {CALL} = 2", []),
        (f"SELECT {CALL} FROM t", []),
        (f"INSERT INTO x REPLACE WHERE d > 0 SELECT a FROM t WHERE b AND {CALL} = 2", ["b"]),
        (f"INSERT INTO x REPLACE WHERE d > 0 SELECT {CALL} FROM t", []),
        (f"WITH s AS (SELECT * FROM t) INSERT INTO x SELECT {CALL} FROM s WHERE b", ["b"]),
        (f"WITH s AS (SELECT 1) SELECT {CALL} FROM s WHERE b AND insert", ["b", "insert"]),
        (f"INSERT INTO x WITH s AS (SELECT 1) SELECT a FROM s WHERE b AND {CALL} = 2", ["b"]),
        (f"CREATE TABLE x AS SELECT a FROM t WHERE b AND {CALL} = 2", ["b"]),
    ],
)
def test_filters(sql: str, expected: list[str]) -> None:
    assert filters(sql) == expected


@pytest.mark.parametrize(
    "sql",
    [
        f"SELECT {CALL} FROM t, u",
        f"SELECT {CALL} FROM t JOIN u USING (a)",
        f"SELECT {CALL}, t FROM t",
        f"SELECT {CALL}, struct(t.*) FROM t",
        f"FROM t INSERT OVERWRITE x SELECT {CALL} WHERE b",
        f"FROM t INSERT INTO x SELECT {CALL} INSERT INTO y SELECT a WHERE b",
        f"UPDATE t SET a = {CALL}",
        f"DELETE FROM t WHERE {CALL} = 1",
        f"MERGE INTO t USING u ON t.a = u.a WHEN MATCHED THEN UPDATE SET a = {CALL}",
        f"FROM t |> WHERE b |> SELECT {CALL}",
    ],
)
def test_clauses_that_must_stay_as_they_are(sql: str) -> None:
    assert source(sql) is None
