"""Imputers, and the indicator of what is missing."""

from __future__ import annotations

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, KNNImputer, MissingIndicator, SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline, make_union
from sklearn.tree import DecisionTreeRegressor

from tests.contract.estimators.case import Case, counts, gaps, three


def emptied(rows: int, seed: int) -> pd.DataFrame:
    """`gaps` with a column that is all missing in training (seed 0), and not always later."""
    frame = gaps(rows, seed)
    if seed == 0:
        frame["narrow"] = np.nan
    return frame


def few(rows: int, seed: int) -> pd.DataFrame:
    """Small whole numbers with gaps: many rows are equally near."""
    frame = counts(rows, seed)
    return frame.mask(np.random.default_rng(seed + 3).random(frame.shape) < 0.25)


def marked(rows: int, seed: int) -> pd.DataFrame:
    """-1 stands for what is missing."""
    return few(rows, seed).fillna(-1.0)


BITS = frozenset({"transform"})

CASES: tuple[Case, ...] = (
    Case("MissingIndicator all", lambda: MissingIndicator(features="all"), data=gaps, bits=BITS),
    Case("MissingIndicator", lambda: MissingIndicator(error_on_new=False), data=gaps, bits=BITS),
    Case("MissingIndicator no more", lambda: MissingIndicator(), data=gaps, bits=BITS),
    Case("MissingIndicator sparse", lambda: MissingIndicator(sparse=True), data=gaps),
    Case("MissingIndicator of -1", lambda: MissingIndicator(missing_values=-1), data=marked),
    Case(
        "MissingIndicator beside",
        lambda: make_pipeline(
            make_union(SimpleImputer(), MissingIndicator(features="all")), LogisticRegression()
        ),
        three,
        data=gaps,
    ),
    Case("KNNImputer", lambda: KNNImputer(), data=gaps),
    Case(
        "KNNImputer distance",
        lambda: KNNImputer(n_neighbors=3, weights="distance"),
        data=gaps,
        rtol=1e-4,  # the distance to a row of the training is nothing but rounding
        torch_rtol=1e-4,
    ),
    Case("KNNImputer of ties", lambda: KNNImputer(n_neighbors=4), data=few),
    Case(
        "KNNImputer distance of ties",
        lambda: KNNImputer(n_neighbors=7, weights="distance", add_indicator=True),
        data=few,
    ),
    Case(
        "KNNImputer of -1", lambda: KNNImputer(missing_values=-1, add_indicator=True), data=marked
    ),
    Case("KNNImputer empty", lambda: KNNImputer(add_indicator=True), data=emptied),
    Case("KNNImputer empty kept", lambda: KNNImputer(keep_empty_features=True), data=emptied),
    Case("KNNImputer many", lambda: KNNImputer(n_neighbors=500), data=gaps, rows=100),
    Case("IterativeImputer", lambda: IterativeImputer(max_iter=4, random_state=0), data=gaps),
    Case(
        "IterativeImputer bounded",
        lambda: IterativeImputer(
            Ridge(),
            max_iter=3,
            min_value=-1,
            max_value=[10, 1, 1, 8, 5, 0.5],
            initial_strategy="median",
            imputation_order="descending",
            add_indicator=True,
            random_state=0,
        ),
        data=gaps,
    ),
    Case(
        "IterativeImputer of trees",
        lambda: IterativeImputer(
            DecisionTreeRegressor(max_depth=3, random_state=0),
            max_iter=2,
            imputation_order="random",
            n_nearest_features=2,
            random_state=0,
        ),
        data=few,
    ),
    Case(
        "IterativeImputer complete",
        lambda: IterativeImputer(
            LinearRegression(),
            max_iter=2,
            skip_complete=True,
            initial_strategy="constant",
            fill_value=2,
            imputation_order="roman",
        ),
        data=gaps,
    ),
    Case(
        "IterativeImputer of boosting",
        lambda: IterativeImputer(
            HistGradientBoostingRegressor(max_iter=3), max_iter=1, imputation_order="arabic"
        ),
        data=gaps,
        rows=80,
    ),
    Case(
        "IterativeImputer empty",
        lambda: IterativeImputer(LinearRegression(), max_iter=2, add_indicator=True),
        data=emptied,
    ),
    Case(
        "IterativeImputer of -1",
        lambda: IterativeImputer(LinearRegression(), missing_values=-1, max_iter=2),
        data=marked,
    ),
    Case("IterativeImputer no round", lambda: IterativeImputer(max_iter=0), data=gaps),
    Case(
        "IterativeImputer first",
        lambda: make_pipeline(IterativeImputer(max_iter=2), LogisticRegression()),
        three,
        data=gaps,
    ),
)
