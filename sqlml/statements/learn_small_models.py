"""ALTER MODEL ... ADD CASCADE and ADD TOP_K FILTER: learn a small model from the rows of a query.

The small model of a cascade predicts easy rows. The small model of a top-K filter selects the rows
that the full model ranks (Willump, sections 5 and 6). A small model is stored only if it is
expected to save time. VERIFY MODEL reads true labels with `find_label_column` and `encode_labels`.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sqlml.catalog.model import Model, Reference, Transform
from sqlml.catalog.small_models import Cascade, TopKFilter
from sqlml.dialects import DUCKDB
from sqlml.dialects.duckdb import builtin
from sqlml.errors import ConfigError, MissingColumnError, ParseError
from sqlml.host import Host
from sqlml.parsing.statements import AddCascade, AddTopKFilter
from sqlml.planner.binding.probe_queries import ProbeError
from sqlml.planner.binding.requested_output import find_label
from sqlml.planner.program.result_sql import build_label_literal
from sqlml.planner.rewrites.apply_rules import expand_views_in_text
from sqlml.planner.syntax.joins import LeftJoin, find_left_joins
from sqlml.planner.syntax.lineage import FeatureSource, find_feature_sources
from sqlml.planner.syntax.statement_text import classify_text
from sqlml.scorer.input_table import read_program_inputs
from sqlml.statements.connection_models import Answer, Models, format_pairs_answer
from sqlml.statements.describe_model import describe_small_model, list_groups
from sqlml.statements.model_options import ESTIMATOR, OUTPUT
from sqlml.training.cascades import feature_groups, learn
from sqlml.training.cascades.recipe import Recipe
from sqlml.types import Array, fold, list_classes

UNIQUE_KEYS = "unique_keys"
"""The option with unique keys that files and some databases cannot declare.

