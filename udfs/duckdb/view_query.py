"""`view_query`: what a view of DuckDB selects, as a query that means the same anywhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sqlml.dialects import DUCKDB
from sqlml.dialects.duckdb import folded
from sqlml.errors import ParseError
from sqlml.parsing.places import Span
from sqlml.parsing.tokens import tokenize
from sqlml.planner.syntax.joins import FILES
from sqlml.planner.syntax.named_queries import NamedTable, view_body
from sqlml.planner.syntax.outline import splice
from sqlml.types import fold

# `named_table`: the table or view that a query means by a name.


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


# `declared_keys`: the columns of a table that DuckDB's catalog has as unique.


def declared_keys(read: Read, table: str) -> tuple[frozenset[str], ...]:
    """The sets of columns that are declared unique in a table as a query names it, folded.

    None if another table or view of that name might be meant.
    """
    meant = named_table(read, table)
    if meant is None:
        return ()
    found = read(
        "SELECT constraint_column_names FROM system.main.duckdb_constraints() "
        "WHERE database_name = ? AND schema_name = ? AND table_name = ? "
        "AND constraint_type IN ('PRIMARY KEY', 'UNIQUE')",
        list(meant),
    )
    return tuple(frozenset(fold(str(c)) for c in columns) for (columns,) in found)


ENDS = (".parquet", ".csv", ".json")
"""How the names of tables end that are files."""


def view_query(read: Read, is_steady: Callable[[str], bool], table: str) -> str | None:
    """The query of a view as a query names it, in which each table has its full name.

    None if it is no view, if another table might be meant, if its columns have names of their own,
    if it calls macros, models or functions that are not steady, or if it cannot be read.
    """
    parts = name_parts(table)
    if not parts:
        return None
    views = {
        (str(database), str(schema), str(name)): str(text)
        for database, schema, name, text in read(
            "SELECT database_name, schema_name, view_name, sql FROM system.main.duckdb_views() "
            f"WHERE NOT internal AND {folded('view_name')} = ?",
            parts[-1:],
        )
    }
    meant = named_table(read, table) if views else None
    if meant is None or meant not in views:
        return None
    body = view_body(views[meant])
    if body is None or body.columns:
        return None
    for name in map(fold, body.functions):
        if name.startswith("sqlml_") or not (name in FILES or is_steady(name)):
            return None
    edits: dict[Span, str] = {}
    for one in body.tables:
        full = _full_name(read, one, *meant[:2])
        if full is None:
            return None
        edits[one.place] = f"{full} AS {one.called}" if one.called else full
    return splice(body.sql, {}, edits, Span(0, len(body.sql)))


def _full_name(read: Read, table: NamedTable, database: str, schema: str) -> str | None:
    """The full name of a table that a view of a schema reads; None if another may be meant."""
    *path, name = table.parts
    if not path:
        if fold(name).endswith(ENDS) and not named(read, [fold(name)]):
            return DUCKDB.quote_name(name)
        places = [["temp", "main"], [database, schema]]  # as the engine looks for it
        found = named(read, [fold(name)])
        if database == "temp" and len(found) == 1:  # it reads what is around it
            places.append(list(found[0][:2]))
    elif len(path) == 1:
        if named(read, ["temp", "main", fold(name)]):
            return None
        places = [[database, *path], [*path, "main"]]
    else:
        places = [path]
    for place in places:
        full = [*place, name]
        if named(read, list(map(fold, full))):
            return ".".join(map(DUCKDB.quote_name, full))
    return None
