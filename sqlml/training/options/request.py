"""The request of a training statement: its OPTIONS (...), checked and completed before any work.

An option belongs to sqlml (`TRAINING_OPTIONS`), is stored with every model (such as
positive_class), or is a parameter of the library's estimator. Alternative names, such as
BigQuery's, are in `ALIASES` and in `names` of each `Trainer`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from sqlml.errors import ConfigError, MissingColumnError
from sqlml.parsing.statement_parts import option_text
from sqlml.parsing.statements import Call
from sqlml.suggestions import closest
from sqlml.training.model_types import (
    METRICS,
    MODEL_TYPES,
    PASS_OPTIONS,
    SUPERVISED,
    Parameters,
    Task,
    Trainer,
    find_model_type,
    find_trainer,
)
from sqlml.training.options.estimator_parameters import (
    Candidates,
    Range,
    SearchSpace,
    check_parameters,
    check_space,
    list_parameter_names,
    map_parameter_aliases,
    parse_space,
)
from sqlml.training.options.folds import FoldRule, parse_folds
from sqlml.training.options.splits import SplitRule, parse_split
from sqlml.training.options.sqlml_options import (
    ALIASES,
    TRAINING_OPTIONS,
    Options,
    check_parameter_names,
    drop_ignored,
    drop_unsupported,
    has_parameters,
    parse_class_weights,
    read_sqlml_options,
)
from sqlml.types import fold

PENALTIES = ("l1_reg", "l2_reg")
"""Options for the weights of the L1 and L2 penalties on coefficients."""


def apply_penalties(
    model_type: str, trainer: Trainer, options: Mapping[str, Any]
) -> tuple[Trainer, dict[str, Any]]:
    """Choose the estimator for the penalties in `options`; return its trainer and new options.

    scikit-learn has a class for each kind of penalized linear regression. The new options are
    parameters of this class. If the statement searches for one of `PENALTIES`, all penalties stay
    in the options, and each trial converts them.
    """
    if model_type not in ("linear_reg", "logistic_reg"):
        return trainer, dict(options)
    other_options = {name: value for name, value in options.items() if name not in PENALTIES}
    weights = {name: options[name] for name in PENALTIES if name in options}
    searched = {name for name, value in weights.items() if isinstance(value, Call)}
    fixed_weights = {n: check_penalty(n, v) for n, v in weights.items() if n not in searched}
    if model_type == "linear_reg":
        requested = searched | {name for name, value in fixed_weights.items() if value}
        trainer = _choose_linear_model(trainer, requested, other_options)
        if trainer.path.endswith("ElasticNet") and not requested:
            other_options.setdefault("alpha", 1.0)
        if not trainer.path.endswith(("ElasticNet", "Lasso", "Ridge")):
            weights = {}
    elif other_options.get("l1_ratio"):
        other_options.setdefault("solver", "saga")
    if searched:
        other_options |= {**weights, **fixed_weights}
    elif weights:
        other_options = {**compute_penalty_parameters(trainer.path, fixed_weights), **other_options}
    return trainer, other_options


def compute_penalty_parameters(path: str, weights: Mapping[str, float]) -> dict[str, Any]:
    """Convert the weights in `PENALTIES` to parameters of the estimator at `path`.

    A missing weight is 0.

    >>> compute_penalty_parameters("LogisticRegression", {"l1_reg": 1.0, "l2_reg": 3})
    {'C': 0.25, 'l1_ratio': 0.25, 'solver': 'saga'}
    """
    l1, l2 = (weights.get(name, 0.0) for name in PENALTIES)
    total_weight = l1 + l2
    l1_share = l1 / total_weight if total_weight else 0.0
    if path.endswith("LogisticRegression"):
        parameters = {"C": 1 / total_weight if total_weight else float("inf"), "l1_ratio": l1_share}
        return {**parameters, "solver": "saga"} if l1 else parameters
    if path.endswith("ElasticNet"):
        return {"alpha": total_weight, "l1_ratio": l1_share if total_weight else 0.5}
    return {"alpha": l1 if path.endswith("Lasso") else l2}


def _choose_linear_model(trainer: Trainer, penalties: set[str], options: Parameters) -> Trainer:
    if len(penalties) == 2 or options.get("l1_ratio") is not None:
        name = "ElasticNet"
    elif "l1_reg" in penalties:
        name = "Lasso"
    elif penalties or options.get("alpha") is not None:
        name = "Ridge"
    else:
        return trainer
    path = f"sklearn.linear_model.{name}"
    return replace(trainer, path=path, seed="random_state", defaults=MappingProxyType({}))


def check_penalty(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        raise ConfigError(f"option {name} must be a number of at least 0, not {option_text(value)}")
    return float(value)


# Defaults of options.
NUM_TRIALS = 20
EARLY_STOPPING_ROUNDS = 10
SEED = 0


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """The checked options of a training.

    options: all options of the statement, under sqlml's names. written: maps the name of an option
    to the spelling in the statement. parameters: the parameters of the estimator, under the
    library's names, including the seed. early_stopping_rounds: None to fit all rounds.
    class_weights: "balanced", None, or a mapping from the name of a class to its weight. encoding:
    the encoding of categories, or None to choose it by the number of categories.
    calculate_p_values: whether the weights get standard errors and p-values. searched: maps
    parameters to search spaces. objective: the metric of the search. fixed_penalties: penalties
    with a fixed value, if another penalty is searched for. folds: the folds of a cross-validation,
    or None. held_out_for: the error to raise if no rows are held out, or None if that is allowed.
    out_of_core: whether rows are read in blocks from a file, or None to decide by the size of the
    rows. num_workers: workers that train together in Spark, or None for one worker in each
    executor. partition_by: the columns whose values divide the rows into partitions with a model
    each, or (). unseen_partition: what scores the rows of other partitions: 'error', 'null' or
    'fallback'. min_partition_rows: the fewest rows of a partition with a model. notices: messages
    for the user.
    """

    model_type: str
    task: Task
    library: str
    trainer: Trainer
    options: Mapping[str, Any]
    parameters: Mapping[str, Any]
    label: str | None = None
    weight: str | None = None
    group: str | None = None
    split: SplitRule = field(default_factory=SplitRule)
    folds: FoldRule | None = None
    seed: int = SEED
    early_stopping_rounds: int | None = None
    class_weights: Mapping[str, float] | str | None = None
    encoding: str | None = None
    standardize: bool = True
    calculate_p_values: bool = False
    leaks: str = "warn"
    keep_estimator: bool = True
    searched: Mapping[str, SearchSpace] = field(default_factory=lambda: MappingProxyType({}))
    fixed_penalties: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    held_out_for: str | None = None
    written: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    num_trials: int = 0
    objective: str | None = None
    checkpoint: str | None = None
    out_of_core: bool | None = None
    num_workers: int | None = None
    partition_by: tuple[str, ...] = ()
    unseen_partition: str = "error"
    min_partition_rows: int = 1
    stored_options: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    notices: tuple[str, ...] = ()

    @classmethod
    def from_sqlml_options(
        cls,
        values: Mapping[str, Any],
        model_type: str,
        task: Task,
        trainer: Trainer,
        options: Mapping[str, Any],
        stored_names: Collection[str],
    ) -> Request:
        stored_options = {n: v for n, v in options.items() if n in stored_names}
        return cls(
            *(model_type, task, trainer.package, trainer),
            *(MappingProxyType(dict(options)), MappingProxyType({})),
            split=_parse_split(values, task),
            folds=_parse_folds(values, model_type, task),
            early_stopping_rounds=_parse_early_stopping(values, trainer),
            class_weights=parse_class_weights(values.get("class_weights")),
            objective=values.get("tuning_objective"),
            stored_options=MappingProxyType(stored_options),
            **{name: values[name] for name in _UNCHANGED_OPTIONS if name in values},
        )

    @property
    def has_label(self) -> bool:
        return self.task in SUPERVISED

    @property
    def reads_blocks(self) -> bool:
        """True if training can read the rows in blocks instead of all at once."""
        # LightGBM needs all rows in memory to continue from saved trees.
        if self.checkpoint is not None and self.trainer.package == "lightgbm":
            return False
        undecided = set(self.searched)
        if self.trainer.package in ("xgboost", "lightgbm"):
            undecided &= {"tree_method", "booster"}
        allowed = self.out_of_core is not False and not undecided
        return allowed and self.trainer.reads_blocks(self.parameters)

    @property
    def other_columns(self) -> frozenset[str]:
        """The columns that options name, such as the label, which are not features."""
        fold_column = None if self.folds is None else self.folds.column
        named_columns = (self.label, self.weight, self.group, self.split.column, fold_column)
        option_columns = (*named_columns, *self.partition_by)
        return frozenset(name for name in option_columns if name is not None)

    def make_parameters(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the estimator's parameters for a trial, given values of searched parameters."""
        estimator_values = {name: value for name, value in values.items() if name not in PENALTIES}
        parameters = {**self.parameters, **check_parameters(self.trainer, estimator_values)}
        weights = {**self.fixed_penalties, **values}
        is_penalized = len(estimator_values) < len(values)
        penalties = compute_penalty_parameters(self.trainer.path, weights) if is_penalized else {}
        return {**penalties, **parameters}

    def with_columns(self, columns: Mapping[str, str]) -> Request:
        """Return the request with column names spelled as in the query.

        `columns` maps case-folded names to the spelling in the query. If a statement names no
        label, the label is the column `DEFAULT_LABEL`.
        """
        if self.label == DEFAULT_LABEL and DEFAULT_LABEL not in columns:
            raise MissingColumnError(
                f"training {self.model_type} models needs the option label, or a column that is "
                f"called {DEFAULT_LABEL}; the query's columns: {', '.join(columns.values())}"
            )
        resolved_names: dict[str, Any] = {
            name: _find_column(self.written.get(name, name), getattr(self, name), columns)
            for name in ("label", "weight", "group")
            if getattr(self, name) is not None
        }
        if self.partition_by:
            resolved_names["partition_by"] = tuple(
                _find_column("PARTITION BY", name, columns) for name in self.partition_by
            )
        split = self.split
        if split.column is not None:
            split_option = self.written.get("split_column", "split_column")
            split = replace(split, column=_find_column(split_option, split.column, columns))
        folds = self.folds
        if folds is not None and folds.column is not None:
            fold_option = "cv_time" if folds.method == "time" else "cv_by"
            folds = replace(folds, column=_find_column(fold_option, folds.column, columns))
        return replace(self, split=split, folds=folds, **resolved_names)


