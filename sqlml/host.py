"""The interfaces of a session to files and rows: `Host`, and `RowHost` for training.

`LOCAL_FILES` reads files of this machine without an engine.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from sqlml.errors import ArtifactError
from sqlml.regular_files import find_irregular_kind, find_local_path, make_irregular_file_error


class Files(Protocol):
    """Access to the files from which models are read."""

    def read_file(self, path: str) -> list[tuple[str, int]]:
        """Return (name, size in bytes) of each regular file that matches `path`."""

    def file_content(self, path: str) -> bytes:
        """Return the bytes of one file."""


class LocalFiles:
    """The files of this machine that the process may read."""

    def read_file(self, path: str) -> list[tuple[str, int]]:
        """Return [(name, size in bytes)] of a file, or [] if it is missing or a folder."""
        local = find_local_path(path)
        if local is None:
            hint = f"register the model in a session: CREATE MODEL m FROM '{path}'"
            raise ArtifactError(f"{path!r} is not a path of this machine; {hint}")
        file_kind = find_irregular_kind(local)
        if file_kind not in (None, "a directory"):
            raise make_irregular_file_error(path, file_kind)
        return [(local, os.path.getsize(local))] if os.path.isfile(local) else []

    def file_content(self, path: str) -> bytes:
        with open(find_local_path(path) or path, "rb") as file:
            return file.read()


LOCAL_FILES = LocalFiles()


class Host(Files, Protocol):
    """Access to the files and rows of a session."""

    def write_file(self, path: str, content: bytes) -> None:
        """Write one regular file, and replace an existing file."""

    def columns(self, query: str) -> list[str]:
        """Return the column names of a query; raise ProbeError if the engine cannot bind it."""

    def function_type(self, name: str) -> str | None:
        """Return the result type of a user-defined function, or None for other functions."""

    def view(self, table: str) -> str | None:
        """Return the query that defines the view `table`, or None if it cannot be inlined."""

    def read(self, query: str, parameters: Sequence[Any] = ()) -> Sequence[tuple[Any, ...]]:
        """Return the rows of an internal query."""

    def with_values(self, query: str, values: Any) -> str:
        """Replace the parameters of a query with `values`, a sequence or a mapping."""

    def fetch_frame(self, query: str) -> Any:
        """Return the rows of a query as a pandas frame; raise ParseError if it is no query."""


class RowHost(Host, Protocol):
    """A host that reads training rows. Only DuckDB's host implements this protocol."""

    def check_access(self, path: str) -> None:
        """Check that the engine's settings allow a file at `path`, even if it does not exist."""

    def describe(self, query: str) -> list[tuple[str, str]]:
        """Return (name, DuckDB type) of each column; raise ParseError if `query` is invalid."""

    def estimated_rows(self, query: str) -> int | None:
        """Return the engine's estimate of a query's row count, or None if there is no estimate."""

    def memory_limit(self) -> float:
        """Return the engine's memory limit in bytes."""

    def drop_pages(self) -> None:
        """Evict the engine's cached table pages if the pages fill much of the memory."""

    def temporary_folder(self) -> str | None:
        """Return the engine's folder for temporary files, or None for the system's folder."""

    def batches(self, query: str, rows: int) -> Iterator[Any]:
        """Yield pyarrow RecordBatches of `rows` rows while the engine computes the query."""

    def literal(self, value: Any) -> str:
        """Convert a Python value to a typed SQL literal of the engine."""
