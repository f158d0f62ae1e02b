"""`SparkQueries`: from a query that calls models to SQL that Spark runs as it is."""

from __future__ import annotations

import weakref
from dataclasses import replace
from functools import partial

from sqlml.catalog.lookup import Lookup
from sqlml.catalog.read import Catalog
from sqlml.dialects.spark import SPARK
from sqlml.host import Host
from sqlml.planner.plan.plan import Plan
from sqlml.planner.plan_cache import PlanCache
from sqlml.statements.background import explained_by_rows
from sqlml.statements.names_in_rows import names_in_rows
from sqlml.udfs.engine import names_to_call
from sqlml.udfs.spark.engine import SparkEngine


class SparkQueries(PlanCache):
    """The plans of one SparkSession's queries, and the functions that they call."""

    def __init__(self, engine: SparkEngine, catalog: Catalog, lookup: Lookup, host: Host) -> None:
        context = replace(
            engine.context(lookup.model),
            training=lookup.training,
            explained=partial(explained_by_rows, host, catalog.programs, SPARK),
            models=lookup.several,
            names=partial(names_in_rows, weakref.ref(self)),
        )
        super().__init__(context, lookup.stamp)
        self._engine = engine
        self._catalog = catalog
        self.host = host

    def runnable(self, sql: str) -> str:
        """A query that may call models as Spark runs it."""
        plan = self.plan(sql, None)
        return sql if plan is None else self.ready(plan)

    def ready(self, plan: Plan) -> str:
        """The plan's SQL once all its functions are registered, each by its own name."""
        names_to_call(self._engine, plan, self._catalog.program)
        return plan.sql
