"""`SparkScoring`: from a query that calls models to SQL that Spark runs as it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlml.catalog.catalog import Catalog
from sqlml.dialects import SPARK
from sqlml.lookup import Lookup
from sqlml.planner.cache import PlanCache
from sqlml.planner.choice import with_setting
from sqlml.planner.context import Context
from sqlml.planner.plan import Plan
from sqlml.udfs.spark import SparkEngine


class SparkScoring:
    """Plans the queries of one SparkSession, and registers the functions that plans call."""

    def __init__(self, engine: SparkEngine, catalog: Catalog, lookup: Lookup) -> None:
        self._engine = engine
        self._catalog = catalog
        self._settings: Mapping[str, str] = {}
        self._lookup = lookup
        context = Context(
            engine.bind,
            self._lookup.model,
            engine.has_function,
            None,
            {},
            lambda query: None,
            lambda expression: None,
            lambda value: None,
            SPARK,
        )
        self._plans = PlanCache(context, self._lookup.stamp)

    def plan(self, sql: str) -> Plan | None:
        """The plan of one statement, or None when it calls no model."""
        return self._plans.plan(sql, None, self._settings)

    def ready(self, found: Plan) -> str:
        """The plan's SQL once all its functions are registered."""
        for places in found.functions.values():
            call = found.calls[places[0]]
            if f"{call.spec.name}(" in found.sql:
                self._engine.register(call.spec, self._catalog.program(call.program))
        return found.sql

    def set(self, option: str, value: Any) -> None:
        """Give the session's queries an option, before those of their models; None: take it back.

        Raises:
            ConfigError: there is no such option, or it has no such value.
        """
        self._settings = with_setting(self._settings, option, value)
