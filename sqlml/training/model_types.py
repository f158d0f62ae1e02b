"""`MODEL_TYPES`: what can be trained, the libraries that train it, and what they call things.

A literal table: a library is added to a type by a row. Names on the left of `names` are BigQuery's,
and others that users know; on the right is the library's own parameter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

from sqlml.errors import ConfigError, MissingDependencyError
from sqlml.planner.evaluation.evaluated_model import OF_CLASSES, OF_NUMBERS
from sqlml.scorer.evaluate import Metrics, class_metrics, number_metrics
from sqlml.suggestions import closest
from sqlml.training.storage.row_store import Blocks, Part

# `BLOCK_ESTIMATORS`: what learns from rows block by block in place of an estimator of scikit-
# learn that needs them all at once.


Parameters = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class BlockEstimator:
    """An estimator with partial_fit.

    path: of its class. kept: parameters that mean the same to both. dropped: parameters of the
    other that say how it finds the same solution. converted: the other's parameters and the number
    of rows -> those that mean something else. passes: whether several over the rows gain anything.
    """

    path: str
    kept: tuple[str, ...]
    dropped: tuple[str, ...]
    converted: Callable[[Parameters, int], dict[str, Any]]
    passes: bool = True

    def refused(self, given: Parameters) -> list[str]:
        """Those of the other's parameters that it does not know."""
        own = (*self.kept, *self.dropped, *OF_PASSES, *_CONVERTED)
        return [name for name in given if name not in own]

    def parameters(self, given: Parameters, rows: int) -> dict[str, Any]:
        """Its parameters.

        Args:
            given: those of the estimator in whose place it is. rows: that it learns from.
        """
        made = {name: given[name] for name in self.kept if name in given}
        return {**made, **self.converted(given, rows)}


OF_PASSES: Mapping[str, tuple[type | tuple[type, ...], str]] = MappingProxyType(
    {"max_iter": (int, "an integer"), "tol": ((int, float), "a number of at least 0")}
)
"""Parameters of how often the rows are read -> their types, and what an error calls them: passes at
most, and the share by which each must lower the loss."""

_CONVERTED = ("alpha", "C", "l1_ratio")
_STEPS = {"learning_rate": "invscaling", "power_t": 0.25, "shuffle": True}


def _descent(penalty: str | None, alpha: float, rows: int) -> dict[str, Any]:
    """Stochastic gradient descent whose coefficients are averaged from the second pass on (Polyak
    and Juditsky, 1992), but for those with a penalty on absolute values, whose means scikit-learn
    gets wrong."""
    averaged = penalty in (None, "l2")
    return {**_STEPS, "penalty": penalty, "alpha": alpha, "average": rows if averaged else False}


def _plain(given: Parameters, rows: int) -> dict[str, Any]:
    return _descent(None, 0.0, rows)


def _ridge(given: Parameters, rows: int) -> dict[str, Any]:
    """Ridge weighs the coefficients against a sum over the rows, and descent against a mean."""
    return _descent("l2", given.get("alpha", 1.0) / rows, rows)


def _lasso(given: Parameters, rows: int) -> dict[str, Any]:
    return _descent("l1", given.get("alpha", 1.0), rows)


def _elastic_net(given: Parameters, rows: int) -> dict[str, Any]:
    made = _descent("elasticnet", given.get("alpha", 1.0), rows)
    return {**made, "l1_ratio": given.get("l1_ratio", 0.5)}


def _logistic(given: Parameters, rows: int) -> dict[str, Any]:
    """C weighs a sum over the rows against the coefficients."""
    alpha = 1 / (given.get("C", 1.0) * rows)
    l1_ratio = given.get("l1_ratio") or 0.0
    made = _descent("elasticnet" if l1_ratio else "l2", alpha, rows)
    return {**made, "loss": "log_loss", **({"l1_ratio": l1_ratio} if l1_ratio else {})}


def _nothing(given: Parameters, rows: int) -> dict[str, Any]:
    return {}


_REGRESSOR = "sklearn.linear_model.SGDRegressor"
_LINEAR_PARAMETERS = ("fit_intercept", "random_state")

