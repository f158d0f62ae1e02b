"""`explain` and the forms that explain: the contributions that `Scorer.explain` gives, anywhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xgboost
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.inspection import permutation_importance
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import sqlml
from sqlml import errors

FEATURES = ["a", "b", "c"]


def _rows() -> pd.DataFrame:
    draw = np.random.default_rng(6)
    made = pd.DataFrame(draw.normal(size=(300, 3)), columns=FEATURES)
    made["plan"] = draw.choice(["basic", "pro"], 300)
    made["answer"] = np.where(made.a * made.b + made.c > 0, "yes", "no")
    made["grade"] = (made.b + draw.normal(size=300)).clip(-1, 1).round().astype(int) + 5
    made["price"] = made.a * 2 + draw.normal(size=300)
    return made


ROWS = _rows()
X = ROWS[FEATURES]
SMALL = {"n_estimators": 6, "max_depth": 3, "random_state": 0}
PLANS = make_pipeline(
    make_column_transformer((OneHotEncoder(), ["plan"]), (StandardScaler(), ["a"])),
    LogisticRegression(),
)
FITTED = {
    "answers": RandomForestClassifier(**SMALL).fit(X, ROWS.answer),
    "grades": RandomForestClassifier(**SMALL).fit(X, ROWS.grade),
    "prices": xgboost.XGBRegressor(**SMALL).fit(X, ROWS.price),
    "both": RandomForestRegressor(**SMALL).fit(X, ROWS[["price", "a"]]),
    "pair": RandomForestClassifier(**SMALL).fit(X, ROWS[["answer", "grade"]].astype(str)),
    "plans": PLANS.fit(ROWS[["plan", "a"]], ROWS.answer),
    "bayes": GaussianNB().fit(X, ROWS.answer),
    "scaler": StandardScaler().fit(X),
}


@pytest.fixture(scope="module")
def con() -> Iterator[sqlml.Session]:
    with sqlml.connect() as con:
        con.register("frame", ROWS)
        con.execute("CREATE TABLE shop AS SELECT row_number() OVER () AS id, * FROM frame")
        for name, model in FITTED.items():
            con.create_model(name, model, verify=False)
        yield con


def _maps(name: str, baseline: bool = False, **options: Any) -> list[dict[str, float]]:
    """What `explain` gives of all rows, from Python."""
    scorer = sqlml.compile(FITTED[name])
    read = {feature.name: ROWS[feature.name] for feature in scorer.features}
    made = scorer.explain(read, **options)
    maps = [dict(zip(made.features, row, strict=True)) for row in made.values.tolist()]
    if baseline:
        maps = [m | {"baseline": b} for m, b in zip(maps, made.baseline.tolist(), strict=True)]
    return maps


def _same(got: list[Any], want: list[dict[str, float]]) -> None:
    assert len(got) == len(want)
    for one, other in zip(got, want, strict=True):
        assert one.keys() == other.keys()
        assert one == pytest.approx(other, rel=1e-12, abs=1e-12)


@pytest.mark.version
@pytest.mark.parametrize("name", ["answers", "grades", "prices", "plans"])
def test_a_map_from_feature_to_contribution(con: sqlml.Session, name: str) -> None:
    got = con.sql(f"SELECT explain('{name}', *) AS e FROM shop ORDER BY id")
    assert got.types == ["MAP(VARCHAR, DOUBLE)"]
    _same([row[0] for row in got.fetchall()], _maps(name))
    told = con.sql(f"SELECT explain('{name}', *, baseline := true) FROM shop ORDER BY id")
    _same([row[0] for row in told.fetchall()], _maps(name, baseline=True))


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
    _same([row[0] for row in made], _maps("prices"))


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
    wanted = [k for k, made in enumerate(_maps("prices"), 1) if made["a"] > 1]
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
    _same([row[0] for row in made], _maps("grades", label=5))
    query = "SELECT explain($model, *, class := $class) FROM shop ORDER BY id"
    made = con.execute(query, {"model": "grades", "class": 4}).fetchall()
    _same([row[0] for row in made], _maps("grades", label=4))
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
    _same([row[0] for row in made], _maps("answers", label="no"))
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


@pytest.mark.version
def test_the_rows_with_their_greatest_contributions(con: sqlml.Session) -> None:
    made = con.sql(
        "SELECT predicted_label, probability, top_feature_attributions AS top, "
        "baseline_prediction_value, prediction_value, approximation_error, id "
        "FROM ml_explain_predict(MODEL answers, TABLE shop, top_k_features := 2) ORDER BY id"
    ).df()
    forest, want = FITTED["answers"], _maps("answers", baseline=True)
    assert list(made.predicted_label) == list(forest.predict(X))
    np.testing.assert_allclose(made.probability, forest.predict_proba(X)[:, 1], rtol=1e-12)
    np.testing.assert_allclose(made.prediction_value, made.probability, rtol=1e-12)
    for top, baseline, row in zip(made.top, made.baseline_prediction_value, want, strict=True):
        assert baseline == pytest.approx(row.pop("baseline"), rel=1e-12)
        greatest = sorted(row, key=lambda name: -abs(row[name]))[:2]
        assert [one["feature"] for one in top] == greatest
        assert [one["attribution"] for one in top] == pytest.approx([row[n] for n in greatest])
    assert list(made.approximation_error) == [0.0] * 300


@pytest.mark.parametrize("spelled", ["5", "5.0", "'5'"])
def test_the_class_that_is_explained(con: sqlml.Session, spelled: str) -> None:
    options = f"STRUCT({spelled} AS class, 3 AS top_k_features)"
    named = f"ML.EXPLAIN_PREDICT(MODEL grades, TABLE shop, {options})"
    made = con.sql(f"SELECT probability, prediction_value FROM {named} ORDER BY id").df()
    want = FITTED["grades"].predict_proba(X)[:, 1]
    np.testing.assert_allclose(made.probability, want, rtol=1e-12)
    np.testing.assert_allclose(made.prediction_value, want, rtol=1e-12)
    free = con.sql("FROM ml_explain_predict(MODEL grades, TABLE shop) ORDER BY id").df()
    want = FITTED["grades"].predict_proba(X).max(axis=1)
    np.testing.assert_allclose(free.probability, want, rtol=1e-12)
    np.testing.assert_allclose(free.prediction_value, want, rtol=1e-12)


@pytest.mark.version
def test_mean_contributions_over_rows(con: sqlml.Session) -> None:
    made = con.sql("FROM ml_global_explain(MODEL grades, (FROM shop WHERE id <= 100))").fetchall()
    maps = _maps("grades")[:100]
    want = {name: np.mean([abs(m[name]) for m in maps]) for name in FEATURES}
    assert dict(made) == pytest.approx(want, rel=1e-12)
    assert [row[1] for row in made] == sorted((row[1] for row in made), reverse=True)


def test_importances_are_the_librarys_own(con: sqlml.Session) -> None:
    for name in ("answers", "grades", "prices"):
        made = con.sql(f"SELECT feature, importance FROM ml_feature_importance(MODEL {name})")
        want = dict(zip(FEATURES, FITTED[name].feature_importances_.tolist(), strict=True))
        assert dict(made.fetchall()) == pytest.approx(want, rel=1e-6)
    booster = FITTED["prices"].get_booster()
    made = con.sql("FROM ml_feature_importance(MODEL prices)").df().set_index("feature")
    for column in ("weight", "gain", "cover"):
        want = booster.get_score(importance_type=column)
        assert dict(made[f"importance_{column}"]) == pytest.approx(want, rel=1e-5)


def test_weights_of_a_linear_model(con: sqlml.Session) -> None:
    made = con.sql("FROM ml_weights(MODEL plans)").fetchall()
    linear = PLANS[-1]
    want = [
        ("__INTERCEPT__", None, None, linear.intercept_[0]),
        ("plan", "basic", None, linear.coef_[0, 0]),
        ("plan", "pro", None, linear.coef_[0, 1]),
        ("a", None, None, linear.coef_[0, 2]),
    ]
    assert made == want


def test_the_nodes_of_a_tree(con: sqlml.Session) -> None:
    made = con.sql("FROM ml_tree(MODEL answers, 2) ORDER BY node").df()
    tree = FITTED["answers"].estimators_[2].tree_
    assert len(made) == tree.node_count
    root = made.iloc[0]
    assert (root.feature, root.operator, root.cover) == (FEATURES[tree.feature[0]], "<=", 300.0)
    assert root.threshold == pytest.approx(tree.threshold[0], rel=1e-6)
    leaves = made[made.feature.isna()]
    assert len(leaves) == tree.n_leaves
    assert sum(leaves.cover) == 300


@pytest.mark.version
def test_columns_with_the_values_of_other_rows(con: sqlml.Session) -> None:
    form = "ml_permutation_importance(MODEL {}, TABLE shop, label := '{}', repeats := 3{})"
    for name, label, scoring, own in (
        ("answers", "answer", "accuracy", "accuracy"),
        ("grades", "grade", "neg_log_loss", "log_loss"),
        ("prices", "price", "r2", "r2_score"),
    ):
        metric = f", metric := '{own}'"
        query = f"FROM {form.format(name, label, metric)}"
        made = con.sql(query).df().set_index("feature")
        want = permutation_importance(
            FITTED[name], X, ROWS[label], scoring=scoring, n_repeats=10, random_state=0
        )
        spread = 5 * (want.importances_std + 0.005)
        assert (np.abs(made.importance[FEATURES] - want.importances_mean) < spread).all()
        assert set(made.metric) == {own}
        assert made.importance.is_monotonic_decreasing
        again = con.sql(query).df().set_index("feature").importance
        np.testing.assert_allclose(again, made.importance, rtol=1e-12)
    other = con.sql(f"FROM {form.format('prices', 'price', ', seed := 9')}").df()
    assert not np.allclose(other.set_index("feature").importance[made.index], made.importance)


@pytest.mark.parametrize("metric", ["accuracy", "log_loss"])
def test_rows_without_a_prediction_are_not_measured(con: sqlml.Session, metric: str) -> None:
    rows = "SELECT if(i < 30, NULL, 1) AS a, 1 AS b, if(i > 80, NULL, 1) AS c, 'yes' AS answer"
    con.create_model("lenient", FITTED["bayes"], on_null="null", verify=False, or_replace=True)
    made = con.sql(
        f"FROM ml_permutation_importance(MODEL lenient, ({rows} FROM range(100) AS t(i)), "
        f"label := 'answer', metric := '{metric}')"
    ).fetchall()
    assert {feature for feature, *_ in made} == {"a", "b", "c"}
    for _, importance, deviation, _ in made:  # all rows that can be predicted are equal
        assert (importance, deviation) == pytest.approx((0, 0), abs=1e-12)


@pytest.mark.version
def test_what_a_model_says_were_a_column_something_else(con: sqlml.Session) -> None:
    made = con.sql("FROM ml_partial_dependence(MODEL prices, TABLE shop, 'a', points := 5)").df()
    assert len(made) == 5
    assert (made["value"].iloc[0], made["value"].iloc[-1]) == (ROWS.a.min(), ROWS.a.max())
    for row in made.itertuples():
        curve = FITTED["prices"].predict(X.assign(a=row.value))
        assert (row.mean, row.rows) == (pytest.approx(curve.mean(), rel=1e-6), 300)
        want = np.quantile(curve, [0.1, 0.5, 0.9])
        assert [row.low, row.median, row.high] == pytest.approx(want, rel=1e-6)
    sizes = [
        con.sql(f"FROM ml_partial_dependence(MODEL prices, (FROM shop LIMIT {n}), 'a')").fetchall()
        for n in (264, 294)
    ]
    assert [len(points) for points in sizes] == [20, 20]
    assert sizes[0][-1][0] == ROWS.a[:264].max()
    few = con.sql(
        "FROM ml_partial_dependence(MODEL plans, TABLE shop, 'plan', class := 'no')"
    ).fetchall()
    assert [row[0] for row in few] == ["basic", "pro"]
    proba = PLANS.predict_proba(ROWS[["plan", "a"]].assign(plan="pro"))[:, 0]
    assert few[1][1] == pytest.approx(proba.mean(), rel=1e-12)


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
            "do not go together",
        ),
        ("SELECT explain('pair', *, class := 'yes') FROM shop", "explain gives a MAP for each"),
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
    from sqlml.passes.drop_statistics import drop_statistics

    old = drop_statistics(sqlml.compile(FITTED["prices"]).program)
    con.create_model("old", old, verify=False)
    assert con.sql("SELECT predict('old', *) FROM shop").fetchall()
    with pytest.raises(errors.SqlmlError, match="lacks the number of training rows per tree node"):
        con.sql("SELECT explain('old', *) FROM shop")


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
