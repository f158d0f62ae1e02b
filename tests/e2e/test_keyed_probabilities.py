"""`predict_proba(..)['yes']` computes one number, and answers as the MAP's own lookup does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression

import sqlml

NAMES = ["a", "b"]
RNG = np.random.default_rng(0)
FRAME = pd.DataFrame(RNG.normal(size=(500, 2)), columns=NAMES)
GROUP = (FRAME.a > 0).astype(int) + (FRAME.b > 0.5)
CLASSES: dict[str, Any] = {
    "texts": np.array(["it's", "1", "true"])[GROUP],
    "integers": np.array([-3, 0, 7])[GROUP],
    "booleans": GROUP.to_numpy() > 0,
    "floats": np.array([0.0, 1.0, 2.0])[GROUP],
}
KEYS = ("'it''s'", "'1'", "'true'", "'none'", "1", "-3", "7", "8", "0x7", "7.0", "0.0", "1.0", "2")
KEYS = (*KEYS, "true", "FALSE", "NULL", "'7'", "1 + 6", "(7)", "CAST(7 AS TINYINT)", "7::BIGINT")


@pytest.fixture(scope="module")
def con() -> Iterator[sqlml.Session]:
    with sqlml.connect() as session:
        session.register("frame", FRAME.assign(id=np.arange(len(FRAME))))
        session.execute("CREATE TABLE t AS FROM frame")
        for name, labels in CLASSES.items():
            session.create_model(name, LogisticRegression().fit(FRAME, labels))
            session.execute(
                f"CREATE TABLE {name}_made AS SELECT id, predict_proba('{name}', *) AS p FROM t"
            )
        yield session


def answer(con: Any, query: str) -> Any:
    """Return the names of the columns and the rows, or DuckDB's error."""
    try:
        found = con.execute(query)
        return [column[0] for column in found.description], found.fetchall()
    except duckdb.Error as error:
        return str(error).partition("\n")[0]


def outputs(con: Any, query: str) -> list[str]:
    return [call.output for call in con.plan(query).calls]


@pytest.mark.parametrize("name", CLASSES)
def test_keys_mean_what_they_mean_to_the_engine(con: Any, name: str) -> None:
    for key in KEYS:
        found = answer(con, f"SELECT id, predict_proba('{name}', *)[{key}] AS q FROM t ORDER BY id")
        want = answer(con, f"SELECT id, p[{key}] AS q FROM {name}_made ORDER BY id")
        if isinstance(want, str):
            assert isinstance(found, str), (key, want)
        else:
            assert found[0] == want[0], key
            rows = [np.array(found_or_want[1], float) for found_or_want in (found, want)]
            np.testing.assert_allclose(*rows, rtol=1e-12, err_msg=key)  # NULL became NaN


@pytest.mark.parametrize(
    ("name", "key", "shown"),
    [
        ("texts", "'it''s'", 'proba, class "it\'s"'),
        ("integers", "-3", "proba, class -3"),
        ("booleans", "True", "proba, class true"),
        ("integers", "8", "proba"),
        ("integers", "'7'", "proba"),
        ("floats", "1.0", "proba"),
        ("texts", "?", "proba"),
        ("texts", "'it''s':'1'", "proba"),
    ],
)
def test_one_class_is_computed_where_the_key_is_one(
    con: Any, name: str, key: str, shown: str
) -> None:
    given = ["1"] if key == "?" else None
    plan = con.plan(f"SELECT predict_proba('{name}', *)[{key}] FROM t", given)
    assert [call.output for call in plan.calls] == [shown]


