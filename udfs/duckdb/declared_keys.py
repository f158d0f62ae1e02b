"""`declared_keys`: the columns of a table that DuckDB's catalog has as unique."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sqlml.dialects.duckdb import folded
from sqlml.errors import ParseError
from sqlml.parsing.tokens import tokenize
from sqlml.types import fold

Read = Callable[[str, Sequence[Any]], Sequence[tuple[Any, ...]]]
"""Rows of a query with parameters."""


def declared_keys(read: Read, table: str) -> tuple[frozenset[str], ...]:
    """The sets of columns that are declared unique in a table as a query names it, folded.

    None if another table or view of that name might be meant.
    """
    try:
        names = [fold(t.text) for t in tokenize(table) if t.is_identifier]
    except ParseError:
        return ()
    if not 1 <= len(names) <= 3 or table.lstrip().startswith("("):
        return ()
    fields = ("table_name", "schema_name", "database_name")
    given = dict(zip(fields, reversed(names), strict=False))
    if len(names) == 2:  # a schema, or a database with its main schema
        del given["schema_name"]
        either = f" AND ? IN ({folded('schema_name')}, {folded('database_name')})"
        values = [names[1], names[0]]
    else:
        either, values = "", list(given.values())
    where = " AND ".join(f"{folded(field)} = ?" for field in given) + either
    meant = read(
        "SELECT database_name, schema_name, table_name FROM (SELECT database_name, "
        "schema_name, table_name FROM system.main.duckdb_tables() UNION ALL SELECT "
        "database_name, schema_name, view_name FROM system.main.duckdb_views()) "
        f"WHERE {where}",
        values,
    )
    if len(meant) != 1:
        return ()
    found = read(
        "SELECT constraint_column_names FROM system.main.duckdb_constraints() "
        "WHERE database_name = ? AND schema_name = ? AND table_name = ? "
        "AND constraint_type IN ('PRIMARY KEY', 'UNIQUE')",
        list(meant[0]),
    )
    return tuple(frozenset(fold(str(c)) for c in columns) for (columns,) in found)
