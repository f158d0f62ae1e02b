"""Options of a model: OPTIONS (...) in SQL, keyword arguments of `create_model` in Python.

`STORED` options are stored with the model and decide how it runs. `AT_CREATION` options only apply
while a model is read and compared with its source. All options are checked here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypedDict

from sqlml.catalog.model import TRANSFORM
from sqlml.errors import ConfigError
from sqlml.ir.program import Program
from sqlml.planner.binding.refused_nulls import find_null_inputs
from sqlml.planner.binding.requested_output import find_label
from sqlml.planner.binding.unknown_categories import check_null_accepted
from sqlml.planner.program.choose import choose_way, read_batch_size
from sqlml.types import list_classes

STORED = (
    *("backend", "strategy", "device", "batch_size"),
    *("on_null", "on_missing_column", "on_unknown", "positive_class", "approximate"),
)
AT_CREATION = ("allow_pickle", "sha256", "verify")
OUTPUT, ESTIMATOR = "output", "estimator"
"""The key for the label's name from the OUTPUT clause, and the key for the estimator's recipe."""

INTERNAL = (OUTPUT, ESTIMATOR, TRANSFORM)
"""Keys that are stored with the options, but that users cannot set."""


class ModelOptions(TypedDict, total=False):
    """Keyword options of `create_model` and `add_version`.

    Attributes:
        on_null: `'error'` or `'null'`, the result for rows with NULL in a column the model needs.
        on_missing_column: `'error'` or `'null'`, the result for tables that lack a column.
        on_unknown: `'error'` or `'null'`, the result for categories that the model has never seen.
        positive_class: the class whose probability `predict_proba` returns.
        approximate: allow a cascade to predict instead of the model.
        backend: "auto", "native", "reference", "torch", "onnxruntime" or "sql".
        strategy: how trees are evaluated; "auto" by default.
        device: "auto", "cpu" or "cuda".
        batch_size: the number of rows to score at once.
        verify: `True` compares the stored model with its source and rejects it if they differ,
            `"record"` only stores the result of the comparison, and `False` skips the comparison.
        allow_pickle: read pickle files, which can execute code.
        sha256: the SHA-256 digest that a model file must have.
    """

    on_null: Literal["error", "null"]
    on_missing_column: Literal["error", "null"]
    on_unknown: Literal["error", "null"]
    positive_class: str | float | bool
    approximate: bool
    backend: str
    strategy: str
    device: str
    batch_size: int
    verify: bool | Literal["record"]
    allow_pickle: bool
    sha256: str


class TrainingOptions(ModelOptions, total=False):
    """Keyword options of `train`.

    These are the options of sqlml, and the parameters of estimators that most libraries share.
    Pass all other parameters in `library_options`, by the names that the library uses.
    docs/sql-options.md lists all options of sqlml.

    Attributes:
        library: "sklearn", "xgboost", "lightgbm", "catboost" or "torch".
        split, eval_fraction, split_column: which rows are held out to measure the model.
        seed: the seed of the split and of the estimator; 0 by default.
        early_stop, early_stopping_rounds: whether, and after how many rounds without a lower
            held-out loss, to stop boosting.
        class_weights: "balanced", or (class, weight) pairs.
        weight, group: columns with row weights, and with the groups of a ranker.
        encoding: `"one_hot"` or `"target"`, for categories that the estimator cannot read.
        standardize: scale numbers for estimators that need scaled numbers.
        calculate_p_values: compute the standard errors and p-values of the weights.
        leaks: `"warn"` or `"error"`, the reaction to a feature that equals the label.
        keep_estimator: store the fitted object, so that `Session.estimator` can load it.
        num_trials, tuning_objective: the number of trials of a search, and the metric to rank them.
        checkpoint: a folder in which finished rounds are saved.
        out_of_core: read rows in blocks from a file instead of keeping them in memory.
        num_workers: the number of Spark tasks that train together.
        partition_by: the column or columns whose values get a model each.
        unseen_partition, min_partition_rows: what scores the rows of partitions without a model,
            and the fewest rows of a partition with a model.
        cv, cv_by, cv_time: the number of folds of a cross-validation, and the column whose groups
            stay in one fold or whose times order the folds.
        calibration, calibration_by: the method that calibrates intervals or sets on the held-out
            rows, and the column that divides them into groups.
    """

    library: str
    split: str
    eval_fraction: float
    split_column: str
    seed: int
    early_stop: bool
    early_stopping_rounds: int
    class_weights: object
    weight: str
    group: str
    encoding: Literal["one_hot", "target"]
    standardize: bool
    calculate_p_values: bool
    leaks: Literal["warn", "error"]
    keep_estimator: bool
    num_trials: int
    tuning_objective: str
    checkpoint: str
    out_of_core: bool
    num_workers: int
    cv: int
    cv_by: str
    cv_time: str
    calibration: Literal["split", "lac", "aps", "mondrian"]
    calibration_by: str
    partition_by: str | list[str]
    unseen_partition: Literal["error", "null", "fallback"]
    min_partition_rows: int
    alpha: object
    colsample_bytree: object
    hidden_units: object
    l1_ratio: object
    l1_reg: object
    l2_reg: object
    learning_rate: object
    max_depth: object
    max_features: object
    max_iter: object
    max_iterations: object
    max_leaves: object
    min_child_weight: object
    monotone_constraints: object
    n_clusters: object
    n_components: object
    n_estimators: object
    num_leaves: object
    objective: object
    subsample: object


def validate_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Check all options of a new model, and return the options that are stored with the model."""
    known_names = sorted((*STORED, *AT_CREATION))
    for name in options:
        if name not in known_names:
            raise ConfigError(
                f"unknown option {name!r}; options: {', '.join(known_names)} (and inputs, "
                "or_replace, if_not_exists, comment in create_model)"
            )
    verify = options.get("verify", True)  # The value 1 equals True, but is rejected.
    if type(verify) not in (bool, str) or verify not in (True, False, "record"):
        raise ConfigError(f"option verify cannot be {verify!r}; it takes true, false or 'record'")
    for name in ("on_null", "on_missing_column", "on_unknown"):
        if options.get(name, "error") not in ("error", "null"):
            message = f"option {name} cannot be {options[name]!r}; it takes 'error' or 'null'"
            raise ConfigError(message)
    if type(options.get("approximate", False)) is not bool:
        raise ConfigError("option approximate must be true or false")
    read_batch_size(options)
    if not isinstance(options.get("positive_class", ""), str | int | float | bool):
        message = "option positive_class must be a class of the model: a string or a number"
        raise ConfigError(message)
    return {k: value for k, value in options.items() if k in STORED}