BLOCK_ESTIMATORS: Mapping[str, BlockEstimator] = MappingProxyType(
    {
        "LinearRegression": BlockEstimator(_REGRESSOR, _LINEAR_PARAMETERS, ("n_jobs",), _plain),
        "Ridge": BlockEstimator(_REGRESSOR, _LINEAR_PARAMETERS, ("solver",), _ridge),
        "Lasso": BlockEstimator(_REGRESSOR, _LINEAR_PARAMETERS, ("selection",), _lasso),
        "ElasticNet": BlockEstimator(_REGRESSOR, _LINEAR_PARAMETERS, ("selection",), _elastic_net),
        "LogisticRegression": BlockEstimator(
            "sklearn.linear_model.SGDClassifier",
            _LINEAR_PARAMETERS,
            ("solver", "n_jobs"),
            _logistic,
        ),
        "KMeans": BlockEstimator(
            "sklearn.cluster.MiniBatchKMeans",
            ("n_clusters", "init", "random_state"),
            ("algorithm", "n_init"),
            _nothing,
        ),
        "PCA": BlockEstimator(
            "sklearn.decomposition.IncrementalPCA",
            ("n_components", "whiten"),
            ("svd_solver", "random_state", "iterated_power"),
            _nothing,
            passes=False,
        ),
    }
)
"""Class of an estimator -> what learns in its place."""


def block_estimator(path: str, parameters: Parameters) -> BlockEstimator | None:
    """What learns in place of an estimator with these parameters; None: nothing does.

    Args:
        path: of the estimator's class.
    """
    found = BLOCK_ESTIMATORS.get(path.rpartition(".")[2])
    if found is None or not path.startswith("sklearn.") or found.refused(parameters):
        return None
    components = parameters.get("n_components")
    return None if components is not None and type(components) is not int else found


Task = Literal["classify", "regress", "rank", "cluster", "project", "isolate"]
"""What a model says of a row: a class, a number, its place among others, the cluster it is in, its
coordinates, or whether it is an outlier."""

SUPERVISED: frozenset[Task] = frozenset({"classify", "regress", "rank"})
"""Tasks that are learned from a label."""

Features = Literal["ordinal", "named", "one_hot", "scaled", "given"]
"""How an estimator takes its features (`feature_pipeline.py`): with categories as numbers that it
knows to be categories, with categories as names, with columns of 0 and 1 in place of categories, or
with these and with numbers that are scaled and have no gaps; or as the query has them ("given")."""


def _row(**items: Any) -> Mapping[str, Any]:
    return MappingProxyType(items)


@dataclass(frozen=True, slots=True, eq=False)
class Trainer:
    """How a library trains a type of model.

    path: its estimator. features: how that takes them. names: other name of a parameter -> its own.
    defaults: parameters that sqlml sets unless the statement does. seed: the parameter that takes
    the seed; None if the estimator draws no random numbers. stops_early: whether it can stop when
    held-out rows gain no more. packages: that it needs, the library first; none: that of `path`.
    """

    path: str
    features: Features
    names: Mapping[str, str] = field(default_factory=_row)
    defaults: Mapping[str, Any] = field(default_factory=_row)
    seed: str | None = "random_state"
    stops_early: bool = False
    packages: tuple[str, ...] = ()

    def reads_blocks(self, parameters: Mapping[str, Any]) -> bool:
        """Whether it learns from a matrix block by block, and keeps less than it reads, or another
        estimator does so in its place."""
        if self.path.endswith("Ranker"):
            return False
        if self.package == "xgboost":
            return makes_bins(parameters)
        known = block_estimator(self.path, parameters)
        return self.package == "lightgbm" or known is not None

    @property
    def goes_on(self) -> bool:
        """Whether its rounds can be saved, and others made behind them."""
        return self.stops_early and self.package in ("xgboost", "lightgbm", "torch")

    @property
    def package(self) -> str:
        """The package of the library, as Python imports it."""
        return self.packages[0] if self.packages else self.path.partition(".")[0]

    @property
    def missing(self) -> list[str]:
        """The packages that it needs, or training does, and that are not installed."""
        return missing_packages(self.package, *self.packages)

    def estimator_class(self) -> Any:
        """The class of the estimator."""
        module, _, name = self.path.rpartition(".")
        return getattr(import_module(module), name)