DEFAULT_LABEL = "label"
"""The column that is the label if the option label is missing, as in BigQuery."""

_UNCHANGED_OPTIONS = (
    *("label", "weight", "group", "seed", "encoding", "standardize", "leaks", "keep_estimator"),
    *("num_trials", "checkpoint", "out_of_core", "num_workers", "calculate_p_values"),
    *("partition_by", "unseen_partition", "min_partition_rows"),
)
"""Options that are copied unchanged to fields of a request."""


def _find_column(option: str, name: str, columns: Mapping[str, str]) -> str:
    if fold(name) in columns:
        return columns[fold(name)]
    suggestion = closest(name, columns.values())
    names = ", ".join(columns.values())
    hint = f"did you mean {suggestion!r}?" if suggestion else f"its columns: {names}"
    raise MissingColumnError(f"option {option}: the query has no column {name!r}; {hint}")


def parse_request(options: Mapping[str, Any], stored_names: tuple[str, ...]) -> Request:
    """Parse the options of a training statement; `stored_names` are options of all models.

    If an option is invalid, ConfigError is raised. If the library is not installed,
    MissingDependencyError is raised.
    """
    renamed = _rename_objective(Options.from_mapping(options)).rename(ALIASES)
    model_type, definition = find_model_type(renamed.values.get("model_type"))
    if definition.task in SUPERVISED:
        renamed = renamed.replace_values({"label": DEFAULT_LABEL, **renamed.values})
    values = read_sqlml_options(renamed, TRAINING_OPTIONS)
    requested = drop_unsupported(renamed.exclude((*TRAINING_OPTIONS, *stored_names)), model_type)
    library, trainer = _choose_trainer(model_type, values.get("library"), requested.values)
    if values.get("calculate_p_values"):
        values.setdefault("encoding", "dummy")
        requested = _reject_penalties(requested, model_type)
    trainer, penalized_options = apply_penalties(model_type, trainer, requested.values)
    requested = requested.replace_values(penalized_options).rename(trainer.names)
    requested = requested.rename(map_parameter_aliases(trainer))
    # The names of options are folded, and some parameters, such as C, are not in lower case.
    names_by_folded = {name.lower(): name for name in list_parameter_names(trainer)}
    requested = requested.rename({n: names_by_folded.get(n.lower(), n) for n in requested.values})
    pass_options = _select_pass_options(requested, values.get("out_of_core"), trainer)
    requested, ignored = drop_ignored(requested.exclude(pass_options), trainer)
    ignored += _list_idle_options(values, renamed, trainer)
    if values.get("encoding") == "label":
        del values["encoding"]
    calls = {n: value for n, value in requested.values.items() if isinstance(value, Call)}
    spaces = {n: parse_space(requested.written.get(n, n), call) for n, call in calls.items()}
    penalties = requested.select(PENALTIES).values if spaces.keys() & set(PENALTIES) else {}
    check_parameter_names(requested.exclude(penalties), model_type, library, trainer, stored_names)
    _check_sqlml_options(values, renamed, model_type, definition.task, trainer)
    fixed_parameters = dict(requested.exclude((*spaces, *penalties)).values)
    if trainer.seed is not None:
        fixed_parameters.setdefault(trainer.seed, values.get("seed", SEED))
    fixed_parameters = {**trainer.defaults, **fixed_parameters}
    parameters = check_parameters(trainer, fixed_parameters, requested.written)
    spaces = {n: _check_space(trainer, n, s, requested.written) for n, s in spaces.items()}
    _check_search_options(spaces, values)
    task = definition.task
    request = replace(
        Request.from_sqlml_options(values, model_type, task, trainer, renamed.values, stored_names),
        library=library,
        written=renamed.written,
        options=MappingProxyType({**renamed.values, "model_type": model_type, "library": library}),
        parameters=MappingProxyType({**parameters, **pass_options}),
        fixed_penalties=MappingProxyType({n: v for n, v in penalties.items() if n not in spaces}),
        searched=MappingProxyType(spaces),
        num_trials=values.get("num_trials", NUM_TRIALS if spaces else 0),
        held_out_for=NO_HOLDOUT_ERROR if spaces and "cv" not in values else None,
        notices=(f"options without an effect here: {', '.join(ignored)}",) if ignored else (),
    )
    _check_feasible(request)
    return request


