"""The engine's own statements pass through untouched, and nothing of ours is asked beside them."""

import json
from contextlib import suppress

import duckdb
import numpy as np
import pytest
from sklearn.tree import DecisionTreeRegressor

import sqlml
from sqlml.errors import SqlmlError

pytestmark = pytest.mark.version

IS_2 = hasattr(duckdb.DuckDBPyConnection, "complete")
WORDS = ("SELECT 'important'", "FROM imports", "SELECT 1 AS attachment", "SELECT '; ATTACH'")


@pytest.fixture
def con():
    con = sqlml.connect()
    con.execute("CREATE TABLE imports AS SELECT 1 AS a")
    return con


@pytest.fixture
def shop(tmp_path):
    """A database with a model, and a view that calls it."""
    path = tmp_path / "shop.duckdb"
    rows = np.arange(800.0).reshape(400, 2)  # A function scores such large trees.
    with sqlml.connect(path) as con:
        con.create_model(
            "m", DecisionTreeRegressor().fit(rows, rows[:, 0]), inputs=["a", "b"], verify=False
        )
        con.execute("CREATE TABLE t AS SELECT 2.0 AS a, 3.0 AS b")
        con.execute("CREATE VIEW v AS SELECT predict('m', *) AS p FROM t")
    return path


@pytest.mark.parametrize("query", WORDS)
def test_words_like_those_of_statements(con, query):
    want = con.connection.execute(query).fetchall()
    assert con.execute(query).fetchall() == want
    assert con.sql(query).fetchall() == want
    assert con.cursor().execute(f"{query} -- ?").fetchall() == want
    assert con.execute(f"SELECT * FROM ({query}) WHERE 1 = ?", [1]).fetchall() == want
    assert sqlml.attach(con.connection).execute(query).fetchall() == want
    assert con.execute(query).fetchone() == want[0]


def test_a_session_without_models_has_one_connection(con):
    con.execute("ATTACH ':memory:' AS other")
    count = "SELECT * FROM duckdb_connection_count()"
    assert con.execute(count).fetchall() == duckdb.connect().execute(count).fetchall()


@pytest.mark.skipif(not IS_2, reason="1.5 profiles a question of ours at most when a model is used")
def test_the_profile_of_attach_is_its_own(con, tmp_path):
    profile = tmp_path / "profile.json"
    con.execute("PRAGMA enable_profiling = 'json'")
    con.execute(f"SET profiling_output = '{profile}'")
    con.execute("SELECT 41 + 1").fetchall()
    before = json.loads(profile.read_text())
    profile.unlink()
    con.execute("ATTACH ':memory:' AS other")
    after = json.loads(profile.read_text()) if profile.exists() else before
    assert "duckdb_" not in json.dumps(after) and "sqlml" not in json.dumps(after)


def test_attach_needs_no_memory_of_ours(tmp_path):
    con = sqlml.connect(config={"memory_limit": "1MB"})
    con.execute(f"ATTACH '{tmp_path / 'new.duckdb'}' AS new")
    assert con.execute("SELECT 1").fetchall() == [(1,)]


def test_an_error_of_a_replacement_scan_names_the_users_line(con):
    number = 5  # noqa: F841
    with pytest.raises(duckdb.Error, match=r'test_nothing_in_between\.py:\d+"'):
        con.execute("FROM number")


def test_a_view_that_came_by_attach_is_read_at_once(con, shop):
    con.execute(f"ATTACH '{shop}' AS shop")
    assert con.connection.sql("FROM shop.v").fetchall() == [(2.0,)]


def test_a_view_that_came_in_a_transaction_is_read_behind_it(con, shop):
    """Nobody in the transaction sees a function that was made after it began."""
    con.execute("BEGIN")
    con.execute("INSERT INTO imports VALUES (2)")
    con.execute(f"ATTACH '{shop}' AS shop")
    assert con.execute("SELECT count(*) FROM shop.t").fetchall() == [(1,)]
    con.execute("COMMIT")
    assert con.connection.sql("FROM shop.v").fetchall() == [(2.0,)]
    assert con.execute("SELECT count(*) FROM imports").fetchall() == [(2,)]


def test_statements_before_a_view_whose_function_is_missing_are_not_repeated(con, shop):
    other = con.connection.cursor()
    other.execute(f"ATTACH '{shop}' AS shop")  # the session does not hear of it
    with pytest.raises(duckdb.CatalogException):
        con.execute("INSERT INTO imports VALUES (2); FROM shop.v")
    assert con.execute("SELECT count(*) FROM imports").fetchall() == [(2,)]
    assert con.execute("FROM shop.v").fetchall() == [(2.0,)]


STATEMENTS = (
    "INSERT INTO d SELECT id, predict('m', *) FROM s WHERE predict('m', *) > -9 RETURNING id",
    "INSERT INTO d SELECT id, predict('m', *) FROM s WHERE predict('m', *) > -9 "
    "ON CONFLICT DO NOTHING",
    "INSERT INTO d SELECT id, predict('m', *) FROM s WHERE predict('m', *) > -9 "
    "ON CONFLICT (id) DO UPDATE SET w = 0",
    "WITH q AS (SELECT id, predict('m', *) AS p FROM s WHERE predict('m', *) > -9) "
    "INSERT INTO d FROM q RETURNING *",
    "UPDATE s SET a = predict('m', *) WHERE predict('m', *) > -9 RETURNING predict('m', *)",
    "DELETE FROM s WHERE predict('m', *) > -9 RETURNING predict('m', *)",
    "SELECT predict('m', *) FROM s WHERE predict('m', *) > -9 ORDER BY ALL LIMIT 1",
)
MISTAKEN = (
    "SELECT predict('m', nothing) FROM s",
    "SELECT predict('m', *) FROM nowhere",
    "SELECT predict('m', *) FROM s WHERE nothing RETURNING 1",
    "INSERT INTO nowhere SELECT predict('m', *) FROM s",
    "PIVOT (SELECT predict('m', *) AS p FROM s) ON nothing",
    "SELECT predict('nobody', *) FROM s",
)


@pytest.fixture
def changing(con):
    rows = np.arange(800.0).reshape(400, 2)  # A function scores such large trees.
    con.create_model(
        "m", DecisionTreeRegressor().fit(rows, rows[:, 0]), inputs=["a", "b"], verify=False
    )
    con.execute("CREATE TABLE s AS SELECT i AS id, i / 1 AS a, 2.0::DOUBLE AS b FROM range(5) t(i)")
    con.execute("CREATE TABLE d (id INTEGER PRIMARY KEY, w DOUBLE)")
    con.execute("BEGIN")
    con.execute("INSERT INTO s VALUES (99, 1, 2)")
    return con


@pytest.mark.parametrize("statement", STATEMENTS)
def test_planning_does_not_end_a_transaction(changing, statement):
    changing.execute(statement).fetchall()
    changing.execute("COMMIT")


@pytest.mark.parametrize("statement", MISTAKEN)
def test_planning_a_mistake_does_not_end_it_either(changing, statement):
    with suppress(duckdb.Error, SqlmlError):
        changing.plan(statement)
    assert changing.execute("SELECT count(*) FROM s WHERE id = 99").fetchall() == [(1,)]
