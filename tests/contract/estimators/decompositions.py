"""Decompositions, random projections and partial least squares."""

from __future__ import annotations

import numpy as np
import pandas as pd
from sklearn.cross_decomposition import CCA, PLSSVD, PLSCanonical, PLSRegression
from sklearn.decomposition import (
    PCA,
    DictionaryLearning,
    FactorAnalysis,
    FastICA,
    IncrementalPCA,
    MiniBatchDictionaryLearning,
    MiniBatchSparsePCA,
    SparseCoder,
    SparsePCA,
    TruncatedSVD,
)
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.random_projection import GaussianRandomProjection, SparseRandomProjection

from sqlml.types import Array
from tests.contract.estimators.case import Case, counts, real, three, varied


def two_targets(table: pd.DataFrame, seed: int) -> Array:
    """Two real targets that share some of the columns."""
    first = real(table, seed)
    second = real(table.iloc[:, ::-1], seed + 1)
    return np.stack([first, second - 0.5 * first], axis=1)


ATOMS = np.array([[1.0, 0, 0, 0, 0], [0, 0.6, 0.8, 0, 0], [0, 0, 0, -1.0, 0]])

CASES: tuple[Case, ...] = (
    Case("PCA", PCA, data=varied),
    Case("PCA two components", lambda: PCA(2), data=varied),
    Case("PCA whitened", lambda: PCA(3, whiten=True), data=varied),
    Case("PCA whitened on a constant", lambda: PCA(whiten=True, svd_solver="full"), rtol=1e-6),
    Case("PCA randomized", lambda: PCA(2, svd_solver="randomized", random_state=0)),
    Case("PCA arpack", lambda: PCA(2, svd_solver="arpack", random_state=0)),
    Case("PCA first", lambda: make_pipeline(StandardScaler(), PCA(2), LogisticRegression()), three),
    Case(
        "PCA of a sparse matrix",
        lambda: make_pipeline(
            OneHotEncoder(handle_unknown="ignore"), PCA(3), StandardScaler(), LinearRegression()
        ),
        real,
        counts,
    ),
    Case("IncrementalPCA", lambda: IncrementalPCA(3, batch_size=50)),
    Case("IncrementalPCA whitened", lambda: IncrementalPCA(2, whiten=True), data=varied),
    Case("TruncatedSVD", lambda: TruncatedSVD(2, random_state=0)),
    Case("TruncatedSVD arpack", lambda: TruncatedSVD(3, algorithm="arpack"), data=counts),
    Case("FastICA", lambda: FastICA(2, random_state=0), data=varied),
    Case(
        "FastICA arbitrary variance",
        lambda: FastICA(2, whiten="arbitrary-variance", random_state=0),
        data=varied,
    ),
    Case(
        "FastICA of white data",
        lambda: make_pipeline(PCA(3, whiten=True), FastICA(whiten=False, random_state=0)),
        data=varied,
    ),
    Case("FactorAnalysis", lambda: FactorAnalysis(2), data=varied),
    Case("FactorAnalysis varimax", lambda: FactorAnalysis(3, rotation="varimax"), data=varied),
    Case("SparsePCA", lambda: SparsePCA(2, random_state=0), data=varied),
    Case("SparsePCA of many components", lambda: SparsePCA(8, ridge_alpha=0.5), data=counts),
    Case("MiniBatchSparsePCA", lambda: MiniBatchSparsePCA(3, random_state=0), data=varied),
    Case(
        "DictionaryLearning",
        lambda: DictionaryLearning(3, transform_algorithm="threshold", max_iter=5, random_state=0),
        data=varied,
    ),
    Case(
        "MiniBatchDictionaryLearning",
        lambda: MiniBatchDictionaryLearning(
            4,
            transform_algorithm="threshold",
            transform_alpha=0.1,
            split_sign=True,
            max_iter=2,
            random_state=0,
        ),
        data=varied,
    ),
    Case(
        "SparseCoder",
        lambda: SparseCoder(ATOMS, transform_algorithm="threshold", positive_code=True),
        data=counts,
    ),
    Case("GaussianRandomProjection", lambda: GaussianRandomProjection(4, random_state=0)),
    Case("SparseRandomProjection", lambda: SparseRandomProjection(3, random_state=0)),
    Case(
        "SparseRandomProjection of a sparse matrix",
        lambda: make_pipeline(
            OneHotEncoder(handle_unknown="ignore"),
            SparseRandomProjection(4, random_state=0),
            StandardScaler(with_mean=False),
            LinearRegression(),
        ),
        real,
        counts,
    ),
    Case("PLSRegression", lambda: PLSRegression(2), real, varied),
    Case("PLSRegression two targets", lambda: PLSRegression(3), two_targets, varied),
    Case("PLSRegression unscaled", lambda: PLSRegression(2, scale=False), two_targets),
    Case("PLSCanonical", lambda: PLSCanonical(2), two_targets, varied),
    Case("PLSCanonical svd", lambda: PLSCanonical(2, algorithm="svd"), two_targets, varied),
    Case("CCA", lambda: CCA(2), two_targets, varied),
    Case("PLSSVD", lambda: PLSSVD(2), two_targets, varied),
)
