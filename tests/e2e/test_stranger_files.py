"""Files that somebody else made: nothing in them runs when sqlml opens and uses them.

What runs in them fails with the word RAN, or writes a row of the table `ran`. DuckDB runs the
arguments of a table function as soon as a query is bound.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.multioutput import MultiOutputClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.tree import DecisionTreeClassifier

import sqlml
from sqlml.catalog.catalog_connection import IS_DUCKDB_2, OUR_TABLES
from sqlml.errors import CatalogError
from sqlml.planner.program.function_spec import parse_function_name

TABLES = sorted(OUR_TABLES)
QUERIES = (
    "SELECT predict('line', *) FROM t",
    "SELECT predict('line', a := a, b := b) FROM t",
    "SELECT predict('line', *) FROM t WHERE predict('near', *) = 'no'",
    "SELECT predict('odds', *), predict_proba('odds', *) FROM t",
    "SELECT id FROM t WHERE predict_proba('odds', *, class := true) > 0.4",
    "SELECT predict('tree', *), predict_proba('tree', *, class := 'yes') FROM t",
    "SELECT predict('near', *) FROM t ORDER BY id",
    "SELECT predict_proba('near', *) FROM t ORDER BY predict_proba('near', *, class := 'yes')",
    "SELECT predict('mixed', *), predict_score('mixed', *) FROM t",
    "SELECT predict('both', *), predict_proba('both', *) FROM t",
    "SELECT p FROM seen",
)
STATEMENTS = (
    "SHOW MODELS",
    "SHOW MODELS LIKE 'o%'",
    "SHOW VERSIONS IN MODEL odds",
    "SHOW CREATE MODEL odds",
    "DESCRIBE MODEL odds",
    "EXPLAIN SELECT predict('near', *) FROM t",
    "EXPLAIN ANALYZE SELECT predict('near', *) FROM t",
    "ALTER MODEL odds SET ALIAS best = 1",
    "ALTER MODEL odds SET OPTIONS (on_null = 'null')",
    "ALTER MODEL odds RENAME TO others",
    "DROP MODEL others",
)


def table() -> pd.DataFrame:
    x = pd.DataFrame(np.random.default_rng(0).normal(size=(60, 2)).round(2), columns=["a", "b"])
    x["s"] = np.where(x.a * x.b > 0, "x", "y")
    return x


def models() -> dict[str, Any]:
    x = table()
    y, numbers = np.where(x.a > x.b, "yes", "no"), x[["a", "b"]]
    both = np.stack([y, np.where(x.b > 0, "p", "q")], axis=1)
    mixed = make_column_transformer((OneHotEncoder(), ["s"]), remainder="passthrough")
    return {
        "line": LinearRegression().fit(numbers, x.a - x.b),
        "odds": LogisticRegression().fit(numbers, x.a > x.b),
        "tree": DecisionTreeClassifier(max_depth=2).fit(numbers, y),
        "near": KNeighborsClassifier(3).fit(numbers, y),
        "mixed": make_pipeline(mixed, LogisticRegression()).fit(x, y),
        "both": MultiOutputClassifier(DecisionTreeClassifier(max_depth=3)).fit(numbers, both),
    }


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with models, a table and a view, as its owner made it."""
    path = tmp_path_factory.mktemp("stranger") / "sound.duckdb"
    frame = table().assign(id=range(60))  # noqa: F841  (DuckDB finds it by its name)
    with sqlml.connect(path, config=CONFIG) as con:
        con.connection.execute("CREATE TABLE t AS FROM frame; CREATE TABLE ran (i INTEGER)")
        for name, model in models().items():
            con.create_model(name, model, verify=False)
        con.train("trained", "linear_reg", "SELECT a, b, a + b AS y FROM t", label="y")
        con.execute("CREATE VIEW seen AS SELECT predict('near', *) AS p FROM t")
    return path


CONFIG = {"storage_compatibility_version": "latest"}
"""Macros for plain connections need it."""


