"""ALTER MODEL .. ADD CASCADE and DROP CASCADE."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from sqlml.cascades.learn_cascade import NoGain, learn_cascade
from sqlml.catalog.model import Model, Reference
from sqlml.catalog.small_models import SmallModel
from sqlml.errors import ConfigError, MissingColumnError
from sqlml.parsing.statements import AddCascade, DropCascade
from sqlml.statements import options as model_options
from sqlml.statements.answer import Answer, rows
from sqlml.statements.models import Models
from sqlml.statements.rows_to_learn_from import (
    check_options,
    recipe_of_model,
    rows_to_learn_from,
)
from sqlml.statements.told_small_models import of_facts, of_group
from sqlml.types import Array, fold

ACCURACY_LOSS = 0.001
"""What the accuracy may fall by, unless the statement says otherwise: as in Willump."""


def add_cascade(models: Models, reference: Reference, change: AddCascade) -> Answer:
    """ALTER MODEL .. ADD CASCADE USING (query) OPTIONS (label = .., accuracy_loss = ..).

    Raises:
        ConfigError: an option, the model or the rows do not suit a cascade.
        ParseError, MissingColumnError: the query does not fit.
        UnsupportedModelError, MissingDependencyError: no small model can be trained.
    """
    model = models.catalog.get(reference)
    _check_classifier(model)
    check_options(change.options, ("label", "accuracy_loss"), "ADD CASCADE")
    loss = _accuracy_loss(change.options)
    recipe = recipe_of_model(model)
    given = rows_to_learn_from(models, model, change.query, "ADD CASCADE")
    label = _label(change.options, model, given.frame)
    codes = _codes(given.frame[label], model)
    found = learn_cascade(
        model.program,
        recipe,
        given.inputs(model, codes >= 0),
        codes[codes >= 0],
        query=given.query,
        label=label,
        loss=loss,
        sources=given.sources,
        base_ns=given.rest_ns,
    )
    return stored(models, model, found)


def stored(models: Models, model: Model, found: SmallModel | NoGain) -> Answer:
    """Store what was learned, if it gains anything; what there is to say of it."""
    if isinstance(found, NoGain):
        groups = [(f"group {n}", of_group(group)) for n, group in enumerate(found.groups, 1)]
        told = [("stored", "no"), ("reason", found.reason), *groups]
    else:
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


def _label(options: Mapping[str, Any], model: Model, frame: Any) -> str:
    """The column of the true labels: the one that is named, or the only one that is no feature."""
    columns = [str(column) for column in frame.columns]
    given = options.get("label", model.options.get(model_options.OUTPUT))
    if given is not None:
        found = [c for c in columns if fold(c) == fold(str(given))]
        if not found:
            raise MissingColumnError(
                f"the query has no column {given!r} with the labels; it has {', '.join(columns)}"
            )
        return found[0]
    features = {fold(f.name) for f in model.features}
    others = [c for c in columns if fold(c) not in features]
    if len(others) != 1:
        raise ConfigError(
            "name the column of the query with the true labels: OPTIONS (label = 'column')"
        )
    return others[0]


def _codes(column: Any, model: Model) -> Array:
    """The places of labels among the model's; -1 for NULL."""
    labels = model.program.labels[0]
    places = {value: place for place, value in enumerate(labels.values)}
    values = column.to_numpy(object)
    missing = column.isna().to_numpy()
    try:
        codes = [-1 if m else places[_plain(v)] for v, m in zip(values, missing, strict=True)]
    except (KeyError, TypeError):
        odd = next(v for v, m in zip(values, missing, strict=True) if not m and v not in places)
        raise ConfigError(
            f"column {column.name!r} holds {odd!r}, which is no class of model {model.label}; its "
            f"classes are {', '.join(map(repr, labels.values[:20]))}"
        ) from None
    return np.array(codes, np.int64)


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
