"""The engine's own errors in queries of models show the place in the text that the user wrote."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, Ridge

import sqlml
import sqlml.errors

pytestmark = pytest.mark.version

X = np.random.default_rng(0).normal(size=(40, 2))


@pytest.fixture(scope="module")
def con() -> Iterator[sqlml.Session]:
    with sqlml.connect() as con:
        con.execute("CREATE TABLE t AS SELECT 0.5 AS age, 1.5 AS b, 'x' AS s FROM range(3)")
        con.create_model("ridge", Ridge().fit(X, X[:, 0]), inputs=["age", "b"], verify=False)
        con.create_model(
            "lr", LogisticRegression().fit(X, X[:, 0] > 0), inputs=["age", "b"], verify=False
        )
        yield con


@pytest.mark.parametrize(
    "query, place",
    [
        ("SELECT sum(predict('ridge', *)) FROM t WHERE ¦nope > 3", "nope"),
        ("SELECT s,\n  predict('lr', *) || ¦nothing(s)\nFROM t", "nothing"),
        ("SELECT predict('ridge', *) ¦OVER () FROM t", "OVER"),
        ("SELECT s, predict('lr', *) FROM t ORDER BY ¦predicted", "predicted"),
        ("SELECT predict('ridge', *) + ¦s.x.y.z FROM t", "s.x"),
        ("EXPLAIN SELECT predict('lr', *), ¦nope FROM t", "nope"),
    ],
)
def test_the_place_is_that_of_the_user_s_text(con: sqlml.Session, query: str, place: str) -> None:
    offset = query.index("¦")
    query = query.replace("¦", "")
    lines = query[:offset].split("\n")
    for run in (con.execute, con.sql):
        with pytest.raises(duckdb.Error) as caught:
            run(query)
        text = str(caught.value)
        if "LINE" not in text:
            continue  # 1.5 gives no place of some
        assert text.count("LINE ") == 1
        head, _, caret = text[text.index("LINE ") :].partition("\n")
        assert head == f"LINE {len(lines)}: {query.split(chr(10))[len(lines) - 1]}"
        at = caret.index("^") - len(f"LINE {len(lines)}: ")
        assert query.split("\n")[len(lines) - 1][at:].startswith(place.split(".")[0])


@pytest.mark.parametrize(
    "query",
    [
        "SELECT predict('ridge', *) FROM ¦nosuch",
        "FROM ¦nosuch SELECT predict('ridge', *)",
        "SELECT predict('ridge', *) FROM t JOIN ¦nosuch USING (b)",
        "SELECT b, predict('ridge', age := age, b := ¦nope) FROM t",
        "SELECT predict('ridge', age, ¦nope + 1) FROM t",
        "SELECT predict('ridge', *, b := age + t.¦nope) FROM t",
        "SELECT * FROM ml_predict(MODEL ridge, TABLE ¦nosuch)",
    ],
)
def test_a_name_that_nobody_knows_is_pointed_at(con: sqlml.Session, query: str) -> None:
    offset = query.index("¦")
    with pytest.raises(sqlml.errors.SqlmlError) as caught:
        con.execute(query.replace("¦", ""))
    assert caught.value.offset == offset, caught.value


def test_an_error_inside_of_a_call_shows_the_call(con: sqlml.Session) -> None:
    with pytest.raises(duckdb.BinderException) as caught:
        con.execute("SELECT b, predict('ridge', *) FROM t\nGROUP BY b")
    text = str(caught.value)
    assert "GROUP BY" in text and "SELECT b, predict('ridge', *) FROM t" in text


def test_a_query_without_models_keeps_the_engine_s_error(con: sqlml.Session) -> None:
    query = "SELECT nope FROM t"
    with pytest.raises(duckdb.Error) as caught:
        con.execute(query)
    with pytest.raises(duckdb.Error) as own:
        con.connection.execute(query)
    assert str(caught.value) == str(own.value)
