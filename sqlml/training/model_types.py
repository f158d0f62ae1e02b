"""Model types that can be trained, the libraries that train them, and their metrics.

`MODEL_TYPES` is a literal table: add a row to it to train a type with another library. The keys of
`Trainer.names` are the names that BigQuery and other libraries use for a parameter, and the values
are the library's own names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from importlib.util import find_spec
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

from sqlml.errors import ConfigError, MissingDependencyError
from sqlml.planner.table_functions.evaluated_model import CLASSIFIER_METRICS, REGRESSOR_METRICS
from sqlml.scorer.evaluate import Metrics, compute_class_metrics, compute_number_metrics
from sqlml.suggestions import closest
from sqlml.training.row_store import BlockMatrix, EstimatorRows

Parameters = Mapping[str, Any]
Converter = Callable[[Parameters, int], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class BlockEstimator:
    """An estimator with `partial_fit`, which replaces one that needs all rows in memory at once.

    path: the path of the class. shared: parameters that mean the same in both estimators. ignored:
    parameters that only control the solver of the replaced estimator. convert: computes further
    parameters from the replaced estimator's parameters and the number of rows. gains_by_passes:
    whether more than one pass over the rows helps.
    """

    path: str
    shared: tuple[str, ...]
    ignored: tuple[str, ...]
    convert: Converter = lambda params, n_rows: {}
    gains_by_passes: bool = True

    @property
    def supported(self) -> frozenset[str]:
        return frozenset((*self.shared, *self.ignored, *PASS_OPTIONS, "alpha", "C", "l1_ratio"))

    def convert_parameters(self, params: Parameters, n_rows: int) -> dict[str, Any]:
        """Convert parameters of the replaced estimator for a fit to `n_rows` rows."""
        shared = {name: params[name] for name in self.shared if name in params}
        return {**shared, **self.convert(params, n_rows)}


PASS_OPTIONS: Mapping[str, tuple[type | tuple[type, ...], str]] = {
    "max_iter": (int, "an integer"),
    "tol": ((int, float), "a number of at least 0"),
}
"""Maps each parameter that limits the passes over the rows to its types and its description.

