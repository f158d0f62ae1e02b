"""ALTER MODEL .. ADD CASCADE and DROP CASCADE."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from sqlml.cascades.learn import NoGain, learn_cascade
from sqlml.cascades.recipe import Recipe
from sqlml.catalog.cascade import CascadeFacts, FeatureGroup
from sqlml.catalog.model import Model, Reference
from sqlml.errors import ConfigError, MissingColumnError, ParseError
from sqlml.importers.gaps import Gaps
from sqlml.parsing.statements import AddCascade, DropCascade
from sqlml.passes.split import PackedColumn
from sqlml.planner.syntax.text import text_of
from sqlml.scorer.input_table import Table
from sqlml.statements import options as model_options
from sqlml.statements.answer import Answer, rows
from sqlml.statements.models import Models
from sqlml.types import Array, Feature, fold

ACCURACY_LOSS = 0.001
"""What the accuracy may fall by, unless the statement says otherwise: as in Willump."""

_OPTIONS = ("label", "accuracy_loss")


def add_cascade(models: Models, reference: Reference, change: AddCascade) -> Answer:
    """ALTER MODEL .. ADD CASCADE USING (query) OPTIONS (label = .., accuracy_loss = ..).

    Raises:
        ConfigError: an option, the model or the rows do not suit a cascade.
        ParseError, MissingColumnError: the query does not fit.
        UnsupportedModelError, MissingDependencyError: no small model can be trained.
    """
    if not models.dialect.lazy_calls:
        raise ConfigError(
            "a cascade saves nothing in this engine, which evaluates both models for every row; "
            "learn and use it in DuckDB"
        )
    model = models.catalog.get(reference)
    _check_classifier(model)
    loss = _accuracy_loss(change.options)
    recipe = _recipe(model)
    frame = _rows(models, change.query)
    label = _label(change.options, model, frame)
    codes = _codes(frame[label], model)
    known = codes >= 0
    table = Table.of(frame[known], model.program.features, Gaps())
    held = {f.name: _values(table, f) for f in model.program.features}
    found = learn_cascade(
        model.program,
        recipe,
        held,
        codes[known],
        query=change.query.strip(),
        label=label,
        loss=loss,
    )
    if isinstance(found, NoGain):
        return rows(("property", "value"), [("stored", "no"), ("reason", found.reason)])
    models.versions.add_cascade(model, found)
    return rows(("property", "value"), [("stored", "yes"), *told(found.facts)])


def drop_cascade(models: Models, reference: Reference, change: DropCascade) -> None:
    """ALTER MODEL .. DROP CASCADE."""
    models.versions.drop_cascade(reference)


def told(facts: CascadeFacts) -> list[tuple[str, str]]:
    """What a cascade is, does and saves, in words."""
    return [
        ("small model reads", _names(facts.groups, True)),
        ("only the full model reads", _names(facts.groups, False)),
        (
            "guarantee",
            f"accuracy falls by at most {facts.accuracy_loss:g} on rows like those of "
            f"column {facts.label} (97.5% sure)",
        ),
        (
            "measured",
            f"accuracy {facts.accuracy - facts.loss:.4f} in place of {facts.accuracy:.4f} on "
            f"{facts.held_out:,} rows held out; at most {facts.most_loss:.4f} is lost",
        ),
        ("confident", f"{facts.confident:.1%} of the rows, surer than {facts.threshold:.4f}"),
        (
            "expected",
            f"{facts.gain:.2f} times as fast: {facts.expected_ns:,.0f} ns a row in place of "
            f"{facts.exact_ns:,.0f}",
        ),
        *((f"group {n}", _group(group)) for n, group in enumerate(facts.groups, 1)),
    ]


def _group(group: FeatureGroup) -> str:
    reads = "; the small model reads it" if group.chosen else ""
    return f"{group.name}: {group.cost:,.0f} ns a row, importance {group.importance:.4f}{reads}"


def _names(groups: tuple[FeatureGroup, ...], chosen: bool) -> str:
    return "; ".join(group.name for group in groups if group.chosen == chosen)


def _check_classifier(model: Model) -> None:
    labels = model.program.labels
    if len(labels) == 1 and "label" in model.program.outputs:
        return
    what = "has several targets" if labels else "does not predict classes"
    raise ConfigError(f"model {model.label} {what}, and a cascade is for classifiers")


def _accuracy_loss(options: Mapping[str, Any]) -> float:
    for name in options:
        if name not in _OPTIONS:
            raise ConfigError(
                f"unknown option {name!r}; options of ADD CASCADE: {', '.join(_OPTIONS)}"
            )
    loss = options.get("accuracy_loss", ACCURACY_LOSS)
    if type(loss) not in (int, float) or not 0 < loss < 1:
        raise ConfigError(f"accuracy_loss must lie between 0 and 1, as 0.001 does, not {loss!r}")
    return float(loss)


def _recipe(model: Model) -> Recipe:
    found = model.options.get(model_options.ESTIMATOR)
    if found is None:
        raise ConfigError(
            f"nothing is known of how model {model.label} was trained: it came from a file that "
            "does not say so, or was registered by an earlier sqlml; register the fitted object "
            "again"
        )
    return Recipe.of(found)


def _rows(models: Models, query: str) -> Any:
    if text_of(query).calls_models:
        raise ParseError("ALTER MODEL .. ADD CASCADE USING takes a query without model calls")
    try:
        return models.host.fetch_frame(query)
    except ParseError as error:
        raise ParseError(f"ALTER MODEL .. ADD CASCADE USING takes one query: {error}") from None


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


def _values(table: Table, feature: Feature) -> Array:
    """A feature's values (n,), as a Program takes them."""
    if feature.kind == "number":
        return table.packed((PackedColumn(feature.name, False),), {}, np.dtype(np.float64))[:, 0]
    if feature.kind == "string":
        return table.objects(feature.name)[:, 0]
    texts = table.texts(feature.name)
    held = [None if gone else texts.text(i) for i, gone in enumerate(texts.missing)]
    return np.array([*held, None], object)[:-1]  # never taken for a matrix of characters
