"""The functions of a database, registered once for all connections.

After a cursor is closed, DuckDB may run the wrong code for its functions (seen on 1.5.6 and 2.0.0;
a crash in https://github.com/duckdb/duckdb-python/issues/530). So the registry's cursor stays open.
If a function is registered in a transaction that is rolled back, the function disappears, and the
connection rejects the name forever (https://github.com/duckdb/duckdb/pull/13462). So the registry's
cursor registers all functions outside of transactions.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from contextlib import nullcontext, suppress
from typing import Any

import duckdb
from duckdb.func import FunctionNullHandling, PythonUDFType

from sqlml.backends.no_wait import NotReady, no_wait
from sqlml.catalog.catalog_connection import check_tables
from sqlml.catalog.scoring_macros import CLIENT
from sqlml.dialects import DUCKDB
from sqlml.dialects.duckdb import builtin
from sqlml.errors import CatalogError
from sqlml.udfs.duckdb.functions_by_name import add_program_source, bind_by_name, find_function
from sqlml.udfs.duckdb.native import native_functions
from sqlml.udfs.duckdb.native.extension import (
    NativeConnection,
    Unavailable,
    open_native_connection,
)
from sqlml.udfs.duckdb.native.named_models import register_router
from sqlml.udfs.engine_function import EngineFunction

_CALLABLES: dict[str, Callable[..., Any]] = {}
"""Maps function names to callables. DuckDB calls them without keeping them alive."""

_REGISTRIES = weakref.WeakKeyDictionary["duckdb.DuckDBPyConnection", "Registry"]()
"""Maps connections to their registries. A registry must live as long as the connection, because
functions read their models through the registry."""


class Registry:
    """The functions registered in one database instance, shared by all its connections."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self.lock: threading.RLock = threading.RLock()
        self.names: set[str] = set()
        self._open_cursor: duckdb.DuckDBPyConnection | None = None
        self._native_connection: NativeConnection | None = None
        self._native_obstacle: str | None = None
        self._close_native: Callable[[], Any] = lambda: None
        self._connection = weakref.ref(connection)
        _REGISTRIES[connection] = self
        add_program_source(self.find_stored_program)

    @property
    def _cursor(self) -> duckdb.DuckDBPyConnection:
        """The registry's cursor. Opened at first use, because DuckDB counts and lists cursors."""
        with self.lock:
            if self._open_cursor is None:
                connection = self._connection()
                if connection is None:
                    raise duckdb.ConnectionException("the connection is closed")
                self._open_cursor = connection.cursor()
            return self._open_cursor

    def add(self, function: EngineFunction) -> None:
        """Register a function, unless it is already registered in this database instance."""
        with self.lock:
            _keep_callable(function.name, function)
            if function.name not in self.names:
                if not self._register_native(function):
                    self._create_in_python(function)
                self.names.add(function.name)

    def explain_missing_native(self) -> str | None:
        """Return the reason why native functions are unavailable, or None if they are available."""
        with self.lock:
            if self._native_connection is None and self._native_obstacle is None:
                try:
                    self._native_connection = open_native_connection(self._cursor)
                    self._close_native = weakref.finalize(self, self._native_connection.close)
                except Unavailable as error:
                    self._native_obstacle = str(error)
            return self._native_obstacle

    def explain_no_columns(self, wait: bool) -> str | None:
        """Return why functions of columns cannot run natively (yet), or None if they can."""
        reason = self.explain_missing_native()
        return native_functions.explain_not_ready(wait) if reason is None else reason

    def _register_native(self, function: EngineFunction) -> bool:
        if function.models is not None:
            register = register_router
        elif function.named:
            register = native_functions.register_named
        elif function.by_column:
            register = native_functions.register
        else:
            return False
        if self.explain_missing_native() is not None or self._native_connection is None:
            return False
        try:
            with nullcontext() if function.models is None else no_wait():
                return register(self._native_connection.pointer, function, find_function)
        except (Unavailable, NotReady):
            return False

    def _create_in_python(self, function: EngineFunction) -> None:
        if function.name == CLIENT and self._has_runtime():
            return  # DuckDB 1.5 would choose between both.
        try:
            create_function(self._cursor, function.name, function)
        except duckdb.CatalogException:
            # A macro in the file has this name. The search path hides the macro from this cursor.
            self._cursor.execute("SET search_path = 'system.main'")
            create_function(self._cursor, function.name, function)

    def _has_runtime(self) -> bool:
        """Return whether the database has loaded the runtime for clients."""
        with suppress(duckdb.CatalogException):
            self._cursor.sql(f"SELECT {builtin(CLIENT)}()")
            return True
        return False

    def find_stored_program(self, hash_prefix: str) -> bytes | None:
        """Return the serialized Program with a hash that begins with `hash_prefix`, or None."""
        # A running function must not use the connection that runs it, so open a new cursor.
        with self._cursor.cursor() as cursor:

            def read(*arguments: Any) -> Any:
                return cursor.execute(*arguments).fetchall()

            databases = cursor.execute(
                "SELECT database_name FROM system.main.duckdb_tables() "
                "WHERE schema_name = 'sqlml' AND table_name = 'catalog_programs'"
            ).fetchall()
            for (database,) in databases:
                try:
                    check_tables(read, database)
                except CatalogError:
                    continue  # Another database may have the Program, too.
                rows = cursor.execute(
                    f"SELECT content FROM {DUCKDB.quote_name(database)}.sqlml.catalog_programs "
                    "WHERE system.main.starts_with(hash, ?)",
                    [hash_prefix],
                ).fetchall()
                if rows and isinstance(rows[0][0], bytes):
                    return bytes(rows[0][0])
        return None

    def find_column_name(self, expression: str) -> str | None:
        """Return DuckDB's column name for `expression`, or None if the SQL does not parse."""
        # Use the registry's cursor, since an error would abort the user's transaction.
        with self.lock, suppress(duckdb.Error):
            query = "SELECT system.main.json_serialize_sql(?)"
            ((parse_json,),) = self._cursor.execute(query, [f"SELECT {expression}"]).fetchall()
            if '"error":false' in parse_json:
                query = "SELECT system.main.json_deserialize_sql(?)"
                ((select_sql,),) = self._cursor.execute(query, [parse_json]).fetchall()
                return str(select_sql).removeprefix("SELECT ")
        return None

    def close(self) -> None:
        self._close_native()
        self._native_connection, self._native_obstacle = None, "the database is closed"
        if self._open_cursor is not None:
            self._open_cursor.close()


def create_function(
    connection: duckdb.DuckDBPyConnection, name: str, function: EngineFunction
) -> None:
    """Register a function on a connection, unless a function with this name exists."""
    try:
        connection.create_function(
            name,
            _keep_callable(name, function),
            [duckdb.sqltype(argument_type) for argument_type in function.argument_types],
            duckdb.sqltype(function.result_type),
            type=PythonUDFType.ARROW,
            null_handling=FunctionNullHandling.SPECIAL,
            side_effects=function.volatile,
        )
    except duckdb.CatalogException as error:
        if "already exists" not in str(error):
            raise


def _keep_callable(name: str, function: EngineFunction) -> Callable[..., Any]:
    """Return the callable for `name`, kept alive forever, since functions outlive connections."""
    score_batch = bind_by_name(function).function
    assert score_batch is not None
    return _CALLABLES.setdefault(name, score_batch)
