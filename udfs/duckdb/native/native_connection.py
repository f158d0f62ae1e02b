"""The connection of DuckDB's C API on which native functions are registered.

DuckDB gives an extension the database that loads it, and there is no other way to that database
from outside. So the shim (`shim.c`) opens a connection while it is loaded, which happens once per
database. The connection keeps the database open until the last session closes it.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import threading
from collections import deque
from contextlib import suppress
from pathlib import Path

import duckdb

from sqlml.dialects.duckdb import builtin
from sqlml.udfs.duckdb.native import c_api
from sqlml.udfs.duckdb.native.install import BUILT, NAME, Installed, Unavailable, ensure_installed
from sqlml.udfs.duckdb.native.native_functions import mark

MARK = "sqlml_native_"
"""Prefix of the marker function whose name says which connection a database has."""

_LOCK = threading.Lock()
_OPEN: dict[int, NativeConnection] = {}
_ended: deque[NativeConnection] = deque()
_numbers = itertools.count(1)

# A forked child must not wait for a thread that it does not have.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_LOCK.acquire, after_in_parent=_LOCK.release, after_in_child=_LOCK.release
    )


class NativeConnection:
    """A connection of the C API to one database, shared by all sessions on it."""

    def __init__(self, number: int, pointer: int) -> None:
        self.number = number
        self.users = 0
        self._pointer = ctypes.c_void_p(pointer)
        self._process = os.getpid()

    @property
    def pointer(self) -> int:
        """Return the duckdb_connection of the C API; raise Unavailable in a forked process."""
        if os.getpid() != self._process or self._pointer.value is None:
            raise Unavailable("the database was opened by another process")
        return self._pointer.value

    def close(self) -> None:
        """End one use of the connection, and close it after the last one.

        The garbage collector may call this at any moment, even while this thread holds the lock.
        Then the connection is closed when the lock is free.
        """
        _ended.append(self)
        _end_uses()

    def _end(self) -> None:
        self.users -= 1
        if self.users == 0 and os.getpid() == self._process:
            del _OPEN[self.number]
            c_api.library().duckdb_disconnect(ctypes.byref(self._pointer))


def _end_uses() -> None:
    while _ended and _LOCK.acquire(blocking=False):
        try:
            while _ended:
                _ended.popleft()._end()
        finally:
            _LOCK.release()


def open_native_connection(
    connection: duckdb.DuckDBPyConnection, built: Path = BUILT
) -> NativeConnection:
    """Return the C API's connection to a database, or raise Unavailable; close it after use."""
    try:
        c_api.library()
    except (ImportError, OSError, AttributeError) as error:
        raise Unavailable(f"DuckDB's package does not have its C API: {error}") from None
    shim = ensure_installed(connection, built)
    try:
        with _LOCK:
            native = _load(connection, shim)
            native.users += 1
            return native
    finally:
        _end_uses()


def _load(connection: duckdb.DuckDBPyConnection, shim: Installed) -> NativeConnection:
    """Return the connection that the shim opens now or has opened before."""
    library = ctypes.CDLL(str(shim.path))  # It is loaded once per process for all databases.
    ctypes.c_void_p.in_dll(library, "sqlml_connect").value = c_api.address("duckdb_connect")
    opened = ctypes.c_void_p.in_dll(library, "sqlml_connection")
    opened.value = None
    try:
        connection.execute(f"LOAD {NAME} FROM {shim.repository}")
    except duckdb.Error as error:
        first = str(error).partition("\n")[0]
        raise Unavailable(f"DuckDB did not load their extension: {first}") from None
    if opened.value is None:
        return _find_marked(connection)
    native = NativeConnection(next(_numbers), opened.value)
    _OPEN[native.number] = native
    mark(native.pointer, f"{MARK}{native.number}")
    return native


def _find_marked(connection: duckdb.DuckDBPyConnection) -> NativeConnection:
    for native in reversed(_OPEN.values()):
        with suppress(duckdb.Error):
            connection.execute(f"EXPLAIN SELECT {builtin(f'{MARK}{native.number}')}()").fetchall()
            return native
    raise Unavailable("the sessions on this database were closed; open the database again")