def engine_functions() -> list[str]:
    with duckdb.connect() as con:
        ask = "SELECT DISTINCT function_name FROM duckdb_functions() WHERE schema_name = 'main'"
        return [str(name) for (name,) in con.execute(ask).fetchall()]


def shadow(path: Path) -> None:
    """Give a file a macro for each function that the engine or sqlml has."""
    quoted = '"{}"'
    with sqlml.connect(path) as con:
        texts = " ".join(str(con.plan(query).sql) for query in QUERIES[:-1])  # type: ignore[union-attr]
    names = engine_functions()
    while (spec := parse_function_name(texts)) is not None:
        names.append(spec.name)
        texts = texts[texts.index(spec.name) + len(spec.name) :]
    with duckdb.connect(path) as con:
        for name in dict.fromkeys(names):
            macro = quoted.format(name.replace('"', '""'))
            bodies = (
                f"({', '.join(f'a{i}' for i in range(n))}) AS system.main.error('RAN {macro}')"
                for n in range(8)
            )
            con.execute(f"CREATE MACRO {macro}{', '.join(bodies)}")
            bodies = (
                f"({', '.join(f'a{i}' for i in range(n))}) AS TABLE "
                f"(SELECT system.main.error('RAN {macro}') AS ran)"
                for n in range(3)
            )
            con.execute(f"CREATE MACRO {macro}{', '.join(bodies)}")


@pytest.fixture(scope="module")
def shadowed(sound: Path) -> Path:
    path = sound.with_name("shadowed.duckdb")
    shutil.copy(sound, path)
    shadow(path)
    return path


@contextmanager
def open_copy(way: str, shadowed: Path, folder: Path) -> Iterator[sqlml.Session]:
    path = folder / "copy.duckdb"
    shutil.copy(shadowed, path)
    if way == "opened":
        with sqlml.connect(path) as con:
            yield con
    else:
        with sqlml.connect() as con:
            con.execute(f"ATTACH '{path}' AS theirs; USE theirs")
            yield con


