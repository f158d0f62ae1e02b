"""`own_options`: the options of a training statement that are sqlml's own, and their values.

All others are parameters of the library's estimator, or are kept with every model.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from sqlml.errors import ConfigError
from sqlml.parsing.option_text import option_text
from sqlml.parsing.statements import Call
from sqlml.training.storage.classes import class_name

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