def validate_altered_options(options: Mapping[str, Any]) -> dict[str, Any]:
    for name in options:
        if name in AT_CREATION:
            raise ConfigError(f"option {name} applies only while a model is created")
    validate_option_names(options)
    return validate_options(options)


def validate_option_names(names: Iterable[str]) -> None:
    """Raise ConfigError for a name that is not a stored option."""
    for name in names:
        if name not in STORED:
            raise ConfigError(f"unknown option {name!r}; options: {', '.join(STORED)}")


def select_user_options(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name not in INTERNAL}


def read_exported_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Check and return the options in a file from EXPORT MODEL, including internal options."""
    label = options.get(OUTPUT)
    if not (label is None or isinstance(label, str)):
        raise ConfigError(f"invalid name {label!r} for what a model predicts")
    internal_options = {name: options[name] for name in INTERNAL if options.get(name) is not None}
    return {**validate_options(select_user_options(options)), **internal_options}


def check_options_fit(program: Program, options: Mapping[str, Any]) -> None:
    """Check that a model supports its options.

    If an option does not apply to the model, ConfigError is raised. If the backend cannot run the
    model, BackendError or MissingDependencyError is raised.
    """
    if not options:
        return
    choose_way(program, options)
    find_null_inputs(options, program)
    check_null_accepted(options, program)
    positive_class = options.get("positive_class")
    if positive_class is None:
        return
    if not program.labels or "proba" not in program.outputs:
        raise ConfigError("option positive_class is for classifiers with probabilities")
    if all(find_label(labels, positive_class) is None for labels in program.labels):
        classes = list_classes(dict.fromkeys(v for labels in program.labels for v in labels.values))
        raise ConfigError(f"the model has no class {positive_class!r}; its classes are {classes}")
