"""`FROM ml_predict(MODEL m, TABLE t)` and `ML.PREDICT(MODEL m, (query))`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.preprocessing import StandardScaler

import sqlml
from sqlml import errors

ROWS = np.random.default_rng(5).normal(size=(60, 2))
KINDS = np.where(ROWS[:, 0] > ROWS[:, 1], "up", "down")


@pytest.fixture(scope="module")
def classifier() -> Any:
    return LogisticRegression().fit(ROWS, KINDS)


@pytest.fixture
def con(classifier: Any) -> Iterator[sqlml.Session]:
    with sqlml.connect() as con:
        values = ", ".join(f"({i}, {a!r}, {b!r})" for i, (a, b) in enumerate(ROWS.tolist()))
        con.execute(f"CREATE TABLE t AS SELECT * FROM (VALUES {values}) v(id, a, b)")
        con.execute("ALTER TABLE t ALTER a TYPE DOUBLE; ALTER TABLE t ALTER b TYPE DOUBLE")
        con.create_model("kind", classifier, inputs=["a", "b"], verify=False)
        con.create_model(
            "sum", LinearRegression().fit(ROWS, ROWS.sum(1)), inputs=["a", "b"], verify=False
        )
        con.create_model("scaled", StandardScaler().fit(ROWS), inputs=["a", "b"], verify=False)
        yield con


def test_a_classifier_adds_its_label_and_probabilities(con: sqlml.Session, classifier: Any) -> None:
    con.execute("SELECT * FROM ml_predict(MODEL kind, TABLE t) ORDER BY id")
    assert [d[0] for d in con.description] == [
        "id",
        "a",
        "b",
        "predicted_label",
        "predicted_label_probs",
    ]
    rows = con.fetchall()
    assert [r[3] for r in rows] == classifier.predict(ROWS).tolist()
    probabilities = [[r[4]["down"], r[4]["up"]] for r in rows]
    np.testing.assert_allclose(probabilities, classifier.predict_proba(ROWS), rtol=1e-12)


def test_a_regressor_adds_its_number(con: sqlml.Session) -> None:
    rows = con.execute(
        "SELECT * EXCLUDE (a, b) FROM ML.PREDICT(MODEL sum, (FROM t WHERE id < 3)) AS s ORDER BY id"
    ).fetchall()
    assert [r[0] for r in rows] == [0, 1, 2]
    np.testing.assert_allclose([r[1] for r in rows], ROWS[:3].sum(1), rtol=1e-12)


@pytest.mark.version
@pytest.mark.parametrize(
    ("options", "positive", "threshold"),
    [
        ("threshold := 0.3", 1, 0.3),
        ("STRUCT(0.9 AS threshold)", 1, 0.9),
        ("threshold := 0.2, class := 'down'", 0, 0.2),
    ],
)
def test_a_threshold_of_ones_own(
    con: sqlml.Session, classifier: Any, options: str, positive: int, threshold: float
) -> None:
    con.execute(f"SELECT predicted_label FROM ml_predict(MODEL kind, TABLE t, {options})")
    probability = classifier.predict_proba(ROWS)[:, positive]
    names = classifier.classes_
    wanted = np.where(probability >= threshold, names[positive], names[1 - positive])
    assert [label for (label,) in con.fetchall()] == wanted.tolist()


def test_only_what_is_read_is_computed(con: sqlml.Session) -> None:
    plan = con.plan("SELECT predicted_label FROM ml_predict(MODEL kind, TABLE t)")
    assert plan is not None
    assert [c.output for c in plan.calls] == ["label", "proba"]
    assert plan.statement == "SELECT predicted_label FROM ml_predict(MODEL kind, TABLE t)"
    shown = con.execute("EXPLAIN SELECT id FROM ml_predict(MODEL kind, TABLE t)").fetchall()
    engine = shown[1][1]
    assert "sqlml_" not in engine and "exp(" not in engine, engine


@pytest.mark.parametrize(
    "reference", ["kind", '"kind"', "kind@last", "kind/1", "memory.kind", "'kind'", "'memory.kind'"]
)
def test_ways_to_name_a_model(con: sqlml.Session, reference: str) -> None:
    query = f"SELECT count(predicted_label) FROM ml_predict(MODEL {reference}, TABLE t)"
    assert con.execute(query).fetchall() == [(60,)]


def test_ways_to_name_rows(con: sqlml.Session, tmp_path: Path) -> None:
    file = tmp_path / "t.parquet"
    con.execute(f"COPY t TO '{file}'; CREATE SCHEMA other; CREATE TABLE other.\"t 2\" AS FROM t")
    for rows, want in (
        (f"TABLE '{file}'", 60),
        ('TABLE memory.other."t 2"', 60),
        (f"TABLE read_parquet('{file}')", 60),
        ("TABLE (FROM t)", 60),
        ("(FROM (VALUES (1.0, 2.0), (2.0, 1.0)) v(a, b))", 2),
        ("(SELECT a, b FROM t UNION ALL SELECT b, a FROM t)", 120),
    ):
        query = f"SELECT count(predicted_label) FROM ml_predict(MODEL kind, {rows}) AS p"
        assert con.execute(query).fetchall() == [(want,)], rows


def test_rows_that_were_scored_before(con: sqlml.Session) -> None:
    query = (
        "SELECT id, kind, predicted_label FROM ml_predict(MODEL sum, (SELECT * RENAME "
        "(predicted_label AS kind) FROM ml_predict(MODEL kind, TABLE t))) ORDER BY id"
    )
    want = con.execute(
        "SELECT id, predict('kind', *) AS kind, predict('sum', *) FROM t ORDER BY id"
    ).fetchall()
    assert con.execute(query).fetchall() == want
    con.execute("CREATE TABLE scored AS FROM ml_predict(MODEL kind, TABLE t)")
    con.execute(
        "SELECT id, predicted_label FROM ml_predict(MODEL kind, "
        "(FROM scored SELECT * EXCLUDE (predicted_label, predicted_label_probs))) ORDER BY id"
    )
    assert con.fetchall() == [(i, kind) for i, kind, _ in want]


def test_in_views_prepared_statements_and_with_parameters(con: sqlml.Session) -> None:
    want = con.execute("SELECT id, predict('kind', *) FROM t WHERE id < 9 ORDER BY id").fetchall()
    con.execute("CREATE VIEW v AS SELECT id, predicted_label FROM ml_predict(MODEL kind, TABLE t)")
    assert con.execute("FROM v WHERE id < 9 ORDER BY id").fetchall() == want
    query = (
        "SELECT id, predicted_label FROM ml_predict(MODEL kind, (FROM t WHERE id < ?)) "
        "WHERE id >= ? ORDER BY id"
    )
    assert con.execute(query, [9, 0]).fetchall() == want
    named = query.replace("?", "$low", 1).replace("?", "$high").replace("low", "below")
    assert con.execute(named, {"below": 9, "high": 0}).fetchall() == want
    con.execute(f"PREPARE p AS {query}")
    assert con.execute("EXECUTE p(9, 0)").fetchall() == want
    several = "SELECT 1; SELECT id, predicted_label FROM ml_predict(MODEL kind, TABLE t) LIMIT 0"
    assert con.execute(several).fetchall() == []


def test_a_model_that_is_replaced_is_seen(con: sqlml.Session) -> None:
    query = "SELECT id, predicted_label FROM ml_predict(MODEL kind, TABLE t) ORDER BY id"
    before = con.execute(query).fetchall()
    con.create_model(
        "kind",
        LogisticRegression().fit(ROWS, np.where(KINDS == "up", "down", "up")),
        inputs=["a", "b"],
        or_replace=True,
    )
    after = con.execute(query).fetchall()
    assert [b for _, b in after] == ["down" if a == "up" else "up" for _, a in before]


def test_a_users_own_function_of_that_name_is_left_alone(con: sqlml.Session) -> None:
    con.execute("CREATE MACRO ml_predict(model, n) AS TABLE SELECT model + n AS x")
    assert con.execute("FROM ml_predict(1, 2)").fetchall() == [(3,)]
    con.execute("SELECT count(*) FROM ml_predict(MODEL kind, TABLE t)")
    assert con.fetchall() == [(60,)]


@pytest.mark.by_day(2)
@pytest.mark.parametrize(
    ("query", "error", "message", "line", "column"),
    [
        (
            "FROM ml_predict(MODEL nobody, TABLE t)",
            "UnknownModelError",
            "unknown model 'nobody'",
            1,
            23,
        ),
        ("FROM ml_predict(MODEL scaled, TABLE t)", "BindError", "predicts nothing", 1, 23),
        ("FROM ml_predict(MODEL kind, t)", "BindError", "TABLE and a name", 1, 29),
        ("FROM ml_predict(MODEL kind)", "BindError", "a model and its rows", 1, 6),
        ("FROM ml_predict(MODEL kind, TABLE t, 1)", "BindError", "takes options, as in", 1, 38),
        ("FROM ml_predict(MODEL kind, )", "BindError", "a model and its rows", 1, 6),
        (
            "FROM ml_predict(MODEL sum, TABLE t, threshold := 0.3)",
            "BindError",
            "gives no probabilities",
            1,
            37,
        ),
        (
            "FROM ml_predict(MODEL kind, TABLE t, threshold := 0.3, class := 'x')",
            "BindError",
            "no class 'x'; its classes are 'down', 'up'",
            1,
            56,
        ),
        (
            "FROM ml_predict(MODEL kind, TABLE t, class := 'up')",
            "BindError",
            "goes with threshold",
            1,
            38,
        ),
        (
            "FROM ml_predict(MODEL (name), TABLE t, threshold := 0.3)",
            "BindError",
            "goes with one model",
            1,
            40,
        ),
        ("FROM ml_predict(MODEL ?, TABLE t)", "BindError", "takes a model name", 1, 23),
        ("FROM t,\n ML.PREDICT(MODEL kind, (SELECT a FROM t))", "MissingColumnError", "'b'", 2, 2),
        ("SELECT 1,\n ml_predict(MODEL kind, TABLE t)", "BindError", "belongs in FROM", 2, 2),
        (
            "FROM t WHERE\n a > ML.PREDICT(MODEL kind, TABLE t)",
            "BindError",
            "returns rows and belongs in FROM",
            2,
            6,
        ),
        ("FROM ml_predict(MODEL kind 2, TABLE t)", "BindError", "one model", 1, 28),
        (
            "SELECT 1\nFROM ml_predict(MODEL kind, (SELECT *, 1 AS Predicted_Label FROM t))",
            "BindError",
            r"already have a column 'Predicted_Label'.*EXCLUDE \(\"Predicted_Label\"\)",
            2,
            6,
        ),
        (
            "SELECT 1\nFROM ml_predict(MODEL kind, (SELECT * EXCLUDE (predicted_label) FROM "
            "ml_predict(MODEL kind, TABLE t)))",
            "BindError",
            "already have a column 'predicted_label_probs'",
            2,
            6,
        ),
        (
            "SELECT 1,\n predict('kind', q) FROM ml_predict(MODEL kind, TABLE t)",
            "BindError",
            "takes 2 features by position",
            2,
            2,
        ),
        (
            "FROM ml_predict(MODEL kind, (SELECT *,\n  predict('nobody', *) FROM t))",
            "UnknownModelError",
            "nobody",
            2,
            11,
        ),
    ],
)
def test_errors_show_the_place_in_the_users_text(
    con: sqlml.Session, query: str, error: str, message: str, line: int, column: int
) -> None:
    with pytest.raises(getattr(errors, error), match=message) as caught:
        con.execute(query)
    first, _, caret = str(caught.value).partition("\n\n")[2].partition("\n")
    assert first == f"LINE {line}: {query.splitlines()[line - 1]}"
    assert caret.index("^") == len(f"LINE {line}: ") + column - 1
    assert isinstance(caught.value, errors.SqlmlError)
    assert caught.value.sql == query
