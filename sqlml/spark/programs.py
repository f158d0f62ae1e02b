"""`FilePrograms`: stored Programs as files of a directory, by content hash."""

from __future__ import annotations

from sqlml.catalog.programs import Loaded
from sqlml.errors import ArtifactError, UnknownModelError
from sqlml.ir import store
from sqlml.ir.program import Program
from sqlml.spark.files import Files


class FilePrograms:
    """See `Programs`. A file is never changed, and stays when its last model is dropped: a query of
    another session, or a stream, may be about to read it."""

    def __init__(self, files: Files, loaded: Loaded) -> None:
        self._files = files
        self._loaded = loaded

    def get(self, digest: str, schema: str) -> Program:
        """See `Programs`; the digest is whole."""
        known = self._loaded.get(digest)
        if known is not None:
            return known
        content = self._files.read(_path(digest))
        if content is None:
            raise UnknownModelError(
                f"the model program {digest[:20]} is not in {self._files.place}; create the model "
                "again"
            )
        program = store.loads(content)
        if program.hash != digest:
            raise ArtifactError(
                f"{self._files.place}/{_path(digest)} has other content than its name says; remove "
                "it, and create the model again"
            )
        self._loaded.put(digest, program, program.nbytes)
        return program

    def put(self, program: Program, schema: str) -> None:
        """See `Programs`."""
        self._files.add(_path(program.hash), store.dumps(program))
        self._loaded.put(program.hash, program, program.nbytes)

    def stored_bytes(self, digest: str, schema: str) -> int:
        """See `Programs`."""
        return self._files.size(_path(digest)) or 0

    def collect(self, digests: list[str], schema: str) -> None:
        """See `Programs`: nothing is removed."""


def _path(digest: str) -> str:
    return f"programs/{digest}.sqlml"
