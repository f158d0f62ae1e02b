"""Decompositions and projections: sparse steps, odd shapes, densities, refusals."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.cross_decomposition import PLSSVD, PLSRegression
from sklearn.decomposition import (
    NMF,
    PCA,
    DictionaryLearning,
    FactorAnalysis,
    FastICA,
    IncrementalPCA,
    LatentDirichletAllocation,
    SparseCoder,
    SparsePCA,
    TruncatedSVD,
)
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.random_projection import GaussianRandomProjection, SparseRandomProjection

from sqlml.errors import MissingValueError, UnsupportedModelError
from sqlml.importers.frame import Frame, Outputs
from sqlml.importers.registry import import_model
from sqlml.importers.sklearn.estimator_table import COMPOSITES, IMPORTERS
from sqlml.importers.sklearn.meta.compose import import_pipeline
from sqlml.ir.builder import Builder
from tests.support.sklearn_checks import assert_both_raise, assert_same, scored


def table(rows: int = 80, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 4)) @ rng.normal(size=(4, 4)) + [5, 0, -3, 100]
    return pd.DataFrame(x, columns=list("abcd"))


def test_null_is_named() -> None:
    x = table()
    for model in (PCA(2), TruncatedSVD(2), FastICA(2), SparsePCA(2), GaussianRandomProjection(3)):
        model.fit(x)
        gone = x.assign(b=np.where(x.index == 4, np.nan, x["b"]))
        assert_both_raise(model, gone, MissingValueError, f"'b' has NULL.*{type(model).__name__}")


def test_the_number_of_components_that_explain_a_share() -> None:
    for components in (0.5, 0.999, "mle", 1, 4):
        assert_same(PCA(components, svd_solver="full").fit(table()), table(30, 5))


def test_whitening_a_direction_without_variance() -> None:
    x = table().assign(d=0.0)
    for components in (3, 4):
        for cls in (PCA, IncrementalPCA):
            model = cls(components, whiten=True).fit(x)
            made = scored(import_model(model), x)["transform"]
            np.testing.assert_allclose(made[:, :3], model.transform(x)[:, :3], rtol=1e-9)
            assert made.shape == (80, components)
            assert np.isfinite(made).all()


def test_without_an_inverse_covariance_there_is_no_density() -> None:
    x = table().assign(d=0.0)
    model = PCA().fit(x)
    model.explained_variance_[-1] = 0.0
    with pytest.raises(np.linalg.LinAlgError):
        model.score_samples(x)
    assert set(import_model(model).program.outputs) == {"transform"}


def test_the_density_of_a_wide_table_is_left_out() -> None:
    x = np.random.default_rng(0).normal(size=(12, 1025))
    assert set(import_model(PCA(2).fit(x)).program.outputs) == {"transform"}
    assert "samples" in import_model(PCA(2).fit(x[:, :1024])).program.outputs


def test_factors_as_many_as_columns() -> None:
    x = table()
    for components in (1, 3, None):
        assert_same(FactorAnalysis(components).fit(x), table(30, 3))


def test_sparse_components_of_every_count() -> None:
    x = table()
    for components in (1, 4, 7):
        for ridge in (0.01, 1.0):
            model = SparsePCA(components, alpha=0.1, ridge_alpha=ridge, random_state=0, max_iter=20)
            assert_same(model.fit(x), table(30, 3))


def test_components_that_depend_on_each_other_need_a_ridge() -> None:
    model = SparsePCA(2, ridge_alpha=0.0, random_state=0, max_iter=5).fit(table())
    model.components_ = np.array([[1.0, 0, 0, 0], [1.0, 0, 0, 0]])
    with pytest.raises(UnsupportedModelError, match="larger ridge_alpha"):
        import_model(model)


def test_codes_by_threshold_and_no_other_way() -> None:
    x, atoms = table(), np.eye(4)[:3]
    for split in (False, True):
        for positive in (False, True):
            for alpha in (None, 0.0, 2.5):
                coder = SparseCoder(
                    atoms,
                    transform_algorithm="threshold",
                    transform_alpha=alpha,
                    split_sign=split,
                    positive_code=positive,
                )
                assert_same(coder.fit(x), x)
    searching = SparseCoder(atoms, transform_algorithm="omp").fit(x)
    with pytest.raises(UnsupportedModelError, match="transform_algorithm='threshold'"):
        import_model(searching)
    learned = DictionaryLearning(2, alpha=0.7, max_iter=3, random_state=0).fit(x)
    with pytest.raises(UnsupportedModelError, match="'omp'.*iteration"):
        import_model(learned)
    assert_same(learned.set_params(transform_algorithm="threshold"), x)


def test_those_that_solve_a_problem_for_each_batch_are_refused() -> None:
    x = table().abs()
    for model in (NMF(2, max_iter=5), LatentDirichletAllocation(2, max_iter=1)):
        with pytest.raises(UnsupportedModelError, match="optimisation problem"):
            import_model(model.fit(x))


@pytest.mark.parametrize(
    ("step", "sparse"),
    [
        (PCA(2), False),
        (TruncatedSVD(2), False),
        (GaussianRandomProjection(2), False),
        (SparseRandomProjection(2, random_state=0), True),
        (SparseRandomProjection(2, dense_output=True, random_state=0), False),
        (StandardScaler(with_mean=False), True),
    ],
    ids=lambda v: str(v),
)
def test_what_a_sparse_matrix_becomes(step: PCA, sparse: bool) -> None:
    """The next step must know: XGBoost takes zeros that are not stored for missing values."""
    x = table().round()
    model = make_pipeline(OneHotEncoder(), step).fit(x)
    assert hasattr(model.transform(x), "toarray") == sparse

    def recurse(part: object, frame: Frame) -> Frame | Outputs:
        path = f"{type(part).__module__}.{type(part).__qualname__}"
        assert path not in COMPOSITES
        return IMPORTERS[path](part, frame)

    made = import_pipeline(model, Frame.raw(Builder(), list("abcd")), recurse)
    assert (isinstance(made, Frame) and made.sparse) == sparse
    want = model.transform(x)
    want = want.toarray() if sparse else want
    imported = import_model(model)
    assert set(imported.program.outputs) == {"transform"}  # PCA's density takes dense rows alone
    np.testing.assert_allclose(scored(imported, x)["transform"], want, rtol=1e-9, atol=1e-12)


def test_least_squares_of_one_column_and_of_several_targets() -> None:
    x = table()
    y = x.to_numpy() @ np.array([[1.0, 0], [0, 2], [1, 1], [0, 0.1]])
    assert_same(PLSRegression(1).fit(x, y[:, 0]), x)
    assert_same(PLSRegression(4).fit(x, y[:, [0]]), x)
    assert import_model(PLSRegression(2).fit(x, y)).program.output_type("label").width == 2
    assert_same(PLSRegression(1).fit(x[["a"]], y[:, 0]), x[["a"]])
    assert_same(PLSSVD(2).fit(x, y), x)


def test_projections_feed_a_model() -> None:
    x = table()
    for step in (PCA(3, whiten=True), FactorAnalysis(2), FastICA(2, random_state=0)):
        model = make_pipeline(StandardScaler(), step, LinearRegression()).fit(x, x["a"] * x["b"])
        assert_same(model, x)


def test_fitted_on_float32_they_compute_in_float64() -> None:
    x = table().astype(np.float32)
    wide = x.astype(np.float64)
    for model in (
        PCA(2, whiten=True),
        IncrementalPCA(2),
        TruncatedSVD(2),
        FactorAnalysis(2),
        FastICA(2, random_state=0),
        GaussianRandomProjection(2),
    ):
        model.fit(x)
        made = scored(import_model(model), wide)["transform"]
        np.testing.assert_allclose(made, model.transform(wide), rtol=1e-6, atol=1e-9)
