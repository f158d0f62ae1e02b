"""`connect` and `attach`: how a Session begins."""

from __future__ import annotations

import os
from typing import Any

import duckdb

from sqlml.session import Session


def connect(
    database: str | os.PathLike[str] = ":memory:",
    read_only: bool = False,
    config: dict[str, Any] | None = None,
    *,
    allow_pickle: bool = False,
) -> Session:
    """Open a database as a Session; the arguments are those of `duckdb.connect`.

    Raises:
        duckdb.Error: as duckdb.connect raises.
    """
    native = duckdb.connect(os.fspath(database), read_only, config or {})
    return Session(native, allow_pickle=allow_pickle)


def attach(connection: duckdb.DuckDBPyConnection, *, allow_pickle: bool = False) -> Session:
    """A Session on a connection that is open already; what it holds stays in sight.

    Raises:
        TypeError: not a DuckDB connection.
    """
    if not isinstance(connection, duckdb.DuckDBPyConnection):
        raise TypeError(
            f"attach takes a DuckDB connection, not {type(connection).__name__}; "
            "open one with duckdb.connect(..)"
        )
    return Session(connection, allow_pickle=allow_pickle)
