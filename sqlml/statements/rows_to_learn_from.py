"""`rows_to_learn_from`: the rows of a query from which ALTER MODEL learns a small model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlml.cascades.feature_groups import Sources
from sqlml.cascades.recipe import Recipe
from sqlml.cascades.source_costs import Needs, source_costs, without
from sqlml.catalog.model import Model
from sqlml.dialects.duckdb import builtin
from sqlml.errors import ConfigError, ParseError
from sqlml.planner.binding.probe_queries import ProbeError
from sqlml.planner.rewrites.opened_views import without_views
from sqlml.planner.syntax.feature_sources import feature_sources
from sqlml.planner.syntax.lineage import FeatureSource
from sqlml.planner.syntax.text import text_of
from sqlml.statements.models import Models
from sqlml.statements.options import ESTIMATOR
from sqlml.types import fold


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
