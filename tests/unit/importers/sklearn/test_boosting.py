"""GradientBoosting and HistGradientBoosting: raw scores bit for bit, every loss and start."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.decomposition import PCA
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.ensemble import (
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVR
from sklearn.tree import DecisionTreeClassifier
from threadpoolctl import threadpool_limits

from sqlml.errors import MissingValueError, UnsupportedModelError
from sqlml.importers.registry import import_model
from tests.support.oracles import classes, ensembles, mixed_frame, special_rows, threshold_rows
from tests.support.sklearn_checks import assert_both_raise, assert_same, scored


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Idle OpenMP threads spin, which on a busy machine costs more than these small fits."""
    with threadpool_limits(1):
        yield


def data(nan: bool = False, rows: int = 160) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(2)
    x = np.column_stack(
        [
            rng.normal(size=rows),
            rng.integers(0, 40, rows) / 10,
            rng.integers(-3, 3, rows),
            np.full(rows, 0.1),
        ]
    )
    if nan:
        x[rng.random(x.shape) < 0.15] = np.nan
    return x


def labels(x: np.ndarray[Any, Any], count: int) -> np.ndarray[Any, Any]:
    raw = np.nan_to_num(x)[:, 0] + np.nan_to_num(x)[:, 1] / 2 + np.isnan(x[:, 2])
    return classes("string", np.clip((raw - raw.min()).astype(int), 0, count - 1))


