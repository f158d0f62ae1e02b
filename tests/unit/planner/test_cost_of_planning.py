"""Planning takes time in proportion to the statement: work is counted, not timed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.tree import DecisionTreeRegressor

import sqlml
from sqlml.planner.rewrites import short_probes

COLUMNS = list("abcd")
SMALL, LARGE = 40, 160


@pytest.fixture(scope="module")
def con() -> Iterator[sqlml.Session]:
    x = pd.DataFrame(np.random.default_rng(0).normal(size=(200, 4)), columns=COLUMNS)
    with sqlml.connect() as con:
        con.create_model("m", DecisionTreeRegressor(max_depth=8).fit(x, x.a + x.b))
        con.execute("CREATE TABLE t AS SELECT 1.0::DOUBLE AS a, 2.0 AS b, 3.0 AS c, 4.0 AS d")
        yield con


def union(n: int) -> str:
    return " UNION ALL ".join(f"SELECT predict('m', *) AS p FROM t WHERE a > {k}" for k in range(n))


def calls(n: int) -> str:
    one = "predict('m', a := a + {}, b := b, c := c, d := d)"
    return f"SELECT {', '.join(map(one.format, range(n)))} FROM t"


def subqueries(n: int) -> str:
    one = "(SELECT max(predict('m', *)) FROM t WHERE a > {})"
    return f"SELECT {', '.join(map(one.format, range(n)))}"


def filters(n: int) -> str:
    """Calls that are made in FROM."""
    one = "SELECT predict('m', *) AS p FROM t WHERE predict('m', *) > {} ORDER BY predict('m', *)"
    return " UNION ALL ".join(f"({one.format(k)})" for k in range(n))


def definitions(n: int) -> str:
    one = "c{0} AS (SELECT predict('m', *) AS p FROM t WHERE a > {0})"
    return f"WITH {', '.join(map(one.format, range(n)))} SELECT * FROM c0, c{n - 1}"


def chain(n: int) -> str:
    """Definitions of which each reads the one before."""
    one = "c{} AS (SELECT a, b, c, d, predict('m', a, b, c, d) AS p FROM {})"
    definitions = [one.format(k, f"c{k - 1}" if k else "t") for k in range(n)]
    return f"WITH {', '.join(definitions)} SELECT * FROM c{n - 1}"


def nested(n: int) -> str:
    query = "SELECT a, b, c, d, predict('m', *) AS p FROM t"
    for k in range(1, n):
        filtered = f"({query} UNION ALL FROM t SELECT *, 1) q{k} WHERE predict('m', q{k}.*) > {k}"
        query = f"SELECT a, b, c, d, 1 AS p FROM {filtered}"
    return query


def parameters(n: int) -> str:
    one = "predict('m', ${}, b, c, d)"
    return f"SELECT {', '.join(map(one.format, range(1, n + 1)))} FROM t"


def events(con: sqlml.Session, query: str, values: Any = None) -> int:
    """How many functions are called and left while a statement is planned."""
    count = 0

    def tick(*_: Any) -> None:
        nonlocal count
        count += 1

    sys.setprofile(tick)
    try:
        plan = con.plan(query, values)
    finally:
        sys.setprofile(None)
    assert plan is not None and len(plan.calls) > 1
    return count


@pytest.mark.by_day(2)
@pytest.mark.parametrize(
    "statement",
    [
        union,
        calls,
        definitions,
        chain,
        nested,
        *(pytest.param(s, marks=pytest.mark.nightly) for s in (subqueries, filters, parameters)),
    ],
)
def test_four_times_the_statement_is_four_times_the_work(
    con: sqlml.Session, statement: Callable[[int], str]
) -> None:
    small, large = (values(statement, n) for n in (SMALL, LARGE))
    con.plan(statement(2), values(statement, 2))  # what is done once
    assert events(con, statement(LARGE), large) < 4.4 * events(con, statement(SMALL), small)


def values(statement: Callable[[int], str], n: int) -> list[int] | None:
    return list(range(n)) if statement is parameters else None


@pytest.mark.parametrize("statement", [union, subqueries, filters, definitions, chain, nested])
def test_short_probes_plan_the_same_sql(
    con: sqlml.Session, statement: Callable[[int], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    plans = []
    for few_queries in (1, 100):
        monkeypatch.setattr(short_probes, "_FEW_QUERIES", few_queries)
        with con.cursor() as other:  # It has no plans yet.
            plans.append(other.plan(statement(12)))
    first, second = plans
    assert first is not None and second is not None and first.sql == second.sql


def test_recursive_and_correlated_queries_keep_their_text(
    con: sqlml.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(short_probes, "_FEW_QUERIES", 1)
    recursive = (
        "WITH RECURSIVE r AS (SELECT 1 AS n, predict('m', *) AS p FROM t UNION ALL "
        "SELECT n + 1, (SELECT max(predict('m', t.*)) FROM t WHERE a < n) FROM r WHERE n < 4) "
        "SELECT n, p, predict('m', n, p, 1, 2) IS NULL FROM r ORDER BY n"
    )
    assert [row[0] for row in con.execute(recursive).fetchall()] == [1, 2, 3, 4]
    correlated = (
        "SELECT predict('m', q.*) = predict('m', t.*), s FROM t, "
        "LATERAL (SELECT t.a, t.b, t.c, t.d, NULL AS n, predict('m', t.*) AS s) AS q(a, b, c, d)"
    )
    assert con.execute(correlated).fetchone()[0] is True
