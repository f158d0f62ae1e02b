"""`own_options`: the options of a training statement that are sqlml's own, and their values.

All others are parameters of the library's estimator, or are kept with every model.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from sqlml.errors import ConfigError
from sqlml.parsing.statement_parts import option_text
from sqlml.parsing.statements import Call
from sqlml.suggestions import closest
from sqlml.training.model_types import MODEL_TYPES, Trainer
from sqlml.training.options.estimator_parameters import parameter_names
from sqlml.training.storage.column_statistics import class_name

OWN: Mapping[str, tuple[tuple[type, ...], str]] = MappingProxyType(
    {
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
        "instance_weight_col": "weight",
        "category_encoding_method": "encoding",
        "standardize_features": "standardize",
        "scale_features": "standardize",
        "random_seed": "seed",
        "random_state": "seed",
        "hparam_tuning_objectives": "tuning_objective",
    }
)
"""Other names of `OWN`, BigQuery's most of them."""

OF_ESTIMATORS = (
    *("label", "split", "eval_fraction", "split_column", "seed", "weight", "leaks"),
    "keep_estimator",
)
"""Options of training an estimator that Python gives."""

MOST_SEED = 2**32 - 1
"""The greatest seed that all libraries take."""


@dataclass(frozen=True, slots=True)
class Options:
    """Options under their own names.

    values: name -> value. written: name -> how the statement calls it.
    """

    values: Mapping[str, Any]
    written: Mapping[str, str]

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Options:
        """Those of a statement, or of Python."""
        values = {n: _frozen(v) for n, v in options.items()}
        return cls(MappingProxyType(values), MappingProxyType({n: n for n in values}))

    def renamed(self, names: Mapping[str, str]) -> Options:
        """These options with other names for some of them.

        Args:
            names: name -> the one that replaces it.

        Raises:
            ConfigError: two of them mean the same.
        """
        made: dict[str, Any] = {}
        written: dict[str, str] = {}
        for name, value in self.values.items():
            own, spelled = names.get(name, name), self.written.get(name, name)
            if own in made:
                raise ConfigError(
                    f"options {written[own]} and {spelled} are the same; give one of them"
                )
            made[own], written[own] = value, spelled
        return Options(MappingProxyType(made), MappingProxyType(written))

    def only(self, names: Collection[str]) -> Options:
        """Those with one of the names."""
        kept = {n: v for n, v in self.values.items() if n in names}
        return Options(MappingProxyType(kept), self.written)

    def without(self, names: Collection[str]) -> Options:
        """Those with none of the names."""
        kept = {n: v for n, v in self.values.items() if n not in names}
        return Options(MappingProxyType(kept), self.written)

    def only_calls(self) -> list[tuple[str, Call]]:
        """Those whose value is a call."""
        return [(n, v) for n, v in self.values.items() if isinstance(v, Call)]

    def having(self, values: Mapping[str, Any]) -> Options:
        """Options with these values, spelled in errors as the statement spelled these."""
        return Options(MappingProxyType(dict(values)), self.written)


def _frozen(value: Any) -> Any:
    """A value as statements have it; Python may give a list, or a dict for a struct."""
    if isinstance(value, Mapping):
        return tuple((name, _frozen(v)) for name, v in value.items())
    return tuple(_frozen(v) for v in value) if isinstance(value, list | tuple) else value


def own_options(options: Options, names: Collection[str]) -> dict[str, Any]:
    """The values of those options that are sqlml's own, checked.

    Args:
        options: under sqlml's names. names: those that such a training has.

    Raises:
        ConfigError: one is of the wrong type.
    """
    given = options.only(names)
    return {n: _typed(n, v, given.written[n]) for n, v in given.values.items()}


def _typed(name: str, value: Any, written: str) -> Any:
    """The value of an option of `OWN`.

    Raises:
        ConfigError: it is of another type.
    """
    if (
        name in ("label", "tuning_objective")
        and isinstance(value, tuple | list)
        and len(value) == 1
    ):
        (value,) = value  # as BigQuery's input_label_cols = ['churned']
    if name == "class_weights" and isinstance(value, bool):
        value = "balanced" if value else None  # as BigQuery's auto_class_weights
    if name in _WORDS and isinstance(value, str):
        value = value.lower()
    if name == "encoding" and isinstance(value, str):
        value = value.removesuffix("_encoding")
    if name == "checkpoint" and isinstance(value, str) and (not value or "\0" in value):
        words = OWN[name][1]
        raise ConfigError(f"option {written} must be {words}, not {option_text(value)}")
    types, words = OWN[name]
    right = isinstance(value, types) and (not isinstance(value, bool) or bool in types)
    if name == "seed":
        right = right and 0 <= value <= MOST_SEED
    if not right and not (name == "class_weights" and value is None):
        raise ConfigError(f"option {written} must be {words}, not {option_text(value)}")
    return value


_WORDS = frozenset({"class_weights", "encoding", "leaks", "library", "tuning_objective"})
"""Options whose texts are words, which BigQuery writes in capitals."""


