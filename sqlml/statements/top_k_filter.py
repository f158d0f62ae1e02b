"""ALTER MODEL .. ADD TOP_K FILTER and DROP TOP_K FILTER."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlml.cascades.learn_filter import learn_filter
from sqlml.catalog.model import Model, Reference
from sqlml.errors import ConfigError
from sqlml.parsing.statements import AddTopKFilter, DropTopKFilter
from sqlml.planner.binding.class_argument import index_of
from sqlml.planner.program.result_sql import label_literal
from sqlml.scorer.program_inputs import program_inputs
from sqlml.statements.answer import Answer
from sqlml.statements.cascade import stored
from sqlml.statements.models import Models
from sqlml.statements.rows_to_learn_from import (
    check_options,
    recipe_of_model,
    rows_to_learn_from,
)
from sqlml.statements.unique_keys import UNIQUE_KEYS, unique_keys
from sqlml.types import list_classes

K, PRECISION = 20, 0.95
"""Unless the statement says otherwise: as in Willump, section 6.3."""


def add_top_k_filter(models: Models, reference: Reference, change: AddTopKFilter) -> Answer:
    """ALTER MODEL .. ADD TOP_K FILTER USING (query) OPTIONS (k = .., precision = .., ..).

    Raises:
        ConfigError: an option, the model or the rows do not suit a filter.
        ParseError, MissingColumnError: the query does not fit.
        UnsupportedModelError, MissingDependencyError: no small model can be trained.
    """
    model, options = models.catalog.get(reference), change.options
    check_options(options, ("k", "precision", "class", UNIQUE_KEYS), "ADD TOP_K FILTER")
    output, column, chosen = _score(model, options)
    k: Any = options.get("k", K)
    precision: Any = options.get("precision", PRECISION)
    if type(k) is not int or k < 1:
        raise ConfigError(f"option k must be a number of rows, such as 20, not {k!r}")
    if type(precision) not in (int, float) or not 0 < precision <= 1:
        raise ConfigError(f"precision must lie between 0 and 1, as 0.95 does, not {precision!r}")
    recipe = recipe_of_model(model).regression()
    given = rows_to_learn_from(models, model, change.query, "ADD TOP_K FILTER")
    keys = unique_keys(models, options, given.opened)
    found = learn_filter(
        model.program,
        recipe,
        program_inputs(model.program, given.frame),
        query=given.query,
        output=output,
        column=column,
        chosen=chosen,
        k=k,
        precision=float(precision),
        sources=given.sources,
        base_ns=given.rest_ns,
    )
    return stored(models, model, found, keys)


def drop_top_k_filter(models: Models, reference: Reference, change: DropTopKFilter) -> None:
    """ALTER MODEL .. DROP TOP_K FILTER."""
    models.versions.drop_small_model(reference, "top_k")


def _score(model: Model, options: Mapping[str, Any]) -> tuple[str, int, str]:
    """The output that queries order by, the column of it, and its class as SQL writes it."""
    program = model.program
    if not program.labels and "label" in program.outputs and program.targets == 1:
        if "class" in options:
            raise ConfigError(f"model {model.label} predicts a number and has no classes")
        return "label", 0, ""
    if len(program.labels) != 1 or "proba" not in program.outputs:
        raise ConfigError(
            f"model {model.label} gives neither a number nor probabilities of classes for a row, "
            "so its rows cannot be ranked"
        )
    labels = program.labels[0]
    wanted = options.get("class", model.options.get("positive_class"))
    if wanted is None and len(labels) == 2:
        wanted = labels.values[1]
    if wanted is None:
        raise ConfigError(
            "name the class by whose probability queries order: OPTIONS (class = ..); classes: "
            + list_classes(labels.values)
        )
    place = index_of(labels, wanted)
    if place is None:
        raise ConfigError(
            f"model {model.label} has no class {wanted!r}; its classes are "
            + list_classes(labels.values)
        )
    return "proba", place, label_literal(labels.values[place], labels.kind)
