"""Random pipelines in the manner of OpenML-CC18: `draw` makes one from a seed.

Hummingbird's section 6.3 scores 2317 of them. The shapes follow what it says of the data sets (rows
scored: median 462, at most 19264; columns: 4 to 3072, median 30) and the steps what such pipelines
are made of: imputers and encoders, a scaler, a selection or projection, and a classifier, or here
and there a regressor; 3.3 operators on average.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from sklearn import (
    compose,
    decomposition,
    discriminant_analysis,
    ensemble,
    feature_selection,
    impute,
    linear_model,
    naive_bayes,
    neighbors,
    neural_network,
    preprocessing,
    svm,
    tree,
)
from sklearn.pipeline import Pipeline, make_pipeline

Random = np.random.Generator
Make = Callable[[Random], Any]

IMPUTERS: Sequence[Make] = (
    lambda r: impute.SimpleImputer(),
    lambda r: impute.SimpleImputer(strategy="median"),
    lambda r: impute.SimpleImputer(strategy="most_frequent"),
    lambda r: impute.SimpleImputer(add_indicator=True),
)
ENCODERS: Sequence[Make] = (
    lambda r: preprocessing.OneHotEncoder(handle_unknown="ignore"),
    lambda r: preprocessing.OneHotEncoder(handle_unknown="ignore", sparse_output=False),
    lambda r: preprocessing.OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1),
)
SCALERS: Sequence[Make] = (
    lambda r: preprocessing.StandardScaler(),
    lambda r: preprocessing.MinMaxScaler(),
    lambda r: preprocessing.MaxAbsScaler(),
    lambda r: preprocessing.RobustScaler(),
    lambda r: preprocessing.Normalizer(),
    lambda r: preprocessing.Binarizer(),
    lambda r: preprocessing.KBinsDiscretizer(5, encode="ordinal", quantile_method="linear"),
    lambda r: preprocessing.QuantileTransformer(n_quantiles=100),
)
SELECTIONS: Sequence[Make] = (
    lambda r: feature_selection.VarianceThreshold(),
    lambda r: feature_selection.SelectPercentile(percentile=int(r.integers(20, 90))),
    lambda r: feature_selection.SelectKBest(k=int(r.integers(2, 5))),
    lambda r: decomposition.PCA(n_components=float(r.uniform(0.6, 0.99)), svd_solver="full"),
    lambda r: decomposition.TruncatedSVD(3, random_state=0),
    lambda r: preprocessing.PolynomialFeatures(interaction_only=bool(r.integers(0, 2))),
)
CLASSIFIERS: Sequence[Make] = (
    lambda r: linear_model.LogisticRegression(C=float(10 ** r.uniform(-2, 2))),
    lambda r: linear_model.SGDClassifier(random_state=0),
    lambda r: linear_model.RidgeClassifier(),
    lambda r: linear_model.Perceptron(random_state=0),
    lambda r: svm.LinearSVC(random_state=0),
    lambda r: svm.SVC(C=float(10 ** r.uniform(-1, 2)), random_state=0),
    lambda r: svm.SVC(kernel="poly", random_state=0),
    lambda r: naive_bayes.GaussianNB(),
    lambda r: naive_bayes.BernoulliNB(),
    lambda r: neighbors.KNeighborsClassifier(int(r.integers(1, 12))),
    lambda r: neighbors.NearestCentroid(),
    lambda r: discriminant_analysis.LinearDiscriminantAnalysis(),
    lambda r: discriminant_analysis.QuadraticDiscriminantAnalysis(reg_param=0.1),
    lambda r: neural_network.MLPClassifier((int(r.integers(8, 128)),), max_iter=30, random_state=0),
    lambda r: tree.DecisionTreeClassifier(max_depth=_depth(r), random_state=0),
    lambda r: ensemble.RandomForestClassifier(_trees(r), max_depth=_depth(r), random_state=0),
    lambda r: ensemble.ExtraTreesClassifier(_trees(r), max_depth=_depth(r), random_state=0),
    lambda r: ensemble.GradientBoostingClassifier(n_estimators=_trees(r) // 4 + 5, random_state=0),
    lambda r: ensemble.HistGradientBoostingClassifier(max_iter=_trees(r) // 2 + 5, random_state=0),
    lambda r: ensemble.AdaBoostClassifier(n_estimators=_trees(r) // 4 + 5, random_state=0),
    lambda r: ensemble.BaggingClassifier(random_state=0),
)
REGRESSORS: Sequence[Make] = (
    lambda r: linear_model.LinearRegression(),
    lambda r: linear_model.Ridge(),
    lambda r: linear_model.Lasso(alpha=0.01),
    lambda r: svm.SVR(),
    lambda r: neighbors.KNeighborsRegressor(int(r.integers(1, 12))),
    lambda r: neural_network.MLPRegressor((32,), max_iter=30, random_state=0),
    lambda r: tree.DecisionTreeRegressor(max_depth=_depth(r), random_state=0),
    lambda r: ensemble.RandomForestRegressor(_trees(r), max_depth=_depth(r), random_state=0),
    lambda r: ensemble.GradientBoostingRegressor(n_estimators=_trees(r), random_state=0),
)
REGRESSIONS = 0.15
"""The share of pipelines that end in a regressor; the paper's are all classifiers."""
TRAINING_ROWS = 1_500


