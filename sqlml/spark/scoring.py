"""`SparkScoring`: from a query that calls models to SQL that Spark runs as it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlml.catalog.catalog import Catalog
from sqlml.catalog.model import Model, parse_reference
from sqlml.dialects import SPARK
from sqlml.planner.cache import PlanCache
from sqlml.planner.choice import setting
from sqlml.planner.context import Context
from sqlml.planner.plan import Plan
from sqlml.recent import Recent
from sqlml.udfs.spark import SparkEngine


class SparkScoring:
    """Plans the queries of one SparkSession, and registers the functions that plans call."""

    def __init__(self, engine: SparkEngine, catalog: Catalog) -> None:
        self._engine = engine
        self._catalog = catalog
        self._settings: Mapping[str, str] = {}
        self._models: Recent[str, tuple[object, Model]] = Recent()
        context = Context(
            engine.bind,
            self.model,
            engine.has_function,
            None,
            {},
            lambda query: None,
            lambda expression: None,
            SPARK,
        )
        self._plans = PlanCache(context, self._stamp)

    def model(self, name: str) -> Model:
        """The model that a reference such as 'churn' or 'churn/3' means, as it is now."""
        stamp, known = self._stamp(name), self._models.get(name)
        if stamp is not None and known is not None and known[0] == stamp:
            return known[1]
        found = self._catalog.get(parse_reference(name))
        self._models.put(name, (stamp, found), found.program.nbytes)
        return found

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
        others = {k: v for k, v in self._settings.items() if k != option}
        chosen = setting(option, "auto" if value is None else value)
        self._settings = others if value is None else {**others, option: chosen}

    def _stamp(self, name: str) -> object:
        return self._catalog.stamp(parse_reference(name))
