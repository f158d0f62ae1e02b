"""Errors that say what to do, where DuckDB's or Python's own came through."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder

import sqlml
from sqlml.catalog.catalog_connection import OUR_TABLES
from sqlml.errors import CatalogError, ConfigError, ParseError, SqlmlError, UnsupportedModelError
from tests.e2e.macro_checks import CONFIG

X = pd.DataFrame({"a": [1.0, 2.0, 3.0, 4.0]})
LINEAR = LinearRegression().fit(X, X.a)
HALF = "\ud800"
LONG = ["n" * 30_000, "x y" * 10_000]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A database with a model, a table and a view."""
    path = tmp_path / "shop.duckdb"
    with sqlml.connect(path, config=CONFIG) as con:
        con.create_model("m", LINEAR)
        con.execute("CREATE TABLE t AS SELECT 1.0 AS a, 2.0 AS y FROM range(9)")
        con.execute("CREATE VIEW v AS SELECT predict('m', *) AS p FROM t")
        con.execute(f"EXPORT MODEL m TO '{tmp_path / 'm.sqlml'}'")
    return path


CHANGES = [
    "CREATE MODEL n FROM '{0}/m.sqlml'",
    "CREATE OR REPLACE MODEL m FROM '{0}/m.sqlml'",
    "CREATE MODEL n OPTIONS (model_type='linear_reg', input_label_cols=['y']) AS SELECT * FROM t",
    "DROP MODEL m",
    "DROP MODEL IF EXISTS m",
    "ALTER MODEL m SET TAG k = 'x'",
    "ALTER MODEL m SET ALIAS best = 1",
    "ALTER MODEL m SET OPTIONS (on_null = 'null')",
    "ALTER MODEL m RENAME TO n",
    "ALTER MODEL m ADD VERSION FROM '{0}/m.sqlml'",
    "COMMENT ON MODEL m IS 'x'",
]


@pytest.mark.parametrize("attached", [False, True])
def test_a_read_only_database(file: Path, attached: bool) -> None:
    with sqlml.connect() if attached else sqlml.connect(file, read_only=True) as con:
        if attached:
            con.execute(f"ATTACH '{file}' AS shop (READ_ONLY)")
            con.execute("USE shop")
        for change in CHANGES:
            with pytest.raises(CatalogError, match="'shop' was opened read-only, .*; open it with"):
                con.execute(change.format(file.parent))
        with pytest.raises(CatalogError, match="opened read-only"):
            con.create_model("n", LINEAR)
        assert con.execute("SELECT DISTINCT predict('m', *) FROM t").fetchall() == [(1.0,)]


def forged(file: Path, *statements: str) -> sqlml.Session:
    """A session on the database after a plain connection has changed it."""
    with duckdb.connect(file) as con:
        for statement in statements:
            con.execute(statement)
    return sqlml.connect(file)


@pytest.mark.by_day(3)
@pytest.mark.parametrize("table", sorted(OUR_TABLES))
def test_a_catalog_without_a_table(file: Path, table: str) -> None:
    with duckdb.connect(file) as plain:
        missing = not plain.execute(
            "SELECT 1 FROM duckdb_tables() WHERE table_name = ?", [table]
        ).fetchall()
    if missing:  # made with the first model that needs it
        return
    with forged(file, f"DROP TABLE sqlml.{table}") as con:
        for statement in (
            *("SHOW MODELS", "FROM sqlml.models", "DESCRIBE MODEL m", "FROM v"),
            *("SELECT predict('m', *) FROM t", *CHANGES),
        ):
            try:
                con.execute(statement.format(file.parent)).fetchall()
            except SqlmlError as error:
                assert "Did you mean" not in error.message, error
        with pytest.raises(duckdb.CatalogException, match=table):  # the user's own words
            con.execute(f"FROM sqlml.{table}; DROP TABLE sqlml.{table}; FROM sqlml.{table}")


@pytest.mark.parametrize(
    ("key", "change"),
    [("", "UPDATE"), ("", "INSERT"), ("\0", "INSERT"), ('a"b', "UPDATE"), ("n" * 5000, "UPDATE")],
)
def test_a_forged_key_of_a_call_does_not_hinder_changes(file: Path, key: str, change: str) -> None:
    quoted = "chr(0)" if key == "\0" else f"'{key}'"
    calls = "sqlml.catalog_calls"
    statement = {
        "UPDATE": f"UPDATE {calls} SET key = {quoted}",
        "INSERT": f"INSERT INTO {calls} SELECT * REPLACE ({quoted} AS key) FROM {calls}",
    }[change]
    with forged(file, statement) as con:
        con.create_model("other", LINEAR)
        con.execute("ALTER MODEL m RENAME TO n")
        assert con.execute("SELECT DISTINCT predict('n', *) FROM t").fetchall() == [(1.0,)]
        con.execute("DROP MODEL n")
        assert [row[0] for row in con.execute("SHOW MODELS").fetchall()] == ["other"]
    with duckdb.connect(file) as plain:  # the macros of the model that is left
        assert plain.execute("SELECT count(*) FROM sqlml.catalog_stale").fetchall() == [(0,)]


