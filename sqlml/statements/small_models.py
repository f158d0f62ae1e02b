"""`label_column` and `label_codes`: the true labels among the rows of a query."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from sqlml.catalog.model import Model, Reference
from sqlml.catalog.small_models import SmallModel, with_unique_keys
from sqlml.dialects.duckdb import builtin
from sqlml.errors import ConfigError, MissingColumnError, ParseError
from sqlml.parsing.statements import AddCascade, AddTopKFilter, DropCascade, DropTopKFilter
from sqlml.planner.binding.probe_queries import ProbeError
from sqlml.planner.binding.requested_output import index_of
from sqlml.planner.program.result_sql import label_literal
from sqlml.planner.rewrites.tentative_rules import without_views
from sqlml.planner.syntax.joins import LeftJoin, left_joins
from sqlml.planner.syntax.lineage import FeatureSource, feature_sources
from sqlml.planner.syntax.text import text_of
from sqlml.scorer.input_table import program_inputs
from sqlml.statements import options as model_options
from sqlml.statements.description import of_facts, of_group
from sqlml.statements.models import Answer, Models, rows
from sqlml.statements.options import ESTIMATOR
from sqlml.training.cascades.feature_groups import Needs, Sources, source_costs, without
from sqlml.training.cascades.learn import NoGain, learn_cascade, learn_filter
from sqlml.training.cascades.recipe import Recipe
from sqlml.types import Array, fold, list_classes


def label_column(given: Any, model: Model, frame: Any) -> str:
    """The column of the true labels: the one that is given, or the only one that is no feature.

    Raises:
        MissingColumnError: the frame has no such column.
        ConfigError: none is given, and it has no or several others.
    """
    columns = [str(column) for column in frame.columns]
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


def label_codes(column: Any, model: Model) -> Array:
    """The places of a column's labels among the model's, (n,); -1 for NULL.

    Raises:
        ConfigError: a label is none of the model's.
    """
    labels = model.program.labels[0]
    places = {value: place for place, value in enumerate(labels.values)}
    values = column.to_numpy(object)
    missing = column.isna().to_numpy()
    try:
        codes = [-1 if m else places[_plain(v)] for v, m in zip(values, missing, strict=True)]
    except (KeyError, TypeError):
        odd = next(
            v for v, m in zip(values, missing, strict=True) if not m and not _is_among(v, places)
        )
        raise ConfigError(
            f"column {column.name!r} holds {odd!r}, which is not a class of model "
            f"{model.label}; its classes are {list_classes(labels.values)}"
        ) from None
    return np.array(codes, np.int64)


def _is_among(value: Any, places: Mapping[Any, int]) -> bool:
    try:
        return _plain(value) in places
    except TypeError:  # a list or a struct
        return False


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


# Option `unique_keys` of ADD CASCADE and ADD TOP_K FILTER: keys that tables do not declare.
#
# Files, attached tables and many a table of the database declare none. Where a key is unique all
# the same, a row has one partner at most, so that a join makes one row of it with and without a
# partner.


UNIQUE_KEYS = "unique_keys"


def unique_keys(models: Models, options: Mapping[str, Any], query: str) -> tuple[str, ...]:
    """The option's keys, each of which is unique in the tables that the query joins on it.

    Raises:
        ConfigError: it is no list of columns; no table is joined on one of them, or has it twice.
    """
    given = options.get(UNIQUE_KEYS, ())
    keys = (given,) if isinstance(given, str) else given
    if not isinstance(keys, list | tuple) or not all(isinstance(k, str) and k for k in keys):
        raise ConfigError(
            f"option {UNIQUE_KEYS} takes columns, such as ['song', 'shop, day'], not {given!r}"
        )
    joins = left_joins(query) if keys else []
    for key in keys:
        columns = {fold(column.strip()) for column in key.split(",")}
        own = [join for join in joins if columns <= join.keys.keys()]
        if not own:
            raise ConfigError(
                f"option {UNIQUE_KEYS}: the query has no LEFT JOIN of a table by {key!r}"
            )
        for join in own:
            _check(models, join, key)
    return tuple(keys)


def _check(models: Models, join: LeftJoin, key: str) -> None:
    """Raise ConfigError if two rows of a joined table have the same values of a key."""
    columns = [models.dialect.quote_name(column.strip()) for column in key.split(",")]
    listed, known = ", ".join(columns), " AND ".join(f"{c} IS NOT NULL" for c in columns)
    twice = models.host.fetch_frame(
        f"SELECT {listed} FROM {join.table} AS sqlml_rows WHERE {known} GROUP BY {listed} "
        f"HAVING {builtin('count')}(*) > 1 LIMIT 1"
    )
    if len(twice):
        values = ", ".join(repr(value) for value in twice.iloc[0].tolist())
        raise ConfigError(f"option {UNIQUE_KEYS}: {join.table} has {key} = {values} several times")


# `rows_to_learn_from`: the rows of a query from which ALTER MODEL learns a small model.


@dataclass(frozen=True, slots=True, eq=False)
class LearningRows:
    """The rows of a query.

    opened: the query, in which views and joined CTEs are subqueries. frame: all its columns, a
    pandas frame. sources: what it computes for single features;
    rest_ns: nanoseconds a row of the rest of it.
    """

    query: str
    opened: str
    frame: Any
    sources: Sources
    rest_ns: float


def rows_to_learn_from(models: Models, model: Model, query: str, statement: str) -> LearningRows:
    """The rows of a query, and what its parts cost.

    Raises:
        ConfigError: the engine gains nothing by a small model.
        ParseError: it is no query, or calls models.
    """
    if not models.dialect.lazy_calls:
        raise ConfigError(
            "a small model saves nothing in this engine, which evaluates both models for every "
            "row; learn and use it in DuckDB"
        )
    if model.transform is not None:
        raise ConfigError(
            f"model {model.label} makes its features by TRANSFORM, or of dates, and small models "
            "read columns: make them in the query, and train the model on that"
        )
    query = query.strip()
    if text_of(query).calls_models:
        raise ParseError(f"ALTER MODEL .. {statement} USING takes a query without model calls")
    try:
        frame = models.host.fetch_frame(query)
    except ParseError as error:
        raise ParseError(f"ALTER MODEL .. {statement} USING takes one query: {error}") from None
    frame = frame.rename(columns=model.renamed([str(column) for column in frame.columns]))

    def run(text: str) -> None:
        """Let the engine compute all columns of a query, and hand over but one number."""
        models.host.fetch_frame(
            f"SELECT {builtin('max')}({builtin('hash')}(sqlml_rows)) "
            f"FROM (\n{text}\n) AS sqlml_rows"
        )

    opened = _opened(models, query)
    needs = _needs(models, opened, model)
    sources, rest_ns = source_costs(opened, needs, run, max(1, len(frame)))
    return LearningRows(query, opened, frame, sources, rest_ns)


def _opened(models: Models, query: str) -> str:
    """The query without views and joined CTEs, or as it is if its columns would be others then."""
    opened = without_views(query, models.host.view)
    try:
        same = models.host.columns(opened) == models.host.columns(query)
    except ProbeError:
        return query
    return opened if same else query


def recipe_of_model(model: Model) -> Recipe:
    """How the model's last estimator was made.

    Raises:
        ConfigError: nobody knows.
    """
    found = model.options.get(ESTIMATOR)
    if found is None:
        raise ConfigError(
            f"nothing is known of how model {model.label} was trained: it came from a file that "
            "does not say so, or was registered by an earlier sqlml; register the fitted object "
            "again"
        )
    return Recipe.of(found)


def check_options(options: Mapping[str, Any], known: tuple[str, ...], statement: str) -> None:
    """Raise ConfigError for an option that a statement does not have."""
    for name in options:
        if name not in known:
            raise ConfigError(
                f"unknown option {name!r}; options of {statement}: {', '.join(known)}"
            )


def _needs(models: Models, query: str, model: Model) -> Needs:
    """What the query computes for single features of the model."""
    try:
        found = feature_sources(query, models.host.columns, models.host.function_type)
    except ProbeError:
        return {}
    features = {f.name: found.get(fold(f.name), frozenset()) for f in model.features}
    known = {s for s in frozenset().union(*features.values()) if _can_be_idle(models, query, s)}
    return {name: needed & known for name, needed in features.items() if needed & known}


def _can_be_idle(models: Models, query: str, source: FeatureSource) -> bool:
    """Whether the engine binds the query without a source, so that its cost can be measured."""
    try:
        models.host.columns(without(query, (source,)))
    except ProbeError:
        return False
    return True


# ALTER MODEL .. ADD CASCADE and DROP CASCADE.


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


# ALTER MODEL .. ADD TOP_K FILTER and DROP TOP_K FILTER.


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
