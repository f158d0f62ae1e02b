"""`Tables`: the temporary tables of one report.

They touch no database, so one that is open read-only has reports, too, and so has an open
transaction of the user's.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Protocol

import duckdb

from sqlml.dialects.duckdb import builtin


class Asking(Protocol):
    """What a report asks of a session."""

    @property
    def connection(self) -> duckdb.DuckDBPyConnection:
        """The engine's own connection."""
        ...

    def execute(self, query: Any, parameters: Any = None) -> Any:
        """Run a statement, which may call models."""
        ...

    def sql(self, query: Any) -> Any:
        """A query, which may call models, as a lazy relation."""
        ...

    def plan(self, query: str, params: Any = None, analyze: bool = False) -> Any:
        """The Plan of a query."""
        ...


class Tables:
    """The temporary tables of one report."""

    def __init__(self, asking: Asking) -> None:
        self.asking = asking
        self._prefix = f"temp.main.sqlml_report_{secrets.token_hex(6)}"
        self._made: list[str] = []

    def keep(self, what: str, query: str) -> tuple[str, int]:
        """Keep the rows of a query, which may call models; the table, and how many rows it has."""
        table = f"{self._prefix}_{what}"
        self.asking.execute(f"CREATE TEMP TABLE {table} AS {query}")
        self._made.append(table)
        ask = f"SELECT {builtin('count')}(*) FROM {table}"
        found = self.asking.connection.execute(ask).fetchall()
        return table, int(found[0][0])

    @contextmanager
    def kept(self, what: str, query: str) -> Iterator[str]:
        """Keep the rows of a query while the block runs; the table."""
        table, _ = self.keep(what, query)
        try:
            yield table
        finally:
            self._drop(table)

    def drop(self) -> None:
        """Leave nothing behind; a transaction that has failed takes them along."""
        for table in self._made:
            self._drop(table)

    def _drop(self, table: str) -> None:
        with suppress(duckdb.Error):
            self.asking.connection.execute(f"DROP TABLE IF EXISTS {table}")
