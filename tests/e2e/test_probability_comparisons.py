"""Comparisons of probabilities are made by the score, and answer as probabilities would."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import lightgbm
import numpy as np
import pandas as pd
import pytest
import xgboost
from sklearn.ensemble import (
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import sqlml
from sqlml.passes.float_order import find_margin_threshold

NAMES = ["a", "b"]
RNG = np.random.default_rng(0)
FRAME = pd.DataFrame(RNG.normal(size=(2000, 2)) * [1, 30], columns=NAMES)
CLASS = np.where(FRAME.a + np.sin(FRAME.b) + RNG.normal(size=2000) * 0.3 > 0, "yes", "no")

MODELS: dict[str, Any] = {
    "logistic": make_pipeline(StandardScaler(), LogisticRegression()).fit(FRAME, CLASS),
    "huber": SGDClassifier(loss="modified_huber", random_state=0).fit(FRAME, CLASS),
    "boosted": GradientBoostingClassifier(n_estimators=30, random_state=0).fit(FRAME, CLASS),
    "histograms": HistGradientBoostingClassifier(max_iter=30).fit(FRAME, CLASS),
    "XGBoost": xgboost.XGBClassifier(n_estimators=30, max_depth=3).fit(FRAME, CLASS == "yes"),
    "LightGBM": lightgbm.LGBMClassifier(n_estimators=30, verbose=-1).fit(FRAME, CLASS),
}

SHOWN = "score, compared in place of proba"


@pytest.fixture
def con() -> Iterator[sqlml.Session]:
    with sqlml.connect() as session:
        session.register("frame", FRAME.assign(id=np.arange(len(FRAME))))
        session.execute("CREATE TABLE t AS FROM frame")
        yield session


def ids(con: Any, condition: str, parameters: Any = None) -> list[int]:
    query = f"SELECT id FROM t WHERE {condition} ORDER BY id"
    return [row[0] for row in con.execute(query, parameters).fetchall()]


def is_by_score(con: Any, condition: str, parameters: Any = None) -> bool:
    plan = con.plan(f"SELECT id FROM t WHERE {condition}", parameters)
    return SHOWN in str(plan)


@pytest.mark.by_day(2)
@pytest.mark.parametrize("name", MODELS)
def test_answers_are_those_of_the_probabilities(con: Any, name: str) -> None:
    model = MODELS[name]
    con.create_model("m", model)
    classes = model.classes_.tolist()
    proba = model.predict_proba(FRAME).astype(np.float64)
    own = np.array(con.execute("SELECT predict_proba('m', *) FROM t ORDER BY id").fetchall())
    ours = np.array([list(row[0].values()) for row in own])
    for k, label in enumerate(classes):
        call = f"predict_proba('m', *, class := '{label}')"
        for bound in ("0.8", "0.5", "1e-3", "1", "0.999999"):
            p, q, b = proba[:, k], ours[:, k], float(bound)
            sure = np.abs(p - b) > 1e-12 * max(b, 1e-6) if name != "XGBoost" else p == q
            for condition, want in (
                (f"{call} > {bound}", p > b),
                (f"{call} >= {bound}", p >= b),
                (f"{bound} > {call}", p < b),
                (f"{bound} >= {call}", p <= b),
                (f"{call} <= {bound} AND id >= 0", p <= b),
                (f"NOT {call} < {bound}", p >= b),
                (f"({call} BETWEEN {bound} AND 0.95)", (p >= b) & (p <= 0.95)),
            ):
                got = np.zeros(len(FRAME), bool)
                got[ids(con, condition)] = True
                np.testing.assert_array_equal(got[sure], want[sure], condition)
                exact = con.execute(
                    f"SELECT count(*) FROM (SELECT {call} AS p FROM t) WHERE p > {bound}"
                ).fetchall()[0][0]
                assert exact == (q > b).sum()
        assert is_by_score(con, f"{call} > 0.8") and is_by_score(con, f"0.3 <= {call}")


@pytest.mark.parametrize("name", MODELS)
def test_a_bound_that_rows_have_exactly(con: Any, name: str) -> None:
    """The probabilities of rows themselves as bounds: there > and >= differ."""
    con.create_model("m", MODELS[name])
    for label in MODELS[name].classes_.tolist():
        call = f"predict_proba('m', *, class := '{label}')"
        p = np.array(con.execute(f"SELECT {call} FROM t ORDER BY id").fetchall())[:, 0]
        for bound in np.quantile(p, [0.01, 0.3, 0.8], method="nearest").tolist():
            for sign, holds in ((">", p > bound), (">=", p >= bound), ("<", p < bound)):
                got = ids(con, f"{call} {sign} ?", [bound])
                want = np.flatnonzero(holds)
                close = np.flatnonzero(np.abs(p - bound) <= 4e-16 * max(bound, 1e-300))
                differ = set(got) ^ set(want.tolist())
                assert differ <= set(close.tolist())
                if name in ("boosted", "histograms", "XGBoost", "LightGBM"):
                    assert not differ, (label, sign, bound)


def test_parameters_are_numbers_where_the_plan_sees_them(con: Any) -> None:
    con.create_model("m", MODELS["logistic"])
    call = "predict_proba('m', *, class := 'yes')"
    want = ids(con, f"{call} > 0.7 AND id < 1000")
    assert is_by_score(con, f"{call} > ?", [0.7])
    assert ids(con, f"{call} > ? AND id < ?", [0.7, 1000]) == want
    assert ids(con, f"id < $2 AND {call} > $1", [0.7, 1000]) == want
    assert ids(con, f"id < $n AND $least < {call}", {"n": 1000, "least": 0.7}) == want
    same = f"{call} > $least AND a > $least"
    a = FRAME.a.to_numpy()
    assert ids(con, same, {"least": 0.7}) == [i for i in ids(con, f"{call} > 0.7") if a[i] > 0.7]
    con.execute(f"PREPARE q AS SELECT count(*) FROM t WHERE {call} > ? AND id < 1000")
    assert con.execute("EXECUTE q(0.7)").fetchall()[0] == (len(want),)


def test_where_the_probability_itself_is_wanted(con: Any) -> None:
    con.create_model("m", MODELS["boosted"])
    call = "predict_proba('m', *, class := 'yes')"
    p = MODELS["boosted"].predict_proba(FRAME)[:, 1]
    query = f"SELECT id, {call} FROM t WHERE {call} > 0.6 ORDER BY id"
    assert SHOWN not in str(con.plan(query))
    rows = con.execute(query).fetchall()
    assert [r[0] for r in rows] == np.flatnonzero(p > 0.6).tolist()
    query = f"SELECT id, predict('m', *) FROM t WHERE {call} > 0.6 AND {call} < 0.9 ORDER BY id"
    plan = con.plan(query)
    assert str(plan).count(SHOWN) == 2 and len({c.spec.name for c in plan.calls}) == 1
    rows = con.execute(query).fetchall()
    assert [r[0] for r in rows] == np.flatnonzero((p > 0.6) & (p < 0.9)).tolist()
    assert {r[1] for r in rows} == {"yes"}


@pytest.mark.parametrize(
    "condition",
    [
        "{p} > 0.5 + 0.1",
        "{p} + 0.1 > 0.5",
        "{p} > 0.5::FLOAT",
        "{p} > a",
        "{p} > -0.5",
        "a < {p} = true",
        "0.1 + 0.5 < {p}",
        "id BETWEEN 0 AND {p} > 0.5",
        "a > 0 = {p} > 0.5",
        "{p} > 0.5 IS NULL",
        "{p} > 1",
        "{p} >= 0",
        "{p} = 0.5",
        "{p} > 0.12345678901234567890",
    ],
)
def test_what_stays_a_comparison_of_probabilities(con: Any, condition: str) -> None:
    con.create_model("m", MODELS["boosted"])
    con.execute(
        "CREATE TABLE scored AS SELECT *, predict_proba('m', *, class := 'yes') AS p FROM t"
    )
    call = condition.format(p="predict_proba('m', *, class := 'yes')")
    assert not is_by_score(con, call)

    def counted(table: str, written: str) -> Any:
        try:
            return con.execute(f"SELECT count(*) FROM {table} WHERE {written}").fetchall()[0]
        except Exception as error:
            return type(error)

    assert counted("t", call) == counted("scored", condition.format(p="p"))


def test_other_models_and_places(con: Any) -> None:
    con.create_model("forest", RandomForestClassifier(3, max_depth=3).fit(FRAME, CLASS))
    con.create_model("three", LogisticRegression().fit(FRAME, np.arange(2000) % 3))
    con.create_model("m", MODELS["logistic"])
    assert not is_by_score(con, "predict_proba('forest', *, class := 'yes') > 0.5")
    assert not is_by_score(con, "predict_proba('three', *, class := 1) > 0.5")
    call = "predict_proba('m', *, class := 'yes')"
    p = MODELS["logistic"].predict_proba(FRAME)[:, 1]
    query = f"SELECT count(*) FILTER (WHERE {call} >= 0.9), sum(CASE WHEN {call} < 0.2 THEN 1 END)"
    assert con.execute(f"{query} FROM t").fetchall()[0] == ((p >= 0.9).sum(), (p < 0.2).sum())
    query = f"SELECT {call} > 0.5, count(*) FROM t GROUP BY {call} > 0.5 ORDER BY 1"
    relation = con.sql(query)
    assert relation.columns[0] == "(predict_proba('m', *, \"class\" := 'yes') > 0.5)"
    assert relation.fetchall() == [(False, (p <= 0.5).sum()), (True, (p > 0.5).sum())]
    con.execute(f"CREATE VIEW v AS SELECT id FROM t WHERE 0.9 < {call}")
    assert con.execute("SELECT count(*) FROM v").fetchall()[0] == ((p > 0.9).sum(),)
    ordered = con.plan(f"SELECT id FROM t ORDER BY {call}")
    assert SHOWN not in str(ordered)


def test_the_threshold_parts_the_floats_themselves(con: Any) -> None:
    con.create_model("m", MODELS["XGBoost"])
    plan = con.plan("SELECT predict_score('m', *) FROM t")
    program = plan.calls[0].source
    for bound in (0.1, 0.5, 0.8, 1 - 1e-7):
        found = find_margin_threshold(program, 1, ">", bound)
        assert found is not None and found.above
        low = float(np.nextafter(np.float32(found.value), np.float32(-np.inf)))

        def p(margin: float) -> np.float32:
            power = np.float32(np.exp(np.float64(np.float32(-margin))))
            return np.float32(1) / (power + np.float32(1) + np.float32(1e-16))

        assert float(p(found.value)) > bound >= float(p(low))
    assert find_margin_threshold(program, 1, ">", 1.0) is None
    assert find_margin_threshold(program, 1, "<=", 1.0) is None
