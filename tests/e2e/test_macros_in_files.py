"""The macros of a database file: in later processes, exported, attached, forged."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression
from sklearn.tree import DecisionTreeRegressor

import sqlml
from tests.e2e import child
from tests.e2e.macro_checks import BARE, CONFIG, IS_2, rows

pytestmark = pytest.mark.version


def test_a_process_that_ends_before_it_came_to_the_macros(tmp_path: Path) -> None:
    path, row = tmp_path / "shop.duckdb", "{'charges': 10, 'tenure': 1}"
    code = f"""
import os, sqlml
from sklearn.linear_model import LinearRegression
con = sqlml.connect("shop.duckdb", config={CONFIG!r})
model = LinearRegression().fit([[1.0, 1.0], [2.0, 0.0]], [7.0, 7.0])
con.create_model("value", model, inputs=["charges", "tenure"])
con.execute("BEGIN")
model = LinearRegression().fit([[1.0, 1.0], [2.0, 0.0]], [8.0, 8.0])
con.create_model("value", model, inputs=["charges", "tenure"], or_replace=True)
con.connection.execute("COMMIT")
os._exit(0)
"""
    child.run(code, tmp_path)
    with sqlml.connect(path, config=CONFIG) as con, con.connection.cursor() as plain:
        assert rows(plain, f"SELECT predict('value', {row})") == [(pytest.approx(8.0),)]
        assert rows(plain, "FROM sqlml.catalog_stale") == []


def test_damaged_rows_do_not_stop_the_database_from_opening(
    tmp_path: Path, value_model: Any
) -> None:
    path, row = tmp_path / "shop.duckdb", "{'charges': 10, 'tenure': 1}"
    with sqlml.connect(path, config=CONFIG) as con:
        con.create_model("value", value_model)
        want = rows(con, f"SELECT predict('value', {row})")
    for damage in (
        "UPDATE sqlml.catalog_calls SET function = 'abs'",
        "UPDATE sqlml.catalog_calls SET arguments = ['VARCHAR; --', NULL], result = 'x'",
        "UPDATE sqlml.catalog_calls SET arguments = NULL",
        "DROP TABLE sqlml.catalog_calls",
    ):
        with duckdb.connect(path, config=CONFIG) as plain:
            plain.execute(damage)
        with sqlml.connect(path, config=CONFIG) as con:
            assert rows(con, f"SELECT predict('value', {row}), abs(-1)") == [(*want[0], 1)]


@pytest.mark.by_day(2)
@pytest.mark.parametrize(
    "forged",
    [
        "INSERT INTO sqlml.catalog_stale VALUES ('value', 'x; DROP TABLE kept; --')",
        "INSERT INTO sqlml.catalog_stale VALUES ('x', NULL); UPDATE sqlml.catalog_calls SET "
        "macro = 'score_x(r, m) END; DROP TABLE kept; --' WHERE kind = 'label'",
        "INSERT INTO sqlml.catalog_stale VALUES ('x', NULL); UPDATE sqlml.catalog_choosers SET "
        "macro = 'choose_x(1, 2); DROP TABLE kept; --', names = ['a', 'b; DROP TABLE kept; --']",
        "INSERT INTO sqlml.catalog_stale VALUES ('x', NULL); UPDATE sqlml.catalog_choosers SET "
        "names = ['a'' END; DROP TABLE kept; --'], by_digit = NOT by_digit",
        'DROP TABLE sqlml.catalog_choosers; CREATE MACRO sqlml."score_x; DROP TABLE kept; --"() '
        "AS 1; INSERT INTO sqlml.catalog_stale VALUES ('x', NULL)",
    ],
)
def test_forged_rows_of_macros_run_nothing(tmp_path: Path, value_model: Any, forged: str) -> None:
    path, row = tmp_path / "shop.duckdb", "{'charges': 10, 'tenure': 1}"
    with sqlml.connect(path, config=CONFIG) as con:
        con.execute("CREATE TABLE kept AS SELECT 1 AS a; BEGIN")
        for k in range(20):
            con.create_model(f"value{k or ''}", value_model)
        con.execute("COMMIT")
        want = rows(con, f"SELECT predict('value', {row})")
    with duckdb.connect(path, config=CONFIG) as plain:
        plain.execute(forged)
    with sqlml.connect(path, config=CONFIG) as con:
        assert rows(con, f"SELECT predict('value', {row})") == want
        con.create_model("more", value_model)
        con.execute("DROP MODEL value1")
        assert rows(con, f"SELECT predict('more', {row})") == want
        assert rows(con, "FROM kept") == [(1,)]


def test_a_later_process_reads_a_view_of_a_plain_connection(
    tmp_path: Path, frame: pd.DataFrame, churn: Any
) -> None:
    path = tmp_path / "shop.duckdb"
    with sqlml.connect(path, config=CONFIG) as con, con.connection.cursor() as plain:
        con.execute("CREATE TABLE customers AS SELECT * FROM frame")
        con.create_model("churn", churn)
        plain.execute("CREATE VIEW v AS SELECT id, predict('churn', c) AS p FROM customers c")
        want = rows(plain, "SELECT count(*) FROM v WHERE p = 'yes'")[0][0]
    code = f"""