def makes_bins(parameters: Mapping[str, Any]) -> bool:
    """Whether XGBoost needs only the numbers of bins that values are in."""
    binned = parameters.get("tree_method") in (None, "auto", "hist")
    return binned and parameters.get("booster") != "gblinear"


@dataclass(frozen=True, slots=True, eq=False)
class ModelType:
    """A type of model: its task, and what trains it, by library, the preferred one first."""

    task: Task
    trainers: Mapping[str, Trainer]


_TREES = _row(
    max_tree_depth="max_depth",
    learn_rate="learning_rate",
    max_iterations="n_estimators",
    num_trees="n_estimators",
    l1_reg="reg_alpha",
    l2_reg="reg_lambda",
)
_XGBOOST = _row(
    **_TREES,
    eta="learning_rate",
    alpha="reg_alpha",
    **{"lambda": "reg_lambda"},
    min_split_loss="gamma",
    min_tree_child_weight="min_child_weight",
    booster_type="booster",
    dart_normalize_type="normalize_type",
    num_boost_round="n_estimators",
    nthread="n_jobs",
)
_LIGHTGBM = _row(
    **_TREES,
    min_split_loss="min_split_gain",
    min_tree_child_weight="min_child_weight",
    booster_type="boosting_type",
    colsample_bynode="feature_fraction_bynode",
)
_CATBOOST = _row(
    max_tree_depth="depth",
    max_depth="depth",
    learn_rate="learning_rate",
    max_iterations="iterations",
    num_trees="iterations",
    n_estimators="iterations",
    l2_reg="l2_leaf_reg",
    reg_lambda="l2_leaf_reg",
    colsample_bylevel="rsm",
)
_HIST = _row(
    max_tree_depth="max_depth",
    learn_rate="learning_rate",
    max_iterations="max_iter",
    num_trees="max_iter",
    n_estimators="max_iter",
    l2_reg="l2_regularization",
)
_FOREST = _row(
    max_tree_depth="max_depth",
    num_trees="n_estimators",
    num_parallel_tree="n_estimators",
    max_iterations="n_estimators",
    colsample_bynode="max_features",
    subsample="max_samples",
)
_LINEAR = _row(max_iterations="max_iter", min_rel_progress="tol")
_OF_CATEGORIES = _row(enable_categorical=True, tree_method="hist")
_REPEATABLE = _row(verbosity=-1, deterministic=True, force_row_wise=True)
_SILENT = _row(verbose=False, allow_writing_files=False, one_hot_max_size=255)


def _boosted(kind: str) -> Mapping[str, Trainer]:
    """The libraries that boost trees; `kind` ends the name of their estimators."""
    sklearn = f"sklearn.ensemble.HistGradientBoosting{kind}"
    made = {
        "xgboost": Trainer(f"xgboost.XGB{kind}", "ordinal", _XGBOOST, _OF_CATEGORIES),
        "lightgbm": Trainer(f"lightgbm.LGBM{kind}", "ordinal", _LIGHTGBM, _REPEATABLE),
        "catboost": Trainer(f"catboost.CatBoost{kind}", "named", _CATBOOST, _SILENT, "random_seed"),
        "sklearn": Trainer(sklearn, "ordinal", _HIST),
    }
    if kind == "Ranker":
        del made["sklearn"]
    return MappingProxyType({name: _early(trainer) for name, trainer in made.items()})


def _early(trainer: Trainer) -> Trainer:
    made = trainer.path, trainer.features, trainer.names, trainer.defaults, trainer.seed
    return Trainer(*made, stops_early=True)


def _forest(kind: str) -> Mapping[str, Trainer]:
    sklearn = Trainer(f"sklearn.ensemble.RandomForest{kind}", "one_hot", _FOREST)
    xgboost = Trainer(f"xgboost.XGBRF{kind}", "ordinal", _XGBOOST, _OF_CATEGORIES)
    return _row(sklearn=sklearn, xgboost=xgboost)


_NETWORK = _row(
    activation_fn="activation",
    learn_rate="lr",
    learning_rate="lr",
    max_iterations="max_epochs",
    l2_reg="weight_decay",
)