def _choose_trainer(
    model_type: str, library: str | None, options: Collection[str]
) -> tuple[str, Trainer]:
    """Find the trainer by `library`, or the only one that has all options, or the first one."""
    first = find_trainer(model_type, library)
    trainers = MODEL_TYPES[model_type].trainers
    fitting = [
        (name, trainer)
        for name, trainer in trainers.items()
        if not trainer.missing_packages and has_parameters(trainer, options)
    ]
    return fitting[0] if library is None and len(fitting) == 1 else first


def _list_idle_options(values: Mapping[str, Any], options: Options, trainer: Trainer) -> list[str]:
    """Return the spellings of sqlml's options that this trainer needs to be told nothing about."""
    idle = []
    if values.get("early_stop") and not trainer.stops_early:
        idle.append("early_stop")
    if values.get("encoding") == "label" and trainer.features not in ("ordinal", "named"):
        idle.append("encoding")
    return [options.written[name] for name in idle]


LINEAR_TYPES = ("linear_reg", "logistic_reg")


def _reject_penalties(requested: Options, model_type: str) -> Options:
    """Return the options without penalties; raise ConfigError if they set a penalty."""
    for name, value in requested.values.items():
        is_penalty = name in (*PENALTIES, "c", "penalty", "alpha", "l1_ratio") and value != 0
        if is_penalty or (name == "fit_intercept" and not value):
            raise ConfigError(
                f"option {requested.written[name]} cannot be combined with calculate_p_values: "
                "standard errors are those of a model without penalties and with an intercept"
            )
    weights = {"l2_reg": 0.0} if model_type == "logistic_reg" else {}
    return requested.replace_values({**requested.values, **weights})


