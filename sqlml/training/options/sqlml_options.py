"""Options of a training statement that belong to sqlml, and errors for unsupported options."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from sqlml.errors import ConfigError
from sqlml.parsing.statement_parts import option_text
from sqlml.suggestions import closest
from sqlml.training.column_statistics import class_name
from sqlml.training.model_types import MODEL_TYPES, Trainer, join_names
from sqlml.training.options.estimator_parameters import list_parameter_names

TRAINING_OPTIONS: Mapping[str, tuple[tuple[type, ...], str]] = {
    "model_type": ((str,), "the name of a model type"),
    "library": ((str,), "the name of a library"),
    "label": ((str,), "the name of a column"),
    "split": ((str,), "auto, random, seq, custom or none"),
    "eval_fraction": ((float, int), "a number"),
    "split_column": ((str,), "the name of a column"),
    "seed": ((int,), "an integer from 0 to 4294967295"),
    "early_stop": ((bool,), "true or false"),
    "early_stopping_rounds": ((int,), "an integer"),
    "class_weights": ((str, tuple), "'balanced' or a list such as [('yes', 2.0), ('no', 1.0)]"),
    "weight": ((str,), "the name of a column"),
    "group": ((str,), "the name of a column"),
    "encoding": ((str,), "'one_hot', 'dummy' or 'target'"),
    "standardize": ((bool,), "true or false"),
    "leaks": ((str,), "'warn' or 'error'"),
    "keep_estimator": ((bool,), "true or false"),
    "num_trials": ((int,), "an integer"),
    "tuning_objective": ((str,), "the name of a metric"),
    "checkpoint": ((str,), "the path of a folder"),
    "out_of_core": ((bool,), "true or false"),
    "num_workers": ((int,), "an integer"),
    "partition_by": ((str, tuple), "the name of a column, or a list of names"),
    "unseen_partition": ((str,), "'error', 'null' or 'fallback'"),
    "min_partition_rows": ((int,), "an integer"),
    "cv": ((int,), "a number of folds, such as 5"),
    "cv_by": ((str,), "the name of a column"),
    "cv_time": ((str,), "the name of a column"),
    "calculate_p_values": ((bool,), "true or false"),
    "calibration": ((str,), "split, lac, aps or mondrian"),
    "calibration_by": ((str,), "the name of a column"),
}
"""Maps each option to the types of its value, and their description in errors."""

ALIASES: Mapping[str, str] = {
    "input_label_cols": "label",
    "data_split_method": "split",
    "data_split_eval_fraction": "eval_fraction",
    "data_split_col": "split_column",
    "auto_class_weights": "class_weights",
    "instance_weight_col": "weight",
    "category_encoding_method": "encoding",
    "standardize_features": "standardize",
    "scale_features": "standardize",
    "random_seed": "seed",
    "random_state": "seed",
    "hparam_tuning_objectives": "tuning_objective",
}
"""Other names of the options in `TRAINING_OPTIONS`, most of them BigQuery's."""

ESTIMATOR_OPTIONS = tuple(
    "label split eval_fraction split_column seed weight leaks keep_estimator cv cv_by cv_time "
    "calibration calibration_by".split()
)
"""Options for training an estimator that is passed from Python."""


@dataclass(frozen=True, slots=True)
class Options:
    """Options keyed by name, and the spelling of each name in the statement for errors."""

    values: Mapping[str, Any]
    written: Mapping[str, str]

    @classmethod
    def from_mapping(cls, options: Mapping[str, Any]) -> Options:
        values = {n: _to_tuples(v) for n, v in options.items()}
        return cls(MappingProxyType(values), MappingProxyType({n: n for n in values}))

    def rename(self, names: Mapping[str, str]) -> Options:
        """Rename options as `names` maps them, and reject two options with the same meaning."""
        values: dict[str, Any] = {}
        spellings: dict[str, str] = {}
        for name, value in self.values.items():
            new_name, spelling = names.get(name, name), self.written.get(name, name)
            if new_name in values:
                raise ConfigError(
                    f"options {spellings[new_name]} and {spelling} are the same; give one of them"
                )
            values[new_name], spellings[new_name] = value, spelling
        return Options(MappingProxyType(values), MappingProxyType(spellings))

    def select(self, names: Collection[str]) -> Options:
        return self.replace_values({n: v for n, v in self.values.items() if n in names})

    def exclude(self, names: Collection[str]) -> Options:
        return self.replace_values({n: v for n, v in self.values.items() if n not in names})

    def replace_values(self, values: Mapping[str, Any]) -> Options:
        return Options(MappingProxyType(dict(values)), self.written)


