"""Estimators of several targets: what the shared suite cannot show."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.compose import make_column_transformer
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import RandomForestClassifier, VotingClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge, RidgeClassifier
from sklearn.multioutput import (
    ClassifierChain,
    MultiOutputClassifier,
    MultiOutputRegressor,
    RegressorChain,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from sqlml.errors import MissingValueError, UnsupportedModelError
from sqlml.importers.frame import Outputs
from sqlml.importers.registry import import_model
from sqlml.ir.builder import Builder
from sqlml.types import Array, Labels
from tests.support.oracles import classes, mixed_frame
from tests.support.sklearn_checks import assert_both_raise, assert_same, scored


@pytest.fixture(scope="module")
def x() -> Array:
    return np.random.default_rng(2).normal(size=(150, 4))


@pytest.fixture(scope="module")
def codes(x: Array) -> Array:
    """Class numbers of three targets with 3, 2 and 1 classes."""
    first = np.digitize(x[:, 0] + x[:, 1], [-1, 1])
    return np.stack([first, (x[:, 2] > 0).astype(int), np.zeros(len(x), int)], axis=1)


@pytest.mark.parametrize("kind", ["string", "int64", "bool", "float64"])
def test_each_target_has_its_own_classes(x: Array, codes: Array, kind: Any) -> None:
    for model in (DecisionTreeClassifier(max_depth=4), RandomForestClassifier(4, max_depth=4)):
        imported = assert_same(model.fit(x, classes(kind, codes)), x, exact=True)
        sets = imported.program.labels
        assert [labels.kind for labels in sets] == [kind] * 3
        assert [len(labels) for labels in sets] == [len(c) for c in model.classes_]
        assert not imported.program.has_one_probability_per_target


def test_equal_votes_go_to_the_first_class_of_each_target() -> None:
    x = np.zeros((4, 1))
    y = np.array([[1, 5], [2, 4], [1, 4], [2, 5]])
    imported = assert_same(DecisionTreeClassifier().fit(x, y), x)
    assert scored(imported, x)["label"].tolist() == [[0, 0]] * 4


def test_members_may_be_pipelines_over_strings() -> None:
    table = mixed_frame(200, 1, nulls=0.0)[["age", "city"]]
    steps = make_column_transformer((StandardScaler(), ["age"]), (OneHotEncoder(), ["city"]))
    flags = np.stack([table.age > 40, table.city == "Oslo"], axis=1).astype(int)
    assert_same(
        MultiOutputClassifier(make_pipeline(steps, LogisticRegression())).fit(table, flags), table
    )
    assert_same(MultiOutputRegressor(make_pipeline(steps, Ridge())).fit(table, flags * 1.0), table)


def test_a_chain_hands_on_answers_in_its_own_order(x: Array) -> None:
    """The last column of each member reads the one before; only that order gives these numbers."""
    y = np.stack([x[:, 0], x[:, 0] * 2 + 1, x[:, 1]], axis=1)
    for order in ([0, 1, 2], [2, 1, 0], (1, 2, 0), "random"):
        assert_same(RegressorChain(DecisionTreeRegressor(max_depth=3), order=order).fit(x, y), x)


def test_a_chain_of_one_target_is_a_plain_model(x: Array) -> None:
    chain = ClassifierChain(LogisticRegression()).fit(x, (x[:, :1] > 0).astype(int))
    program = import_model(chain).program
    assert program.target_count == 1
    got = scored(import_model(chain), x)
    np.testing.assert_array_equal(got["label"], chain.predict(x))
    np.testing.assert_allclose(got["proba"][:, 1:], chain.predict_proba(x), rtol=1e-12)


def test_a_regressor_around_classifiers_predicts_their_numbers(x: Array, codes: Array) -> None:
    for model in (MultiOutputRegressor(LogisticRegression()), RegressorChain(LogisticRegression())):
        assert_same(model.fit(x, codes[:, :2] * 2.0 - 1), x)


def test_a_chain_of_more_than_two_classes_has_labels_alone(x: Array, codes: Array) -> None:
    model = ClassifierChain(DecisionTreeClassifier(max_depth=3), order=[1, 0]).fit(x, codes[:, :2])
    imported = import_model(model)
    assert set(imported.program.outputs) == {"label"}
    assert [len(labels) for labels in imported.program.labels] == [3, 2]
    np.testing.assert_array_equal(scored(imported, x)["label"], model.predict(x))


def test_a_chain_of_scores_of_three_classes_is_refused(x: Array, codes: Array) -> None:
    model = ClassifierChain(DecisionTreeClassifier(max_depth=2), chain_method="predict_proba")
    with pytest.raises(ValueError):
        model.fit(x, codes[:, :2]).predict(x)
    with pytest.raises(UnsupportedModelError, match="use chain_method='predict'"):
        import_model(model)


def test_a_chain_refuses_what_scikit_learn_refuses(x: Array) -> None:
    """The chain checks all columns itself, before its trees, which would take NaN."""
    bad = x[:3].copy()
    bad[1, 2] = np.nan
    chain = RegressorChain(DecisionTreeRegressor(max_depth=2)).fit(x, x[:, :2])
    assert_both_raise(chain, bad, MissingValueError, "RegressorChain")
    separate = MultiOutputRegressor(DecisionTreeRegressor(max_depth=2)).fit(x, x[:, :2])
    assert_same(separate, bad)


def test_members_without_probabilities_offer_none(x: Array, codes: Array) -> None:
    imported = assert_same(MultiOutputClassifier(RidgeClassifier()).fit(x, codes[:, :2]), x)
    assert set(imported.program.outputs) == {"label"}


def test_random_dummies_are_refused(x: Array, codes: Array) -> None:
    for strategy in ("uniform", "stratified"):
        model = DummyClassifier(strategy=strategy).fit(x, codes)
        with pytest.raises(UnsupportedModelError, match="predicts at random"):
            import_model(model)
    constant = DummyClassifier(strategy="constant", constant=[2, 0, 0]).fit(x, codes)
    assert_same(constant, x)


def test_a_member_that_is_no_predictor_is_named(x: Array) -> None:
    model = MultiOutputRegressor(LinearRegression()).fit(x, x[:, :2])
    model.estimators_[1] = StandardScaler().fit(x)
    with pytest.raises(UnsupportedModelError, match=r"estimators_\[1\] of MultiOutputRegressor"):
        import_model(model)


def test_who_wants_one_target_refuses_several(x: Array, codes: Array) -> None:
    inner = MultiOutputClassifier(LogisticRegression()).fit(x, codes[:, :2])
    outer = VotingClassifier([("a", LogisticRegression())]).fit(x, codes[:, 1])
    outer.estimators_ = [inner]
    with pytest.raises(UnsupportedModelError, match="several targets"):
        import_model(outer)
    builder = Builder()
    value = builder.op("cast", builder.input("x", "float64", 2), dtype="int64")
    made = Outputs({"label": value}, (Labels("bool", (False, True)),) * 2)
    with pytest.raises(UnsupportedModelError, match="2 targets at once"):
        assert made.labels is None
    assert Outputs({"label": value}).labels is None
    assert Outputs({"label": value}, made.label_sets[0]).labels == made.label_sets[0]
