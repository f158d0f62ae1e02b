"""The table forms that explain a model or its rows, as `ml_explain_predict`."""

from __future__ import annotations

from collections.abc import Iterator

import lightgbm
import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.inspection import permutation_importance
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import sqlml
from tests.support.explained_models import (
    FEATURES,
    FITTED,
    PLANS,
    ROWS,
    X,
    contributions_of,
    explained_models,
)


@pytest.fixture(scope="module")
def con() -> Iterator[sqlml.Session]:
    with explained_models() as con:
        yield con


@pytest.mark.version
def test_the_rows_with_their_greatest_contributions(con: sqlml.Session) -> None:
    made = con.sql(
        "SELECT predicted_label, probability, top_feature_attributions AS top, "
        "baseline_prediction_value, prediction_value, approximation_error, id "
        "FROM ml_explain_predict(MODEL answers, TABLE shop, top_k_features := 2) ORDER BY id"
    ).df()
    forest, want = FITTED["answers"], contributions_of("answers", baseline=True)
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
    maps = contributions_of("grades")[:100]
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


def test_what_the_steps_of_an_imported_model_say_of_its_features() -> None:
    rng = np.random.default_rng(4)
    frame = pd.DataFrame(
        {
            "a": rng.normal(3, 2, 400),
            "b": rng.exponential(size=400),
            "c": rng.choice(["x", "y", "z"], 400),
            "d": rng.integers(0, 5, 400).astype(float),
        }
    )
    frame.loc[::7, "a"] = np.nan
    y = (frame.b + frame.d > 2).astype(int)
    scaled = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
    steps = make_column_transformer((scaled, ["b", "a"]), (OneHotEncoder(), ["c"]))
    model = make_pipeline(steps, LogisticRegression()).fit(frame, y)
    boosted = lightgbm.LGBMClassifier(n_estimators=3, verbose=-1).fit(frame[["d", "a"]], y)
    with sqlml.connect() as con:
        con.create_model("m", model, verify=False)
        con.create_model("boosted", boosted, verify=False)
        form = "SELECT * FROM ml_feature_info(MODEL {}) ORDER BY input"
        a, b, c = con.sql(form.format("m")).to_arrow_table().to_pylist()
        scaler = steps.named_transformers_["pipeline"][1]
        for told, k in ((b, 0), (a, 1)):
            assert told["type"] == "DOUBLE" and told["category_count"] is None
            assert told["mean"] == pytest.approx(scaler.mean_[k], rel=1e-12)
            assert told["stddev"] == pytest.approx(scaler.scale_[k], rel=1e-12)
        assert (c["type"], c["category_count"], c["mean"]) == ("VARCHAR", 3, None)
        a, d = con.sql(form.format("boosted")).to_arrow_table().to_pylist()
        assert (a["min"], a["max"]) == (frame.a.min(), frame.a.max())
        assert (d["min"], d["max"], d["mean"]) == (0, 4, None)
