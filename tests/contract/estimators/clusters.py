"""Clusterers that have a predict, as predictors and as transformers."""

from __future__ import annotations

import numpy as np
from sklearn.cluster import (
    DBSCAN,
    AffinityPropagation,
    Birch,
    BisectingKMeans,
    FeatureAgglomeration,
    KMeans,
    MeanShift,
    MiniBatchKMeans,
)
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import StandardScaler

from tests.contract.estimators.case import Case, counts, real, three, varied

CASES: tuple[Case, ...] = (
    Case("KMeans", lambda: KMeans(5, n_init=2, random_state=0)),
    Case("KMeans elkan", lambda: KMeans(4, algorithm="elkan", n_init=1, random_state=0)),
    Case("KMeans one cluster", lambda: KMeans(1, n_init=1)),
    Case("KMeans of counts", lambda: KMeans(12, n_init=1, random_state=1), data=counts),
    Case("MiniBatchKMeans", lambda: MiniBatchKMeans(6, n_init=1, random_state=0)),
    Case("BisectingKMeans", lambda: BisectingKMeans(7, random_state=0)),
    Case(
        "BisectingKMeans by size",
        lambda: BisectingKMeans(5, bisecting_strategy="largest_cluster", random_state=0),
        data=counts,
    ),
    Case("BisectingKMeans one cluster", lambda: BisectingKMeans(1)),
    Case("MeanShift", lambda: MeanShift(bandwidth=30), rows=150),
    Case("MeanShift not all", lambda: MeanShift(bandwidth=15, cluster_all=False), rows=150),
    Case("MeanShift bins", lambda: MeanShift(bandwidth=2, bin_seeding=True), data=counts),
    Case("AffinityPropagation", lambda: AffinityPropagation(random_state=0), rows=120),
    Case(
        "AffinityPropagation without centres",
        lambda: AffinityPropagation(max_iter=1, random_state=0),
        rows=60,
    ),
    Case("Birch", lambda: Birch(n_clusters=4, threshold=5.0)),
    Case("Birch subclusters", lambda: Birch(n_clusters=None, threshold=20.0)),
    Case("Birch few subclusters", lambda: Birch(n_clusters=300, threshold=20.0)),
    Case("Birch of DBSCAN", lambda: Birch(n_clusters=DBSCAN(4.0), threshold=2.0)),
    Case("KMeans scaled", lambda: make_pipeline(StandardScaler(), KMeans(3, n_init=1)), three),
    Case(
        "KMeans in the middle",
        lambda: make_pipeline(KMeans(3, n_init=1, random_state=0), LinearRegression()),
        real,
    ),
    Case(
        "KMeans beside others",
        lambda: make_pipeline(
            make_union(KMeans(3, n_init=1, random_state=0), StandardScaler()),
            StandardScaler(),
            LogisticRegression(),
        ),
        three,
    ),
    Case("FeatureAgglomeration", lambda: FeatureAgglomeration(2)),
    Case("FeatureAgglomeration max", lambda: FeatureAgglomeration(3, pooling_func=np.max)),
    Case("FeatureAgglomeration min", lambda: FeatureAgglomeration(1, pooling_func=np.min)),
    Case(
        "FeatureAgglomeration sum",
        lambda: FeatureAgglomeration(2, pooling_func=np.sum),
        data=varied,
    ),
)
