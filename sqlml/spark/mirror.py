"""`Mirror`: the catalog of a directory as tables of a database in this process's memory.

::

    index/00000000000000000007.json    the tables after the seventh change
    programs/<hash>.sqlml              a stored Program, as EXPORT MODEL writes it

So all that reads and changes a catalog is the same as in a database of DuckDB. Before each look the
newest index is read, if there is one; a change writes the next one, and of two sessions that do so
at once one makes the file, and the other begins again from it. Nothing is ever written over.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import duckdb

from sqlml.catalog.tables import TABLES, VIEWS
from sqlml.errors import CatalogError, ConflictError
from sqlml.spark.files import Files
from sqlml.udfs.duckdb import DuckDBEngine
from sqlml.udfs.registry import Registry

FORMAT = 1
"""Of the index; a later version of sqlml reads earlier ones."""

_ATTEMPTS = 20
_KEPT = 10
"""Older indexes that stay, for a session that is reading one."""

_SCHEMA = '"sqlml"'
_TABLES = ("models", "versions", "aliases", "tags")


class Mirror(DuckDBEngine):
    """The tables of a directory's catalog; one session's, for one thread at a time."""

    def __init__(self, files: Files) -> None:
        connection = duckdb.connect()
        super().__init__(connection, Registry(connection))
        self._files = files
        self._number = 0
        self._busy = False

    def read(self, sql: str, params: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """See `DuckDBEngine`; the newest state is read."""
        self.catch_up_with_directory()
        return super().read(sql, params)

    def exists(self, schema: str) -> bool:
        """See `DuckDBEngine`."""
        self.catch_up_with_directory()
        return super().exists(schema)

    def columns(self, relation: str) -> tuple[str, ...] | None:
        """See `DuckDBEngine`."""
        self.catch_up_with_directory()
        return super().columns(relation)

    def atomic(self, work: Callable[[], None]) -> None:
        """Run `work`, and write what has become of the tables as the next index.

        Raises:
            ConflictError: other sessions were faster, time and again.
            CatalogError: the directory cannot be written.
        """
        for _ in range(_ATTEMPTS):
            self.catch_up_with_directory()
            with self._alone():
                self.connection.execute("BEGIN TRANSACTION")
                try:
                    work()
                    number = self._number + 1
                    written = self._files.add(_name(number), self._dumped())
                    if written and self._newest() >= number + _KEPT:
                        # The others were so much faster that their index of this number has gone.
                        self._files.remove(_name(number))
                        written = False
                    self.connection.execute("COMMIT" if written else "ROLLBACK")
                except BaseException:
                    self.connection.execute("ROLLBACK")
                    raise
                if written:
                    self._number = number
                    self._files.remove(_name(number - _KEPT))
                    return
        raise ConflictError(
            "other sessions change the models of this directory all the time; try again"
        )

    def catch_up_with_directory(self) -> None:
        """Read the newest index, where it is not the one that is known.

        Raises:
            CatalogError: it is damaged, or of a later version of sqlml.
        """
        if self._busy:
            return
        newest = self._newest()
        if newest == self._number:
            return
        with self._alone():
            content = self._files.read(_name(newest)) if newest else b"{}"
            if content is None:
                raise CatalogError(f"{self._files.place}/{_name(newest)} has gone; try again")
            self._load(self._parsed(newest, content) if newest else {})
            self._number = newest

    def _newest(self) -> int:
        return max(map(_number, self._files.names("index")), default=0)

    def _parsed(self, number: int, content: bytes) -> dict[str, Any]:
        place = f"{self._files.place}/{_name(number)}"
        try:
            found = json.loads(content)
            version = found["sqlml_catalog"]
        except (ValueError, KeyError, TypeError, RecursionError):
            raise CatalogError(
                f"the model catalog is damaged: {place} is no index of sqlml; remove the file, and "
                "the one before it counts"
            ) from None
        if version != FORMAT:
            raise CatalogError(
                f"{place} is of a later version of sqlml (format {version!r}); update sqlml"
            )
        return dict(found)

    def _load(self, index: dict[str, Any]) -> None:
        run = self.connection.execute
        run("BEGIN TRANSACTION")
        try:
            run("DROP SCHEMA IF EXISTS sqlml CASCADE")
            if index:
                for statement in (*TABLES, *VIEWS):
                    run(statement.format(schema=_SCHEMA))
                for table in _TABLES:
                    self._fill(f"{_SCHEMA}.catalog_{table}", index[table])
            run("COMMIT")
        except (duckdb.Error, KeyError, TypeError) as error:
            run("ROLLBACK")
            raise CatalogError(
                f"the model catalog in {self._files.place} is damaged ({error}); remove the newest "
                "file of its index, and the one before it counts"
            ) from None

    def _fill(self, table: str, rows: Sequence[dict[str, Any]]) -> None:
        for row in rows:
            names = ", ".join(self.quote(name) for name in row)
            marks = ", ".join("?" * len(row))
            self.connection.execute(
                f"INSERT INTO {table} ({names}) VALUES ({marks})", list(row.values())
            )

    def _dumped(self) -> bytes:
        index: dict[str, Any] = {"sqlml_catalog": FORMAT}
        for table in _TABLES:
            relation = self.connection.sql(f"FROM {_SCHEMA}.catalog_{table} ORDER BY ALL")
            names = relation.columns
            index[table] = [dict(zip(names, row, strict=True)) for row in relation.fetchall()]
        return json.dumps(index, indent=1, default=str).encode()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """While tables are read or changed as they are now."""
        self._busy = True
        try:
            yield
        finally:
            self._busy = False


def _name(number: int) -> str:
    return f"index/{number:020d}.json"


def _number(name: str) -> int:
    """The number of an index by its file's name; 0 for other files."""
    stem, dot, ending = name.partition(".")
    return int(stem) if len(stem) == 20 and stem.isdigit() and dot and ending == "json" else 0