def target(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.asarray(np.exp(np.nan_to_num(x)[:, 0] / 2) + np.nan_to_num(x)[:, 1])


def gb_thresholds(model: Any) -> dict[int, np.ndarray[Any, Any]]:
    trees = [t.tree_ for t in model.estimators_.ravel()]
    feature = np.concatenate([t.feature for t in trees])
    values = np.concatenate([t.threshold for t in trees])
    return {int(f): values[feature == f] for f in np.unique(feature) if f >= 0}


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("loss", ["log_loss", "exponential"])
@pytest.mark.parametrize(
    "init",
    [None, "zero", DummyClassifier(strategy="uniform"), DummyClassifier(strategy="most_frequent")],
    ids=str,
)
def test_gb_classifier_scores_bit_for_bit(count: int, loss: str, init: Any) -> None:
    if loss == "exponential" and count > 2:
        count = 2
    x = data()
    model = GradientBoostingClassifier(
        n_estimators=12, loss=loss, init=init, random_state=0, learning_rate=0.3
    ).fit(x, labels(x, count))
    assert_same(model, x, exact=True)
    assert_same(model, threshold_rows(gb_thresholds(model), x, limit=800), exact=True)
    assert_same(model, x[:1], exact=True)
    assert_both_raise(model, np.full((1, 4), np.nan), MissingValueError, "NULL or NaN")
    assert_both_raise(model, np.full((1, 4), 1e39), MissingValueError, "too large")


@pytest.mark.parametrize("loss", ["squared_error", "absolute_error", "huber", "quantile"])
@pytest.mark.parametrize("init", [None, "zero", DummyRegressor(strategy="median")], ids=str)
def test_gb_regressor_predicts_bit_for_bit(loss: str, init: Any) -> None:
    x = data()
    model = GradientBoostingRegressor(
        n_estimators=12, loss=loss, init=init, random_state=0, subsample=0.7
    ).fit(x, target(x))
    imported = assert_same(model, x, exact=True)
    assert_same(model, threshold_rows(gb_thresholds(model), x, limit=800), exact=True)
    assert scored(imported, x[:0])["label"].shape == (0, 1)


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize(
    "init",
    [
        RandomForestClassifier(3, max_depth=2, random_state=0),
        DecisionTreeClassifier(max_depth=3),
        HistGradientBoostingClassifier(max_iter=3, min_samples_leaf=5),
    ],
    ids=str,
)
def test_gb_starts_from_another_classifier(count: int, init: Any) -> None:
    x = data()
    for loss in ("log_loss", "exponential")[: 2 if count == 2 else 1]:
        model = GradientBoostingClassifier(
            n_estimators=5, init=init, loss=loss, random_state=0
        ).fit(x, labels(x, count))
        assert_same(model, x)


@pytest.mark.parametrize(
    "init", [LinearSVR(max_iter=20_000), RandomForestRegressor(3, random_state=0)], ids=str
)
def test_gb_starts_from_another_regressor(init: Any) -> None:
    x = data()
    assert_same(GradientBoostingRegressor(n_estimators=5, init=init).fit(x, target(x)), x)


@pytest.mark.parametrize(
    "init", [LogisticRegression(), make_pipeline(StandardScaler(), LogisticRegression())], ids=str
)
def test_gb_init_that_computes_in_float32_is_refused(init: Any) -> None:
    x = data()
    model = GradientBoostingClassifier(n_estimators=2, init=init).fit(x, labels(x, 2))
    with pytest.raises(UnsupportedModelError, match="init of GradientBoosting.*float32"):
        import_model(model)


def test_gb_init_of_the_wrong_kind_is_named() -> None:
    x = data()
    model = GradientBoostingRegressor(n_estimators=2).fit(x, target(x))
    model.init_ = DecisionTreeClassifier().fit(x, x[:, 0] > 0)
    with pytest.raises(UnsupportedModelError, match="init of GradientBoostingRegressor"):
        import_model(model)
    model.init_ = PCA(1).fit(x)
    with pytest.raises(UnsupportedModelError, match="init of GradientBoostingRegressor.*PCA"):
        import_model(model)


def test_gb_early_stopping_and_ties_at_zero() -> None:
    x = data()
    model = GradientBoostingClassifier(n_estimators=50, n_iter_no_change=2, random_state=0).fit(
        x, labels(x, 2)
    )
    assert_same(model, x, exact=True)
    flat = GradientBoostingClassifier(n_estimators=1, init="zero", max_depth=1)
    flat.fit(np.zeros((4, 1)), ["a", "b", "a", "b"])  # score 0 is the second class here
    assert_same(flat, np.zeros((2, 1)), exact=True)


@pytest.mark.parametrize("nan", [False, True], ids=["full", "with NaN"])
@pytest.mark.parametrize("count", [2, 4])
def test_hgb_classifier_scores_bit_for_bit(nan: bool, count: int) -> None:
    x = data(nan)
    model = HistGradientBoostingClassifier(max_iter=10, min_samples_leaf=3).fit(x, labels(x, count))
    imported = assert_same(model, x, exact=True)
    (trees,) = ensembles(imported.program)
    assert_same(model, threshold_rows(trees, data(True), limit=1000), exact=True)
    assert_same(model, special_rows(4), exact=True)  # infinity and NaN are ordinary here


@pytest.mark.parametrize(
    "loss", ["squared_error", "absolute_error", "quantile", "poisson", "gamma"]
)
@pytest.mark.parametrize("nan", [False, True], ids=["full", "with NaN"])
def test_hgb_regressor_for_every_loss(loss: str, nan: bool) -> None:
    x = data(nan)
    quantile = 0.3 if loss == "quantile" else None
    model = HistGradientBoostingRegressor(
        loss=loss, quantile=quantile, max_iter=10, min_samples_leaf=3
    ).fit(x, target(x))
    bits = loss not in ("poisson", "gamma")
    imported = assert_same(model, x, exact=bits)
    (trees,) = ensembles(imported.program)
    assert_same(model, threshold_rows(trees, data(True), limit=1000), exact=bits)
    assert_same(model, special_rows(4), exact=bits)


def test_hgb_missing_splits_have_an_infinite_threshold() -> None:
    x = np.array([[np.nan]] * 30 + [[1.0]] * 30)
    model = HistGradientBoostingRegressor(max_iter=3, min_samples_leaf=2).fit(
        x, np.repeat([0.0, 1.0], 30)
    )
    assert np.isinf(model._predictors[0][0].nodes["num_threshold"]).any()
    assert_same(model, np.array([[np.nan], [1.0], [np.inf], [-np.inf]]), exact=True)


def categorical_table(strings: str, seed: int = 0) -> pd.DataFrame:
    frame = mixed_frame(200, seed, strings=strings)
    return frame[["age", "city", "income", "plan", "active", "zip", "visits"]]


@pytest.mark.parametrize("strings", ["str", "object"])
@pytest.mark.parametrize("count", [2, 3])
def test_hgb_categories_of_strings_numbers_and_booleans(strings: str, count: int) -> None:
    frame = categorical_table(strings)
    codes = (frame["visits"] + 7 * (frame["plan"] == "pro") + frame["city"].isna()) % count
    for how in (
        ["city", "plan", "active", "zip", "visits"],
        [False, True, False, True, True, True, True],
        [1, 3],
    ):
        used = frame if how != [1, 3] else frame.drop(columns=["active"])
        model = HistGradientBoostingClassifier(
            max_iter=8, min_samples_leaf=2, categorical_features=how
        ).fit(used, classes("int64", codes.to_numpy()))
        imported = assert_same(model, used, exact=True)
        assert any(t.has_categories for t in ensembles(imported.program))
        unknown = categorical_table(strings, seed=9)[used.columns].copy()
        unknown.loc[:20, "city"] = "Atlantis"
        unknown.loc[10:30, "zip"] = -1
        unknown.loc[15:40, "visits"] = 10**6
        assert_same(model, unknown, exact=True)


def test_hgb_categories_from_the_dtype_of_a_frame() -> None:
    frame = categorical_table("str").astype(
        {"city": "category", "plan": "category", "zip": "category"}
    )
    model = HistGradientBoostingRegressor(
        max_iter=8, min_samples_leaf=2, categorical_features="from_dtype"
    ).fit(frame, frame["visits"] + 3.0 * (frame["plan"] == "pro") + frame["city"].isna())
    imported = assert_same(model, frame, exact=True)
    kinds = {f.name: f.kind for f in imported.features}
    assert kinds["city"] == "string" and kinds["zip"] == "number"


def test_hgb_on_categorical_columns_alone_with_many_categories() -> None:
    rng = np.random.default_rng(0)
    codes = rng.permutation(np.arange(1000) % 250)
    frame = pd.DataFrame({"c": [f"k{c}" for c in codes]}, dtype="str")
    model = HistGradientBoostingRegressor(
        max_iter=4, min_samples_leaf=1, categorical_features=["c"]
    ).fit(frame, (codes * 7) % 13 + 0.5)
    assert_same(model, frame, exact=True)


def test_hgb_with_fitted_stop_and_interaction_constraints() -> None:
    x = data(True)
    model = HistGradientBoostingRegressor(
        max_iter=30,
        early_stopping=True,
        n_iter_no_change=2,
        random_state=0,
        interaction_cst="no_interactions",
        monotonic_cst=[1, 0, 0, 0],
        max_features=0.8,
    ).fit(x, target(x))
    assert_same(model, x, exact=True)


@pytest.mark.parametrize("strategy", ["prior", "most_frequent", "constant"])
def test_dummies_alone(strategy: str) -> None:
    x = data(True)
    constant = "no" if strategy == "constant" else None
    model = DummyClassifier(strategy=strategy, constant=constant).fit(x, labels(x, 3))
    assert_same(model, x, exact=True)
    assert_same(DummyRegressor(strategy="median").fit(x, target(x)), x, exact=True)


@pytest.mark.parametrize("strategy", ["stratified", "uniform"])
def test_dummies_that_draw_at_random_are_refused(strategy: str) -> None:
    model = DummyClassifier(strategy=strategy).fit(data(), labels(data(), 2))
    with pytest.raises(UnsupportedModelError, match="random.*prior"):
        import_model(model)
