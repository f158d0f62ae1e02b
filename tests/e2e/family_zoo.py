"""One or two small models of every family of estimators, fitted on `model_zoo.people`.

`FAMILIES` names them. The contract suite compares each estimator with its library in every
variant; these are scored in SQL, where NULLs, decimals, booleans and strings come from a table.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any

import catboost as cb
import lightgbm as lgb
import numpy as np
import pandas as pd
import xgboost as xgb
from sklearn import (
    calibration,
    cluster,
    cross_decomposition,
    decomposition,
    discriminant_analysis,
    dummy,
    ensemble,
    feature_selection,
    gaussian_process,
    kernel_approximation,
    kernel_ridge,
    linear_model,
    mixture,
    model_selection,
    multiclass,
    multioutput,
    naive_bayes,
    neighbors,
    neural_network,
    preprocessing,
    random_projection,
    semi_supervised,
    svm,
)
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor, make_column_transformer
from sklearn.experimental import enable_iterative_imputer  # noqa: F401  # its import is its use
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.impute import IterativeImputer, KNNImputer, MissingIndicator, SimpleImputer
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from tests.e2e import model_zoo
from tests.e2e.model_zoo import NUMBERS, TEXT, WHOLE

GAPPED = ["age", "share", "visits", "price"]
"""DOUBLE, FLOAT, INTEGER and DECIMAL, with NULLs in each."""


@dataclass(frozen=True, slots=True)
class Family:
    """How a model is made and asked.

    Attributes:
        make: a new unfitted model.
        target: a key of `model_zoo.targets`, several of them for a model of several targets, or
            None.
        features: columns that it is fitted on.
        digits: relative error allowed.
        unseen: whether it takes categories that it has never seen.
    """

    make: Callable[[], Any]
    target: str | tuple[str, ...] | None = None
    features: tuple[str, ...] = tuple(WHOLE)
    digits: float = 1e-9
    unseen: bool = False


def scaled(model: Any) -> Any:
    """`model` on columns of like size."""
    return make_pipeline(StandardScaler(), model)


def imputed(model: Any) -> Any:
    """`model` on scaled columns without gaps."""
    return make_pipeline(SimpleImputer(), StandardScaler(), model)


def _in(table: list[str]) -> dict[str, Any]:
    return {"features": tuple(table)}


def _logistic() -> Any:
    return linear_model.LogisticRegression(max_iter=200)


_SHALLOW = DecisionTreeClassifier(max_depth=3, random_state=0)
_MLP: dict[str, Any] = {"hidden_layer_sizes": (6, 4), "max_iter": 20, "random_state": 0}
_CAT: dict[str, Any] = {
    "iterations": 5, "depth": 3, "verbose": 0, "allow_writing_files": False, "thread_count": 1,
}  # fmt: skip

FAMILIES: Mapping[str, Family] = MappingProxyType(
    {
        # support vectors and other kernels
        "SVC": Family(lambda: imputed(svm.SVC()), "strings", **_in(GAPPED)),
        "SVC one against one": Family(
            lambda: scaled(svm.SVC(kernel="poly", decision_function_shape="ovo")), "ints"
        ),
        "NuSVC": Family(lambda: scaled(svm.NuSVC(nu=0.3, kernel="sigmoid", gamma=0.1)), "bool"),
        "SVR": Family(lambda: imputed(svm.SVR()), "value", **_in(NUMBERS)),
        "OneClassSVM": Family(lambda: scaled(svm.OneClassSVM(nu=0.2))),
        "KernelRidge": Family(
            lambda: scaled(kernel_ridge.KernelRidge(kernel="laplacian")), "value"
        ),
        "Nystroem": Family(
            lambda: make_pipeline(
                StandardScaler(), kernel_approximation.Nystroem(n_components=9, random_state=0),
                linear_model.Ridge(),
            ), "value", digits=1e-7,
        ),
        "GaussianProcessRegressor": Family(
            lambda: scaled(gaussian_process.GaussianProcessRegressor(alpha=0.1, optimizer=None)),
            "value",
        ),
        "GaussianProcessClassifier": Family(
            lambda: scaled(gaussian_process.GaussianProcessClassifier(
                optimizer=None, max_iter_predict=3)), "string"
        ),
        # neighbours and densities
        "KNeighborsClassifier": Family(
            lambda: imputed(neighbors.KNeighborsClassifier(7, weights="distance")),
            "strings", **_in(GAPPED),
        ),
        "KNeighborsRegressor": Family(
            lambda: scaled(neighbors.KNeighborsRegressor(4, metric="manhattan")), "value"
        ),
        "RadiusNeighborsClassifier": Family(
            lambda: scaled(neighbors.RadiusNeighborsClassifier(0.9, outlier_label="yes")), "string"
        ),
        "NearestCentroid": Family(lambda: scaled(neighbors.NearestCentroid()), "ints"),
        "LocalOutlierFactor": Family(
            lambda: scaled(neighbors.LocalOutlierFactor(8, novelty=True))
        ),
        "KernelDensity": Family(lambda: scaled(neighbors.KernelDensity(bandwidth=0.7))),
        "GaussianMixture": Family(
            lambda: imputed(mixture.GaussianMixture(3, random_state=0)), **_in(GAPPED)
        ),
        "BayesianGaussianMixture": Family(
            lambda: scaled(mixture.BayesianGaussianMixture(
                n_components=3, covariance_type="diag", random_state=0)),
        ),
        # naive Bayes and discriminants
        "GaussianNB": Family(naive_bayes.GaussianNB, "strings"),
        "BernoulliNB": Family(lambda: naive_bayes.BernoulliNB(binarize=1.5), "bool"),
        "MultinomialNB": Family(naive_bayes.MultinomialNB, "float64"),
        "ComplementNB": Family(naive_bayes.ComplementNB, "ints"),
        "CategoricalNB": Family(
            lambda: make_pipeline(
                make_column_transformer(
                    (preprocessing.OrdinalEncoder(encoded_missing_value=9), TEXT),
                    remainder="passthrough",
                ),
                naive_bayes.CategoricalNB(),
            ), "strings", ("city", "plan", "level", "active"),
        ),
        "LinearDiscriminantAnalysis": Family(
            lambda: scaled(discriminant_analysis.LinearDiscriminantAnalysis()), "strings"
        ),
        "QuadraticDiscriminantAnalysis": Family(
            lambda: scaled(discriminant_analysis.QuadraticDiscriminantAnalysis()), "bool"
        ),
        # clusters
        "KMeans": Family(
            lambda: imputed(cluster.KMeans(4, n_init=1, random_state=0)), **_in(GAPPED)
        ),
        "BisectingKMeans": Family(lambda: scaled(cluster.BisectingKMeans(5, random_state=0))),
        "Birch": Family(lambda: scaled(cluster.Birch(n_clusters=3))),
        "MeanShift": Family(lambda: scaled(cluster.MeanShift(bandwidth=1.5, bin_seeding=True))),
        "FeatureAgglomeration": Family(lambda: cluster.FeatureAgglomeration(2)),
        # decompositions
        "PCA": Family(lambda: imputed(decomposition.PCA(3, whiten=True)), **_in(GAPPED)),
        "TruncatedSVD": Family(
            lambda: make_pipeline(
                preprocessing.OneHotEncoder(handle_unknown="ignore"),
                decomposition.TruncatedSVD(4, random_state=0),
            ), features=tuple(TEXT), unseen=True,
        ),
        "FastICA": Family(
            lambda: scaled(decomposition.FastICA(2, random_state=0)), digits=1e-8
        ),
        "FactorAnalysis": Family(lambda: scaled(decomposition.FactorAnalysis(2))),
        "KernelPCA": Family(
            lambda: scaled(decomposition.KernelPCA(2, kernel="rbf", random_state=0)), digits=1e-7
        ),
        "SparsePCA": Family(lambda: scaled(decomposition.SparsePCA(2, max_iter=20))),
        "GaussianRandomProjection": Family(
            lambda: random_projection.GaussianRandomProjection(3, random_state=0)
        ),
        "PLSRegression": Family(lambda: cross_decomposition.PLSRegression(2), "value"),
        # preprocessing
        "TargetEncoder": Family(
            lambda: make_pipeline(preprocessing.TargetEncoder(random_state=0), _logistic()),
            "string", tuple(TEXT), unseen=True,
        ),
        "TargetEncoder alone": Family(
            lambda: preprocessing.TargetEncoder(random_state=0), "strings", ("city", "zip"),
            unseen=True,
        ),
        "KNNImputer": Family(lambda: KNNImputer(n_neighbors=3, add_indicator=True), **_in(GAPPED)),
        "IterativeImputer": Family(
            lambda: IterativeImputer(max_iter=3, random_state=0), digits=1e-8, **_in(GAPPED)
        ),
        "MissingIndicator": Family(MissingIndicator, **_in(GAPPED)),
        "SplineTransformer": Family(
            lambda: make_pipeline(SimpleImputer(), preprocessing.SplineTransformer(n_knots=4)),
            **_in(GAPPED),
        ),
        "PowerTransformer": Family(preprocessing.PowerTransformer, **_in(GAPPED), digits=1e-8),
        "QuantileTransformer": Family(
            lambda: preprocessing.QuantileTransformer(
                n_quantiles=40, output_distribution="normal"),
            **_in(GAPPED),
        ),
        "KBinsDiscretizer": Family(
            lambda: preprocessing.KBinsDiscretizer(4, quantile_method="averaged_inverted_cdf")
        ),
        "PolynomialFeatures": Family(lambda: preprocessing.PolynomialFeatures(2)),
        "RobustScaler, Normalizer, Binarizer": Family(
            lambda: make_pipeline(
                SimpleImputer(),
                make_union(
                    preprocessing.RobustScaler(), preprocessing.Normalizer("l1"),
                    preprocessing.Binarizer(threshold=5), preprocessing.MaxAbsScaler(),
                ),
            ), **_in(GAPPED),
        ),
        "FunctionTransformer": Family(
            lambda: make_pipeline(preprocessing.FunctionTransformer(np.log1p), StandardScaler()),
            features=("ratio", "level", "zip"),
        ),
        "OneHotEncoder, OrdinalEncoder": Family(
            lambda: make_column_transformer(
                (preprocessing.OneHotEncoder(handle_unknown="ignore"), ["city", "active"]),
                (preprocessing.OrdinalEncoder(
                    handle_unknown="use_encoded_value", unknown_value=-1), ["plan", "zip"]),
            ), features=("city", "plan", "active", "zip"), unseen=True,
        ),
        # selection
        "SelectKBest": Family(
            lambda: imputed(make_pipeline(feature_selection.SelectKBest(k=2), _logistic())),
            "string", **_in(GAPPED),
        ),
        "RFE": Family(lambda: feature_selection.RFE(linear_model.Ridge(), step=1), "value"),
        "SelectFromModel": Family(
            lambda: make_pipeline(
                feature_selection.VarianceThreshold(0.01),
                feature_selection.SelectFromModel(
                    ensemble.ExtraTreesRegressor(4, max_depth=3, random_state=0)),
                linear_model.Lasso(0.01),
            ), "value",
        ),
        # networks
        "MLPClassifier": Family(
            lambda: imputed(neural_network.MLPClassifier(**_MLP)), "strings", **_in(GAPPED)
        ),
        "MLPRegressor": Family(
            lambda: scaled(neural_network.MLPRegressor(activation="tanh", **_MLP)), "value"
        ),
        # ensembles
        "AdaBoostClassifier": Family(
            lambda: ensemble.AdaBoostClassifier(n_estimators=4, random_state=0), "strings"
        ),
        "AdaBoostRegressor": Family(
            lambda: ensemble.AdaBoostRegressor(n_estimators=4, random_state=0), "value"
        ),
        "BaggingClassifier": Family(
            lambda: ensemble.BaggingClassifier(
                make_pipeline(StandardScaler(), _logistic()), 3, max_features=0.8, random_state=0),
            "bool",
        ),
        "VotingClassifier": Family(
            lambda: ensemble.VotingClassifier(
                [("a", _SHALLOW), ("b", naive_bayes.GaussianNB())], voting="soft"),
            "strings",
        ),
        "StackingRegressor": Family(
            lambda: ensemble.StackingRegressor(
                [("a", DecisionTreeRegressor(max_depth=3, random_state=0)),
                 ("b", linear_model.Ridge())], cv=2),
            "value",
        ),
        "ExtraTreesClassifier": Family(
            lambda: ensemble.ExtraTreesClassifier(5, max_depth=5, random_state=0), "ints",
            **_in(NUMBERS),
        ),
        "IsolationForest": Family(
            lambda: ensemble.IsolationForest(n_estimators=6, max_samples=64, random_state=0),
            **_in(NUMBERS),
        ),
        "RandomTreesEmbedding": Family(
            lambda: ensemble.RandomTreesEmbedding(3, max_depth=3, random_state=0)
        ),
        # models around models
        "CalibratedClassifierCV": Family(
            lambda: calibration.CalibratedClassifierCV(scaled(svm.LinearSVC()), cv=2), "strings"
        ),
        "calibrated by isotonic regression": Family(
            lambda: calibration.CalibratedClassifierCV(_SHALLOW, method="isotonic", cv=2), "string"
        ),
        "OneVsRestClassifier": Family(
            lambda: scaled(multiclass.OneVsRestClassifier(_logistic())), "strings"
        ),
        "OneVsOneClassifier": Family(
            lambda: scaled(multiclass.OneVsOneClassifier(svm.LinearSVC())), "ints"
        ),
        "OutputCodeClassifier": Family(
            lambda: multiclass.OutputCodeClassifier(_SHALLOW, random_state=0), "strings"
        ),
        "FixedThresholdClassifier": Family(
            lambda: model_selection.FixedThresholdClassifier(
                scaled(_logistic()), threshold=0.3, pos_label="yes"),
            "string",
        ),
        "GridSearchCV": Family(
            lambda: model_selection.GridSearchCV(
                scaled(linear_model.SGDClassifier(loss="modified_huber", random_state=0)),
                {"sgdclassifier__alpha": [0.1, 0.01]}, cv=2),
            "strings",
        ),
        "TransformedTargetRegressor": Family(
            lambda: TransformedTargetRegressor(
                linear_model.Ridge(), func=np.log1p, inverse_func=np.expm1),
            "count",
        ),
        "RANSACRegressor": Family(
            lambda: linear_model.RANSACRegressor(random_state=0), "value"
        ),
        "PoissonRegressor": Family(
            lambda: imputed(linear_model.PoissonRegressor()), "count", **_in(GAPPED)
        ),
        "LabelSpreading": Family(
            lambda: scaled(semi_supervised.LabelSpreading(kernel="knn", n_neighbors=5)), "ints"
        ),
        "DummyClassifier": Family(lambda: dummy.DummyClassifier(strategy="prior"), "strings"),
        # several targets
        "MultiOutputRegressor": Family(
            lambda: multioutput.MultiOutputRegressor(
                DecisionTreeRegressor(max_depth=3, random_state=0)),
            ("value", "count"), **_in(NUMBERS),
        ),
        "MultiOutputClassifier": Family(
            lambda: multioutput.MultiOutputClassifier(scaled(_logistic())), ("string", "strings")
        ),
        "ClassifierChain": Family(
            lambda: multioutput.ClassifierChain(scaled(_logistic()), order=[1, 0]),
            ("half", "half"),
        ),
        "RandomForestRegressor of two": Family(
            lambda: ensemble.RandomForestRegressor(4, max_depth=4, random_state=0),
            ("value", "count"), **_in(NUMBERS),
        ),
        # other libraries
        "LightGBM, linear trees": Family(
            lambda: lgb.LGBMRegressor(
                n_estimators=5, num_leaves=6, linear_tree=True, n_jobs=1, verbose=-1),
            "value", **_in(NUMBERS),
        ),
        "XGBoost, two targets": Family(
            lambda: xgb.XGBRegressor(
                n_estimators=4, max_depth=3, n_jobs=1, multi_strategy="multi_output_tree"),
            ("value", "count"), digits=1e-6, **_in(NUMBERS),
        ),
        "CatBoostClassifier": Family(
            lambda: cb.CatBoostClassifier(**_CAT), "strings", **_in(NUMBERS)
        ),
        "CatBoostRegressor": Family(
            lambda: cb.CatBoostRegressor(**_CAT), "value", **_in(NUMBERS)
        ),
        # texts alone, and everything at once
        "a linear model of texts": Family(
            lambda: make_pipeline(
                ColumnTransformer([
                    ("words", TfidfVectorizer(token_pattern=r"(?u)\b\w+\b"), "note"),
                    ("characters", TfidfVectorizer(analyzer="char_wb", ngram_range=(1, 2)), "note"),
                    ("numbers", SimpleImputer(), ["age"]),
                ]),
                _logistic(),
            ), "string", ("note", "age"),
        ),
        "a forest of texts": Family(
            lambda: make_pipeline(
                ColumnTransformer([("words", CountVectorizer(), "note")]),
                ensemble.RandomForestClassifier(10, max_depth=4, random_state=0),
            ), "string", ("note",),
        ),
        "text, categories and numbers": Family(
            lambda: make_pipeline(
                ColumnTransformer([
                    ("text", TfidfVectorizer(token_pattern=r"(?u)\b\w+\b"), "note"),
                    ("city", preprocessing.TargetEncoder(random_state=0), ["city"]),
                    ("plan", preprocessing.OneHotEncoder(handle_unknown="ignore"), ["plan"]),
                    ("numbers", make_pipeline(SimpleImputer(), preprocessing.PowerTransformer()),
                     ["age", "price"]),
                ]),
                _logistic(),
            ), "string", ("note", "city", "plan", "age", "price"), unseen=True,
        ),
    }
)  # fmt: skip


def with_note(table: pd.DataFrame) -> pd.DataFrame:
    """`table` with a column `note` of texts."""
    words = np.array(["late", "payer", "naïve", "日本", "friend", "late again", "", "it's"], object)
    note = words[table.zip % 8] + " " + words[table.level % 8]
    return table.assign(note=note)


@cache
def model(name: str) -> Any:
    """The fitted model called `name`."""
    entry, table = FAMILIES[name], with_note(model_zoo.people())
    known = model_zoo.targets(table)
    x = view(table, entry)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        if entry.target is None:
            return entry.make().fit(x)
        if isinstance(entry.target, str):
            return entry.make().fit(x, known[entry.target])
        return entry.make().fit(x, np.stack([known[t] for t in entry.target], axis=1))


@cache
def rows(unseen: bool) -> pd.DataFrame:
    """150 of `people`, the first ten again at the end; `unseen` gives some other categories."""
    table = model_zoo.people().iloc[100:250]
    table = pd.concat([table, table.head(10)], ignore_index=True)
    if unseen:
        table.loc[::7, "city"] = "Atlantis"
        table.loc[::11, "plan"] = "gold"
    return with_note(table)


def view(table: pd.DataFrame, entry: Family) -> pd.DataFrame:
    """The columns that `entry` is fitted on and asked, numbers as float64."""
    features = list(entry.features)
    return table[features].astype(
        {n: np.float64 for n in features if n not in (*TEXT, "note", "active", "zip")}
    )
