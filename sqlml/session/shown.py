"""How a session and its plans show themselves at a prompt and in a notebook."""

from __future__ import annotations

from typing import Any

import duckdb

from sqlml import html
from sqlml.errors import SqlmlError
from sqlml.session.relation import SHOWN
from sqlml.terminal import escape_controls

COLUMNS = ("name", "version", "versions", "library", "features", "comment", "created_at")
"""What is told of each model."""


class PlanText(str):
    """The text of a plan, which a prompt shows line by line."""

    __slots__ = ()

    def __repr__(self) -> str:
        return escape_controls(str(self))

    def _repr_html_(self) -> str:
        return html.text(self)


def session_html(session: Any) -> str:
    """The databases of a session and the models of the current one, as they are committed.

    A cursor is asked, since a result may be open.
    """
    try:
        with session.cursor() as beside:
            found = beside.connection.execute(
                "SELECT database_name, coalesce(path, 'in memory') "
                "FROM system.main.duckdb_databases() WHERE NOT internal ORDER BY ALL"
            ).fetchall()
            listed = beside.execute("SHOW MODELS").fetchmany(SHOWN + 1)
            names = [column[0] for column in beside.description]
    except (duckdb.Error, SqlmlError) as error:
        return html.text(f"a session of sqlml: {error}")
    places = [names.index(column) for column in COLUMNS]
    rows = [[None if row[p] is None else str(row[p]) for p in places] for row in listed]
    at = ", ".join(f"{name} ({path})" for name, path in found)
    more = f"; the first {SHOWN} models are shown" if len(rows) > SHOWN else ""
    below = f"DuckDB {duckdb.__version__}: {at}{more}"
    return html.table(COLUMNS, rows[:SHOWN], below=below if rows else f"{below}; no models yet")
