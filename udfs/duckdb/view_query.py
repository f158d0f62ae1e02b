"""Look up tables, unique keys and views in DuckDB's catalog by the name that a query uses."""

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

_ALL_TABLES_SQL = (
    "SELECT database_name, schema_name, table_name FROM (SELECT database_name, "
    "schema_name, table_name FROM system.main.duckdb_tables() UNION ALL SELECT "
    "database_name, schema_name, view_name FROM system.main.duckdb_views()) AS entries"
)


def find_table(read: Read, table: str) -> TableName | None:
    """Return the table or view named `table`, or None if the name is unknown or ambiguous."""
    names = split_name(table)
    tables = list_tables(read, names) if names else []
    return tables[0] if len(tables) == 1 else None


def split_name(table: str) -> list[str]:
    """Split `table` into case-folded names, such as schema and table; [] if it is not a name."""
    try:
        names = [fold(token.text) for token in tokenize(table) if token.is_identifier]
    except ParseError:
        return []
    return names if len(names) <= 3 and not table.lstrip().startswith("(") else []


def list_tables(read: Read, names: Sequence[str]) -> list[TableName]:
    """List the tables and views to which a name with the case-folded parts `names` can refer."""
    columns = tuple(map(fold_in_sql, ("table_name", "schema_name", "database_name")))
    if len(names) == 2:  # The first part names a schema, or a database with its main schema.
        condition = f"{columns[0]} = ? AND ? IN ({columns[1]}, {columns[2]})"
    else:
        condition = " AND ".join(f"{column} = ?" for column in columns[: len(names)])
    rows = read(f"{_ALL_TABLES_SQL} WHERE {condition}", list(reversed(names)))
    return [(str(database), str(schema), str(name)) for database, schema, name in rows]


def find_unique_keys(read: Read, table: str) -> tuple[frozenset[str], ...]:
    """Return the sets of case-folded column names that are declared unique in a table."""
    table_name = find_table(read, table)
    if table_name is None:
        return ()
    constraints = read(
        "SELECT constraint_column_names FROM system.main.duckdb_constraints() "
        "WHERE database_name = ? AND schema_name = ? AND table_name = ? "
        "AND constraint_type IN ('PRIMARY KEY', 'UNIQUE')",
        list(table_name),
    )
    return tuple(frozenset(fold(str(column)) for column in key) for (key,) in constraints)


_FILE_SUFFIXES = (".parquet", ".csv", ".json")


def expand_view(read: Read, is_deterministic: Callable[[str], bool], table: str) -> str | None:
    """Return the query of the view `table`, with the full name of each table, or None.

    None is returned if `table` is ambiguous or not a view. None is also returned if the view
    renames columns, cannot be parsed, or calls macros, models or nondeterministic functions.
    """
    name_parts = split_name(table)
    if not name_parts:
        return None
    views = {
        (str(database), str(schema), str(name)): str(view_sql)
        for database, schema, name, view_sql in read(
            "SELECT database_name, schema_name, view_name, sql FROM system.main.duckdb_views() "
            f"WHERE NOT internal AND {fold_in_sql('view_name')} = ?",
            name_parts[-1:],
        )
    }
    view_name = find_table(read, table) if views else None
    if view_name is None or view_name not in views:
        return None
    view_query = read_view(views[view_name])
    if view_query is None or view_query.columns:
        return None
    for name in map(fold, view_query.functions):
        if name.startswith("sqlml_") or not (name in FILE_FUNCTIONS or is_deterministic(name)):
            return None
    edits: dict[Span, str] = {}
    for source in view_query.tables:
        full_name = _find_full_name(read, source, *view_name[:2])
        if full_name is None:
            return None
        edits[source.span] = f"{full_name} AS {source.alias_sql}" if source.alias_sql else full_name
    return splice(view_query.sql, {}, edits, Span(0, len(view_query.sql)))


def _find_full_name(read: Read, table: NamedTable, database: str, schema: str) -> str | None:
    *qualifiers, name = table.parts
    if not qualifiers:
        if fold(name).endswith(_FILE_SUFFIXES) and not list_tables(read, [fold(name)]):
            return DUCKDB.quote_name(name)
        search_paths = [["temp", "main"], [database, schema]]  # DuckDB uses this search order.
        tables = list_tables(read, [fold(name)])
        if database == "temp" and len(tables) == 1:  # A temporary view reads the current schema.
            search_paths.append(list(tables[0][:2]))
    elif len(qualifiers) == 1:
        if list_tables(read, ["temp", "main", fold(name)]):
            return None
        search_paths = [[database, *qualifiers], [*qualifiers, "main"]]
    else:
        search_paths = [qualifiers]
    for prefix in search_paths:
        full_name = [*prefix, name]
        if list_tables(read, list(map(fold, full_name))):
            return ".".join(map(DUCKDB.quote_name, full_name))
    return None