def categorical(encoder: Any) -> Any:
    table = X.assign(c=pd.Series(["x", "y", HALF, "x"], dtype=object))
    steps = make_column_transformer((encoder, ["c"]), remainder="passthrough")
    return make_pipeline(steps, LinearRegression()).fit(table, X.a)


@pytest.mark.parametrize("options", [{}, {"on_null": "null"}, {"verify": False}])
@pytest.mark.parametrize("encoder", [OneHotEncoder(), OrdinalEncoder()])
def test_a_category_that_is_not_unicode(encoder: Any, options: dict[str, Any]) -> None:
    with sqlml.connect() as con:
        with pytest.raises(UnsupportedModelError, match=r"'\\ud800', which is not valid Unicode"):
            con.create_model("m", categorical(encoder), **options)


def test_names_that_are_not_unicode() -> None:
    columns = X.set_axis(pd.Index([f"a{HALF}"], dtype=object), axis=1)
    with sqlml.connect() as con:
        con.execute("CREATE TABLE t AS SELECT 1.0 AS a")
        con.create_model("m", LINEAR)
        with pytest.raises(UnsupportedModelError, match="not valid Unicode"):
            con.create_model("n", LinearRegression().fit(columns, X.a))
        with pytest.raises(UnsupportedModelError, match="not valid Unicode"):
            con.create_model("n", LINEAR, inputs=[HALF])
        with pytest.raises(ConfigError, match="not valid Unicode"):
            con.create_model(f"m{HALF}", LINEAR)
        with pytest.raises(ConfigError, match="not valid Unicode"):
            con.create_model("n", LINEAR, comment=HALF)
        with pytest.raises(ConfigError, match="not valid Unicode"):
            con.execute("SELECT predict($model, *) FROM t", {"model": HALF})
        for statement in ("SELECT predict('m{}', *) FROM t", "DROP MODEL m{}"):
            with pytest.raises(ParseError, match="not valid Unicode"):
                con.execute(statement.format(HALF))
        assert con.execute("SELECT predict('m', *) FROM t").fetchall() == [(1.0,)]


@pytest.mark.parametrize("name", LONG, ids=["one word", "words"])
def test_messages_with_very_long_names_are_short(name: str) -> None:
    with sqlml.connect() as con:
        con.execute(f'CREATE TABLE t AS SELECT 1.0 AS "{name}", 2.0 AS "b{name}"')
        con.create_model("m", LINEAR)
        for statement in (
            "SELECT predict('{0}', *) FROM t",
            "SELECT predict('m', *) FROM t",
            "SELECT predict('m', \"{0}\" := 1) FROM t",
            "SELECT predict('m', \"c{0}\") FROM t",
            'DROP MODEL "{0}"',
            "CREATE MODEL n FROM '{0}'",
            'SELECT * FROM ml_predict(MODEL "{0}", TABLE t)',
            'SELECT * FROM ml_predict(MODEL m, TABLE "c{0}")',
            "SET sqlml_backend = '{0}'",
            "CREATE MODEL n OPTIONS (model_type = '{0}') AS SELECT 1",
        ):
            with pytest.raises(SqlmlError) as caught:
                con.execute(statement.format(name)).fetchall()
            assert len(str(caught.value)) < 5000, statement
        with pytest.raises(SqlmlError, match="did you mean|invalid|needs|unknown") as caught:
            con.create_model("wide", LinearRegression().fit(X.set_axis([name], axis=1), X.a))
            con.execute("SELECT predict('wide', *) FROM (SELECT 1 AS a)")
        assert len(str(caught.value)) < 5000


def test_the_views_of_models_where_there_are_none() -> None:
    with sqlml.connect() as con:
        for view in ("models", "model_versions", "model_features", "MODELS"):
            with pytest.raises(duckdb.CatalogException, match="has no models yet; CREATE MODEL"):
                con.execute(f"SELECT * FROM sqlml.{view}")
        with pytest.raises(duckdb.CatalogException, match="has no models yet"):
            con.sql("FROM sqlml.models").fetchall()
        con.create_model("m", LINEAR)
        assert con.execute("SELECT name FROM sqlml.models").fetchall() == [("m",)]
