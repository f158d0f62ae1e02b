"""Nearest neighbours: metrics, searches, weights, ties among whole numbers, radius, density."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
from sklearn.neighbors import (
    KernelDensity,
    KNeighborsClassifier,
    KNeighborsRegressor,
    LocalOutlierFactor,
    NearestCentroid,
    NeighborhoodComponentsAnalysis,
    RadiusNeighborsClassifier,
    RadiusNeighborsRegressor,
)

from sqlml.types import Array
from tests.contract.estimators.case import Case, counts, numbers, positive, real, three, two


def scaled(rows: int, seed: int) -> pd.DataFrame:
    """`numbers` with all columns of about the same size."""
    frame = numbers(rows, seed)
    return frame.assign(
        wide=frame["wide"] / 40, narrow=frame["narrow"] * 10, whole=frame["whole"] / 10
    )


def quarters(rows: int, seed: int) -> pd.DataFrame:
    """Two columns of few values, so that most distances are shared by several points."""
    rng = np.random.default_rng(seed)
    return pd.DataFrame(rng.integers(-6, 7, (rows, 2)) / 4, columns=["x", "y"])


def _constant(table: pd.DataFrame, seed: int) -> Array:
    """A single class."""
    return np.zeros(len(table), np.int64)


def pair(table: pd.DataFrame, seed: int) -> Array:
    """Two real targets."""
    first = real(table, seed)
    return np.stack([first, -3 * first**2], axis=1)


COVARIANCE = np.diag([1.0, 2.0, 0.5, 1.0, 3.0, 0.25]) + 0.1

METRICS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "manhattan": {"metric": "manhattan"},
        "chebyshev": {"metric": "chebyshev"},
        "minkowski-3": {"p": 3},
        "weighted": {"metric_params": {"w": [1.0, 2, 0.5, 1, 3, 0]}},
        "seuclidean": {
            "metric": "seuclidean",
            "metric_params": {"V": [1.0, 2.0, 0.5, 1.0, 3.0, 0.25]},
        },
        "mahalanobis": {"metric": "mahalanobis", "metric_params": {"V": COVARIANCE}},
        "mahalanobis-brute": {
            "metric": "mahalanobis",
            "algorithm": "brute",
            "metric_params": {"VI": np.linalg.inv(COVARIANCE)},
        },
        "canberra": {"metric": "canberra"},
        "braycurtis": {"metric": "braycurtis", "algorithm": "brute"},
        "cosine": {"metric": "cosine", "algorithm": "brute"},
        "sqeuclidean": {"metric": "sqeuclidean", "algorithm": "brute"},
        "half": {"p": 0.5, "algorithm": "brute"},
    }
)

SEARCHES = ("brute", "kd_tree", "ball_tree")


def _with(cls: Callable[..., Any], *args: Any, **parameters: Any) -> Callable[[], Any]:
    return lambda: cls(*args, **parameters)


CASES: tuple[Case, ...] = (
    Case("KNN", KNeighborsClassifier, three, labels=("string", "int64", "float64")),
    Case("KNN-two", KNeighborsClassifier, two, labels=("bool",)),
    *(
        # Up to 256 points the source's brute search breaks ties alike with any number of threads.
        Case(f"KNN-{name}", _with(KNeighborsClassifier, 7, **given), three, scaled, rows=200)
        for name, given in METRICS.items()
    ),
    *(
        Case(
            f"KNN-ties-{search}",
            _with(KNeighborsClassifier, 4, algorithm=search, leaf_size=5),
            three,
            quarters,
            rows=200,
        )
        for search in SEARCHES
    ),
    *(
        Case(
            f"KNN-weights-{search}",
            _with(KNeighborsClassifier, 6, weights="distance", algorithm=search),
            three,
            counts,
            rows=200,
        )
        for search in SEARCHES
    ),
    Case(
        "KNN-hamming",
        _with(KNeighborsClassifier, 3, metric="hamming", algorithm="brute"),
        three,
        counts,
    ),
    Case("KNN-regressor", KNeighborsRegressor, real),
    Case("KNN-regressor-pair", KNeighborsRegressor, pair),
    Case("KNN-regressor-weights", _with(KNeighborsRegressor, weights="distance"), pair, scaled),
    *(
        Case(
            f"KNN-regressor-ties-{search}",
            _with(KNeighborsRegressor, 5, weights="distance", algorithm=search, leaf_size=3),
            real,
            quarters,
            rows=200,
        )
        for search in SEARCHES
    ),
    *(
        Case(
            f"KNN-regressor-{name}",
            _with(KNeighborsRegressor, 3, weights="distance", **METRICS[name]),
            real,
            scaled,
        )
        for name in ("manhattan", "minkowski-3", "cosine", "mahalanobis", "mahalanobis-brute")
    ),
    Case("NearestCentroid", NearestCentroid, three),
    Case("NearestCentroid-two", NearestCentroid, two),
    Case("NearestCentroid-manhattan", _with(NearestCentroid, metric="manhattan"), three),
    Case("NearestCentroid-shrunk", _with(NearestCentroid, shrink_threshold=0.5), three, scaled),
    Case("NearestCentroid-priors", _with(NearestCentroid, priors="empirical"), three, scaled),
    Case(
        "NearestCentroid-manhattan-priors",
        _with(NearestCentroid, metric="manhattan", priors=[0.2, 0.5, 0.3]),
        three,
        scaled,
    ),
    Case("LOF", _with(LocalOutlierFactor, novelty=True), None, scaled),
    Case(
        "LOF-manhattan",
        _with(LocalOutlierFactor, 7, novelty=True, metric="manhattan", contamination=0.1),
        None,
        scaled,
    ),
    Case("Radius", _with(RadiusNeighborsClassifier, 4.0), three, scaled),
    Case("Radius-one-class", _with(RadiusNeighborsClassifier, 4.0), _constant, scaled),
    Case("KNN-one-class", _with(KNeighborsClassifier, 3), _constant, scaled),
    Case(
        "Radius-outliers",
        _with(RadiusNeighborsClassifier, 0.5, outlier_label="most_frequent"),
        three,
        scaled,
    ),
    *(
        Case(
            f"Radius-edge-{search}",
            _with(
                RadiusNeighborsClassifier,
                0.5,
                weights="distance",
                algorithm=search,
                outlier_label="most_frequent",
            ),
            three,
            quarters,
            rows=200,
        )
        for search in SEARCHES
    ),
    Case("Radius-regressor", _with(RadiusNeighborsRegressor, 1.0), pair, scaled),
    Case(
        "Radius-regressor-manhattan",
        _with(RadiusNeighborsRegressor, 2.0, weights="distance", metric="manhattan"),
        real,
        scaled,
    ),
    Case("Radius-regressor-3", _with(RadiusNeighborsRegressor, 1.25, p=3), real, quarters),
    *(
        Case(f"KDE-{kernel}", _with(KernelDensity, kernel=kernel, bandwidth=0.75), None, quarters)
        for kernel in ("gaussian", "tophat", "epanechnikov", "exponential", "linear", "cosine")
    ),
    # The source adds and subtracts the bounds of its nodes, so far from all points its own density
    # is rounding noise: 1e-16 of the bounds.
    Case(
        "KDE-scott",
        _with(KernelDensity, bandwidth="scott", metric="manhattan"),
        None,
        quarters,
        rtol=1e-7,
    ),
    Case(
        "NCA",
        _with(NeighborhoodComponentsAnalysis, 2, random_state=0, max_iter=5),
        three,
        positive,
        rows=80,
    ),
)