max_iter is the maximum number of passes. tol is the share by which each pass must reduce the loss.
"""


def _make_sgd_options(penalty: str | None, alpha: float, n_rows: int) -> dict[str, Any]:
    """Return parameters of scikit-learn's SGD estimators for a `penalty` of weight `alpha`.

    Coefficients are averaged (Polyak and Juditsky, 1992). With an L1 penalty they are not, because
    scikit-learn computes these averages incorrectly.
    """
    return {
        **{"learning_rate": "invscaling", "power_t": 0.25, "shuffle": True},
        **{"penalty": penalty, "alpha": alpha},
        "average": n_rows if penalty in (None, "l2") else False,
    }


def _convert_elastic_net(params: Parameters, n_rows: int) -> dict[str, Any]:
    parameters = _make_sgd_options("elasticnet", params.get("alpha", 1.0), n_rows)
    return {**parameters, "l1_ratio": params.get("l1_ratio", 0.5)}


def _convert_logistic(params: Parameters, n_rows: int) -> dict[str, Any]:
    alpha = 1 / (params.get("C", 1.0) * n_rows)
    l1_ratio = params.get("l1_ratio") or 0.0
    parameters = _make_sgd_options("elasticnet" if l1_ratio else "l2", alpha, n_rows)
    return {**parameters, "loss": "log_loss", **({"l1_ratio": l1_ratio} if l1_ratio else {})}


_SHARED = ("fit_intercept", "random_state")


def _make_regression(ignored: str, convert: Converter) -> BlockEstimator:
    return BlockEstimator("sklearn.linear_model.SGDRegressor", _SHARED, (ignored,), convert)


BLOCK_ESTIMATORS: Mapping[str, BlockEstimator] = {
    "LinearRegression": _make_regression(
        "n_jobs", lambda params, n_rows: _make_sgd_options(None, 0.0, n_rows)
    ),
    # Ridge weights its penalty against a sum over the rows, and SGD against their mean.
    "Ridge": _make_regression(
        "solver",
        lambda params, n_rows: _make_sgd_options("l2", params.get("alpha", 1.0) / n_rows, n_rows),
    ),
    "Lasso": _make_regression(
        "selection",
        lambda params, n_rows: _make_sgd_options("l1", params.get("alpha", 1.0), n_rows),
    ),
    "ElasticNet": _make_regression("selection", _convert_elastic_net),
    "LogisticRegression": BlockEstimator(
        "sklearn.linear_model.SGDClassifier", _SHARED, ("solver", "n_jobs"), _convert_logistic
    ),
    "KMeans": BlockEstimator(
        "sklearn.cluster.MiniBatchKMeans",
        ("n_clusters", "init", "random_state"),
        ("algorithm", "n_init"),
    ),
    "PCA": BlockEstimator(
        "sklearn.decomposition.IncrementalPCA",
        ("n_components", "whiten"),
        ("svd_solver", "random_state", "iterated_power"),
        gains_by_passes=False,
    ),
}
"""Maps the class of an estimator to the estimator that replaces it for blocks of rows."""


def find_block_estimator(path: str, parameters: Parameters) -> BlockEstimator | None:
    """Find the estimator that replaces the class at `path` and learns from blocks of rows.

    Return None if the class has no replacement, or if it does not support one of `parameters`.
    """
    replacement = BLOCK_ESTIMATORS.get(path.rpartition(".")[2])
    if replacement is None or not path.startswith("sklearn."):
        return None
    if not parameters.keys() <= replacement.supported:
        return None
    n_components = parameters.get("n_components")
    return None if n_components is not None and type(n_components) is not int else replacement


Task = Literal["classify", "regress", "rank", "cluster", "project", "isolate"]
"""The kind of prediction for a row: a class, a number, a score to rank by, a cluster, coordinates,
or whether the row is an outlier."""

SUPERVISED: frozenset[Task] = frozenset({"classify", "regress", "rank"})

Features = Literal["ordinal", "named", "one_hot", "scaled", "given"]
"""The form in which an estimator expects its features (`feature_pipeline.py`).

"ordinal": category codes that the estimator treats as categories. "named": category names.
"one_hot": a column of 0 and 1 for each category. "scaled": one-hot columns, and numbers that are
scaled and imputed. "given": the columns of the query, unchanged.
"""


def _freeze(**items: Any) -> Mapping[str, Any]:
    return MappingProxyType(items)


@dataclass(frozen=True, slots=True, eq=False)
class Trainer:
    """The estimator of a library that trains a type of model.

    path: the path of the estimator's class. features: the form in which it expects features. names:
    maps alternative parameter names to the library's names. defaults: parameters that sqlml sets
    unless the statement sets them. seed: the name of the seed parameter, or None if the estimator
    is deterministic. stops_early: whether training can stop when the loss on the held-out rows no
    longer improves. packages: the required packages, the library first, or () if only the package
    of `path` is required.
    """

    path: str
    features: Features
    names: Mapping[str, str] = field(default_factory=_freeze)
    defaults: Mapping[str, Any] = field(default_factory=_freeze)
    seed: str | None = "random_state"
    stops_early: bool = False
    packages: tuple[str, ...] = ()

    def reads_blocks(self, parameters: Mapping[str, Any]) -> bool:
        """Return whether the estimator, or its replacement, can learn from blocks of rows."""
        if self.path.endswith("Ranker"):
            return False
        if self.package == "xgboost":
            return uses_bins(parameters)
        return self.package == "lightgbm" or find_block_estimator(self.path, parameters) is not None

    @property
    def can_resume(self) -> bool:
        return self.stops_early and self.package in ("xgboost", "lightgbm", "torch")

    @property
    def package(self) -> str:
        return self.packages[0] if self.packages else self.path.partition(".")[0]

    @property
    def missing_packages(self) -> list[str]:
        return find_missing_packages(self.package, *self.packages)

    def estimator_class(self) -> Any:
        return import_class(self.path)


def import_class(path: str) -> Any:
    module, _, name = path.rpartition(".")
    return getattr(import_module(module), name)


def uses_bins(parameters: Mapping[str, Any]) -> bool:
    """Return whether XGBoost trains on bins of the values (its hist method) with `parameters`."""
    is_binned = parameters.get("tree_method") in (None, "auto", "hist")
    return is_binned and parameters.get("booster") != "gblinear"


@dataclass(frozen=True, slots=True, eq=False)
class ModelType:
    """A type of model, with its task and its trainers by library, the preferred library first."""

    task: Task
    trainers: Mapping[str, Trainer]


def _map_aliases(**alias_lists: str) -> Mapping[str, str]:
    """Map each name in the blank-separated `alias_lists` to the keyword, the library's name."""
    return _freeze(**{alias: n for n, aliases in alias_lists.items() for alias in aliases.split()})


