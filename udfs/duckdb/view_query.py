"""Tables, keys and views of DuckDB's catalog, by the name that a query uses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sqlml.dialects import DUCKDB
from sqlml.dialects.duckdb import fold_in_sql
from sqlml.errors import ParseError
from sqlml.parsing.places import Span
from sqlml.parsing.tokens import tokenize
from sqlml.planner.syntax.joins import FILE_FUNCTIONS
from sqlml.planner.syntax.named_queries import NamedTable, read_view
from sqlml.planner.syntax.outline import splice
from sqlml.types import fold

Read = Callable[[str, Sequence[Any]], Sequence[tuple[Any, ...]]]
TableName = tuple[str, str, str]

_ALL = (
    "SELECT database_name, schema_name, table_name FROM (SELECT database_name, "
    "schema_name, table_name FROM system.main.duckdb_tables() UNION ALL SELECT "
    "database_name, schema_name, view_name FROM system.main.duckdb_views()) AS entries"
)


def find_table(read: Read, table: str) -> TableName | None:
    """Return the only table or view that a query can mean by a name, or None if it is ambiguous."""
    names = split_name(table)
    tables = list_tables(read, names) if names else []
    return tables[0] if len(tables) == 1 else None


def split_name(table: str) -> list[str]:
    """Return the folded parts of a table's name, such as database, schema and table, or []."""
    try:
        names = [fold(t.text) for t in tokenize(table) if t.is_identifier]
    except ParseError:
        return []
    return names if len(names) <= 3 and not table.lstrip().startswith("(") else []


def list_tables(read: Read, names: Sequence[str]) -> list[TableName]:
    """List the tables and views of a name, whose folded parts are `names`."""
    fields = ("table_name", "schema_name", "database_name")
    conditions = dict(zip(fields, reversed(names), strict=False))
    if len(names) == 2:  # A schema, or a database with its main schema.
        del conditions["schema_name"]
        either = f" AND ? IN ({fold_in_sql('schema_name')}, {fold_in_sql('database_name')})"
        values = [names[1], names[0]]
    else:
        either, values = "", list(conditions.values())
    where = " AND ".join(f"{fold_in_sql(field)} = ?" for field in conditions) + either
    return [(str(d), str(s), str(t)) for d, s, t in read(f"{_ALL} WHERE {where}", values)]


def find_unique_keys(read: Read, table: str) -> tuple[frozenset[str], ...]:
    """Return the sets of folded columns that are declared unique in the table of a name."""
    table_name = find_table(read, table)
    if table_name is None:
        return ()
    constraints = read(
        "SELECT constraint_column_names FROM system.main.duckdb_constraints() "
        "WHERE database_name = ? AND schema_name = ? AND table_name = ? "
        "AND constraint_type IN ('PRIMARY KEY', 'UNIQUE')",
        list(table_name),
    )
    return tuple(frozenset(fold(str(c)) for c in columns) for (columns,) in constraints)


_FILE_SUFFIXES = (".parquet", ".csv", ".json")


def expand_view(read: Read, is_steady: Callable[[str], bool], table: str) -> str | None:
    """Return the query of a view with the full name of each of its tables.

    Returns None if the name is not a view or is ambiguous, if the view renames its columns, if it
    calls macros, models or functions that are not deterministic, or if it cannot be parsed.
    """
    parts = split_name(table)
    if not parts:
        return None
    views = {
        (str(database), str(schema), str(name)): str(text)
        for database, schema, name, text in read(
            "SELECT database_name, schema_name, view_name, sql FROM system.main.duckdb_views() "
            f"WHERE NOT internal AND {fold_in_sql('view_name')} = ?",
            parts[-1:],
        )
    }
    view = find_table(read, table) if views else None
    if view is None or view not in views:
        return None
    body = read_view(views[view])
    if body is None or body.columns:
        return None
    for name in map(fold, body.functions):
        if name.startswith("sqlml_") or not (name in FILE_FUNCTIONS or is_steady(name)):
            return None
    edits: dict[Span, str] = {}
    for source in body.tables:
        full_name = _full_name(read, source, *view[:2])
        if full_name is None:
            return None
        edits[source.span] = f"{full_name} AS {source.alias_sql}" if source.alias_sql else full_name
    return splice(body.sql, {}, edits, Span(0, len(body.sql)))


def _full_name(read: Read, table: NamedTable, database: str, schema: str) -> str | None:
    """Return the full name of a table that a view of a schema reads, or None if it is ambiguous."""
    *path, name = table.parts
    if not path:
        if fold(name).endswith(_FILE_SUFFIXES) and not list_tables(read, [fold(name)]):
            return DUCKDB.quote_name(name)
        paths = [["temp", "main"], [database, schema]]  # DuckDB's own search order.
        tables = list_tables(read, [fold(name)])
        if database == "temp" and len(tables) == 1:  # A temporary view reads the current schema.
            paths.append(list(tables[0][:2]))
    elif len(path) == 1:
        if list_tables(read, ["temp", "main", fold(name)]):
            return None
        paths = [[database, *path], [*path, "main"]]
    else:
        paths = [path]
    for prefix in paths:
        parts = [*prefix, name]
        if list_tables(read, list(map(fold, parts))):
            return ".".join(map(DUCKDB.quote_name, parts))
    return None
