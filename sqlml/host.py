"""The interfaces of a session to files and rows: `Host`, and `RowHost` for training.

`LOCAL_FILES` reads the files of this machine without an engine.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from sqlml.errors import ArtifactError
from sqlml.regular_files import irregular_file_error, irregular_kind, local_path


class Files(Protocol):
    """Access to the files from which models are read."""

    def read_file(self, path: str) -> list[tuple[str, int]]:
        """Return the (name, size in bytes) of each regular file to which `path` refers."""

    def file_content(self, path: str) -> bytes:
        """Return the bytes of one file."""


class LocalFiles:
    """The files of this machine that the process may read."""

    def read_file(self, path: str) -> list[tuple[str, int]]:
        """Return (name, size in bytes) of the file at `path`; [] if it is missing or a folder."""
        local = local_path(path)
        if local is None:
            advice = f"register the model in a session: CREATE MODEL m FROM '{path}'"
            raise ArtifactError(f"{path!r} is not a path of this machine; {advice}")
        file_kind = irregular_kind(local)
        if file_kind not in (None, "a directory"):
            raise irregular_file_error(path, file_kind)
        return [(local, os.path.getsize(local))] if os.path.isfile(local) else []

    def file_content(self, path: str) -> bytes:
        with open(local_path(path) or path, "rb") as file:
            return file.read()


LOCAL_FILES = LocalFiles()


class Host(Files, Protocol):
    """Access to the files and rows of a session."""

    def write_file(self, path: str, content: bytes) -> None:
        """Write one regular file, replacing an existing one."""

    def columns(self, query: str) -> list[str]:
        """Return the column names of a query; if the engine cannot bind it, raise ProbeError."""

    def function_type(self, name: str) -> str | None:
        """Return the result type of a user-defined function; None for any other function."""

    def view(self, table: str) -> str | None:
        """Return the query that defines the view `table`; None if it cannot be inlined."""

    def read(self, query: str, parameters: Sequence[Any] = ()) -> Sequence[tuple[Any, ...]]:
        """Run a query that sqlml wrote, and return its rows."""

    def with_values(self, query: str, values: Any) -> str:
        """Replace the parameters of a query with `values`, a sequence or a mapping."""

    def fetch_frame(self, query: str) -> Any:
        """Return the rows of a query as a pandas frame; if it is not a query, raise ParseError."""


class RowHost(Host, Protocol):
    """A host that reads the rows on which models are trained; only DuckDB's host implements it."""

    def check_access(self, path: str) -> None:
        """Check that the engine's settings allow a file at `path`, even if it does not exist."""

    def describe(self, query: str) -> list[tuple[str, str]]:
        """Return (name, DuckDB type) of each column; if `query` is invalid, raise ParseError."""

    def estimated_rows(self, query: str) -> int | None:
        """Return the row count that the engine estimates for a query; None without an estimate."""

    def memory_limit(self) -> float:
        """Return the engine's memory limit in bytes."""

    def drop_pages(self) -> None:
        """Make the engine drop cached table pages if these fill much of its memory."""

    def temporary_folder(self) -> str | None:
        """Return the engine's folder for temporary files; None means the folder of the system."""

    def batches(self, query: str, rows: int) -> Iterator[Any]:
        """Yield pyarrow RecordBatches of `rows` rows while the engine computes the query."""

    def literal(self, value: Any) -> str:
        """Convert a Python value to a typed SQL literal of the engine."""
