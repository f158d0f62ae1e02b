"""`drop_pages`: the engine forgets pages of tables that it has read, so that others may have the
memory."""

from __future__ import annotations

import duckdb

_COLUMNS = 32
"""Integers in a row of the table that takes the pages' place."""

_LEAST = 0.5
"""Of memory_limit that pages take before it is worth while."""

_SPARE = 48 << 20
"""Bytes of the limit that are left alone, so that the table fits in any case."""


def drop_pages(native: duckdb.DuckDBPyConnection, limit: float) -> None:
    """Let go of pages that the engine keeps in case that they are read again.

    There is no statement for that but to lower memory_limit, which is the user's and holds for all
    connections. A temporary table of a connection of its own needs the room, and gets it from pages
    first.

    Args:
        limit: memory_limit in bytes.
    """
    with native.cursor() as own:
        found = own.execute(
            "SELECT tag, memory_usage_bytes FROM system.main.duckdb_memory()"
        ).fetchall()
        used = {str(tag): int(nbytes) for tag, nbytes in found}
        pages = sum(used.get(tag, 0) for tag in ("BASE_TABLE", "EXTERNAL_FILE_CACHE"))
        room = int(limit) - (sum(used.values()) - pages) - _SPARE
        if pages < _LEAST * limit or room <= 0:
            return
        listed = ", ".join(f"range + {n} AS c{n}" for n in range(_COLUMNS))
        rows = room // (8 * _COLUMNS)
        try:
            own.execute(
                f"CREATE TEMP TABLE sqlml_room AS SELECT {listed} FROM system.main.range({rows})"
            )
            own.execute("DROP TABLE temp.main.sqlml_room")
        except (duckdb.OutOfMemoryException, duckdb.IOException):  # others need it as well
            return
        # the allocator gives memory back to the system at the end of the next query
        own.execute("SELECT system.main.count(*) FROM system.main.range(1000000)").fetchall()
