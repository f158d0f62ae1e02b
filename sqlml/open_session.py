"""Open a session: `connect` opens a database, and `attach` wraps an open connection."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, overload

import duckdb

from sqlml.session.session import Session

if TYPE_CHECKING:
    import pyspark.sql

    from sqlml.spark.session import SparkSession


_INNER_CONNECTIONS = {
    "duckdb_engine.ConnectionWrapper": "_ConnectionWrapper__c",
    "duckdb_engine.CursorWrapper": "_CursorWrapper__c",
    "sqlalchemy.engine.base.Connection": "connection",
    "sqlalchemy.pool.base._ConnectionFairy": "driver_connection",
    "ibis.backends.duckdb.Backend": "con",
    "dbt.adapters.duckdb.environments.RetryableCursor": "_cursor",
    "dbt.adapters.duckdb.environments.local.DuckDBConnectionWrapper": "_cursor",
    "dbt.adapters.duckdb.environments.local.DuckDBCursorWrapper": "_cursor",
}
"""Maps classes of wrappers to the attribute with the connection or with another wrapper."""


def connect(
    database: str | os.PathLike[str] = ":memory:",
    read_only: bool = False,
    config: dict[str, Any] | None = None,
    *,
    allow_pickle: bool = False,
) -> Session:
    """Open a database as a Session.

    Args:
        database: the path of a DuckDB file, or anything else that `duckdb.connect` accepts. A
            missing file is created. The default is a database in memory.
        read_only: do not change the file. Models can score, but cannot be registered.
        config: DuckDB settings, keyed by name.
        allow_pickle: whether CREATE MODEL may read pickles, which can execute code.

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
    connection: Any, *, allow_pickle: bool = False, catalog: str | os.PathLike[str] | None = None
) -> Session | SparkSession:
    """Open a session on an existing connection.

    Args:
        connection: a SparkSession, a DuckDB connection, or a wrapper of a connection: a SQLAlchemy
            connection (duckdb_engine), a handle or cursor of dbt-duckdb, or an ibis backend. A
            Session is returned unchanged.
        allow_pickle: whether CREATE MODEL may read pickles, which can execute code.
        catalog: the directory in which Spark stores models, as a path or as a URI of a Hadoop file
            system. The default is the setting spark.sqlml.catalog, or if this is not set, `_sqlml`
            in the warehouse.

    Raises:
        TypeError: the object is not a connection of DuckDB or Spark.
        BackendError: sqlml does not run on this version of Spark.
        CatalogError: the `catalog` directory cannot be read.
    """
    if type(connection).__module__.startswith("pyspark.sql."):
        from sqlml.spark.session import open_spark

        return open_spark(connection, None if catalog is None else os.fspath(catalog), allow_pickle)
    if catalog is not None:
        raise TypeError("catalog is for a SparkSession; a DuckDB database stores its own models")
    native = unwrap_connection(connection)
    if isinstance(native, Session):
        return native
    if not isinstance(native, duckdb.DuckDBPyConnection):
        raise TypeError(
            f"attach takes a DuckDB connection or a SparkSession, not {type(connection).__name__}; "
            "open one with duckdb.connect(...) or SparkSession.builder.getOrCreate()"
        )
    return Session(native, allow_pickle=allow_pickle)


def unwrap_connection(holder: Any) -> Any:
    """Return the connection in an object of another library; return other objects unchanged.

    Classes are recognized by name, so that no library is imported.
    """
    while True:
        cls = type(holder)
        attribute = _INNER_CONNECTIONS.get(f"{cls.__module__}.{cls.__qualname__}")
        if attribute is None:
            return holder
        holder = getattr(holder, attribute)
