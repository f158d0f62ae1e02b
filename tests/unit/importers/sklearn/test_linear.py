"""Linear models: every head, every kind of label, and the checks of check_array."""

from __future__ import annotations

import warnings
from typing import Any, Literal

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import (
    ElasticNet,
    ElasticNetCV,
    GammaRegressor,
    HuberRegressor,
    Lasso,
    LassoCV,
    LinearRegression,
    LogisticRegression,
    LogisticRegressionCV,
    Perceptron,
    PoissonRegressor,
    Ridge,
    RidgeClassifier,
    RidgeClassifierCV,
    RidgeCV,
    SGDClassifier,
    SGDRegressor,
    TweedieRegressor,
)
from sklearn.svm import LinearSVC, LinearSVR

from sqlml.errors import MissingValueError, UnsupportedModelError
from sqlml.importers.registry import import_model
from tests.support.oracles import classes, mixed_frame, special_rows
from tests.support.sklearn_checks import assert_both_raise, assert_same, scored

REGRESSORS: list[Any] = [
    LinearRegression(),
    LinearRegression(fit_intercept=False),
    Ridge(),
    RidgeCV(),
    Lasso(0.01),
    LassoCV(cv=2),
    ElasticNet(0.01),
    ElasticNetCV(cv=2),
    HuberRegressor(),
    SGDRegressor(random_state=0),
    LinearSVR(),
    PoissonRegressor(),
    GammaRegressor(),
    TweedieRegressor(power=1.5),
    TweedieRegressor(power=0),
    TweedieRegressor(power=0, link="log"),
]
CLASSIFIERS: list[Any] = [
    LogisticRegression(),
    LogisticRegression(fit_intercept=False, C=0.1),
    LogisticRegressionCV(cv=2, Cs=3, use_legacy_attributes=False),
    RidgeClassifier(),
    RidgeClassifierCV(),
    LinearSVC(),
    Perceptron(),
    SGDClassifier(random_state=0),
    SGDClassifier(loss="log_loss", random_state=0),
    SGDClassifier(loss="modified_huber", random_state=0),
    SGDClassifier(loss="squared_error", alpha=0.1, eta0=1e-4, random_state=0),
]


def numbers(rows: int = 90, width: int = 4, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).normal(size=(rows, width))


def fitted(model: Any, x: Any, y: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", FutureWarning)
        return model.fit(x, y)


@pytest.mark.parametrize("model", REGRESSORS, ids=str)
def test_regressors_agree_and_refuse_what_check_array_refuses(model: Any) -> None:
    x = numbers()
    y = np.exp(x @ [0.3, -0.2, 0.0, 0.1] + 0.1)
    fitted(model, x, y)
    assert_same(model, numbers(seed=1))
    assert_same(model, numbers(rows=1))
    for bad, what in ((np.nan, "NULL or NaN"), (np.inf, "infinity")):
        assert_both_raise(model, np.array([[0, 0, bad, 0]]), MissingValueError, f"x2.*{what}")


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("model", CLASSIFIERS, ids=str)
def test_classifiers_agree_in_labels_scores_and_probabilities(model: Any, count: int) -> None:
    x = numbers()
    codes = np.clip((x[:, 0] * 1.5 + x[:, 1] + count / 2).astype(int), 0, count - 1)
    fitted(model, x, classes("string", codes))
    assert_same(model, numbers(seed=1))
    assert_same(model, numbers(rows=1))
    assert_same(model, x * 1e3)  # saturates every probability
    assert_both_raise(model, np.array([[0, np.nan, 0, 0]]), MissingValueError, "x1")


@pytest.mark.parametrize("kind", ["string", "int64", "bool", "float64"])
def test_labels_keep_their_type(kind: Literal["string", "int64", "bool", "float64"]) -> None:
    x = numbers()
    model = LogisticRegression().fit(x, classes(kind, (x[:, 0] > 0).astype(int)))
    imported = assert_same(model, x)
    assert [labels.kind for labels in imported.program.labels] == [kind]


def test_labels_beyond_bigint_are_refused_at_import() -> None:
    x = numbers()
    codes = (x[:, 0] > 0).astype(np.uint64)
    assert_same(LogisticRegression().fit(x, codes + np.uint64(2**63 - 2)), x)
    with pytest.raises(
        UnsupportedModelError, match="9223372036854775808 does not fit in a signed 64-bit"
    ):
        import_model(LogisticRegression().fit(x, codes + np.uint64(2**63 - 1)))


def test_a_score_of_zero_is_the_first_class() -> None:
    model = LogisticRegression().fit(np.array([[-1.0], [1.0]]), ["a", "b"])
    model.intercept_ = np.zeros(1)
    assert_same(model, np.array([[0.0], [-0.0], [5e-324], [-5e-324]]))


def test_equal_scores_go_to_the_first_class() -> None:
    x = np.array([[-1.0], [0.0], [1.0]])
    model = LogisticRegression().fit(x, ["a", "b", "c"])
    model.coef_ = np.array([[1.0], [1.0], [-1.0]])
    model.intercept_ = np.zeros(3)
    assert_same(model, np.array([[0.0], [2.0], [-2.0]]))


def test_probabilities_that_are_all_zero_become_uniform() -> None:
    x = numbers()
    model = SGDClassifier(loss="modified_huber", random_state=0).fit(x, x[:, 0].round() % 3)
    model.intercept_ = np.full(3, -50.0)
    assert_same(model, x)
    model.set_params(loss="log_loss").intercept_ = np.full(3, -1e4)
    assert_same(model, x)


def test_a_sigmoid_underflows_where_the_source_does() -> None:
    """Below -709.78 exp overflows: scikit-learn's sigmoid is 0 there, and not a subnormal."""
    x = numbers()
    model = SGDClassifier(loss="log_loss", random_state=0).fit(x, x[:, 0].round() % 3)
    model.coef_ = np.zeros((3, 4))
    for edge in (-708.0, -709.78, -709.79, -712.0, -745.0, -746.0):
        model.intercept_ = np.array([edge, -1000.0, -1000.0])
        assert_same(model, x)


def test_largest_floats_overflow_alike() -> None:
    x = numbers()
    model = LinearRegression().fit(x, x.sum(axis=1))
    rows = special_rows(4, nan=False, infinite=False, largest=1e300)
    np.testing.assert_allclose(
        scored(import_model(model), rows)["label"][:, 0], model.predict(rows), rtol=1e-9
    )


def test_a_target_column_of_one_is_one_target() -> None:
    x = numbers()
    imported = assert_same(LinearRegression().fit(x, x[:, :1]), x)
    assert imported.program.target_count == 1


def test_zero_rows_give_zero_rows_in_every_output() -> None:
    x = numbers()
    ours = scored(import_model(LogisticRegression().fit(x, x[:, 0] > 0)), x[:0])
    assert {k: v.shape for k, v in ours.items()} == {
        "label": (0, 1),
        "score": (0, 1),
        "proba": (0, 2),
    }


def test_integer_boolean_and_float32_columns_of_a_frame() -> None:
    frame = mixed_frame(80)[["visits", "level", "active", "ratio", "constant"]]
    model = LogisticRegression(max_iter=500).fit(frame, mixed_frame(80)["visits"] > 8)
    assert_same(model, frame)


def test_strings_into_a_linear_model_are_an_input_error() -> None:
    model = LogisticRegression().fit(numbers(), numbers()[:, 0] > 0)
    kinds = {f.kind for f in import_model(model).features}
    assert kinds == {"number"}
