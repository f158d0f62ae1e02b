"""Errors about models show their place in the text that the user wrote."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LinearRegression
from sklearn.neighbors import KNeighborsClassifier

import sqlml
from sqlml import errors


@pytest.fixture(scope="module")
def con() -> Iterator[sqlml.Session]:
    x = np.random.default_rng(0).normal(size=(50, 2))
    with sqlml.connect() as con:
        con.execute("CREATE TABLE t (a DOUBLE, b DOUBLE, s VARCHAR)")
        con.create_model("m", LinearRegression().fit(x, x[:, 0]), inputs=["a", "b"], verify=False)
        forest = RandomForestClassifier(5, random_state=0).fit(x, x[:, 0] > 0)
        con.create_model("c", forest, inputs=["a", "b"], verify=False)
        yield con


PLACES = [
    # the text, the error, what its message says, and the word below which the caret is
    ("SELECT predict('nobody', *) FROM t", "UnknownModelError", "unknown model", "'nobody'"),
    ("SELECT 1;\n\nSELECT predict('nobody', *) FROM t", "UnknownModelError", "no", "'nobody'"),
    (
        "SELECT 1; SELECT predict('m', *) FROM t;\n SELECT predict('m/9', *) FROM t",
        "UnknownModelError",
        "no version",
        "'m/9'",
    ),
    (
        "EXPLAIN SELECT predict('nobody', *)\nFROM t",
        "UnknownModelError",
        "unknown model",
        "'nobody'",
    ),
    (
        "SELECT 2;\nEXPLAIN ANALYZE\nSELECT predict('nobody', *) FROM t",
        "UnknownModelError",
        "unknown model",
        "'nobody'",
    ),
    (
        "CREATE VIEW v AS\nSELECT predict('nobody', *) FROM t",
        "UnknownModelError",
        "unknown model",
        "'nobody'",
    ),
    ("FROM t SELECT a,\n\tpredict('m', * EXCLUDE (a))", "MissingColumnError", "'a'", "predict"),
    (
        "SELECT 1 AS x, predict('m', *)\nFROM t t1, t t2",
        "AmbiguousColumnError",
        "ambiguous",
        "predict",
    ),
    ("SELECT predict('m', a) FROM t", "ArityError", "2 features", "predict"),
    ("SELECT predict('m',\n b, a) FROM t", "ColumnOrderError", "another order", "b, a"),
    ("SELECT predict('m', s, b) FROM t", "ColumnTypeError", "takes numbers", "s, b"),
    ("SELECT predict('m', a := 1,\n b := 2, b := 3)", "BindError", "given twice", "b := 3)"),
    ("SELECT predict('m', a, , b) FROM t", "BindError", "empty", ", b)"),
    ("SELECT predict_proba('c', *, class := 'maybe') FROM t", "BindError", "no class", "'maybe'"),
    ("SELECT predict_proba('c', *, class := a > 0) FROM t", "BindError", "literal", "a > 0"),
    ("SELECT predict('c', *, class := true) FROM t", "BindError", "predict_proba", "class"),
    ("SELECT predict_proba('m', *) FROM t", "BindError", "no probabilities", "predict_proba"),
    ("SELECT predict(m, *) FROM t", "BindError", "no column m names models", "m, *"),
    ("SELECT predict('m', *)", "BindError", "FROM", "*)"),
    ("SELECT predict('m', t.*, nix) FROM t", "BindError", "positional", "nix"),
    (
        "CREATE TABLE u (a DOUBLE, b DOUBLE,\n p DOUBLE AS (predict('m', a, b)))",
        "BindError",
        "view",
        "predict",
    ),
    ("SELECT 3;\nCREATE MODEL x INPUT (a) FROM 'x'", "ParseError", "expected", "a) FROM"),
    ("SELECT 3; SELECT predict('m', 1, 2); DROP MODEL m m", "ParseError", "expected the end", "m"),
]


@pytest.mark.parametrize(("query", "error", "message", "word"), PLACES)
def test_the_caret_is_below_the_word(
    con: sqlml.Session, query: str, error: str, message: str, word: str
) -> None:
    with pytest.raises(getattr(errors, error)) as caught:
        con.execute(query)
    check(str(caught.value), query, message, word)
    with pytest.raises(getattr(errors, error)) as caught:
        con.sql(query)
    check(str(caught.value), query, message, word)


def check(text: str, query: str, message: str, word: str) -> None:
    """The last two lines show the line of `query` where `word` comes last, and a caret below it."""
    said, _, place = text.rpartition("\n\n")
    assert message in said
    offset = query.rindex(word)
    line = query.count("\n", 0, offset)
    column = offset - (query.rfind("\n", 0, offset) + 1)
    head = f"LINE {line + 1}: "
    shown = query.splitlines()[line].replace("\t", " ")
    assert place == f"{head}{shown}\n{' ' * (len(head) + column)}^ column {column + 1}"


def test_what_a_model_cannot_be_run_on_shows_the_call(con: sqlml.Session) -> None:
    near = KNeighborsClassifier(1).fit([[0.0, 1.0], [1.0, 0.0]], [0, 1])
    con.create_model("near", near, inputs=["a", "b"], backend="sql")
    with pytest.raises(errors.BackendError, match="'near'") as caught:
        con.execute("SELECT 1;\nSELECT a, predict('near', *) FROM t")
    place = "LINE 2: SELECT a, predict('near', *) FROM t\n" + " " * 18 + "^ column 11"
    assert str(caught.value).endswith(place)


def test_an_error_at_a_place_keeps_what_else_it_says() -> None:
    error = errors.UnknownCategoryError("no such plan", "plan", "encoder")
    placed = error.at("SELECT 1", 7, "model 'm': ")
    assert isinstance(placed, errors.UnknownCategoryError)
    assert (placed.feature, placed.step, placed.offset) == ("plan", "encoder", 7)
    assert str(placed) == "model 'm': no such plan\n\nLINE 1: SELECT 1\n               ^ column 8"
    assert str(error) == "no such plan"
