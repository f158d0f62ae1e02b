"""Equal calls are written alike wherever the engine compares them: in all clauses, at any depth.

The engine finds a call of SELECT in GROUP BY only if both have the same text. Each query here runs
with calls, and with a column that holds the library's predictions instead of them.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.tree import DecisionTreeClassifier

import sqlml
from tests.e2e.corpus import check_rows

pytestmark = pytest.mark.version

MODELS = {
    "function": KNeighborsClassifier(3),  # refuses NULL, so that it may be volatile
    "inline": LogisticRegression(),  # refuses NULL, too, and is written as a sum
    "lenient": DecisionTreeClassifier(max_depth=4),
}

SPELLINGS = ("*", "t.*", "a, b", "b := b, a := a", "A, t.b")
"""Arguments that mean the same in a query of `t`."""

LIKE = "(round(t.a) + 1)"
"""An expression of DuckDB's own that the engine must find in GROUP BY as it finds a call."""

# Y stands for a label, and Q for the probability of a class.
CLAUSES = (
    "SELECT Y AS p, count(*) AS n FROM t GROUP BY Y",
    "SELECT Y AS p, count(*) AS n FROM t GROUP BY p",
    "SELECT Y AS p, count(*) AS n FROM t GROUP BY ALL",
    "SELECT Y + 1 AS p, count(*) AS n FROM t GROUP BY Y",
    "SELECT Y AS p, round(Q, 2) AS q, count(*) AS n FROM t GROUP BY Y, Q",
    "SELECT Y AS p, max(Q) AS q, count(*) FILTER (Y = 1) AS n FROM t GROUP BY Y",
    "SELECT Y AS p, count(*) AS n FROM t GROUP BY Y HAVING Y > 0",
    "SELECT round(Q, 2) AS q, count(*) AS n FROM t GROUP BY Q HAVING Q > 0.3",
    "SELECT Q > 0.3 AS q, count(*) AS n FROM t GROUP BY Q > 0.3 HAVING Q > 0.3",
    "SELECT Y AS p, count(*) AS n FROM t WHERE Y < 2 GROUP BY Y HAVING count(*) > 1",
    "SELECT Y AS p, count(*) AS n FROM t GROUP BY Y ORDER BY Y",
    "SELECT Y AS p, count(*) AS n FROM t GROUP BY ROLLUP (Y)",
    "SELECT Y AS p, k, grouping(Y) AS n FROM t GROUP BY CUBE (Y, k)",
    "SELECT Y > 0 AS p, k > 2 AS k, count(*) AS n FROM t GROUP BY CUBE (Y > 0, k > 2)",
    "SELECT Y AS p, Q > 0.3 AS q FROM t GROUP BY GROUPING SETS ((Y), Q > 0.3, ())",
    "SELECT DISTINCT Y AS p FROM t ORDER BY Y",
    "SELECT DISTINCT ON (Y) Y AS p, k FROM t ORDER BY Y, k",
    "SELECT k, Y AS p FROM t ORDER BY Y, k LIMIT 5",
    "SELECT k, rank() OVER (PARTITION BY Y ORDER BY k) AS n FROM t",
    "SELECT k, coalesce(count(*) OVER (PARTITION BY Y), 0) AS n, Y AS p FROM t",
    "SELECT k, rank() OVER w AS n FROM t WINDOW w AS (PARTITION BY Y ORDER BY Q > 0.3, k)",
    "SELECT Y AS p, rank() OVER (ORDER BY Y) AS n FROM t GROUP BY Y",
    "SELECT k, Y AS p FROM t QUALIFY row_number() OVER (PARTITION BY Y ORDER BY k) = 1",
    "SELECT k FROM t QUALIFY max(Y) OVER (PARTITION BY k % 3) > 0 AND Y <> 1",
    "SELECT string_agg(DISTINCT Y::VARCHAR, ',' ORDER BY Y::VARCHAR) AS p FROM t",
    "SELECT sum(Y) FILTER (Y > 0) AS p, max(Q) AS q FROM t",
    "SELECT Y AS p, p + 1 AS n, Y + Q AS q FROM t",
    "SELECT Y AS p, TRY(Y) AS n FROM t",
    "SELECT Y AS p, (SELECT max(u.k) FROM u WHERE u.k > Y) AS n FROM t GROUP BY Y",
    "SELECT (SELECT Y) AS p, count(*) AS n FROM t GROUP BY Y",
    "SELECT max(k) AS k FROM t GROUP BY Y HAVING EXISTS (SELECT 1 FROM u WHERE u.k > Y)",
    "SELECT t.k, Y AS p FROM t JOIN u ON Y = u.k % 3 GROUP BY t.k, Y",
    "SELECT t.k, Y AS p FROM t LEFT JOIN u ON t.k = u.k AND Y > 0 GROUP BY t.k, Y",
    "FROM t SELECT Y AS p, count(*) AS n GROUP BY Y",
    "SELECT Y AS p FROM t GROUP BY Y UNION ALL SELECT round(Q, 2) FROM t GROUP BY Q",
    "SELECT z.p, count(*) AS n FROM t, LATERAL (SELECT Y AS p) z GROUP BY z.p",
    "SELECT Y IN (SELECT Y FROM t GROUP BY Y) AS p FROM t GROUP BY Y",
    "SELECT p, count(*) AS n FROM (VALUES (1), (2)) v(i), (SELECT Y AS p FROM t) GROUP BY p",
    "SELECT Y AS p, count(*) AS n FROM r LEFT JOIN t USING (k) WHERE t.a > 1 GROUP BY Y",
)

