"""`Request`: what OPTIONS (..) of a training statement ask for, checked before any work.

An option is one of sqlml's own (`OWN`), one that is kept with every model (positive_class,
backend, ..), or a parameter of the library's estimator; BigQuery's names mean the same (`ALIASES`,
and `names` of each `Trainer`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from sqlml.errors import ConfigError, MissingColumnError
from sqlml.parsing.statements import Call
from sqlml.suggestions import closest
from sqlml.training.block_estimators import OF_PASSES
from sqlml.training.estimator_parameters import checked_parameters, parameter_names
from sqlml.training.metrics import METRICS
from sqlml.training.model_types import (
    MODEL_TYPES,
    SUPERVISED,
    Task,
    Trainer,
    model_type_of,
    trainer_of,
)
from sqlml.training.regularisation import regularised
from sqlml.training.searched_values import Searched, searched
from sqlml.training.splits import Split, checked_split
from sqlml.types import fold

OWN: Mapping[str, tuple[tuple[type, ...], str]] = MappingProxyType(
    {
        "model_type": ((str,), "the name of a model type"),
        "library": ((str,), "the name of a library"),
        "label": ((str,), "the name of a column"),
        "split": ((str,), "auto, random, seq, custom or none"),
        "eval_fraction": ((float, int), "a number"),
        "split_column": ((str,), "the name of a column"),
        "seed": ((int,), "an integer"),
        "early_stop": ((bool,), "true or false"),
        "early_stopping_rounds": ((int,), "an integer"),
        "class_weights": ((str, tuple), "'balanced' or a list such as [('yes', 2.0), ('no', 1.0)]"),
        "weight": ((str,), "the name of a column"),
        "group": ((str,), "the name of a column"),
        "encoding": ((str,), "'one_hot' or 'target'"),
        "standardize": ((bool,), "true or false"),
        "leaks": ((str,), "'warn' or 'error'"),
        "keep_estimator": ((bool,), "true or false"),
        "num_trials": ((int,), "an integer"),
        "tuning_objective": ((str,), "the name of a metric"),
        "checkpoint": ((str,), "the path of a folder"),
        "out_of_core": ((bool,), "true or false"),
        "num_workers": ((int,), "an integer"),
    }
)
"""Option -> the types of its value, and what an error calls them."""

ALIASES: Mapping[str, str] = MappingProxyType(
    {
        "input_label_cols": "label",
        "data_split_method": "split",
        "data_split_eval_fraction": "eval_fraction",
        "data_split_col": "split_column",
        "auto_class_weights": "class_weights",
        "category_encoding_method": "encoding",
        "standardize_features": "standardize",
        "random_seed": "seed",
        "random_state": "seed",
        "hparam_tuning_objectives": "tuning_objective",
    }
)
"""Other names of `OWN`."""

OF_ESTIMATORS = (
    *("label", "split", "eval_fraction", "split_column", "seed", "weight", "leaks"),
    "keep_estimator",
)
"""Options of training an estimator that Python gives."""

NUM_TRIALS = 20
"""Fits of a search, unless the statement says otherwise."""

EARLY_STOPPING_ROUNDS = 10
"""Rounds without a gain on the held-out rows after which boosting ends."""

SEED = 0

ENCODINGS = ("one_hot", "target")
"""How categories become numbers where the estimator knows none."""


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """What is to be trained.

    Attributes:
        model_type, task, library, trainer: what, and by which estimator.
        given: all options as the statement has them, under sqlml's names.
        parameters: of the estimator, under its own names, the seed included.
        label, weight, group: columns.
        split, seed: which rows are held out.
        early_stopping_rounds: None: all rounds are made.
        class_weights: a class as it is written -> its weight; "balanced"; or None.
        encoding: of categories; None: by their number.
        standardize: whether numbers are scaled for estimators that need it.
        leaks: whether a feature that equals the label is an error.
        searched, num_trials, objective: parameters to search for, in how many trials, and the
            metric that is best.
        checkpoint: a folder where rounds are saved.
        out_of_core: whether rows are read in blocks from a file; None: if they need it.
        num_workers: that train together, in Spark; None: one in each executor.
        kept: options that are kept with the model.
    """

    model_type: str
    task: Task
    library: str
    trainer: Trainer
    given: Mapping[str, Any]
    parameters: Mapping[str, Any]
    label: str | None = None
    weight: str | None = None
    group: str | None = None
    split: Split = field(default_factory=Split)
    seed: int = SEED
    early_stopping_rounds: int | None = None
    class_weights: Mapping[str, float] | str | None = None
    encoding: str | None = None
    standardize: bool = True
    leaks: str = "warn"
    keep_estimator: bool = True
    searched: Mapping[str, Searched] = field(default_factory=lambda: MappingProxyType({}))
    num_trials: int = 0
    objective: str | None = None
    checkpoint: str | None = None
    out_of_core: bool | None = None
    num_workers: int | None = None
    kept: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))

    @classmethod
    def of_own(
        cls,
        own: Mapping[str, Any],
        model_type: str,
        task: Task,
        trainer: Trainer,
        given: Mapping[str, Any],
        kept: Collection[str],
    ) -> Request:
        """What the options of sqlml's own ask for.

        Raises:
            ConfigError: they do not fit each other.
        """
        return cls(
            model_type,
            task,
            trainer.package,
            trainer,
            MappingProxyType(dict(given)),
            MappingProxyType({}),
            label=own.get("label"),
            weight=own.get("weight"),
            group=own.get("group"),
            split=_split(own, task),
            seed=own.get("seed", SEED),
            early_stopping_rounds=_early_stopping_rounds(own, trainer),
            class_weights=_class_weights(own.get("class_weights")),
            encoding=own.get("encoding"),
            standardize=own.get("standardize", True),
            leaks=own.get("leaks", "warn"),
            keep_estimator=own.get("keep_estimator", True),
            num_trials=own.get("num_trials", 0),
            objective=own.get("tuning_objective"),
            checkpoint=own.get("checkpoint"),
            out_of_core=own.get("out_of_core"),
            num_workers=own.get("num_workers"),
            kept=MappingProxyType({n: v for n, v in given.items() if n in kept}),
        )

    @property
    def has_label(self) -> bool:
        """Whether the model learns from a label."""
        return self.task in SUPERVISED

    @property
    def reads_blocks(self) -> bool:
        """Whether not all rows have to be in memory; LightGBM keeps them to go on with trees."""
        keeps = self.checkpoint is not None and self.trainer.package == "lightgbm"
        trees = self.trainer.package in ("xgboost", "lightgbm")
        open_ones = self.searched.keys() & {"tree_method", "booster"} if trees else self.searched
        allowed = self.out_of_core is not False and not keeps and not open_ones
        return allowed and self.trainer.reads_blocks(self.parameters)

    @property
    def other_columns(self) -> frozenset[str]:
        """The columns that options name, such as the label; they are not features."""
        named = (self.label, self.weight, self.group, self.split.column)
        return frozenset(name for name in named if name is not None)

    def with_columns(self, columns: Mapping[str, str]) -> Request:
        """The request with the names of columns as the query spells them.

        Args:
            columns: folded name -> name.

        Raises:
            MissingColumnError: the query lacks one of them.
        """
        found: dict[str, Any] = {
            name: _column(name, getattr(self, name), columns)
            for name in ("label", "weight", "group")
            if getattr(self, name) is not None
        }
        split = self.split
        if split.column is not None:
            column = _column("split_column", split.column, columns)
            split = replace(split, column=column)
        return replace(self, split=split, **found)


def _column(option: str, name: str, columns: Mapping[str, str]) -> str:
    if fold(name) in columns:
        return columns[fold(name)]
    near = closest(name, columns.values())
    hint = f"did you mean {near}?" if near else f"its columns: {', '.join(columns.values())}"
    raise MissingColumnError(f"option {option}: the query has no column {name!r}; {hint}")


def own_options(
    options: Mapping[str, Any], names: Collection[str], kept: Collection[str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Those options that are sqlml's own, checked, and those that are neither these nor kept.

    Raises:
        ConfigError: one is of the wrong type, or given under two names.
    """
    options = _renamed(options, ALIASES)
    own = {name: _typed(name, value) for name, value in options.items() if name in names}
    return own, {n: v for n, v in options.items() if n not in names and n not in kept}


