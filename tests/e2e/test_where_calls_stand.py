"""A model call works wherever an expression may stand (test_corpus.py has many more places)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

import sqlml


@pytest.fixture(scope="module")
def scored(frame: pd.DataFrame, churn: Any) -> pd.DataFrame:
    """The customers with the source library's own label `p` and probability of "yes" `q`."""
    inputs = frame[["tenure", "charges", "plan", "region"]]
    return frame.assign(p=churn.predict(inputs), q=churn.predict_proba(inputs)[:, 1])


P = "predict('churn', *)"
Q = "predict_proba('churn', *, class := 'yes')"


def test_a_named_argument_overrides_a_star(
    con: sqlml.Session, scored: pd.DataFrame, churn: Any
) -> None:
    inputs = scored[["tenure", "charges", "plan", "region"]].assign(plan="pro")
    rows = con.execute("SELECT predict('churn', *, plan := 'pro') FROM customers ORDER BY id")
    assert [r[0] for r in rows.fetchall()] == churn.predict(inputs).tolist()


def test_the_column_is_named_as_the_user_named_it(con: sqlml.Session) -> None:
    found = con.sql(f'SELECT id, {P} AS label, {Q} "The Chance" FROM customers')
    assert found is not None
    assert found.columns == ["id", "label", "The Chance"]


def test_create_table_as_insert_and_update(con: sqlml.Session, scored: pd.DataFrame) -> None:
    con.execute(f"CREATE TABLE out AS SELECT id, {P} AS p FROM customers WHERE id < 100")
    con.execute(f"INSERT INTO out SELECT id, {P} FROM customers WHERE id >= 100")
    con.execute("ALTER TABLE customers ADD COLUMN label VARCHAR")
    con.execute(f"UPDATE customers SET label = {P} WHERE {Q} >= 0")
    expected = list(zip(scored.id.tolist(), scored.p.tolist(), strict=True))
    assert con.execute("SELECT id, p FROM out ORDER BY id").fetchall() == expected
    assert con.execute("SELECT id, label FROM customers ORDER BY id").fetchall() == expected


def test_delete_and_returning(con: sqlml.Session, scored: pd.DataFrame) -> None:
    gone = con.execute(f"DELETE FROM customers WHERE {P} = 'yes' RETURNING id, {P}").fetchall()
    expected = scored[scored.p == "yes"]
    assert sorted(gone) == [(i, "yes") for i in expected.id.tolist()]
    assert con.execute("SELECT count(*) FROM customers").fetchone() == (len(scored) - len(gone),)


def test_a_view_stores_the_rewritten_text(con: sqlml.Session, scored: pd.DataFrame) -> None:
    con.execute(f"CREATE VIEW risky AS SELECT id, {Q} AS q FROM customers")
    rows = con.execute("SELECT id, q FROM risky WHERE q > 0.5 ORDER BY id").fetchall()
    expected = scored[scored.q > 0.5]
    assert [r[0] for r in rows] == expected.id.tolist()
    np.testing.assert_allclose([r[1] for r in rows], expected.q, rtol=1e-9)


def test_prepared_statements_take_their_own_parameters(
    con: sqlml.Session, scored: pd.DataFrame
) -> None:
    con.execute(f"PREPARE over AS SELECT count(*) FROM customers WHERE {Q} > ?")
    for limit in (0.2, 0.8):
        assert con.execute(f"EXECUTE over({limit})").fetchone() == (int((scored.q > limit).sum()),)
        con.fetchall()


def test_copy_writes_scores(con: sqlml.Session, scored: pd.DataFrame, tmp_path: Any) -> None:
    path = tmp_path / "scores.csv"
    con.execute(f"COPY (SELECT id, {P} AS p FROM customers ORDER BY id) TO '{path}' (HEADER)")
    written = pd.read_csv(path)
    assert written.p.tolist() == scored.p.tolist()


def test_several_statements_in_one_string(con: sqlml.Session, scored: pd.DataFrame) -> None:
    con.execute(
        f"CREATE TABLE s AS SELECT id, {P} AS p FROM customers; "
        "SELECT count(*) FROM s WHERE p = 'yes'"
    )
    assert con.fetchone() == (int((scored.p == "yes").sum()),)