def _to_tuples(value: Any) -> Any:
    """Convert Python lists and dicts to tuples, the form in which statements contain them."""
    if isinstance(value, Mapping):
        return tuple((name, _to_tuples(v)) for name, v in value.items())
    return tuple(_to_tuples(v) for v in value) if isinstance(value, list | tuple) else value


def read_sqlml_options(options: Options, names: Collection[str]) -> dict[str, Any]:
    selected = options.select(names).values
    return {n: _check_value(n, v, options.written.get(n, n)) for n, v in selected.items()}


def _check_value(name: str, value: Any, spelling: str) -> Any:
    is_list = isinstance(value, tuple | list)
    if name in ("label", "tuning_objective") and is_list and len(value) == 1:
        (value,) = value  # BigQuery writes input_label_cols = ['churned'].
    if name == "class_weights" and isinstance(value, bool):
        value = "balanced" if value else None  # BigQuery's auto_class_weights is a BOOLEAN.
    if name in _KEYWORD_OPTIONS and isinstance(value, str):
        value = value.lower()
    if name == "encoding" and isinstance(value, str):
        value = value.removesuffix("_encoding")
    types, description = TRAINING_OPTIONS[name]
    is_valid = isinstance(value, types) and (not isinstance(value, bool) or bool in types)
    if name == "checkpoint":
        is_valid = is_valid and value != "" and "\0" not in value
    if name == "partition_by" and is_valid:
        value = (value,) if isinstance(value, str) else value
        is_valid = bool(value) and all(isinstance(column, str) for column in value)
    if name == "unseen_partition":
        is_valid = is_valid and value in ("error", "null", "fallback")
    if name == "min_partition_rows":
        is_valid = is_valid and value >= 1
    if name == "seed":
        is_valid = is_valid and 0 <= value < 2**32  # All libraries accept these seeds.
    if not is_valid and not (name == "class_weights" and value is None):
        raise ConfigError(f"option {spelling} must be {description}, not {option_text(value)}")
    return value


_KEYWORD_OPTIONS = frozenset(
    "calibration class_weights encoding leaks library tuning_objective unseen_partition".split()
)
"""Options whose values are keywords, which BigQuery writes in capitals."""


def parse_class_weights(value: Any) -> Mapping[str, float] | str | None:
    """Return "balanced", or weights keyed by class name, or None if `value` is None."""
    if value is None or value == "balanced":
        return value  # type: ignore[no-any-return]
    description = TRAINING_OPTIONS["class_weights"][1]
    error = ConfigError(f"option class_weights must be {description}, not {option_text(value)}")
    if isinstance(value, str):
        raise error
    weights: dict[str, float] = {}
    for pair in value:
        arguments = getattr(pair, "arguments", pair)  # BigQuery writes STRUCT('yes', 2.0).
        if not isinstance(arguments, tuple) or len(arguments) != 2:
            raise error
        name, weight = arguments
        if isinstance(weight, bool) or not isinstance(weight, float | int):
            raise error
        if not 0 <= weight < float("inf"):
            raise ConfigError(f"the weight of class {name!r} must be a positive number")
        weights[class_name(name)] = float(weight)
    return MappingProxyType(weights)


_COSINE = (
    "k-means measures Euclidean distances; for cosine distances, divide each row by its length in "
    "the query and set standardize = false"
)
_OWN_ROWS = (
    "k-means cannot start from rows of your choice; set kmeans_init_method to 'kmeans++' or "
    "'random'"
)
UNSUPPORTED: Mapping[str, Mapping[str, str]] = {
    "kmeans": {"distance_type": _COSINE, "kmeans_init_col": _OWN_ROWS},
}
"""Maps model types to BigQuery options that sqlml does not support, with the reason for each."""