import duckdb, sqlml
for read_only in (False, True):
    with sqlml.connect("shop.duckdb", read_only, {CONFIG!r}) as con:
        plain = con.connection.cursor()
        print(plain.execute("SELECT count(*) FROM v WHERE p = 'yes'").fetchone()[0])
        print(con.execute("SELECT count(*) FROM v WHERE p = 'yes'").fetchone()[0])
        plain.close()
with duckdb.connect() as con:
    con.execute("ATTACH 'shop.duckdb' AS other (READ_ONLY)")
    session = sqlml.attach(con)
    print(con.execute("SELECT count(*) FROM other.v WHERE p = 'yes'").fetchone()[0])
"""
    made = child.run(code, tmp_path)
    assert made.stdout.split() == [str(want)] * 5, made.stderr


def test_export_and_import(con: Any, plain: Any, tmp_path: Path) -> None:
    ask = "SELECT id, predict('churn', c) AS p FROM customers c ORDER BY id"
    want = rows(plain, ask)
    con.execute(f"EXPORT DATABASE '{tmp_path / 'out'}'")
    with sqlml.connect() as other, other.connection.cursor() as beside:
        other.execute(f"IMPORT DATABASE '{tmp_path / 'out'}'")
        assert rows(beside, ask) == rows(other, ask) == want
        other.execute("DROP MODEL value")
        assert rows(beside, ask) == want
    with duckdb.connect() as alone:  # without sqlml it can be imported, and says what is missing
        alone.execute(f"IMPORT DATABASE '{tmp_path / 'out'}'")
        with pytest.raises(duckdb.CatalogException, match="sqlml_"):
            rows(alone, ask)


def test_export_and_import_of_a_view_that_calls_a_model(con: Any, tmp_path: Path) -> None:
    """Views come before the tables that the models are in."""
    con.execute(
        "CREATE VIEW \"it's\" AS SELECT id, predict('churn', *) AS p, predict('value', "
        "charges := charges, tenure := 1) AS v FROM customers"
    )
    want = rows(con, 'SELECT id, p FROM "it\'s" ORDER BY id')
    for k, options in enumerate(
        ("", "(FORMAT parquet)", "(DELIMITER '|')", "(FORMAT csv, NULL 'none', HEADER)")
    ):
        folder = tmp_path / f"it's {k}"
        quoted = str(folder).replace("'", "''")
        con.execute(f"EXPORT DATABASE '{quoted}' {options}")
        with sqlml.connect() as other:
            other.execute(f"IMPORT DATABASE '{quoted}'")
            assert rows(other, 'SELECT id, p FROM "it\'s" ORDER BY id') == want
            assert rows(other, "SELECT id, predict('churn', *) FROM customers ORDER BY id") == want


def test_never_the_model_of_another_database(con: Any, plain: Any, tmp_path: Path) -> None:
    """Both have a model `value`; the macro of the other finds its own parts, or none."""
    path = tmp_path / "other.duckdb"
    with sqlml.connect(path, config=CONFIG) as other:
        known = pd.DataFrame({"charges": [1.0, 2.0, 4.0], "tenure": [1.0, 0.0, 1.0]})
        other.create_model("value", LinearRegression().fit(known, [7.0, 7.0, 7.0]))
    con.execute(f"ATTACH '{path}' AS other")
    row = "{'charges': 10, 'tenure': 1}"
    for schema in ("main", "sqlml"):
        with pytest.raises(duckdb.CatalogException, match="choose_"):
            rows(plain, f"SELECT other.{schema}.predict('value', {row})")
    plain.execute("USE other")
    assert rows(plain, f"SELECT predict('value', {row})") == [(pytest.approx(7.0),)]


def test_databases_that_cannot_have_the_macros(tmp_path: Path, churn: object) -> None:
    """One named sqlml, where `sqlml.f` is ambiguous, and an old format: the rest works."""
    with sqlml.connect(tmp_path / "sqlml.duckdb") as con:
        con.create_model("churn", churn)
        assert rows(con, BARE) == []
        con.execute("DROP MODEL churn")
    with sqlml.connect() as con:
        con.execute(f"ATTACH '{tmp_path / 'old.duckdb'}' AS old (STORAGE_VERSION 'v1.2.0')")
        con.create_model("old.churn", churn)
        assert rows(con, "SELECT count(*) FROM old.sqlml.catalog_models") == [(1,)]
        assert rows(con, BARE) == []
        con.execute("DROP MODEL old.churn")


def test_a_model_of_an_attached_database(con: Any, tmp_path: Path, value_model: object) -> None:
    path = tmp_path / "shelf.duckdb"
    con.execute(f"ATTACH '{path}' AS shelf" + ("" if IS_2 else " (STORAGE_VERSION 'v1.4.0')"))
    con.create_model("shelf.own", value_model)
    with con.connection.cursor() as plain:
        plain.execute("USE shelf")
        asked = "{'charges': 10, 'tenure': 1}"
        got = rows(plain, f"SELECT predict('own', {asked})")
    assert got == rows(con, f"SELECT predict('shelf.own', {asked})")


def test_functions_do_not_keep_a_database_open(tmp_path: Path) -> None:
    file = tmp_path / "a.db"
    with sqlml.connect(file, config=CONFIG) as con:
        con.create_model("m", DecisionTreeRegressor().fit([[0.0], [1.0]], [3.0, 4.0]), inputs=["a"])
        con.execute("CREATE TABLE t AS SELECT 1.0 AS a")
    plain = duckdb.connect(str(file))
    sqlml.attach(plain)  # what it returns is not needed
    gc.collect()
    assert plain.execute("SELECT predict('m', t) FROM t").fetchall() == [(4.0,)]
    del plain
    gc.collect()
    # An open database refuses another configuration.
    with duckdb.connect(str(file), config={"threads": 3}) as other:
        assert other.execute("SELECT current_setting('threads')").fetchall() == [(3,)]


@pytest.mark.parametrize(
    "text",
    [
        "BEGIN; ALTER MODEL m SET DEFAULT_VERSION = 2; COMMIT",
        "BEGIN; ALTER MODEL m SET DEFAULT_VERSION = 2; -- at last\n /* now */ commit transaction ;",
    ],
)
def test_macros_follow_a_transaction_that_is_one_text(tmp_path: Path, text: str) -> None:
    frame = pd.DataFrame({"a": [0.0, 1.0, 2.0]})
    path = tmp_path / "t.db"
    config = (
        {} if hasattr(duckdb.connect(), "complete") else {"storage_compatibility_version": "v1.4.0"}
    )
    with sqlml.connect(path, config=config) as con:
        con.execute("CREATE TABLE t AS SELECT 1.0 AS a")
        con.create_model("m", LinearRegression().fit(frame, frame.a))
        con.add_version("m", LinearRegression().fit(frame, frame.a * 5))
        plain = con.connection.cursor()
        con.execute(text)
        ask = "SELECT round(predict('m', t), 9) FROM t"
        assert plain.execute(ask).fetchall() == [(5.0,)]
        con.execute("BEGIN; ALTER MODEL m SET DEFAULT_VERSION = 1")
        con.execute("COMMIT; SELECT 1")
        assert con.fetchall() == [(1,)]
    with sqlml.connect(path) as con:
        assert con.connection.cursor().execute(ask).fetchall() == [(1.0,)]
