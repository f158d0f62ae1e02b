"""`explain`: the contributions that `Scorer.explain` gives, in any place of a query."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import xgboost

import sqlml
from sqlml import errors
from tests.support.explained_models import (
    FITTED,
    PLANS,
    ROWS,
    SMALL,
    X,
    contributions_of,
    explained_models,
    same_maps,
)


@pytest.fixture(scope="module")
def con() -> Iterator[sqlml.Session]:
    with explained_models() as con:
        yield con


@pytest.mark.version
@pytest.mark.parametrize("name", ["answers", "grades", "prices", "plans"])
def test_a_map_from_feature_to_contribution(con: sqlml.Session, name: str) -> None:
    got = con.sql(f"SELECT explain('{name}', *) AS e FROM shop ORDER BY id")
    assert got.types == ["MAP(VARCHAR, DOUBLE)"]
    same_maps([row[0] for row in got.fetchall()], contributions_of(name))
    told = con.sql(f"SELECT explain('{name}', *, baseline := true) FROM shop ORDER BY id")
    same_maps([row[0] for row in told.fetchall()], contributions_of(name, baseline=True))


@pytest.mark.version
@pytest.mark.parametrize(
    "arguments",
    [
        "shop.*",
        "* EXCLUDE (price)",
        "COLUMNS('^[abc]$')",
        "a, b, c",
        "c := c, a := a, b := b",
        "{'a': a, 'b': b, 'c': c}",
        "* REPLACE (a + 0 AS a)",
    ],
)
def test_columns_are_bound_as_those_of_predict(con: sqlml.Session, arguments: str) -> None:
    made = con.sql(f"SELECT explain('prices', {arguments}) FROM shop ORDER BY id").fetchall()
    same_maps([row[0] for row in made], contributions_of("prices"))


@pytest.mark.version
@pytest.mark.parametrize(
    "query",
    [
        "SELECT id FROM shop WHERE explain('prices', *)['a'] > 1 ORDER BY id",
        "SELECT id FROM (SELECT id, explain('prices', *) AS e FROM shop) WHERE e['a'] > 1 "
        "ORDER BY id",
        "WITH w AS MATERIALIZED (SELECT id, explain('prices', *) AS e FROM shop) "
        "SELECT id FROM w WHERE e['a'] > 1 ORDER BY id",
        "SELECT id FROM shop QUALIFY max(explain('prices', *)['a']) OVER (PARTITION BY id) > 1 "
        "ORDER BY id",
        "SELECT id FROM shop GROUP BY id, a, b, c HAVING explain('prices', a, b, c)['a'] > 1 "
        "ORDER BY id",
        "SELECT s.id FROM shop s JOIN shop t ON s.id = t.id AND explain('prices', t.*)['a'] > 1 "
        "ORDER BY s.id",
        "SELECT id FROM shop WHERE id IN (SELECT id FROM shop WHERE explain('prices', *)['a'] > 1) "
        "ORDER BY id",
    ],
)
def test_any_place_of_a_query(con: sqlml.Session, query: str) -> None:
    wanted = [k for k, made in enumerate(contributions_of("prices"), 1) if made["a"] > 1]
    assert 0 < len(wanted) < 300
    assert [row[0] for row in con.sql(query).fetchall()] == wanted


def test_views_prepared_statements_and_parameters(con: sqlml.Session, tmp_path: Path) -> None:
    path = tmp_path / "shop.duckdb"
    with sqlml.connect(path) as there:
        there.register("frame", ROWS)
        there.create_model("grades", FITTED["grades"], verify=False)
        there.execute("CREATE TABLE shop AS SELECT row_number() OVER () AS id, * FROM frame")
        there.execute(
            "CREATE VIEW why AS SELECT id, explain('grades', *, class := 5) AS e FROM shop"
        )
    with sqlml.connect(path) as later:
        made = later.sql("SELECT e FROM why ORDER BY id").fetchall()
    same_maps([row[0] for row in made], contributions_of("grades", label=5))
    query = "SELECT explain($model, *, class := $class) FROM shop ORDER BY id"
    made = con.execute(query, {"model": "grades", "class": 4}).fetchall()
    same_maps([row[0] for row in made], contributions_of("grades", label=4))
    con.execute("PREPARE q AS SELECT explain('prices', a, ?, c) FROM shop WHERE id = 3")
    ((got,),) = con.execute("EXECUTE q(0.5)").fetchall()
    ((want,),) = con.execute(
        "SELECT explain('prices', a, 0.5, c) FROM shop WHERE id = 3"
    ).fetchall()
    assert got == pytest.approx(want, rel=1e-12)


def test_null_is_followed_as_the_model_does(con: sqlml.Session) -> None:
    ((missing,),) = con.execute(
        "SELECT explain('prices', a := NULL, b := 0.3, c := 0.1, baseline := true)"
    ).fetchall()
    ((score,),) = con.execute("SELECT predict('prices', a := NULL, b := 0.3, c := 0.1)").fetchall()
    assert sum(missing.values()) == pytest.approx(score, rel=1e-6)
    con.create_model("strict", PLANS, on_null="null", verify=False)
    assert con.execute("SELECT explain('strict', a := NULL, plan := 'pro')").fetchall() == [(None,)]
    with pytest.raises(errors.ScoringError, match="NULL"):
        con.execute("SELECT explain('plans', a := NULL, plan := 'pro')").fetchall()


def test_predict_and_explain_share_the_row(con: sqlml.Session) -> None:
    query = (
        "SELECT predict('prices', *) AS p, explain('prices', *, baseline := true) AS e FROM shop"
    )
    assert "one evaluation of contributions, label for 2 calls" in con.explain(query)
    for p, e in con.sql(query).fetchall():
        assert sum(e.values()) == pytest.approx(p, rel=1e-5, abs=1e-6)


def test_the_positive_class_of_a_model(con: sqlml.Session) -> None:
    con.create_model("noes", FITTED["answers"], positive_class="no", verify=False)
    made = con.sql("SELECT explain('noes', *) FROM shop ORDER BY id").fetchall()
    same_maps([row[0] for row in made], contributions_of("answers", label="no"))
    rows = con.sql("FROM ml_explain_predict(MODEL noes, TABLE shop) ORDER BY id").df()
    np.testing.assert_allclose(rows.prediction_value, rows.probability, rtol=1e-12)
    want = FITTED["answers"].predict_proba(X)[:, 0]
    np.testing.assert_allclose(rows.probability, want, rtol=1e-12)
    con.create_model("fives", FITTED["grades"], positive_class=5, verify=False)
    rows = con.sql("FROM ml_explain_predict(MODEL fives, TABLE shop) ORDER BY id").df()
    np.testing.assert_allclose(rows.prediction_value, rows.probability, rtol=1e-12)
    for name, label in (("noes", "answer"), ("fives", "grade")):
        other = {"noes": "answers", "fives": "grades"}[name]
        made = [
            con.sql(
                f"SELECT feature, importance FROM ml_permutation_importance(MODEL {model}, "
                f"TABLE shop, label := '{label}', metric := 'log_loss')"
            ).fetchall()
            for model in (name, other)
        ]
        assert dict(made[0]) == pytest.approx(dict(made[1]))


def test_several_targets_give_a_list(con: sqlml.Session) -> None:
    made = con.sql("SELECT explain('both', *) FROM shop ORDER BY id")
    assert made.types == ["MAP(VARCHAR, DOUBLE)[]"]
    want = sqlml.compile(FITTED["both"]).explain(X).values
    for (maps,), row in zip(made.fetchall(), want, strict=True):
        np.testing.assert_allclose([list(m.values()) for m in maps], row, atol=1e-12)


def test_several_labels_give_a_list(con: sqlml.Session) -> None:
    made = con.sql("SELECT explain('pair', *) FROM shop ORDER BY id")
    assert made.types == ["MAP(VARCHAR, DOUBLE)[]"]
    want = sqlml.compile(FITTED["pair"]).explain(X).values
    for (maps,), row in zip(made.fetchall(), want, strict=True):
        np.testing.assert_allclose([list(m.values()) for m in maps], row, atol=1e-12)


def test_a_literal_argument_has_its_contribution(con: sqlml.Session) -> None:
    con.execute("CREATE OR REPLACE TABLE many AS SELECT b, c FROM shop, range(700)")
    given = "'answers', a := 0.5, b := b, c := c"
    made = con.sql(f"SELECT predict({given}), explain({given}) AS e FROM many LIMIT 1").fetchall()
    assert made[0][1]["a"] != 0
    con.execute("DROP TABLE many")


def test_a_sample_is_read_once_for_all_calls(con: sqlml.Session) -> None:
    call = "explain('bayes', *, baseline := true, background := (FROM shop USING SAMPLE 5))"
    made = con.sql(f"SELECT {call}['baseline'], {call}['baseline'] FROM shop LIMIT 1").fetchall()
    assert made[0][0] == made[0][1]


def test_a_feature_that_is_called_baseline(con: sqlml.Session) -> None:
    rows = X.rename(columns={"a": "baseline"})
    con.create_model("odd", xgboost.XGBRegressor(**SMALL).fit(rows, ROWS.price), verify=False)
    query = "SELECT explain('odd', \"baseline\" := a, b := b, c := c, baseline := true) FROM shop "
    query += "WHERE id = 1"
    ((made,),) = con.execute(query).fetchall()
    assert made.keys() == {"baseline", "b", "c", "(baseline)"}
    got = con.execute(
        "SELECT baseline_prediction_value FROM ml_explain_predict(MODEL odd, "
        "(SELECT a AS baseline, b, c FROM shop WHERE id = 1))"
    ).fetchall()
    assert got == [(made["(baseline)"],)]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        (
            "SELECT explain('bayes', *) FROM shop",
            "model 'bayes': explain is exact for sums",
        ),
        ("SELECT explain('scaler', *) FROM shop", "model 'scaler': explain needs a model that"),
        ("SELECT explain('prices', a, b) FROM shop", "c"),
        ("SELECT explain('prices', *, class := 1) FROM shop", "model 'prices' has no classes"),
        ("SELECT explain('grades', *, class := 9) FROM shop", "has no class 9; its classes are 4"),
        ("SELECT explain('grades', *, baseline := 1) FROM shop", "baseline := takes true or false"),
        ("SELECT explain('nobody', *) FROM shop", "unknown model 'nobody'"),
        (
            "SELECT explain('prices', *, baseline := true, standard_errors := true) FROM shop",
            "baseline := excludes standard_errors :=",
        ),
        ("SELECT explain('pair', *, class := 'yes') FROM shop", "explain returns a MAP for each"),
        ("SELECT explain('prices', *, background := (1)) FROM shop", "takes a query in brackets"),
        (
            "SELECT explain('prices', *, background := (FROM shop WHERE a > ?)) FROM shop",
            "takes no parameters",
        ),
        ("FROM ml_explain_predict(MODEL both, TABLE shop)", "predicts 2 values per row"),
        (
            "FROM ml_explain_predict(MODEL grades, TABLE shop, top_k_features := 0)",
            "top_k_features takes a whole number from 1 to",
        ),
        ("FROM ml_explain_predict(MODEL grades)", "ml_explain_predict takes a model and its rows"),
        ("FROM ml_global_explain(MODEL grades)", "name the rows, as in ml_global_explain"),
        ("FROM ml_feature_importance(MODEL bayes)", "has neither trees nor weights"),
        ("FROM ml_permutation_importance(MODEL prices, TABLE shop)", "name the label column"),
        (
            "FROM ml_permutation_importance(MODEL prices, TABLE shop, label := 'price', "
            "metric := 'accuracy')",
            "unknown metric 'accuracy'; metrics of model 'prices': r2_score",
        ),
        (
            "FROM ml_permutation_importance(MODEL both, TABLE shop, label := ['a', 'price'])",
            "does not predict one value per row",
        ),
        ("FROM ml_partial_dependence(MODEL prices, TABLE shop)", "name the feature, as in"),
        ("FROM ml_partial_dependence(MODEL prices, TABLE shop, 'plan')", "it reads 'a', 'b', 'c'"),
        ("FROM ml_partial_dependence(MODEL grades, TABLE shop, 'a')", "name the class, as in"),
        ("FROM ml_partial_dependence(MODEL prices, (FROM shop SELECT b), 'a')", "no column 'a'"),
        ("FROM ml_weights(MODEL grades)", "is not linear, and has no weights"),
        ("FROM ml_tree(MODEL grades, 6)", "has trees 0 to 5"),
        ("FROM ml_tree(MODEL plans, 0)", "has no trees"),
        ("FROM ml_explan_predict(MODEL grades, TABLE shop)", "did you mean ml_explain_predict"),
    ],
)
def test_what_cannot_be_explained(con: sqlml.Session, query: str, message: str) -> None:
    with pytest.raises(errors.SqlmlError, match=re.escape(message)):
        con.sql(query).fetchall()


def test_a_model_that_was_stored_without_covers(con: sqlml.Session) -> None:
    from sqlml.passes.simplify_trees import drop_statistics

    old = drop_statistics(sqlml.compile(FITTED["prices"]).program)
    con.create_model("old", old, verify=False)
    assert con.sql("SELECT predict('old', *) FROM shop").fetchall()
    with pytest.raises(errors.SqlmlError, match="lacks the number of training rows per tree node"):
        con.sql("SELECT explain('old', *) FROM shop")


@pytest.mark.parametrize("setting", ["backend = 'torch'", "strategy = 'gemm'", "device = 'cuda'"])
def test_native_explains_whatever_runs_the_model(con: sqlml.Session, setting: str) -> None:
    """No other backend can: a model that scores on a GPU is explained all the same."""
    name = setting.split(" ")[0]
    con.execute(f"SET sqlml_{setting}")
    try:
        told = con.sql("SELECT explain('prices', *) FROM shop ORDER BY id").fetchall()
    finally:
        con.execute(f"RESET sqlml_{name}")
    same_maps([row[0] for row in told], contributions_of("prices"))
