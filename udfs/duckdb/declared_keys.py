"""`declared_keys`: the columns of a table that DuckDB's catalog has as unique."""

from __future__ import annotations

from sqlml.types import fold
from sqlml.udfs.duckdb.named_table import Read, named_table


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