@dataclass(frozen=True, slots=True)
class Drawn:
    """An unfitted pipeline, rows to fit it on, and rows to score: a frame, or an array of numbers
    only."""

    pipeline: Pipeline
    train: pd.DataFrame | np.ndarray[Any, Any]
    target: np.ndarray[Any, Any]
    test: pd.DataFrame | np.ndarray[Any, Any]
    classifies: bool

    @property
    def steps(self) -> str:
        """The names of its operators, in order."""
        return " > ".join(_names(self.pipeline))


def draw(seed: Sequence[int], *, most_rows: int = 19_264, most_columns: int = 300) -> Drawn:
    """The pipeline and table of a seed; fitting it may fail, as it may in OpenML."""
    r = np.random.default_rng(seed)
    rows = int(np.clip(462 * np.exp(1.3 * r.normal()), 20, most_rows))
    columns = int(np.clip(30 * np.exp(1.0 * r.normal()), 4, most_columns))
    categories = int(r.integers(1, max(2, columns // 2))) if r.random() < 0.5 else 0
    missing = bool(r.random() < 0.5)
    classifies = bool(r.random() >= REGRESSIONS)
    frame = _frame(r, rows + TRAINING_ROWS, columns - categories, categories, missing)
    target = _target(r, frame, classifies)
    pipeline = _pipeline(r, list(frame), categories, missing, classifies)
    as_array = not categories and r.random() < 0.5
    table = frame.to_numpy() if as_array else frame
    return Drawn(pipeline, table[:TRAINING_ROWS], target, table[TRAINING_ROWS:], classifies)


def _frame(r: Random, rows: int, numbers: int, categories: int, missing: bool) -> pd.DataFrame:
    values = r.normal(size=(rows, numbers)) * np.exp(r.normal(size=numbers)) + r.normal(
        size=numbers
    )
    counts = r.random(numbers) < 0.3
    values[:, counts] = np.rint(2 * values[:, counts])
    if missing:
        values[r.random(values.shape) < 0.05] = np.nan
    made: dict[str, Any] = {f"n{i}": values[:, i] for i in range(numbers)}
    for i in range(categories):
        names = np.array([f"v{j}" for j in range(int(r.integers(2, 15)))], object)
        made[f"c{i}"] = names[np.minimum(r.geometric(0.3, rows) - 1, len(names) - 1)]
    return pd.DataFrame(made)


def _target(r: Random, frame: pd.DataFrame, classifies: bool) -> np.ndarray[Any, Any]:
    numbers = np.nan_to_num(frame.select_dtypes("number").to_numpy())[:, :8]
    signal = numbers @ r.normal(size=numbers.shape[1]) + np.sin(2 * numbers[:, 0])
    if "c0" in frame:
        signal = signal + 2.0 * (frame["c0"] == "v0").to_numpy()
    signal = (signal + r.normal(scale=0.5 * signal.std() + 1e-9, size=len(signal)))[:TRAINING_ROWS]
    if not classifies:
        return np.asarray(signal)
    count = 2 if r.random() < 0.6 else int(r.integers(3, 11))
    classes = np.digitize(signal, np.quantile(signal, np.arange(1, count) / count))
    if r.random() < 0.5:
        return np.asarray(classes)
    return np.asarray(np.asarray([f"class {c}" for c in range(count)])[classes])


def _pipeline(
    r: Random, columns: Sequence[str], categories: int, missing: bool, classifies: bool
) -> Pipeline:
    imputers = [_one(r, IMPUTERS)] if missing or r.random() < 0.3 else []
    scalers = [_one(r, SCALERS)] if r.random() < 0.6 else []
    selections = [_one(r, SELECTIONS)] if r.random() < 0.4 else []
    if len(columns) > 40:  # thousands of products are another benchmark
        selections = [s for s in selections if not isinstance(s, preprocessing.PolynomialFeatures)]
    if isinstance(selections[0] if selections else None, feature_selection.SelectKBest):
        selections[0].set_params(k=min(int(r.integers(3, 30)), len(columns)))
    if not classifies:
        for step in selections:
            if "score_func" in step.get_params():
                step.set_params(score_func=feature_selection.f_regression)
    last = _one(r, CLASSIFIERS if classifies else REGRESSORS)
    if not categories:
        return make_pipeline(*imputers, *scalers, *selections, last)
    texts = [name for name in columns if name.startswith("c")]
    numbers = [name for name in columns if not name.startswith("c")]
    for_numbers = make_pipeline(*imputers, *scalers) if imputers or scalers else "passthrough"
    both = compose.make_column_transformer((for_numbers, numbers), (_one(r, ENCODERS), texts))
    return make_pipeline(both, *selections, last)


def _one(r: Random, makes: Sequence[Make]) -> Any:
    return makes[int(r.integers(len(makes)))](r)


def _depth(r: Random) -> int | None:
    return None if r.random() < 0.4 else int(r.integers(2, 12))


def _trees(r: Random) -> int:
    return int(np.exp(r.uniform(np.log(10), np.log(200))))


def _names(step: Any) -> list[str]:
    if isinstance(step, Pipeline):
        return [name for _, inner in step.steps for name in _names(inner)]
    if isinstance(step, compose.ColumnTransformer):
        return [name for _, inner, _ in step.transformers for name in _names(inner)]
    return [] if isinstance(step, str) else [type(step).__name__]
