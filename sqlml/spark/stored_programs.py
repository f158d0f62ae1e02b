"""`FilePrograms`: stored Programs as files of a directory, by content hash."""

from __future__ import annotations

from sqlml.catalog.stored_programs import Loaded
from sqlml.errors import ArtifactError, UnknownModelError
from sqlml.ir import store
from sqlml.ir.ops import NEVER_STORED
from sqlml.ir.program import Program
from sqlml.spark.catalog_directory import Directory


class FilePrograms:
    """Programs as files of a catalog directory, each named by its digest. A file never changes."""

    def __init__(self, directory: Directory, loaded: Loaded) -> None:
        self._directory = directory
        self._loaded = loaded

    def get(self, digest: str, schema: str) -> Program:
        """Load the Program with a whole digest, from memory if it was loaded before."""
        known = self._loaded.get(digest)
        if known is not None:
            return known
        content = self._directory.program(digest)
        if content is None:
            raise UnknownModelError(
                f"the model program {digest[:20]} is not in {self._directory.place}; create the "
                "model again"
            )
        program = store.loads(content)
        if any(node.op in NEVER_STORED for node in program.nodes):
            raise ArtifactError(
                f"{self._directory.program_place(digest)} holds operators that sqlml never stores; "
                "remove it"
            )
        if program.hash != digest:
            raise ArtifactError(
                f"{self._directory.program_place(digest)} does not match the hash in its name; "
                "remove it, and create the model again"
            )
        self._loaded.put(digest, program, program.nbytes)
        return program

    def put(self, program: Program, schema: str) -> None:
        """Write a Program's file, unless there is one."""
        self._directory.add_program(program.hash, store.dumps(program))
        self._loaded.put(program.hash, program, program.nbytes)

    def keep(self, program: Program) -> None:
        """Have `get` find a Program for now that is not stored, for a function of this session."""
        self._loaded.put(program.hash, program, program.nbytes)

    def stored_bytes(self, digest: str, schema: str) -> int:
        """Bytes of a Program's file; 0 if there is none."""
        return self._directory.program_bytes(digest) or 0

    def collect(self, digests: list[str], schema: str) -> None:
        """Do nothing: a Program leaves with the last index that names it (`Directory`)."""