_TREES = _map_aliases(
    max_depth="max_tree_depth",
    learning_rate="learn_rate",
    n_estimators="max_iterations num_trees",
    reg_alpha="l1_reg",
    reg_lambda="l2_reg",
)
_XGBOOST = _freeze(
    **_TREES,
    **_map_aliases(
        learning_rate="eta", reg_alpha="alpha", reg_lambda="lambda", gamma="min_split_loss"
    ),
    **_map_aliases(min_child_weight="min_tree_child_weight", n_estimators="num_boost_round"),
    **_map_aliases(booster="booster_type", normalize_type="dart_normalize_type", n_jobs="nthread"),
)
_LIGHTGBM = _freeze(
    **_TREES,
    min_split_loss="min_split_gain",
    min_tree_child_weight="min_child_weight",
    booster_type="boosting_type",
    colsample_bynode="feature_fraction_bynode",
)
_CATBOOST = _map_aliases(
    depth="max_tree_depth max_depth",
    learning_rate="learn_rate",
    iterations="max_iterations num_trees n_estimators",
    l2_leaf_reg="l2_reg reg_lambda",
    rsm="colsample_bylevel",
)
_HIST = _map_aliases(
    max_depth="max_tree_depth",
    learning_rate="learn_rate",
    max_iter="max_iterations num_trees n_estimators",
    l2_regularization="l2_reg",
)
_FOREST = _map_aliases(
    max_depth="max_tree_depth",
    n_estimators="num_trees num_parallel_tree max_iterations",
    max_features="colsample_bynode",
    max_samples="subsample",
)
_LINEAR = _freeze(max_iterations="max_iter", min_rel_progress="tol")
_XGBOOST_DEFAULTS = _freeze(enable_categorical=True, tree_method="hist")
_LIGHTGBM_DEFAULTS = _freeze(verbosity=-1, deterministic=True, force_row_wise=True)
_CATBOOST_DEFAULTS = _freeze(verbose=False, allow_writing_files=False, one_hot_max_size=255)


def _make_booster_trainers(suffix: str) -> Mapping[str, Trainer]:
    catboost_path = f"catboost.CatBoost{suffix}"
    trainers = {
        "xgboost": Trainer(f"xgboost.XGB{suffix}", "ordinal", _XGBOOST, _XGBOOST_DEFAULTS),
        "lightgbm": Trainer(f"lightgbm.LGBM{suffix}", "ordinal", _LIGHTGBM, _LIGHTGBM_DEFAULTS),
        "catboost": Trainer(catboost_path, "named", _CATBOOST, _CATBOOST_DEFAULTS, "random_seed"),
        "sklearn": Trainer(f"sklearn.ensemble.HistGradientBoosting{suffix}", "ordinal", _HIST),
    }
    if suffix == "Ranker":
        del trainers["sklearn"]
    return _freeze(**{name: replace(t, stops_early=True) for name, t in trainers.items()})


def _make_forest_trainers(suffix: str) -> Mapping[str, Trainer]:
    sklearn = Trainer(f"sklearn.ensemble.RandomForest{suffix}", "one_hot", _FOREST)
    # XGBoost's forests overwrite num_parallel_tree by n_estimators.
    names = _freeze(**_XGBOOST, num_parallel_tree="n_estimators")
    xgboost = Trainer(f"xgboost.XGBRF{suffix}", "ordinal", names, _XGBOOST_DEFAULTS)
    return _freeze(sklearn=sklearn, xgboost=xgboost)


