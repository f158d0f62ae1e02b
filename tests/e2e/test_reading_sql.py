"""How SQL is read: names of models that other tools write, and texts that only the engine reads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import duckdb
import pytest
from sklearn.linear_model import LinearRegression

import sqlml
from sqlml.errors import ParseError, UnknownModelError


@pytest.fixture(scope="module")
def con() -> Iterator[Any]:
    model = LinearRegression().fit([[1.0, 0.0], [2.0, 1.0], [0.0, 3.0]], [1.0, 2.0, 3.0])
    with sqlml.connect() as session:
        session.create_model("m", model, inputs=["a", "b"], verify=False)
        session.create_model("my model", model, inputs=["a", "b"], verify=False)
        session.execute("CREATE TABLE t AS SELECT i AS a, -i AS b FROM range(4) r(i)")
        yield session


@pytest.mark.parametrize(
    "call",
    [
        "PREDICT(MODEL m, *)",
        "PREDICT(MODEL 'm', *)",
        'predict(MODEL "m", a, b)',
        "predict(MODEL m/1, *)",
        "predict(model main.m, *)",
        'predict(MODEL "my model", a := a, b := b)',
        "predict('main.m', *)",
        "predict(MODEL $name, *)",
    ],
)
def test_a_call_names_its_model_by_the_word_model(con: Any, call: str) -> None:
    parameters = {"name": "m"} if "$" in call else None
    found = con.execute(f"SELECT {call} AS p FROM t ORDER BY a", parameters)
    assert found.fetchall() == con.execute("SELECT predict('m', *) FROM t ORDER BY a").fetchall()


def test_a_model_that_is_not_there_is_named(con: Any) -> None:
    with pytest.raises(UnknownModelError, match="other.m"):
        con.execute("SELECT predict(MODEL other.m, *) FROM t")


def test_what_only_the_engine_reads_is_an_error_beside_a_model(con: Any) -> None:
    assert con.execute("SELECT 3! AS a").fetchall() == duckdb.sql("SELECT 3! AS a").fetchall()
    with pytest.raises(ParseError, match=r"cannot read this statement(.|\n)*LINE 1(.|\n)*\^"):
        con.execute("SELECT 3!, predict('m', *) FROM t")
    assert con.execute("SELECT x, predict('m', *) FROM t, (SELECT 6 AS x)").fetchall()


def test_what_nobody_reads_is_an_error_in_the_engines_words(con: Any) -> None:
    with pytest.raises(duckdb.ParserException, match="FORM"):
        con.execute("SELECT predict('m', *) FORM t WHERE (")
