"""The macros of views in a database's catalog, with their data for clients without Python.

`planner/model_sql/view_macros.py` builds them. The table `catalog_compiled` has their data, under
the names of the macros.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from sqlml.catalog.catalog_connection import Connection
from sqlml.catalog.tables import HASH_DIGITS, MACRO_TABLES, STORED_PREFIX

_NAME = re.compile(rf"{STORED_PREFIX}[0-9a-f]{{{HASH_DIGITS}}}_[0-9a-z_]+")


@dataclass(frozen=True, slots=True)
class ViewMacro:
    """A macro of views: its name, its SQL after the name in CREATE MACRO, and its data."""

    name: str
    definition: str
    content: str


def store_view_macros(
    connection: Connection, schema: str, database: str, macros: Sequence[ViewMacro]
) -> None:
    """Store macros for a view that is created next, and drop those that no view calls any more."""
    with connection.check_once():
        connection.create_tables(schema, MACRO_TABLES)
        drop_unused_macros(connection, schema, database)
        for macro in macros:
            connection.write(f"CREATE OR REPLACE MACRO {schema}.{macro.name}{macro.definition}")
            write_content(connection, schema, macro.name, macro.content)


def write_content(connection: Connection, schema: str, name: str, content: str) -> None:
    """Write the data of a macro, unless the catalog has it already."""
    same = f"SELECT 1 FROM {schema}.catalog_compiled WHERE key = ? AND content = ?"
    if not connection.read(same, [name, content]):
        connection.write(f"DELETE FROM {schema}.catalog_compiled WHERE key = ?", [name])
        values = f"INSERT INTO {schema}.catalog_compiled VALUES (?, ?)"
        connection.write(values, [name, content])


def list_view_macros(connection: Connection, schema: str) -> list[str]:
    """Return the names of the views' macros in a catalog that have data."""
    if "catalog_compiled" not in connection.list_tables(schema):
        return []
    query = f"SELECT key FROM {schema}.catalog_compiled WHERE system.main.starts_with(key, ?)"
    names = [str(name) for (name,) in connection.read(query, [STORED_PREFIX])]
    return sorted(filter(_NAME.fullmatch, names))


def empty_view_macros(connection: Connection, schema: str, digests: Sequence[str]) -> None:
    """Remove the data of the macros of Programs that were removed.

    The rows remain until `store_view_macros` drops the macros, so that views say what is wrong.
    """
    if "catalog_compiled" in connection.list_tables(schema):
        digest = f"system.main.substr(key, {len(STORED_PREFIX) + 1}, {HASH_DIGITS})"
        connection.write(
            f"UPDATE {schema}.catalog_compiled SET content = '' WHERE "
            "system.main.starts_with(key, ?) "
            f"AND system.main.list_contains(?::VARCHAR[], {digest})",
            [STORED_PREFIX, [digest[:HASH_DIGITS] for digest in digests]],
        )


def drop_unused_macros(connection: Connection, schema: str, database: str) -> None:
    """Drop the macros that no view of a database calls."""
    unused = set(list_view_macros(connection, schema))
    sources = (
        "SELECT sql FROM system.main.duckdb_views() WHERE database_name = ? "
        "AND system.main.contains(sql, ?)",
        # The engine writes out all macros to answer this, so it is only asked if need be.
        "SELECT macro_definition FROM system.main.duckdb_functions() WHERE database_name = ? "
        "AND schema_name <> 'sqlml' AND system.main.contains(macro_definition, ?)",
    )
    for query in sources:
        if unused:
            for (text,) in connection.read(query, [database, STORED_PREFIX]):
                unused.difference_update(_NAME.findall(str(text)))
    for name in sorted(unused):
        connection.write(f"DROP MACRO IF EXISTS {schema}.{name}")
        connection.write(f"DELETE FROM {schema}.catalog_compiled WHERE key = ?", [name])
