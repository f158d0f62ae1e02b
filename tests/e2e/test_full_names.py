"""Whatever sqlml sends to the engine calls functions by their full names.

A recorder stands where texts are sent; DuckDB itself reads them (`tests/support/sql_texts.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_extraction import DictVectorizer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.multioutput import MultiOutputClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder
from sklearn.tree import DecisionTreeClassifier

import sqlml
from sqlml.errors import SqlmlError
from tests.support.sql_texts import bare_names

WORDS = {"predict", "predict_proba", "predict_score", "transform"}


class Recorder:
    """A connection that writes down each text that it is sent, as do its cursors."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, texts: list[str]) -> None:
        self._connection = connection
        self._texts = texts

    def cursor(self) -> Recorder:
        return Recorder(self._connection.cursor(), self._texts)

    def execute(self, sql: str, *args: Any, **options: Any) -> Any:
        self._texts.append(sql)
        self._connection.execute(sql, *args, **options)
        return self

    def sql(self, sql: Any, *args: Any, **options: Any) -> Any:
        self._texts.append(sql if isinstance(sql, str) else sql.query)
        return self._connection.sql(sql, *args, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, *exc: object) -> None:
        self._connection.close()


def models() -> dict[str, Any]:
    """A model for each way in which one is written as SQL."""
    rng = np.random.default_rng(0)
    x = pd.DataFrame(rng.normal(size=(80, 3)), columns=["a", "b", "c"])
    x["s"] = rng.choice(["x", "y", "it's"], 80)
    y = np.array(["no", "yes", "never"])[(x.a > 0).astype(int) + (x.b > 0.7)]
    two = np.stack([y, np.where(x.c > 0, "p", "q")], axis=1)
    numbers, encoder = x[["a", "b", "c"]], OneHotEncoder(handle_unknown="ignore")
    mixed = make_column_transformer((encoder, ["s"]), remainder="passthrough")
    ordinal = make_column_transformer((OrdinalEncoder(), ["s"]), remainder="passthrough")
    items = [{"p": float(v), "q": 1.0} for v in x.a]
    return {
        "line": LinearRegression().fit(numbers, x.a * 2),
        "odds": LogisticRegression().fit(numbers, y == "yes"),
        "classes": LogisticRegression().fit(numbers, y),
        "tree": DecisionTreeClassifier(max_depth=3, random_state=0).fit(numbers, y),
        "forest": RandomForestClassifier(5, max_depth=4, random_state=0).fit(numbers, y),
        "mixed": make_pipeline(mixed, LogisticRegression()).fit(x, y == "yes"),
        "ranked": make_pipeline(ordinal, LogisticRegression()).fit(x, y == "yes"),
        "both": MultiOutputClassifier(DecisionTreeClassifier(max_depth=2)).fit(numbers, two),
        "items": make_pipeline(DictVectorizer(), LinearRegression()).fit(items, x.b),
        "scaled": make_column_transformer((encoder, ["s"])).fit(x[["s"]]),
    }


STATEMENTS = (
    "SHOW MODELS",
    "SHOW MODELS LIKE 'o%'",
    "SHOW VERSIONS IN MODEL odds",
    "SHOW CREATE MODEL line",
    "DESCRIBE MODEL classes",
    "DESCRIBE MODEL nobody",
    "EXPLAIN SELECT predict('mixed', *) FROM t",
    "EXPLAIN ANALYZE SELECT predict('forest', *) FROM t",
    "ALTER MODEL odds SET ALIAS best = 1",
    "ALTER MODEL odds SET TAG owner = 'me'",
    "ALTER MODEL odds SET OPTIONS (on_null = 'null')",
    "ALTER MODEL line RENAME TO renamed",
    "ALTER MODEL renamed RENAME TO line",
    "BEGIN",
    "ALTER MODEL line SET DEFAULT_VERSION = 1",
    "COMMIT",
)
CALLS = (
    "predict('line', *)", "predict('line', a := a + 1, b := 2, c := c)", "predict('odds', *)",
    "predict_proba('odds', *)", "predict_proba('odds', *, class := true)",
    "predict_score('odds', *)", "predict('odds@best', *)", "predict('odds@first', *)",
    "predict('classes', *)", "predict_proba('classes', *)",
    "predict_proba('classes', *, class := 'yes')", "predict('tree', *)",
    "predict_proba('tree', *)", "predict('forest', *)", "predict_proba('forest', *)",
    "predict('mixed', *)", "predict_proba('ranked', *)", "predict('both', *)",
    "predict_proba('both', *)", "predict('items', {'p': 1.0, 'q': 2.0})",
    "transform('scaled', *)", "predict('line', t)",
    "predict('line', r)", "predict('nobody', *)",
)  # fmt: skip
QUERIES = (
    "SELECT id FROM t WHERE predict_proba('odds', *, class := true) > 0.7",
    "SELECT id FROM t WHERE predict_proba('odds', *, class := true) < 0.2",
    "SELECT id, predict('forest', *), predict_proba('forest', *) FROM t WHERE predict('forest', *) "
    "= 'yes' ORDER BY predict_proba('forest', *, class := 'yes')",
    "SELECT t.id FROM t LEFT JOIN u ON t.id = u.id WHERE predict('line', t.*) > 0",
    "SELECT predict('line', a, b, c) FROM t UNION SELECT predict('line', *) FROM t",
    "CREATE OR REPLACE VIEW v AS SELECT id, predict('classes', *) AS p FROM t",
    "SELECT p FROM v",
    "UPDATE u SET w = predict('line', a := w, b := 1, c := 1) WHERE id > 2",
    "INSERT INTO u SELECT id, predict('line', *) FROM t",
    "DELETE FROM u WHERE predict('line', a := w, b := 1, c := 1) > 0",
    "CREATE OR REPLACE TABLE made AS SELECT id, predict('tree', *) AS p FROM t",
)


