"""`Queries`: from a query that calls models to SQL that DuckDB runs as it is."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from sqlml.catalog.lookup import Lookup
from sqlml.catalog.stored_programs import Programs
from sqlml.dialects import DUCKDB
from sqlml.errors import UnknownModelError
from sqlml.host import RowHost
from sqlml.planner.plan.plan import Plan
from sqlml.planner.plan.with_rows import with_rows
from sqlml.planner.plan_cache import PlanCache
from sqlml.session.registered_functions import Functions
from sqlml.statements.background import explained_by_rows
from sqlml.statements.names_in_rows import names_in_rows
from sqlml.training.reading.held_out_query import held_out_query
from sqlml.types import fold
from sqlml.udfs.duckdb.engine import DuckDBEngine


class Queries(PlanCache):
    """The plans of one connection's queries, and the statements that they become."""

    def __init__(
        self,
        engine: DuckDBEngine,
        functions: Functions,
        lookup: Lookup,
        host: RowHost,
        programs: Programs,
    ) -> None:
        context = replace(
            engine.context(lookup.model),
            small_models=lookup.small_models,
            training=lookup.training,
            held_out=partial(held_out_query, host),
            explained=partial(explained_by_rows, host, programs, DUCKDB),
            models=lookup.several,
            names=partial(names_in_rows, weakref.ref(self)),
            literal=host.literal,
        )
        super().__init__(context, lookup.stamp)
        self._engine = engine
        self._functions = functions
        self.host = host
        self._told: tuple[Plan | None, Plan | None] = None, None

    def told(self, sql: str, parameters: Any) -> Plan | None:
        """The plan of one statement with the engine's estimate of rows for all its calls.

        The last plan is kept with what the engine said, so that it is asked once.
        """
        found = self.plan(sql, parameters)
        if found is None:
            return None
        plan, told = self._told
        if plan is not found:
            told = with_rows(found, self._engine.rows)
            self._told = found, told
        return told

    def rewritten(self, sql: str, parameters: Any, runs: bool = False) -> tuple[str, Any]:
        """The statement and parameters for the engine, all functions registered.

        Args:
            runs: it is run at once, which ends the result of the statement before.
        """
        planned = self._latest if runs else self.plan
        found = planned(sql, parameters)
        while found is not None:
            try:
                return self._functions.ready(found), remaining(found, parameters)
            except UnknownModelError:
                before, found = found, planned(sql, parameters)
                if found is not None and found.functions.keys() == before.functions.keys():
                    raise  # else another connection replaced the model after it was planned
        return sql, parameters

    def runnable(self, sql: str) -> str:
        """A query without parameters that may call models, as the engine runs it."""
        return self.rewritten(sql, None)[0]

    def _latest(self, sql: str, parameters: Any) -> Plan | None:
        """The plan with the models of now, also where an open result holds older ones in sight."""
        try:
            found = self.plan(sql, parameters)
        except UnknownModelError:
            if self._engine.catch_up():
                return self.plan(sql, parameters)
            raise
        if found is not None and self._engine.catch_up():
            return self.plan(sql, parameters)
        return found


def remaining(plan: Plan, parameters: Any) -> Any:
    """The user's parameters without those that the plan used up."""
    if isinstance(parameters, Mapping):
        left = {k: v for k, v in parameters.items() if fold(str(k)) not in plan.dropped_names}
        return left or None
    if plan.parameters is None:
        return parameters
    return [parameters[i] for i in plan.parameters] or None