_NETWORK = _map_aliases(
    activation="activation_fn",
    lr="learn_rate learning_rate",
    max_epochs="max_iterations",
    weight_decay="l2_reg",
)


def _make_network_trainers(name: str) -> Mapping[str, Trainer]:
    path = f"sqlml.training.estimators.{name}"
    packages = ("torch", "skorch")
    return _freeze(torch=Trainer(path, "scaled", _NETWORK, stops_early=True, packages=packages))


_PLAIN_REGRESSION = Trainer("sklearn.linear_model.LinearRegression", "scaled", _LINEAR, seed=None)
_LOGISTIC_REGRESSION = Trainer(
    "sklearn.linear_model.LogisticRegression", "scaled", _LINEAR, _freeze(max_iter=1000)
)
_KMEANS_NAMES = _freeze(**_LINEAR, num_clusters="n_clusters", kmeans_init_method="init")
_PCA_NAMES = _map_aliases(
    n_components="num_principal_components pca_explained_variance_ratio", svd_solver="pca_solver"
)
_KMEANS = Trainer("sklearn.cluster.KMeans", "scaled", _KMEANS_NAMES)
_PCA = Trainer("sklearn.decomposition.PCA", "scaled", _PCA_NAMES)
_ISOLATION_NAMES = _freeze(num_trees="n_estimators")
_ISOLATION_FOREST = Trainer("sklearn.ensemble.IsolationForest", "one_hot", _ISOLATION_NAMES)

MODEL_TYPES: Mapping[str, ModelType] = {
    "linear_reg": ModelType("regress", _freeze(sklearn=_PLAIN_REGRESSION)),
    "logistic_reg": ModelType("classify", _freeze(sklearn=_LOGISTIC_REGRESSION)),
    "boosted_tree_classifier": ModelType("classify", _make_booster_trainers("Classifier")),
    "boosted_tree_regressor": ModelType("regress", _make_booster_trainers("Regressor")),
    "boosted_tree_ranker": ModelType("rank", _make_booster_trainers("Ranker")),
    "random_forest_classifier": ModelType("classify", _make_forest_trainers("Classifier")),
    "random_forest_regressor": ModelType("regress", _make_forest_trainers("Regressor")),
    "dnn_classifier": ModelType("classify", _make_network_trainers("dnn.DNNClassifier")),
    "dnn_regressor": ModelType("regress", _make_network_trainers("dnn.DNNRegressor")),
    "dnn_linear_combined_classifier": ModelType(
        "classify", _make_network_trainers("dnn.DNNLinearCombinedClassifier")
    ),
    "dnn_linear_combined_regressor": ModelType(
        "regress", _make_network_trainers("dnn.DNNLinearCombinedRegressor")
    ),
    "autoencoder": ModelType("project", _make_network_trainers("autoencoder.Autoencoder")),
    "kmeans": ModelType("cluster", _freeze(sklearn=_KMEANS)),
    "pca": ModelType("project", _freeze(sklearn=_PCA)),
    "isolation_forest": ModelType("isolate", _freeze(sklearn=_ISOLATION_FOREST)),
}
"""Maps values of the option model_type to types of models."""


_FORECASTS = (
    "sqlml does not forecast: the DuckDB extension anofox_forecast does (INSTALL anofox_forecast "
    "FROM community)"
)
_AUTOML = (
    "sqlml does not choose a type of model: search with hparam_range(...) in boosted trees, or use "
    "FLAML or AutoGluon in Python and register the model that they choose"
)
_FILE = "such models are files: CREATE MODEL m FROM 'path' reads them, without AS and a query"
_TENSORFLOW = "convert the model to ONNX with tf2onnx, and write CREATE MODEL m FROM 'model.onnx'"
ELSEWHERE: Mapping[str, str] = {
    **dict.fromkeys(("arima", "arima_plus", "timesfm"), _FORECASTS),
    "arima_plus_xreg": f"{_FORECASTS}, and SARIMAX of statsmodels in Python",
    "matrix_factorization": "sqlml trains no recommenders: implicit does in Python, and ALS in "
    "Spark",
    **dict.fromkeys(("automl_classifier", "automl_regressor"), _AUTOML),
    "transform_only": "sqlml has no models that predict nothing: create a view instead, since the "
    "preprocessing functions work in queries",
    **dict.fromkeys(("onnx", "xgboost", "sklearn"), _FILE),
    **dict.fromkeys(("tensorflow", "tensorflow_lite"), _TENSORFLOW),
}
"""Maps BigQuery's types of models that sqlml does not train to what does it instead."""