def request_of(options: Mapping[str, Any], kept: tuple[str, ...]) -> Request:
    """What options ask for.

    Args:
        options: as the statement has them; their names are folded.
        kept: names of options that are kept with any model.

    Raises:
        ConfigError: one is unknown, of the wrong type, or of another type of model.
        MissingDependencyError: no library that trains such models is installed.
    """
    given = _renamed(_with_objective(options), ALIASES)
    options = given
    model_type, kind = model_type_of(given.get("model_type"))
    library, trainer = trainer_of(model_type, _text_or_none(given.get("library")))
    own, rest = own_options(options, OWN, kept)
    trainer, rest = regularised(model_type, trainer, rest)
    rest = _renamed(rest, trainer.names)
    spelled = {name.lower(): name for name in parameter_names(trainer)}  # C, of options folded
    rest = {spelled.get(name.lower(), name): value for name, value in rest.items()}
    passes = _passes(rest, own, trainer)
    _check_known(rest, model_type, library, trainer, kept)
    _check_own(own, model_type, kind.task, trainer)
    if trainer.seed is not None:
        rest.setdefault(trainer.seed, own.get("seed", SEED))
    calls = {name: searched(name, v) for name, v in rest.items() if isinstance(v, Call)}
    fixed = {name: value for name, value in rest.items() if name not in calls}
    parameters = {**checked_parameters(trainer, {**trainer.defaults, **fixed}), **passes}
    _check_searched(calls, own)
    if own.get("checkpoint") is not None and not calls and not trainer.goes_on:
        raise ConfigError(
            f"{model_type} models by {library} cannot be trained on from a checkpoint; libraries "
            "that can: xgboost, lightgbm, torch"
        )
    names = {**given, "model_type": model_type, "library": library}
    made = Request.of_own(own, model_type, kind.task, trainer, names, kept)
    trials = own.get("num_trials", NUM_TRIALS if calls else 0)
    made = replace(
        made,
        library=library,
        parameters=MappingProxyType(parameters),
        searched=MappingProxyType(calls),
        num_trials=trials,
    )
    if made.out_of_core and not made.reads_blocks:
        raise ConfigError(
            f"{trainer.path.rpartition('.')[2]} needs all rows in memory with these options; these "
            "can be trained out of core: boosted trees and forests by xgboost, boosted trees by "
            "lightgbm, linear_reg, logistic_reg, kmeans, and pca with a number of components"
        )
    return made


