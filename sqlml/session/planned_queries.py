"""Plan queries that call models, rewrite them to SQL that DuckDB runs, and explain them."""

from __future__ import annotations

import time
import weakref
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from sqlml.catalog.lookup import ModelCache
from sqlml.dialects import DUCKDB
from sqlml.errors import ParseError, UnknownModelError
from sqlml.host import RowHost
from sqlml.planner.plan.explain_plan import FunctionMeasurement, QueryMeasurement
from sqlml.planner.plan.plan import Plan, estimate_rows
from sqlml.planner.plan_cache import PlanCache
from sqlml.session.engine_errors import reworded_errors
from sqlml.session.registered_functions import RegisteredFunctions
from sqlml.statements.planner_callbacks import are_disjoint, explain_by_rows, fetch_names
from sqlml.training.rows.estimator_input import build_fold_query, build_held_out_query
from sqlml.types import fold
from sqlml.udfs.duckdb.engine import DuckDBEngine
from sqlml.udfs.make_function import make_engine_function
from sqlml.udfs.metering import meter_functions


class PlannedQueries(PlanCache):
    """A cache of plans that also rewrites and explains the queries of one connection."""

    def __init__(
        self,
        engine: DuckDBEngine,
        functions: RegisteredFunctions,
        lookup: ModelCache,
        host: RowHost,
    ) -> None:
        context = replace(
            engine.make_context(lookup.model),
            small_models=lookup.catalog.small_models,
            training=lookup.training,
            held_out=partial(build_held_out_query, host),
            fold_rows=partial(build_fold_query, host),
            explain_against=partial(explain_by_rows, host, lookup.catalog.programs, DUCKDB),
            models=lookup.load_all,
            read_names=partial(fetch_names, weakref.ref(self)),
            are_disjoint=partial(are_disjoint, weakref.ref(self)),
            literal=host.literal,
        )
        super().__init__(context, lookup.stamp)
        self._engine = engine
        self._functions = functions
        self.host = host
        # The last plan without and with estimates.
        self._last_estimated: tuple[Plan | None, Plan | None] = None, None

    def plan_with_rows(self, sql: str, parameters: Any) -> Plan | None:
        """Plan one statement, with the engine's estimate of the row count of each model call."""
        plan = self.plan(sql, parameters)
        if plan is None:
            return None
        if self._last_estimated[0] is not plan:
            self._last_estimated = plan, estimate_rows(plan, self._engine.estimate_rows)
        return self._last_estimated[1]

    def rewrite(self, sql: str, parameters: Any, runs: bool = False) -> tuple[str, Any]:
        """Rewrite a statement for the engine, and register the functions that it calls.

        Return the rewritten SQL and the parameters that it still uses. If `runs`, the caller runs
        the SQL at once, so the current models are called even if an open result sees older models.
        """
        make_plan = self._plan_current if runs else self.plan
        plan = make_plan(sql, parameters)
        while plan is not None:
            try:
                return self._functions.register(plan), select_parameters(plan, parameters)
            except UnknownModelError:
                previous_plan, plan = plan, make_plan(sql, parameters)
                if plan is not None and plan.functions.keys() == previous_plan.functions.keys():
                    raise
                # Another connection replaced the model after planning, so register the new plan.
        return sql, parameters

    def runnable(self, sql: str) -> str:
        return self.rewrite(sql, None)[0]

    def _plan_current(self, sql: str, parameters: Any) -> Plan | None:
        """Plan `sql` with the current models, even if an open result sees older models."""
        try:
            plan = self.plan(sql, parameters)
            if plan is None or not self._engine.release_open_result():
                return plan
        except UnknownModelError:
            if not self._engine.release_open_result():
                raise
        return self.plan(sql, parameters)

    def explain(self, query: str, parameters: Any, analyze: bool) -> list[tuple[str, str]]:
        """Return the rows of EXPLAIN, with the model plan before the plan of the engine."""
        plan = self.plan(query, parameters)
        if plan is None:
            if len(self._engine.native.extract_statements(query)) > 1:
                raise ParseError("EXPLAIN takes one query, because the engine would run all others")
            return self._run_explain(query, parameters, analyze)
        plan = estimate_rows(plan, self._engine.estimate_rows)
        if analyze:
            plan, rows = self._run_measured(plan, parameters)
        else:
            sql = self._functions.register(plan)
            with reworded_errors(f"EXPLAIN {sql}", f"EXPLAIN {query}"):
                rows = self._run_explain(sql, select_parameters(plan, parameters), False)
        return [("sqlml_plan", str(plan)), *rows] if plan.calls else rows

    def analyze(self, query: str, parameters: Any) -> Plan | None:
        plan = self.plan(query, parameters)
        if plan is not None:
            estimated = estimate_rows(plan, self._engine.estimate_rows)
            plan, _ = self._run_measured(estimated, parameters)
        return plan

    def _run_measured(self, plan: Plan, parameters: Any) -> tuple[Plan, list[tuple[str, str]]]:
        called_specs = {name: spec for name, spec in plan.specs.items() if f"{name}(" in plan.sql}
        factories = {
            name: partial(
                make_engine_function, spec, self._functions.find_program(spec.program_hash)
            )
            for name, spec in ({} if plan.is_stored else called_specs).items()
        }
        with meter_functions(factories) as (meter, metered, measure_functions):
            if metered:
                names = {name: self._engine.make_callable(f) for name, f in metered.items()}
                sql = self._functions.rename_calls(plan.sql, names)
            else:
                sql = self._functions.register(plan)
            start_time = time.perf_counter()
            rows = self._run_explain(sql, select_parameters(plan, parameters), True)
            seconds = time.perf_counter() - start_time
            functions = {n: FunctionMeasurement() for n in plan.specs if n not in called_specs}
            functions |= measure_functions()
            analysis = QueryMeasurement(seconds, meter.busy_seconds, functions)
        return replace(plan, analysis=analysis), rows

    def _run_explain(self, sql: str, parameters: Any, analyze: bool) -> list[tuple[str, str]]:
        explain_sql = f"EXPLAIN {'ANALYZE ' if analyze else ''}{sql}"
        execute = partial(self._engine.execute, explain_sql, parameters)
        rows = self._functions.run_registering(lambda: execute().fetchall())
        return [(str(key), str(text)) for key, text in rows]


def select_parameters(plan: Plan, parameters: Any) -> Any:
    """Return the `parameters` that the rewritten statement of a plan still uses."""
    if isinstance(parameters, Mapping):
        dropped_names = plan.dropped_names
        return {k: v for k, v in parameters.items() if fold(str(k)) not in dropped_names} or None
    if plan.parameters is None:
        return parameters
    return [parameters[index] for index in plan.parameters] or None
