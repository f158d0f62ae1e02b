"""`NativeConnection`: the connection of the C API on which native functions are registered.

DuckDB gives an extension the database that loads it, and that is the one way to it from outside: so
the shim (`shim.c`) opens a connection while it is loaded, which happens once in the life of a
database. The connection keeps the database open; the last session closes it.
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
from sqlml.udfs.duckdb.native.functions import mark
from sqlml.udfs.duckdb.native.install import BUILT, NAME, Installed, Unavailable, installed

MARK = "sqlml_native_"
"""What the name of a function begins with that says which connection its database has."""

_LOCK = threading.Lock()
_OPEN: dict[int, NativeConnection] = {}
_ended: deque[NativeConnection] = deque()
_numbers = itertools.count(1)

if hasattr(os, "register_at_fork"):  # a child must not wait for a thread that it does not have
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
        """duckdb_connection, for functions of the C API.

        Raises:
            Unavailable: this process was forked from the one that opened it.
        """
        if os.getpid() != self._process or self._pointer.value is None:
            raise Unavailable("the database was opened by another process")
        return self._pointer.value

    def close(self) -> None:
        """End one use of the connection; with the last one it is closed.

        The garbage collector calls this at any moment, maybe while this thread holds the lock: then
        it is done when that is free.
        """
        _ended.append(self)
        _end()

    def _end(self) -> None:
        self.users -= 1
        if self.users == 0 and os.getpid() == self._process:
            del _OPEN[self.number]
            c_api.library().duckdb_disconnect(ctypes.byref(self._pointer))


def _end() -> None:
    while _ended and _LOCK.acquire(blocking=False):
        try:
            while _ended:
                _ended.popleft()._end()
        finally:
            _LOCK.release()


def native_connection(
    connection: duckdb.DuckDBPyConnection, built: Path = BUILT
) -> NativeConnection:
    """The connection of the C API to the database of `connection`, to be closed after use.

    Args:
        built: see `installed`.

    Raises:
        Unavailable: there is none.
    """
    try:
        c_api.library()
    except (ImportError, OSError, AttributeError) as error:
        raise Unavailable(f"DuckDB's package does not have its C API: {error}") from None
    shim = installed(connection, built)
    try:
        with _LOCK:
            made = _loaded(connection, shim)
            made.users += 1
            return made
    finally:
        _end()


def _loaded(connection: duckdb.DuckDBPyConnection, shim: Installed) -> NativeConnection:
    """The connection that the shim opens, or has opened before."""
    opened = _variable(shim.path, "sqlml_connection")
    opened.value = None
    try:
        connection.execute(f"LOAD {NAME} FROM {shim.repository}")
    except duckdb.Error as error:
        first = str(error).partition("\n")[0]
        raise Unavailable(f"DuckDB did not load them: {first}") from None
    if opened.value is None:
        return _marked(connection)
    made = NativeConnection(next(_numbers), opened.value)
    _OPEN[made.number] = made
    mark(made.pointer, f"{MARK}{made.number}")
    return made


def _variable(path: Path, name: str) -> ctypes.c_void_p:
    """A global of the shim, which is in this process once, however many databases load it."""
    shim = ctypes.CDLL(str(path))
    ctypes.c_void_p.in_dll(shim, "sqlml_connect").value = c_api.address("duckdb_connect")
    return ctypes.c_void_p.in_dll(shim, name)


def _marked(connection: duckdb.DuckDBPyConnection) -> NativeConnection:
    """The connection that a database has already."""
    for made in reversed(_OPEN.values()):
        with suppress(duckdb.Error):
            connection.execute(f"EXPLAIN SELECT {builtin(f'{MARK}{made.number}')}()").fetchall()
            return made
    raise Unavailable("the sessions on this database were closed; open the database again")
