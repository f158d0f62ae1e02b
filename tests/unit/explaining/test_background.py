"""Contributions against background rows, compared with their definition and the shap package."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import shap
from sklearn.compose import make_column_transformer
from sklearn.ensemble import GradientBoostingClassifier, RandomForestRegressor
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LinearRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KernelDensity, KNeighborsRegressor
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, PolynomialFeatures, StandardScaler
from sklearn.svm import SVC

import sqlml
from sqlml.errors import ConfigError, UnsupportedModelError
from sqlml.explaining.explained import estimate_blocks
from sqlml.ir import reference
from sqlml.ir.builder import Builder
from tests.support.shapley import by_definition

FEATURES = ["a", "b", "c", "d"]


def _rows() -> pd.DataFrame:
    draw = np.random.default_rng(1)
    frame = pd.DataFrame(draw.normal(size=(200, 4)), columns=FEATURES)
    frame["plan"] = draw.choice(["basic", "plus", None], 200)
    frame["answer"] = frame.a * frame.b + frame.c > 0
    frame["grade"] = (frame.a * 2).clip(-1, 1).round().astype(int)
    frame["price"] = frame.a * frame.b + frame.c**2
    return frame


ROWS = _rows()
X = ROWS[FEATURES]
BACKGROUND, SOME = slice(100, 117), slice(0, 5)


def _by_definition(says: Any, rows: pd.DataFrame, background: pd.DataFrame) -> np.ndarray:
    """(n, columns): all subsets of columns, with each background row."""
    values = []
    for i in range(len(rows)):

        def worth(known: frozenset[int], i: int = i) -> np.ndarray:
            mixed = background.copy()
            for k in known:
                mixed[mixed.columns[k]] = rows.iloc[i, k]
            return np.asarray(says(mixed)).mean(axis=0)

        values.append(by_definition(worth, rows.shape[1]))
    return np.array(values)


@pytest.mark.parametrize(
    ("model", "method"),
    [
        (RandomForestRegressor(9, max_depth=4, random_state=0).fit(X, ROWS.price), "predict"),
        (
            GradientBoostingClassifier(n_estimators=9, random_state=0).fit(X, ROWS.answer),
            "decision_function",
        ),
        (LinearRegression().fit(X, ROWS.price), "predict"),
        (KNeighborsRegressor().fit(X, ROWS.price), "predict"),
        (SVC(gamma=0.5).fit(X, ROWS.answer), "decision_function"),
        (
            make_pipeline(PolynomialFeatures(), StandardScaler(), LinearRegression()).fit(
                X, ROWS.price
            ),
            "predict",
        ),
    ],
)
def test_few_columns_are_exact(model: Any, method: str) -> None:
    explanation = sqlml.compile(model).explain(X[SOME], background=X[BACKGROUND])
    want = _by_definition(getattr(model, method), X[SOME], X[BACKGROUND])
    np.testing.assert_allclose(explanation.values, want, atol=1e-10)
    mean = getattr(model, method)(X[BACKGROUND]).mean()
    np.testing.assert_allclose(explanation.baseline, mean, rtol=1e-9)


def test_the_shap_packages_interventional_values() -> None:
    model = RandomForestRegressor(9, max_depth=5, random_state=0).fit(X, ROWS.price)
    explainer = shap.TreeExplainer(model, X[BACKGROUND], feature_perturbation="interventional")
    want = explainer.shap_values(X[:40], check_additivity=False)
    explanation = sqlml.compile(model).explain(X[:40], background=X[BACKGROUND])
    assert np.abs(explanation.values - want).max() <= 1e-6 * np.abs(want).max()


def test_the_classes_of_any_model() -> None:
    model = GaussianNB().fit(X, ROWS.grade)
    scorer = sqlml.compile(model)
    for place, label in enumerate(model.classes_):
        explanation = scorer.explain(X[SOME], label=label, background=X[BACKGROUND])
        want = _by_definition(
            lambda rows, place=place: model.predict_proba(rows)[:, place], X[SOME], X[BACKGROUND]
        )
        np.testing.assert_allclose(explanation.values, want, atol=1e-10)
    prediction = scorer.explain(X[SOME], background=X[BACKGROUND])
    total = prediction.values.sum(axis=1) + prediction.baseline
    np.testing.assert_allclose(total, model.predict_proba(X[SOME]).max(axis=1), rtol=1e-9)


def test_many_columns_are_estimated_and_still_add_up() -> None:
    draw = np.random.default_rng(5)
    wide = pd.DataFrame(draw.normal(size=(300, 12)), columns=[f"x{i}" for i in range(12)])
    answer = wide.x0 * wide.x1 + wide.x2 > 0
    forest = GradientBoostingClassifier(n_estimators=20, random_state=0).fit(wide, answer)
    net = MLPClassifier((8,), max_iter=60, random_state=0).fit(wide, answer)
    background = wide[100:150]
    explanation = sqlml.compile(net).explain(wide[:6], background=background)
    total = explanation.values.sum(axis=1) + explanation.baseline
    np.testing.assert_allclose(total, net.predict_proba(wide[:6])[:, 1], rtol=1e-6)
    assert explanation.errors is not None
    assert ((explanation.errors > 0) & (explanation.errors < 0.1)).all()
    again = sqlml.compile(net).explain(wide[2:3], background=background)
    np.testing.assert_allclose(again.values[0], explanation.values[2], rtol=1e-9, atol=1e-12)
    program = sqlml.compile(forest).program
    inputs = {name: background[name].to_numpy() for name in program.inputs}
    b = Builder(program.nodes)
    blocks = estimate_blocks(program, b, inputs)
    assert blocks is not None
    rows = {name: wide[name][:6].to_numpy() for name in program.inputs}
    values, base, errors = np.split(reference.run(b.build({"y": blocks}), rows)["y"], [12, 13], 1)
    exact = sqlml.compile(forest).explain(wide[:6], background=background)
    assert exact.errors is None
    missed = np.abs(values - exact.values)
    assert missed.max() < 0.1
    assert (missed <= 2 * errors + 1e-3).mean() > 0.9
    np.testing.assert_allclose(base[:, 0], exact.baseline, rtol=1e-9)


def test_errors_are_of_the_orders_alone() -> None:
    wide = pd.DataFrame(np.random.default_rng(0).normal(size=(60, 12))).rename(columns=str)
    program = sqlml.compile(LinearRegression().fit(wide, wide.sum(axis=1))).program
    inputs = {name: wide[name][:20].to_numpy() for name in program.inputs}
    b = Builder(program.nodes)
    blocks = estimate_blocks(program, b, inputs)
    assert blocks is not None
    rows = {name: wide[name][:4].to_numpy() for name in program.inputs}
    explanation = reference.run(b.build({"y": blocks}), rows)["y"]
    assert np.abs(explanation[:, 13:]).max() < 1e-9  # of a sum each order says the same


def test_a_density() -> None:
    model = KernelDensity().fit(X)
    explanation = sqlml.compile(model).explain(X[SOME], background=X[BACKGROUND])
    want = _by_definition(model.score_samples, X[SOME], X[BACKGROUND])
    np.testing.assert_allclose(explanation.values, want, atol=1e-9)


def test_scores_of_pairs_of_classes_are_no_classes() -> None:
    model = SVC(decision_function_shape="ovo").fit(X, ROWS.grade)
    with pytest.raises(UnsupportedModelError, match="match the model's scores to its classes"):
        sqlml.compile(model).explain(X[SOME], background=X[BACKGROUND])


def test_texts_categories_and_null() -> None:
    rows = ROWS[["a", "plan"]].assign(note=[f"it is {p} or not" for p in ROWS.plan])
    encoder = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), ["plan"]),
        (CountVectorizer(), "note"),
        remainder="passthrough",
    )
    model = make_pipeline(encoder, KNeighborsRegressor()).fit(rows, ROWS.price)
    explanation = sqlml.compile(model).explain(rows[SOME], background=rows[BACKGROUND])
    want = _by_definition(model.predict, rows[SOME], rows[BACKGROUND])
    np.testing.assert_allclose(explanation.values, want, atol=1e-9)


def test_what_a_background_must_be() -> None:
    scorer = sqlml.compile(KNeighborsRegressor().fit(X, ROWS.price))
    with pytest.raises(UnsupportedModelError, match="give it rows to compare with"):
        scorer.explain(X[SOME])
    with pytest.raises(ConfigError, match="the background has no rows"):
        scorer.explain(X[SOME], background=X[:0])
    with pytest.raises(ConfigError, match="at most 1,000 background rows; take a sample"):
        scorer.explain(X[SOME], background=X.sample(1001, replace=True))
