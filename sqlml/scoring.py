"""`Scoring`: from a query that calls models to SQL that the engine runs as it is."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import duckdb

from sqlml.backup import exported_program
from sqlml.catalog.catalog import Catalog
from sqlml.errors import ParseError, SqlmlError, UnknownModelError
from sqlml.ir.program import Program
from sqlml.lookup import Lookup
from sqlml.planner.cache import PlanCache
from sqlml.planner.choice import with_setting
from sqlml.planner.context import Context
from sqlml.planner.explaining import with_rows
from sqlml.planner.measured import Analysis, Measured
from sqlml.planner.names import REFUSED_TEXT, FunctionSpec, parse_name, refused_text_names
from sqlml.planner.plan import Plan
from sqlml.rewording import reworded_errors
from sqlml.types import fold
from sqlml.udfs.duckdb import DuckDBEngine
from sqlml.udfs.engine import EngineFunction
from sqlml.udfs.function import engine_function
from sqlml.udfs.meter import metered
from sqlml.udfs.refused_texts import refused_text_functions

T = TypeVar("T")


class Scoring:
    """Plans queries on one connection, and keeps the functions registered that plans call."""

    def __init__(self, engine: DuckDBEngine, catalog: Catalog, lookup: Lookup) -> None:
        self._engine = engine
        self._catalog = catalog
        self._lookup = lookup
        context = Context(
            engine.bind,
            self._lookup.model,
            engine.has_function,
            engine.unique_keys,
            {},
            engine.rows,
            engine.registry.column_name,
            engine.type_of,
        )
        self._plans = PlanCache(context, self._lookup.stamp)
        self._told: tuple[Plan | None, Plan | None] = None, None
        self._settings: Mapping[str, str] = {}

    def plan(self, sql: str, parameters: Any) -> Plan | None:
        """The plan of one statement, or None when it calls no model."""
        return self._plans.plan(sql, parameters, self._settings)

    def set(self, option: str, value: Any) -> None:
        """Give the session's queries an option, before those of their models; None: take it back.

        Raises:
            ConfigError: there is no such option, or it has no such value.
        """
        self._settings = with_setting(self._settings, option, value)

    def told(self, sql: str, parameters: Any) -> Plan | None:
        """The same with the engine's estimate of rows for all its calls.

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
        found = self._latest(sql, parameters) if runs else self.plan(sql, parameters)
        if found is None:
            return sql, parameters
        return self._ready(found), _remaining(found, parameters)

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

    def _ready(self, found: Plan) -> str:
        """The plan's SQL once all its functions are registered."""
        names: dict[str, str] = {}
        for name, places in found.functions.items():
            call = found.calls[places[0]]
            registered = self._engine.registered(name)
            names[name] = registered or self._function(call.spec, call.program)
        return _named(found.sql, names | self._of_refused_texts(found.sql))

    def _of_refused_texts(self, sql: str) -> dict[str, str]:
        """The function that keeps refused texts, registered where `sql` calls it, and its name."""
        return {
            f.name: self._engine.registered(f.name) or self._engine.register(f)
            for f in refused_text_functions(sql)
        }

    def _function(self, spec: FunctionSpec, digest: str, on_use: bool = False) -> str:
        program = self._find_program(digest)
        return self._engine.register(engine_function(spec, program, on_use))

    def _find_program(self, digest: str) -> Program:
        """The Program, out of the first database that has it whole.

        Raises:
            UnknownModelError: none has it.
            ArtifactError: those that have it are damaged.
        """
        failure: SqlmlError
        try:
            return self._catalog.program(digest)
        except SqlmlError as error:
            failure = error
        for database in self._engine.databases():
            try:
                return self._catalog.program(digest, database)
            except SqlmlError as error:
                if isinstance(failure, UnknownModelError):
                    failure = error
        raise failure

    def retrying(self, work: Callable[[], T], statement: Any = None) -> T:
        """Run `work`; when it misses a function of ours (in a view), register that and go on.

        Args:
            statement: the text that is run, which may import a database.
        """
        tried: set[str] = set()
        while True:
            try:
                return work()
            except duckdb.CatalogException as error:
                spec = parse_name(str(error))
                names = {spec.name} if spec is not None else refused_text_names(str(error))
                if names <= tried or self._engine.has_several(statement):
                    raise  # what stands before in a text has been done, and would be done again
                tried |= names
                if spec is None:
                    self._of_refused_texts(str(error))
                    continue
                program = None
                if isinstance(statement, str):
                    program = exported_program(self._engine, statement, spec.program)
                program = program or self._find_program(spec.program)
                self._engine.register(engine_function(spec, program))

    def take_in(self) -> object:
        """Make all functions known that views and macros call; returns what there is to see."""
        texts = self._engine.view_texts()
        self._register_for(texts)
        self.register_for_macros()
        return self._engine.attached(), texts

    def register_for_macros(self) -> None:
        """Make the functions known that our own macros call, for connections without a session."""
        functions = self._engine.model_functions()
        for function in [*functions, *refused_text_functions(REFUSED_TEXT if functions else "")]:
            self._engine.registry.add(function)

    def register_for_views(self) -> None:
        """Views hold rewritten text; make their functions known before somebody reads them."""
        self._register_for(self._engine.view_texts())

    def _register_for(self, texts: Sequence[str]) -> None:
        for at in texts:
            self._of_refused_texts(at)
            while (spec := parse_name(at)) is not None:
                at = at[at.index(spec.name) + len(spec.name) :]
                try:
                    self._function(spec, spec.program, on_use=True)
                except SqlmlError:
                    continue  # its model is gone: reading the view says so

    def explained(self, query: str, parameters: Any, analyze: bool) -> list[tuple[str, str]]:
        """EXPLAIN's rows: the model plan, then the engine's own."""
        found = self.plan(query, parameters)
        if found is None:
            if len(self._engine.connection.extract_statements(query)) > 1:
                raise ParseError("EXPLAIN takes one query, and would run all behind the first")
            return self._explain(query, parameters, analyze)
        found = with_rows(found, self._engine.rows)
        if analyze:
            found, rows = self._analysed(found, parameters)
        else:
            ready = self._ready(found)
            with reworded_errors(f"EXPLAIN {ready}", f"EXPLAIN {query}"):
                rows = self._explain(ready, _remaining(found, parameters), False)
        return [("sqlml_plan", str(found)), *rows]

    def analysed(self, query: str, parameters: Any) -> Plan | None:
        """The plan with what was measured while the query ran once; None when it calls no model.

        Such a query does not run.
        """
        found = self.plan(query, parameters)
        if found is None:
            return None
        return self._analysed(with_rows(found, self._engine.rows), parameters)[0]

    def _analysed(self, found: Plan, parameters: Any) -> tuple[Plan, list[tuple[str, str]]]:
        """Run the plan once with functions that measure; the plan with that, and EXPLAIN's rows."""
        makers: dict[str, Callable[[], EngineFunction]] = {}
        if not found.kept:
            for name, places in found.functions.items():
                call = found.calls[places[0]]
                if f"{name}(" in found.sql:  # else all is written in SQL
                    program = self._find_program(call.program)
                    makers[name] = partial(engine_function, call.spec, program)
        with metered(makers) as (meter, twins, measured):
            names = {name: self._engine.register(f) for name, f in twins.items()}
            names |= self._of_refused_texts(found.sql)
            sql = _named(found.sql, names) if twins else self._ready(found)
            start = time.perf_counter()
            rows = self._explain(sql, _remaining(found, parameters), True)
            seconds = time.perf_counter() - start
            idle = {name: Measured() for name in found.functions if f"{name}(" not in found.sql}
            analysis = Analysis(seconds, meter.inside, {**idle, **measured()})
        return replace(found, analysis=analysis), rows

    def _explain(self, sql: str, parameters: Any, analyze: bool) -> list[tuple[str, str]]:
        head = "EXPLAIN ANALYZE " if analyze else "EXPLAIN "
        rows = self.retrying(lambda: self._engine.execute(head + sql, parameters).fetchall())
        return [(str(key), str(text)) for key, text in rows]


def _named(sql: str, names: Mapping[str, str]) -> str:
    """The statement with functions called by other names."""
    for name, other in names.items():
        if other != name:
            sql = sql.replace(f"{name}(", f"{other}(")
    return sql


def _remaining(found: Plan, parameters: Any) -> Any:
    """The user's parameters without those that the plan used up."""
    if isinstance(parameters, Mapping):
        left = {k: v for k, v in parameters.items() if fold(str(k)) not in found.dropped_names}
        return left or None
    if found.parameters is None:
        return parameters
    return [parameters[i] for i in found.parameters] or None
