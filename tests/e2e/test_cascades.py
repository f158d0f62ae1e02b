"""Cascades in SQL: ADD CASCADE, calls that may be approximated, and all others as they were."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

import sqlml
from sqlml.importers.registry import import_model
from sqlml.session.session import Session
from tests.support.cascaded import CALL, LEARN, labels, put_before


@pytest.fixture
def con(cascaded: Session) -> Session:
    return cascaded


EXACT = "SELECT id, predict('m', *) AS p FROM fresh ORDER BY id"


def small_says(con: Session) -> np.ndarray:
    """The labels of the small model; NaN where it is not sure."""
    labels(con, CALL)  # which registers its function
    text = con.plan(f"SELECT {CALL} FROM fresh").calls[0].small_call.sql
    rows = con.execute(f"SELECT {text} FROM fresh ORDER BY id").fetchnumpy()
    return np.ma.filled(next(iter(rows.values())).astype(float), np.nan)


# -- what is answered


def test_rows_that_the_small_model_is_not_sure_of_are_answered_by_the_full_one(
    con: Session,
) -> None:
    exact, fast = labels(con, "predict('m', *)"), labels(con, CALL)
    small = small_says(con)
    unsure = np.isnan(small)
    assert 0.1 < unsure.mean() < 0.9
    assert fast == [int(s) if s == s else e for s, e in zip(small, exact, strict=True)]
    truth = [y for (y,) in con.execute("SELECT y FROM fresh ORDER BY id").fetchall()]
    right = [np.mean(np.array(p) == truth) for p in (exact, fast)]
    assert right[0] - right[1] <= 0.01


def test_exact_calls_stay_exact(con: Session) -> None:
    before = con.execute(EXACT).fetchall()
    plan = con.plan(EXACT)
    con.execute("ALTER MODEL m DROP CASCADE")
    assert con.execute(EXACT).fetchall() == before
    after = con.plan(EXACT)
    assert (plan.sql, plan.calls[0].spec) == (after.sql, after.calls[0].spec)
    assert plan.calls[0].small_call is None and "approximate" not in str(plan)


def test_a_session_or_a_model_may_ask_for_it_and_a_call_decides(con: Session) -> None:
    exact, fast = labels(con, "predict('m', *)"), labels(con, CALL)
    assert exact != fast
    con.execute("SET sqlml_approximate = true")
    assert labels(con, "predict('m', *)") == fast
    assert labels(con, "predict('m', *, approximate := false)") == exact
    con.execute("RESET sqlml_approximate")
    assert labels(con, "predict('m', *)") == exact
    con.execute("ALTER MODEL m SET OPTIONS (approximate = true)")
    assert labels(con, "predict('m', *)") == fast
    con.execute("SET sqlml_approximate = false")
    assert labels(con, "predict('m', *)") == exact


@pytest.mark.by_day(3)
@pytest.mark.parametrize(
    "query",
    [
        f"SELECT sum({CALL}) FROM fresh",
        f"SELECT count(*) FROM fresh WHERE {CALL} = 1",
        f"SELECT count(*) FROM (SELECT {CALL} AS p FROM fresh) WHERE p = 1",
        f"WITH s AS (SELECT *, {CALL} AS p FROM fresh) SELECT sum(p) FROM s WHERE id >= 0",
        "SELECT sum(predict('m', x := x, t := t, approximate := true)) FROM fresh",
        "SELECT sum(predict('m', f.*, approximate := true)) FROM fresh f",
        "SELECT sum(predict('m', x, t, approximate := true)) FROM fresh",
        "SELECT sum(predict('m', {'x': x, 't': t}, approximate := true)) FROM fresh",
        "SELECT sum(predict(?, *, approximate := true)) FROM fresh",
    ],
)
def test_forms_of_a_call(con: Session, query: str) -> None:
    wanted = sum(labels(con, CALL))
    parameters = ["m"] if "?" in query else None
    assert con.execute(query, parameters).fetchall() == [(wanted,)]


@pytest.mark.by_day(2)
@pytest.mark.parametrize(
    ("small", "backend"),
    [(DecisionTreeClassifier(max_depth=2), "sql"), (LogisticRegression(), "native")],
)
@pytest.mark.parametrize("classes", [("no", "yes"), (3, 7), (False, True)])
def test_a_small_model_of_each_form(small: Any, backend: str, classes: tuple[Any, Any]) -> None:
    """An expression of SQL and a function, and labels of each kind."""
    random = np.random.default_rng(0)
    x = random.normal(size=(500, 2))
    places = (x[:, 0] + random.normal(size=500) / 2 > 0).astype(int)
    full = RandomForestClassifier(9, max_depth=4, random_state=0).fit(x, np.array(classes)[places])
    program = import_model(small.fit(x[:, :1], places), ["a"]).program
    with sqlml.connect() as con:
        con.create_model("m", full, inputs=["a", "b"])
        put_before(con, "m", program)
        con.execute("CREATE TABLE fresh (id INTEGER, a DOUBLE, b DOUBLE)")
        con.executemany("INSERT INTO fresh VALUES (?, ?, ?)", [[i, *r] for i, r in enumerate(x)])
        got = labels(con, CALL)
        assert con.plan(f"SELECT {CALL} FROM fresh").calls[0].small_call.choice.backend == backend
    is_sure = small.predict_proba(x[:, :1]).max(axis=1) > 0.8
    assert 0.2 < is_sure.mean() < 0.9
    wanted = np.where(is_sure, np.array(classes)[small.predict(x[:, :1])], full.predict(x))
    assert got == wanted.tolist()


def test_rows_keep_their_order(con: Session) -> None:
    ids = [i for (i, _) in con.execute(f"SELECT id, {CALL} FROM fresh").fetchall()]
    assert ids == sorted(ids)


def test_several_calls_of_one_row(con: Session) -> None:
    """An exact probability, an exact and an approximate label: each as if it were alone."""
    proba = "predict_proba('m', *, class := 1)"
    rows = con.execute(
        f"SELECT {proba}, predict('m', *), {CALL} FROM fresh WHERE {CALL} >= 0 ORDER BY id"
    ).fetchall()
    assert [r[1] for r in rows] == labels(con, "predict('m', *)")
    assert [r[2] for r in rows] == labels(con, CALL)
    assert [r[0] for r in rows] == labels(con, proba)


def test_an_expensive_argument_is_computed_for_unsure_rows_alone(con: Session) -> None:
    """A function of Python that makes the text sees only the rows that need it."""
    seen: list[int] = []

    def fetched(place: int) -> str:
        seen.append(place)
        return texts[place]

    texts = [t for (t,) in con.execute("SELECT t FROM fresh ORDER BY id").fetchall()]
    con.create_function("fetched", fetched, ["BIGINT"], "VARCHAR")
    got = labels(con, "predict('m', x := x, t := fetched(id), approximate := true)")
    assert got == labels(con, CALL)
    unsure = np.flatnonzero(np.isnan(small_says(con)))
    assert sorted(seen) == unsure.tolist()


ROWS = "(SELECT id, x, y FROM fresh) AS r"


@pytest.mark.by_day(4)
@pytest.mark.parametrize(
    ("query", "idle"),
    [
        (f"SELECT r.id, {CALL} FROM {ROWS} LEFT JOIN texts ON r.id = texts.id", "join texts"),
        (f"SELECT id, {CALL} FROM (SELECT r.*, fetched(id) AS t FROM {ROWS})", "fetched(id)"),
        (
            f"WITH q AS (SELECT r.*, unnest(parts(id)) FROM {ROWS}) SELECT id, {CALL} FROM q",
            "parts(id)",
        ),
        (
            f"SELECT id, {CALL} FROM (SELECT r.*, texts.t FROM {ROWS} LEFT JOIN texts "
            "ON r.id = texts.id)",
            "join texts",
        ),
        (f"SELECT id, t, {CALL} FROM (SELECT r.*, fetched(id) AS t FROM {ROWS})", None),
        (f"SELECT r.id, {CALL} FROM {ROWS} LEFT JOIN several ON r.id = several.id", None),
        (f"SELECT id, {CALL} FROM {ROWS} LEFT JOIN texts USING (id)", "join texts"),
        (
            f'SELECT id, {CALL} FROM {ROWS} LEFT JOIN main.texts AS "more" using\n( "ID" )'
            " WHERE id >= 0",
            "join more",
        ),
        (
            f"SELECT id, {CALL} FROM (FROM {ROWS} LEFT JOIN texts /* t */ USING (id)) AS q",
            None,  # a comment stands where the ON would
        ),
        (
            f"SELECT q.id, {CALL} FROM (SELECT * FROM {ROWS} LEFT JOIN texts USING (id)) q",
            "join texts",
        ),
        (
            f"SELECT id, {CALL} FROM {ROWS} LEFT JOIN (SELECT id, max(t) AS t FROM several "
            "GROUP BY id) USING (id)",
            None,  # without a name nothing can be equated
        ),
        (
            f"SELECT id, {CALL} FROM {ROWS} LEFT JOIN (SELECT id, y, max(t) AS t FROM fresh "
            "GROUP BY id, y) u USING (id, y)",
            "join u",
        ),
        (
            f"WITH q(id, x, y, t) AS (FROM {ROWS} LEFT JOIN texts USING (id)) "
            f"SELECT id, {CALL} FROM q",
            None,  # columns are named by place
        ),
        (f"SELECT id, texts.id, {CALL} FROM {ROWS} LEFT JOIN texts USING (id)", None),
        (f"SELECT id, {CALL} FROM {ROWS} LEFT JOIN several USING (id)", None),
    ],
)
def test_joins_and_functions_are_for_unsure_rows_alone(
    con: Session, query: str, idle: str | None
) -> None:
    """Whatever the shape of the query, each row is answered as it is from the table."""
    con.execute("CREATE TABLE texts (id BIGINT PRIMARY KEY, t VARCHAR)")
    con.execute("INSERT INTO texts SELECT id, t FROM fresh")
    con.execute("CREATE TABLE several AS SELECT id, t FROM fresh")
    seen: list[int] = []

    def fetched(place: int) -> str:
        seen.append(place)
        return texts[place]

    texts = [t for (t,) in con.execute("SELECT t FROM fresh ORDER BY id").fetchall()]
    con.create_function("fetched", fetched, ["BIGINT"], "VARCHAR")
    kind = "STRUCT(t VARCHAR, more INTEGER)"
    con.create_function("parts", lambda i: {"t": fetched(i), "more": 1}, ["BIGINT"], kind)
    rows = sorted(con.execute(query).fetchall())
    assert [r[-1] for r in rows] == labels(con, CALL)
    assert con.plan(query).calls[0].idle_parts == (() if idle is None else (idle,))
    unsure = np.flatnonzero(np.isnan(small_says(con))).tolist()
    if "(" in (idle or ""):
        assert sorted(seen) == unsure


def test_groups_are_what_a_query_joins_and_calls(con: Session) -> None:
    con.execute("CREATE TABLE texts (id BIGINT PRIMARY KEY, t VARCHAR)")
    con.execute("INSERT INTO texts SELECT id, t FROM train")
    options = "OPTIONS (label = y, accuracy_loss = 0.01)"
    query = "SELECT x, texts.t, y FROM train LEFT JOIN texts ON train.id = texts.id"
    con.execute(f"ALTER MODEL m ADD CASCADE USING ({query}) {options}").fetchall()
    (call,) = con.plan(f"SELECT {CALL} FROM fresh").calls
    assert [g.name for g in call.cascade.groups] == ["x", "join texts, characters of t"]


def test_other_outputs_are_exact_and_explain_says_so(con: Session) -> None:
    exact = labels(con, "predict_score('m', *)")
    assert labels(con, "predict_score('m', *, approximate := true)") == exact
    text = con.explain("SELECT predict_score('m', *, approximate := true) FROM fresh")
    assert "no: version 1 has no top-K filter for its order: ALTER MODEL" in " ".join(text.split())


def test_a_view_is_approximated_for_everyone(con: Session, tmp_path: Path) -> None:
    con.execute(f"CREATE VIEW v AS SELECT id, {CALL} AS p FROM fresh")
    wanted = con.execute("SELECT sum(p) FROM v").fetchall()
    con.close()
    with sqlml.connect(str(tmp_path / "c.duckdb")) as again:
        assert again.execute("SELECT sum(p) FROM v").fetchall() == wanted


# -- what is told


def test_explain_names_groups_guarantee_and_gain(con: Session) -> None:
    text = " ".join(con.explain(f"SELECT {CALL} FROM fresh").split())
    assert "approximate a small model first, " in text and "which reads x DOUBLE" in text
    assert "only if unsure characters of t, for " in text
    assert "guarantee accuracy falls by at most 0.01 (97.5% sure); " in text
    assert "times as fast" in text
    made = con.plan(f"SELECT {CALL} FROM fresh").to_dict()["calls"][0]["cascade"]
    assert made["small"]["columns_read"] == {"x": "DOUBLE"}
    assert [g["name"] for g in made["facts"]["groups"]] == ["x", "characters of t"]


def test_explain_analyze_compares_confident_rows_with_the_expected(con: Session) -> None:
    plan = con.plan(f"SELECT {CALL} FROM fresh", analyze=True)
    (call,) = plan.calls
    unsure = int(np.isnan(small_says(con)).sum())
    assert plan.analysis.functions[call.spec.name].rows == unsure
    assert plan.analysis.functions[call.small_call.spec.name].rows == 5_000
    share, expected = 1 - unsure / 5_000, call.cascade.confident
    assert f"confident         {share:.1%} of 5,000 rows; {expected:.1%} expected" in str(plan)


def test_statements_about_the_model_show_it(con: Session) -> None:
    told = dict(con.execute("DESCRIBE MODEL m").fetchall())
    assert told["cascade: small model reads"] == "x"
    assert told["cascade: only the full model reads"] == "characters of t"
    assert told["estimator"] == "LogisticRegression(C=100.0, max_iter=500)"
    explained = dict(con.execute("EXPLAIN MODEL m").fetchall())
    assert explained["cascade: guarantee"] == told["cascade: guarantee"]


def test_what_was_learned_is_the_answer_of_the_statement(con: Session) -> None:
    told = dict(con.execute(LEARN).fetchall())
    assert told["stored"] == "yes"
    assert told["small model reads"] == "x"
    assert told["group 1"].startswith("x: 0 ns a row, importance 0.")
    assert told["group 2"].startswith("characters of t: ")
    assert con.execute("SELECT count(*) FROM sqlml.catalog_small_models").fetchall() == [(1,)]


def test_nothing_is_stored_where_nothing_is_gained(con: Session) -> None:
    con.execute("ALTER MODEL m DROP CASCADE")
    query = "SELECT 0.0 AS x, CASE WHEN y = 1 THEN 'yes' ELSE 'no' END AS t, y FROM train"
    told = dict(
        con.execute(
            f"ALTER MODEL m ADD CASCADE USING ({query}) OPTIONS (label = y, accuracy_loss = 0.01)"
        ).fetchall()
    )
    assert told["stored"] == "no" and told["reason"]
    text = con.explain(f"SELECT {CALL} FROM fresh")
    assert "no: version 1 has no cascade: ALTER MODEL .. ADD CASCADE" in text
    assert labels(con, CALL) == labels(con, "predict('m', *)")


def test_explain_model_names_the_texts_that_an_output_reads(con: Session) -> None:
    assert dict(con.execute("EXPLAIN MODEL m").fetchall())["label: reads"] == "t, x"