IGNORED = frozenset(
    "approx_global_feature_contrib data_split_test_fraction "
    "enable_global_explain hparam_tuning_algorithm "
    "integrated_gradients_num_steps kms_key_name learn_rate learn_rate_strategy ls_init_learn_rate "
    "max_parallel_trials min_rel_progress model_registry optimize_strategy tf_version "
    "vertex_ai_model_id vertex_ai_model_version_aliases warm_start xgboost_version".split()
)
"""BigQuery's options that have no effect on an estimator without such a parameter."""

_ONLY_FALSE = {
    "warm_start": "ALTER MODEL ... RETRAIN trains a model again, from the start",
}
"""Options in `IGNORED` of which only the value false has no effect, with advice."""


def drop_unsupported(options: Options, model_type: str) -> Options:
    """Drop `UNSUPPORTED` options whose values request the default behavior; reject other values."""
    reasons = UNSUPPORTED.get(model_type, {})
    for name, value in options.values.items():
        is_default = name == "distance_type" and str(value).lower() == "euclidean"
        if name in reasons and not is_default:
            raise ConfigError(f"option {options.written[name]}: {reasons[name]}")
    return options.exclude(reasons)


def drop_ignored(options: Options, trainer: Trainer) -> tuple[Options, list[str]]:
    """Drop the options that have no effect on the trainer's estimator; return their spellings too.

    These are `IGNORED` options, and the number of iterations of a model that is solved in one step.
    """
    ignored = set(IGNORED & options.values.keys()) - list_parameter_names(trainer)
    if trainer.path.endswith(".LinearRegression"):
        ignored |= options.values.keys() & {"max_iter"}
    for name in ignored & _ONLY_FALSE.keys():
        if options.values[name] is not False:
            message = f"option {options.written[name]} can only be false: {_ONLY_FALSE[name]}"
            raise ConfigError(message)
    spellings = [options.written[name] for name in options.values if name in ignored]
    return options.exclude(ignored), spellings


def has_parameters(trainer: Trainer, options: Collection[str]) -> bool:
    """Return whether the trainer's estimator has, or ignores, the options under some name."""
    return set(options) <= IGNORED | trainer.names.keys() | list_parameter_names(trainer)


def check_parameter_names(
    parameters: Options,
    model_type: str,
    library: str,
    trainer: Trainer,
    stored_names: Collection[str],
) -> None:
    """Reject parameters that the estimator lacks, and suggest a library or a name that has them.

    `stored_names` are the names of the options that are stored with every model.
    """
    names = list_parameter_names(trainer)
    for name in parameters.values:
        if name in names:
            continue
        spelling = parameters.written[name]
        owners = list(_find_owners(spelling))
        libraries = [library for other, library in owners if other == model_type]
        if libraries and library not in libraries:
            library_choice = " or ".join(f"'{other}'" for other in libraries)
            raise ConfigError(
                f"option {spelling} belongs to {model_type} models by {' and '.join(libraries)}, "
                f"not to those by {library}; set library = {library_choice}"
            )
        if owners and not libraries:  # Name boosted_tree instead of boosted_tree_classifier.
            families = [re.sub("_(classifier|regressor|ranker)$", "", t) for t, _ in owners]
            owner_families = join_names(list(dict.fromkeys(families)))
            others = f"not to {model_type} models by {library}"
            raise ConfigError(f"option {spelling} belongs to {owner_families} models, {others}")
        known_names = {*TRAINING_OPTIONS, *ALIASES, *stored_names, *trainer.names, *names}
        suggestion = closest(spelling, sorted(known_names - {spelling}))
        hint = f"; did you mean {suggestion}?" if suggestion else ""
        raise ConfigError(f"unknown option {spelling!r} of {model_type} models by {library}{hint}")


def _find_owners(name: str) -> Iterator[tuple[str, str]]:
    for model_type, definition in MODEL_TYPES.items():
        for library, trainer in definition.trainers.items():
            is_listed = name in trainer.names or name in UNSUPPORTED.get(model_type, {})
            if is_listed or name in list_parameter_names(trainer):
                yield model_type, library
