"""`Scorer.explain` returns the source libraries' contributions, which add up to the prediction."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import catboost
import lightgbm
import numpy as np
import pandas as pd
import pytest
import shap
import xgboost
from sklearn.compose import TransformedTargetRegressor, make_column_transformer
from sklearn.decomposition import PCA
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import (
    AdaBoostClassifier,
    ExtraTreesRegressor,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    IsolationForest,
    RandomForestClassifier,
    RandomForestRegressor,
    VotingRegressor,
)
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression, PoissonRegressor
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.tree import DecisionTreeRegressor

import sqlml
from sqlml.errors import ConfigError, UnsupportedModelError
from sqlml.explaining.explained import explain_program
from sqlml.explaining.model_facts import compute_importances, read_weights
from sqlml.importers.registry import import_model
from sqlml.ir.builder import Builder
from sqlml.ir.trees import Ensemble
from tests.support.shapley import Worth, by_definition, expected_of_trees

FEATURES = ["a", "b", "c", "d"]


def _rows() -> pd.DataFrame:
    draw = np.random.default_rng(8)
    frame = pd.DataFrame(draw.normal(size=(400, 4)), columns=FEATURES)
    frame["plan"] = draw.choice(["basic", "plus", "pro"], 400)
    frame["answer"] = frame.a * frame.b + frame.c + draw.normal(size=400) > 0
    frame["grade"] = (frame.a + draw.normal(size=400)).clip(-1, 1).round().astype(int) + 3
    frame["price"] = np.exp(frame.a / 2) + (frame.plan == "pro") + draw.random(400)
    return frame


ROWS = _rows()
X = ROWS[FEATURES]
GAPS = X.mask(np.random.default_rng(3).random(X.shape) < 0.1)
SOME = slice(0, 40)
SMALL = {"n_estimators": 12, "max_depth": 4, "random_state": 0}

QUIET = {"iterations": 12, "depth": 4, "verbose": 0, "allow_writing_files": False}

XGBOOST: Mapping[str, Any] = {
    "binary": xgboost.XGBClassifier(**SMALL).fit(GAPS, ROWS.answer),
    "classes": xgboost.XGBClassifier(**SMALL).fit(GAPS, ROWS.grade - 2),
    "dart": xgboost.XGBRegressor(booster="dart", rate_drop=0.3, **SMALL).fit(GAPS, ROWS.price),
    "poisson": xgboost.XGBRegressor(objective="count:poisson", **SMALL).fit(GAPS, ROWS.price),
    "gblinear": xgboost.XGBRegressor(booster="gblinear", n_estimators=9).fit(X, ROWS.price),
}
LIGHTGBM: Mapping[str, Any] = {
    "binary": lightgbm.LGBMClassifier(verbose=-1, **SMALL).fit(GAPS, ROWS.answer),
    "classes": lightgbm.LGBMClassifier(verbose=-1, **SMALL).fit(GAPS, ROWS.grade),
    "forest": lightgbm.LGBMRegressor(
        boosting_type="rf", bagging_fraction=0.5, bagging_freq=1, verbose=-1, **SMALL
    ).fit(GAPS, ROWS.price),
    "categories": lightgbm.LGBMRegressor(verbose=-1, min_data_per_group=1, **SMALL).fit(
        GAPS.assign(plan=ROWS.plan.astype("category")), ROWS.price
    ),
}
CATBOOST: Mapping[str, Any] = {
    "binary": catboost.CatBoostClassifier(
        iterations=12, depth=4, verbose=0, allow_writing_files=False
    ).fit(X, ROWS.answer),
    "classes": catboost.CatBoostClassifier(
        iterations=12, depth=4, verbose=0, allow_writing_files=False
    ).fit(X, ROWS.grade),
    "number": catboost.CatBoostRegressor(
        iterations=12, depth=4, verbose=0, allow_writing_files=False
    ).fit(GAPS, ROWS.price),
}
FORESTS: Mapping[str, Any] = {
    "tree": DecisionTreeRegressor(max_depth=6).fit(X, ROWS.price),
    "forest": RandomForestClassifier(**SMALL).fit(X, ROWS.answer),
    "classes": RandomForestClassifier(**SMALL).fit(X, ROWS.grade),
    "extra": ExtraTreesRegressor(**SMALL).fit(X, ROWS.price),
    "boosting": GradientBoostingClassifier(**SMALL).fit(X, ROWS.answer),
    "boosted number": GradientBoostingRegressor(**SMALL).fit(X, ROWS.price),
    "histogram": HistGradientBoostingClassifier(max_iter=9, random_state=0).fit(GAPS, ROWS.answer),
}


def _blocks(model: Any, rows: Any) -> np.ndarray:
    """(n, values, features + 1): the contributions to each class, or to the one value."""
    scorer = sqlml.compile(model)
    classes = getattr(scorer, "classes_", None) if scorer.program.labels else None
    if classes is None:
        explanation = [scorer.explain(rows)]
    elif len(classes) == 2:
        explanation = [scorer.explain(rows, label=classes[1])]
    else:
        explanation = [scorer.explain(rows, label=label) for label in classes]
    each = [np.concatenate([m.values, m.baseline[:, None]], axis=1) for m in explanation]
    return np.stack(each, axis=1)


def _close(got: np.ndarray, want: np.ndarray, bound: float) -> None:
    """Compare relative to each row's largest contribution."""
    want = want.reshape(got.shape)
    largest = np.abs(want[:, :, :-1]).max(axis=2, keepdims=True)
    assert (np.abs(got - want)[:, :, :-1] <= bound * largest).all()
    np.testing.assert_allclose(got[:, :, -1], want[:, :, -1], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", XGBOOST)
def test_xgboost(name: str) -> None:
    model, rows = XGBOOST[name], (X if name == "gblinear" else GAPS)[SOME]
    booster = model.get_booster()
    want = booster.predict(xgboost.DMatrix(rows), pred_contribs=True)
    _close(_blocks(model, rows), want, 2e-6)


@pytest.mark.parametrize("name", LIGHTGBM)
def test_lightgbm(name: str) -> None:
    model, rows = LIGHTGBM[name], GAPS[SOME]
    if name == "categories":
        rows = rows.assign(plan=ROWS.plan[SOME].astype("category"))
    want = model.predict(rows, pred_contrib=True)
    _close(_blocks(model, rows), want, 1e-12)


@pytest.mark.parametrize("name", CATBOOST)
def test_catboost(name: str) -> None:
    model, rows = CATBOOST[name], (GAPS if name == "number" else X)[SOME]
    want = model.get_feature_importance(catboost.Pool(rows), type="ShapValues")
    _close(_blocks(model, rows), want, 1e-12)


@pytest.mark.parametrize("name", FORESTS)
def test_scikit_learn_beside_the_shap_package(name: str) -> None:
    model, rows = FORESTS[name], (GAPS if name == "histogram" else X)[SOME]
    explainer = shap.TreeExplainer(model)
    values = np.asarray(explainer.shap_values(rows, check_additivity=False))
    values = values if values.ndim == 3 else values[:, :, None]
    expected = np.atleast_1d(explainer.expected_value)
    if name == "forest":
        values, expected = values[:, :, 1:], expected[1:]
    base = np.broadcast_to(expected, (len(rows), expected.size))
    want = np.concatenate([values.transpose(0, 2, 1), base[:, :, None]], axis=2)
    _close(_blocks(model, rows), want, 1e-6)


WIDE = pd.DataFrame(
    np.random.default_rng(9).normal(size=(300, 6)), columns=["u", "a", "v", "b", "w", "z"]
)
FEW = WIDE["a"] - 2 * WIDE["b"]  # of the other columns no tree makes use
SHALLOW = {"n_estimators": 3, "max_depth": 2, "random_state": 0}

UNUSED: Mapping[str, Callable[[], Any]] = {
    "xgboost": lambda: xgboost.XGBRegressor(**SHALLOW).fit(WIDE, FEW),
    "xgboost classes": lambda: xgboost.XGBClassifier(**SHALLOW).fit(WIDE, np.digitize(FEW, [0, 1])),
    "lightgbm": lambda: lightgbm.LGBMRegressor(verbose=-1, **SHALLOW).fit(WIDE, FEW),
    "lightgbm classes": lambda: lightgbm.LGBMClassifier(verbose=-1, **SHALLOW).fit(
        WIDE, np.digitize(FEW, [0, 1])
    ),
    "lightgbm forest": lambda: lightgbm.LGBMRegressor(
        boosting_type="rf", bagging_fraction=0.5, bagging_freq=1, verbose=-1, **SHALLOW
    ).fit(WIDE, FEW),
    "lightgbm in a pipeline": lambda: make_pipeline(
        StandardScaler(), lightgbm.LGBMRegressor(verbose=-1, **SHALLOW)
    ).fit(WIDE, FEW),
    "catboost": lambda: catboost.CatBoostRegressor(
        iterations=3, depth=2, verbose=0, allow_writing_files=False
    ).fit(WIDE, FEW),
    "forest": lambda: RandomForestRegressor(**SHALLOW).fit(WIDE, FEW),
    "boosting": lambda: GradientBoostingRegressor(**SHALLOW).fit(WIDE, FEW),
    "histogram": lambda: HistGradientBoostingClassifier(max_iter=2, max_depth=2).fit(WIDE, FEW > 0),
}


@pytest.mark.by_day(3)
@pytest.mark.parametrize("name", UNUSED)
def test_columns_that_no_tree_tests_contribute_nothing(name: str) -> None:
    model, rows = UNUSED[name](), WIDE[SOME]
    scorer = sqlml.compile(model)
    for background in (None, rows[:9]):
        explanation = scorer.explain(rows, background=background)
        assert not explanation.values[:, [0, 2, 4, 5]].any()
        assert explanation.values[:, [1, 3]].any()
    if name.startswith("lightgbm") and "pipeline" not in name:
        want = model.predict(rows, pred_contrib=True)
        _close(_blocks(model, rows), want, 1e-12)


def _margin(model: Any, rows: Any) -> np.ndarray:
    scorer = sqlml.compile(model)
    for method in ("decision_function", "predict_proba", "predict"):
        try:
            explanation = getattr(scorer, method)(rows)
        except AttributeError:
            continue
        return (
            explanation[:, 1]
            if explanation.ndim == 2 and explanation.shape[1] == 2
            else explanation
        )
    raise AssertionError("the model says nothing")


ADDITIVE: Mapping[str, Callable[[], Any]] = {
    "scaled": lambda: make_pipeline(StandardScaler(), LogisticRegression()).fit(X, ROWS.answer),
    "votes": lambda: VotingRegressor(
        [("r", RandomForestRegressor(**SMALL)), ("l", LinearRegression())]
    ).fit(X, ROWS.price),
    "started by a model": lambda: GradientBoostingRegressor(
        init=DecisionTreeRegressor(max_depth=2), **SMALL
    ).fit(X, ROWS.price),
    "votes of trees": lambda: AdaBoostClassifier(n_estimators=5).fit(X, ROWS.answer),
    **{f"xgboost {name}": lambda name=name: XGBOOST[name] for name in ("binary", "classes")},
    **{f"catboost {name}": lambda name=name: CATBOOST[name] for name in CATBOOST},
    "uneven trees": lambda: catboost.CatBoostRegressor(grow_policy="Depthwise", **QUIET).fit(
        X, ROWS.price
    ),
}


@pytest.mark.by_day(3)
@pytest.mark.parametrize("name", ADDITIVE)
def test_contributions_and_the_baseline_add_up(name: str) -> None:
    model = ADDITIVE[name]()
    got = _blocks(model, X[SOME]).sum(axis=2)
    want = _margin(model, X[SOME]).reshape(got.shape)
    bound = 2e-6 if name.startswith("xgboost") else 1e-9  # its margins are float32
    np.testing.assert_allclose(got, want, rtol=bound, atol=bound)


def test_a_link_is_left_out() -> None:
    model = PoissonRegressor().fit(X, ROWS.price)
    explanation = sqlml.compile(model).explain(X[SOME])
    total = explanation.values.sum(axis=1) + explanation.baseline
    np.testing.assert_allclose(np.exp(total), model.predict(X[SOME]), rtol=1e-12)


def test_an_isolation_forest_has_contributions_to_its_depth() -> None:
    model = IsolationForest(n_estimators=9, random_state=0).fit(X)
    explanation = sqlml.compile(model).explain(X[SOME])
    total = explanation.values.sum(axis=1) + explanation.baseline
    # the deeper, the more normal: contributions rise as the score does
    np.testing.assert_allclose(-np.exp2(-total), model.score_samples(X[SOME]), rtol=1e-9)


def test_encoded_columns_are_the_users_own() -> None:
    rows = ROWS[[*FEATURES, "plan"]]
    encoder = make_column_transformer((OneHotEncoder(), ["plan"]), remainder=StandardScaler())
    model = make_pipeline(encoder, RandomForestRegressor(**SMALL)).fit(rows, ROWS.price)
    explanation = sqlml.compile(model).explain(rows[SOME])
    assert explanation.features == (*FEATURES, "plan")
    encoded = encoder.transform(rows[SOME]).astype(np.float32)
    program = import_model(model[-1], inputs=[f"x{i}" for i in range(encoded.shape[1])]).program
    (node,) = [node for node in program.nodes if node.op == "tree_ensemble"]
    trees = Ensemble.of(node.attrs)
    owner = [4, 4, 4, 0, 1, 2, 3]  # the columns of `plan` first, which are known together
    share = 1 / SMALL["n_estimators"]  # a forest is the mean of its trees
    for row, values in list(zip(encoded, explanation.values, strict=True))[:3]:
        of_columns = expected_of_trees(trees, row)

        def worth(known: frozenset[int], of_columns: Worth = of_columns) -> np.ndarray:
            return of_columns(frozenset(i for i, k in enumerate(owner) if k in known))

        want = by_definition(worth, 5)[:, 0] * share
        np.testing.assert_allclose(values, want, rtol=0, atol=1e-9)


@pytest.mark.nightly
def test_the_words_of_a_text_are_the_text() -> None:
    texts = pd.DataFrame({"note": [f"{p} or not {p}" for p in ROWS.plan], "a": ROWS.a})
    words = make_column_transformer((TfidfVectorizer(), "note"), remainder="passthrough")
    model = make_pipeline(words, LogisticRegression()).fit(texts, ROWS.answer)
    explanation = sqlml.compile(model).explain(texts[SOME])
    assert explanation.features == ("note", "a")
    total = explanation.values.sum(axis=1) + explanation.baseline
    np.testing.assert_allclose(total, model.decision_function(texts[SOME]), rtol=1e-9)


def test_the_predicted_class_is_explained() -> None:
    scorer = sqlml.compile(FORESTS["classes"])
    explanation, labels = scorer.explain(X[SOME]), scorer.predict(X[SOME])
    each = {label: scorer.explain(X[SOME], label=label) for label in scorer.classes_}
    for row, label in enumerate(labels):
        np.testing.assert_array_equal(explanation.values[row], each[label].values[row])
        assert explanation.baseline[row] == each[label].baseline[row]


@pytest.mark.parametrize("name", ["forest", "boosting"])
def test_the_first_of_two_classes(name: str) -> None:
    model = FORESTS[name]
    explanation = sqlml.compile(model).explain(X[SOME], label=False)
    total = explanation.values.sum(axis=1) + explanation.baseline
    want = -_margin(model, X[SOME]) if name == "boosting" else model.predict_proba(X[SOME])[:, 0]
    np.testing.assert_allclose(total, want, rtol=1e-9)


def test_several_targets() -> None:
    model = RandomForestRegressor(**SMALL).fit(X, ROWS[["price", "a"]])
    explanation = sqlml.compile(model).explain(X[SOME])
    assert explanation.values.shape == (40, 2, 4)
    got = explanation.values.sum(axis=2) + explanation.baseline
    np.testing.assert_allclose(got, model.predict(X[SOME]), rtol=1e-12)


def test_a_linear_model_of_single_columns_is_its_own_definition() -> None:
    model = LinearRegression().fit(X, ROWS.price)
    explanation = sqlml.compile(model).explain(X[:3])

    def worth(known: frozenset[int]) -> np.ndarray:
        row = X[:3].copy()
        row.iloc[:, [k for k in range(4) if k not in known]] = 0.0
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return model.predict(row)

    np.testing.assert_allclose(explanation.values, by_definition(worth, 4).T, atol=1e-12)


def test_a_linear_model_of_thousands_of_columns() -> None:
    rows = np.random.default_rng(1).normal(size=(3, 4500))
    model = LinearRegression()
    model.coef_, model.intercept_ = rows[0], 0.5
    model.n_features_in_ = rows.shape[1]
    explanation = sqlml.compile(model).explain(rows)
    np.testing.assert_array_equal(explanation.values, rows * rows[0])
    assert set(explanation.baseline) == {0.5}


def test_a_sum_that_is_too_wide_says_so() -> None:
    b = Builder()
    columns = [b.input(f"x{k}", "float64") for k in range(3000)]
    twice = b.op("concat", *columns, *columns)
    program = b.build({"label": b.op("linear", twice, weights=np.ones((6000, 1)), bias=np.ones(1))})
    with pytest.raises(UnsupportedModelError, match="of this model of 3,000 columns take more mem"):
        explain_program(program)


def test_each_label_of_several() -> None:
    labels = np.stack([ROWS.answer.astype(str), ROWS.grade.astype(str)], axis=1)
    model = RandomForestClassifier(**SMALL).fit(X, labels)
    scorer = sqlml.compile(model)
    explanation, proba = scorer.explain(X[SOME]), scorer.predict_proba(X[SOME])
    assert explanation.values.shape == (40, 2, 4)
    total = explanation.values.sum(axis=2) + explanation.baseline
    np.testing.assert_allclose(total[:, 0], proba[0][:, 1], rtol=1e-9)
    np.testing.assert_allclose(total[:, 1], proba[1].max(axis=1), rtol=1e-9)
    with pytest.raises(ConfigError, match="predicts several labels"):
        scorer.explain(X[SOME], label="3")


def test_one_class_and_two_outputs_for_two_classes() -> None:
    one = sqlml.compile(RandomForestClassifier(**SMALL).fit(X, np.zeros(400)))
    assert set(one.explain(X[SOME], label=0.0).baseline) == {1.0}
    both = lightgbm.LGBMClassifier(objective="multiclass", num_class=2, verbose=-1, **SMALL)
    model = both.fit(X, ROWS.answer)
    want = model.predict(X[SOME], pred_contrib=True).reshape(40, 2, 5)
    for place, label in enumerate([False, True]):
        explanation = sqlml.compile(model).explain(X[SOME], label=label)
        np.testing.assert_allclose(explanation.values, want[:, place, :-1], atol=1e-12)
        np.testing.assert_allclose(explanation.baseline, want[:, place, -1], atol=1e-12)


def test_what_falls_as_a_sum_rises() -> None:
    falling = TransformedTargetRegressor(
        LinearRegression(), func=np.negative, inverse_func=np.negative
    ).fit(X, ROWS.price)
    explanation = sqlml.compile(falling).explain(X[SOME])
    total = explanation.values.sum(axis=1) + explanation.baseline
    np.testing.assert_allclose(total, falling.predict(X[SOME]), rtol=1e-9)


def test_weights_of_values_and_of_indicators_have_different_names() -> None:
    rows = GAPS.assign(plan=ROWS.plan)
    imputer = make_pipeline(SimpleImputer(add_indicator=True), StandardScaler())
    columns = make_column_transformer((imputer, ["a", "b"]), (OneHotEncoder(), ["plan"]))
    twice = make_union(columns, make_column_transformer((SimpleImputer(), ["b"])))
    model = make_pipeline(twice, LogisticRegression()).fit(rows, ROWS.answer)
    rows_of_weights = read_weights(sqlml.compile(model).program)
    assert rows_of_weights is not None
    assert [(w.feature, w.column) for w in rows_of_weights] == [
        (None, None),
        ("a", None),
        ("b", "1"),
        ("a", "missing"),
        ("b", "missing"),
        *(("plan", plan) for plan in ("basic", "plus", "pro")),
        ("b", "2"),
    ]


def test_importances_and_weights_are_those_of_the_last_step() -> None:
    hidden = MLPClassifier((3,), max_iter=20, random_state=0).fit(X, ROWS.answer)
    turned = make_pipeline(PCA(2), LogisticRegression()).fit(X, ROWS.answer)
    for model in (hidden, turned):
        assert read_weights(sqlml.compile(model).program) is None
    histogram = sqlml.compile(FORESTS["histogram"]).program
    source = "sklearn.ensemble._hist_gradient_boosting.gradient_boosting.Hist"
    assert {i.library_importance for i in compute_importances(histogram, source)} == {None}
    boosted = compute_importances(
        sqlml.compile(FORESTS["boosting"]).program, "sklearn.ensemble._gb.GradientBoosting"
    )
    assert [i.library_importance for i in boosted] == pytest.approx(
        FORESTS["boosting"].feature_importances_
    )


def test_what_has_no_exact_contributions_says_so() -> None:
    for model in (GaussianNB(), KNeighborsClassifier(), DummyClassifier()):
        with pytest.raises(UnsupportedModelError, match="exact for sums of trees"):
            sqlml.compile(model.fit(X, ROWS.answer)).explain(X)
    with pytest.raises(UnsupportedModelError, match="returns numbers or probabilities"):
        sqlml.compile(StandardScaler().fit(X)).explain(X)
    with pytest.raises(ConfigError, match="7 is not a class of this model; its classes: 2, 3, 4"):
        sqlml.compile(FORESTS["classes"]).explain(X, label=7)
