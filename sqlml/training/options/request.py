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
from sqlml.parsing.statement_parts import option_text
from sqlml.parsing.statements import Call
from sqlml.suggestions import closest
from sqlml.training.model_types import (
    METRICS,
    MODEL_TYPES,
    OF_PASSES,
    SUPERVISED,
    Task,
    Trainer,
    model_type_of,
    trainer_of,
)
from sqlml.training.options.estimator_parameters import (
    Candidates,
    Range,
    Searched,
    checked_parameters,
    checked_search,
    parameter_aliases,
    parameter_names,
    searched,
)
from sqlml.training.options.own_options import (
    ALIASES,
    OWN,
    Options,
    check_known,
    class_weights,
    own_options,
    without_foreign,
)
from sqlml.training.options.splits import Split, checked_split
from sqlml.types import fold

# `regularised`: the regularisation of linear models, in scikit-learn's words or BigQuery's.
#
# scikit-learn has a class for each kind of linear regression, and one for logistic regression.


WEIGHTS = ("l1_reg", "l2_reg")
"""What the sums of the coefficients' absolute values and squares weigh."""


def regularised(
    model_type: str, trainer: Trainer, options: Mapping[str, Any]
) -> tuple[Trainer, dict[str, Any]]:
    """The estimator with that regularisation, and the options with its parameters.

    Args:
        options: without those of sqlml's own. If one of `WEIGHTS` is searched for, they are still
            among the options that are returned: each trial has its own `penalty`.

    Raises:
        ConfigError: a weight that is no positive number.
    """
    if model_type not in ("linear_reg", "logistic_reg"):
        return trainer, dict(options)
    rest = {name: value for name, value in options.items() if name not in WEIGHTS}
    weights = {name: options[name] for name in WEIGHTS if name in options}
    searched = {name for name, value in weights.items() if isinstance(value, Call)}
    fixed = {n: checked_weight(n, v) for n, v in weights.items() if n not in searched}
    if model_type == "linear_reg":
        asked = searched | {name for name, value in fixed.items() if value}
        trainer = _linear(trainer, asked, rest)
        if trainer.path.endswith("ElasticNet") and not asked:
            rest.setdefault("alpha", 1.0)
        if not trainer.path.endswith(_PENALISED):
            weights = {}
    elif rest.get("l1_ratio"):
        rest.setdefault("solver", "saga")
    if searched:
        return trainer, {**rest, **weights, **fixed}
    if weights:
        made = penalty(trainer.path, fixed)
        rest = {**made, **rest}
    return trainer, rest


_PENALISED = ("ElasticNet", "Lasso", "Ridge")


def penalty(path: str, weights: Mapping[str, float]) -> dict[str, Any]:
    """The parameters of an estimator with those `WEIGHTS`; one that is not there is 0.

    >>> penalty("sklearn.linear_model.LogisticRegression", {"l1_reg": 1.0, "l2_reg": 3.0})
    {'C': 0.25, 'l1_ratio': 0.25, 'solver': 'saga'}
    """
    l1, l2 = (weights.get(name, 0.0) for name in WEIGHTS)
    total = l1 + l2
    share = l1 / total if total else 0.0
    if path.endswith("LogisticRegression"):
        made = {"C": 1 / total if total else float("inf"), "l1_ratio": share}
        return {**made, "solver": "saga"} if l1 else made
    if path.endswith("ElasticNet"):
        return {"alpha": total, "l1_ratio": share if total else 0.5}
    return {"alpha": l1 if path.endswith("Lasso") else l2}


def _linear(trainer: Trainer, asked: set[str], options: Mapping[str, Any]) -> Trainer:
    """The linear regression that has those weights, or these options."""
    if len(asked) == 2 or options.get("l1_ratio") is not None:
        name = "ElasticNet"
    elif "l1_reg" in asked:
        name = "Lasso"
    elif asked or options.get("alpha") is not None:
        name = "Ridge"
    else:
        return trainer
    path = f"sklearn.linear_model.{name}"
    return replace(trainer, path=path, seed="random_state", defaults=MappingProxyType({}))


