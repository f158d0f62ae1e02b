"""`DuckDBHost`: files and rows as DuckDB reads and writes them, under its own access settings."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import duckdb

from sqlml.catalog.connection import without_excerpt
from sqlml.dialects import DUCKDB
from sqlml.errors import ConfigError, ParseError
from sqlml.planner.syntax.parameters import with_values
from sqlml.regular_files import check_regular, local_path
from sqlml.udfs.duckdb.engine import DuckDBEngine

# `drop_pages`: the engine forgets pages of tables that it has read, so that others may have the
# memory.


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


_UNITS: Mapping[str, int] = MappingProxyType(
    {unit: 1 << 10 * n for n, unit in enumerate(("bytes", "KiB", "MiB", "GiB", "TiB"))}
)
"""Units in which the engine tells sizes."""


class DuckDBHost:
    """The files that one connection may read and write, and the rows of its queries (`Host`)."""

    def __init__(self, engine: DuckDBEngine) -> None:
        self._engine = engine
        self._connection = engine.connection

    def read_file(self, path: str) -> list[tuple[str, int]]:
        """Names and sizes of the files that `path` means, as the engine sees them.

        Raises:
            ArtifactError: one of them is not a regular file.
        """
        self._check_regular(path)
        ask = "SELECT filename, size FROM system.main.read_blob(?)"
        return [(str(name), int(size)) for name, size in self.read(ask, [path])]

    def file_content(self, path: str) -> bytes:
        """The bytes of one file.

        Raises:
            ArtifactError: it is not a regular file.
        """
        self._check_regular(path)
        ask = "SELECT content FROM system.main.read_blob(?)"
        ((content,),) = self.read(ask, [path])
        return bytes(content)

    def write_file(self, path: str, content: bytes) -> None:
        """Write one file, replacing an existing one.

        Raises:
            ArtifactError: the path holds something other than a regular file.
        """
        self._check_regular(path)  # which first asks whether the engine may look there
        check_regular(path)  # the path itself: a target is never a pattern
        self._connection.write(
            f"COPY (SELECT ?::BLOB AS content) TO {DUCKDB.quote_string(path)} (FORMAT BLOB)",
            [content],
        )

    def check_access(self, path: str) -> None:
        """Check that the engine's settings allow a file at `path`, which need not exist.

        Raises:
            duckdb.PermissionException: they do not.
        """
        self.read("SELECT filename FROM system.main.read_blob(?)", [os.path.abspath(path)])

    def columns(self, query: str) -> list[str]:
        """The names of a query's columns.

        Raises:
            ProbeError: the engine cannot bind it.
        """
        return [column.name for column in self._engine.bind(query)]

    def function_type(self, name: str) -> str | None:
        """What a function that the user has made returns; None for any other."""
        return self._engine.function_type(name)

    def view(self, table: str) -> str | None:
        """The query of a view by its name in a query, if it can be written out; else None."""
        return self._engine.view(table)

    def read(self, query: str, parameters: Sequence[Any] = ()) -> Sequence[tuple[Any, ...]]:
        """The rows of a query of ours over what the user has.

        Raises:
            duckdb.Error: the engine's own, without the place in our query: it is the user's data or
                expression that fails, and never the model catalog.
        """
        try:
            return self._engine.native.sql(query, params=list(parameters)).fetchall()
        except duckdb.Error as error:
            raise type(error)(without_excerpt(error)) from None

    def describe(self, query: str) -> list[tuple[str, str]]:
        """Name and type of each column of a query, duplicates included.

        Raises:
            ParseError: it is not one query.
            duckdb.Error: the engine cannot bind it.
        """
        try:
            (statement,) = self._engine.native.extract_statements(query)
        except (duckdb.ParserException, ValueError) as error:
            raise ParseError(f"training takes one query: {error}") from None
        if statement.type != duckdb.StatementType.SELECT:
            raise ParseError("training takes a query, such as SELECT * FROM customers")
        relation = self._engine.relation(query)
        return list(zip(relation.columns, map(str, relation.types), strict=True))

    def estimated_rows(self, query: str) -> int | None:
        """How many rows the engine expects of a query; None if it does not say."""
        return self._engine.rows(query)

    def memory_limit(self) -> float:
        """The bytes of memory that the user lets the engine use."""
        ((told,),) = self._connection.read("SELECT system.main.current_setting('memory_limit')")
        number, _, unit = str(told).partition(" ")
        return float(number) * _UNITS.get(unit, 1)

    def drop_pages(self) -> None:
        """Let the engine forget pages of tables, where they take much of its memory."""
        drop_pages(self._engine.native, self.memory_limit())

    def temporary_folder(self) -> str | None:
        """Where the engine puts what does not fit into memory; None: the system's own folder."""
        ((folder,),) = self._connection.read("SELECT system.main.current_setting('temp_directory')")
        parent = os.path.dirname(os.path.abspath(folder)) if folder else ""
        place = folder if folder and os.path.isdir(folder) else parent
        return place if place and os.access(place, os.W_OK) else None

    def with_values(self, query: str, values: Any) -> str:
        """The query with values in place of its parameters: `?`, `$1` or `$name`."""
        return with_values(query, values, self.literal)

    def literal(self, value: Any) -> str:
        """A value of Python as the engine's SQL writes it, with its type."""
        if value is None or isinstance(value, bool):
            return "NULL" if value is None else str(value).lower()
        if type(value) is int and abs(value) < 1 << 63:
            return str(value)
        if isinstance(value, str) and "\0" not in value:
            return DUCKDB.quote_string(value)
        with self._engine.native.cursor() as own:
            ask = "SELECT CAST(? AS VARCHAR), system.main.typeof(?)"
            ((text, kind),) = own.execute(ask, [value, value]).fetchall()
        return f"CAST({DUCKDB.text(text)} AS {kind})"

    def batches(self, query: str, rows: int) -> Iterator[Any]:
        """Yield the rows of a query as pyarrow RecordBatches of so many rows, as the engine makes
        them.

        Raises:
            ConfigError: the texts of a batch have more bytes than Arrow takes.
            duckdb.Error: the query fails.
        """
        try:
            yield from self._engine.relation(query).to_arrow_reader(rows)
        except (OSError, ValueError) as error:  # Arrow's, for an error of the engine in a batch
            message = str(error)
            if "Arrow Appender" in message:
                raise ConfigError(
                    f"the texts of {rows:,} rows take more than 2 GiB: shorten them in the query, "
                    "as in left(text, 1000)"
                ) from None
            name = message.partition(" Error: ")[0].title().replace(" ", "")
            raise getattr(duckdb, f"{name}Exception", duckdb.Error)(message) from None

    def fetch_frame(self, query: str) -> Any:
        """The rows of a query as a pandas frame.

        Raises:
            ParseError: not a query that can be a subquery.
        """
        try:
            return self._engine.relation(f"FROM (\n{query}\n)").df()
        except duckdb.ParserException as error:
            raise ParseError(str(error)) from None

    def _check_regular(self, path: str) -> None:
        """The engine says what `path` means, if it may look there, and opens nothing for that."""
        if local_path(path) is None:
            return
        ask = "SELECT filename FROM system.main.read_blob(?)"
        for (name,) in self.read(ask, [path]):
            check_regular(str(name))
