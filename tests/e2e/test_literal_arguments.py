"""Literal arguments become part of the model, and change no number."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import pandas as pd
import pytest
import xgboost
from sklearn.compose import make_column_transformer
from sklearn.ensemble import GradientBoostingRegressor, RandomForestClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder
from sklearn.tree import DecisionTreeClassifier

import sqlml
from sqlml.bounded_cache import RecentCache
from sqlml.errors import ColumnTypeError, MissingValueError, UnknownCategoryError
from sqlml.planner.plan import call_draft
from sqlml.planner.program import function_spec as of_models

from .child import run

NAMES = ["a", "b", "plan"]
RNG = np.random.default_rng(0)
ROWS = 1500
FRAME = pd.DataFrame(
    {
        "a": RNG.normal(size=ROWS).round(2),
        "b": RNG.normal(size=ROWS),
        "plan": RNG.choice(["pro", "max", "it's"], ROWS),
    }
)
VALUE = FRAME.a * (FRAME.plan == "pro") + np.sin(3 * FRAME.b)
CLASS = np.where(VALUE > 0, "yes", "no")
NUMBERS = FRAME[["a", "b"]].assign(c=RNG.normal(size=ROWS))
HOLES = NUMBERS.mask(RNG.random(NUMBERS.shape) < 0.1)


def encoded(encoder: Any, model: Any) -> Any:
    return make_pipeline(
        make_column_transformer((encoder, ["plan"]), remainder="passthrough"), model
    )


FOREST = RandomForestClassifier(60, max_depth=9, random_state=0)
HOT = encoded(OneHotEncoder(handle_unknown="ignore"), FOREST).fit(FRAME, CLASS)
STRICT = encoded(OrdinalEncoder(), RandomForestClassifier(60, random_state=0)).fit(FRAME, CLASS)
BOOSTED = GradientBoostingRegressor(n_estimators=80, max_depth=5).fit(NUMBERS, VALUE)
XGB = xgboost.XGBRegressor(n_estimators=80, max_depth=6).fit(HOLES, VALUE)
LGB = lightgbm.LGBMClassifier(n_estimators=80, verbose=-1).fit(HOLES, CLASS)


@pytest.fixture
def con(monkeypatch: pytest.MonkeyPatch) -> Iterator[sqlml.Session]:
    """Where every model is worth folding."""
    monkeypatch.setattr(call_draft, "MIN_SECONDS", 0.0)
    monkeypatch.setattr(of_models, "_admitted", RecentCache())
    with sqlml.connect() as session:
        session.register("frame", FRAME.assign(id=np.arange(ROWS), c=NUMBERS.c))
        session.execute("CREATE TABLE t AS FROM frame")
        yield session


def scored(con: Any, call: str, parameters: Any = None) -> list[Any]:
    return [r[0] for r in con.execute(f"SELECT {call} FROM t ORDER BY id", parameters).fetchall()]


def constants(con: sqlml.Session, call: str, parameters: Any = None) -> dict[str, Any]:
    plan = con.plan(f"SELECT {call} FROM t", parameters)
    assert plan is not None
    return dict(plan.calls[0].constants)


@pytest.mark.by_day(2)
@pytest.mark.parametrize(
    ("literal", "value"),
    [("0.25", 0.25), ("-1.5", -1.5), ("3", 3.0), ("0", 0.0), ("NULL", None), ("true", 1.0)],
)
@pytest.mark.parametrize("name", ["boosted", "xgb", "lgb"])
def test_numbers(con: Any, name: str, literal: str, value: float | None) -> None:
    model = {"boosted": BOOSTED, "xgb": XGB, "lgb": LGB}[name]
    if name == "boosted" and value is None:
        return
    con.create_model("m", model)
    call = f"predict('m', a := {literal}, b := b, c := c)"
    assert constants(con, call) == {"a": value}
    frame = NUMBERS.assign(a=np.nan if value is None else value)
    np.testing.assert_array_equal(scored(con, call), model.predict(frame))
    by_position = f"predict('m', {literal}, b, c)"
    assert constants(con, by_position) == {"a": value}
    assert scored(con, by_position) == scored(con, call)
    over_star = f"predict('m', *, a := {literal}, c := 0.1)"
    assert constants(con, over_star) == {"a": value, "c": 0.1}
    np.testing.assert_array_equal(scored(con, over_star), model.predict(frame.assign(c=0.1)))
    if name == "lgb":
        call = call.replace("predict(", "predict_proba(")
        got = [list(row.values()) for row in scored(con, call)]
        want = model.predict_proba(frame)
        np.testing.assert_allclose(got, want, rtol=1e-12)


@pytest.mark.parametrize("plan", ["pro", "it's", "never seen", None, ""])
def test_strings(con: Any, plan: str | None) -> None:
    con.create_model("m", HOT)
    literal = "NULL" if plan is None else "'" + plan.replace("'", "''") + "'"
    call = f"predict_proba('m', a := a, b := b, plan := {literal}, class := 'yes')"
    assert constants(con, call) == {"plan": plan}
    assert "codes of" not in con.explain(f"SELECT {call} FROM t")
    want = HOT.predict_proba(FRAME.assign(plan=plan))[:, 1]
    np.testing.assert_array_equal(scored(con, call), want)
    text = con.explain(f"SELECT {call} FROM t").split("\n\n")[0]
    assert f"in the model      plan = {plan!r}".replace("None", "NULL").rstrip() in text


def test_all_arguments(con: Any) -> None:
    con.create_model("m", HOT)
    call = "predict('m', a := 0.5, b := -0.25, plan := 'pro')"
    want = HOT.predict(pd.DataFrame({"a": [0.5], "b": [-0.25], "plan": ["pro"]}))[0]
    assert set(scored(con, call)) == {want}
    assert con.execute(f"SELECT {call}").fetchall() == [(want,)]


def test_what_the_model_refuses_is_refused(con: Any) -> None:
    con.create_model("boosted", BOOSTED)
    con.create_model("strict", STRICT)
    with pytest.raises(MissingValueError, match="'a' has NULL"):
        scored(con, "predict('boosted', a := NULL, b := b, c := c)")
    with pytest.raises(UnknownCategoryError, match="plan"):
        scored(con, "predict('strict', a := a, b := b, plan := 'none')")
    with pytest.raises(ColumnTypeError, match="takes numbers"):
        scored(con, "predict('boosted', a := 'x', b := b, c := c)")
    call = "predict('strict', a := a, b := b, plan := 'max')"
    assert constants(con, call) == {"plan": "max"}
    assert scored(con, call) == STRICT.predict(FRAME.assign(plan="max")).tolist()


def test_what_is_passed_as_a_column(con: Any) -> None:
    con.create_model("m", BOOSTED)
    frame = NUMBERS.assign(a=0.25)
    for argument, parameters in (
        ("?", [0.25]),
        ("0.25::DOUBLE", None),
        ("25e-2", None),
        ("0.5 / 2", None),
        ("0.250000000000000000", None),
    ):
        call = f"predict('m', a := {argument}, b := b, c := c)"
        assert constants(con, call, parameters) == {}
        np.testing.assert_array_equal(scored(con, call, parameters), BOOSTED.predict(frame))
    con.create_model("line", LinearRegression().fit(NUMBERS, VALUE))
    assert constants(con, "predict('line', a := 0.25, b := b, c := c)") == {}


def test_a_model_as_an_expression_takes_literals_too(con: Any) -> None:
    line = LogisticRegression().fit(NUMBERS, CLASS)
    tree = DecisionTreeClassifier(max_depth=3, random_state=0).fit(NUMBERS, CLASS)
    con.execute("SET sqlml_route = 'arrow'")  # where small trees are expressions
    for model in (line, tree):
        con.create_model("m", model, or_replace=True)
        call = "predict('m', a := -0.25, b := b, c := 3)"
        assert "the whole model" in con.explain(f"SELECT {call} FROM t")
        assert scored(con, call) == model.predict(NUMBERS.assign(a=-0.25, c=3.0)).tolist()
    con.execute("RESET sqlml_route")


def test_small_work_is_left_as_it_is(con: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    con.create_model("m", BOOSTED)
    call = "predict('m', a := 0.25, b := b, c := c)"
    monkeypatch.setattr(call_draft, "MIN_SECONDS", 0.02)
    assert constants(con, call) == {}
    con.execute("CREATE TABLE large AS SELECT t.* FROM t, range(400)")
    plan = con.plan(f"SELECT {call} FROM large")
    assert dict(plan.calls[0].constants) == {"a": 0.25}


def test_literals_that_change_with_each_statement_make_few_functions(con: Any) -> None:
    con.create_model("m", BOOSTED)
    made = set()
    for k in range(of_models.MAX_CONSTANTS + 10):
        call = f"predict('m', a := {k}, b := b, c := c)"
        made.add(con.plan(f"SELECT {call} FROM t").calls[0].spec.name)
    assert len(made) == of_models.MAX_CONSTANTS + 1
    assert constants(con, "predict('m', a := 3, b := b, c := c)") == {"a": 3.0}
    assert constants(con, f"predict('m', a := {of_models.MAX_CONSTANTS + 3}, b := b, c := c)") == {}
    last = scored(con, f"predict('m', a := {of_models.MAX_CONSTANTS + 3}, b := b, c := c)")
    rows = NUMBERS.assign(a=of_models.MAX_CONSTANTS + 3)
    np.testing.assert_array_equal(last, BOOSTED.predict(rows))


def test_names_stay_short(con: Any) -> None:
    con.create_model("m", HOT)
    long = "x" * 40
    assert constants(con, f"predict('m', a := 1, b := b, plan := '{long}')") == {"a": 1.0}
    wide = pd.DataFrame(RNG.normal(size=(400, 7)), columns=list("pqrstuv"))
    model = RandomForestClassifier(30, random_state=0).fit(wide, wide.p + wide.v > 0)
    con.create_model("wide", model)
    values = dict(zip("pqrstuv", [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7], strict=True))
    call = f"predict('wide', {', '.join(f'{n} := {v}' for n, v in values.items())})"
    assert len(constants(con, call)) == 3  # of 16 digits each
    assert set(scored(con, call)) == set(model.predict(pd.DataFrame([values])).tolist())


def test_calls_share_and_views_open_in_another_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call_draft, "MIN_SECONDS", 0.0)
    with sqlml.connect(tmp_path / "d.db") as con:
        con.register("frame", FRAME.assign(id=np.arange(ROWS)))
        con.execute("CREATE TABLE t AS FROM frame")
        con.create_model("m", HOT)
        arguments = "a := 0.5, b := b, plan := 'it''s'"
        query = (
            f"SELECT id, predict('m', {arguments}) AS y, "
            f"predict_proba('m', {arguments}, class := 'yes') AS p FROM t"
        )
        plan = con.plan(query)
        assert len({call.spec.name for call in plan.calls}) == 1
        assert plan.calls[0].spec.constants
        con.execute(f"CREATE VIEW v AS {query}")
    code = (
        "import sqlml; con = sqlml.connect('d.db'); "
        "print(con.execute(\"SELECT count(*), sum(p) FROM v WHERE y = 'yes'\").fetchall())"
    )
    done = run(code, tmp_path)
    frame = FRAME.assign(a=0.5, plan="it's")
    sure = HOT.predict_proba(frame)[:, 1]
    yes = HOT.predict(frame) == "yes"
    ((count, total),) = eval(done.stdout)
    assert count == yes.sum() and total == pytest.approx(sure[yes].sum(), rel=1e-12)
