"""XGBoost's estimators and Booster: the reference interpreter gives their own numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from scipy.sparse import issparse
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import StackingRegressor
from sklearn.linear_model import Ridge
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from sqlml.errors import MissingValueError, UnsupportedModelError
from sqlml.importers.registry import import_model
from sqlml.ir import reference
from tests.support import oracles
from tests.support.sklearn_checks import count_calls
from tests.support.xgboost_checks import (
    ROWS,
    WIDTH,
    assert_same,
    classes,
    quiet,
    rows,
)


@pytest.fixture(autouse=True)
def one_thread() -> Any:
    with quiet():
        yield


@pytest.fixture(scope="module")
def x() -> Any:
    return rows()


@pytest.fixture(scope="module")
def y(x: Any) -> Any:
    return classes(x)


BOOSTERS = {
    "gbtree": {},
    "dart": {"booster": "dart", "rate_drop": 0.4},
    "gblinear": {"booster": "gblinear"},
    "forest": {"num_parallel_tree": 3, "subsample": 0.6},
    "base_score": {"base_score": 0.2},
    "no rounds": {"n_estimators": 0},
    "deep": {"max_depth": 12, "min_child_weight": 0},
}


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("params", BOOSTERS.values(), ids=BOOSTERS)
def test_classifier_and_its_booster_equal_xgboost(
    x: Any, y: Any, params: Any, classes: int
) -> None:
    model = xgb.XGBClassifier(**{"n_estimators": 8, "max_depth": 4, **params})
    model.fit(x, np.minimum(y, classes - 1))
    assert_same(model, x)
    assert_same(model.get_booster(), x)


@pytest.mark.parametrize("params", BOOSTERS.values(), ids=BOOSTERS)
def test_regressor_and_its_booster_equal_xgboost(x: Any, y: Any, params: Any) -> None:
    model = xgb.XGBRegressor(**{"n_estimators": 8, "max_depth": 4, **params})
    model.fit(x, y + np.nan_to_num(x[:, 0]))
    assert_same(model, x)
    assert_same(model.get_booster(), x)


OBJECTIVES = [
    "reg:squarederror", "reg:squaredlogerror", "reg:logistic", "reg:pseudohubererror",
    "reg:absoluteerror", "reg:quantileerror", "reg:gamma", "reg:tweedie", "count:poisson",
    "survival:cox", "binary:logistic", "binary:logitraw", "binary:hinge",
]  # fmt: skip


@pytest.mark.parametrize("base", [None, 0.37])
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_every_objective_has_its_link_and_its_output(
    x: Any, y: Any, objective: str, base: float | None
) -> None:
    target = np.minimum(y, 1) if objective.startswith("binary") else y * 0.3 + 0.2
    alpha = {"quantile_alpha": 0.3} if "quantile" in objective else {}
    model = xgb.XGBRegressor(objective=objective, n_estimators=3, base_score=base, **alpha)
    assert_same(model.fit(x, target), x)
    assert_same(model.get_booster(), x)


def test_survival_aft_predicts_times(x: Any, y: Any) -> None:
    data = xgb.DMatrix(x, label_lower_bound=y + 1.0, label_upper_bound=y + 2.0)
    assert_same(xgb.train({"objective": "survival:aft", "base_score": 0.4}, data, 4), x)


@pytest.mark.parametrize("objective", ["rank:pairwise", "rank:ndcg", "rank:map"])
def test_ranker_scores_rows(x: Any, y: Any, objective: str) -> None:
    model = xgb.XGBRanker(objective=objective, n_estimators=4)
    assert_same(model.fit(x, np.minimum(y, 1), qid=np.repeat(np.arange(12), 100)), x)


@pytest.mark.parametrize("objective", ["binary:logitraw", "binary:hinge", "reg:logistic"])
def test_classifier_of_an_uncommon_objective_cuts_its_prediction_at_half(
    x: Any, y: Any, objective: str
) -> None:
    assert_same(xgb.XGBClassifier(objective=objective, n_estimators=4).fit(x, np.minimum(y, 1)), x)


def test_softmax_objective_returns_ids_and_has_probabilities(x: Any, y: Any) -> None:
    assert_same(xgb.XGBClassifier(objective="multi:softmax", n_estimators=4).fit(x, y), x)


def test_vector_leaves_give_all_classes_at_once(x: Any, y: Any) -> None:
    model = xgb.XGBClassifier(
        multi_strategy="multi_output_tree", n_estimators=5, base_score=0.25, max_depth=4
    )
    assert_same(model.fit(x, y), x)


@pytest.mark.parametrize("kind", [xgb.XGBRFClassifier, xgb.XGBRFRegressor])
def test_random_forests_are_boosters_of_one_round(x: Any, y: Any, kind: Any) -> None:
    assert_same(kind(n_estimators=7).fit(x, y), x)


@pytest.mark.parametrize("objective", ["binary:logistic", "count:poisson"])
def test_base_score_at_the_end_of_its_range_is_clipped_as_xgboost_clips(
    x: Any, objective: str
) -> None:
    model = xgb.XGBRegressor(objective=objective, n_estimators=2)
    assert_same(model.fit(x, np.zeros(ROWS)), x)


def test_classifier_of_one_class_always_predicts_it(x: Any) -> None:
    assert_same(xgb.XGBClassifier(n_estimators=2).fit(x, np.zeros(ROWS, int)), x)


def test_estimator_stops_at_its_best_iteration_and_booster_does_not(x: Any, y: Any) -> None:
    model = xgb.XGBClassifier(n_estimators=40, early_stopping_rounds=3, learning_rate=0.9)
    noise = np.random.default_rng(0).permutation(y[600:])
    model.fit(x[:600], y[:600], eval_set=[(x[600:], noise)], verbose=False)
    assert model.best_iteration + 1 < model.get_booster().num_boosted_rounds()
    assert_same(model, x)
    assert_same(model.get_booster(), x)


def test_forest_of_several_trees_a_round_stops_at_its_best_round(x: Any, y: Any) -> None:
    model = xgb.XGBRegressor(
        n_estimators=20, num_parallel_tree=2, subsample=0.5, early_stopping_rounds=2
    )
    noise = np.random.default_rng(0).permutation(y[600:])
    model.fit(x[:600], y[:600], eval_set=[(x[600:], noise)], verbose=False)
    assert model.best_iteration + 1 < model.get_booster().num_boosted_rounds()
    assert_same(model, x)


def test_label_changes_at_the_margin_where_xgboosts_float32_sigmoid_passes_half(x: Any) -> None:
    model = xgb.XGBRegressor(objective="binary:logistic", base_score=0.5, n_estimators=1)
    booster = model.fit(x, np.zeros(ROWS)).get_booster()
    edge = np.float32(1.5 * 2.0**-24)
    at = np.array([0, edge, np.nextafter(edge, np.float32(1))], np.float32)
    data = xgb.DMatrix(np.zeros((3, WIDTH)), base_margin=at)
    step = booster.predict(xgb.DMatrix(np.zeros((1, WIDTH))), output_margin=True)
    assert step != 0
    stump = xgb.train({"objective": "binary:logistic", "base_score": 0.5, "eta": 0}, data, 0)
    assert (stump.predict(data) > 0.5).tolist() == [False, False, True]
    from_us = import_model(booster).program
    (cut,) = [n.attrs["value"] for n in from_us if n.op == "constant" and n.attrs["value"] == edge]
    assert cut == edge


@pytest.mark.parametrize("missing", [-999.0, 0.0, 3.5])
def test_missing_value_goes_in_the_default_direction(x: Any, y: Any, missing: float) -> None:
    filled = np.where(np.isnan(x), missing, x)
    model = xgb.XGBRegressor(n_estimators=6, missing=missing).fit(filled, y)
    assert_same(model, filled)
    assert_same(model, x)


@pytest.mark.parametrize("dtype", ["float32", "int64", "int8", "bool"])
def test_columns_of_every_dtype_are_read_as_float32(x: Any, y: Any, dtype: str) -> None:
    whole = np.nan_to_num(x * 40).astype(dtype)
    model = xgb.XGBClassifier(n_estimators=5).fit(whole, y)
    got = reference.run((program := import_model(model).program), oracles.batch(program, whole))
    np.testing.assert_array_equal(got["score"], model.predict(whole, output_margin=True))


def test_float64_is_rounded_to_float32_before_it_is_compared(x: Any, y: Any) -> None:
    model = xgb.XGBRegressor(n_estimators=1, max_depth=1).fit(x[:, :1], x[:, 0] > 0.1)
    program = import_model(model).program
    (ensemble,) = oracles.ensembles(program)
    threshold = np.float64(ensemble.threshold[0])
    below = np.nextafter(threshold, -np.inf)  # rounds up to the threshold, so it goes right
    rows = np.array([[below], [threshold], [np.nextafter(np.float32(threshold), np.float32(-9))]])
    got = reference.run(program, {"f0": rows})["label"].ravel()
    np.testing.assert_array_equal(got, model.predict(rows))
    assert got[0] == got[1] != got[2]


def test_infinity_is_refused_by_a_booster_and_taken_by_an_estimator(x: Any, y: Any) -> None:
    model = xgb.XGBClassifier(n_estimators=3).fit(x, y)
    rows = x[:4].copy()
    rows[0, 0], rows[1, 1], rows[2, 2] = np.inf, -np.inf, 1e300
    program = import_model(model).program
    got = reference.run(program, oracles.batch(program, rows))
    np.testing.assert_array_equal(got["score"], model.predict(rows, output_margin=True))
    with pytest.raises(xgb.core.XGBoostError, match="inf"):
        xgb.DMatrix(rows)
    raw = import_model(model.get_booster()).program
    with pytest.raises(MissingValueError, match="infinity"):
        reference.run(raw, oracles.batch(raw, rows))


def test_zero_rows_and_one_row(x: Any, y: Any) -> None:
    model = xgb.XGBClassifier(n_estimators=3).fit(x, y)
    program = import_model(model).program
    assert reference.run(program, oracles.batch(program, x[:0]))["proba"].shape == (0, 3)
    one = reference.run(program, oracles.batch(program, x[:1]))
    np.testing.assert_array_equal(one["score"], model.predict(x[:1], output_margin=True))


def test_names_come_from_the_frame_and_none_from_a_matrix(x: Any, y: Any) -> None:
    columns = ["Age", "b c", "c", "d", "e"]
    named = xgb.XGBClassifier(n_estimators=2).fit(pd.DataFrame(x, columns=columns), y)
    assert [f.name for f in import_model(named).features] == columns
    bare = import_model(xgb.XGBClassifier(n_estimators=2).fit(x, y))
    assert not bare.is_named
    assert [f.name for f in bare.features] == ["f0", "f1", "f2", "f3", "f4"]


def test_unfitted_estimator_is_refused() -> None:
    with pytest.raises(UnsupportedModelError, match="not fitted"):
        import_model(xgb.XGBClassifier())


def test_a_regressor_of_classes_predicts_their_probabilities(x: Any, y: Any) -> None:
    model = xgb.XGBRegressor(objective="multi:softprob", num_class=3, n_estimators=2)
    assert_same(model.fit(x, y), x)
    model = xgb.XGBRegressor(objective="multi:softmax", num_class=3, n_estimators=2)
    with pytest.raises(UnsupportedModelError, match="use a classifier"):
        import_model(model.fit(x, y))


def test_a_callable_objective_predicts_margins(x: Any, y: Any) -> None:
    def squared(labels: Any, predictions: Any) -> Any:
        return predictions - labels, np.ones_like(labels)

    assert_same(xgb.XGBRegressor(objective=squared, n_estimators=3).fit(x, y), x)


def test_deep_trees_are_imported_by_arrays_and_not_by_nodes(x: Any, y: Any) -> None:
    noisy = y + np.random.default_rng(0).normal(size=ROWS)
    model = xgb.XGBRegressor(n_estimators=500, max_depth=8, max_bin=32, n_jobs=1).fit(x, noisy)
    imported = import_model(model)
    assert count_calls(lambda: import_model(model)) < 1_500 * 500
    got = reference.run(imported.program, oracles.batch(imported.program, x[:20]))
    assert math.isfinite(float(got["label"].sum()))
    np.testing.assert_array_equal(got["score"].ravel(), model.predict(x[:20], output_margin=True))


@pytest.mark.parametrize("booster", ["gbtree", "gblinear"])
@pytest.mark.parametrize("sparse", [True, False])
def test_zeros_of_a_sparse_matrix_are_missing_and_zeros_of_an_array_are_zero(
    sparse: bool, booster: str
) -> None:
    table = oracles.mixed_frame(800, seed=9)
    target = (table["visits"] > 8) ^ (table["city"] == "Bern")
    one_hot = OneHotEncoder(handle_unknown="ignore", sparse_output=sparse)
    transformer = ColumnTransformer(
        [("one_hot", one_hot, ["plan", "city"]), ("as_is", "passthrough", ["visits", "age"])],
        sparse_threshold=1.0 if sparse else 0.0,
    )
    union = FeatureUnion([("scaled", StandardScaler(with_mean=False)), ("plain", "passthrough")])
    parts = [("columns", transformer), ("union", union)]
    model = Pipeline([*parts, ("xgb", xgb.XGBClassifier(booster=booster, n_estimators=8))])
    model.fit(table, target)
    assert issparse(model[:-1].transform(table)) == sparse
    program = import_model(model).program
    got = reference.run(program, oracles.batch(program, table))
    margin = model[-1].predict(model[:-1].transform(table), output_margin=True)
    np.testing.assert_array_equal(got["score"].ravel(), margin)
    np.testing.assert_array_equal(got["label"].ravel(), model.predict(table))


@pytest.mark.parametrize("passthrough", [True, False])
def test_a_stack_passes_a_sparse_matrix_on_to_its_final_estimator(passthrough: bool) -> None:
    """The members' predictions of 0 are then missing as well."""
    table = oracles.mixed_frame(800, seed=9)[["plan", "city"]]
    target = np.random.default_rng(0).normal(size=800) + 4.0 * (table["city"] == "Bern")
    members = [("tree", xgb.XGBRegressor(max_depth=2, n_estimators=3)), ("line", Ridge())]
    final = xgb.XGBRegressor(max_depth=5, n_estimators=30)
    stack = StackingRegressor(members, final, cv=2, passthrough=passthrough)
    model = make_pipeline(OneHotEncoder(handle_unknown="ignore"), stack).fit(table, target)
    assert issparse(stack.transform(model[:-1].transform(table))) == passthrough
    program = import_model(model).program
    got = reference.run(program, oracles.batch(program, table))
    np.testing.assert_allclose(got["label"].ravel(), model.predict(table), rtol=1e-6)
