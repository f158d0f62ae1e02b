"""`view_query`: what a view of DuckDB selects, as a query that means the same anywhere."""

from __future__ import annotations

from collections.abc import Callable

from sqlml.dialects import DUCKDB
from sqlml.dialects.duckdb import folded
from sqlml.parsing.places import Span
from sqlml.planner.syntax.joins import FILES
from sqlml.planner.syntax.named_queries import NamedTable, view_body
from sqlml.planner.syntax.splice import splice
from sqlml.types import fold
from sqlml.udfs.duckdb.named_table import Read, name_parts, named, named_table

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