def find_model_type(name: Any) -> tuple[str, ModelType]:
    """Look up a type of model by its name in any case.

    >>> find_model_type("KMEANS")[1].task
    'cluster'
    """
    if not isinstance(name, str):
        raise ConfigError(
            "training needs the option model_type, as in OPTIONS (model_type = 'logistic_reg', "
            f"label = 'churned') before AS; model types: {', '.join(MODEL_TYPES)}"
        )
    key = name.lower()
    if key in ELSEWHERE:
        raise ConfigError(f"model type {name!r}: {ELSEWHERE[key]}")
    if key not in MODEL_TYPES:
        suggestion = closest(key, MODEL_TYPES)
        hint = f"did you mean {suggestion!r}? " if suggestion else ""
        names = ", ".join(MODEL_TYPES)
        raise ConfigError(f"unknown model type {name!r}; {hint}Model types: {names}")
    return key, MODEL_TYPES[key]


def find_trainer(model_type: str, library: Any = None) -> tuple[str, Trainer]:
    """Return the name of a library and its trainer for `model_type`.

    If `library` is None, use the first library that is installed.
    """
    trainers = MODEL_TYPES[model_type].trainers
    libraries = ", ".join(trainers)
    if library is not None and library not in trainers:
        message = f"library {library!r} does not train {model_type} models; libraries: {libraries}"
        raise ConfigError(message)
    for name, trainer in trainers.items():
        if library in (None, name) and not trainer.missing_packages:
            return name, trainer
    needed_library = library or next(iter(trainers))
    missing = trainers[needed_library].missing_packages
    raise MissingDependencyError(
        f"training {model_type} models needs {describe_missing(missing)}: "
        f"pip install 'sqlml[train,{needed_library}]'"
        + ("" if library or len(trainers) == 1 else f"; libraries: {libraries}")
    )


def describe_missing(missing: Sequence[str]) -> str:
    """Return a phrase that names the packages that are not installed.

    >>> describe_missing(["torch"]), describe_missing(["torch", "skorch"])
    ('torch, which is not installed', 'torch and skorch, which are not installed')
    """
    return f"{join_names(missing)}, which {'are' if missing[1:] else 'is'} not installed"


def join_names(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if names[1:] else names)


def find_missing_packages(*packages: str) -> list[str]:
    """Return the missing packages among `packages` and the packages that all training needs."""
    required = dict.fromkeys(("sklearn", "pandas", *packages))
    return [package for package in required if find_spec(package) is None]


METRICS: Mapping[Task, tuple[str, ...]] = {
    "classify": CLASSIFIER_METRICS,
    "regress": REGRESSOR_METRICS,
    "rank": ("ndcg",),
    "cluster": ("davies_bouldin_index", "mean_squared_distance"),
    "project": (*("total_explained_variance_ratio", "mean_squared_error", "mean_absolute_error"),),
    "isolate": ("outlier_share",),
}
"""Maps each task to its metrics, under BigQuery's names."""

LOWER_IS_BETTER = frozenset(
    "log_loss brier_score mean_absolute_error mean_squared_error mean_squared_log_error "
    "median_absolute_error max_error "
    "mean_absolute_percentage_error davies_bouldin_index mean_squared_distance".split()
)


def compute_model_metrics(
    estimator: Any, part: EstimatorRows, task: Task, n_classes: int
) -> Metrics:
    """Compute the metrics of an estimator on the rows of `part`; undefined metrics are None.

    The labels of `part` are the codes of `n_classes` classes, or numbers if `task` has no classes.
    """
    measured = predict_measured(estimator, part, task)
    if measured is not None:
        return compute_measured_metrics(measured, n_classes)
    if task == "rank":
        return {"ndcg": _compute_ndcg(np.asarray(estimator.predict(part.X)).reshape(-1), part)}
    if task == "cluster":
        return _compute_cluster_metrics(estimator, part)
    if task == "project":
        if hasattr(estimator, "module_"):  # An autoencoder.
            return _compute_reconstruction_metrics(estimator, part)
        ratios = getattr(estimator, "explained_variance_ratio_", None)
        return {} if ratios is None else {"total_explained_variance_ratio": float(ratios.sum())}
    return {"outlier_share": float((np.asarray(estimator.predict(part.X)) < 0).mean())}


