"""Stored Programs, keyed by content hash. Equal Programs are stored once."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol

from sqlml.bounded_cache import RecentCache
from sqlml.catalog.catalog_connection import Connection
from sqlml.catalog.tables import SMALL_MODELS
from sqlml.catalog.view_macros import empty_view_macros
from sqlml.errors import ArtifactError, UnknownModelError
from sqlml.ir import store
from sqlml.ir.ops import NEVER_STORED, find_invalid_unicode
from sqlml.ir.program import Program
from sqlml.limits import FORMAT_VERSION

Loaded = RecentCache[str, Program]
"""Recently used Programs, keyed by the hash or the prefix of a hash in the request.

Connections to one database share the Programs. A Program never changes, so no entry becomes stale.
"""

_HAS_HASH = "system.main.list_contains(?::VARCHAR[], hash)"


class Programs(Protocol):
    """A store of Programs, in which equal Programs are stored once."""

    def get(self, digest: str, schema: str) -> Program:
        """Return the Program whose content hash starts with `digest` (20 digits or more).

        If the schema lacks the Program, UnknownModelError is raised. If the Program is damaged,
        ArtifactError is raised.
        """

    def put(self, program: Program, schema: str) -> None:
        """Store a Program unless it is already stored."""

    def keep(self, program: Program) -> None:
        """Keep a Program in memory without storing it, for the functions of this session."""

    def measure_stored_size(self, digest: str, schema: str) -> int:
        """Return the stored size of a Program in bytes, or 0 if the Program is not stored."""

    def collect(self, digests: list[str], schema: str) -> None:
        """Remove the Programs with the hashes `digests`, unless a version still uses them."""


class TablePrograms:
    """The Programs of the databases that one connection sees, in a table of each catalog.

    `collected` is called with the hashes of removed Programs, which running queries may still use.
    """

    def __init__(
        self, connection: Connection, loaded: Loaded, collected: Callable[[Collection[str]], None]
    ) -> None:
        self._connection = connection
        self._cache = loaded
        self._on_collected = collected

    def get(self, digest: str, schema: str) -> Program:
        cached = self._cache.get(digest)
        if cached is not None:
            return cached
        hashes = self._connection.has_catalog(schema) and self._connection.read(
            f"SELECT system.main.min(hash) FROM {schema}.catalog_programs "
            "WHERE system.main.starts_with(hash, ?)",
            [digest],
        )
        # A comparison for equality lets the engine read the content of one row only.
        rows = hashes and self._connection.read(
            f"SELECT hash, content FROM {schema}.catalog_programs WHERE hash = ?", hashes[0]
        )
        if not rows:
            raise UnknownModelError(
                f"the model program {digest[:20]} is not stored in this database; the model that "
                "a view uses may have been dropped: create the view again"
            )
        full_hash, content = rows[0]
        if not isinstance(content, bytes):
            raise ArtifactError(f"the stored model {digest[:20]} is damaged; create it again")
        program = store.loads(content)
        fault = None
        if any(node.op in NEVER_STORED for node in program.nodes):
            fault = "has operators that sqlml never stores"
        elif find_invalid_unicode(program) is not None:
            fault = "has strings that are not valid Unicode"
        elif program.hash != full_hash:
            fault = "does not match its hash"
        if fault is not None:
            raise ArtifactError(f"the stored model {digest[:20]} {fault}; create it again")
        self._cache.put(digest, program, program.nbytes)
        return program

    def put(self, program: Program, schema: str) -> None:
        # The row of a stored Program is changed and changed back, so that a transaction that
        # removes the Program conflicts with this one.
        digest = program.hash
        query = f"SELECT 1 FROM {schema}.catalog_programs WHERE hash = ?"
        if self._connection.read(query, [digest]):
            for _ in range(2):
                self._flip_format([digest], schema)
        else:
            row = [digest, FORMAT_VERSION, store.dumps(program)]
            self._connection.write(f"INSERT INTO {schema}.catalog_programs VALUES (?, ?, ?)", row)
        self._cache.put(digest, program, program.nbytes)

    def keep(self, program: Program) -> None:
        self._cache.put(program.hash, program, program.nbytes)

    def measure_stored_size(self, digest: str, schema: str) -> int:
        size_sql = "system.main.octet_length(content)"
        query = f"SELECT {size_sql} FROM {schema}.catalog_programs WHERE hash = ?"
        rows = self._connection.read(query, [digest])
        return int(rows[0][0]) if rows else 0

    def collect(self, digests: list[str], schema: str) -> None:
        tables = {"catalog_versions", SMALL_MODELS} & self._connection.list_tables(schema)
        unused_condition = " ".join(
            f"AND NOT EXISTS (SELECT 1 FROM {schema}.{table} WHERE program = hash)"
            for table in sorted(tables)
        )
        query = f"SELECT hash FROM {schema}.catalog_programs WHERE {_HAS_HASH} {unused_condition}"
        unneeded = [str(digest) for (digest,) in self._connection.read(query, [digests])]
        if unneeded:
            self._flip_format(unneeded, schema)
            query = f"DELETE FROM {schema}.catalog_programs WHERE {_HAS_HASH}"
            self._connection.write(query, [unneeded])
            empty_view_macros(self._connection, schema, unneeded)
        self._cache.take(lambda prefix: any(digest.startswith(prefix) for digest in digests))
        self._on_collected(digests)

    def _flip_format(self, digests: list[str], schema: str) -> None:
        """Change the format of Programs, so that transactions that remove the Programs conflict."""
        update = f"UPDATE {schema}.catalog_programs SET format = system.main.xor(format, -1)"
        self._connection.write(f"{update} WHERE {_HAS_HASH}", [digests])
