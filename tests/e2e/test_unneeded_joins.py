"""A LEFT JOIN that brings nothing that is read is left out, and only such a one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import Lasso, LinearRegression

import sqlml

pytestmark = pytest.mark.version

RNG = np.random.default_rng(0)
X = RNG.normal(size=(200, 3))


@pytest.fixture
def con() -> Iterator[sqlml.Session]:
    with sqlml.connect() as session:
        session.execute(
            "CREATE TABLE orders AS SELECT i AS id, i % 7 AS customer, i / 10 AS a, i % 3 AS b "
            "FROM range(50) t(i);"
            "CREATE TABLE customers (id BIGINT PRIMARY KEY, c DOUBLE, name VARCHAR);"
            "INSERT INTO customers SELECT i, i / 2, 'n' || i FROM range(5) t(i);"
            "CREATE TABLE visits AS SELECT i % 5 AS customer, i AS c FROM range(20) t(i);"
            "CREATE VIEW people AS FROM customers;"
            "CREATE TABLE codes (code VARCHAR PRIMARY KEY);"
            "INSERT INTO codes VALUES ('1'), ('01'), ('2');"
            "CREATE TABLE small (id DOUBLE PRIMARY KEY)"
        )
        session.create_model(
            "ab", LinearRegression().fit(X[:, :2], X[:, 0]), inputs=["a", "b"], verify=False
        )
        session.create_model("abc", LASSO, inputs=["a", "b", "c"], verify=False)
        session.create_model(
            "all3", LinearRegression().fit(X, X.sum(1)), inputs=["a", "b", "c"], verify=False
        )
        yield session


LASSO = Lasso(alpha=0.1).fit(X, X[:, 0] * 3)
"""The weights of b and c came out as zero."""

ABC = f"o.a * {float(LASSO.coef_[0])}::DOUBLE + {float(LASSO.intercept_)}::DOUBLE"
SCORES = {"predict('ab', o.*)": "o.a", "predict('ab', *)": "a", "predict('abc', *)": ABC}
"""The same in SQL, with which the engine makes every join."""

LEFT_OUT = [
    "SELECT o.id, predict('ab', o.*) FROM orders o LEFT JOIN customers c ON o.customer = c.id",
    "SELECT o.id, predict('abc', *) FROM orders o LEFT JOIN customers c ON c.id = o.customer",
    "SELECT o.id, predict('abc', *) FROM orders o LEFT OUTER JOIN customers AS c "
    "ON c.id = o.customer WHERE o.a > 1 ORDER BY o.id",
    "FROM orders o LEFT JOIN main.customers cu ON cu.id = o.customer SELECT predict('ab', o.*)",
    "SELECT sum(predict('ab', o.*)) FROM orders o LEFT JOIN customers c ON o.customer = c.id "
    "JOIN visits v ON v.customer = o.customer",
    "SELECT predict('ab', o.*) FROM orders o LEFT JOIN (SELECT customer, max(c) AS c FROM visits "
    "GROUP BY customer) v ON v.customer = o.customer",
    "SELECT predict('ab', o.*) FROM orders o LEFT JOIN (SELECT DISTINCT customer FROM visits) v "
    "ON v.customer = o.customer LEFT JOIN customers c ON c.id = o.customer",
    "WITH w AS (SELECT o.id, predict('ab', o.*) AS y FROM orders o LEFT JOIN customers cu "
    "ON cu.id = o.customer) SELECT sum(y) FROM w",
    "SELECT a, predict('ab', *) FROM (SELECT id AS customer, a, b FROM orders) o "
    "LEFT JOIN (SELECT DISTINCT customer FROM visits) v USING (customer)",
]

KEPT = [
    # '1' and '01' are two keys, and both are customer 1; 0.1 + 0.2 is hardly a key.
    "SELECT predict('ab', o.*) FROM orders o LEFT JOIN codes c ON o.customer = c.code",
    "SELECT predict('ab', o.*) FROM orders o LEFT JOIN codes c ON o.customer::VARCHAR = c.code",
    "SELECT predict('ab', o.*) FROM orders o LEFT JOIN small s ON o.customer = s.id",
    "SELECT predict('all3', *) FROM orders o LEFT JOIN customers c ON o.customer = c.id",
    "SELECT predict('ab', o.*), c.name FROM orders o LEFT JOIN customers c ON o.customer = c.id",
    "SELECT predict('ab', o.*), name FROM orders o LEFT JOIN customers cu ON o.customer = cu.id",
    "SELECT *, predict('ab', o.*) FROM orders o LEFT JOIN customers c ON o.customer = c.id",
    "SELECT predict('ab', o.*) FROM orders o LEFT JOIN visits v ON o.customer = v.customer",
    "SELECT predict('ab', o.*) FROM orders o LEFT JOIN people p ON o.customer = p.id",
    "SELECT predict('ab', o.*) FROM orders o JOIN customers c ON o.customer = c.id",
    "SELECT predict('ab', o.*) FROM orders o LEFT JOIN customers c ON o.customer = c.id OR o.a = 0",
    "SELECT predict('ab', o.*) FROM orders o LEFT JOIN customers c ON o.customer > c.id",
    "SELECT predict('ab', o.*) FROM orders o LEFT JOIN customers c ON o.a = c.c",
    "SELECT predict('ab', o.*) FROM orders o LEFT JOIN customers c ON o.customer = c.id "
    "WHERE c IS NULL",
    "WITH customers AS (FROM visits SELECT customer AS id) SELECT predict('ab', o.*) "
    "FROM orders o LEFT JOIN customers c ON o.customer = c.id",
    "SELECT predict('ab', o.*) FROM orders o LEFT JOIN (SELECT customer FROM visits GROUP BY "
    "customer, c) v ON v.customer = o.customer",
    "SELECT predict('ab', o.*) FROM orders o LEFT JOIN (SELECT DISTINCT customer, c FROM visits) v "
    "ON v.customer = o.customer",
    "SELECT predict('ab', o.*) FROM orders o LEFT JOIN customers c ON o.customer = c.id "
    "NATURAL JOIN visits",
    "SELECT predict('ab', o.*) FROM orders o LEFT JOIN customers c ON o.customer = c.id "
    "AND c.name = 'n1' OR true",
]


@pytest.mark.by_day(2)
@pytest.mark.parametrize("query", LEFT_OUT)
def test_the_same_rows_without_the_join(con: sqlml.Session, query: str) -> None:
    plan = con.plan(query)
    assert plan is not None and plan.dropped_joins
    assert "JOIN customers" not in plan.sql and "LEFT JOIN" not in plan.sql
    assert "join left out" in str(plan) and plan.to_dict()["dropped_joins"]
    plain = query
    for call, score in SCORES.items():
        plain = plain.replace(call, score)
    want = con.connection.execute(plain).fetchall()
    assert rounded(con.execute(query).fetchall()) == rounded(want)


def rounded(rows: list[Any]) -> list[Any]:
    return sorted([round(v, 9) if isinstance(v, float) else v for v in row] for row in rows)


@pytest.mark.by_day(4)
@pytest.mark.parametrize("query", KEPT)
def test_joins_that_may_matter_stay(con: sqlml.Session, query: str) -> None:
    plan = con.plan(query)
    assert plan is not None and not plan.dropped_joins
    assert "JOIN" in plan.sql


def test_a_key_that_is_no_longer_declared_brings_the_join_back(con: sqlml.Session) -> None:
    query = LEFT_OUT[0]
    first = con.plan(query)
    assert first is not None and first.dropped_joins and con.plan(query) is first
    con.connection.execute("CREATE OR REPLACE TABLE customers AS FROM customers")
    second = con.plan(query)
    assert second is not None and not second.dropped_joins
    con.connection.execute("INSERT INTO customers FROM customers")
    assert len(con.execute(query).fetchall()) > 50