# A row a level: statements, of which the last is a query.
LEVELS = (
    ("{q}",),
    ("SELECT * FROM ({q}) x",),
    ("WITH x AS ({q}) SELECT * FROM x WHERE x IS NOT NULL",),
    ("WITH x AS MATERIALIZED ({q}), y AS (FROM x) FROM y UNION ALL FROM x",),
    ("SELECT (SELECT count(*) FROM ({q}) x WHERE x IS NOT NULL)",),
    ("SELECT u.k, (SELECT count(*) FROM ({q}) x WHERE u.k > 1) FROM u",),
    ("SELECT u.k FROM u WHERE u.k IN (SELECT count(*) FROM ({q}) x) OR EXISTS ({q})",),
    ("SELECT u.k, x.* FROM u, LATERAL ({q}) x WHERE u.k < 3",),
    ("SELECT u.k, x.* FROM u LEFT JOIN ({q}) x ON true",),
    ("({q}) UNION ALL ({q})",),
    ("CREATE OR REPLACE TEMP VIEW v AS {q}", "FROM v"),
    ("CREATE OR REPLACE TEMP MACRO m() AS TABLE {q}", "FROM m()"),
    ("CREATE OR REPLACE TEMP TABLE made AS {q}", "FROM made"),
    ("DELETE FROM d", "INSERT INTO d SELECT count(*) FROM ({q}) x", "FROM d"),
    (
        "MERGE INTO d USING (SELECT count(*) AS n FROM ({q}) x) x ON d.n = x.n "
        "WHEN NOT MATCHED THEN INSERT VALUES (x.n)",
        "FROM d",
    ),
    ("PIVOT (SELECT 1 AS one FROM ({q}) x) ON one IN (1) USING count(*)",),
    ("WITH x AS ({q}) PIVOT (SELECT count(*) AS c FROM x) ON c USING count(*)",),
    ("WITH x AS ({q}) UNPIVOT (SELECT count(*) AS c, 1::BIGINT AS d FROM x) ON c, d",),
    ("EXPLAIN {q}", "{q}"),
)


@pytest.fixture(scope="module")
def con() -> Iterator[sqlml.Session]:
    rows = pd.DataFrame({"k": np.arange(40), "a": np.arange(40) % 7.0, "b": np.arange(40) % 5.0})
    labels = (rows.a + 2 * rows.b).astype(int) % 3
    with sqlml.connect() as con:
        con.execute("CREATE TABLE t AS SELECT k, a, b FROM rows")
        con.execute("CREATE TABLE u AS SELECT i::BIGINT AS k FROM range(5) i(i)")
        con.execute("CREATE TABLE r AS SELECT i::BIGINT AS k FROM range(30, 50) i(i)")
        con.execute("CREATE TABLE d AS SELECT 0::BIGINT AS n")
        for name, model in MODELS.items():
            model.fit(rows[["a", "b"]], labels)
            con.create_model(name, model, verify=False)
            rows[f"y_{name}"] = model.predict(rows[["a", "b"]])
            rows[f"q_{name}"] = model.predict_proba(rows[["a", "b"]])[:, 1]
            for column in ("y", "q"):
                kind = "BIGINT" if column == "y" else "DOUBLE"
                con.execute(f"ALTER TABLE t ADD COLUMN {column}_{name} {kind}")
                con.execute(
                    f"UPDATE t SET {column}_{name} = rows.{column}_{name} FROM rows "
                    "WHERE rows.k = t.k"
                )
        yield con


def respelled(query: str, model: str, first: int) -> str:
    """The query with calls, whose arguments are written in turn in all ways."""
    spellings = itertools.cycle(SPELLINGS[first:] + SPELLINGS[:first])
    stars = "u" not in query.split() and "r" not in query.split() and "LATERAL" not in query

    def call(match: re.Match[str]) -> str:
        arguments = next(spellings)
        if arguments == "*" and not (stars and query.count("SELECT") == 1):
            arguments = "t.*"  # a star would have the columns of other tables, too
        if match[0] == "Y":
            return f"predict('{model}', {arguments})"
        return f"predict_proba('{model}', {arguments}, class := 1)"

    return re.sub(r"\b[YQ]\b", call, query)


def run(con: sqlml.Session, level: tuple[str, ...], query: str) -> list[Any]:
    for statement in level:
        con.execute(statement.replace("{q}", query))
    return con.fetchall()


@pytest.mark.by_day(28)
@pytest.mark.parametrize("model", list(MODELS))
@pytest.mark.parametrize("query", CLAUSES)
def test_equal_calls_in_all_clauses_at_all_levels(
    con: sqlml.Session, query: str, model: str
) -> None:
    twin = re.sub(r"\b([YQ])\b", lambda m: f"{m[0].lower()}_{model}", query)
    like = re.sub(r"\b[YQ]\b", LIKE, query)
    for k, level in enumerate(LEVELS):
        if not is_accepted(con, level, like):
            continue  # DuckDB 1.5 looks for no key of GROUP BY in a subquery, for example
        calls = respelled(query, model, k % len(SPELLINGS))
        expected = run(con, level, twin)
        assert expected or "HAVING EXISTS" in query
        check_rows(run(con, level, calls), expected, ordered=False)


def is_accepted(con: sqlml.Session, level: tuple[str, ...], query: str) -> bool:
    """Whether DuckDB accepts the query with calls of a function of its own."""
    try:
        run(con, level, query)
    except duckdb.Error:
        return False
    return True


def test_duckdb_accepts_the_queries(con: sqlml.Session) -> None:
    """So that the test above skips few of them."""
    pairs = list(itertools.product(CLAUSES, LEVELS))
    likes = ((level, re.sub(r"\b[YQ]\b", LIKE, query)) for query, level in pairs)
    refused = [pair for pair in likes if not is_accepted(con, *pair)]
    assert len(refused) < 0.1 * len(pairs), refused
