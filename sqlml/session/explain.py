"""`Explaining`: EXPLAIN and EXPLAIN ANALYZE of queries that call models."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from sqlml.errors import ParseError
from sqlml.planner.plan.measured import Analysis, Measured
from sqlml.planner.plan.plan import Plan
from sqlml.planner.plan.with_rows import with_rows
from sqlml.session.engine_errors import reworded_errors
from sqlml.session.queries import Queries, remaining
from sqlml.session.registered_functions import Functions
from sqlml.udfs.duckdb.engine import DuckDBEngine
from sqlml.udfs.engine_function import EngineFunction
from sqlml.udfs.make_function import engine_function
from sqlml.udfs.metering import metered


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
