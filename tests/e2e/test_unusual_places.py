"""Calls where the scope is not a plain FROM clause: lambdas, macros, MERGE, ON CONFLICT .."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression
from sklearn.tree import DecisionTreeRegressor

import sqlml
from sqlml import errors


@pytest.fixture
def db() -> Iterator[sqlml.Session]:
    """A tree `m` that gives 10 * a + b exactly, for a in 1..3 and b in 0..9."""
    grid = pd.DataFrame([(a, b) for a in (1, 2, 3) for b in range(10)], columns=["a", "b"])
    tree = DecisionTreeRegressor().fit(grid, 10.0 * grid.a + grid.b)
    with sqlml.connect() as con:
        con.create_model("m", tree, verify=False)
        con.execute("CREATE TABLE t AS SELECT i AS id, i AS a, i + 3 AS b FROM range(1, 4) r(i)")
        con.execute("CREATE TABLE u AS SELECT 1 AS id, 3 AS a, 9 AS x")
        con.execute("CREATE TABLE o (id INTEGER PRIMARY KEY, a INTEGER, b INTEGER, y DOUBLE)")
        con.execute("INSERT INTO o SELECT id, a, b, 0 FROM t")
        yield con


Y = [(14.0,), (25.0,), (36.0,)]


def rows(con: sqlml.Session, query: str) -> list[tuple[object, ...]]:
    found: list[tuple[object, ...]] = con.execute(query).fetchall()
    return found


@pytest.mark.by_day(4)
@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT [predict('m', a := x, b := 1) for x in [1, 3] if x > 1]", [([31.0],)]),
        ("SELECT list_transform([1, 2], lambda x: predict('m', a := x, b := 0))", [([10.0, 20.0],)]),
        ("SELECT list_transform([{'a': 1, 'b': 2}], lambda s: predict('m', a := s.a, b := s.b))", [([12.0],)]),
        ("SELECT predict('m', COLUMNS(t.* EXCLUDE id)) FROM t JOIN u USING (id)", [(14.0,)]),
        ("SELECT predict('m', *) FROM t POSITIONAL JOIN (SELECT 1 AS z FROM range(3))", Y),
        ("SELECT predict('m', *) FROM t ASOF JOIN (SELECT 1 AS k) v ON t.id >= v.k", Y),
        ("SELECT x.id, k FROM t x ASOF JOIN (FROM range(9, 40) r(k)) v ON predict('m', x.a, x.b) >= v.k", [(1, 14), (2, 25), (3, 36)]),
        ("SELECT x.k, y.id FROM (FROM range(13, 40, 12) r(k)) x ASOF LEFT JOIN t y ON x.k >= predict('m', y.*)", [(13, None), (25, 2), (37, 3)]),
        ("SELECT predict('m', y.*) FROM (FROM range(14, 40, 12) r(k)) x ASOF JOIN t y ON x.k >= predict('m', a := y.a, b := y.b)", Y),
        ("WITH c AS (SELECT y.a, y.b FROM (SELECT 30 AS k) x ASOF JOIN t y ON x.k >= predict('m', y.*)) SELECT predict('m', *) FROM c", Y[1:2]),
        ("SELECT x.id FROM t x ASOF JOIN t y ON x.id = predict('m', y.*) - 10 * y.a - 3 AND predict('m', x.*) >= predict('m', y.*)", [(1,), (2,), (3,)]),
        ("SELECT predict('m', *) FROM (VALUES (1, 4)) v(a, b)", Y[:1]),
        ("SELECT predict('m', *) FROM (FROM t WHERE id < 3)", Y[:2]),
        ("SELECT predict('m', *) FROM t TABLESAMPLE 100%", Y),
        ("SELECT predict('m', *) FROM (SELECT unnest([1, 2]) AS a, 0 AS b)", [(10.0,), (20.0,)]),
        ("SELECT predict('m', *) FROM unnest([1, 2]) WITH ORDINALITY AS q(a, b)", [(11.0,), (22.0,)]),
        ("SELECT NULL::TIMESTAMP WITH TIME ZONE IS NULL, predict('m', *) FROM t WHERE id = 1", [(True, 14.0)]),
        ("WITH RECURSIVE r(a, b) AS (SELECT 1, 0 UNION ALL SELECT a + 1, b FROM r WHERE a < 3) SELECT predict('m', *) FROM r", [(10.0,), (20.0,), (30.0,)]),
        ("WITH RECURSIVE r AS (SELECT 1 AS a, 0 AS b, 0.0::DOUBLE AS p UNION ALL SELECT a + 1, b, predict('m', *) FROM r WHERE a < 3) SELECT p FROM r", [(0.0,), (10.0,), (20.0,)]),
        ("SELECT max(predict('m', *)) FROM t GROUP BY GROUPING SETS ((), (id)) ORDER BY 1", [*Y, Y[2]]),
        ("PIVOT (SELECT id, predict('m', *) AS y FROM t) ON id USING max(y)", [(14.0, 25.0, 36.0)]),
        ("SELECT y FROM (UNPIVOT (SELECT predict('m', *) AS p FROM t) ON p INTO NAME n VALUE y)", Y),
        ("WITH c AS (FROM t) PIVOT c ON id USING max(predict('m', a, b)) AS y GROUP BY b ORDER BY ALL", [(4, 14.0, None, None), (5, None, 25.0, None), (6, None, None, 36.0)]),
        ("WITH c AS (SELECT id, predict('m', *) AS y FROM t) PIVOT c ON id USING max(y)", [(14.0, 25.0, 36.0)]),
        ("WITH c AS (SELECT id, predict('m', *) AS p FROM t), d AS (FROM c WHERE id > 1) UNPIVOT d ON p INTO NAME n VALUE y", [(2, "p", 25.0), (3, "p", 36.0)]),
        ("PIVOT t ON predict('m', a, b) > 20 USING count(*)", [(1, 1, 0), (2, 0, 1), (3, 0, 1)]),
        ("PIVOT t ON b IN (5) USING max(id) GROUP BY a ORDER BY predict('m', a, 9 - a) DESC LIMIT 2", [(3, None), (2, 2)]),
        ("FROM (FROM t QUALIFY predict('m', max(a) OVER (), b) > 34) SELECT predict('m', a, b)", Y[1:]),
        ("SELECT id FROM t x WHERE EXISTS (SELECT q.a FROM (SELECT a, b FROM t) q GROUP BY q.a HAVING predict('m', q.a, max(q.b) - x.id) > 33)", [(1,), (2,)]),
        ("SELECT id % 2 AS k, predict('m', max(a), max(b) - id % 2) FROM t GROUP BY id % 2", [(0, 25.0), (1, 35.0)]),
        ("SELECT id % 2 AS k, predict('m', max(a), max(b) - k) FROM t GROUP BY k ORDER BY predict('m', max(a) - id % 2, 0), k", [(0, 25.0), (1, 35.0)]),
        ("SELECT id % 2 AS k FROM t GROUP BY 1 HAVING predict('m', struct_pack(a := max(a), b := max(b) - id % 2)) > 30", [(1,)]),
        ("SELECT (SELECT max(predict('m', q.a, x.b)) FROM (SELECT * FROM t WHERE id <> x.id) q) FROM t x", [(34.0,), (35.0,), (26.0,)]),
        ("SELECT predict('m', struct_pack(a := a, b := b)) FROM t", Y),
        ("SELECT predict('m', a, b), first_value(predict('m', a, b)) OVER (ORDER BY id) FROM t", [(y, 14.0) for (y,) in Y]),
        ("SELECT y FROM t, LATERAL (SELECT predict('m', a, b) AS y) ORDER BY y", Y),
        ("SELECT predict('m', \"select\", \"from\") FROM (SELECT 1 AS \"select\", 4 AS \"from\")", Y[:1]),
        ("TABLE t; SELECT predict('m', *) FROM t", Y),
    ],
)  # fmt: skip
def test_queries(db: sqlml.Session, query: str, expected: list[tuple[object, ...]]) -> None:
    found = rows(db, query)
    assert found == expected if "ORDER BY" in query else sorted(found) == sorted(expected)


@pytest.mark.skipif(
    duckdb.__version__.startswith("1."), reason="DuckDB 1.5 orders a UNION by columns alone"
)
def test_the_order_of_a_union(db: sqlml.Session) -> None:
    query = "SELECT id, a, b FROM t UNION ALL FROM u ORDER BY predict('m', *) DESC LIMIT 1"
    assert rows(db, query) == [(1, 3, 9)]


def test_on_conflict_sees_the_row_that_was_excluded(db: sqlml.Session) -> None:
    insert = "INSERT INTO o SELECT id, 3, 7, 1 FROM t WHERE id = 1 ON CONFLICT DO UPDATE SET"
    for value in ("predict('m', a := excluded.a, b := excluded.b)", "predict('m', excluded.*)"):
        db.execute(f"{insert} y = {value}")
        assert rows(db, "SELECT a, y FROM o WHERE id = 1") == [(1, 37.0)]
        db.execute("UPDATE o SET y = 0")
    db.execute(f"{insert} y = predict('m', a := o.a, b := excluded.b)")
    assert rows(db, "SELECT y FROM o WHERE id = 1") == [(17.0,)]


@pytest.mark.parametrize(
    "rest",
    [
        "o BY NAME SELECT 9 AS id, 3 AS a, 7 AS b RETURNING predict('m', *)",
        "o BY POSITION SELECT 9, 3, 7, 1 RETURNING predict('m', a, b)",
        "o (id, a, b) VALUES (9, 3, 7) RETURNING predict('m', o.*)",
    ],
)
def test_what_is_inserted_in_any_form_is_seen(db: sqlml.Session, rest: str) -> None:
    assert rows(db, f"INSERT INTO {rest}") == [(37.0,)]


def test_merge_sees_both_tables(db: sqlml.Session) -> None:
    db.execute("DELETE FROM o WHERE id = 3")
    db.execute(
        "MERGE INTO o USING t ON o.id = t.id "
        "WHEN MATCHED AND predict('m', t.*) > 20 THEN UPDATE SET y = predict('m', t.*) "
        "WHEN NOT MATCHED THEN INSERT VALUES (t.id, t.a, t.b, predict('m', a := t.a, b := t.b))"
    )
    assert rows(db, "SELECT id, y FROM o ORDER BY id") == [(1, 0.0), (2, 25.0), (3, 36.0)]


def test_macros_store_the_rewritten_text(db: sqlml.Session) -> None:
    db.execute("CREATE MACRO score(p, q) AS predict('m', a := p, b := q)")
    assert rows(db, "SELECT score(a, b) FROM t") == Y
    db.execute("CREATE MACRO scores(p) AS TABLE SELECT predict('m', a := p, b := 0) AS y")
    assert rows(db, "FROM scores(2)") == [(20.0,)]


def test_create_table_with_no_data(db: sqlml.Session) -> None:
    db.execute("CREATE TABLE empty AS SELECT id, predict('m', *) AS y FROM t WITH NO DATA")
    assert rows(db, "SELECT count(*), any_value(y) FROM empty") == [(0, None)]


@pytest.mark.parametrize(
    "column", ["y DOUBLE AS (predict('m', a := a, b := b))", "CHECK (predict('m', a, b) > 0)"]
)
def test_a_table_definition_cannot_call_a_model(db: sqlml.Session, column: str) -> None:
    with pytest.raises(errors.BindError, match="create a view"):
        db.execute(f"CREATE TABLE bad (a INTEGER, b INTEGER, {column})")


def test_an_expression_of_several_columns_is_no_feature(db: sqlml.Session) -> None:
    for query in (
        "SELECT predict('m', COLUMNS('^[ab]$') + 1) FROM t",
        "SELECT predict('m', a := COLUMNS('^[ab]$') + 1, b := 1) FROM t",
    ):
        with pytest.raises((errors.ArityError, errors.BindError)):
            db.execute(query)


def test_labels_in_a_view_over_a_view(db: sqlml.Session) -> None:
    db.execute("CREATE VIEW one AS SELECT id, predict('m', *) AS a FROM t")
    db.execute("CREATE VIEW two AS SELECT id, least(a, 3) AS a, 4 AS b FROM one")
    assert rows(db, "SELECT predict('m', *) FROM two") == [(34.0,)] * 3


def test_a_table_of_500_columns(db: sqlml.Session) -> None:
    wide = ", ".join(f"{i} AS c{i}" for i in range(500))
    db.execute(f"CREATE TABLE wide AS SELECT {wide}, a, b FROM t")
    found = db.execute("SELECT predict('m', *) FROM wide").fetchall()
    assert found == Y
    np.testing.assert_allclose([y for (y,) in found], [14, 25, 36])


def test_names_that_are_words_of_spark_alone() -> None:
    """A macro called minus is no set operator, and a column called stack no generator."""
    model = LinearRegression().fit([[1.0], [2.0]], [1.0, 2.0])
    with sqlml.connect(":memory:") as con:
        con.create_model("m", model, inputs=["a"])
        con.execute("CREATE TABLE t AS SELECT 3.0 AS a, 4 AS stack")
        con.execute("CREATE MACRO minus(x, y) AS x - y")
        found = con.execute("SELECT minus (predict('m', *), 1), stack + predict('m', *) FROM t")
        assert found.fetchall() == [pytest.approx((2.0, 7.0))]
