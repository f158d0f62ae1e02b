"""The functions of a database, registered once for all its connections.

DuckDB may run the code of another function for a function of a closed cursor (seen on 1.5.6 and
2.0.0; a crash in https://github.com/duckdb/duckdb-python/issues/530), so the registry's cursor
stays open. A function registered inside a transaction disappears with its ROLLBACK, after which the
connection rejects the name forever (https://github.com/duckdb/duckdb/pull/13462), so this cursor
registers them all, which commits at once.
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
from sqlml.catalog.catalog_connection import IS_DUCKDB_2, check_tables
from sqlml.dialects import DUCKDB
from sqlml.errors import CatalogError
from sqlml.udfs.duckdb.functions_by_name import add_source, bind_by_name, find_function
from sqlml.udfs.duckdb.native import native_functions
from sqlml.udfs.duckdb.native.extension import (
    NativeConnection,
    Unavailable,
    open_native_connection,
)
from sqlml.udfs.duckdb.native.named_models import register_routed
from sqlml.udfs.engine_function import EngineFunction

_ALIVE: dict[str, Callable[..., Any]] = {}
"""Strong references for the life of the process, since DuckDB does not keep the callables."""

_OF_CONNECTIONS: weakref.WeakKeyDictionary[duckdb.DuckDBPyConnection, Registry] = (
    weakref.WeakKeyDictionary()
)
"""Registries by connection: functions read their models through the registry, even if only the
connection is left."""


class Registry:
    """The functions registered in one database instance, shared by all its connections."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self.lock: threading.RLock = threading.RLock()
        self.names: set[str] = set()
        self._open_cursor: duckdb.DuckDBPyConnection | None = None
        self._native: NativeConnection | None = None
        self._no_native: str | None = None
        self._close_native: Callable[[], Any] = lambda: None
        self._connection = weakref.ref(connection)
        _OF_CONNECTIONS[connection] = self
        add_source(self.stored_program)

    @property
    def _cursor(self) -> duckdb.DuckDBPyConnection:
        """Return the registry's connection, opened late because DuckDB counts and lists it."""
        with self.lock:
            if self._open_cursor is None:
                connection = self._connection()
                if connection is None:
                    raise duckdb.ConnectionException("the connection is closed")
                self._open_cursor = connection.cursor()
            return self._open_cursor

    def add(self, function: EngineFunction) -> None:
        """Register a function once; another database object of the instance may have done so."""
        with self.lock:
            _keep_call(function.name, function)
            if function.name not in self.names:
                if not self._register_native(function):
                    self._create(function)
                self.names.add(function.name)

    def no_native_functions(self) -> str | None:
        with self.lock:
            if self._native is None and self._no_native is None:
                try:
                    self._native = open_native_connection(self._cursor)
                    self._close_native = weakref.finalize(self, self._native.close)
                except Unavailable as error:
                    self._no_native = str(error)
            return self._no_native

    def no_columns(self, wait: bool) -> str | None:
        reason = self.no_native_functions()
        return native_functions.not_ready(wait) if reason is None else reason

    def _register_native(self, function: EngineFunction) -> bool:
        if function.models is not None:
            register = register_routed
        elif function.named:
            register = native_functions.register_named
        elif function.by_column:
            register = native_functions.register
        else:
            return False
        if self.no_native_functions() is not None or self._native is None:
            return False
        try:
            with nullcontext() if function.models is None else no_wait():
                return register(self._native.pointer, function, find_function)
        except (Unavailable, NotReady):
            return False

    def _create(self, function: EngineFunction) -> None:
        try:
            create_function(self._cursor, function.name, function)
        except duckdb.CatalogException:
            # A macro of the file has this name. This hides it from the registry's cursor.
            self._cursor.execute("SET search_path = 'system.main'")
            create_function(self._cursor, function.name, function)

    def stored_program(self, digest: str) -> bytes | None:
        """Read a stored Program by the beginning of its hash."""
        # On a new connection: a running function must not use the connection that runs it.
        with self._cursor.cursor() as cursor:
            databases = cursor.execute(
                "SELECT database_name FROM system.main.duckdb_tables() "
                "WHERE schema_name = 'sqlml' AND table_name = 'catalog_programs'"
            ).fetchall()
            for (database,) in databases:
                try:
                    check_tables(lambda *q: cursor.execute(*q).fetchall(), database, IS_DUCKDB_2)
                except CatalogError:
                    continue  # Another database may have it too.
                rows = cursor.execute(
                    f"SELECT content FROM {DUCKDB.quote_name(database)}.sqlml.catalog_programs "
                    "WHERE system.main.starts_with(hash, ?)",
                    [digest],
                ).fetchall()
                if rows and isinstance(rows[0][0], bytes):
                    return bytes(rows[0][0])
        return None

    def column_name(self, expression: str) -> str | None:
        """Return the engine's name for the column of an expression, or None if it does not parse.

        This uses the registry's cursor, since a failure would abort a transaction of the user.
        """
        with self.lock, suppress(duckdb.Error):
            ask = "SELECT system.main.json_serialize_sql(?)"
            ((tree,),) = self._cursor.execute(ask, [f"SELECT {expression}"]).fetchall()
            if '"error":false' in tree:
                ask = "SELECT system.main.json_deserialize_sql(?)"
                ((text,),) = self._cursor.execute(ask, [tree]).fetchall()
                return str(text).removeprefix("SELECT ")
        return None

    def close(self) -> None:
        self._close_native()
        self._native, self._no_native = None, "the database is closed"
        if self._open_cursor is not None:
            self._open_cursor.close()


def create_function(
    connection: duckdb.DuckDBPyConnection, name: str, function: EngineFunction
) -> None:
    """Register a function on a connection, unless one of its name exists."""
    try:
        connection.create_function(
            name,
            _keep_call(name, function),
            [duckdb.sqltype(kind) for kind in function.argument_types],
            duckdb.sqltype(function.result_type),
            type=PythonUDFType.ARROW,
            null_handling=FunctionNullHandling.SPECIAL,
            side_effects=function.volatile,
        )
    except duckdb.CatalogException as error:
        if "already exists" not in str(error):
            raise


def _keep_call(name: str, function: EngineFunction) -> Callable[..., Any]:
    """Return the callable of a name, one forever, since functions outlive connections."""
    call = bind_by_name(function).function
    assert call is not None
    return _ALIVE.setdefault(name, call)
