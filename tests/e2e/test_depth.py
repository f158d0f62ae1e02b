"""Deep nesting: planning takes time in proportion to the text, and the engine has the last word."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

import duckdb
import numpy as np
import pytest
from sklearn.linear_model import LinearRegression

import sqlml
from sqlml.errors import SqlmlError


@pytest.fixture(scope="module")
def con() -> Iterator[Any]:
    x = np.random.default_rng(0).normal(size=(20, 2))
    con = sqlml.connect()
    con.create_model(
        "m", LinearRegression().fit(x, x @ [0.5, 0.25]), inputs=["a", "b"], verify=False
    )
    con.execute("CREATE TABLE t AS SELECT 2.0 AS a, 4.0 AS b")
    con.execute("SELECT predict('m', *) FROM t").fetchall()
    yield con
    con.close()


def _work(con: Any, query: str) -> int:
    """Lines of Python that planning a query runs: a measure that no busy machine changes."""
    lines = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal lines
        lines += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        con.plan(query)
    finally:
        sys.settrace(before)
    return lines


_NESTED = {
    "brackets": ("(", ")"),
    "lists": ("[", "]"),
    "functions": ("coalesce(", ", 0)"),
    "subqueries": ("(SELECT ", ")"),
}


def _nested(opening: str, closing: str, count: int) -> str:
    return f"SELECT {opening * count}predict('m', *){closing * count} FROM t"


def _in_each_other(count: int) -> str:
    return "SELECT " + "predict('m', " * count + "a" + ", b)" * count + " FROM t"


@pytest.mark.parametrize("opening, closing", _NESTED.values(), ids=_NESTED)
def test_planning_takes_time_in_proportion_to_the_depth(
    con: Any, opening: str, closing: str
) -> None:
    once = _work(con, _nested(opening, closing, 25))
    assert _work(con, _nested(opening, closing, 100)) < 7 * once  # the square would be 16 times


def test_calls_in_each_other_take_time_in_proportion_to_their_number(con: Any) -> None:
    assert _work(con, _in_each_other(60)) < 7 * _work(con, _in_each_other(15))


def test_many_terms_are_in_each_other_and_are_read(con: Any) -> None:
    terms = " OR ".join(f"a = {i}" for i in range(900))
    query = f"SELECT count(predict('m', *)) FROM t WHERE b < 0 OR {terms}"
    plain = f"SELECT count(*) FROM t WHERE b < 0 OR {terms}"
    assert con.execute(query).fetchall() == con.execute(plain).fetchall()


def test_nested_calls_give_what_the_model_gives_each_time(con: Any) -> None:
    ((found,),) = con.execute(_in_each_other(30)).fetchall()
    value = 2.0
    for _ in range(30):
        value = 0.5 * value + 0.25 * 4.0
    assert found == pytest.approx(value, rel=1e-12)


@pytest.mark.by_day(4)
@pytest.mark.parametrize("opening, closing", _NESTED.values(), ids=_NESTED)
def test_what_is_too_deep_for_the_engine_fails_in_its_words(
    con: Any, opening: str, closing: str
) -> None:
    query = _nested(opening, closing, 1500)
    try:
        duckdb.sql(query.replace("predict('m', *)", "1").replace(" FROM t", "")).fetchall()
    except duckdb.Error as error:
        assert "expression depth" in str(error)
        with pytest.raises((duckdb.Error, SqlmlError), match="expression depth"):
            con.execute(query)
    else:  # 1.5 counts no brackets
        assert con.execute(query).fetchall()