def checked_weight(name: str, value: Any) -> float:
    """A weight.

    Raises:
        ConfigError: it is no number of at least 0.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        raise ConfigError(f"option {name} must be a number of at least 0, not {option_text(value)}")
    return float(value)


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
        written: option of sqlml's own -> what the statement calls it.
        weights: of the regularisation, where another of them is searched for.
        held_out_for: an error, if rows must be held out and none are; None: they need not be.
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
    weights: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    held_out_for: str | None = None
    written: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
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
            class_weights=class_weights(own.get("class_weights")),
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

    def parameters_with(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The estimator's parameters of a trial.

        Args:
            values: those of the parameters that are searched for.
        """
        own = {name: value for name, value in values.items() if name not in WEIGHTS}
        made = {**self.parameters, **checked_parameters(self.trainer, own)}
        if len(own) == len(values):
            return made
        return {**penalty(self.trainer.path, {**self.weights, **values}), **made}

    def with_columns(self, columns: Mapping[str, str]) -> Request:
        """The request with the names of columns as the query spells them.

        Args:
            columns: folded name -> name.

        Raises:
            MissingColumnError: the query lacks one of them.
        """
        found: dict[str, Any] = {
            name: _column(self.written.get(name, name), getattr(self, name), columns)
            for name in ("label", "weight", "group")
            if getattr(self, name) is not None
        }
        split = self.split
        if split.column is not None:
            option = self.written.get("split_column", "split_column")
            column = _column(option, split.column, columns)
            split = replace(split, column=column)
        return replace(self, split=split, **found)


def _column(option: str, name: str, columns: Mapping[str, str]) -> str:
    if fold(name) in columns:
        return columns[fold(name)]
    near = closest(name, columns.values())
    hint = f"did you mean {near!r}?" if near else f"its columns: {', '.join(columns.values())}"
    raise MissingColumnError(f"option {option}: the query has no column {name!r}; {hint}")


def request_of(options: Mapping[str, Any], kept: tuple[str, ...]) -> Request:
    """What options ask for.

    Args:
        options: as the statement has them; their names are folded.
        kept: names of options that are kept with any model.

    Raises:
        ConfigError: one is unknown, of the wrong type, or of another type of model.
        MissingDependencyError: no library that trains such models is installed.
    """
    given = _with_objective(Options.of(options)).renamed(ALIASES)
    model_type, kind = model_type_of(given.values.get("model_type"))
    own = own_options(given, OWN)
    library, trainer = trainer_of(model_type, own.get("library"))
    rest = without_foreign(given.without((*OWN, *kept)), model_type)
    trainer, values = regularised(model_type, trainer, rest.values)
    rest = rest.having(values).renamed(trainer.names).renamed(parameter_aliases(trainer))
    folded = {name.lower(): name for name in parameter_names(trainer)}  # C, of options folded
    rest = rest.renamed({name: folded.get(name.lower(), name) for name in rest.values})
    passes = _passes(rest, own, trainer)
    rest = rest.without(passes)
    calls = {n: searched(rest.written.get(n, n), v) for n, v in rest.only_calls()}
    weights = rest.only(WEIGHTS).values if calls.keys() & set(WEIGHTS) else {}
    check_known(rest.without(weights), model_type, library, trainer, kept)
    _check_own(own, given, model_type, kind.task, trainer)
    fixed = dict(rest.without((*calls, *weights)).values)
    if trainer.seed is not None:
        fixed.setdefault(trainer.seed, own.get("seed", SEED))
    parameters = checked_parameters(trainer, {**trainer.defaults, **fixed}, rest.written)
    calls = {n: _checked_search(trainer, n, s, rest.written) for n, s in calls.items()}
    _check_searched(calls, own)
    made = Request.of_own(own, model_type, kind.task, trainer, given.values, kept)
    if calls and made.split.method == "none":
        raise ConfigError(NONE_TO_SEARCH)
    if made.checkpoint is not None and not calls and not trainer.goes_on:
        raise ConfigError(_cannot_resume(model_type, library))
    made = replace(
        made,
        library=library,
        written=given.written,
        given=MappingProxyType({**given.values, "model_type": model_type, "library": library}),
        parameters=MappingProxyType({**parameters, **passes}),
        weights=MappingProxyType({n: v for n, v in weights.items() if n not in calls}),
        searched=MappingProxyType(calls),
        num_trials=own.get("num_trials", NUM_TRIALS if calls else 0),
        held_out_for=NONE_TO_SEARCH if calls else None,
    )
    if made.out_of_core and not made.reads_blocks:
        raise ConfigError(
            f"{trainer.path.rpartition('.')[2]} needs all rows in memory with these options; these "
            "can be trained out of core: boosted trees and forests by xgboost, boosted trees by "
            "lightgbm, linear_reg, logistic_reg, kmeans, and pca with a number of components"
        )
    return made