@pytest.fixture(scope="module")
def recorded() -> Iterator[tuple[sqlml.Session, list[str]]]:
    texts: list[str] = []
    con = sqlml.Session(Recorder(duckdb.connect(), texts))  # type: ignore[arg-type]
    con.connection.execute(
        "CREATE TABLE t AS SELECT i AS id, i / 9 - 1 AS a, 1 - i / 7 AS b, i / 3 AS c, 'x' AS s, "
        "MAP {'p': 1.5} AS m, {'a': 1.0, 'b': 2.0, 'c': 3.0} AS r FROM range(20) g(i)"
    )
    con.connection.execute("CREATE TABLE u (id BIGINT PRIMARY KEY, w DOUBLE)")
    del texts[:]
    for name, model in models().items():
        con.create_model(name, model, verify=False)
    con.create_model("odds", models()["odds"], or_replace=True, verify=False)
    con.execute("ALTER MODEL odds SET ALIAS best = 1")
    yield con, texts
    con.close()


def check(texts: list[str]) -> None:
    assert texts
    for text in dict.fromkeys(texts):
        names = bare_names(text) - WORDS
        assert not names, f"{sorted(names)} in {text}"


def run(con: sqlml.Session, texts: list[str], sql: str) -> None:
    del texts[:]
    try:
        con.execute(sql).fetchall()
    except SqlmlError as error:
        assert "nobody" in sql or "backend 'sql' cannot" in str(error)
    own = bare_names(sql, strict=False) - WORDS  # what the user wrote
    for text in dict.fromkeys(texts):
        names = bare_names(text) - WORDS - own
        assert not names, f"{sorted(names)} in {text}"


def test_models_are_created_by_full_names(recorded: tuple[sqlml.Session, list[str]]) -> None:
    check(recorded[1])


def test_statements_call_by_full_names(recorded: tuple[sqlml.Session, list[str]]) -> None:
    for sql in STATEMENTS:
        run(*recorded, sql)


@pytest.mark.parametrize("backend", ["auto", "sql"])
@pytest.mark.parametrize("call", CALLS)
def test_calls_are_written_by_full_names(
    recorded: tuple[sqlml.Session, list[str]], call: str, backend: str
) -> None:
    con, texts = recorded
    con.execute(f"SET sqlml_backend = '{backend}'")
    try:
        run(con, texts, f"SELECT {call} FROM t")
    finally:
        con.execute("RESET sqlml_backend")


def test_queries_are_rewritten_by_full_names(recorded: tuple[sqlml.Session, list[str]]) -> None:
    for sql in QUERIES:
        run(*recorded, sql)


def test_opening_and_dropping_call_by_full_names(tmp_path: Path) -> None:
    texts: list[str] = []
    path = tmp_path / "shop.duckdb"
    with sqlml.connect(path) as con:
        con.create_model("line", models()["line"], inputs=["a", "b", "c"])
        con.execute("CREATE VIEW v AS SELECT predict('line', a := 1, b := 2, c := 3) AS p")
    other = duckdb.connect()
    with sqlml.Session(Recorder(other, texts)) as con:  # type: ignore[arg-type]
        con.execute(f"ATTACH '{path}' AS shop")
        con.execute("SELECT predict('shop.line', a := 1, b := 2, c := 3)").fetchall()
        con.execute("SELECT p FROM shop.v").fetchall()
        con.execute("USE shop")
        con.execute("DROP MODEL line")
    texts = [text for text in texts if not text.startswith(("ATTACH", "USE"))]
    check(texts)
