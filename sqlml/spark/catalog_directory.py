"""A catalog in a directory of files that several sessions share.

::

    index/00000000000000000007.json    the models after the seventh change
    programs/<hash>.sqlml              a stored Program, in the format of EXPORT MODEL

A change writes the next index, which only one session can create. No file is ever overwritten. The
last ten indexes and the referenced Programs are kept for sessions that still read them.

`Mirror` copies the catalog to tables of a DuckDB database in this process, so that the code that
reads and changes catalogs works unchanged. Before each read, `Mirror` loads the newest index.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import duckdb

from sqlml.catalog.catalog_connection import Connection
from sqlml.catalog.stored_programs import Loaded
from sqlml.catalog.tables import TABLES, TRAINING_TABLES
from sqlml.dialects import DUCKDB
from sqlml.errors import ArtifactError, CatalogError, ConflictError, UnknownModelError
from sqlml.ir import store
from sqlml.ir.ops import NEVER_STORED
from sqlml.ir.program import Program
from sqlml.spark.files import Files

FORMAT = 1
"""Version of the index format. A later version of sqlml must read all earlier formats."""

RETAINED_INDEXES = 10
"""The number of newest indexes that are kept, including the current one."""


class Directory:
    """The indexes and Programs of one catalog, as files."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._added: dict[str, bytes] = {}
        self.location: str = files.location

    def newest(self) -> int:
        """Return the number of the newest index, or 0 if there is no index."""
        return max(self._list_numbers(), default=0)

    def index(self, number: int) -> dict[str, Any]:
        """Read index `number`; return a dictionary that maps table names to lists of rows."""
        path = f"{self.location}/{_index_path(number)}"
        content = self._files.read(_index_path(number))
        if content is None:
            raise CatalogError(f"{path} no longer exists; try again")
        try:
            tables = dict(json.loads(content))
            version = tables.pop("sqlml_catalog")
        except (ValueError, KeyError, TypeError, RecursionError):
            raise CatalogError(
                f"the model catalog is damaged: {path} is not an sqlml index; remove the file to "
                "fall back to the one before it"
            ) from None
        if version != FORMAT:
            raise CatalogError(
                f"{path} was written by a later version of sqlml (format {version!r}); update sqlml"
            )
        return tables

    def write_index(self, number: int, tables: dict[str, Any]) -> bool:
        """Write index `number`; return False if another session has already written this index."""
        content = json.dumps({"sqlml_catalog": FORMAT, **tables}, indent=1, default=str).encode()
        if not self._files.add(_index_path(number), content):
            return False
        if self.newest() >= number + RETAINED_INDEXES:
            # Other sessions have already written and removed an index with this number.
            self._files.remove(_index_path(number))
            return False
        for digest, program in self._added.items():
            if self.program_bytes(digest) is None:  # Another session has removed the file.
                self._files.add(_program_path(digest), program)
        self._added = {}
        with suppress(CatalogError):  # The change is complete. The next change tries again.
            self._remove_unused(number, tables)
        return True

    def program(self, digest: str) -> bytes | None:
        """Return a stored Program, or None if it is missing."""
        return self._files.read(_program_path(digest))

    def program_bytes(self, digest: str) -> int | None:
        return self._files.size(_program_path(digest))

    def locate_program(self, digest: str) -> str:
        """Return the path of a stored Program, for messages."""
        return f"{self.location}/{_program_path(digest)}"

    def add_program(self, digest: str, content: bytes) -> None:
        """Store a Program that the next index will refer to."""
        self._added[digest] = content
        self._files.add(_program_path(digest), content)

    def _remove_unused(self, newest: int, newest_tables: dict[str, Any]) -> None:
        """Remove old indexes, and the Programs that no remaining index refers to."""
        index_numbers = self._list_numbers()
        old_numbers = [number for number in index_numbers if number <= newest - RETAINED_INDEXES]
        unused_digests = {digest for n in old_numbers for digest in _list_programs(self.index(n))}
        unused_digests -= _list_programs(newest_tables)
        if unused_digests:
            for number in set(index_numbers) - {*old_numbers, newest}:
                unused_digests -= _list_programs(self.index(number))
            if self.newest() != newest:
                return  # A newer index may refer to an unused Program.
        for digest in unused_digests:
            self._files.remove(_program_path(digest))
        for number in old_numbers:
            self._files.remove(_index_path(number))

    def _list_numbers(self) -> list[int]:
        names = self._files.names("index")
        return [int(name[:20]) for name in names if re.fullmatch(r"0[0-9]{19}\.json", name)]


def _list_programs(tables: dict[str, Any]) -> set[str]:
    try:
        rows = [*tables["versions"], *tables.get("small_models", ())]
        return {str(row["program"]) for row in rows}
    except (KeyError, TypeError) as error:
        raise CatalogError(f"not an sqlml index: {error}") from None


def _program_path(digest: str) -> str:
    if re.fullmatch("[0-9a-f]{64}", digest) is None:  # A forged index may name any path.
        raise CatalogError(f"the catalog is damaged: {digest[:80]!r} is not the hash of a model")
    return f"programs/{digest}.sqlml"


def _index_path(number: int) -> str:
    return f"index/{number:020d}.json"