def _check_feasible(request: Request) -> None:
    trainer = request.trainer
    if request.folds is not None:
        _check_folds_feasible(request)
    elif request.searched and request.split.method == "none":
        raise ConfigError(NO_HOLDOUT_ERROR)
    if request.checkpoint is not None and not request.searched and not trainer.can_resume:
        trainers = MODEL_TYPES[request.model_type].trainers
        resumable = ", ".join(name for name, t in trainers.items() if t.can_resume)
        advice = f"libraries that can: {resumable}" if resumable else "leave out checkpoint"
        models = f"{request.model_type} models by {request.library}"
        raise ConfigError(f"{models} cannot resume from a checkpoint; {advice}")
    if request.out_of_core and not request.reads_blocks:
        raise ConfigError(
            f"{trainer.path.rpartition('.')[2]} needs all rows in memory with these options; these "
            "can be trained out of core: boosted trees and forests by xgboost, boosted trees by "
            "lightgbm, linear_reg, logistic_reg, kmeans, and pca with a number of components"
        )


def _check_folds_feasible(request: Request) -> None:
    if request.partition_by:
        raise ConfigError("option cv is not available with PARTITION BY: leave out one of them")
    if request.checkpoint is not None:
        message = (
            "option checkpoint is for one fit, and cv fits a model for each fold: leave it out"
        )
        raise ConfigError(message)
    names = request.options.keys() & {"early_stop", "early_stopping_rounds"}
    is_requested = names and request.options.get("early_stop") is not False
    if is_requested and request.split.method == "none":
        raise ConfigError(
            f"option {min(names)} needs held-out rows, which the folds do not provide: with cv, "
            "set split or eval_fraction, too"
        )


