"""What planning does to a statement's parameters."""

from __future__ import annotations

import datetime
import decimal
import re
from typing import Any

import numpy as np
import pytest

from sqlml.errors import ParseError
from sqlml.planner.syntax.arguments import find_parameters as places
from sqlml.planner.syntax.parameters import Parameters, inline_values


def test_question_marks_count_on_their_own() -> None:
    sql = "SELECT ?, ?"
    first, second = places(sql)
    given = Parameters(places(sql), [1, "a"])
    assert given.find_value(first) == (1,) and given.find_value(second) == ("a",)
    assert given.find_text(first) is None and given.find_text(second) == "a"


def test_a_used_up_parameter_leaves_the_list() -> None:
    sql = "SELECT ?, ?, ?"
    given = Parameters(places(sql), ["m", 2, 3])
    given = given.consume([places(sql)[0]])
    assert given.find_remaining_values() == ((1, 2), frozenset())
    assert given.renumber_positional(in_calls=False) == {}
    assert list(given.renumber_positional(in_calls=True).values()) == ["$1", "$2"]


def test_numbered_parameters_move_up() -> None:
    sql = "SELECT $2, $1, $3, $1"
    given = Parameters(places(sql), ["a", "m", "c"])
    given = given.consume([places(sql)[0]])
    assert given.find_remaining_values() == ((0, 2), frozenset())
    assert list(given.renumber_positional(in_calls=False).values()) == ["$1", "$2", "$1"]


def test_a_named_parameter_stays_while_somebody_needs_it() -> None:
    sql = "SELECT $m, $m, $x"
    first, second, _ = places(sql)
    given = Parameters(places(sql), {"M": "churn", "x": 1})
    given = given.consume([first])
    assert given.find_remaining_values() == (None, frozenset())
    given = given.consume([second])
    assert given.find_remaining_values() == (None, frozenset({"m"}))


def test_probes_get_short_values_and_nulls_of_the_types() -> None:
    values = [
        True,
        1,
        1.5,
        "a",
        None,
        decimal.Decimal(1),
        datetime.date.today(),
        np.float32(1),
        b"x",
    ]
    sql = "SELECT " + ", ".join("?" * len(values))
    given = Parameters(places(sql), values)
    assert list(given.stand_ins.values()) == [
        "CAST(True AS BOOLEAN)",
        "CAST(1 AS BIGINT)",
        "CAST(NULL AS DOUBLE)",
        "CAST('a' AS VARCHAR)",
        "NULL",
        "CAST(NULL AS DECIMAL(38, 9))",
        "CAST(NULL AS DATE)",
        "CAST(NULL AS DOUBLE)",
        "CAST(NULL AS BLOB)",
    ]
    assert len(given.untyped) == 1


def test_absent_values_are_untyped() -> None:
    sql = "SELECT ?, $name"
    given = Parameters(places(sql), None)
    assert given.find_value(places(sql)[0]) is None
    assert len(given.untyped) == 2


def test_a_parameter_that_the_rewritten_text_lost_is_given_no_more() -> None:
    sql = "SELECT f(a := ?, b := ?) FROM t WHERE c > ?"
    given = Parameters(places(sql), [1, 2, 3])
    assert list(given.renumber_positional(in_calls=True).values()) == ["$1", "$2", "$3"]
    assert given.fit_sql("SELECT g($2, $2) WHERE c > $3") == (
        "SELECT g($1, $1) WHERE c > $2",
        (1, 2),
        frozenset(),
    )
    assert given.fit_sql("SELECT $1, $2, $3") == ("SELECT $1, $2, $3", None, frozenset())


def test_more_values_than_parameters_stay_for_the_engine_to_refuse() -> None:
    given = Parameters(places("SELECT f(?, ?)"), [1, 2, 3])
    assert given.fit_sql("SELECT g($2)") == ("SELECT g($1)", (1, 2), frozenset())


def test_a_name_that_the_rewritten_text_lost_is_given_no_more() -> None:
    given = Parameters(places("SELECT f($A, $b)"), {"a": 1, "B": 2, "c": 3})
    assert given.fit_sql("SELECT g($b)") == ("SELECT g($b)", None, frozenset({"a"}))


def test_values_are_written_into_a_query() -> None:
    sql = "SELECT '?', $1 FROM t WHERE a = $2 AND b = $1 -- ?"
    assert inline_values(sql, [1, "x"], repr) == "SELECT '?', 1 FROM t WHERE a = 'x' AND b = 1 -- ?"
    assert inline_values("SELECT $b, $A", {"a": 1, "B": None}, str) == "SELECT None, 1"


@pytest.mark.parametrize(
    ("sql", "values", "says"),
    [
        ("SELECT ?, ?", [1], "no value is given for parameter ?"),
        ("SELECT $a", {"b": 1}, "no value is given for parameter $a"),
        ("SELECT ?", [1, 2], "2 values are given for 1 parameter"),
        ("SELECT 1", [1], "1 value is given for no parameter"),
    ],
)
def test_values_must_be_those_of_the_parameters(sql: str, values: Any, says: str) -> None:
    with pytest.raises(ParseError, match=re.escape(says)):
        inline_values(sql, values, str)