def test_comparisons_are_made_by_the_score(con: Any) -> None:
    for condition, sign in (
        ("predict_proba('booleans', *)[true] > 0.7", ">"),
        ("0.7 < predict_proba('booleans', *) [true]", ">"),
        ("predict_proba('booleans', *)[true] BETWEEN 0.2 AND 0.7", "between"),
    ):
        query = f"SELECT id FROM t WHERE {condition} ORDER BY id"
        assert outputs(con, query) == ["score, compared in place of proba, class true"]
        want = "p[true] > 0.7" if sign == ">" else "p[true] BETWEEN 0.2 AND 0.7"
        made = f"SELECT id FROM booleans_made WHERE {want} ORDER BY id"
        assert con.execute(query).fetchall() == con.execute(made).fetchall()
    absent = "SELECT count(*) FROM t WHERE predict_proba('texts', *)['none'] > 0.7"
    assert outputs(con, absent) == ["proba"]
    assert con.execute(absent).fetchone() == (0,)


def test_columns_keep_the_names_that_the_engine_gives(con: Any) -> None:
    query = "SELECT predict_proba('texts', a, b)['1'], predict_proba('texts', a, b)['x'] FROM t"
    names, _ = answer(con, query)
    con.connection.execute("CREATE OR REPLACE TEMP MACRO predict_proba(m, a, b) AS MAP {'1': a}")
    want, _ = answer(con.connection, query)
    con.connection.execute("DROP MACRO predict_proba")
    assert names == want


def test_keys_stand_in_lambdas_subqueries_views_and_after_other_calls(con: Any) -> None:
    proba = dict(con.execute("SELECT id, p['1'] FROM texts_made").fetchall())
    key = "predict_proba('texts', *)['1']"
    for query in (
        f"SELECT id, {key} AS q FROM t",
        f"FROM t SELECT id, ({key}) AS q",
        f"SELECT id, max({key}) OVER (PARTITION BY id) AS q FROM t",
        f"SELECT id, (SELECT {key} FROM t AS u WHERE u.id = t.id) AS q FROM t",
        "SELECT id, list_transform([a], lambda x: predict_proba('texts', a := x, b := b)['1'])[1] "
        "FROM t",
        "SELECT id, predict_proba('texts', a := predict_proba('texts', *)['1'] * 0 + a, "
        "b := b)['1'] FROM t",
    ):
        found = dict(con.execute(query).fetchall())
        assert found.keys() == proba.keys(), query
        np.testing.assert_allclose(
            [found[k] for k in proba], list(proba.values()), rtol=1e-12, err_msg=query
        )
    con.execute(
        f"CREATE OR REPLACE VIEW v AS SELECT id, {key} AS q, predict('texts', *) AS y FROM t"
    )
    assert dict(con.connection.execute("SELECT id, q FROM v").fetchall()) == proba
    shared = con.plan(f"SELECT {key}, predict('texts', *), {key} FROM t")
    assert len({call.spec.name for call in shared.calls}) == 1


def test_keys_beside_the_whole_result_that_the_query_groups_by(con: Any) -> None:
    proba = "predict_proba('integers', *)"
    found = answer(con, f"SELECT {proba}[7], count(*) FROM t GROUP BY {proba} ORDER BY ALL")
    grouped = "SELECT p[7], count(*) FROM integers_made GROUP BY p ORDER BY ALL"
    assert found[1] == answer(con, grouped)[1]


def test_results_that_are_no_map_keep_their_index(con: Any) -> None:
    con.create_model("p", LogisticRegression().fit(FRAME, GROUP), positive_class=1)
    several = RandomForestClassifier(3, max_depth=3).fit(
        FRAME, np.stack([GROUP, GROUP > 0], axis=1)
    )
    con.create_model("several", several)
    first = con.execute("SELECT predict_proba('several', *)[1][2] FROM t ORDER BY id").fetchall()
    want = several.predict_proba(FRAME)[0][:, 2]
    np.testing.assert_array_equal([row[0] for row in first], want)
    for query in (
        "SELECT predict_proba('p', *)[1] FROM t",
        "SELECT predict_proba('texts', *, class := '1')['1'] FROM t",
    ):
        with pytest.raises(duckdb.Error, match="DOUBLE"):
            con.execute(query)