NONE_TO_SEARCH = (
    "a search compares rows that are held out, and none are: set split = 'random', or leave out "
    "hparam_range and hparam_candidates"
)


def _checked_search(
    trainer: Trainer, name: str, values: Searched, written: Mapping[str, str]
) -> Searched:
    """The values of a search as the estimator takes them.

    Raises:
        ConfigError: it does not take one of them.
    """
    if name not in WEIGHTS:
        return checked_search(trainer, name, values, written.get(name, name))
    if isinstance(values, Candidates):
        return Candidates(tuple(checked_weight(name, v) for v in values.values))
    return Range(checked_weight(name, values.low), checked_weight(name, values.high))


def _cannot_resume(model_type: str, library: str) -> str:
    able = [name for name, t in MODEL_TYPES[model_type].trainers.items() if t.goes_on]
    libraries = f"; libraries that can: {', '.join(able)}" if able else "; leave out checkpoint"
    return f"{model_type} models by {library} cannot resume from a checkpoint{libraries}"


def _passes(rest: Options, own: Mapping[str, Any], trainer: Trainer) -> dict[str, Any]:
    """The options of passes over rows out of core, if the estimator itself makes none.

    Raises:
        ConfigError: one is of the wrong type.
    """
    found = {name: rest.values[name] for name in OF_PASSES if name in rest.values}
    if not own.get("out_of_core") or found.keys() <= parameter_names(trainer):
        return {}
    for name, value in found.items():
        kinds, words = OF_PASSES[name]
        right = isinstance(value, kinds) and not isinstance(value, bool)
        if not right or float(value) < 0:
            raise ConfigError(
                f"option {rest.written[name]} must be {words}, not {option_text(value)}"
            )
    return found


def _with_objective(options: Options) -> Options:
    """`objective` is that of the search, where one is made and it names a metric of ours, and the
    library's own else."""
    searches = any(isinstance(value, Call) for value in options.values.values())
    objective = options.values.get("objective")
    word = objective.lower() if isinstance(objective, str) else objective
    if not searches or not any(word in names for names in METRICS.values()):
        return options
    return options.renamed({"objective": "tuning_objective"})


def _check_searched(calls: Mapping[str, Searched], own: Mapping[str, Any]) -> None:
    if own.get("num_trials") is not None and not calls:
        raise ConfigError(
            "num_trials needs a parameter to search for, such as max_depth = hparam_range(2, 8)"
        )
    if own.get("num_trials", 1) < 1:
        raise ConfigError("num_trials must be at least 1")
    if own.get("tuning_objective") is not None and not calls:
        raise ConfigError("tuning_objective needs a parameter to search for")


def _check_own(
    own: Mapping[str, Any], given: Options, model_type: str, task: Task, trainer: Trainer
) -> None:
    """Refuse options of sqlml's own that do not fit the type of model, or each other."""
    written = given.written
    if task in SUPERVISED and own.get("label") is None:
        raise ConfigError(f"training {model_type} models needs the option label")
    for name in ("label", "class_weights", "early_stop", "early_stopping_rounds"):
        if own.get(name) is not None and task not in SUPERVISED:
            raise ConfigError(
                f"{model_type} models have no option {written[name]}: they take no label"
            )
    if own.get("class_weights") is not None and task != "classify":
        raise ConfigError(
            f"{model_type} models have no option {written['class_weights']}: they have no classes"
        )
    if own.get("weight") is not None and task in ("rank", "project"):
        raise ConfigError(f"{model_type} models have no option {written['weight']}")
    if (own.get("group") is None) == (task == "rank"):
        raise ConfigError(
            f"training {model_type} models needs the option group, the column of the query that a "
            "row belongs to"
            if task == "rank"
            else f"{model_type} models have no option group; boosted_tree_ranker models have"
        )
    for name, words in (("encoding", ENCODINGS), ("leaks", ("warn", "error"))):
        if own.get(name) not in (None, *words):
            raise ConfigError(
                f"option {written[name]} must be {OWN[name][1]}, not "
                f"{option_text(given.values[name])}"
            )
    if own.get("encoding") == "one_hot" and trainer.features in ("ordinal", "named"):
        raise ConfigError(
            f"this library takes categories as they are; leave {written['encoding']} out"
        )
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