def _network(kind: str) -> Mapping[str, Trainer]:
    path = f"sqlml.training.estimators.dnn.DNN{kind}"
    packages = ("torch", "skorch")
    return _row(torch=Trainer(path, "scaled", _NETWORK, stops_early=True, packages=packages))


_PLAIN_REGRESSION = Trainer("sklearn.linear_model.LinearRegression", "scaled", _LINEAR, seed=None)
_LOGISTIC_REGRESSION = Trainer(
    "sklearn.linear_model.LogisticRegression", "scaled", _LINEAR, _row(max_iter=1000)
)
_KMEANS = Trainer(
    "sklearn.cluster.KMeans",
    "scaled",
    _row(
        num_clusters="n_clusters",
        kmeans_init_method="init",
        max_iterations="max_iter",
        min_rel_progress="tol",
    ),
)
_PCA = Trainer(
    "sklearn.decomposition.PCA",
    "scaled",
    _row(
        num_principal_components="n_components",
        pca_explained_variance_ratio="n_components",
        pca_solver="svd_solver",
    ),
)
_ISOLATION_FOREST = Trainer(
    "sklearn.ensemble.IsolationForest", "one_hot", _row(num_trees="n_estimators")
)

MODEL_TYPES: Mapping[str, ModelType] = MappingProxyType(
    {
        "linear_reg": ModelType("regress", _row(sklearn=_PLAIN_REGRESSION)),
        "logistic_reg": ModelType("classify", _row(sklearn=_LOGISTIC_REGRESSION)),
        "boosted_tree_classifier": ModelType("classify", _boosted("Classifier")),
        "boosted_tree_regressor": ModelType("regress", _boosted("Regressor")),
        "boosted_tree_ranker": ModelType("rank", _boosted("Ranker")),
        "random_forest_classifier": ModelType("classify", _forest("Classifier")),
        "random_forest_regressor": ModelType("regress", _forest("Regressor")),
        "dnn_classifier": ModelType("classify", _network("Classifier")),
        "dnn_regressor": ModelType("regress", _network("Regressor")),
        "kmeans": ModelType("cluster", _row(sklearn=_KMEANS)),
        "pca": ModelType("project", _row(sklearn=_PCA)),
        "isolation_forest": ModelType("isolate", _row(sklearn=_ISOLATION_FOREST)),
    }
)
"""Name in OPTIONS (model_type = ..) -> what it is."""


def model_type_of(name: Any) -> tuple[str, ModelType]:
    """The type of a name in any case.

    >>> model_type_of("KMEANS")[1].task
    'cluster'

    Raises:
        ConfigError: none is called so; the message has the closest one.
    """
    if not isinstance(name, str):
        raise ConfigError(
            "training needs the option model_type, as in OPTIONS (model_type = 'logistic_reg', "
            f"label = 'churned') before AS; model types: {', '.join(MODEL_TYPES)}"
        )
    key = name.lower()
    if key not in MODEL_TYPES:
        near = closest(key, MODEL_TYPES)
        hint = f"did you mean {near!r}? " if near else ""
        raise ConfigError(
            f"unknown model type {name!r}; {hint}Model types: {', '.join(MODEL_TYPES)}"
        )
    return key, MODEL_TYPES[key]


def trainer_of(model_type: str, library: Any = None) -> tuple[str, Trainer]:
    """The library that trains a type of model: the one that is named, or the first installed.

    Raises:
        ConfigError: it does not train such models.
        MissingDependencyError: it is not installed, or none of them is.
    """
    trainers = MODEL_TYPES[model_type].trainers
    known = ", ".join(trainers)
    if library is not None and library not in trainers:
        raise ConfigError(
            f"library {library!r} does not train {model_type} models; libraries: {known}"
        )
    for name, trainer in trainers.items():
        if library in (None, name) and not trainer.missing:
            return name, trainer
    wanted = library or next(iter(trainers))
    missing = trainers[wanted].missing
    raise MissingDependencyError(
        f"training {model_type} models needs {not_installed(missing)}: "
        f"pip install 'sqlml[train,{wanted}]'"
        + ("" if library or len(trainers) == 1 else f"; libraries: {known}")
    )


