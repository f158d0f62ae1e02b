"""Parameters that are lists, dicts or arrays have the types that the engine gives to them."""

from __future__ import annotations

import decimal
from collections.abc import Iterator
from typing import Any

import duckdb
import numpy as np
import pytest
from sklearn.tree import DecisionTreeRegressor

import sqlml

pytestmark = pytest.mark.version

NUMBERS = [1.2, 1.4, 1.6, 3.0]
ANSWERS = [(1.0,), (2.0,), (3.0,), (4.0,)]


@pytest.fixture(scope="module")
def con() -> Iterator[sqlml.Session]:
    """A tree that tells the numbers from each other, which whole numbers do not."""
    with sqlml.connect() as con:
        con.create_model(
            "t",
            DecisionTreeRegressor().fit([[n] for n in NUMBERS], range(1, 5)),
            inputs=["x"],
            verify=False,
        )
        yield con


@pytest.mark.by_day(2)
@pytest.mark.parametrize(
    "query, value",
    [
        ("FROM (SELECT unnest(?) AS x)", NUMBERS),
        ("FROM (SELECT unnest(?) AS x)", tuple(NUMBERS)),
        ("FROM (SELECT unnest(?) AS x)", np.array(NUMBERS)),
        ("FROM (SELECT unnest(?) AS x)", [1.2, 1.4, decimal.Decimal("1.6"), 3]),
        ("FROM unnest(?) u(x)", NUMBERS),
        ("FROM (SELECT unnest(?, recursive := true) AS x)", [[1.2, 1.4], [1.6, 3.0]]),
        ("FROM (SELECT unnest(s.v) AS x FROM (SELECT ? AS s))", {"v": NUMBERS, "w": 1}),
        ("FROM (SELECT unnest(?, recursive := true))", [{"x": n} for n in NUMBERS]),
        (
            "FROM (SELECT unnest(map_values(?)) AS x)",
            {"key": ["a", "b", "c", "d"], "value": NUMBERS},
        ),
    ],
)
def test_a_column_made_of_a_parameter(con: sqlml.Session, query: str, value: Any) -> None:
    for call in ("predict('t', *)", "predict('t', x := x)", "predict('t', x := x + 0)"):
        assert con.execute(f"SELECT {call} {query}", [value]).fetchall() == ANSWERS
    named = query.replace("?", "$value")
    assert con.execute(f"SELECT predict('t', *) {named}", {"value": value}).fetchall() == ANSWERS


def test_each_value_of_executemany_is_its_own(con: sqlml.Session) -> None:
    con.execute("CREATE OR REPLACE TABLE found (y DOUBLE)")
    insert = "INSERT INTO found SELECT predict('t', x := x) FROM (SELECT unnest(?) AS x)"
    con.executemany(insert, [[[1, 3]], [[1.4, 1.6]], [[3.0]]])
    assert con.execute("FROM found").fetchall() == [(1.0,), (4.0,), (2.0,), (3.0,), (4.0,)]


def test_a_value_that_the_engine_does_not_take_is_its_error(con: sqlml.Session) -> None:
    con.execute("BEGIN; CREATE OR REPLACE TABLE kept AS SELECT 1 AS a")
    with pytest.raises(duckdb.NotImplementedException, match="object"):
        con.execute("SELECT predict('t', x := x) FROM (SELECT unnest(?) AS x)", [object()])
    con.execute("COMMIT")
    assert con.execute("FROM kept").fetchall() == [(1,)]
