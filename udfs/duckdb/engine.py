"""`DuckDBEngine`: binding, registration and execution on one connection of DuckDB (`Engine`).

Functions are made on the registry's cursor; only a transaction that cannot see one gets a twin of
it under another name.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable
from contextlib import suppress
from functools import cache, lru_cache, partial
from types import FrameType
from typing import Any

import duckdb
from duckdb import StatementType

from sqlml.catalog.connection import IS_TWO, Connection, without_excerpt
from sqlml.catalog.model import Model
from sqlml.catalog.scoring_macros import OURS
from sqlml.dialects import DUCKDB
from sqlml.dialects.duckdb import builtin, folded
from sqlml.errors import CatalogError
from sqlml.interruption import interruption_after
from sqlml.ir.program import Program
from sqlml.planner.binding.context import Context
from sqlml.planner.binding.probe_queries import Column, ProbeError
from sqlml.planner.program.function_names import FunctionSpec
from sqlml.planner.program.named_function import NamedFunction
from sqlml.types import fold
from sqlml.udfs.duckdb.function_registry import Registry, create
from sqlml.udfs.duckdb.functions_by_name import batches, callee
from sqlml.udfs.duckdb.named_functions import named_function
from sqlml.udfs.duckdb.native.needs_python import needs_python
from sqlml.udfs.duckdb.user_frame import call_from
from sqlml.udfs.duckdb.view_query import declared_keys, view_query
from sqlml.udfs.engine_function import EngineFunction
from sqlml.udfs.make_function import engine_function

# How DuckDB reports a Ctrl-C: by words of its own, since it may come before the first line of a
# function of ours.


_INTERRUPTED = re.compile(
    r"\AQuery interrupted\Z|\AKeyboardInterrupt: <EMPTY MESSAGE>"
    r"|executing the UDF: KeyboardInterrupt\b"
)


def is_interrupt(error: BaseException, stopped: bool = False) -> bool:
    """Whether `error` is how DuckDB reports a Ctrl-C: a RuntimeError between the functions of a
    query, an InvalidInputException within one, and on 1.5 an Error where rows become Python
    objects.

    Args:
        stopped: a Ctrl-C made us stop the engine, so that an InterruptException is one, too.
    """
    if stopped and isinstance(error, duckdb.InterruptException):
        return True
    return isinstance(error, Exception) and _INTERRUPTED.search(str(error)) is not None


def pass_interrupt(error: BaseException) -> None:
    """Raise KeyboardInterrupt if the engine's error is a Ctrl-C; else do nothing."""
    if is_interrupt(error):
        raise KeyboardInterrupt from None


_TWINS = 10**9
"""The numbers of twins are drawn from so many: a view of the file may call one of another process,
and a name that is taken would end the user's transaction."""


