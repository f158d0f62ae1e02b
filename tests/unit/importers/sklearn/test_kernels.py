"""Kernel machines and Gaussian processes: refusals, chi-squared kernels, odd parameters."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array
from sklearn.decomposition import KernelPCA
from sklearn.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor
from sklearn.gaussian_process import kernels as gp
from sklearn.kernel_approximation import AdditiveChi2Sampler, Nystroem, SkewedChi2Sampler
from sklearn.kernel_ridge import KernelRidge

from sqlml.errors import MissingValueError, UnsupportedModelError
from sqlml.importers.registry import import_model
from tests.support.sklearn_checks import assert_both_raise, assert_close, assert_same, scored


def table(rows: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(rows, 3))


def counts(rows: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).poisson([0.3, 1, 4], (rows, 3)).astype(float)


@pytest.mark.parametrize("kernel", ["chi2", "additive_chi2"])
def test_kernels_of_counts(kernel: str) -> None:
    """A column where both sides are 0 counts nothing; a negative number raises."""
    ridge = KernelRidge(kernel=kernel, gamma=0.7, alpha=0.3).fit(counts(40), table(40)[:, 0])
    assert_same(ridge, counts(30, 1))
    assert_both_raise(ridge, table(5), MissingValueError)
    map_ = Nystroem(kernel=kernel, n_components=8, random_state=0).fit(counts(40))
    ours = scored(import_model(map_), counts(30, 1))["transform"]
    np.testing.assert_allclose(ours, map_.transform(counts(30, 1)), rtol=1e-6, atol=1e-9)


def test_chi2_without_gamma() -> None:
    ridge = KernelRidge(kernel="chi2", gamma=1.0).fit(counts(40), table(40)[:, 0])
    assert_same(ridge, counts(20, 1))


def test_parameters_of_a_kernel_given_as_a_dictionary() -> None:
    made = {"gamma": 0.4, "degree": 2}
    map_ = Nystroem(kernel="poly", kernel_params=made, n_components=6, random_state=0)
    assert_same(map_.fit(table(40)), table(30, 1))


def test_a_sparse_training_table() -> None:
    model = KernelRidge(kernel="rbf").fit(csr_array(table(30)), table(30)[:, 0])
    assert_close(
        scored(import_model(model), table(20, 1))["label"][:, 0],
        model.predict(csr_array(table(20, 1))),
    )


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (KernelRidge(kernel=lambda a, b: a @ b), "Python function as its kernel"),
        (Nystroem(kernel=lambda a, b: a @ b, n_components=3), "Python function as its kernel"),
        (KernelRidge(kernel="precomputed"), "a matrix of kernel values"),
        (KernelPCA(kernel="precomputed"), "a matrix of kernel values"),
    ],
)
def test_kernels_that_sql_cannot_run_are_refused(model: Any, message: str) -> None:
    x = table(12)
    square = x @ x.T
    fitted = model.fit(square if model.kernel == "precomputed" else x, x[:, 0])
    with pytest.raises(UnsupportedModelError, match=message):
        import_model(fitted)


def test_rows_that_a_sampler_refuses() -> None:
    skewed = SkewedChi2Sampler(skewedness=0.5, n_components=4, random_state=0)
    skewed.fit(np.abs(table(20)))
    edge = np.array([[np.nextafter(-0.5, 0), 1.0, 0.0]])
    assert_same(skewed, edge)
    assert_both_raise(skewed, np.array([[-0.5, 1.0, 0.0]]), MissingValueError)
    additive = AdditiveChi2Sampler().fit(counts(10))
    assert_same(additive, np.array([[0.0, 1.0, 2.5], [0.0, 0.0, 0.0]]))
    assert_both_raise(additive, np.array([[-1.0, 1.0, 0.0]]), MissingValueError)


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (gp.Matern(nu=0.7), "nu=0.7, a Bessel function"),
        (gp.PairwiseKernel(metric="chi2"), "metric 'chi2'"),
    ],
)
def test_kernels_of_a_process_that_are_refused(kernel: Any, message: str) -> None:
    x = np.abs(table(12))
    model = GaussianProcessRegressor(kernel, optimizer=None, alpha=1.0).fit(x, x[:, 0])
    with pytest.raises(UnsupportedModelError, match=message):
        import_model(model)


class Own(gp.RBF):
    """A user's kernel may compute anything."""


def test_a_kernel_of_one_s_own_is_refused() -> None:
    model = GaussianProcessRegressor(Own(), optimizer=None, alpha=1.0).fit(table(9), table(9)[:, 0])
    with pytest.raises(UnsupportedModelError, match="a kernel Own"):
        import_model(model)


def test_a_classifier_of_pairs_is_refused() -> None:
    x = table(30)
    model = GaussianProcessClassifier(multi_class="one_vs_one", optimizer=None)
    model.fit(x, np.arange(30) % 3)
    with pytest.raises(UnsupportedModelError, match="one_vs_rest"):
        import_model(model)


def test_sums_products_and_powers_of_constants() -> None:
    kernel = (gp.ConstantKernel(0.5) + gp.ConstantKernel(1.5)) ** 2 * gp.ConstantKernel(0.25)
    named = pd.DataFrame(table(20), columns=["a", "b", "c"])
    model = GaussianProcessRegressor(kernel + gp.WhiteKernel(0.3), optimizer=None)
    assert_same(model.fit(named, table(20)[:, 0]), named.head(15))
    both = kernel * gp.RBF(0.8) + gp.DotProduct(0.1) ** 1.5 * 0.01
    model = GaussianProcessRegressor(both, optimizer=None, alpha=0.5)
    assert_same(model.fit(np.abs(table(20)), table(20)[:, 0]), np.abs(table(15, 1)))


def test_noise_widens_the_probabilities_of_a_classifier() -> None:
    x = table(40)
    kernel = 2.0 * gp.RBF() + gp.WhiteKernel(0.5)
    model = GaussianProcessClassifier(kernel, optimizer=None).fit(x, x[:, 0] > 0.1)
    assert_same(model, np.concatenate([x, 3 * table(40, 1)]))
