"""OPTIONS of CREATE MODEL and keyword options of create_model: one table, checked once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlml.catalog.model import TRANSFORM
from sqlml.errors import ConfigError
from sqlml.ir.program import Program
from sqlml.planner.binding.refused_nulls import refused
from sqlml.planner.binding.requested_output import index_of
from sqlml.planner.binding.unknown_categories import check_takes_null
from sqlml.planner.program.choose import batch_rows, choose
from sqlml.types import list_classes

STORED = (
    *("backend", "strategy", "device", "batch_size"),
    *("on_null", "on_missing_column", "on_unknown", "positive_class", "approximate"),
)
"""Options that are kept with the model and decide how it is run, and what it answers."""
AT_CREATION = ("allow_pickle", "sha256", "verify")
"""Options that matter while a model is read and compared with its source."""
OUTPUT = "output"
"""Under this name the label's own is kept with the options: the OUTPUT clause gives it."""
ESTIMATOR = "estimator"
"""Under this name the recipe of the last estimator is kept with the options: `Recipe.to_dict`."""
BESIDE = (OUTPUT, ESTIMATOR, TRANSFORM)
"""What is kept with the options and is none that a user gives."""
VERIFY = (True, False, "record")
"""Values of `verify`: refuse a model that answers otherwise than its source, do not compare them,
or compare them and keep what was found."""
_ON = ("error", "null")
"""How a model treats a value that is missing, or a category that it has never seen."""


def stored(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options to keep with the model.

    Raises:
        ConfigError: an unknown option, or a value that it does not have.
    """
    for name in options:
        if name not in STORED and name not in AT_CREATION:
            known = ", ".join(sorted((*STORED, *AT_CREATION)))
            raise ConfigError(
                f"unknown option {name!r}; options: {known} (and inputs, or_replace, "
                "if_not_exists, comment in create_model)"
            )
    verify = options.get("verify", True)  # 1 equals True, but is not accepted
    if type(verify) not in (bool, str) or verify not in VERIFY:
        raise ConfigError(f"option verify cannot be {verify!r}; it takes true, false or 'record'")
    for name in ("on_null", "on_missing_column", "on_unknown"):
        if options.get(name, "error") not in _ON:
            raise ConfigError(
                f"option {name} cannot be {options[name]!r}; it takes 'error' or 'null'"
            )
    if type(options.get("approximate", False)) is not bool:
        raise ConfigError("option approximate must be true or false")
    batch_rows(options)
    if not isinstance(options.get("positive_class", ""), str | int | float | bool):
        raise ConfigError(
            "option positive_class must be a class of the model: a string or a number"
        )
    return {k: v for k, v in options.items() if k in STORED}


def given(options: Mapping[str, Any]) -> dict[str, Any]:
    """A model's options without what is kept beside them."""
    return {name: value for name, value in options.items() if name not in BESIDE}


def read_back(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options in a model file that EXPORT MODEL wrote.

    Raises:
        ConfigError: unknown option or value.
    """
    label = options.get(OUTPUT)
    if not (label is None or isinstance(label, str)):
        raise ConfigError(f"invalid name {label!r} for what a model predicts")
    kept = stored(given(options))
    return {**kept, **{name: options[name] for name in BESIDE if options.get(name) is not None}}


def altered(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that ALTER MODEL gives to a version.

    Raises:
        ConfigError: an unknown option, or one that matters at creation.
    """
    for name in options:
        if name in AT_CREATION:
            raise ConfigError(f"option {name} applies only while a model is created")
        if name not in STORED:
            raise ConfigError(f"unknown option {name!r}; options: {', '.join(STORED)}")
    return stored(options)


def checked(names: Sequence[str]) -> tuple[str, ...]:
    """The names of stored options.

    Raises:
        ConfigError: unknown option.
    """
    for name in names:
        if name not in STORED:
            raise ConfigError(f"unknown option {name!r}; options: {', '.join(STORED)}")
    return tuple(names)


def check_fit(program: Program, options: Mapping[str, Any]) -> None:
    """Refuse options that a model cannot have.

    Raises:
        ConfigError, MissingDependencyError, BackendError.
    """
    if not options:
        return
    choose(program, options)
    refused(options, program)
    check_takes_null(options, program)
    positive = options.get("positive_class")
    if positive is None:
        return
    if not program.labels or "proba" not in program.outputs:
        raise ConfigError("option positive_class is for classifiers with probabilities")
    if all(index_of(labels, positive) is None for labels in program.labels):
        known = dict.fromkeys(v for labels in program.labels for v in labels.values)
        raise ConfigError(
            f"the model has no class {positive!r}; its classes are " + list_classes(known)
        )