def class_weights(value: Any) -> Mapping[str, float] | str | None:
    """A class as it is written -> its weight; "balanced"; or None.

    Raises:
        ConfigError: these are no weights.
    """
    if value is None or value == "balanced":
        return value  # type: ignore[no-any-return]
    words = OWN["class_weights"][1]
    refused = ConfigError(f"option class_weights must be {words}, not {option_text(value)}")
    if isinstance(value, str):
        raise refused
    made: dict[str, float] = {}
    for pair in value:
        arguments = getattr(pair, "arguments", pair)  # BigQuery writes STRUCT('yes', 2.0)
        right = isinstance(arguments, tuple) and len(arguments) == 2
        if not right or isinstance(arguments[1], bool) or not isinstance(arguments[1], float | int):
            raise refused
        if not 0 <= arguments[1] < float("inf"):
            raise ConfigError(f"the weight of class {arguments[0]!r} must be a positive number")
        made[class_name(arguments[0])] = float(arguments[1])
    return MappingProxyType(made)


# `without_foreign`, `check_known`: options that a model of this type and library does not have.
#
# Each error says what to write instead: the library or the type of model that has the option, the
# nearest name, or why BigQuery's option has no meaning here.


@dataclass(frozen=True, slots=True)
class Foreign:
    """An option of BigQuery's that says here what is so anyhow, or nothing.

    reason: why, and what to do. accepted: its values that say what is so.
    """

    reason: str
    accepted: tuple[str, ...] = ()


_STEPS = Foreign("the solver chooses its own steps; leave it out")
_LINEAR = MappingProxyType(
    {
        "optimize_strategy": Foreign(
            "scikit-learn's solvers find the optimum in their own way; leave it out, or write "
            "'auto_strategy'",
            ("auto_strategy",),
        ),
        "learn_rate": _STEPS,
        "learn_rate_strategy": _STEPS,
        "ls_init_learn_rate": _STEPS,
    }
)
_KMEANS = MappingProxyType(
    {
        "distance_type": Foreign(
            "k-means measures Euclidean distances; for cosine distances, divide each row by its "
            "length in the query and set standardize = false",
            ("euclidean",),
        ),
        "kmeans_init_col": Foreign(
            "k-means cannot start from rows of your choice; set kmeans_init_method to 'kmeans++' "
            "or 'random'"
        ),
    }
)
FOREIGN: Mapping[str, Mapping[str, Foreign]] = MappingProxyType(
    {"linear_reg": _LINEAR, "logistic_reg": _LINEAR, "kmeans": _KMEANS}
)
"""Model type -> its options in BigQuery that do nothing here."""

_ONE_STEP = (
    "linear_reg models are solved in one step unless l1_reg or l2_reg is above 0; leave it out"
)


def without_foreign(options: Options, model_type: str) -> Options:
    """The options without those that say what is so anyhow.

    Raises:
        ConfigError: one says something else.
    """
    known = FOREIGN.get(model_type, {})
    for name, value in options.values.items():
        if name not in known:
            continue
        if not isinstance(value, str) or value.lower() not in known[name].accepted:
            raise ConfigError(f"option {options.written[name]}: {known[name].reason}")
    return options.without(known)


def check_known(
    parameters: Options, model_type: str, library: str, trainer: Trainer, kept: Collection[str]
) -> None:
    """Refuse parameters that the estimator does not have.

    Args:
        kept: names of options that are kept with any model.

    Raises:
        ConfigError: there is one.
    """
    names = parameter_names(trainer)
    for name in parameters.values:
        if name in names:
            continue
        written = parameters.written[name]
        if trainer.path.endswith(".LinearRegression") and name == "max_iter":
            raise ConfigError(f"option {written}: {_ONE_STEP}")
        owners = list(_owners(written))
        libraries = [library for other, library in owners if other == model_type]
        if libraries and library not in libraries:
            choice = " or ".join(f"'{one}'" for one in libraries)
            raise ConfigError(
                f"option {written} belongs to {model_type} models by {' and '.join(libraries)}, "
                f"not to those by {library}; set library = {choice}"
            )
        families = list(dict.fromkeys(_family(other) for other, _ in owners))
        if families and not libraries:
            raise ConfigError(
                f"option {written} belongs to {_listed(families)} models, not to {model_type} "
                f"models by {library}"
            )
        have = {*OWN, *ALIASES, *kept, *trainer.names, *names} - {written}
        near = closest(written, sorted(have))
        hint = f"; did you mean {near}?" if near else ""
        raise ConfigError(f"unknown option {written!r} of {model_type} models by {library}{hint}")


def _owners(name: str) -> Iterator[tuple[str, str]]:
    """The model types and libraries that have an option of this name."""
    for model_type, kind in MODEL_TYPES.items():
        for library, trainer in kind.trainers.items():
            known = name in trainer.names or name in FOREIGN.get(model_type, {})
            if known or name in parameter_names(trainer):
                yield model_type, library


def _family(model_type: str) -> str:
    """boosted_tree of boosted_tree_classifier."""
    for suffix in ("_classifier", "_regressor", "_ranker"):
        model_type = model_type.removesuffix(suffix)
    return model_type


def _listed(names: list[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if names[1:] else names)
