"""Stamps: what a model is now, read from a single type.

Each model has a type, an ENUM of one value, which changes with each change of the model. The engine
reads it without reading a row. A type runs nothing, whoever made it, as a view might: so it is
looked at without a look at the catalog's shape before. Of two transactions that change one model
the second fails, as it should; each model has its own type, so those that change different ones do
not conflict.

DuckDB 1.5 cannot open a file again that has types in the log of a killed process (1.5.6: "Failure
while replaying WAL file ..: Schema with name sqlml does not exist!"). There are no stamps there:
the rows of the model are compared (`Catalog.stamp`), and a change of the model changes its row, so
that two transactions conflict as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import uuid4

from sqlml.catalog.connection import IS_TWO, Connection
from sqlml.dialects import DUCKDB
from sqlml.dialects.duckdb import builtin, folded

_PREFIX = "stamp_"


def read_stamp(connection: Connection, schema: str, key: str) -> str | None:
    """The stamp of the model `key`; None if it has none."""
    return connection.type(_type(schema, key)) if IS_TWO else None


def read_stamps(connection: Connection, database: str | None) -> dict[str, str]:
    """The stamps of all models of a database, by key, as `read_stamp` gives them: a query, which
    takes a fifth of the time where there are many."""
    if not IS_TWO:
        return {}
    where, given = f"{folded('database_name')} = {folded('?')}", [database]
    if database is None:
        where, given = "database_name = system.main.current_database()", []
    rows = connection.read(
        f"SELECT type_name, {builtin('array_extract')}(labels, 1) FROM system.main.duckdb_types() "
        f"WHERE schema_name = 'sqlml' AND {where} AND system.main.len(labels) = 1",
        given,
    )
    return {
        name.removeprefix(_PREFIX): f"ENUM('{stamp}')"
        for name, stamp in rows
        if name.startswith(_PREFIX) and "'" not in stamp
    }


def write_stamp(connection: Connection, schema: str, key: str) -> None:
    """Give the model `key` a new stamp."""
    if IS_TWO:
        connection.write(f"CREATE OR REPLACE TYPE {_type(schema, key)} AS ENUM ('{uuid4().hex}')")
        return
    for _ in range(2):  # an update that changes nothing conflicts with none
        connection.write(
            f"UPDATE {schema}.catalog_models SET last_version = {builtin('xor')}(last_version, 1) "
            "WHERE key = ?",
            [key],
        )


def write_stamps(connection: Connection, schema: str, keys: Sequence[str]) -> None:
    """Give several models new stamps."""
    for key in keys:
        write_stamp(connection, schema, key)


def unstamped(connection: Connection, schema: str) -> list[str]:
    """The models of the current database that lack a stamp: an older sqlml or DuckDB made them."""
    if not IS_TWO:
        return []
    rows = connection.read(
        f"SELECT key FROM {schema}.catalog_models WHERE {builtin('||')}('stamp_', key) NOT IN "
        "(SELECT type_name FROM system.main.duckdb_types() WHERE schema_name = 'sqlml' "
        "AND database_name = system.main.current_database())"
    )
    return [str(key) for (key,) in rows]


def drop_stamp(connection: Connection, schema: str, key: str) -> None:
    """Take the stamp away from the model `key`."""
    if IS_TWO:
        connection.write(f"DROP TYPE IF EXISTS {_type(schema, key)}")


def _type(schema: str, key: str) -> str:
    return f"{schema}.{DUCKDB.quote_name(_PREFIX + key)}"