def not_installed(missing: Sequence[str]) -> str:
    """Missing packages in a sentence, as what something needs.

    >>> not_installed(["torch"]), not_installed(["torch", "skorch"])
    ('torch, which is not installed', 'torch and skorch, which are not installed')
    """
    listed = " and ".join([", ".join(missing[:-1]), missing[-1]] if missing[1:] else missing)
    return f"{listed}, which {'are' if missing[1:] else 'is'} not installed"


def missing_packages(*packages: str) -> list[str]:
    """Those of the packages that training needs, and of `packages`, that are not installed."""
    needed = dict.fromkeys(("sklearn", "pandas", *packages))
    return [package for package in needed if find_spec(package) is None]


# `metrics_of`: how good a model is, by scikit-learn's metrics under BigQuery's names.


METRICS: Mapping[Task, tuple[str, ...]] = MappingProxyType(
    {
        "classify": OF_CLASSES,
        "regress": OF_NUMBERS,
        "rank": ("ndcg",),
        "cluster": ("davies_bouldin_index", "mean_squared_distance"),
        "project": ("total_explained_variance_ratio",),
        "isolate": ("outlier_share",),
    }
)
"""What each kind of model is measured by."""

LOWER_IS_BETTER = frozenset(
    "log_loss brier_score mean_absolute_error mean_squared_error mean_squared_log_error "
    "median_absolute_error max_error "
    "mean_absolute_percentage_error davies_bouldin_index mean_squared_distance".split()
)

_AT = 10
"""Rows of each group that ndcg looks at."""


def metrics_of(estimator: Any, part: Part, task: Task, classes: int) -> Metrics:
    """The metrics of a fitted estimator on some rows; None for one that they do not define.

    Args:
        classes: how many there are; labels are their numbers.
    """
    if task == "classify":
        return _of_classes(_told(estimator.predict_proba, part), part, classes)
    if task == "regress":
        return _of_numbers(_told(estimator.predict, part).reshape(-1), part)
    if task == "rank":
        return {"ndcg": _ndcg(np.asarray(estimator.predict(part.X)).reshape(-1), part)}
    if task == "cluster":
        return _of_clusters(estimator, part)
    if task == "project":
        if not hasattr(estimator, "explained_variance_ratio_"):
            return {}
        return {"total_explained_variance_ratio": float(estimator.explained_variance_ratio_.sum())}
    outliers = np.asarray(estimator.predict(part.X)) < 0
    return {"outlier_share": float(outliers.mean())}


def _told(method: Any, part: Part) -> Any:
    """What an estimator says of all rows, float64."""
    if not isinstance(part.X, Blocks):
        return np.asarray(method(part.X), np.float64)
    return np.concatenate([np.asarray(method(block), np.float64) for block in part.X.blocks()])


def _of_classes(proba: Any, part: Part, classes: int) -> Metrics:
    """Of a binary classifier for its second class at 0.5; means over the classes else."""
    proba /= proba.sum(axis=1, keepdims=True)  # of float32 they may not add up to 1
    predicted = (proba[:, 1] > 0.5).astype(int) if classes == 2 else proba.argmax(axis=1)
    return class_metrics(np.asarray(part.y), predicted, classes, part.weight, proba=proba)


def _of_numbers(predicted: Any, part: Part) -> Metrics:
    return number_metrics(np.asarray(part.y), predicted, part.weight)


def _ndcg(scores: Any, part: Part) -> float | None:
    """The mean over the groups that have more than one row."""
    from sklearn.metrics import ndcg_score

    if part.group is None or part.y is None:
        return None
    ends = np.flatnonzero(np.diff(part.group)) + 1
    groups = zip(np.split(part.y, ends), np.split(scores, ends), strict=True)
    found = [ndcg_score([y], [score], k=_AT) for y, score in groups if len(y) > 1]
    return float(np.mean(found)) if found else None


def _of_clusters(estimator: Any, part: Part) -> Metrics:
    from sklearn.metrics import davies_bouldin_score

    labels = estimator.predict(part.X)
    distances = estimator.transform(part.X).min(axis=1)
    dense = part.X.toarray() if hasattr(part.X, "toarray") else part.X
    several = 1 < len(np.unique(labels)) < len(labels)
    return {
        "davies_bouldin_index": float(davies_bouldin_score(dense, labels)) if several else None,
        "mean_squared_distance": float(np.mean(np.square(distances))),
    }