def test_parameters_beside_and_inside_calls(con: sqlml.Session, scored: pd.DataFrame) -> None:
    over = (int((scored.q > 0.8).sum()),)
    count = "SELECT count(*) FROM customers WHERE"
    for where, values in [
        (f"{Q} > ?", [0.8]),
        (f"{Q} > $1", [0.8]),
        (f"{Q} > $limit", {"limit": 0.8}),
        ("predict_proba(?, *, class := ?) > ?", ["churn", "yes", 0.8]),
        ("predict_proba($2, *, class := $3) > $1", [0.8, "churn", "yes"]),
        ("predict_proba($m, *, class := $c) > $x", {"m": "churn", "c": "yes", "x": 0.8}),
    ]:
        query = f"{count} {where}"
        assert con.execute(query, values).fetchall() == [over]
        found = con.sql(query, params=values)
        assert found is not None and found.fetchall() == [over]


def test_parameters_as_features(con: sqlml.Session, churn: Any) -> None:
    row = pd.DataFrame([[12.0, 80.0, "pro", None]], columns=["tenure", "charges", "plan", "region"])
    expected = [(churn.predict(row)[0],)]
    query = "SELECT predict('churn', tenure := ?, charges := ?, plan := ?, region := ?)"
    assert con.execute(query, [12, 80.0, "pro", None]).fetchall() == expected
    query = "SELECT predict('churn', $t, $c, $p, $r)"
    assert con.execute(query, {"t": 12, "c": 80.0, "p": "pro", "r": None}).fetchall() == expected


def test_a_call_inside_a_call(con: sqlml.Session, frame: pd.DataFrame, value_model: Any) -> None:
    known = frame.dropna().sort_values("id")
    first = value_model.predict(known[["charges", "tenure"]])
    second = value_model.predict(
        pd.DataFrame({"charges": first, "tenure": known.tenure.to_numpy()})
    )
    rows = con.sql(
        "SELECT predict('value', charges := predict('value', charges, tenure), tenure := tenure) "
        "FROM customers WHERE tenure IS NOT NULL AND region IS NOT NULL ORDER BY id"
    )
    assert rows is not None
    np.testing.assert_allclose([r[0] for r in rows.fetchall()], second, rtol=1e-9)


def test_calls_on_aggregates_and_select_aliases(
    con: sqlml.Session, frame: pd.DataFrame, value_model: Any
) -> None:
    means = frame.groupby("plan")[["charges", "tenure"]].mean()
    expected = dict(zip(means.index, value_model.predict(means), strict=True))
    for query in (
        "SELECT plan, predict('value', avg(charges), avg(tenure)) FROM customers GROUP BY plan",
        "SELECT plan, avg(charges) AS c, avg(tenure) AS t, predict('value', c, t) AS v "
        "FROM customers GROUP BY plan",
    ):
        rows = con.execute(query).fetchall()
        for row in rows:
            assert row[-1] == pytest.approx(expected[row[0]], rel=1e-9)


def test_text_that_only_looks_like_a_call_is_left_alone(con: sqlml.Session) -> None:
    con.execute("CREATE TABLE predict (model INTEGER); INSERT INTO predict VALUES (1)")
    con.execute("CREATE TABLE model AS SELECT 'predict(''churn'', *)' AS predict")
    assert con.execute("SELECT predict FROM model -- predict('churn', *)").fetchall() == [
        ("predict('churn', *)",)
    ]
    assert con.execute("SELECT model FROM predict /* predict('nope', *) */").fetchall() == [(1,)]
    assert con.execute("SELECT 'it''s predict(''x'', *)'").fetchall() == [("it's predict('x', *)",)]
    assert con.execute("SELECT $$predict('x', *)$$").fetchall() == [("predict('x', *)",)]
    assert con.execute("SELECT 1 AS \"predict('x', *)\"").fetchall() == [(1,)]
    con.execute("DROP TABLE model; DROP TABLE predict")


def test_a_users_own_function_named_predict_keeps_working(con: sqlml.Session) -> None:
    con.execute("CREATE MACRO predict(a, b) AS a || '-' || b")
    assert con.execute("SELECT predict('x', 'y')").fetchall() == [("x-y",)]
    assert con.execute("SELECT count(predict('churn', *)) FROM customers").fetchone() == (500,)