@pytest.fixture(scope="module", params=["opened", "attached"])
def stranger(
    request: pytest.FixtureRequest, shadowed: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[sqlml.Session]:
    with open_copy(request.param, shadowed, tmp_path_factory.mktemp("stranger")) as con:
        yield con


@pytest.fixture(scope="module")
def answers(sound: Path) -> dict[str, list[Any]]:
    with sqlml.connect(sound, read_only=True) as con:
        return {query: con.execute(query).fetchall() for query in QUERIES}


def test_the_shadows_would_run(shadowed: Path) -> None:
    with duckdb.connect(shadowed, read_only=True) as con:
        for query in ("SELECT lower('A')", "SELECT id + 1 FROM t", "FROM duckdb_tables()"):
            with pytest.raises(duckdb.Error, match="RAN"):
                con.execute(query).fetchall()


@pytest.mark.parametrize("query", QUERIES)
def test_no_macro_hides_a_function_of_a_query(
    stranger: sqlml.Session, answers: dict[str, list[Any]], query: str
) -> None:
    assert stranger.execute(query).fetchall() == answers[query]
    assert stranger.sql(query).fetchall() == answers[query]


@pytest.mark.parametrize("name", ["line", "odds", "tree", "mixed"])
def test_no_macro_hides_a_function_of_the_sql_backend(stranger: sqlml.Session, name: str) -> None:
    query = f"SELECT predict('{name}', *) FROM t"
    want = stranger.execute(query).fetchall()
    stranger.execute("SET sqlml_backend = 'sql'")
    got = stranger.execute(query).fetchall()
    stranger.execute("RESET sqlml_backend")
    assert np.allclose(got, want) if name == "line" else got == want


def test_no_macro_hides_a_function_of_our_macros(
    stranger: sqlml.Session, answers: dict[str, list[Any]]
) -> None:
    """The row is made by its full name here: the engine makes one of a table by a bare name."""
    plain = stranger.connection
    row = "system.main.struct_pack(a := a, b := b, s := s)"
    got = plain.execute(f"SELECT sqlml.predict('line', {row}) FROM t").fetchall()
    assert np.allclose(got, answers[QUERIES[0]])
    for call in (f"predict('mixed', {row})", f"predict_proba('near', {row})"):
        assert len(plain.execute(f"SELECT sqlml.{call} FROM t").fetchall()) == 60
    plain.execute(f"SELECT sqlml.predict_proba('near', {row}, 'yes') FROM t").fetchall()


@pytest.mark.parametrize("way", ["opened", "attached"])
def test_no_macro_hides_a_function_of_a_statement(way: str, shadowed: Path, tmp_path: Path) -> None:
    with open_copy(way, shadowed, tmp_path) as stranger:
        stranger.create_model("new", models()["odds"], verify=False)
        stranger.create_model("new", models()["line"], verify=False, or_replace=True)
        for statement in STATEMENTS:
            stranger.execute(statement).fetchall()
        stranger.execute("BEGIN")
        stranger.execute("ALTER MODEL new SET DEFAULT_VERSION = 1")
        stranger.execute("COMMIT")
        with pytest.raises(sqlml.errors.UnknownModelError):
            stranger.execute("SELECT predict('nobody', *) FROM t")
        stranger.execute("DROP MODEL new")


BOOM = "(SELECT i FROM system.main.range(boom()) r(i))"
"""Runs as soon as it is bound: once the file has another macro `boom` than when it was made."""


def as_view(name: str) -> list[str]:
    held = f"sqlml.held_{name}"
    return [
        f"ALTER TABLE sqlml.{name} RENAME TO held_{name}",
        f"CREATE VIEW sqlml.{name} AS SELECT * FROM {held} WHERE {BOOM} = 0",
    ]


FORGED = {
    **{f"a view for {name}": as_view(name) for name in TABLES},
    "a default": ["ALTER TABLE sqlml.catalog_stale ALTER macro SET DEFAULT lower('X')"],
    "an index": ["CREATE INDEX own ON sqlml.catalog_stale (lower(key))"],
    "a generated column": [
        "DROP TABLE sqlml.catalog_stale",
        "CREATE TABLE sqlml.catalog_stale (key VARCHAR NOT NULL, macro VARCHAR AS (lower(key)))",
    ],
    "a check": [
        "DROP TABLE sqlml.catalog_stale",
        "CREATE TABLE sqlml.catalog_stale (key VARCHAR CHECK (lower(key) <> 'x'), macro VARCHAR)",
    ],
    "a default behind a name that looks like a key": [
        'ALTER TABLE sqlml.catalog_stale ADD COLUMN "primary key (" INTEGER DEFAULT (42)',
    ],
    "a generated column behind a name that looks like a key": [
        "DROP TABLE sqlml.catalog_stale",
        "CREATE TABLE sqlml.catalog_stale "
        '(key VARCHAR NOT NULL, macro VARCHAR, "primary key (" VARCHAR AS ("key"))',
    ],
    "a name with quotes for a name": [
        "DROP TABLE sqlml.catalog_stale",
        'CREATE TABLE sqlml.catalog_stale (key VARCHAR NOT NULL, """macro""" VARCHAR)',
    ],
    "a type for a key": [
        "CREATE TYPE sqlml.key AS VARCHAR",
        'ALTER TABLE sqlml.catalog_stale ADD COLUMN "primary" sqlml."key"',
    ],
    "another column": ["ALTER TABLE sqlml.catalog_tags ADD COLUMN more INTEGER"],
}
if IS_DUCKDB_2:
    FORGED |= {
        f"a trigger on {name} after {event}": [
            f"CREATE TRIGGER theirs AFTER {event} ON sqlml.{name} "
            "FOR EACH STATEMENT INSERT INTO main.ran VALUES (1)"
        ]
        for name in TABLES
        for event in ("INSERT", "UPDATE", "DELETE")
    }


@pytest.mark.by_day(8)
@pytest.mark.parametrize("forged", FORGED)
def test_a_catalog_of_another_shape_is_refused(sound: Path, tmp_path: Path, forged: str) -> None:
    path = tmp_path / "forged.duckdb"
    shutil.copy(sound, path)
    with duckdb.connect(path) as con:
        con.execute("CREATE MACRO boom() AS 1")
        for statement in FORGED[forged]:
            con.execute(statement)
        con.execute("CREATE OR REPLACE MACRO boom() AS system.main.error('RAN')::BIGINT")
        con.execute("DELETE FROM sqlml.catalog_stale" if "trigger" in forged else "SELECT 1")
        con.execute("DELETE FROM ran")
    with sqlml.connect(path) as con:
        for statement in (*QUERIES[:1], "SHOW MODELS", "DESCRIBE MODEL odds", "DROP MODEL odds"):
            with pytest.raises(CatalogError, match=r"has been altered.*sqlml\.catalog_"):
                con.execute(statement)
        with pytest.raises(CatalogError, match="has been altered"):
            con.create_model("new", models()["odds"], verify=False)
        with sqlml.connect() as other:
            other.execute("CREATE TABLE x AS SELECT 1 AS a")
            with pytest.raises(sqlml.errors.UnknownModelError):
                other.execute("SELECT predict('odds', *) FROM x")
        assert con.execute("SELECT * FROM ran").fetchall() == []
    with sqlml.connect() as con:
        con.execute(f"ATTACH '{path}' AS theirs")
        with pytest.raises(CatalogError, match="has been altered"):
            con.execute("SELECT predict('theirs.line', *) FROM theirs.t")
        with pytest.raises(sqlml.errors.UnknownModelError):
            con.execute("SELECT predict('line', *) FROM theirs.t")


def test_a_view_in_place_of_a_stamp_is_not_bound(sound: Path, tmp_path: Path) -> None:
    path = tmp_path / "forged.duckdb"
    shutil.copy(sound, path)
    with duckdb.connect(path) as con:
        con.execute("CREATE MACRO boom() AS 1; DROP TYPE IF EXISTS sqlml.stamp_line")
        con.execute(f"CREATE VIEW sqlml.stamp_line AS SELECT {BOOM} AS x")
        con.execute("CREATE OR REPLACE MACRO boom() AS system.main.error('RAN')::BIGINT")
    with sqlml.connect(path, read_only=True) as con:
        assert len(con.execute(QUERIES[0]).fetchall()) == 60


def test_a_macro_in_place_of_ours_is_not_bound(sound: Path, tmp_path: Path) -> None:
    """sqlml asks which parameters `predict` has when it makes the macros anew."""
    path = tmp_path / "forged.duckdb"
    shutil.copy(sound, path)
    parameters = [f"a{i}" for i in range(20)]
    with duckdb.connect(path) as con:
        con.execute("CREATE MACRO boom() AS 1")
        for n in range(21):
            taken = ", ".join([*parameters[:n], "sqlml_row := 1"])
            con.execute(f"CREATE OR REPLACE MACRO predict({taken}) AS {BOOM}")
        con.execute("CREATE OR REPLACE MACRO boom() AS system.main.error('RAN')::BIGINT")
    with sqlml.connect(path) as con:
        con.create_model("new", models()["odds"], verify=False)
        con.execute("DROP MODEL new")


def test_a_table_that_another_connection_changes_is_seen(sound: Path, tmp_path: Path) -> None:
    path = tmp_path / "changed.duckdb"
    shutil.copy(sound, path)
    with sqlml.connect(path) as con:
        con.execute(QUERIES[0]).fetchall()
        other = con.connection.cursor()
        other.execute("CREATE MACRO boom() AS 1")
        for statement in as_view("catalog_models"):
            other.execute(statement)
        other.execute("CREATE OR REPLACE MACRO boom() AS system.main.error('RAN')::BIGINT")
        with pytest.raises(CatalogError, match="is a view"):
            con.execute("SELECT predict('odds', *) FROM t")
        with pytest.raises(CatalogError, match="is a view"):
            con.execute("DROP MODEL line")
