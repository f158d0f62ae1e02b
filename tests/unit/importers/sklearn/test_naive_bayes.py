"""Naive Bayes and the discriminants: ties, odd categories, single classes, refusals."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.special import digamma as scipy_digamma
from scipy.special import logsumexp
from sklearn.base import BaseEstimator
from sklearn.discriminant_analysis import (
    LinearDiscriminantAnalysis,
    QuadraticDiscriminantAnalysis,
)
from sklearn.feature_extraction.text import (
    CountVectorizer,
    HashingVectorizer,
    TfidfVectorizer,
)
from sklearn.mixture import GaussianMixture
from sklearn.naive_bayes import (
    BernoulliNB,
    CategoricalNB,
    ComplementNB,
    GaussianNB,
    MultinomialNB,
)
from sklearn.pipeline import make_pipeline

from sqlml.errors import MissingValueError, UnknownCategoryError, UnsupportedModelError
from sqlml.importers.registry import import_model
from sqlml.importers.sklearn.generative_models import compute_log_sum_exp, digamma
from sqlml.ir import reference
from sqlml.ir.builder import Builder
from sqlml.types import Array
from tests.support.sklearn_checks import assert_both_raise, assert_same, scored

ALL = (GaussianNB, MultinomialNB, ComplementNB, BernoulliNB, CategoricalNB)


def data(rows: int = 120, seed: int = 0) -> tuple[pd.DataFrame, Array]:
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 4, (rows, 3)).astype(float)
    return pd.DataFrame(x, columns=list("abc")), (x[:, 0] + rng.random(rows) > 2).astype(int)


@pytest.mark.parametrize("cls", ALL)
def test_rows_that_training_never_combined(cls: type) -> None:
    x, y = data()
    grid = np.stack(np.meshgrid(*[np.arange(4.0)] * 3), axis=-1).reshape(-1, 3)
    assert_same(cls().fit(x, y), pd.DataFrame(grid, columns=list("abc")))


@pytest.mark.parametrize("cls", ALL)
def test_a_single_class_is_certain(cls: type) -> None:
    x, _ = data(20)
    imported = assert_same(cls().fit(x, np.full(20, "only")), x)
    np.testing.assert_array_equal(scored(imported, x)["proba"], 1.0)


def test_many_classes_of_many_columns() -> None:
    rng = np.random.default_rng(0)
    x = pd.DataFrame(rng.normal(size=(140, 32)), columns=[f"c{i}" for i in range(32)])
    x += rng.normal(size=(70, 32)).repeat(2, axis=0)
    y = np.arange(140) // 2
    assert_same(GaussianNB().fit(x, y), x)
    assert_same(QuadraticDiscriminantAnalysis(solver="eigen", shrinkage=0.5).fit(x, y), x)
    mixture = GaussianMixture(
        65, init_params="random_from_data", random_state=0, max_iter=1, reg_covar=1
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert_same(mixture.fit(x), x)


@pytest.mark.parametrize("binarize", [None, 0.0, 0.4])
def test_words_as_sparse_rows(binarize: float | None) -> None:
    rng = np.random.default_rng(0)
    words = np.array(["red", "green", "blue", "grey", "black"])
    texts = [" ".join(rng.choice(words, rng.integers(0, 6))) for _ in range(60)]
    one_sided = HashingVectorizer(n_features=32, alternate_sign=False)
    for counter in (CountVectorizer(), TfidfVectorizer(), one_sided):
        model = make_pipeline(counter, BernoulliNB(binarize=binarize)).fit(texts, np.arange(60) % 3)
        imported = import_model(model)
        (feature,) = imported.features
        made = reference.run(imported.program, {feature.name: np.array(texts, object)})
        np.testing.assert_allclose(made["proba"], model.predict_proba(texts), rtol=1e-9)


@pytest.mark.parametrize("cls", ALL)
def test_fitted_part_by_part(cls: type) -> None:
    x, y = data()
    model = cls(min_categories=4) if cls is CategoricalNB else cls()
    for start in range(0, 120, 40):
        model.partial_fit(x[start : start + 40], y[start : start + 40], classes=[0, 1, 2])
    assert_same(model, x)


@pytest.mark.parametrize("cls", ALL)
def test_nothing_is_computed_of_null(cls: type) -> None:
    x, y = data()
    model = cls().fit(x, y)
    x.loc[3, "b"] = np.nan
    assert_both_raise(model, x, MissingValueError, f"'b' has NULL.*{cls.__name__}")


@pytest.mark.parametrize("cls", [MultinomialNB, ComplementNB, BernoulliNB, GaussianNB])
def test_negative_numbers_pass(cls: type) -> None:
    x, y = data()
    assert_same(cls().fit(x, y), x - 2.5)


def test_equal_classes_give_the_first_one() -> None:
    x = pd.DataFrame({"a": [0.0, 1.0, 0.0, 1.0]})
    for cls in ALL:
        imported = assert_same(cls().fit(x, ["b", "b", "a", "a"]), x)
        assert scored(imported, x)["label"].ravel().tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("cls", [MultinomialNB, ComplementNB, BernoulliNB, CategoricalNB])
def test_probabilities_of_zero_without_smoothing(cls: type) -> None:
    x, y = data()
    x.loc[y == 0, "c"] = 0.0
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        model = cls(alpha=0.0, force_alpha=True).fit(x, y)
    assert not np.isfinite(np.concatenate([np.ravel(p) for p in model.feature_log_prob_])).all()
    with np.errstate(all="ignore"):
        assert_same(model, x)


def test_the_threshold_itself_is_below() -> None:
    x, y = data()
    rows = pd.DataFrame({c: [2.0, np.nextafter(2.0, 3), np.nextafter(2.0, 1)] for c in "abc"})
    assert_same(BernoulliNB(binarize=2.0).fit(x, y), rows)
    assert_same(BernoulliNB(binarize=None).fit(x > 1, y), (x > 2).astype(float))


def test_categories_are_cut_to_whole_numbers() -> None:
    x, y = data()
    rows = pd.DataFrame({"a": [2.99, -0.99, 0.5], "b": [1.0, -0.0, 3.7], "c": [0.0, 3.0, 1e-300]})
    assert_same(CategoricalNB().fit(x, y), rows)


def test_categories_that_were_never_seen() -> None:
    x, y = data()
    model = CategoricalNB().fit(x, y)
    assert_both_raise(model, x - 1, UnknownCategoryError, "'a' has a category.*CategoricalNB")
    imported = import_model(model)
    with pytest.raises(IndexError):
        model.predict(x.assign(c=4.0))
    for value in (4.0, 1e9, 1e300):
        with pytest.raises(UnknownCategoryError, match="'c'"):
            scored(imported, x.assign(c=value))
    roomy = CategoricalNB(min_categories=6).fit(x, y)
    assert_same(roomy, x.assign(c=4.0))


def test_categories_of_a_column_that_has_one_only() -> None:
    x, y = data()
    assert_same(CategoricalNB().fit(x.assign(b=0), y), x.assign(b=0))


@pytest.mark.parametrize(
    "model", [*(cls() for cls in ALL), LinearDiscriminantAnalysis()], ids=lambda m: str(m)
)
def test_an_unfitted_one_is_refused(model: BaseEstimator) -> None:
    model.n_features_in_ = 2
    with pytest.raises(UnsupportedModelError, match="fit"):
        import_model(model)


def test_the_solver_lsqr_has_no_transform() -> None:
    x, y = data()
    for shrinkage in (None, "auto", 0.4):
        model = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=shrinkage).fit(x, y + x["b"])
        imported = import_model(model)
        ours = scored(imported, x)
        assert set(ours) == {"label", "score", "proba"}
        np.testing.assert_allclose(ours["score"], model.decision_function(x), rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(ours["proba"], model.predict_proba(x), rtol=1e-9)
        np.testing.assert_array_equal(model.classes_[ours["label"][:, 0]], model.predict(x))


def test_fewer_discriminants_than_asked_for() -> None:
    x, y = data()
    for solver in ("svd", "eigen"):
        model = LinearDiscriminantAnalysis(solver=solver).fit(x, y)
        assert assert_same(model, x).program.output_type("transform").width == 1


def test_quadratic_ties_and_scores_of_two_and_of_three_classes() -> None:
    rng = np.random.default_rng(1)
    half = rng.normal(size=(50, 2))
    x = pd.DataFrame(np.concatenate([half, half]), columns=["a", "b"])
    same = QuadraticDiscriminantAnalysis().fit(x, np.repeat(["q", "p"], 50))
    imported = assert_same(same, x)
    assert not scored(imported, x)["label"].any()
    assert imported.program.output_type("score").width == 1
    three = QuadraticDiscriminantAnalysis().fit(x, np.arange(100) % 3)
    assert assert_same(three, x).program.output_type("score").width == 3


@pytest.mark.parametrize(
    "row",
    [
        [0.0, 0.0, 0.0],
        [-1e5, -2e5, -1e5],
        [-np.inf, 0.0, -np.inf],
        [-np.inf, -np.inf, -np.inf],
        [1e-3, -745.0, -50.0],
        [np.nan, 0.0, 1.0],
        [np.log(0.5), np.log(0.25), np.log(0.25)],
    ],
)
def test_log_sum_exp_is_scipys(row: list[float]) -> None:
    b = Builder()
    program = b.build({"samples": compute_log_sum_exp(b, b.input("x", "float64", 3))})
    made: Any = reference.run(program, {"x": np.array([row, row])})["samples"]
    np.testing.assert_allclose(made[:, 0], logsumexp([row, row], axis=1), rtol=1e-15, atol=1e-17)


def test_digamma_is_scipys() -> None:
    x = np.concatenate([np.linspace(1e-3, 60, 5000), [1e-9, 1e5, 1e12]])
    np.testing.assert_allclose(digamma(x), scipy_digamma(x), rtol=1e-13, atol=1e-14)