def _passes(rest: dict[str, Any], own: Mapping[str, Any], trainer: Trainer) -> dict[str, Any]:
    """Take out the options of passes over rows out of core, if the estimator itself makes none.

    Raises:
        ConfigError: one is of the wrong type.
    """
    found = {name: rest[name] for name in OF_PASSES if name in rest}
    if not own.get("out_of_core") or found.keys() <= parameter_names(trainer):
        return {}
    for name, value in found.items():
        kinds, words = OF_PASSES[name]
        right = isinstance(value, kinds) and not isinstance(value, bool)
        if not right or float(value) < 0:
            raise ConfigError(f"option {name} must be {words}, not {value!r}")
        del rest[name]
    return found


def _with_objective(options: Mapping[str, Any]) -> Mapping[str, Any]:
    """`objective` is that of the search, where one is made and it names a metric of ours, and the
    library's own else."""
    searches = any(isinstance(value, Call) for value in options.values())
    ours = any(options.get("objective") in names for names in METRICS.values())
    if not (searches and ours):
        return options
    return {("tuning_objective" if n == "objective" else n): v for n, v in options.items()}


def _check_searched(calls: Mapping[str, Searched], own: Mapping[str, Any]) -> None:
    if own.get("num_trials") is not None and not calls:
        raise ConfigError(
            "num_trials needs a parameter to search for, such as max_depth = hparam_range(2, 8)"
        )
    if own.get("num_trials", 1) < 1:
        raise ConfigError("num_trials must be at least 1")
    if own.get("tuning_objective") is not None and not calls:
        raise ConfigError("tuning_objective needs a parameter to search for")


