"""EXPORT MODEL .. (DIALECT ..): what it takes and refuses; hostile names and texts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OrdinalEncoder
from sklearn.tree import DecisionTreeClassifier

import sqlml
from benchmarks.database_connections import Connection
from sqlml import errors
from sqlml.planner.databases.targets import DATABASES
from tests.databases.conftest import opened

HOSTILE = ["it's", 'say "so"', "a`b", "x); DROP TABLE hostile; --", "$sqlml$", "\\", "Ümlaut"]


@pytest.fixture(scope="module")
def con() -> Any:
    with sqlml.connect() as made:
        x = np.arange(12.0).reshape(6, 2)
        made.create_model("line", LinearRegression().fit(x, [0, 1, 2, 3, 4, 5]), inputs=["a", "b"])
        yield made


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ("DIALECT oracle", "ConfigError", "unknown database 'oracle'; databases: postgres, "),
        ("DIALECT postgre", "ConfigError", "unknown database 'postgre'; did you mean postgres?"),
        ("DIALECT postgres, FORM table", "ConfigError", "unknown form 'table'; forms: function, "),
        ("DIALECT postgres, FORM view", "ConfigError", "FORM view needs the table to score"),
        ("DIALECT postgres, FORM function, TABLE t", "ConfigError", "takes no TABLE"),
        ("DIALECT sqlite", "BackendError", "SQLite has no functions written in SQL"),
        ("TABLE t", "ParseError", "TABLE goes with DIALECT"),
        ("DIALECT postgres, DIALECT sqlite", "ParseError", "DIALECT is given twice"),
        ("DIALECT postgres, FORMAT ONNX", "ParseError", "DIALECT goes with FORMAT SQL"),
        ("COLOUR red", "ParseError", "expected FORMAT, DIALECT, FORM, TABLE, COLUMNS or PLATFORM"),
        ("DIALECT postgres, COLUMNS id", "ParseError", r"expected '\('"),
    ],
)
def test_what_is_refused(con: Any, tmp_path: Path, options: str, error: str, says: str) -> None:
    with pytest.raises(getattr(errors, error), match=says):
        con.execute(f"EXPORT MODEL line TO '{tmp_path}/m.sql' ({options})")
    assert not (tmp_path / "m.sql").exists()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ("(DIALECT oracle)", "unknown database 'oracle'"),
        (
            "(DIALECT postgres, TABLE t)",
            "computes the features at_day, at_dayofweek, .* and 4 more from columns when it "
            "scores, for a TRANSFORM or for dates, .* not exported for other databases: train it",
        ),
        ("FORMAT SQL", "computes the features at_day, .* which macros in a file cannot compute"),
    ],
)
def test_what_training_makes_of_dates_is_not_called_a_transform(
    tmp_path: Path, options: str, says: str
) -> None:
    with sqlml.connect() as con:
        con.execute(
            "CREATE TABLE t AS SELECT timestamp '2024-01-01' + interval (i) hour AS at, "
            "i % 3 = 0 AS y FROM range(200) r(i)"
        )
        con.execute("CREATE MODEL m OPTIONS (model_type = 'logistic_reg', label = 'y') AS FROM t")
        with pytest.raises(errors.ConfigError, match=says):
            con.execute(f"EXPORT MODEL m TO '{tmp_path}/m.sql' {options}")


def test_a_table_may_have_a_schema(con: Any, tmp_path: Path) -> None:
    path = tmp_path / "m.sql"
    con.execute(
        f"EXPORT MODEL line TO '{path}' (FORMAT SQL, DIALECT postgres, FORM select, "
        'TABLE sales."May 2026", COLUMNS (id, "Full name"))'
    )
    text = path.read_text()
    column = 'sqlml_t."Full name" AS "Full name"'
    assert 'FROM "sales"."May 2026"' in text and text.count(column) == 1


SETTINGS = {
    "postgres": ("SET standard_conforming_strings = off", "SET standard_conforming_strings = on"),
    "mariadb": (
        "SET SESSION sql_mode = CONCAT(@@sql_mode, ',ANSI_QUOTES,NO_BACKSLASH_ESCAPES')",
        "SET SESSION sql_mode = DEFAULT",
    ),
}


def test_texts_mean_the_same_under_other_settings(
    con: Any, database: Connection, tmp_path: Path
) -> None:
    if database.name not in SETTINGS:
        pytest.skip("no setting changes how texts are read")
    texts = [*HOSTILE, "\\'; DROP TABLE kinds; --", "日本", "é"] * 3
    x = pd.DataFrame({"kind": texts, "n": np.arange(float(len(texts)))})
    encoder = make_column_transformer((OrdinalEncoder(), ["kind"]))
    fitted = make_pipeline(encoder, DecisionTreeClassifier(random_state=0)).fit(x, texts)
    con.create_model("kinds", fitted, verify=False, or_replace=True)
    path = tmp_path / "m.sql"
    con.execute(f"EXPORT MODEL kinds TO '{path}' (DIALECT {database.name}, TABLE kinds)")
    database.load("kinds", x)
    changed, back = SETTINGS[database.name]
    database.run(changed)
    try:
        got = database.frame(path.read_text(encoding="utf-8"))
    finally:
        database.run(back)
    assert got["predicted_label"].tolist() == texts
    assert len(database.frame("SELECT * FROM kinds")) == len(texts)


@pytest.mark.by_day(4)
def test_a_text_is_as_long_as_a_database_takes(
    con: Any, database: Connection, tmp_path: Path
) -> None:
    """1.2 million characters, which ClickHouse takes by a setting, and Snowflake does not."""
    frame = pd.DataFrame({"kind": [f"{k}{'x' * 600}" for k in range(2000)]})
    encoder = make_column_transformer((OrdinalEncoder(), ["kind"]))
    fitted = make_pipeline(encoder, LinearRegression()).fit(frame, np.arange(2000.0))
    con.create_model("long", fitted, verify=False, or_replace=True)
    path = tmp_path / "m.sql"
    message = r"needs 1,2.* of SQL; Snowflake allows 1,048,576"
    with pytest.raises(errors.BackendError, match=message):
        con.execute(f"EXPORT MODEL long TO '{path}' (DIALECT snowflake, TABLE kinds)")
    con.execute(f"EXPORT MODEL long TO '{path}' (DIALECT {database.name}, TABLE kinds)")
    database.load("kinds", frame)
    text = path.read_text(encoding="utf-8")
    assert text.startswith("SET ") == (database.name == "clickhouse")
    got = database.frame(text).set_index("kind").loc[frame["kind"], "predicted_label"]
    np.testing.assert_allclose(got.astype(float), fitted.predict(frame), rtol=1e-12)


def test_names_and_texts_of_strangers_stay_names_and_texts(
    con: Any, database: Connection, tmp_path: Path
) -> None:
    values = pd.Series(HOSTILE * 3)
    frame = pd.DataFrame(
        {name: np.arange(len(values)) * (k + 1.0) for k, name in enumerate(HOSTILE)}
    )
    fitted = DecisionTreeClassifier(random_state=0).fit(frame, values)
    con.create_model("stranger", fitted, verify=False, or_replace=True)
    path = tmp_path / "m.sql"
    database.load("hostile", frame)
    con.execute(f"EXPORT MODEL stranger TO '{path}' (DIALECT {database.name}, TABLE hostile)")
    got = database.frame(path.read_text(encoding="utf-8"))
    assert got["predicted_label"].tolist() == values.tolist()
    assert len(database.frame("SELECT * FROM hostile")) == len(values)


@pytest.mark.by_day(4)
@pytest.mark.parametrize("name", ["is active?", "lacking", "count", "num_nulls"])
def test_a_column_that_the_table_lacks_is_an_error(
    con: Any, database: Connection, name: str, tmp_path: Path
) -> None:
    """Not a text, the whole row of a table of that name, a function of it, or a column of the query
    around this one."""
    frame = pd.DataFrame({"kept": np.arange(6.0), name: np.arange(6.0)})
    fitted = LinearRegression().fit(frame[[name]], frame["kept"])
    con.create_model("some", fitted, verify=False, or_replace=True)
    path = tmp_path / "m.sql"
    database.load("lacking", frame[["kept"]])
    database.load("around", frame)
    for columns in ("kept", f'"{name}"'):
        options = f"DIALECT {database.name}, TABLE lacking, COLUMNS ({columns})"
        con.execute(f"EXPORT MODEL some TO '{path}' ({options})")
        query = path.read_text(encoding="utf-8").rstrip().rstrip(";")
        with pytest.raises(Exception, match=f"(?s){re.escape(name)}"):
            database.frame(query)
        if name not in DATABASES[database.name].functions_of_rows and not query.count("SETTINGS"):
            with pytest.raises(Exception, match=f"(?s){re.escape(name)}"):
                database.frame(f"SELECT (SELECT count(*) FROM ({query}) q) AS c FROM around")


def test_functions_that_postgres_reads_as_columns_are_known() -> None:
    takes_any = "('\"any\"', 'anyelement', 'record', 'anynonarray', 'anycompatible')"
    with opened("postgres") as server:
        found = server.frame(
            "SELECT DISTINCT CAST(proname AS text) AS name FROM pg_proc "
            f"WHERE CAST(CAST(proargtypes[0] AS regtype) AS text) IN {takes_any} "
            "AND (pronargs = 1 OR pronargs - pronargdefaults <= 1)"
        )
    assert set(found["name"]) <= DATABASES["postgres"].functions_of_rows
    assert "count" in set(found["name"])


@pytest.mark.parametrize("name", ["sqlml_x0", "SQLML_V1", "sqlml_t"])
def test_names_of_the_queries_themselves_are_refused(con: Any, tmp_path: Path, name: str) -> None:
    frame = pd.DataFrame({"a": np.arange(6.0), name: np.arange(6.0)})
    con.create_model("ours", LinearRegression().fit(frame, frame["a"]), or_replace=True)
    export = f"EXPORT MODEL {{}} TO '{tmp_path}/m.sql' (DIALECT sqlite, TABLE t, COLUMNS ({{}}))"
    for statement in (export.format("ours", "a"), export.format("line", name)):
        with pytest.raises(errors.BackendError, match=f"column '{name}' has a name that the"):
            con.execute(statement)


@pytest.mark.by_day(4)
@pytest.mark.parametrize("form", ["select", "view", "function", "select of an imported model"])
def test_columns_that_are_known_to_be_boolean_may_be_boolean(
    con: Any, database: Connection, form: str, tmp_path: Path
) -> None:
    form, _, imported = form.partition(" ")
    if form == "function" and DATABASES[database.name].function_template is None:
        pytest.skip("no functions written in SQL")
    con.execute(
        'CREATE OR REPLACE TABLE flags AS SELECT i % 3 = 0 AS "is new", i % 7 AS n, '
        "i % 3 = 0 OR i % 7 = 1 AS answer FROM range(90) r(i)"
    )
    if imported:
        frame = con.execute("FROM flags").df()
        model = LogisticRegression().fit(frame[["is new", "n"]], frame["answer"])
        types = {"is new": "BOOLEAN", "n": "INTEGER"}
        con.create_model("flagged", model, inputs=types, or_replace=True)
        con.execute(f"EXPORT MODEL flagged TO '{tmp_path}/m.sqlml'")
        con.execute(f"CREATE OR REPLACE MODEL flagged FROM '{tmp_path}/m.sqlml'")
    else:
        con.execute(
            "CREATE OR REPLACE MODEL flagged OPTIONS (model_type = 'logistic_reg', "
            "label = 'answer') AS FROM flags"
        )
    want = con.sql("SELECT predict('flagged', *) FROM flags ORDER BY \"is new\", n").fetchall()
    path, table = tmp_path / "m.sql", "" if form == "function" else ", TABLE flags"
    con.execute(f"EXPORT MODEL flagged TO '{path}' (DIALECT {database.name}, FORM {form}{table})")
    flag = database.quoted("is new")
    kind = {"sqlite": "INTEGER", "clickhouse": "Nullable(Bool)"}.get(database.name, "BOOLEAN")
    database.run("DROP TABLE IF EXISTS flags")
    database.run(f"CREATE TABLE flags ({flag} {kind}, n INTEGER)")
    values = ", ".join(f"({str(i % 3 == 0).lower()}, {i % 7})" for i in range(90))
    database.run(f"INSERT INTO flags VALUES {values}")
    text = path.read_text(encoding="utf-8")
    if form == "select":
        query = text.rstrip().rstrip(";")
        got = database.frame(f"SELECT predicted_label FROM ({query}) q ORDER BY {flag}, n")
    else:
        database.run("DROP VIEW IF EXISTS flagged_scores")
        database.run(text)
        call = (
            "predicted_label FROM flagged_scores"
            if form == "view"
            else (f"flagged({flag}, n) FROM flags")
        )
        got = database.frame(f"SELECT {call} ORDER BY {flag}, n")
        database.run("DROP VIEW IF EXISTS flagged_scores")
    assert [bool(answer) for answer in got.iloc[:, 0]] == [answer for (answer,) in want]
