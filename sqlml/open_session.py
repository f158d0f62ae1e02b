"""`connect` and `attach`: how a Session begins."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, overload

import duckdb

from sqlml.held_connections import held_by
from sqlml.session.session import Session

if TYPE_CHECKING:
    import pyspark.sql

    from sqlml.spark.session import SparkSession


def connect(
    database: str | os.PathLike[str] = ":memory:",
    read_only: bool = False,
    config: dict[str, Any] | None = None,
    *,
    allow_pickle: bool = False,
) -> Session:
    """Open a database as a Session.

    Args:
        database: the path of a DuckDB file, which is made if there is none; by default a database
            in memory. What else `duckdb.connect` opens, this opens, too.
        read_only: change nothing in the file; models score, and cannot be registered.
        config: settings of DuckDB.
        allow_pickle: let CREATE MODEL read pickles, which execute code.

    Raises:
        duckdb.Error: the file cannot be opened.
    """
    native = duckdb.connect(os.fspath(database), read_only, config or {})
    return Session(native, allow_pickle=allow_pickle)


@overload
def attach(
    connection: pyspark.sql.SparkSession,
    *,
    allow_pickle: bool = False,
    catalog: str | os.PathLike[str] | None = None,
) -> SparkSession: ...


@overload
def attach(connection: Any, *, allow_pickle: bool = False) -> Session: ...


def attach(
    connection: Any,
    *,
    allow_pickle: bool = False,
    catalog: str | os.PathLike[str] | None = None,
) -> Session | SparkSession:
    """A session on a connection that exists already; its tables and settings stay in sight.

    Args:
        connection: a DuckDB connection, or what holds one: a connection of SQLAlchemy
            (duckdb_engine), the handle or the cursor of dbt-duckdb, a backend of ibis; a Session
            is returned as it is. Or a SparkSession.
        allow_pickle: let CREATE MODEL read pickles, which execute code.
        catalog: the directory of Spark's models, a path or a URI of a Hadoop file system; by
            default the setting spark.sqlml.catalog, or else `_sqlml` in Spark's warehouse.

    Raises:
        TypeError: neither of the two.
        BackendError: another Spark than sqlml runs on.
        CatalogError: the directory cannot be read.
    """
    if type(connection).__module__.startswith("pyspark.sql."):
        from sqlml.spark.open_session import open_spark

        return open_spark(connection, None if catalog is None else os.fspath(catalog), allow_pickle)
    if catalog is not None:
        raise TypeError("catalog is for a SparkSession; a DuckDB database stores its own models")
    held = held_by(connection)
    if isinstance(held, Session):
        return held
    if not isinstance(held, duckdb.DuckDBPyConnection):
        raise TypeError(
            f"attach takes a DuckDB connection or a SparkSession, not {type(connection).__name__}; "
            "open one with duckdb.connect(..) or SparkSession.builder.getOrCreate()"
        )
    return Session(held, allow_pickle=allow_pickle)
