"""Isolation forests, bagging, AdaBoost and leaf embeddings: ties, bits and refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import (
    AdaBoostClassifier,
    AdaBoostRegressor,
    BaggingClassifier,
    BaggingRegressor,
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    IsolationForest,
    RandomTreesEmbedding,
)
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from sqlml.errors import MissingValueError, ProgramError, UnsupportedModelError
from sqlml.importers.registry import Imported, import_model
from sqlml.ir import reference
from sqlml.ir.builder import Builder
from tests.support.oracles import ensembles, special_rows, threshold_rows
from tests.support.sklearn_checks import assert_both_raise, assert_same, scored

RNG = np.random.default_rng(0)
X = np.round(RNG.normal(size=(200, 4)), 1)
Y3 = np.digitize(X[:, 0] - X[:, 1], [-0.5, 0.5])
R = X[:, 0] * 2 + X[:, 2] + RNG.normal(size=200) / 5


def ops(imported: Imported) -> list[str]:
    return [node.op for node in imported.program]


@pytest.mark.parametrize("contamination", ["auto", 0.05, 0.3])
def test_isolation_forest_labels_are_exact_at_the_offset(contamination: Any) -> None:
    rows = X[:101]  # so that the quantile is the score of one row
    model = IsolationForest(n_estimators=15, contamination=contamination, random_state=1).fit(rows)
    imported = assert_same(model, X)
    edge = model.score_samples(X) == model.offset_
    assert contamination == "auto" or edge.any()  # the rows that define the offset are inliers
    assert (model.predict(X)[edge] == 1).all()
    ours = scored(imported, X)
    np.testing.assert_allclose(ours["samples"][:, 0], model.score_samples(X), rtol=1e-14)
    assert ours["label"].tolist() == [[1 if p == 1 else 0] for p in model.predict(X)]


def test_isolation_forest_takes_nan_infinity_and_thresholds() -> None:
    model = IsolationForest(n_estimators=8, max_features=2, random_state=0).fit(X)
    imported = import_model(model)
    rows = np.concatenate([special_rows(4), threshold_rows(ensembles(imported.program)[0], X, 500)])
    assert_same(model, rows)


def test_isolation_forest_of_one_row_a_tree_gives_every_row_the_same_score() -> None:
    model = IsolationForest(n_estimators=3, max_samples=1, random_state=0).fit(X)
    imported = assert_same(model, X)
    assert np.unique(scored(imported, X)["samples"]).tolist() == [-0.5]


@pytest.mark.parametrize("offset", [-2.0, -1.0, -0.0, 0.5])
def test_isolation_forest_with_an_offset_that_nobody_or_everybody_passes(offset: float) -> None:
    model = IsolationForest(n_estimators=3, random_state=0).fit(X)
    model.offset_ = offset
    assert_same(model, X)


def test_bagged_trees_are_one_ensemble_and_equal_bit_for_bit() -> None:
    model = BaggingClassifier(max_features=2, bootstrap_features=True, random_state=0).fit(X, Y3)
    imported = assert_same(model, X, exact=True)
    assert ops(imported).count("tree_ensemble") == 1
    np.testing.assert_array_equal(scored(imported, X)["proba"], model.predict_proba(X))


def test_members_that_miss_a_class_are_put_at_their_places() -> None:
    model = BaggingClassifier(LinearDiscriminantAnalysis(), 12, max_samples=5, random_state=3)
    model.fit(X, Y3)
    assert {len(member.classes_) for member in model.estimators_} == {2, 3}
    made = scored(import_model(model), X)
    np.testing.assert_allclose(made["proba"], model.predict_proba(X), rtol=1e-9, atol=1e-15)
    np.testing.assert_array_equal(made["label"][:, 0], model.predict(X))
    assert "score" not in made  # the source's own decision_function fails on members unlike
    with pytest.raises(ValueError):
        model.decision_function(X)


def test_bagging_of_several_targets() -> None:
    model = BaggingRegressor(Ridge(), 3, random_state=0).fit(X, np.stack([R, R**2], axis=1))
    assert_same(model, X)


def test_bagging_names_the_member_that_cannot_be_imported() -> None:
    class Mine(LogisticRegression):
        def predict(self, X: Any) -> Any:
            return super().predict(X)

    model = BaggingClassifier(Mine(), 2).fit(X, Y3)
    with pytest.raises(UnsupportedModelError, match=r"estimators_\[0\] of BaggingClassifier.*Mine"):
        import_model(model)


def test_bagging_with_another_number_of_members_than_fitted_is_refused() -> None:
    model = BaggingRegressor(n_estimators=3).fit(X, R).set_params(n_estimators=5)
    with pytest.raises(UnsupportedModelError, match="3 fitted members and n_estimators=5"):
        import_model(model)


@pytest.mark.parametrize("depth", [1, 3])
def test_adaboost_of_trees_is_one_ensemble_and_equal_bit_for_bit(depth: int) -> None:
    tree = DecisionTreeClassifier(max_depth=depth)
    model = AdaBoostClassifier(tree, n_estimators=10, random_state=0).fit(X, Y3)
    imported = assert_same(model, X, exact=True)
    assert ops(imported).count("tree_ensemble") == 1
    rows = threshold_rows(ensembles(imported.program)[0], X, 500)
    np.testing.assert_array_equal(scored(imported, rows)["score"], model.decision_function(rows))


def test_adaboost_takes_no_nan_although_its_trees_do() -> None:
    rows = X.copy()
    rows[0, 0] = np.nan
    model = AdaBoostClassifier(n_estimators=3).fit(X, Y3)
    assert_both_raise(model, rows, MissingValueError, "AdaBoostClassifier does not take")
    regressor = AdaBoostRegressor(n_estimators=3).fit(X, R)
    assert_both_raise(regressor, rows, MissingValueError, "AdaBoostRegressor does not take")


def test_adaboost_of_one_class_is_refused() -> None:
    model = AdaBoostClassifier(n_estimators=2).fit(X, np.zeros(200))
    with pytest.raises(UnsupportedModelError, match="single class"):
        import_model(model)


@pytest.mark.parametrize(
    "weights", [[1, 1, 1, 1], [1, 1, 2, 0], [0.1, 0.2, 0.3, 0.6], [5, 1, 1, 1], [0, 0, 0, 1]]
)
def test_the_weighted_median_is_reached_from_below(weights: list[float]) -> None:
    model = AdaBoostRegressor(DecisionTreeRegressor(max_depth=2), n_estimators=4, random_state=0)
    model.fit(X, R)
    model.estimator_weights_ = np.array(weights, float)
    assert_same(model, X, exact=True)


def test_weighted_median_puts_nan_last() -> None:
    b = Builder()
    x = b.input("x", "float64", 3)
    program = b.build({"label": b.op("weighted_median", x, weights=np.ones(3))})
    rows = np.array([[3, 1, 2], [np.nan, 1, 5], [np.nan, np.nan, 4], [7, 7, 7]], float)
    made = reference.run(program, {"x": rows})["label"][:, 0]
    np.testing.assert_array_equal(made, [2, 5, np.nan, 7])


@pytest.mark.parametrize("weights", [np.ones(2), np.ones(3, np.float32), np.ones((3, 1))])
def test_weighted_median_wants_one_float64_weight_a_column(weights: Any) -> None:
    b = Builder()
    x = b.input("x", "float64", 3)
    with pytest.raises(ProgramError, match=r"weights must be float64\[3\], not float\d+\[.*\]"):
        b.op("weighted_median", x, weights=weights)


def test_leaf_columns_stand_in_the_order_of_the_source() -> None:
    model = RandomTreesEmbedding(n_estimators=4, max_leaf_nodes=7, max_depth=None, random_state=0)
    imported = assert_same(model.fit(X), X, exact=True)
    made = scored(imported, X)["transform"]
    assert made.shape == (200, 28)
    assert set(np.unique(made)) == {0.0, 1.0}
    assert (made.sum(axis=1) == 4).all()


def test_a_leaf_that_the_source_has_not_seen_is_refused() -> None:
    model = RandomTreesEmbedding(n_estimators=2, max_depth=2, random_state=0).fit(X)
    model.one_hot_encoder_.categories_[1] = model.one_hot_encoder_.categories_[1][1:]
    with pytest.raises(UnsupportedModelError, match="a leaf that no training row fell into"):
        import_model(model)


def test_boosting_from_a_forest_adds_tree_by_tree() -> None:
    init = ExtraTreesClassifier(5, random_state=0)
    model = GradientBoostingClassifier(n_estimators=6, init=init, random_state=0).fit(X, Y3)
    imported = assert_same(model, X)
    np.testing.assert_array_equal(scored(imported, X)["score"], model.decision_function(X))
