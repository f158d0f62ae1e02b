"""Support vector machines: refusals, rows on the boundary, sparse training tables."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.svm import SVC, SVR, NuSVC, OneClassSVM

from sqlml.errors import MissingValueError, ProgramError, UnsupportedModelError
from sqlml.importers.registry import import_model
from sqlml.ir.builder import Builder
from tests.support.sklearn_checks import assert_both_raise, assert_close, assert_same, scored


def table(rows: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(rows, 3))


def named(x: np.ndarray, classes: int = 3) -> np.ndarray:
    score = x @ [1.0, -0.5, 0.2]
    return np.searchsorted(np.quantile(score, np.arange(1, classes) / classes), score)


def platt(model: Any, x: np.ndarray, y: np.ndarray) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # probability=True is deprecated since 1.9
        return model.fit(x, y)


@pytest.mark.parametrize("classes", [2, 3, 5])
@pytest.mark.parametrize("cls", [SVC, NuSVC])
def test_probabilities_are_those_of_the_source_s_iteration(cls: Any, classes: int) -> None:
    """The iteration stops at 0.005 / K, so another solution of the same equations is far off."""
    x = table(80)
    parameters = {"nu": 0.1} if cls is NuSVC else {}
    model = platt(cls(probability=True, random_state=0, **parameters), x, named(x, classes))
    assert_same(model, np.concatenate([x, 4 * table(60, 1), np.zeros((1, 3))]))


def test_probabilities_that_the_fit_did_not_make_are_refused() -> None:
    x = table(40)
    model = SVC().fit(x, named(x)).set_params(probability=True)
    with pytest.raises(UnsupportedModelError, match="fitted without it; fit it again"):
        import_model(model)


@pytest.mark.parametrize("shape", ["ovr", "ovo"])
def test_scores_of_zero(shape: str) -> None:
    """Mirrored points: in the middle every pair of classes has a score of 0, or nearly."""
    x = np.array([[-1.0], [1.0], [-1.0], [1.0]])
    model = SVC(kernel="linear", decision_function_shape=shape).fit(x, [0, 1, 0, 1])
    assert_same(model, np.array([[0.0], [-0.0], [1e-300], [-1e-300], [1e-9], [-1e-9]]))


def test_many_classes_with_equal_votes() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(90, 2))
    for ties in (False, True):
        model = SVC(C=0.1, gamma=5.0, break_ties=ties).fit(x, rng.integers(0, 6, 90))
        assert_same(model, rng.normal(size=(300, 2)) * 2)


@pytest.mark.parametrize("kernel", ["linear", "rbf", "poly", "sigmoid"])
def test_a_sparse_training_table(kernel: str) -> None:
    x = np.where(np.random.default_rng(3).random((60, 3)) < 0.4, 0.0, table(60))
    model = SVC(kernel=kernel).fit(csr_array(x), named(x))
    ours = scored(import_model(model), table(40, 1))
    assert_close(ours["score"], model.decision_function(csr_array(table(40, 1))))
    np.testing.assert_array_equal(ours["label"][:, 0], model.predict(csr_array(table(40, 1))))


def test_break_ties_without_one_vs_rest_is_refused() -> None:
    x = table(40)
    model = SVC(break_ties=True, decision_function_shape="ovo").fit(x, named(x))
    with pytest.raises(UnsupportedModelError, match="decision_function_shape='ovr'"):
        import_model(model)


def test_kernels_that_sql_cannot_run_are_refused() -> None:
    x = table(30)
    with pytest.raises(UnsupportedModelError, match="Python function as its kernel"):
        import_model(SVC(kernel=lambda a, b: a @ b.T).fit(x, named(x)))
    with pytest.raises(UnsupportedModelError, match="a matrix of kernel values"):
        import_model(SVR(kernel="precomputed").fit(x @ x.T, x[:, 0]))


def test_a_regressor_without_support_vectors_is_refused() -> None:
    model = SVR(epsilon=100.0).fit(table(20), table(20)[:, 0])
    assert not len(model.support_)
    with pytest.raises(UnsupportedModelError, match="no support vectors"):
        import_model(model)


def test_an_unfitted_machine_is_refused() -> None:
    with pytest.raises(UnsupportedModelError, match="not fitted; call its fit"):
        import_model(SVC())


def test_missing_values_are_refused_by_both() -> None:
    x = table(40)
    gaps = x.copy()
    gaps[3, 1] = np.nan
    assert_both_raise(SVC().fit(x, named(x)), gaps, MissingValueError, match="SVC")


def test_one_class_has_labels_of_minus_one_and_one() -> None:
    imported = assert_same(OneClassSVM(nu=0.3).fit(table(50)), 2 * table(80, 1))
    assert "samples" in imported.program.outputs
    model = OneClassSVM(nu=0.3).fit(table(50))
    ours = scored(import_model(model), table(80, 1))["samples"]
    assert_close(ours[:, 0], model.score_samples(table(80, 1)))


@pytest.mark.parametrize("classes", [0, 1, 4, 100_000])
def test_a_coupling_of_other_classes_is_no_program(classes: int) -> None:
    b = Builder()
    with pytest.raises(ProgramError, match=r"couple|values, not float64\[n,3\]"):
        b.op("couple", b.input("x", "float64", 3), classes=classes)