class FilePrograms:
    """The Programs of a catalog directory, keyed by hash; `loaded` is this session's cache."""

    def __init__(self, directory: Directory, loaded: Loaded) -> None:
        self._directory = directory
        self._loaded = loaded

    def get(self, digest: str, schema: str) -> Program:
        cached = self._loaded.get(digest)
        if cached is not None:
            return cached
        content = self._directory.program(digest)
        if content is None:
            problem = f"the model program {digest[:20]} is not in {self._directory.location}"
            raise UnknownModelError(f"{problem}; create the model again")
        program, path = store.loads(content), self._directory.locate_program(digest)
        if any(node.op in NEVER_STORED for node in program.nodes):
            raise ArtifactError(f"{path} has operators that sqlml never stores; remove it")
        if program.hash != digest:
            raise ArtifactError(
                f"{path} does not match the hash in its name; remove it, and create the model again"
            )
        self._loaded.put(digest, program, program.nbytes)
        return program

    def put(self, program: Program, schema: str) -> None:
        self._directory.add_program(program.hash, store.dumps(program))
        self._loaded.put(program.hash, program, program.nbytes)

    def keep(self, program: Program) -> None:
        self._loaded.put(program.hash, program, program.nbytes)

    def measure_stored_size(self, digest: str, schema: str) -> int:
        return self._directory.program_bytes(digest) or 0

    def collect(self, digests: list[str], schema: str) -> None:
        """Do nothing, because `Directory` removes unused Programs together with old indexes."""


_ATTEMPTS = 20

_SCHEMA = '"sqlml"'
_TABLES = ("models", "versions", "aliases", "tags")
_OPTIONAL_TABLES = ("small_models", "trainings")
"""Tables that the indexes of older sqlml versions lack."""


class Mirror(Connection):
    """A connection to a copy of a directory's catalog, for one session and one thread at a time."""

    def __init__(self, directory: Directory) -> None:
        super().__init__(duckdb.connect())
        self._directory = directory
        self._loaded_number = 0
        self._is_reading_paused = False

    def read(self, sql: str, params: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        self.catch_up_with_directory()
        return super().read(sql, params)

    def find_type(self, name: str) -> str | None:
        self.catch_up_with_directory()
        return super().find_type(name)

    def run_atomically(self, work: Callable[[], None], is_open: bool | None = None) -> None:
        """Run `work` on the newest tables, and write the changed tables as the next index.

        If another session changes the catalog meanwhile, start again with the newest tables.
        """
        for _ in range(_ATTEMPTS):
            self.catch_up_with_directory()
            with self._without_reading():
                self.native.execute("BEGIN TRANSACTION")
                try:
                    work()
                    number = self._loaded_number + 1
                    is_written = self._directory.write_index(number, self._read_tables())
                    self.native.execute("COMMIT" if is_written else "ROLLBACK")
                except BaseException:
                    self.native.execute("ROLLBACK")
                    raise
                if is_written:
                    self._loaded_number = number
                    return
        raise ConflictError("other sessions keep changing the models in this directory; try again")

    def catch_up_with_directory(self) -> None:
        if self._is_reading_paused:
            return
        newest = self._directory.newest()
        if newest == self._loaded_number:
            return
        with self._without_reading():
            self._load(self._directory.index(newest) if newest else None)
            self._loaded_number = newest

    def _load(self, tables: dict[str, Any] | None) -> None:
        """Replace the catalog with `tables`, or remove the catalog if `tables` is None."""
        execute = self.native.execute
        execute("BEGIN TRANSACTION")
        try:
            execute("DROP SCHEMA IF EXISTS sqlml CASCADE")
            if tables is not None:
                for statement in (*TABLES, *TRAINING_TABLES):
                    execute(statement.format(schema=_SCHEMA))
                for table in _TABLES:
                    self._fill(f"{_SCHEMA}.catalog_{table}", tables[table])
                for table in _OPTIONAL_TABLES:
                    self._fill(f"{_SCHEMA}.catalog_{table}", tables.get(table, ()))
            execute("COMMIT")
        except (duckdb.Error, KeyError, TypeError, AttributeError) as error:
            execute("ROLLBACK")
            raise CatalogError(
                f"the model catalog in {self._directory.location} is damaged ({error}); remove the "
                "newest file of its index to fall back to the one before it"
            ) from None

    def _fill(self, table: str, rows: Sequence[dict[str, Any]]) -> None:
        for row in rows:
            names, placeholders = ", ".join(map(DUCKDB.quote_name, row)), ", ".join("?" * len(row))
            insert_sql = f"INSERT INTO {table} ({names}) VALUES ({placeholders})"
            self.native.execute(insert_sql, list(row.values()))

    def _read_tables(self) -> dict[str, Any]:
        tables: dict[str, Any] = {}
        existing_tables = self.list_tables(_SCHEMA)
        for table in (*_TABLES, *_OPTIONAL_TABLES):
            if table in _TABLES or f"catalog_{table}" in existing_tables:
                relation = self.native.sql(f"FROM {_SCHEMA}.catalog_{table} ORDER BY ALL")
                names = relation.columns
                tables[table] = [dict(zip(names, row, strict=True)) for row in relation.fetchall()]
        return tables

    @contextmanager
    def _without_reading(self) -> Iterator[None]:
        """Prevent reads in the block from loading a newer index, which would replace all tables."""
        self._is_reading_paused = True
        try:
            yield
        finally:
            self._is_reading_paused = False