class DuckDBEngine:
    """One connection of a database, as planning and running use it.

    `native` is DuckDB's own object, and `connection` what the catalog reads and writes by.
    `frame` is the user's frame while one of their calls is carried out (`user_frame.py`).
    `about_models` is whether the statement that was run last, whose result may be open, says so,
    and `is_read` whether a row of that was fetched.
    """

    def __init__(self, native: duckdb.DuckDBPyConnection, registry: Registry) -> None:
        self.native = native
        self.connection = Connection(native)
        self.registry = registry
        self.frame: FrameType | None = None
        self.about_models = False
        self.is_read = False
        self._batches = 0
        self._visible: set[str] = set()
        self._twins: dict[str, str] = {}

    def begin(self, about_models: bool) -> None:
        """Another call of the user's begins."""
        self.about_models, self.is_read, self._batches = about_models, False, batches()

    def is_interrupt(self, error: BaseException, stopped: bool = False) -> bool:
        """Whether it is a Ctrl-C during a statement that is about models, or scores by a view."""
        return is_interrupt(error, stopped) and (self.about_models or batches() > self._batches)

    # -- questions of the planner

    def context(self, model: Callable[[str], Model]) -> Context:
        """What the planner may ask: the engine, and `model` for the models that references mean."""
        return Context(
            describe=self.bind,
            model=model,
            is_user_function=self.has_function,
            function_type=self.function_type,
            is_steady=self.is_steady,
            unique_keys=partial(declared_keys, self.connection.read),
            view=self.view,
            rows=self.rows,
            column_name=self.registry.column_name,
            type_of=self.type_of,
            dialect=DUCKDB,
            no_columns=self.registry.no_columns,
            needs_python=needs_python,
        )

    def bind(self, query: str) -> tuple[Column, ...]:
        """Names and types of a query's result, without running it.

        Raises:
            ProbeError: the query does not bind.
        """
        relation = self._bound(query)
        return _columns(tuple(relation.columns), tuple(map(str, relation.types)))

    def rows(self, query: str) -> int | None:
        """The engine's own estimate of the rows of a query, or None.

        Raises:
            ProbeError: the query does not bind, and was not run: a transaction goes on.
        """
        relation = self._bound(query)
        try:
            if IS_TWO:
                plan = relation.explain(format="json")
            else:
                ask = partial(self.native.sql, f"EXPLAIN (FORMAT json) {query}")
                plan = call_from(self.frame, ask).fetchall()[-1][1]
            return top_cardinality(plan)
        except duckdb.Error as error:
            pass_interrupt(error)
            return None  # an unfinished result, say: it is but an estimate

    def type_of(self, value: Any) -> str | None:
        """The type of a parameter's value; None if the engine does not take such a value.

        Another connection is asked, since an error would end the user's transaction.
        """
        with self.native.cursor() as own, suppress(duckdb.Error, TypeError, ValueError):
            ((kind,),) = own.execute("SELECT system.main.typeof(?)", [value]).fetchall()
            return str(kind)
        return None

    def has_function(self, name: str) -> bool:
        """Whether a user's own function or macro has this name."""
        rows = self.connection.read(
            "SELECT 1 FROM system.main.duckdb_functions() "
            f"WHERE {folded('function_name')} = ? "
            "AND NOT system.main.regexp_matches(coalesce(macro_definition, ''), ?) LIMIT 1",
            [fold(name), OURS],
        )
        return bool(rows)

    def function_type(self, name: str) -> str | None:
        """What a function of that name returns which DuckDB does not bring along; None if there is
        none, or it is a macro, ours, or one with side effects."""
        if fold(name) in _built_in() or fold(name).startswith("sqlml_"):
            return None
        rows = self.connection.read(
            "SELECT return_type FROM system.main.duckdb_functions() "
            f"WHERE {folded('function_name')} = ? AND function_type = 'scalar' "
            "AND stability = 'CONSISTENT' LIMIT 1",
            [fold(name)],
        )
        return str(rows[0][0]) if rows else None

    def view(self, table: str) -> str | None:
        """The query of a view by its name in a query, if it can be written out; else None."""
        return view_query(self.connection.read, self.is_steady, table)

    def is_steady(self, name: str) -> bool:
        """Whether functions of a name are the same for the same rows; of macros nobody knows, but
        for two of the engine's own."""
        (found,) = self.connection.read(
            "SELECT count(*) FROM system.main.duckdb_functions() "
            f"WHERE {folded('function_name')} = ? AND function_type <> 'aggregate' "
            "AND (function_type <> 'scalar' OR stability = 'VOLATILE') "
            "AND NOT (database_name = 'system' AND function_name IN ('if', 'nullif'))",
            [fold(name)],
        )
        return bool(found[0] == 0)

    def knows_function(self, name: str) -> bool:
        """`has_function` after an error, when the transaction may answer no more (2.0)."""
        try:
            return self.has_function(name)
        except (duckdb.Error, CatalogError):
            return False

    def _bound(self, query: str) -> Any:
        """The lazy relation of a probe. Raises ProbeError where the engine cannot bind it.

        What does not parse, or is not a query, goes only to the parser: on 2.0 either would end the
        user's transaction.
        """
        try:
            (statement,) = self.native.extract_statements(query)
        except duckdb.Error as error:
            raise ProbeError(without_excerpt(error)) from None
        except ValueError:
            raise ProbeError(
                "the engine makes several statements of it, as of a PIVOT without IN"
            ) from None
        if statement.type not in (StatementType.SELECT, StatementType.MULTI):
            raise ProbeError("not a query")
        try:
            if statement.type == StatementType.MULTI and self.connection.in_transaction():
                self._try_beside(statement)
            relation = call_from(self.frame, partial(self.native.sql, statement))
        except duckdb.Error as error:
            pass_interrupt(error)
            raise ProbeError(without_excerpt(error)) from None
        if relation is None:
            raise ProbeError("not a query")
        return relation

    def _try_beside(self, statement: duckdb.Statement) -> None:
        """Let a PIVOT, which is carried out to be bound, fail on another connection first.

        What that one lacks may be a table of the open transaction.
        """
        with self.native.cursor() as own, suppress(duckdb.CatalogException):
            own.sql(statement)

    # -- functions

    def registered(self, name: str) -> str | None:
        """The name to call a function by that was registered for good; None: register it."""
        return name if name in self._visible else None

    def register(self, spec: FunctionSpec, program: Program) -> str:
        """Make what `spec` asks of a Program callable, compiled now; returns the name to call.

        Raises:
            ConfigError, BackendError: it cannot be compiled.
        """
        return self.add(engine_function(spec, program))

    def register_named(self, function: NamedFunction, program: Callable[[str], Program]) -> str:
        """Make a function callable that scores each row with the model that it names; returns the
        name to call. Each model is compiled when its first row comes.

        Raises:
            ConfigError, BackendError: a model cannot be compiled.
        """
        example = None
        for scorer in function.scorers.values():
            example = engine_function(scorer.spec, program(scorer.spec.program), on_use=True)
            callee(example)
        return self.add(named_function(function, example))

    def add(self, function: EngineFunction) -> str:
        """Make a function callable in the user's transaction; returns the name to call."""
        self.registry.add(function)
        if function.name in self._visible or self._sees(function.name, function):
            self._visible.add(function.name)
            return function.name
        twin = self._twins.get(function.name)
        if twin is None or not self._sees(twin, function):
            twin = self._twins[function.name] = f"{function.name}_t{1 + secrets.randbelow(_TWINS)}"
            create(self.native, twin, function)
        return twin

    def _sees(self, name: str, function: EngineFunction) -> bool:
        try:
            nulls = ", ".join(f"NULL::{kind}" for kind in function.argument_types)
            self.bind(f"SELECT {builtin(name)}({nulls})")
        except ProbeError:
            return False
        return True

    # -- running

    def execute(self, sql: str, parameters: Any = None) -> Any:
        """Run a statement; DuckDB's connection, which has the result, or None for an empty text."""
        arguments = (sql,) if parameters is None else (sql, parameters)
        return call_from(self.frame, partial(self.native.execute, *arguments))

    def executemany(self, sql: str, parameters: Any) -> Any:
        """A statement once for each of the sets of parameters."""
        return call_from(self.frame, partial(self.native.executemany, sql, parameters))

    def relation(self, sql: str, parameters: Any = None, alias: str = "") -> Any:
        """The lazy relation of a query; None for a statement without a result."""
        options: dict[str, Any] = {} if parameters is None else {"params": parameters}
        if alias:
            options["alias"] = alias
        return call_from(self.frame, partial(self.native.sql, sql, **options))

    def finish(self) -> None:
        """Let go of an unfinished result, as DuckDB's own next execute() does.

        2.0 streams results and refuses planning's own reads meanwhile. The result is run to its
        end and not cancelled, since cancelling an INSERT .. RETURNING fails its transaction. It may
        have failed long ago, by a Ctrl-C even, and fails again here: only a signal of now counts.
        """
        if IS_TWO:
            with interruption_after(stops=True):
                try:
                    self.native.complete()
                except (duckdb.Error, RuntimeError):  # RuntimeError: "Query interrupted", of then
                    pass  # errors are for who read it, and had or left them

    def catch_up(self) -> bool:
        """Let go of what `finish` leaves open on 1.5, so that all that is committed is in sight.

        There a query is bound in the transaction of a result that was not read to its end. It
        takes a statement, which shows in the user's log: only for queries with models.

        Returns:
            Whether there may be more in sight now.
        """
        if IS_TWO:
            return False
        with suppress(duckdb.Error):
            self.native.execute("SELECT 1").fetchall()
        return True


@cache
def _built_in() -> frozenset[str]:
    """The names of the functions that DuckDB brings along, folded."""
    with duckdb.connect() as fresh:
        rows = fresh.execute("SELECT DISTINCT function_name FROM duckdb_functions()").fetchall()
    return frozenset(fold(str(name)) for (name,) in rows)


@lru_cache(maxsize=64)
def _columns(names: tuple[str, ...], types: tuple[str, ...]) -> tuple[Column, ...]:
    """Cached, since a known plan asks each time for the columns that it had before."""
    return tuple(map(Column, names, types))


def top_cardinality(plan: str) -> int | None:
    """The estimate of the top operator in a plan of JSON; None if it has none.

    Of several plans (SET explain_output = 'all') the last one, which is what would run.

    >>> top = '{"name": "PROJECTION", "extra_info": {"Estimated Cardinality": "500"}}'
    >>> top_cardinality(f'[{{}}]\\n[{top}]'), top_cardinality('[{"extra_info": {}}]')
    (500, None)
    """
    last = plan.rpartition("]\n[")[2].removeprefix("[")
    try:
        return int(json.loads(f"[{last}")[0]["extra_info"]["Estimated Cardinality"])
    except (ValueError, LookupError, TypeError):
        return None
