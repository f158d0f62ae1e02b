"""A hypothesis strategy of scikit-learn pipelines: random transformers before a random model.

What is drawn is a `Recipe`, small values that hypothesis can shrink and print; `build` makes the
unfitted pipeline of it, `table` and `target` the data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import pandas as pd
from hypothesis import strategies as st
from sklearn import (
    cluster,
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
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import FeatureUnion, Pipeline

from sqlml.types import Array
from tests.support.oracles import CITIES, PLANS, classes

Make = Callable[[], Any]

NUMBERS = ["age", "income", "ratio", "visits", "level", "active", "constant", "zip"]
STRINGS = ["city", "plan"]

IMPUTERS: Mapping[str, Make] = MappingProxyType(
    {
        "mean": impute.SimpleImputer,
        "median+indicator": lambda: impute.SimpleImputer(strategy="median", add_indicator=True),
        "frequent": lambda: impute.SimpleImputer(strategy="most_frequent"),
        "constant": lambda: impute.SimpleImputer(strategy="constant", fill_value=-1.0),
        "knn": lambda: impute.KNNImputer(n_neighbors=3),
    }
)
"""What leaves no NaN behind."""

WITH_GAPS: Mapping[str, Make] = MappingProxyType(
    {
        "standard": preprocessing.StandardScaler,
        "standard without mean": lambda: preprocessing.StandardScaler(with_mean=False),
        "minmax": preprocessing.MinMaxScaler,
        "minmax clipped": lambda: preprocessing.MinMaxScaler((-2, 3), clip=True),
        "maxabs": preprocessing.MaxAbsScaler,
        "robust": preprocessing.RobustScaler,
        "power": preprocessing.PowerTransformer,
        "quantile": lambda: preprocessing.QuantileTransformer(n_quantiles=20),
        "arctan": lambda: preprocessing.FunctionTransformer(np.arctan, validate=True),
    }
)
"""Scalers and the like, which let NaN pass."""

WITHOUT_GAPS: Mapping[str, Make] = MappingProxyType(
    {
        "polynomial": lambda: preprocessing.PolynomialFeatures(2, include_bias=False),
        "interactions": lambda: preprocessing.PolynomialFeatures(2, interaction_only=True),
        "bins": lambda: preprocessing.KBinsDiscretizer(4, encode="onehot-dense"),
        "ordinal bins": lambda: preprocessing.KBinsDiscretizer(5, encode="ordinal"),
        "splines": lambda: preprocessing.SplineTransformer(n_knots=4, degree=2),
        "l2": preprocessing.Normalizer,
        "l1": lambda: preprocessing.Normalizer(norm="l1"),
        "binarizer": lambda: preprocessing.Binarizer(threshold=0.5),
        "pca": lambda: decomposition.PCA(3),
        "whitened pca": lambda: decomposition.PCA(2, whiten=True),
        "svd": lambda: decomposition.TruncatedSVD(2, random_state=0),
        "variance": lambda: feature_selection.VarianceThreshold(0.0),
        "kmeans": lambda: cluster.KMeans(3, n_init=1, random_state=0),
        "union": lambda: FeatureUnion(
            [("pca", decomposition.PCA(2)), ("scaled", preprocessing.StandardScaler())]
        ),
    }
)

CATEGORIES: Mapping[str, Make] = MappingProxyType(
    {
        "one hot": lambda: preprocessing.OneHotEncoder(handle_unknown="ignore"),
        "one hot dropped": lambda: preprocessing.OneHotEncoder(
            handle_unknown="ignore", drop="first", sparse_output=False
        ),
        "one hot infrequent": lambda: preprocessing.OneHotEncoder(
            handle_unknown="infrequent_if_exist", min_frequency=9
        ),
        "ordinal": lambda: preprocessing.OrdinalEncoder(
            handle_unknown="use_encoded_value", unknown_value=-1, encoded_missing_value=-2
        ),
        "imputed one hot": lambda: Pipeline(
            [
                ("fill", impute.SimpleImputer(strategy="constant", fill_value="none")),
                ("hot", preprocessing.OneHotEncoder(handle_unknown="ignore")),
            ]
        ),
        "target": lambda: preprocessing.TargetEncoder(cv=3, random_state=0),
        "strict": preprocessing.OneHotEncoder,
    }
)

SELECTORS: Mapping[str, Make | None] = MappingProxyType(
    {
        "none": None,
        "best": lambda: feature_selection.SelectKBest(k=3),
        "percentile": lambda: feature_selection.SelectPercentile(percentile=40),
        "from model": lambda: feature_selection.SelectFromModel(
            tree.DecisionTreeClassifier(max_depth=3, random_state=0)
        ),
    }
)

CLASSIFIERS: Mapping[str, Make] = MappingProxyType(
    {
        "logistic": linear_model.LogisticRegression,
        "sgd": lambda: linear_model.SGDClassifier(loss="log_loss", random_state=0),
        "ridge": linear_model.RidgeClassifier,
        "linear svc": lambda: svm.LinearSVC(random_state=0),
        "svc": lambda: svm.SVC(decision_function_shape="ovr"),
        "svc poly": lambda: svm.SVC(kernel="poly", degree=2),
        "gaussian nb": naive_bayes.GaussianNB,
        "bernoulli nb": lambda: naive_bayes.BernoulliNB(binarize=0.3),
        "lda": discriminant_analysis.LinearDiscriminantAnalysis,
        "knn": lambda: neighbors.KNeighborsClassifier(3),
        "knn weighted": lambda: neighbors.KNeighborsClassifier(4, weights="distance", p=1),
        "centroid": neighbors.NearestCentroid,
        "mlp": lambda: neural_network.MLPClassifier((5,), max_iter=20, random_state=0),
        "tree": lambda: tree.DecisionTreeClassifier(max_depth=5, random_state=0),
        "forest": lambda: ensemble.RandomForestClassifier(5, max_depth=4, random_state=0),
        "extra trees": lambda: ensemble.ExtraTreesClassifier(5, max_depth=4, random_state=0),
        "boosting": lambda: ensemble.GradientBoostingClassifier(n_estimators=4, random_state=0),
        "hist boosting": lambda: ensemble.HistGradientBoostingClassifier(
            max_iter=4, min_samples_leaf=5
        ),
        "adaboost": lambda: ensemble.AdaBoostClassifier(n_estimators=4, random_state=0),
        "bagging": lambda: ensemble.BaggingClassifier(n_estimators=3, random_state=0),
        "voting": lambda: ensemble.VotingClassifier(
            [
                ("a", linear_model.LogisticRegression()),
                ("b", tree.DecisionTreeClassifier(max_depth=2, random_state=0)),
            ],
            voting="soft",
        ),
        "stacking": lambda: ensemble.StackingClassifier(
            [
                ("a", linear_model.LogisticRegression()),
                ("b", tree.DecisionTreeClassifier(max_depth=2, random_state=0)),
            ],
            cv=2,
        ),
    }
)

REGRESSORS: Mapping[str, Make] = MappingProxyType(
    {
        "linear": linear_model.LinearRegression,
        "ridge": linear_model.Ridge,
        "lasso": lambda: linear_model.Lasso(0.05),
        "huber": linear_model.HuberRegressor,
        "bayesian ridge": linear_model.BayesianRidge,
        "svr": svm.SVR,
        "linear svr": lambda: svm.LinearSVR(random_state=0),
        "knn": lambda: neighbors.KNeighborsRegressor(3),
        "mlp": lambda: neural_network.MLPRegressor((5,), max_iter=20, random_state=0),
        "tree": lambda: tree.DecisionTreeRegressor(max_depth=5, random_state=0),
        "forest": lambda: ensemble.RandomForestRegressor(5, max_depth=4, random_state=0),
        "boosting": lambda: ensemble.GradientBoostingRegressor(n_estimators=4, random_state=0),
        "hist boosting": lambda: ensemble.HistGradientBoostingRegressor(
            max_iter=4, min_samples_leaf=5
        ),
        "adaboost": lambda: ensemble.AdaBoostRegressor(n_estimators=3, random_state=0),
    }
)

GAP_TAKERS = frozenset(("tree", "forest", "extra trees", "hist boosting", "bagging"))
"""Models that take NaN themselves."""

Task = Literal["two", "three", "real"]


@dataclass(frozen=True)
class Recipe:
    """One pipeline: names into the tables above."""

    seed: int
    task: Task
    labels: Literal["string", "int64", "bool"]
    columns: tuple[str, ...]
    gaps: tuple[str, ...]
    imputer: str | None
    dense: tuple[str, ...]
    strings: str | None
    remainder: Literal["drop", "passthrough"]
    selector: str
    model: str
    objects: bool


@st.composite
def recipes(draw: st.DrawFn) -> Recipe:
    """Recipes in which nothing that refuses NaN stands behind a gap."""
    task: Task = draw(st.sampled_from(["two", "three", "real"]))
    model = draw(st.sampled_from(list(REGRESSORS if task == "real" else CLASSIFIERS)))
    takes_gaps = model in GAP_TAKERS and draw(st.booleans())
    imputer = None if takes_gaps else draw(st.sampled_from(list(IMPUTERS)))
    dense: tuple[str, ...] = ()
    if imputer is not None:
        dense = tuple(draw(st.lists(st.sampled_from(list(WITHOUT_GAPS)), max_size=2)))
    strings = draw(st.none() | st.sampled_from(list(CATEGORIES)))
    return Recipe(
        seed=draw(st.integers(0, 10_000)),
        task=task,
        labels="int64" if task == "real" else draw(st.sampled_from(["string", "int64", "bool"])),
        columns=tuple(draw(st.lists(st.sampled_from(NUMBERS), min_size=3, unique=True))),
        gaps=tuple(draw(st.lists(st.sampled_from(list(WITH_GAPS)), max_size=2))),
        imputer=imputer,
        dense=dense,
        strings=strings,
        remainder=draw(st.sampled_from(["drop", "passthrough"])) if not takes_gaps else "drop",
        selector="none" if takes_gaps else draw(st.sampled_from(list(SELECTORS))),
        model=model,
        # SimpleImputer fills NaN alone and leaves None, for which SQL has no other word.
        objects=strings != "imputed one hot" and draw(st.booleans()),
    )


def build(recipe: Recipe) -> Pipeline:
    """The unfitted pipeline."""
    steps: list[Any] = [WITH_GAPS[n]() for n in recipe.gaps]
    steps += [IMPUTERS[recipe.imputer]()] if recipe.imputer else []
    steps += [WITHOUT_GAPS[n]() for n in recipe.dense]
    parts: list[Any] = []
    if steps:
        parts.append(("numbers", _chain(steps), list(recipe.columns)))
    else:
        parts.append(("numbers", "passthrough", list(recipe.columns)))
    if recipe.strings is not None:
        parts.append(("strings", CATEGORIES[recipe.strings](), STRINGS))
    # What remains is whole: the columns without gaps.
    table: list[Any] = [
        ("columns", ColumnTransformer(parts, remainder=recipe.remainder, sparse_threshold=0))
    ]
    selector = SELECTORS[recipe.selector]
    table += [("selector", selector())] if selector and recipe.task != "real" else []
    models = REGRESSORS if recipe.task == "real" else CLASSIFIERS
    return Pipeline([*table, ("model", models[recipe.model]())])


def _chain(steps: list[Any]) -> Pipeline:
    return Pipeline([(f"s{i}", step) for i, step in enumerate(steps)])


def table(recipe: Recipe, rows: int, seed: int, unseen: bool) -> pd.DataFrame:
    """Rows of the columns that the pipeline gets; `unseen` adds categories that no fit has met."""
    rng = np.random.default_rng((recipe.seed, seed))

    def gone(values: Array) -> Array:
        return np.where(rng.random(rows) < 0.15, np.nan, values)

    extra = ("Bonn", "") if unseen else ()

    def text(values: tuple[str, ...]) -> pd.Series:
        drawn = rng.choice(np.array([*values, *extra], object), rows)
        drawn[rng.random(rows) < 0.1] = None
        return pd.Series(drawn, dtype=object if recipe.objects else "str")

    frame = pd.DataFrame(
        {
            "age": gone(rng.integers(18, 60, rows).astype(float)),
            "income": gone(np.round(rng.lognormal(3, 1, rows), 2)),
            "ratio": rng.random(rows),
            "visits": rng.integers(-3, 20, rows),
            "level": rng.integers(0, 4, rows),
            "active": rng.random(rows) < 0.5,
            "constant": np.full(rows, 7.25),
            "zip": rng.choice(np.array([3000, 8001, 8002, 9000]), rows),
        }
    )
    kept = [*recipe.columns]
    if recipe.remainder == "passthrough":
        kept += [c for c in ("ratio", "level", "zip") if c not in kept]
    frame = frame[kept]
    if recipe.strings is not None:
        frame["city"], frame["plan"] = text(CITIES[:4]), text(PLANS)
    return frame


def target(recipe: Recipe, frame: pd.DataFrame) -> Array:
    """A target that depends on the columns, with noise."""
    rng = np.random.default_rng((recipe.seed, 99))
    x = frame[[c for c in frame.columns if c not in STRINGS]].to_numpy(float)
    scaled = np.nan_to_num((x - np.nanmean(x, 0)) / (np.nanstd(x, 0) + 1e-9))
    score = scaled @ rng.normal(0, 1, x.shape[1]) + rng.normal(0, 0.3, len(frame))
    if recipe.task == "real":
        return np.asarray(score)
    cuts = [0.5] if recipe.task == "two" or recipe.labels == "bool" else [0.35, 0.7]
    codes = np.searchsorted(np.quantile(score, cuts), score)
    return classes(recipe.labels, codes)