A join on a unique key matches each row at most once, so the join does not add rows.
"""


def add_cascade(models: Models, reference: Reference, change: AddCascade) -> Answer:
    """Carry out ADD CASCADE USING (query) OPTIONS (label = ..., accuracy_loss = ..., ...)."""
    model = models.catalog.get(reference)
    options = change.options
    labels = model.program.labels
    if len(labels) != 1 or "label" not in model.program.outputs:
        reason = "has several targets" if labels else "does not predict classes"
        raise ConfigError(f"model {model.label} {reason}, and a cascade is for classifiers")
    check_option_names(options, ("label", "accuracy_loss", UNIQUE_KEYS), "ADD CASCADE")
    accuracy_loss: Any = options.get("accuracy_loss", 0.001)  # The default in Willump.
    if not _is_fraction(accuracy_loss) or accuracy_loss == 1:
        message = f"accuracy_loss must lie between 0 and 1, as 0.001 does, not {accuracy_loss!r}"
        raise ConfigError(message)
    recipe = _read_recipe(model)
    learning = fetch_learning_rows(models, model, change.query, "ADD CASCADE")
    keys = check_unique_keys(models, options, learning.expanded_query)
    label_name = options.get("label", model.options.get(OUTPUT))
    label = find_label_column(label_name, model, learning.frame)
    codes = encode_labels(learning.frame[label], model)
    task = learning.make_task(model, recipe, learning.frame[codes >= 0])
    cascade = learn.learn_cascade(task, codes[codes >= 0], label=label, loss=float(accuracy_loss))
    return _store_small_model(models, model, cascade, keys)


def add_top_k_filter(models: Models, reference: Reference, change: AddTopKFilter) -> Answer:
    """Carry out ADD TOP_K FILTER USING (query) OPTIONS (k = ..., precision = ..., ...)."""
    model = models.catalog.get(reference)
    options = change.options
    check_option_names(options, ("k", "precision", "class", UNIQUE_KEYS), "ADD TOP_K FILTER")
    output, column, chosen_class = _find_ranking_output(model, options)
    k: Any = options.get("k", 20)  # The defaults in section 6.3 of Willump.
    precision: Any = options.get("precision", 0.95)
    if type(k) is not int or k < 1:
        raise ConfigError(f"option k must be a number of rows, such as 20, not {k!r}")
    if not _is_fraction(precision):
        raise ConfigError(f"precision must lie between 0 and 1, as 0.95 does, not {precision!r}")
    recipe = _read_recipe(model).to_regression()
    learning = fetch_learning_rows(models, model, change.query, "ADD TOP_K FILTER")
    keys = check_unique_keys(models, options, learning.expanded_query)
    goal = learn.RankingGoal(output, column, chosen_class, k, float(precision))
    top_k_filter = learn.learn_filter(learning.make_task(model, recipe, learning.frame), goal)
    return _store_small_model(models, model, top_k_filter, keys)


def check_option_names(options: Mapping[str, Any], names: tuple[str, ...], statement: str) -> None:
    for name in options:
        if name not in names:
            message = f"unknown option {name!r}; options of {statement}: {', '.join(names)}"
            raise ConfigError(message)


def _is_fraction(value: Any) -> bool:
    return type(value) in (int, float) and 0 < value <= 1


def _find_ranking_output(model: Model, options: Mapping[str, Any]) -> tuple[str, int, str]:
    """Return the output by which queries order, the index of its column, and the class as SQL."""
    program = model.program
    if not program.labels and "label" in program.outputs and program.target_count == 1:
        if "class" in options:
            raise ConfigError(f"model {model.label} predicts a number and has no classes")
        return "label", 0, ""
    if len(program.labels) != 1 or "proba" not in program.outputs:
        raise ConfigError(
            f"model {model.label} predicts neither a number nor probabilities of classes for a "
            "row, so its rows cannot be ranked"
        )
    labels = program.labels[0]
    chosen_class = options.get("class", model.options.get("positive_class"))
    if chosen_class is None and len(labels) == 2:
        chosen_class = labels.values[1]
    if chosen_class is None:
        advice = "set OPTIONS (class = ...) to the class whose probability the queries order by"
        raise ConfigError(f"{advice}; classes: {list_classes(labels.values)}")
    index = find_label(labels, chosen_class)
    if index is None:
        classes = list_classes(labels.values)
        message = f"model {model.label} has no class {chosen_class!r}; its classes are {classes}"
        raise ConfigError(message)
    return "proba", index, build_label_literal(labels.values[index], labels.kind)


def _read_recipe(model: Model) -> Recipe:
    recipe = model.options.get(ESTIMATOR)
    if recipe is None:
        raise ConfigError(
            f"it is not known how model {model.label} was trained: its file does not say so, or an "
            "earlier sqlml registered it; register the fitted object again"
        )
    return Recipe.from_stored(recipe)


def _store_small_model(
    models: Models, model: Model, result: Cascade | TopKFilter | learn.NoGain, keys: tuple[str, ...]
) -> Answer:
    if isinstance(result, learn.NoGain):
        description = [("stored", "no"), ("reason", result.reason), *list_groups(result.groups)]
    else:
        facts: Any = replace(result.facts, unique_keys=keys)
        small_model = replace(result, facts=facts)
        models.versions.add_small_model(model, small_model)
        description = [("stored", "yes"), *describe_small_model(small_model.facts)]
    return format_pairs_answer(("property", "value"), description)


@dataclass(frozen=True, slots=True, eq=False)
class LearningRows:
    """The rows of a query from which a small model learns, in a pandas frame.

    In `expanded_query`, views and joined CTEs are subqueries. `sources` are the parts of the query
    that compute single features. `rest_ns` is the time of all other parts in ns per row.
    """

    query: str
    expanded_query: str
    frame: Any
    sources: feature_groups.Sources
    rest_ns: float

    def make_task(self, model: Model, recipe: Recipe, frame: Any) -> learn.LearningTask:
        rows = read_program_inputs(model.program, frame)
        program, query = model.program, self.query
        return learn.LearningTask(program, recipe, rows, query, self.sources, self.rest_ns)


def fetch_learning_rows(models: Models, model: Model, query: str, statement: str) -> LearningRows:
    """Fetch the rows from which a small model learns, and measure the parts of the query."""
    if not models.dialect.lazy_calls:
        raise ConfigError(
            "a small model saves nothing in this engine, which evaluates both models for every "
            "row; learn and use it in DuckDB"
        )
    if model.transform is not None:
        raise ConfigError(
            f"model {model.label} computes its features by TRANSFORM or from dates, but small "
            "models read columns: compute them in the query, and train the model on that"
        )
    query = query.strip()
    frame = fetch_rows(models.host, query, model, f"ALTER MODEL ... {statement}")

    def run(subquery: str) -> None:
        """Run a query so that the engine computes all columns but returns a single number."""
        models.host.fetch_frame(
            f"SELECT {builtin('max')}({builtin('hash')}(sqlml_rows)) "
            f"FROM (\n{subquery}\n) AS sqlml_rows"
        )

    expanded_query = _expand_views(models, query)
    needs = _find_removable_sources(models, expanded_query, model)
    row_count = max(1, len(frame))
    sources, rest_ns = feature_groups.measure_source_costs(expanded_query, needs, run, row_count)
    return LearningRows(query, expanded_query, frame, sources, rest_ns)


def fetch_rows(host: Host, query: str, model: Model, statement: str) -> Any:
    """Fetch the rows of a query as a pandas frame, with the features that TRANSFORM computes."""
    if classify_text(query).calls_models:
        raise ParseError(f"{statement} USING takes a query without model calls")
    if model.transform is not None:
        query = _apply_transform(query, model.transform)
    try:
        frame = host.fetch_frame(query)
    except ParseError as error:
        raise ParseError(f"{statement} USING takes one query: {error}") from None
    names = [str(column) for column in frame.columns]
    return frame.rename(columns=model.map_renamed_columns(names))


def _apply_transform(query: str, transform: Transform) -> str:
    columns = {name: f"sqlml_rows.{DUCKDB.quote_name(name)}" for name in transform.columns}
    features = {DUCKDB.quote_name(n): transform.sql(n, columns) for n in transform.expressions}
    select_items = ", ".join(f"{sql} AS {name}" for name, sql in features.items())
    folded_columns = {fold(DUCKDB.quote_name(name)) for name in columns}
    replaced_names = [name for name in features if fold(name) in folded_columns]
    star = f"* EXCLUDE ({', '.join(replaced_names)})" if replaced_names else "*"
    return f"SELECT {star}, {select_items} FROM (\n{query}\n) AS sqlml_rows"


def _expand_views(models: Models, query: str) -> str:
    expanded_query = expand_views_in_text(query, models.host.view)
    try:
        has_same_columns = models.host.columns(expanded_query) == models.host.columns(query)
    except ProbeError:
        return query
    return expanded_query if has_same_columns else query


def _find_removable_sources(models: Models, query: str, model: Model) -> feature_groups.Needs:
    try:
        sources = find_feature_sources(query, models.host.columns, models.host.function_type)
    except ProbeError:
        return {}
    features = {f.name: sources.get(fold(f.name), frozenset()) for f in model.features}
    removable: set[FeatureSource] = set()
    for source in frozenset().union(*features.values()):
        with suppress(ProbeError):  # A failing source cannot be removed.
            models.host.columns(feature_groups.disable_sources(query, (source,)))
            removable.add(source)
    return {name: needed & removable for name, needed in features.items() if needed & removable}


def check_unique_keys(models: Models, options: Mapping[str, Any], query: str) -> tuple[str, ...]:
    """Return the keys in the option `unique_keys`, after a check that they are unique."""
    option = options.get(UNIQUE_KEYS, ())
    keys = (option,) if isinstance(option, str) else option
    if not isinstance(keys, list | tuple) or not all(isinstance(k, str) and k for k in keys):
        raise ConfigError(
            f"option {UNIQUE_KEYS} takes columns, such as ['song', 'shop, day'], not {option!r}"
        )
    joins = find_left_joins(query) if keys else []
    for key in keys:
        columns = {fold(column.strip()) for column in key.split(",")}
        joins_by_key = [join for join in joins if columns <= join.keys.keys()]
        if not joins_by_key:
            message = f"option {UNIQUE_KEYS}: the query has no LEFT JOIN of a table by {key!r}"
            raise ConfigError(message)
        for join in joins_by_key:
            _check_unique(models, join, key)
    return tuple(keys)


def _check_unique(models: Models, join: LeftJoin, key: str) -> None:
    columns = [models.dialect.quote_name(column.strip()) for column in key.split(",")]
    key_sql = ", ".join(columns)
    condition = " AND ".join(f"{column} IS NOT NULL" for column in columns)
    duplicates = models.host.fetch_frame(
        f"SELECT {key_sql} FROM {join.table} AS sqlml_rows WHERE {condition} GROUP BY {key_sql} "
        f"HAVING {builtin('count')}(*) > 1 LIMIT 1"
    )
    if len(duplicates):
        values = ", ".join(repr(value) for value in duplicates.iloc[0].tolist())
        raise ConfigError(f"option {UNIQUE_KEYS}: {join.table} has {key} = {values} several times")


def find_label_column(name: Any, model: Model, frame: Any) -> str:
    """Return the column `name`, or by default the only column that is not a feature."""
    columns = [str(column) for column in frame.columns]
    if name is not None:
        return select_column(frame, name, "the labels")
    features = {fold(feature.name) for feature in model.features}
    other_columns = [c for c in columns if fold(c) not in features]
    if len(other_columns) != 1:
        message = "name the column of the query with the true labels: OPTIONS (label = 'column')"
        raise ConfigError(message)
    return other_columns[0]


def select_column(frame: Any, name: Any, purpose: str) -> str:
    """Return the column of a frame that `name` means; raise MissingColumnError if it is unknown."""
    columns = [str(column) for column in frame.columns]
    matches = [column for column in columns if fold(column) == fold(str(name))]
    if not matches:
        raise MissingColumnError(
            f"the query has no column {name!r} with {purpose}; it has {', '.join(columns)}"
        )
    return matches[0]


def encode_labels(column: Any, model: Model) -> Array:
    """Encode labels as int64 indices (n,) into the model's classes, with -1 for NULL."""
    labels = model.program.labels[0]
    indices = {value: index for index, value in enumerate(labels.values)}
    codes = []
    for value, is_missing in zip(column.to_numpy(object), column.isna().tolist(), strict=True):
        plain_value = value.item() if isinstance(value, np.generic) else value
        try:
            codes.append(-1 if is_missing else indices[plain_value])
        except (KeyError, TypeError):  # Lists and structs raise TypeError.
            raise ConfigError(
                f"column {column.name!r} contains {value!r}, which is not a class of model "
                f"{model.label}; its classes are {list_classes(labels.values)}"
            ) from None
    return np.array(codes, np.int64)