def _renamed(options: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """The options under their own names.

    Raises:
        ConfigError: two of them mean the same.
    """
    made: dict[str, Any] = {}
    written: dict[str, str] = {}
    for name, value in options.items():
        own = names.get(name, name)
        if own in made:
            raise ConfigError(f"options {written[own]} and {name} are the same; give one of them")
        made[own], written[own] = value, name
    return made


def _typed(name: str, value: Any) -> Any:
    """The value of an option of `OWN`.

    Raises:
        ConfigError: it is of another type.
    """
    if name in ("label", "tuning_objective") and isinstance(value, tuple) and len(value) == 1:
        (value,) = value  # as BigQuery's input_label_cols = ['churned']
    if name == "class_weights" and isinstance(value, bool):
        value = "balanced" if value else None  # as BigQuery's auto_class_weights
    if name == "encoding" and isinstance(value, str):
        value = value.lower().removesuffix("_encoding")
    types, words = OWN[name]
    right = isinstance(value, types) and (not isinstance(value, bool) or bool in types)
    if not right and not (name == "class_weights" and value is None):
        raise ConfigError(f"option {name} must be {words}, not {value!r}")
    return value


def _text_or_none(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return None if value is None else value.lower()
    raise ConfigError(f"option library must be {OWN['library'][1]}, not {value!r}")


def _check_known(
    parameters: Mapping[str, Any],
    model_type: str,
    library: str,
    trainer: Trainer,
    kept: tuple[str, ...],
) -> None:
    names = parameter_names(trainer)
    for name in parameters:
        if name in names:
            continue
        other = next((m for m in MODEL_TYPES if _knows(m, library, name)), None)
        have = [*OWN, *ALIASES, *kept, *trainer.names, *names]
        near = closest(name, have)
        hint = f"; did you mean {near}?" if near else ""
        if other is not None and not near:
            hint = f"; {other} models have it"
        raise ConfigError(f"unknown option {name!r} of {model_type} models by {library}{hint}")


def _knows(model_type: str, library: str, name: str) -> bool:
    """Whether models of another type by the same library have an option."""
    trainer = MODEL_TYPES[model_type].trainers.get(library)
    return trainer is not None and (name in trainer.names or name in parameter_names(trainer))


def _check_own(own: Mapping[str, Any], model_type: str, task: Task, trainer: Trainer) -> None:
    """Refuse options of sqlml's own that do not fit the type of model, or each other."""
    if task in SUPERVISED and own.get("label") is None:
        raise ConfigError(f"training {model_type} models needs the option label")
    for name in ("label", "class_weights", "early_stop", "early_stopping_rounds"):
        if own.get(name) is not None and task not in SUPERVISED:
            raise ConfigError(f"{model_type} models have no option {name}: they take no label")
    if own.get("class_weights") is not None and task != "classify":
        raise ConfigError(f"{model_type} models have no option class_weights: they have no classes")
    if own.get("weight") is not None and task in ("rank", "project"):
        raise ConfigError(f"{model_type} models have no option weight")
    if (own.get("group") is None) == (task == "rank"):
        raise ConfigError(
            f"training {model_type} models needs the option group, the column of the query that a "
            "row belongs to"
            if task == "rank"
            else f"{model_type} models have no option group; boosted_tree_ranker models have"
        )
    if own.get("encoding") not in (None, *ENCODINGS):
        raise ConfigError(f"option encoding must be {OWN['encoding'][1]}, not {own['encoding']!r}")
    if own.get("encoding") == "one_hot" and trainer.features in ("ordinal", "named"):
        raise ConfigError("this library takes categories as they are; leave encoding out")
    if own.get("leaks", "warn") not in ("warn", "error"):
        raise ConfigError(f"option leaks must be {OWN['leaks'][1]}, not {own['leaks']!r}")
    columns = [own[n] for n in ("label", "weight", "group", "split_column") if own.get(n)]
    for column in columns:
        if columns.count(column) > 1:
            raise ConfigError(f"column {column!r} cannot be two of label, weight, group and split")


def _split(own: Mapping[str, Any], task: Task) -> Split:
    """As asked for; what learns from no label is fitted to all rows unless a split is named."""
    found = checked_split(own.get("split"), own.get("eval_fraction"), own.get("split_column"))
    automatic = found.method == "auto" and found.fraction is None
    return Split("none") if automatic and task not in SUPERVISED else found


def _early_stopping_rounds(own: Mapping[str, Any], trainer: Trainer) -> int | None:
    rounds = own.get("early_stopping_rounds")
    asked = own.get("early_stop", rounds is not None)
    if rounds is not None and (rounds < 1 or not asked):
        raise ConfigError(
            "early_stopping_rounds must be at least 1"
            if rounds < 1
            else "early_stopping_rounds needs early_stop = true"
        )
    if asked and not trainer.stops_early:
        raise ConfigError(f"{trainer.path.rpartition('.')[2]} does not stop early; leave it out")
    if not trainer.stops_early or own.get("early_stop") is False:
        return None
    return rounds or EARLY_STOPPING_ROUNDS


def _class_weights(value: Any) -> Mapping[str, float] | str | None:
    if value is None or value == "balanced":
        return value  # type: ignore[no-any-return]
    words = OWN["class_weights"][1]
    if isinstance(value, str):
        raise ConfigError(f"option class_weights must be {words}, not {value!r}")
    made: dict[str, float] = {}
    for pair in value:
        arguments = getattr(pair, "arguments", pair)  # BigQuery writes STRUCT('yes', 2.0)
        right = isinstance(arguments, tuple) and len(arguments) == 2
        if not right or isinstance(arguments[1], bool) or not isinstance(arguments[1], float | int):
            raise ConfigError(f"option class_weights must be {words}, not {value!r}")
        if not 0 <= arguments[1] < float("inf"):
            raise ConfigError(f"the weight of class {arguments[0]!r} must be a positive number")
        made[_spelled(arguments[0])] = float(arguments[1])
    return MappingProxyType(made)


def _spelled(label: Any) -> str:
    """A class as it is written."""
    return str(label).lower() if isinstance(label, bool) else str(label)
