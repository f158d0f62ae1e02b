"""`named_table`: the table or view that a query means by a name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sqlml.dialects.duckdb import folded
from sqlml.errors import ParseError
from sqlml.parsing.tokens import tokenize
from sqlml.types import fold

Read = Callable[[str, Sequence[Any]], Sequence[tuple[Any, ...]]]
"""Rows of a query with parameters."""

TableName = tuple[str, str, str]
"""Database, schema and name of a table or view."""

_ALL = (
    "SELECT database_name, schema_name, table_name FROM (SELECT database_name, "
    "schema_name, table_name FROM system.main.duckdb_tables() UNION ALL SELECT "
    "database_name, schema_name, view_name FROM system.main.duckdb_views()) AS entries"
)


def named_table(read: Read, table: str) -> TableName | None:
    """The only table or view that a query can mean by a name as it is written; None if there is
    none, or another one of that name might be meant."""
    names = name_parts(table)
    found = named(read, names) if names else []
    return found[0] if len(found) == 1 else None


def name_parts(table: str) -> list[str]:
    """The parts of a table's name, case-folded: database, schema and table, as far as they are
    written. An empty list if the text is not a table's name."""
    try:
        names = [fold(t.text) for t in tokenize(table) if t.is_identifier]
    except ParseError:
        return []
    return names if len(names) <= 3 and not table.lstrip().startswith("(") else []


def named(read: Read, names: Sequence[str]) -> list[TableName]:
    """All tables and views of a name with its path, if it has one: a schema, a database, or both.

    Args:
        names: folded; the last one is the table's.
    """
    fields = ("table_name", "schema_name", "database_name")
    given = dict(zip(fields, reversed(names), strict=False))
    if len(names) == 2:  # a schema, or a database with its main schema
        del given["schema_name"]
        either = f" AND ? IN ({folded('schema_name')}, {folded('database_name')})"
        values = [names[1], names[0]]
    else:
        either, values = "", list(given.values())
    where = " AND ".join(f"{folded(field)} = ?" for field in given) + either
    return [(str(d), str(s), str(t)) for d, s, t in read(f"{_ALL} WHERE {where}", values)]