NO_HOLDOUT_ERROR = (
    "a search compares metrics on held-out rows, but no rows are held out: set split = 'random', "
    "or leave out hparam_range and hparam_candidates"
)


def _check_space(
    trainer: Trainer, name: str, space: SearchSpace, spellings: Mapping[str, str]
) -> SearchSpace:
    if name not in PENALTIES:
        return check_space(trainer, name, space, spellings.get(name, name))
    if isinstance(space, Candidates):
        return Candidates(tuple(check_penalty(name, v) for v in space.values))
    return Range(check_penalty(name, space.low), check_penalty(name, space.high))


def _select_pass_options(options: Options, out_of_core: Any, trainer: Trainer) -> dict[str, Any]:
    """Check and return the `PASS_OPTIONS` that limit out-of-core passes, or {} if none do."""
    pass_options = {name: options.values[name] for name in PASS_OPTIONS if name in options.values}
    if not out_of_core or pass_options.keys() <= list_parameter_names(trainer):
        return {}
    for name, value in pass_options.items():
        spelling = options.written[name]
        types, description = PASS_OPTIONS[name]
        is_valid = isinstance(value, types) and not isinstance(value, bool)
        if not is_valid or float(value) < 0:
            raise ConfigError(f"option {spelling} must be {description}, not {option_text(value)}")
    return pass_options


def _rename_objective(options: Options) -> Options:
    searches = any(isinstance(value, Call) for value in options.values.values())
    objective = options.values.get("objective")
    metric = objective.lower() if isinstance(objective, str) else objective
    is_metric = any(metric in names for names in METRICS.values())
    return options.rename({"objective": "tuning_objective"}) if searches and is_metric else options


def _check_search_options(spaces: Mapping[str, SearchSpace], values: Mapping[str, Any]) -> None:
    num_trials = values.get("num_trials")
    if num_trials is not None and not spaces:
        example = "max_depth = hparam_range(2, 8)"
        raise ConfigError(f"num_trials needs a parameter to search for, such as {example}")
    if num_trials is not None and num_trials < 1:
        raise ConfigError("num_trials must be at least 1")
    if values.get("tuning_objective") is not None and not spaces:
        raise ConfigError("tuning_objective needs a parameter to search for")


