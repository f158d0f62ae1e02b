"""ALTER MODEL .. ADD CASCADE and DROP CASCADE."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlml.cascades.learn_cascade import NoGain, learn_cascade
from sqlml.catalog.model import Model, Reference
from sqlml.catalog.small_models import SmallModel, with_unique_keys
from sqlml.errors import ConfigError
from sqlml.parsing.statements import AddCascade, DropCascade
from sqlml.scorer.program_inputs import program_inputs
from sqlml.statements import options as model_options
from sqlml.statements.answer import Answer, rows
from sqlml.statements.models import Models
from sqlml.statements.rows_to_learn_from import (
    check_options,
    recipe_of_model,
    rows_to_learn_from,
)
from sqlml.statements.told_small_models import of_facts, of_group
from sqlml.statements.true_labels import label_codes, label_column
from sqlml.statements.unique_keys import UNIQUE_KEYS, unique_keys

ACCURACY_LOSS = 0.001
"""What the accuracy may fall by, unless the statement says otherwise: as in Willump."""


def add_cascade(models: Models, reference: Reference, change: AddCascade) -> Answer:
    """ALTER MODEL .. ADD CASCADE USING (query) OPTIONS (label = .., accuracy_loss = .., ..).

    Raises:
        ConfigError: an option, the model or the rows do not suit a cascade.
        ParseError, MissingColumnError: the query does not fit.
        UnsupportedModelError, MissingDependencyError: no small model can be trained.
    """
    model = models.catalog.get(reference)
    _check_classifier(model)
    check_options(change.options, ("label", "accuracy_loss", UNIQUE_KEYS), "ADD CASCADE")
    loss = _accuracy_loss(change.options)
    recipe = recipe_of_model(model)
    given = rows_to_learn_from(models, model, change.query, "ADD CASCADE")
    named = change.options.get("label", model.options.get(model_options.OUTPUT))
    keys = unique_keys(models, change.options, given.opened)
    label = label_column(named, model, given.frame)
    codes = label_codes(given.frame[label], model)
    found = learn_cascade(
        model.program,
        recipe,
        program_inputs(model.program, given.frame[codes >= 0]),
        codes[codes >= 0],
        query=given.query,
        label=label,
        loss=loss,
        sources=given.sources,
        base_ns=given.rest_ns,
    )
    return stored(models, model, found, keys)


def stored(
    models: Models, model: Model, found: SmallModel | NoGain, keys: tuple[str, ...]
) -> Answer:
    """Store what was learned, if it gains anything; what there is to say of it.

    Args:
        keys: of tables (`unique_keys`).
    """
    if isinstance(found, NoGain):
        groups = [(f"group {n}", of_group(group)) for n, group in enumerate(found.groups, 1)]
        told = [("stored", "no"), ("reason", found.reason), *groups]
    else:
        found = with_unique_keys(found, keys)
        models.versions.add_small_model(model, found)
        told = [("stored", "yes"), *of_facts(found.facts)]
    return rows(("property", "value"), told)


def drop_cascade(models: Models, reference: Reference, change: DropCascade) -> None:
    """ALTER MODEL .. DROP CASCADE."""
    models.versions.drop_small_model(reference, "cascade")


def _check_classifier(model: Model) -> None:
    labels = model.program.labels
    if len(labels) == 1 and "label" in model.program.outputs:
        return
    what = "has several targets" if labels else "does not predict classes"
    raise ConfigError(f"model {model.label} {what}, and a cascade is for classifiers")


def _accuracy_loss(options: Mapping[str, Any]) -> float:
    loss = options.get("accuracy_loss", ACCURACY_LOSS)
    if type(loss) not in (int, float) or not 0 < loss < 1:
        raise ConfigError(f"accuracy_loss must lie between 0 and 1, as 0.001 does, not {loss!r}")
    return float(loss)
