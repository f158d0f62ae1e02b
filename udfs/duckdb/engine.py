"""Binding, registration and execution on one connection of DuckDB.

Functions are registered on the registry's cursor. If a transaction cannot see a function, a twin of
the function is registered under another name.
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

from sqlml.catalog.catalog_connection import IS_DUCKDB_2, Connection, strip_excerpt
from sqlml.catalog.model import Model
from sqlml.catalog.scoring_macros import OWN_MACRO_PATTERN
from sqlml.dialects import DUCKDB
from sqlml.dialects.duckdb import builtin, fold_in_sql
from sqlml.errors import CatalogError
from sqlml.interruption import interruption_after
from sqlml.ir.program import Program
from sqlml.planner.binding.context import Context
from sqlml.planner.binding.probe_queries import Column, ProbeError
from sqlml.planner.program.function_spec import FunctionSpec, NamedFunction
from sqlml.types import fold
from sqlml.udfs.duckdb.function_registry import Registry, create_function
from sqlml.udfs.duckdb.functions_by_name import bind_by_name, count_batches, make_named_function
from sqlml.udfs.duckdb.native.native_functions import explain_python
from sqlml.udfs.duckdb.user_frame import call_from
from sqlml.udfs.duckdb.view_query import expand_view, find_unique_keys
from sqlml.udfs.engine_function import EngineFunction
from sqlml.udfs.make_function import make_engine_function

# DuckDB's messages for a Ctrl-C, even if it arrives before the first line of a function runs.
_INTERRUPT_MESSAGE = re.compile(
    r"\AQuery interrupted\Z|\AKeyboardInterrupt: <EMPTY MESSAGE>"
    r"|executing the UDF: KeyboardInterrupt\b"
)


def is_interrupt(error: BaseException, was_stopped: bool = False) -> bool:
    """Return whether DuckDB raised `error` because of a Ctrl-C.

    DuckDB raises a RuntimeError between the functions of a query, and an InvalidInputException
    within a function. DuckDB 1.5 raises an Error while rows become Python objects. If sqlml itself
    stopped the query (`was_stopped`), DuckDB raises an InterruptException.
    """
    if was_stopped and isinstance(error, duckdb.InterruptException):
        return True
    return isinstance(error, Exception) and _INTERRUPT_MESSAGE.search(str(error)) is not None


def raise_if_interrupt(error: BaseException) -> None:
    if is_interrupt(error):
        raise KeyboardInterrupt from None


_TWIN_NUMBER_LIMIT = 10**9
"""Upper limit of the random numbers in the names of twins (`DuckDBEngine.make_callable`).

