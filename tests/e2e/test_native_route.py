"""Native functions and Arrow UDFs give the same answers, and EXPLAIN tells which are taken."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

import sqlml
from sqlml.errors import MissingValueError, SqlmlError, UnknownCategoryError
from tests.e2e.native_models import NEEDS_NATIVE, ROWS, filled, routes

pytestmark = NEEDS_NATIVE


@pytest.fixture(scope="module")
def con() -> Iterator[sqlml.Session]:
    with filled() as con:
        yield con


QUERIES = [
    "SELECT id, predict('forest', *), predict_proba('forest', *, class := 'low') FROM {t}",
    "SELECT id, predict('boosted', *) AS y, predict_proba('boosted', *) AS p FROM {t}",
    "SELECT id, predict_score('boosted', *), predict('ridge', *) FROM {t}",
    "SELECT id, transform('scaler', *) FROM {t}",
    "SELECT id, predict('forest', *), explain('forest', *, baseline := true) FROM {t}",
    "SELECT id, predict('targets_null', *), predict_proba('targets_null', *) FROM {t}",
    "SELECT id, predict('pair', *) FROM {t}",
    "SELECT id, predict('steps_null', *), "
    "round(predict_proba('steps_null', *, class := 'low'), 13) FROM {t}",
    "SELECT id, predict('calibrated', *), predict_proba('calibrated', *) FROM {t}",
    "SELECT id, predict('near_null', *), predict_proba('near_null', *, class := 'low') FROM {t}",
    "SELECT id, predict('hot_null', *), predict_proba('hot_null', *) FROM {t}",
    "SELECT id, predict('coded', *) FROM {t}",
    "SELECT id, predict('logistic_null', *) FROM {t} WHERE predict('logistic_null', *)",
    "SELECT id, TRY(predict('near', *)), TRY(predict('strict', *)) FROM {t}",
    "SELECT x.id, predict('forest', y.*) FROM {t} x LEFT JOIN {t} y ON y.id = x.id + 4990",
    "SELECT count(*) FROM {t} x LEFT JOIN {t} y ON y.id = x.id + 4990 "
    "WHERE predict('logistic_null', y.*)",
    "SELECT predict('forest', a := v, b := v, c := v) FROM range(3) r(v)",
    "SELECT list_transform([1, 2, 3], lambda v: predict('forest', a := v, b := 0, c := id)) "
    "FROM {t} WHERE id < 9",
    "SELECT predict('forest', *), count(*), avg(predict_proba('forest', *, class := 'low')) "
    "FROM {t} GROUP BY ALL",
    "SELECT id, row_number() OVER (ORDER BY predict_score('boosted', *)[1], id) FROM {t}",
    "SELECT predict('hot', a := 1, b := 2, c := 3, city := 'Ulm', note := NULL)",
]


def answer(con: Any, query: str) -> Any:
    """The sorted rows of a query, or the error that it ends in."""
    try:
        return sorted(map(repr, con.execute(query).fetchall()))
    except SqlmlError as error:
        return type(error).__name__, error.message


@pytest.mark.parametrize("table", ["t", pytest.param("holes", marks=pytest.mark.nightly)])
def test_both_routes_give_the_same(con: sqlml.Session, table: str) -> None:
    wrong = []
    for query in (q.format(t=table) for q in QUERIES):
        made = []
        for route in ("arrow", "native"):
            con.execute(f"SET sqlml_route = '{route}'")
            made.append(answer(con, query))
        con.execute("RESET sqlml_route")
        if made[0] != made[1]:
            wrong.append((query, made))
    assert not wrong


def test_the_route_is_told(con: sqlml.Session) -> None:
    assert routes(con, "SELECT predict('forest', *), predict('hot', *) FROM t") == ["native"] * 2
    assert (
        routes(con, "SELECT predict('steps', *), predict_proba('calibrated', *) FROM t")
        == ["native"] * 2
    )
    assert routes(con, "SELECT predict('near', *) FROM t") == ["native with python"]
    text = " ".join(con.explain("SELECT predict('near', *) FROM t").split())
    assert "route native, but Python scores the packed rows: some of the model's steps" in text
    text = " ".join(con.explain("SELECT predict('hot', *) FROM t", analyze=True).split())
    assert "3 DOUBLE and 2 VARCHAR columns route native, without Python rows" in text
    assert "measured 5,000 rows in 3 batches" in text


def test_refused_rows_raise_the_same_errors(con: sqlml.Session) -> None:
    with pytest.raises(MissingValueError, match="b"):
        con.execute("SELECT predict('near', *) FROM holes").fetchall()
    with pytest.raises(UnknownCategoryError, match="'a note that nobody has seen'"):
        con.execute("SELECT predict('strict', * REPLACE ('Ulm' AS city)) FROM holes").fetchall()
    with pytest.raises(UnknownCategoryError, match="'city' has NULL"):
        con.execute("SELECT predict('strict', * REPLACE ('short' AS note)) FROM holes").fetchall()


def test_threads_and_cursors_share_the_functions(con: sqlml.Session) -> None:
    query = "SELECT sum(hash(predict('hot', *), predict_proba('forest', *))) FROM t"
    want = con.execute(query).fetchall()
    found: list[Any] = []

    def score() -> None:
        with con.cursor() as own:
            found.extend(own.execute(query).fetchall() for _ in range(3))

    threads = [threading.Thread(target=score) for _ in range(64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [want] * (64 * 3)


def test_a_function_in_the_users_own_transaction(con: sqlml.Session) -> None:
    with con.cursor() as own:
        own.execute("BEGIN")
        own.execute("INSERT INTO t BY NAME SELECT 0 AS id, 1.5 AS a, 2.5 AS b, 3.5 AS c")
        query = "SELECT predict('forest', a, b, c) FROM t WHERE id = 0"  # one of its own
        own.execute("CREATE TABLE beside AS SELECT 1 AS one")
        assert own.execute(query).fetchall() == [(models_label(con, 1.5, 2.5, 3.5),)]
        own.execute("ROLLBACK")
    assert con.execute("SELECT count(*) FROM t").fetchall() == [(ROWS,)]


def models_label(con: sqlml.Session, *row: float) -> Any:
    a, b, c = row
    ((label,),) = con.execute(
        "SELECT predict('forest', a := ?, b := ?, c := ?)", [a, b, c]
    ).fetchall()
    return label
