"""Feature selectors, alone and before a predictor."""

from __future__ import annotations

import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.feature_selection import (
    RFE,
    RFECV,
    GenericUnivariateSelect,
    SelectFdr,
    SelectFpr,
    SelectFromModel,
    SelectFwe,
    SelectKBest,
    SelectPercentile,
    SequentialFeatureSelector,
    VarianceThreshold,
    chi2,
    f_regression,
)
from sklearn.linear_model import Lasso, LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import (
    MinMaxScaler,
    OrdinalEncoder,
    PolynomialFeatures,
    PowerTransformer,
    SplineTransformer,
    StandardScaler,
)
from sklearn.tree import DecisionTreeClassifier

from sqlml.types import Array
from tests.contract.estimators.case import Case, gaps, numbers, positive, real, three, two
from tests.contract.estimators.preprocessing import categories, varying

BITS = frozenset({"transform"})


def texts(rows: int, seed: int) -> pd.DataFrame:
    """Three columns of strings."""
    frame = categories(rows, seed).fillna(-1)
    return frame.astype({"tied": int, "gaps": int}).astype(str)


def of_codes(table: pd.DataFrame, seed: int) -> Array:
    """Three classes that the first two columns tell apart."""
    return three(table[["tied", "gaps"]].astype(float), seed)


CASES: tuple[Case, ...] = (
    Case("SelectKBest", lambda: SelectKBest(k=2), three, bits=BITS),
    Case("SelectKBest chi2", lambda: SelectKBest(chi2, k=3), two, data=positive, bits=BITS),
    Case("SelectKBest all", lambda: SelectKBest(k="all"), three, bits=BITS),
    Case("SelectPercentile", lambda: SelectPercentile(f_regression, percentile=40), real),
    Case("SelectFpr", lambda: SelectFpr(), three, bits=BITS),
    Case("SelectFdr", lambda: SelectFdr(), three, bits=BITS),
    Case("SelectFwe", lambda: SelectFwe(), three, bits=BITS),
    *(
        Case(
            f"GenericUnivariateSelect {mode}",
            lambda m=mode, p=param: GenericUnivariateSelect(mode=m, param=p),
            three,
            bits=BITS,
        )
        for mode, param in (
            *(("percentile", 50), ("k_best", 2)),
            *(("fpr", 0.1), ("fdr", 0.1), ("fwe", 0.1)),
        )
    ),
    Case("VarianceThreshold", lambda: VarianceThreshold(), data=gaps, bits=BITS),
    Case("VarianceThreshold 1", lambda: VarianceThreshold(1.0), data=gaps, bits=BITS),
    Case("SelectFromModel", lambda: SelectFromModel(LogisticRegression(C=0.1)), two, bits=BITS),
    Case(
        "SelectFromModel most",
        lambda: SelectFromModel(
            RandomForestClassifier(9, random_state=0), threshold="0.1*mean", max_features=2
        ),
        three,
        data=gaps,
        bits=BITS,
    ),
    Case("SelectFromModel lasso", lambda: SelectFromModel(Lasso(0.1)), real, bits=BITS),
    Case(
        "SelectFromModel of strings",
        lambda: make_pipeline(
            SelectFromModel(
                make_pipeline(OrdinalEncoder(), DecisionTreeClassifier(max_depth=3)),
                importance_getter="named_steps.decisiontreeclassifier.feature_importances_",
                max_features=2,
                threshold=-1,
            ),
            OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1),
        ),
        of_codes,
        data=texts,
        bits=BITS,
    ),
    Case("RFE", lambda: RFE(LogisticRegression(), n_features_to_select=2), three),
    Case("RFE half", lambda: RFE(LinearRegression(), n_features_to_select=0.5, step=2), real),
    Case(
        "RFE of trees",
        lambda: RFE(DecisionTreeClassifier(max_depth=4, random_state=0)),
        three,
        data=gaps,
    ),
    Case("RFECV", lambda: RFECV(LogisticRegression(), cv=3, min_features_to_select=2), two),
    Case(
        "RFE in the middle",
        lambda: make_pipeline(
            StandardScaler(), RFE(Lasso(0.01), n_features_to_select=3), LinearRegression()
        ),
        real,
    ),
    Case(
        "SequentialFeatureSelector",
        lambda: SequentialFeatureSelector(
            LinearRegression(), n_features_to_select=2, cv=2, direction="backward"
        ),
        real,
        bits=BITS,
    ),
    Case(
        "SequentialFeatureSelector of NaN",
        lambda: SequentialFeatureSelector(
            HistGradientBoostingClassifier(max_iter=2), n_features_to_select=1, cv=2
        ),
        two,
        data=gaps,
        rows=100,
        bits=BITS,
    ),
    Case(
        "SelectKBest behind all kinds",
        lambda: make_pipeline(
            make_union(
                make_pipeline(MinMaxScaler(), PolynomialFeatures((2, 2))),
                SplineTransformer(4),
                PowerTransformer(),
            ),
            SelectKBest(k=9),
            LogisticRegression(max_iter=500),
        ),
        three,
        data=varying,
    ),
    Case(
        "VarianceThreshold first",
        lambda: make_pipeline(VarianceThreshold(), StandardScaler(), LogisticRegression()),
        three,
        data=numbers,
    ),
)