The names are random because a view in the database file may call a twin of another process.
Registering the same name twice would abort the user's transaction.
"""

_IS_ON_SEARCH_PATH = (
    "(database_name IN ('system', 'temp') OR (database_name = system.main.current_database() "
    "AND system.main.list_contains(system.main.current_schemas(true), schema_name)) "
    "OR system.main.list_contains(system.main.string_split("
    "system.main.current_setting('search_path'), ','), "
    "system.main.concat(database_name, '.', schema_name)))"
)
"""The condition that a bare name resolves to a function of duckdb_functions()."""


class DuckDBEngine:
    """One connection of a DuckDB database, as an `Engine`.

    Attributes:
        frame: the stack frame of the user's call, while the call runs (`user_frame.py`).
        uses_models: whether the last statement uses models. Its result may still be open.
        is_result_read: whether a row of the result of the last statement was fetched.
    """

    def __init__(self, native: duckdb.DuckDBPyConnection, registry: Registry) -> None:
        self.native = native
        self.connection: Connection = Connection(native)
        self.registry = registry
        self.frame: FrameType | None = None
        self.uses_models = False
        self.is_result_read = False
        self._batches_before = 0
        self._visible_names: set[str] = set()
        self._twin_names: dict[str, str] = {}

    def begin_statement(self, about_models: bool) -> None:
        self.uses_models, self.is_result_read = about_models, False
        self._batches_before = count_batches()

    def is_interrupt(self, error: BaseException, was_stopped: bool = False) -> bool:
        """Return whether `error` is a Ctrl-C in a statement that uses models or views on models."""
        scores_rows = self.uses_models or count_batches() > self._batches_before
        return scores_rows and is_interrupt(error, was_stopped)

    def make_context(self, model: Callable[[str], Model]) -> Context:
        return Context(
            describe=self.bind,
            model=model,
            is_user_function=self.has_function,
            function_type=self.function_type,
            is_repeatable=self.is_deterministic,
            unique_keys=partial(find_unique_keys, self.connection.read),
            view=self.view,
            estimate_rows=self.estimate_rows,
            column_name=self.registry.find_column_name,
            type_of=self.type_of,
            dialect=DUCKDB,
            why_no_columns=self.registry.explain_no_columns,
            why_python=explain_python,
        )

    def bind(self, query: str) -> tuple[Column, ...]:
        """Return the columns of a query without running the query; raise ProbeError if invalid."""
        relation = self._bind_relation(query)
        return _make_columns(tuple(relation.columns), tuple(map(str, relation.types)))

    def estimate_rows(self, query: str) -> int | None:
        """Return the estimated row count of a query, or None; raise ProbeError if invalid."""
        relation = self._bind_relation(query)
        try:
            if IS_DUCKDB_2:
                plan_json = relation.explain(format="json")
            else:
                explain = partial(self.native.sql, f"EXPLAIN (FORMAT json) {query}")
                plan_json = call_from(self.frame, explain).fetchall()[-1][1]
            return read_top_cardinality(plan_json)
        except duckdb.Error as error:
            raise_if_interrupt(error)
            return None  # A result may be unfinished.

    def type_of(self, value: Any) -> str | None:
        """Return the SQL type of a parameter value, or None if the engine rejects the value."""
        # Use a cursor, since an error on this connection would abort the user's transaction.
        with self.native.cursor() as cursor, suppress(duckdb.Error, TypeError, ValueError):
            ((type_name,),) = cursor.execute("SELECT system.main.typeof(?)", [value]).fetchall()
            return str(type_name)
        return None

    def has_function(self, name: str) -> bool:
        """Return whether a call of `name` means a function other than sqlml's macros.

        `name` is bare, or qualified as in ml.bucketize. Functions that it does not resolve to, such
        as those of other schemas, do not count. Binding a call of an unknown function is 20 times
        as fast as listing all functions.
        """
        qualifier, _, bare_name = name.rpartition(".")
        try:
            self.bind(f"SELECT {'.'.join(map(DUCKDB.quote_name, name.split('.')))}(NULL)")
        except ProbeError as error:
            if f"with name {fold(bare_name)} does not exist" in fold(str(error)):
                return False
        where = f"? IN ({fold_in_sql('schema_name')}, {fold_in_sql('database_name')})"
        rows = self.connection.read(
            "SELECT 1 FROM system.main.duckdb_functions() "
            f"WHERE {where if qualifier else _IS_ON_SEARCH_PATH} "
            f"AND {fold_in_sql('function_name')} = ? "
            "AND NOT system.main.regexp_matches(coalesce(macro_definition, ''), ?) LIMIT 1",
            [*([fold(qualifier)] if qualifier else []), fold(bare_name), OWN_MACRO_PATTERN],
        )
        return bool(rows)

    def function_type(self, name: str) -> str | None:
        """Return the result type of the user's scalar function `name`, or None.

        None is returned if the function is unknown, built in, nondeterministic, or part of sqlml.
        """
        if fold(name) in _list_built_in_functions() or fold(name).startswith("sqlml_"):
            return None
        rows = self.connection.read(
            "SELECT return_type FROM system.main.duckdb_functions() "
            f"WHERE {fold_in_sql('function_name')} = ? AND function_type = 'scalar' "
            "AND stability = 'CONSISTENT' LIMIT 1",
            [fold(name)],
        )
        return str(rows[0][0]) if rows else None

    def view(self, table: str) -> str | None:
        return expand_view(self.connection.read, self.is_deterministic, table)

    def is_deterministic(self, name: str) -> bool:
        """Return whether all functions named `name` are deterministic and not macros."""
        ((num_others,),) = self.connection.read(
            "SELECT count(*) FROM system.main.duckdb_functions() "
            f"WHERE {fold_in_sql('function_name')} = ? AND function_type <> 'aggregate' "
            "AND (function_type <> 'scalar' OR stability = 'VOLATILE') "
            # These two built-in macros are deterministic.
            "AND NOT (database_name = 'system' AND function_name IN ('if', 'nullif'))",
            [fold(name)],
        )
        return bool(num_others == 0)

    def knows_function(self, name: str) -> bool:
        """Return whether function `name` exists, or False if the transaction was aborted."""
        try:
            return self.has_function(name)
        except (duckdb.Error, CatalogError):
            return False

    def _bind_relation(self, query: str) -> Any:
        """Return a lazy relation for `query`, or raise ProbeError if `query` is invalid.

        The text is parsed first, because binding anything but a query would abort the user's
        transaction in DuckDB 2.0.
        """
        try:
            (statement,) = self.native.extract_statements(query)
        except duckdb.Error as error:
            raise ProbeError(strip_excerpt(error)) from None
        except ValueError:
            raise ProbeError(
                "the engine splits it into several statements, for example for a PIVOT without IN"
            ) from None
        if statement.type not in (StatementType.SELECT, StatementType.MULTI):
            raise ProbeError("not a query")
        try:
            if statement.type == StatementType.MULTI and self.connection.in_transaction():
                # Binding a PIVOT runs it, and an error would abort the transaction. So try another
                # connection first. There, a table of the open transaction may be missing.
                with self.native.cursor() as cursor, suppress(duckdb.CatalogException):
                    cursor.sql(statement)
            relation = call_from(self.frame, partial(self.native.sql, statement))
        except duckdb.Error as error:
            raise_if_interrupt(error)
            raise ProbeError(strip_excerpt(error)) from None
        if relation is None:
            raise ProbeError("not a query")
        return relation

    def find_registered(self, name: str) -> str | None:
        return name if name in self._visible_names else None

    def register(self, spec: FunctionSpec, program: Program) -> str:
        return self.make_callable(make_engine_function(spec, program))

    def register_named(self, function: NamedFunction, program: Callable[[str], Program]) -> str:
        """Register a function that scores each row with the model named in it; return its name."""
        example = None
        for scorer in function.scorers.values():
            example = make_engine_function(
                scorer.spec, program(scorer.spec.program_hash), on_use=True
            )
            bind_by_name(example)
        return self.make_callable(make_named_function(function, example))

    def make_callable(self, function: EngineFunction) -> str:
        """Make a function callable in the user's transaction, and return the name to call.

        A transaction cannot see a function that was registered after the transaction began. In this
        case, a twin with a random number in the name is registered in the transaction.
        """
        if self.is_callable(function):
            return function.name
        twin_name = self._twin_names.get(function.name)
        if twin_name is None or not self._can_call(twin_name, function):
            twin_number = 1 + secrets.randbelow(_TWIN_NUMBER_LIMIT)
            twin_name = self._twin_names[function.name] = f"{function.name}_t{twin_number}"
            create_function(self.native, twin_name, function)
        return twin_name

    def is_callable(self, function: EngineFunction) -> bool:
        """Register a function; return whether the user's transaction sees it."""
        self.registry.add(function)
        if function.name in self._visible_names or self._can_call(function.name, function):
            self._visible_names.add(function.name)
            return True
        return False

    def _can_call(self, name: str, function: EngineFunction) -> bool:
        try:
            nulls = ", ".join(f"NULL::{sql_type}" for sql_type in function.argument_types)
            self.bind(f"SELECT {builtin(name)}({nulls})")
        except ProbeError:
            return False
        return True

    def execute(self, sql: str, parameters: Any = None) -> Any:
        """Run a statement; return the connection with the result, or None if `sql` is empty."""
        arguments = (sql,) if parameters is None else (sql, parameters)
        return call_from(self.frame, partial(self.native.execute, *arguments))

    def executemany(self, sql: str, parameters: Any) -> Any:
        return call_from(self.frame, partial(self.native.executemany, sql, parameters))

    def make_relation(self, sql: str, parameters: Any = None, alias: str = "") -> Any:
        """Return a lazy relation for a query, or None if the statement has no result."""
        options = {} if parameters is None else {"params": parameters}
        options |= {"alias": alias} if alias else {}
        return call_from(self.frame, partial(self.native.sql, sql, **options))

    def finish_result(self) -> None:
        """Complete an unfinished result, as the next execute() of DuckDB would (2.0 only).

        While DuckDB 2.0 streams a result, the connection cannot read anything else. The result is
        not cancelled, since canceling an INSERT ... RETURNING fails the transaction. If the result
        has failed already, the error recurs here and is ignored. Only a new Ctrl-C interrupts.
        """
        if IS_DUCKDB_2:
            with interruption_after(stops=True):
                try:
                    self.native.complete()
                except (duckdb.Error, RuntimeError):  # An old interrupt is a RuntimeError.
                    pass  # The error is reported to whoever reads the result.

    def release_open_result(self) -> bool:
        """Release an open result; return False on DuckDB 2.0, where `finish_result` suffices.

        DuckDB 1.5 binds a query in the transaction of an open result, which cannot see later
        changes. Only another statement releases the result. Since this statement appears in the
        user's log, call this method only for queries with models.
        """
        if IS_DUCKDB_2:
            return False
        with suppress(duckdb.Error):
            self.native.execute("SELECT 1").fetchall()
        return True


@cache
def _list_built_in_functions() -> frozenset[str]:
    query = "SELECT DISTINCT function_name FROM duckdb_functions()"
    with duckdb.connect() as connection:
        return frozenset(fold(str(n)) for (n,) in connection.execute(query).fetchall())


@lru_cache(maxsize=64)  # A cached plan requests the same columns repeatedly.
def _make_columns(names: tuple[str, ...], sql_types: tuple[str, ...]) -> tuple[Column, ...]:
    return tuple(map(Column, names, sql_types))


def read_top_cardinality(plan: str) -> int | None:
    """Return the estimated row count of the top operator in a JSON plan, or None if missing.

    After SET explain_output = 'all', `plan` contains several plans. The last one would run.

    >>> top = '{"name": "PROJECTION", "extra_info": {"Estimated Cardinality": "500"}}'
    >>> read_top_cardinality(f'[{{}}]\\n[{top}]'), read_top_cardinality('[{"extra_info": {}}]')
    (500, None)
    """
    last_plan = plan.rpartition("]\n[")[2].removeprefix("[")
    try:
        return int(json.loads(f"[{last_plan}")[0]["extra_info"]["Estimated Cardinality"])
    except (ValueError, LookupError, TypeError):
        return None
