"""Names that differ in case are one where they are one to the engine: in ASCII alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from sklearn.linear_model import LinearRegression

import sqlml
from sqlml.types import fold

PAIRS = [
    ("K", "k"),
    ("É", "é"),
    ("İ", "i̇"),
    ("İ", "i"),
    ("ı", "i"),
    ("ſ", "s"),
    ("\N{KELVIN SIGN}", "k"),
    ("ß", "SS"),
    ("Σ", "ς"),
    ("Ǆ", "ǆ"),
]
"""Python's lower(), upper() and casefold() make one of each, or take one for a keyword's letter."""


def constant(value: float) -> LinearRegression:
    return LinearRegression().fit([[1.0], [2.0]], [value, value])


def is_one(one: str, other: str) -> bool:
    """Whether two names are one to the engine."""
    with duckdb.connect() as con:
        con.execute(f'CREATE TABLE "{one}" (a INTEGER)')
        try:
            con.execute(f'FROM "{other}"')
        except duckdb.CatalogException:
            return False
        return True


@pytest.fixture
def con(tmp_path: Path) -> Iterator[sqlml.Session]:
    with sqlml.connect(tmp_path / "names.db") as con:
        yield con


@pytest.mark.parametrize("one, other", PAIRS)
def test_names_are_one_where_the_engine_says_so(one: str, other: str, con: sqlml.Session) -> None:
    same = is_one(one, other)
    assert (fold(one) == fold(other)) is same
    con.create_model(one, constant(1.0), inputs=[one])
    con.create_model(other, constant(2.0), inputs=[one], or_replace=same)
    first = 2.0 if same else 1.0
    calls = f"predict('{one}', t), predict('{other}', t)"
    query = f'SELECT {calls} FROM (SELECT 0 AS "{one}") t'
    assert con.execute(query).fetchall() == [(first, 2.0)]
    if not duckdb.__version__.startswith("1."):  # whose files keep no types of macros' parameters
        with con.connection.cursor() as plain:
            assert plain.execute(query).fetchall() == [(first, 2.0)]
    query = f"SELECT predict('{one}', *) FROM (SELECT 0 AS \"{other}\")"
    if same:
        assert con.execute(query).fetchall() == [(2.0,)]
    else:
        with pytest.raises(sqlml.errors.MissingColumnError):
            con.execute(query)


@pytest.mark.parametrize("one, other", [pair for pair in PAIRS if len(pair[1]) == 1])
def test_aliases_and_tags(one: str, other: str, con: sqlml.Session) -> None:
    con.create_model("m", constant(1.0), inputs=["a"])
    con.add_version("m", constant(2.0), inputs=["a"])
    con.execute(f"ALTER MODEL m SET ALIAS {one} = 1; ALTER MODEL m SET ALIAS {other} = 2")
    first = 2.0 if is_one(one, other) else 1.0
    query = f"SELECT predict('m@{one}', a := 0), predict('m@{other}', a := 0)"
    assert con.execute(query).fetchall() == [(first, 2.0)]
    for name in (one, other):
        con.execute(f"ALTER MODEL m SET TAG {name} = 'of {name}'")
    tags = con.execute("SELECT tags FROM sqlml.models WHERE name = 'm'").fetchall()
    assert len(tags[0][0]) == (1 if first == 2.0 else 2)


@pytest.mark.parametrize("one, other", PAIRS)
def test_parameters_of_lambdas_and_statements(one: str, other: str, con: sqlml.Session) -> None:
    con.create_model("m", LinearRegression().fit([[1.0], [2.0]], [1.0, 2.0]), inputs=["a"])
    column = f'SELECT 7.0 AS "{other}"'
    inner = f"round(predict('m', a := \"{other}\"), 6)"
    arrow = f'lambda "{one}":'
    query = "SELECT list_transform([5.0], {} {})::DOUBLE[] FROM ({})"
    want = duckdb.sql(query.format(arrow, f'"{other}"', column)).fetchall()
    assert con.execute(query.format(arrow, inner, column)).fetchall() == want
    if other.isidentifier() and one.isidentifier() and not is_one(one, other):
        query = f"SELECT round(predict('m', a := ${one}) + predict('m', a := ${other}), 6)"
        assert con.execute(query, {one: 1.0, other: 2.0}).fetchall() == [(3.0,)]


def test_a_word_that_is_nearly_a_keyword(con: sqlml.Session) -> None:
    con.create_model("m", constant(1.0), inputs=["a"])
    for word in ("lımıt", "ſelect", "wıth", "from\N{KELVIN SIGN}"):
        query = f"SELECT predict('m', a := {word}) AS {word} FROM (SELECT 2.0 AS {word}) {word}"
        assert con.execute(query).fetchall() == [(1.0,)]
    with pytest.raises(duckdb.ParserException, match="syntax error"):
        con.execute("ſhow models")


def test_a_database_of_that_name(con: sqlml.Session) -> None:
    con.execute("ATTACH ':memory:' AS İ; ATTACH ':memory:' AS i")
    for number, name in enumerate(("İ", "i")):
        con.execute(f"USE {name}")
        con.create_model("m", constant(float(number)), inputs=["a"])
    query = "SELECT predict('İ.m', a := 0), predict('i.m', a := 0), predict('I.m', a := 0)"
    assert con.execute(query).fetchall() == [(0.0, 1.0, 1.0)]