def _check_sqlml_options(
    values: Mapping[str, Any], options: Options, model_type: str, task: Task, trainer: Trainer
) -> None:
    spellings = options.written
    no_option = f"{model_type} models have no option"
    for name in ("label", "class_weights", "early_stopping_rounds"):
        if values.get(name) is not None and task not in SUPERVISED:
            raise ConfigError(f"{no_option} {spellings[name]}: they take no label")
    if values.get("class_weights") is not None and task != "classify":
        raise ConfigError(f"{no_option} {spellings['class_weights']}: they have no classes")
    if values.get("weight") is not None and task in ("rank", "project"):
        raise ConfigError(f"{no_option} {spellings['weight']}")
    if values.get("group") is not None and task != "rank":
        raise ConfigError(f"{no_option} group; only boosted_tree_ranker models have it")
    if values.get("group") is None and task == "rank":
        raise ConfigError(
            f"training {model_type} models needs the option group, the column of the query that a "
            "row belongs to"
        )
    keywords = {"encoding": ("one_hot", "dummy", "target"), "leaks": ("warn", "error")}
    for name, allowed in keywords.items():
        if values.get(name) not in (None, *allowed):
            expected, text = TRAINING_OPTIONS[name][1], option_text(options.values[name])
            raise ConfigError(f"option {spellings[name]} must be {expected}, not {text}")
    if values.get("encoding") == "one_hot" and trainer.features in ("ordinal", "named"):
        message = f"this library encodes categories itself; leave {spellings['encoding']} out"
        raise ConfigError(message)
    fold_columns = [values[n] for n in ("cv_by", "cv_time") if values.get(n)]
    if {values.get("label"), values.get("weight")} & set(fold_columns):
        message = f"column {fold_columns[0]!r} cannot be label or weight, and divide the folds"
        raise ConfigError(message)
    if values.get("calculate_p_values"):
        if model_type not in LINEAR_TYPES:
            raise ConfigError(f"{no_option} calculate_p_values; only linear models have it")
        if values.get("partition_by"):
            raise ConfigError("calculate_p_values cannot be combined with PARTITION BY")
        if values.get("encoding") != "dummy":
            raise ConfigError(
                "calculate_p_values needs category_encoding_method = 'dummy_encoding', which is "
                "then the default; with all categories as columns, weights are not unique"
            )
    if values.get("encoding") == "dummy" and model_type not in LINEAR_TYPES:
        raise ConfigError(f"{no_option} encoding = 'dummy'; linear_reg and logistic_reg have it")
    columns = [values[n] for n in ("label", "weight", "group", "split_column") if values.get(n)]
    columns = [fold(name) for name in (*columns, *values.get("partition_by", ()))]
    for column in columns:
        if columns.count(column) > 1:
            raise ConfigError(
                f"column {column!r} cannot be two of label, weight, group, split and partition"
            )
    if not values.get("partition_by"):
        for name in ("unseen_partition", "min_partition_rows"):
            if name in values:
                raise ConfigError(f"option {name} needs PARTITION BY")


def _parse_split(values: Mapping[str, Any], task: Task) -> SplitRule:
    split = parse_split(*(values.get(n) for n in ("split", "eval_fraction", "split_column")))
    is_default = split.method == "auto" and split.fraction is None
    needs_none = task not in SUPERVISED or "cv" in values and "split" not in values
    return SplitRule("none") if is_default and needs_none else split


def _parse_folds(values: Mapping[str, Any], model_type: str, task: Task) -> FoldRule | None:
    rule = parse_folds(*(values.get(name) for name in ("cv", "cv_by", "cv_time")))
    if rule is not None and task not in SUPERVISED:
        raise ConfigError(f"option cv needs a label, and {model_type} models take none")
    group = values.get("group")
    if rule is None or group is None or rule.method == "time":
        return rule
    if rule.column is not None and fold(rule.column) != fold(group):
        raise ConfigError("the rows of a group stay in one fold: leave out cv_by")
    return FoldRule(rule.count, "group", group)


def _parse_early_stopping(values: Mapping[str, Any], trainer: Trainer) -> int | None:
    rounds = values.get("early_stopping_rounds")
    is_requested = values.get("early_stop", rounds is not None)
    if rounds is not None and rounds < 1:
        raise ConfigError("early_stopping_rounds must be at least 1")
    if rounds is not None and not is_requested:
        raise ConfigError("early_stopping_rounds needs early_stop = true")
    if rounds is not None and not trainer.stops_early:
        raise ConfigError(f"{trainer.path.rpartition('.')[2]} does not stop early; leave it out")
    if not trainer.stops_early or values.get("early_stop") is False:
        return None
    return rounds or EARLY_STOPPING_ROUNDS
