"""Calls of one model on the same row share one evaluation, wherever they stand."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.mixture import GaussianMixture

import sqlml
from sqlml.udfs.batch_function import LastRows

ROWS = 30_000
NAMES = ["a", "b", "c"]
RNG = np.random.default_rng(0)
FRAME = pd.DataFrame(RNG.normal(size=(ROWS, 3)).round(1), columns=NAMES)
LABELS = np.array(["low", "mid", "high"])[(FRAME.a > 0).astype(int) + (FRAME.b > 0.5)]
MODEL = RandomForestClassifier(10, max_depth=5, random_state=0).fit(FRAME[NAMES], LABELS)
PROBA = MODEL.predict_proba(FRAME[NAMES])
LABEL = MODEL.predict(FRAME[NAMES])
HIGH = PROBA[:, list(MODEL.classes_).index("high")]


@pytest.fixture
def con() -> Iterator[sqlml.Session]:
    with sqlml.connect() as session:
        session.register("frame", FRAME.assign(id=np.arange(ROWS)))
        session.execute("CREATE TABLE t AS FROM frame")
        session.create_model("m", MODEL, verify=False)
        yield session


def functions(con: sqlml.Session, query: str) -> set[str]:
    plan = con.plan(query)
    assert plan is not None
    return {call.spec.name.replace("_once", "") for call in plan.calls}  # WHERE's is volatile


def test_label_and_probabilities_come_from_one_function(con: sqlml.Session) -> None:
    query = (
        "SELECT id, predict('m', *) AS y, predict_proba('m', *) AS p, "
        "predict_proba('m', *, class := 'high') AS high FROM t ORDER BY id"
    )
    assert len(functions(con, query)) == 1
    rows = con.execute(query).fetchall()
    assert [r[1] for r in rows] == list(LABEL)
    np.testing.assert_array_equal([r[3] for r in rows], HIGH)
    np.testing.assert_array_equal([[r[2][k] for k in MODEL.classes_] for r in rows], PROBA)
    assert "one evaluation of label, proba, proba0 for 3 calls" in con.explain(query)


@pytest.mark.parametrize(
    ("query", "want"),
    [
        (
            "SELECT id, predict('m', *) FROM t "
            "WHERE predict_proba('m', *, class := 'high') > 0.5 ORDER BY id",
            HIGH > 0.5,
        ),
        (
            "SELECT id, predict('m', *), predict_proba('m', *) FROM t "
            "WHERE predict('m', *) = 'mid' AND id % 3 = 0 ORDER BY 1",
            (LABEL == "mid") & (np.arange(ROWS) % 3 == 0),
        ),
        (
            "SELECT id, predict('m', t.*) FROM t JOIN (FROM range(100, 5000)) r ON id = range "
            "AND predict('m', t.*) = 'low' ORDER BY predict_proba('m', t.*, class := 'high') * 0 "
            "+ id",
            (LABEL == "low") & (np.arange(ROWS) >= 100) & (np.arange(ROWS) < 5000),
        ),
        (
            "FROM t SELECT id, predict('m', *) QUALIFY "
            "row_number() OVER (ORDER BY predict_proba('m', *, class := 'high') DESC, id) <= 50 "
            "ORDER BY id",
            np.isin(np.arange(ROWS), np.lexsort((np.arange(ROWS), -HIGH))[:50]),
        ),
    ],
)
def test_filters_and_orders_on_the_same_row(
    con: sqlml.Session, query: str, want: np.ndarray
) -> None:
    assert len(functions(con, query)) == 1
    for _ in range(2):
        rows = con.execute(query).fetchall()
        assert [r[0] for r in rows] == np.flatnonzero(want).tolist()
        assert [r[1] for r in rows] == list(LABEL[want])


def test_rows_are_remembered_only_behind_a_filter(con: sqlml.Session) -> None:
    joined = "SELECT predict('m', t.*) FROM t JOIN range(9) r ON id = range"
    (name,) = functions(con, f"{joined} WHERE predict('m', t.*) = 'low'")
    assert "_again" in name
    for query in (
        "SELECT predict('m', *) FROM t WHERE a > 0",
        "SELECT predict('m', *), predict('m', *) FROM t ORDER BY predict('m', *)",
        "SELECT predict('m', *) FROM t WHERE id IN (SELECT id FROM t WHERE predict('m', *) = 'a')",
    ):
        assert not any("_again" in f for f in functions(con, query))


def test_other_rows_models_and_versions_do_not_share(con: sqlml.Session) -> None:
    con.create_model("n", LogisticRegression().fit(FRAME[NAMES], LABELS))
    query = (
        "SELECT predict('m', x.*), predict_proba('m', y.*, class := 'low'), predict('n', x.*), "
        "predict('m', a := x.a, b := 0, c := 0) FROM t x JOIN t y ON x.id = y.id + 1 ORDER BY x.id"
    )
    assert len(functions(con, query)) == 3  # label, probability, and label of the other model
    rows = con.execute(query).fetchall()
    assert [r[0] for r in rows] == list(LABEL[1:])
    low = PROBA[:-1, list(MODEL.classes_).index("low")]
    np.testing.assert_array_equal([r[1] for r in rows], low)
    alone = FRAME.assign(b=0.0, c=0.0)[NAMES][1:]
    assert [r[3] for r in rows] == list(MODEL.predict(alone))


def test_a_view_keeps_what_its_query_shares(con: sqlml.Session) -> None:
    con.execute(
        "CREATE VIEW v AS SELECT id, predict('m', *) AS y, predict_proba('m', *, class := 'low') p "
        "FROM t WHERE predict('m', *) <> 'mid'"
    )
    plain = con.cursor()
    rows = plain.execute("SELECT id, y FROM v ORDER BY id").fetchall()
    assert rows == [(int(i), LABEL[i]) for i in np.flatnonzero(LABEL != "mid")]


def test_a_model_of_a_single_class_gives_a_map_beside_its_label(con: sqlml.Session) -> None:
    con.create_model("one", GaussianMixture(1).fit(FRAME.head(500)), verify=False)
    calls = "predict('one', *), predict_proba('one', *), predict_score('one', *)"
    query = f"SELECT {calls} FROM t LIMIT 100"
    assert len(functions(con, query)) == 1
    for label, probabilities, score in con.execute(query).fetchall():
        assert (label, probabilities) == (0, {0: 1.0})
        assert isinstance(score, float)


def test_rows_that_come_again_are_found_by_their_bits() -> None:
    last = LastRows()
    rows = np.array([[1.0, np.nan], [0.0, 2.0], [0.0, 2.0], [-0.0, 2.0]])
    assert last.find(rows) is None
    results = np.arange(4.0).reshape(-1, 1)
    last.keep(rows, results)
    for wanted in ([0, 1, 2, 3], [0, 3], [1, 2], [2], [3]):
        found = last.find(rows[wanted])
        assert found is not None
        same = [0.0 if w == 0 else 3.0 if w == 3 else None for w in wanted]
        for value, known in zip(found[:, 0].tolist(), same, strict=True):
            assert value in (1.0, 2.0) if known is None else value == known
    assert last.find(rows[[3, 0]]) is None  # not in this order
    assert last.find(rows + 1) is None
    assert last.find(rows.astype(np.float32)[:, :1]) is None
    assert last.find(rows[:0]) is None
    elsewhere: list[Any] = []
    thread = threading.Thread(target=lambda: elsewhere.append(last.find(rows)))
    thread.start()
    thread.join()
    assert elsewhere == [None]
    rows[0, 0] = 5.0  # what was kept is a copy
    assert last.find(rows[1:2]) is not None and last.find(rows[:1]) is None
