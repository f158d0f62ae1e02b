"""`Mirror`: the catalog of a directory as tables of a database in this process's memory.

So all that reads and changes a catalog is the same as in a database of DuckDB. Before each look the
newest index is read, if there is one; a change writes the next one, and where another session has
done so meanwhile, it begins again from that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import duckdb

from sqlml.catalog.connection import Connection
from sqlml.catalog.tables import TABLES, TRAINING_TABLES
from sqlml.dialects import DUCKDB
from sqlml.errors import CatalogError, ConflictError
from sqlml.spark.catalog_directory import Directory

_ATTEMPTS = 20

_SCHEMA = '"sqlml"'
_TABLES = ("models", "versions", "aliases", "tags")
_LATER = ("small_models", "trainings")
"""Tables that an index of an older sqlml lacks."""


class Mirror(Connection):
    """The tables of a directory's catalog; one session's, for one thread at a time."""

    def __init__(self, directory: Directory) -> None:
        super().__init__(duckdb.connect())
        self._directory = directory
        self._number = 0
        self._busy = False

    def read(self, sql: str, params: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Rows of a query on the newest state of the tables."""
        self.catch_up_with_directory()
        return super().read(sql, params)

    def type(self, name: str) -> str | None:
        """The definition of a type by its qualified name in the newest state; None if it does not
        exist."""
        self.catch_up_with_directory()
        return super().type(name)

    def atomic(self, work: Callable[[], None], is_open: bool | None = None) -> None:
        """Run `work`, and write what has become of the tables as the next index.

        Raises:
            ConflictError: other sessions were faster, time and again.
            CatalogError: the directory cannot be written.
        """
        for _ in range(_ATTEMPTS):
            self.catch_up_with_directory()
            with self._alone():
                self.native.execute("BEGIN TRANSACTION")
                try:
                    work()
                    number = self._number + 1
                    written = self._directory.write_index(number, self._tables())
                    self.native.execute("COMMIT" if written else "ROLLBACK")
                except BaseException:
                    self.native.execute("ROLLBACK")
                    raise
                if written:
                    self._number = number
                    return
        raise ConflictError("other sessions keep changing the models in this directory; try again")

    def catch_up_with_directory(self) -> None:
        """Read the newest index, where it is not the one that is known.

        Raises:
            CatalogError: it is damaged, or of a later version of sqlml.
        """
        if self._busy:
            return
        newest = self._directory.newest()
        if newest == self._number:
            return
        with self._alone():
            self._load(self._directory.index(newest) if newest else None)
            self._number = newest

    def _load(self, tables: dict[str, Any] | None) -> None:
        run = self.native.execute
        run("BEGIN TRANSACTION")
        try:
            run("DROP SCHEMA IF EXISTS sqlml CASCADE")
            if tables is not None:
                for statement in (*TABLES, *TRAINING_TABLES):
                    run(statement.format(schema=_SCHEMA))
                for table in _TABLES:
                    self._fill(f"{_SCHEMA}.catalog_{table}", tables[table])
                for table in _LATER:
                    self._fill(f"{_SCHEMA}.catalog_{table}", tables.get(table, ()))
            run("COMMIT")
        except (duckdb.Error, KeyError, TypeError, AttributeError) as error:
            run("ROLLBACK")
            raise CatalogError(
                f"the model catalog in {self._directory.place} is damaged ({error}); remove the "
                "newest file of its index to fall back to the one before it"
            ) from None

    def _fill(self, table: str, rows: Sequence[dict[str, Any]]) -> None:
        for row in rows:
            names = ", ".join(DUCKDB.quote_name(name) for name in row)
            marks = ", ".join("?" * len(row))
            self.native.execute(
                f"INSERT INTO {table} ({names}) VALUES ({marks})", list(row.values())
            )

    def _tables(self) -> dict[str, Any]:
        tables = {}
        for table in (*_TABLES, *self._later()):
            relation = self.native.sql(f"FROM {_SCHEMA}.catalog_{table} ORDER BY ALL")
            names = relation.columns
            tables[table] = [dict(zip(names, row, strict=True)) for row in relation.fetchall()]
        return tables

    def _later(self) -> list[str]:
        """Those of the later tables that are there."""
        there = self.tables(_SCHEMA)
        return [table for table in _LATER if f"catalog_{table}" in there]

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """While tables are read or changed as they are now."""
        self._busy = True
        try:
            yield
        finally:
            self._busy = False
