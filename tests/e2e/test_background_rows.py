"""Explanations that compare with background rows."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import pandas as pd
import pytest
from sklearn.naive_bayes import GaussianNB

import sqlml
from sqlml import errors
from tests.support.explained_models import (
    FEATURES,
    FITTED,
    X,
    explained_models,
)


@pytest.fixture(scope="module")
def con() -> Iterator[sqlml.Session]:
    with explained_models() as con:
        yield con


@pytest.mark.version
def test_rows_to_compare_with(con: sqlml.Session) -> None:
    given = "background := (FROM shop WHERE id BETWEEN 101 AND 120)"
    for name, column in (("prices", "predict('prices', *)"), ("bayes", "")):
        proba = column or "predict_proba('bayes', *, class := 'yes')"
        made = con.sql(
            f"SELECT {proba} AS p, explain('{name}', *, baseline := true, {given}) AS e "
            "FROM shop WHERE id <= 20 ORDER BY id"
        )
        scorer = sqlml.compile(FITTED[name])
        want = scorer.explain(X[:20], background=X[100:120])
        for (p, e), values, baseline in zip(
            made.fetchall(), want.values.tolist(), want.baseline.tolist(), strict=True
        ):
            assert list(e.values()) == pytest.approx([*values, baseline], rel=1e-9, abs=1e-9)
            assert sum(e.values()) == pytest.approx(p, rel=1e-5, abs=1e-6)


def test_forms_take_rows_to_compare_with(con: sqlml.Session) -> None:
    given = "background := (FROM shop LIMIT 9)"
    made = con.sql(
        f"FROM ml_explain_predict(MODEL bayes, (FROM shop LIMIT 5), top_k_features := 3, {given})"
    ).df()
    want = sqlml.compile(FITTED["bayes"]).explain(X[:5], background=X[:9])
    np.testing.assert_allclose(made.baseline_prediction_value, want.baseline, rtol=1e-9)
    np.testing.assert_allclose(made.prediction_value, made.probability, rtol=1e-9)
    assert made.top_feature_attributions[0][0]["standard_error"] == 0  # of three columns
    means = con.sql(f"FROM ml_global_explain(MODEL bayes, (FROM shop LIMIT 5), {given})").fetchall()
    want = dict(zip(want.features, np.abs(want.values).mean(axis=0).tolist(), strict=True))
    assert dict(means) == pytest.approx(want, rel=1e-9)
    with pytest.raises(errors.BindError, match="option background takes a query in brackets"):
        con.sql("FROM ml_global_explain(MODEL bayes, TABLE shop, background := 'shop')")
    with pytest.raises(errors.BindError, match="option class takes a class of the model"):
        con.sql("FROM ml_global_explain(MODEL bayes, TABLE shop, class := (FROM shop))")


def test_more_permutations_have_smaller_errors(con: sqlml.Session) -> None:
    rng = np.random.default_rng(2)
    wide = rng.normal(size=(300, 9))
    bayes = GaussianNB().fit(wide, (wide[:, 0] * wide[:, 1] > 0).astype(int))
    con.create_model("nine", bayes, inputs=[f"c{k}" for k in range(9)], or_replace=True)
    con.register("nines", pd.DataFrame(wide, columns=[f"c{k}" for k in range(9)]))
    given = "background := (FROM nines LIMIT 30)"
    few, many = (
        con.sql(
            f"SELECT explain('nine', *, {given}, permutations := {n}, standard_errors := true) "
            "FROM nines LIMIT 1"
        ).fetchall()[0][0]
        for n in (2, 20)
    )
    assert 0 < np.mean(list(many.values())) < 0.6 * np.mean(list(few.values()))
    made = con.sql(
        "SELECT baseline_prediction_value, prediction_value FROM ml_explain_predict(MODEL nine, "
        f"(FROM nines LIMIT 2), {given}, permutations := 3)"
    ).df()
    want = sqlml.compile(bayes).explain(wide[:2], background=wide[:30], permutations=3)
    np.testing.assert_allclose(made.prediction_value, want.values.sum(axis=1) + want.baseline)
    for query, message in (
        ("SELECT explain('nine', *, permutations := 3) FROM nines", "needs background"),
        (f"SELECT explain('nine', *, {given}, permutations := 0) FROM nines", "from 1 to 1,000"),
        (f"SELECT explain('nine', *, {given}, permutations := 2.5) FROM nines", "a whole number"),
    ):
        with pytest.raises((errors.BindError, errors.ConfigError), match=message):
            con.sql(query)
    with pytest.raises(errors.ConfigError, match="permutations needs a background"):
        sqlml.compile(bayes).explain(wide[:2], permutations=3)


def test_standard_errors_of_estimates(con: sqlml.Session) -> None:
    draw = np.random.default_rng(3)
    wide = pd.DataFrame(draw.normal(size=(120, 10)), columns=[f"x{i}" for i in range(10)])
    model = GaussianNB().fit(wide, wide.x0 + wide.x1 > 0)
    con.create_model("wide", model, verify=False)
    con.register("wide_rows", wide)
    given = "background := (FROM wide_rows LIMIT 20)"
    made = con.sql(
        f"SELECT explain('wide', *, {given}) AS e, "
        f"explain('wide', *, standard_errors := true, {given}) AS se FROM wide_rows LIMIT 4"
    ).fetchall()
    want = sqlml.compile(model).explain(wide[:4], background=wide[:20])
    for (e, se), values, spread in zip(made, want.values, want.errors, strict=True):
        assert list(e) == list(se) == list(wide)
        assert list(e.values()) == pytest.approx(values.tolist(), rel=1e-9, abs=1e-12)
        assert list(se.values()) == pytest.approx(spread.tolist(), rel=1e-9, abs=1e-12)
        assert all(0 < value < 0.1 for value in se.values())
    exact = con.sql("SELECT explain('prices', *, standard_errors := true) FROM shop LIMIT 1")
    assert exact.fetchall() == [({"a": 0.0, "b": 0.0, "c": 0.0},)]
    twice = con.sql("SELECT explain('both', *, standard_errors := true) FROM shop LIMIT 1")
    assert twice.fetchall() == [([dict.fromkeys(FEATURES, 0.0)] * 2,)]


def test_rows_to_compare_with_are_read_anew(con: sqlml.Session) -> None:
    con.execute("CREATE TABLE others AS FROM shop LIMIT 3")
    query = "SELECT explain('prices', *, background := (FROM others)) FROM shop WHERE id = 7"
    ((before,),) = con.execute(query).fetchall()
    con.execute("UPDATE others SET a = a + 2")
    ((after,),) = con.execute(query).fetchall()
    assert before["a"] != after["a"]
    con.execute("DROP TABLE others")


@pytest.mark.parametrize(
    ("background", "message"),
    [
        ("(FROM shop LIMIT 0)", "the background has no rows"),
        ("(SELECT a FROM shop)", "model 'prices': the model needs column 'b'"),
        ("(FROM shop, range(4))", "at most 1,000 background rows; take a sample"),
        ("(SELECT *, predict('prices', *) FROM shop)", "takes a query that calls no model"),
        ("'shop'", "background := takes a query in brackets"),
    ],
)
def test_what_rows_cannot_be_compared_with(
    con: sqlml.Session, background: str, message: str
) -> None:
    query = f"explain('prices', *, background := {background}) FROM shop"
    with pytest.raises(errors.SqlmlError, match=re.escape(message)):
        con.sql(f"SELECT {query}")
    with pytest.raises(errors.BindError, match="cannot have background rows|takes a query"):
        con.execute(f"CREATE VIEW why AS SELECT {query}")
