"""Read and write files and rows through DuckDB, under DuckDB's access settings."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Sequence
from typing import Any

import duckdb

from sqlml.catalog.catalog_connection import strip_excerpt
from sqlml.dialects import DUCKDB
from sqlml.errors import ConfigError, ParseError
from sqlml.planner.syntax.parameters import inline_values
from sqlml.regular_files import check_regular, find_local_path
from sqlml.udfs.duckdb.engine import DuckDBEngine

_EXTENSION_SUFFIX = ".duckdb_extension"

_FILLER_COLUMNS = 32  # Columns of the temporary table that evicts the pages.

_MIN_PAGE_SHARE = 0.5
"""Pages are only evicted if they fill at least this share of memory_limit."""

_SPARE_BYTES = 48 << 20
"""Bytes of memory_limit to leave free, so that the temporary table always fits."""

_UNITS = {unit: 1 << 10 * n for n, unit in enumerate(("bytes", "KiB", "MiB", "GiB", "TiB"))}


class DuckDBHost:
    """The files and rows of one connection. `RowHost` documents the methods."""

    def __init__(self, engine: DuckDBEngine) -> None:
        self._engine = engine
        self._connection = engine.connection
        self.function_type, self.view = engine.function_type, engine.view
        self.estimated_rows = engine.estimate_rows

    def read_file(self, path: str) -> list[tuple[str, int]]:
        self._check_regular_files(path)
        query = "SELECT filename, size FROM system.main.read_blob(?)"
        return [(str(name), int(size)) for name, size in self.read(query, [path])]

    def file_content(self, path: str) -> bytes:
        self._check_regular_files(path)
        query = "SELECT content FROM system.main.read_blob(?)"
        ((content,),) = self.read(query, [path])
        return bytes(content)

    def write_file(self, path: str, content: bytes) -> None:
        self._check_regular_files(path)  # This also checks that DuckDB may read there.
        check_regular(path)  # A target is a path and never a pattern.
        if not path.endswith(_EXTENSION_SUFFIX):
            self._write_blob(path, content)
            return
        # DuckDB writes no file whose name contains the suffix, but it decides whether the folder
        # may be written to.
        local_path = find_local_path(path)
        if local_path is None:
            raise ConfigError(f"cannot write {path!r}: DuckDB loads extensions from local files")
        partial_suffix = f".{secrets.token_hex(4)}.part"
        self._write_blob(path.removesuffix(_EXTENSION_SUFFIX) + partial_suffix, content)
        os.replace(local_path.removesuffix(_EXTENSION_SUFFIX) + partial_suffix, local_path)

    def _write_blob(self, path: str, content: bytes) -> None:
        target = DUCKDB.quote_string(path)
        query = f"COPY (SELECT ?::BLOB AS content) TO {target} (FORMAT BLOB)"
        self._connection.write(query, [content])

    def check_access(self, path: str) -> None:
        self.read("SELECT filename FROM system.main.read_blob(?)", [os.path.abspath(path)])

    def columns(self, query: str) -> list[str]:
        return [column.name for column in self._engine.bind(query)]

    def read(self, query: str, parameters: Sequence[Any] = ()) -> Sequence[tuple[Any, ...]]:
        """Return the rows of an internal query; errors do not quote the query."""
        try:
            return self._engine.native.sql(query, params=list(parameters)).fetchall()
        except duckdb.Error as error:
            raise type(error)(strip_excerpt(error)) from None

    def describe(self, query: str) -> list[tuple[str, str]]:
        """Return the name and type of each column of a query; duplicate names are kept."""
        try:
            (statement,) = self._engine.native.extract_statements(query)
        except (duckdb.ParserException, ValueError) as error:
            raise ParseError(f"training needs exactly one query: {error}") from None
        if statement.type != duckdb.StatementType.SELECT:
            raise ParseError("training needs a query, such as SELECT * FROM customers")
        relation = self._engine.make_relation(query)
        return list(zip(relation.columns, map(str, relation.types), strict=True))

    def memory_limit(self) -> float:
        ((setting,),) = self._connection.read("SELECT system.main.current_setting('memory_limit')")
        number, _, unit = str(setting).partition(" ")
        return float(number) * _UNITS.get(unit, 1)

    def drop_pages(self) -> None:
        """Evict DuckDB's cached table pages if they fill much of DuckDB's memory.

        Lowering memory_limit would evict the pages, but this setting belongs to the user and
        applies to all connections. So a temporary table on another connection displaces the pages.
        """
        memory_limit = self.memory_limit()
        with self._engine.native.cursor() as cursor:
            query = "SELECT tag, memory_usage_bytes FROM system.main.duckdb_memory()"
            sizes = {str(tag): int(size) for tag, size in cursor.execute(query).fetchall()}
            page_bytes = sum(sizes.get(tag, 0) for tag in ("BASE_TABLE", "EXTERNAL_FILE_CACHE"))
            free_bytes = int(memory_limit) - (sum(sizes.values()) - page_bytes) - _SPARE_BYTES
            if page_bytes < _MIN_PAGE_SHARE * memory_limit or free_bytes <= 0:
                return
            column_list = ", ".join(f"range + {n} AS c{n}" for n in range(_FILLER_COLUMNS))
            row_count = free_bytes // (8 * _FILLER_COLUMNS)
            filler_query = f"SELECT {column_list} FROM system.main.range({row_count})"
            try:
                cursor.execute(f"CREATE TEMP TABLE sqlml_room AS {filler_query}")
                cursor.execute("DROP TABLE temp.main.sqlml_room")
            except (duckdb.OutOfMemoryException, duckdb.IOException):
                return  # Other connections need the memory as well.
            # The allocator returns memory to the system at the end of the next query.
            cursor.execute("SELECT system.main.count(*) FROM system.main.range(1000000)").fetchall()

    def temporary_folder(self) -> str | None:
        """Return a writable folder near DuckDB's spill files, or None if not found."""
        ((folder,),) = self._connection.read("SELECT system.main.current_setting('temp_directory')")
        if folder and not os.path.isdir(folder):
            folder = os.path.dirname(os.path.abspath(folder))
        return folder if folder and os.access(folder, os.W_OK) else None

    def with_values(self, query: str, values: Any) -> str:
        return inline_values(query, values, self.literal)

    def literal(self, value: Any) -> str:
        if value is None or isinstance(value, bool):
            return "NULL" if value is None else str(value).lower()
        if type(value) is int and abs(value) < 1 << 63:
            return str(value)
        if isinstance(value, str) and "\0" not in value:
            return DUCKDB.quote_string(value)
        with self._engine.native.cursor() as cursor:
            query = "SELECT CAST(? AS VARCHAR), system.main.typeof(?)"
            ((text, type_name),) = cursor.execute(query, [value, value]).fetchall()
        return f"CAST({DUCKDB.text(text)} AS {type_name})"

    def batches(self, query: str, rows: int) -> Iterator[Any]:
        """Yield RecordBatches of `rows` rows each, while the query is running."""
        try:
            yield from self._engine.make_relation(query).to_arrow_reader(rows)
        except (OSError, ValueError) as error:  # Arrow wraps errors of DuckDB.
            message = str(error)
            if "Arrow Appender" in message:
                raise ConfigError(
                    f"the texts of a batch, of at most {rows:,} rows, exceed 2 GiB: shorten them, "
                    "for example with left(text, 1000)"
                ) from None
            error_name = message.partition(" Error: ")[0].title().replace(" ", "")
            raise getattr(duckdb, f"{error_name}Exception", duckdb.Error)(message) from None

    def fetch_frame(self, query: str) -> Any:
        try:
            return self._engine.make_relation(f"FROM (\n{query}\n)").df()
        except duckdb.ParserException as error:
            raise ParseError(str(error)) from None

    def _check_regular_files(self, path: str) -> None:
        """Raise an error if `path` matches a file that is not regular. No file is opened."""
        if find_local_path(path) is None:
            return
        query = "SELECT filename FROM system.main.read_blob(?)"
        for (name,) in self.read(query, [path]):
            check_regular(str(name))
