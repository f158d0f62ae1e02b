"""`Programs`: the stored Programs, by content hash; equal ones are stored once."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol

from sqlml.bounded_cache import Recent
from sqlml.catalog.connection import Connection
from sqlml.catalog.tables import SMALL_MODELS
from sqlml.errors import ArtifactError, UnknownModelError
from sqlml.ir import store
from sqlml.ir.ops import NEVER_STORED, text_that_is_not_unicode
from sqlml.ir.program import Program
from sqlml.limits import FORMAT_VERSION

Loaded = Recent[str, Program]
"""Programs that were read or made lately, by hash, or by the beginning of one as it was asked for.

Connections of one database share them: a Program never changes, so none goes stale.
"""


class Programs(Protocol):
    """Stored Programs, wherever they are; equal ones are stored once."""

    def get(self, digest: str, schema: str) -> Program:
        """The Program with this content hash (or a prefix of it, 20 digits or more).

        Raises:
            UnknownModelError: it is not stored in the schema.
            ArtifactError: the stored bytes are damaged.
        """
        ...

    def put(self, program: Program, schema: str) -> None:
        """Store a Program, unless it is stored already."""
        ...

    def keep(self, program: Program) -> None:
        """Have `get` find a Program for now that is not stored, for a function of this session."""
        ...

    def stored_bytes(self, digest: str, schema: str) -> int:
        """What a Program takes where it is stored; 0 where it is not."""
        ...

    def collect(self, digests: list[str], schema: str) -> None:
        """Remove those of these Programs that no version needs any more."""
        ...


class TablePrograms:
    """The Programs of the databases that one connection sees, in a table of each catalog.

    `collected` is told of Programs that are of no use any more, but to queries that run already.
    """

    def __init__(
        self,
        connection: Connection,
        loaded: Loaded,
        collected: Callable[[Collection[str]], None],
    ) -> None:
        self._connection = connection
        self._loaded = loaded
        self._collected = collected

    def get(self, digest: str, schema: str) -> Program:
        """The Program with this content hash, or a prefix of it of 20 digits or more.

        Raises:
            UnknownModelError: it is not stored in the schema.
            ArtifactError: the stored bytes are damaged.
        """
        known = self._loaded.get(digest)
        if known is not None:
            return known
        found = self._connection.exists(schema) and self._connection.read(
            f"SELECT system.main.min(hash) FROM {schema}.catalog_programs "
            "WHERE system.main.starts_with(hash, ?)",
            [digest],
        )
        rows = found and self._connection.read(  # by equality: the engine reads one content
            f"SELECT hash, content FROM {schema}.catalog_programs WHERE hash = ?", found[0]
        )
        if not rows:
            raise UnknownModelError(
                f"the model program {digest[:20]} is not stored in this database; the model that "
                "a view uses may have been dropped: create the view again"
            )
        full, content = rows[0]
        if not isinstance(content, bytes):
            raise ArtifactError(f"the stored model {digest[:20]} is damaged; create it again")
        program = store.loads(content)
        if any(node.op in NEVER_STORED for node in program.nodes):
            raise ArtifactError(
                f"the stored model {digest[:20]} holds operators that sqlml never stores; create "
                "it again"
            )
        if text_that_is_not_unicode(program) is not None:
            raise ArtifactError(
                f"the stored model {digest[:20]} holds texts that are not valid Unicode; create it "
                "again"
            )
        if program.hash != full:
            raise ArtifactError(
                f"the stored model {full[:20]} does not match its hash; create it again"
            )
        self._loaded.put(digest, program, program.nbytes)
        return program

    def put(self, program: Program, schema: str) -> None:
        """Store a Program, unless it is stored already.

        An existing one is changed and changed back: another transaction may be about to collect
        it, and of two that change a row one fails.
        """
        digest = program.hash
        known = self._connection.read(
            f"SELECT 1 FROM {schema}.catalog_programs WHERE hash = ?", [digest]
        )
        if known:
            self._change([digest], schema)
            self._change([digest], schema)
        else:
            self._connection.write(
                f"INSERT INTO {schema}.catalog_programs VALUES (?, ?, ?)",
                [digest, FORMAT_VERSION, store.dumps(program)],
            )
        self._loaded.put(digest, program, program.nbytes)

    def keep(self, program: Program) -> None:
        """Have `get` find a Program for now that is not stored, for a function of this session."""
        self._loaded.put(program.hash, program, program.nbytes)

    def stored_bytes(self, digest: str, schema: str) -> int:
        """What a Program takes where it is stored; 0 where it is not."""
        rows = self._connection.read(
            f"SELECT system.main.octet_length(content) FROM {schema}.catalog_programs "
            "WHERE hash = ?",
            [digest],
        )
        return int(rows[0][0]) if rows else 0

    def collect(self, digests: list[str], schema: str) -> None:
        """Remove those of these Programs that no version needs any more."""
        tables = {"catalog_versions", SMALL_MODELS} & self._connection.tables(schema)
        needed = " ".join(
            f"AND NOT EXISTS (SELECT 1 FROM {schema}.{table} WHERE program = hash)"
            for table in sorted(tables)
        )
        unneeded = [
            digest
            for (digest,) in self._connection.read(
                f"SELECT hash FROM {schema}.catalog_programs "
                f"WHERE system.main.list_contains(?::VARCHAR[], hash) {needed}",
                [digests],
            )
        ]
        if unneeded:
            self._change(unneeded, schema)
            self._connection.write(
                f"DELETE FROM {schema}.catalog_programs "
                "WHERE system.main.list_contains(?::VARCHAR[], hash)",
                [unneeded],
            )
        self._loaded.take(lambda known: any(digest.startswith(known) for digest in digests))
        self._collected(digests)

    def _change(self, digests: list[str], schema: str) -> None:
        """Change the rows of some Programs; again, and they are as before.

        The engine sees no conflict between a DELETE and an UPDATE that changes nothing.
        """
        self._connection.write(
            f"UPDATE {schema}.catalog_programs SET format = system.main.xor(format, -1) "
            "WHERE system.main.list_contains(?::VARCHAR[], hash)",
            [digests],
        )
