"""`Queries`: from a query that calls models to SQL that DuckDB runs as it is."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from sqlml.catalog.lookup import Lookup
from sqlml.catalog.stored_programs import Programs
from sqlml.dialects import DUCKDB
from sqlml.errors import ParseError, UnknownModelError
from sqlml.host import RowHost
from sqlml.planner.plan.explain_plan import Analysis, Measured
from sqlml.planner.plan.plan import Plan, with_rows
from sqlml.planner.plan_cache import PlanCache
from sqlml.session.engine_errors import reworded_errors
from sqlml.session.registered_functions import Functions
from sqlml.statements.background import explained_by_rows, names_in_rows
from sqlml.training.rows.estimator_input import held_out_query
from sqlml.types import fold
from sqlml.udfs.duckdb.engine import DuckDBEngine
from sqlml.udfs.engine_function import EngineFunction
from sqlml.udfs.make_function import engine_function
from sqlml.udfs.metering import metered


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


# `Explaining`: EXPLAIN and EXPLAIN ANALYZE of queries that call models.


class Explaining:
    """What one connection reports about its queries: the plan and its measurements."""

    def __init__(self, engine: DuckDBEngine, functions: Functions, queries: Queries) -> None:
        self._engine = engine
        self._functions = functions
        self._queries = queries

    def explained(self, query: str, parameters: Any, analyze: bool) -> list[tuple[str, str]]:
        """EXPLAIN's rows: the model plan, then the engine's own."""
        found = self._queries.plan(query, parameters)
        if found is None:
            if len(self._engine.native.extract_statements(query)) > 1:
                raise ParseError("EXPLAIN takes one query, and would run any after the first")
            return self._explain(query, parameters, analyze)
        found = with_rows(found, self._engine.rows)
        if analyze:
            found, rows = self._analysed(found, parameters)
        else:
            ready = self._functions.ready(found)
            with reworded_errors(f"EXPLAIN {ready}", f"EXPLAIN {query}"):
                rows = self._explain(ready, remaining(found, parameters), False)
        return [("sqlml_plan", str(found)), *rows] if found.calls else rows

    def analysed(self, query: str, parameters: Any) -> Plan | None:
        """The plan with what was measured while the query ran once; None when it calls no model.

        A query that calls no model does not run.
        """
        found = self._queries.plan(query, parameters)
        if found is None:
            return None
        return self._analysed(with_rows(found, self._engine.rows), parameters)[0]

    def _analysed(self, plan: Plan, parameters: Any) -> tuple[Plan, list[tuple[str, str]]]:
        """Run the plan once with functions that measure; the plan with that, and EXPLAIN's rows."""
        called = {name: spec for name, spec in plan.specs.items() if f"{name}(" in plan.sql}
        makers: dict[str, Callable[[], EngineFunction]] = {}
        for name, spec in () if plan.kept else called.items():
            program = self._functions.find_program(spec.program)
            makers[name] = partial(engine_function, spec, program)
        with metered(makers) as (meter, twins, measured):
            names = {name: self._engine.add(f) for name, f in twins.items()}
            calling = self._functions.calling
            sql = calling(plan.sql, names) if twins else self._functions.ready(plan)
            start = time.perf_counter()
            rows = self._explain(sql, remaining(plan, parameters), True)
            seconds = time.perf_counter() - start
            idle = {name: Measured() for name in plan.specs if name not in called}
            analysis = Analysis(seconds, meter.inside, {**idle, **measured()})
        return replace(plan, analysis=analysis), rows

    def _explain(self, sql: str, parameters: Any, analyze: bool) -> list[tuple[str, str]]:
        head = "EXPLAIN ANALYZE " if analyze else "EXPLAIN "
        run = partial(self._engine.execute, head + sql, parameters)
        rows = self._functions.retrying(lambda: run().fetchall())
        return [(str(key), str(text)) for key, text in rows]