@dataclass(frozen=True, slots=True, eq=False)
class MeasuredRows:
    """Rows on which a model is measured.

    labels: the codes of classes or the numbers (n,). predictions: the probabilities of the classes
    (n, k), or the predicted numbers (n,). weight: float64 (n,), or None.
    """

    labels: Any
    predictions: Any
    weight: Any


def predict_measured(estimator: Any, part: EstimatorRows, task: Task) -> MeasuredRows | None:
    """Return the predictions for `part`, or None if `task` neither classifies nor regresses."""
    if task == "classify":
        predictions = _predict_all(estimator.predict_proba, part)
        predictions /= predictions.sum(axis=1, keepdims=True)  # Float32 may not add up to 1.
    elif task == "regress":
        predictions = _predict_all(estimator.predict, part).reshape(-1)
    else:
        return None
    return MeasuredRows(np.asarray(part.y), predictions, part.weight)


def compute_measured_metrics(measured: MeasuredRows, n_classes: int) -> Metrics:
    """Compute the metrics of a classifier, or of a regressor if `n_classes` is 0."""
    labels, predictions, weight = measured.labels, measured.predictions, measured.weight
    if not n_classes:
        return compute_number_metrics(labels, predictions, weight)
    is_binary = n_classes == 2
    predicted = (predictions[:, 1] > 0.5).astype(int) if is_binary else predictions.argmax(axis=1)
    return compute_class_metrics(labels, predicted, n_classes, weight, proba=predictions)


def _compute_reconstruction_metrics(estimator: Any, part: EstimatorRows) -> Metrics:
    """Compare encoded rows with their reconstructions, as the mean over all values."""
    rows = np.asarray(part.X.toarray() if hasattr(part.X, "toarray") else part.X, np.float64)
    errors = np.asarray(estimator.inverse_transform(estimator.transform(part.X)), np.float64) - rows
    squares = float(np.mean(np.square(errors)))
    variance = float(np.mean(rows.var(axis=0)))
    return {
        "total_explained_variance_ratio": 1 - squares / variance if variance else None,
        "mean_squared_error": squares,
        "mean_absolute_error": float(np.mean(np.abs(errors))),
    }


def _predict_all(predict: Any, part: EstimatorRows) -> Any:
    if not isinstance(part.X, BlockMatrix):
        return np.asarray(predict(part.X), np.float64)
    return np.concatenate([np.asarray(predict(block), np.float64) for block in part.X.blocks()])


def _compute_ndcg(scores: Any, part: EstimatorRows) -> float | None:
    """Return the mean NDCG@10 over all groups with two rows or more, or None if there is none."""
    from sklearn.metrics import ndcg_score

    if part.group is None or part.y is None:
        return None
    group_ends = np.flatnonzero(np.diff(part.group)) + 1
    groups = zip(np.split(part.y, group_ends), np.split(scores, group_ends), strict=True)
    scores_by_group = [ndcg_score([y], [score], k=10) for y, score in groups if len(y) > 1]
    return float(np.mean(scores_by_group)) if scores_by_group else None


def _compute_cluster_metrics(estimator: Any, part: EstimatorRows) -> Metrics:
    from sklearn.metrics import davies_bouldin_score

    labels = estimator.predict(part.X)
    distances = estimator.transform(part.X).min(axis=1)
    dense = part.X.toarray() if hasattr(part.X, "toarray") else part.X
    is_defined = 1 < len(np.unique(labels)) < len(labels)
    return {
        "davies_bouldin_index": float(davies_bouldin_score(dense, labels)) if is_defined else None,
        "mean_squared_distance": float(np.mean(np.square(distances))),
    }
