"""`Host`: where a session's files and rows are; `RowHost`: rows that models are trained on.

`LOCAL_FILES` are the files of this machine, for reading without an engine.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from sqlml.errors import ArtifactError
from sqlml.regular_files import irregular, local_path, not_regular


class Files(Protocol):
    """Files that models are read from."""

    def read_file(self, path: str) -> list[tuple[str, int]]:
        """Names and sizes of the files that `path` means.

        Raises:
            ArtifactError: one of them is not a regular file.
        """
        ...

    def file_content(self, path: str) -> bytes:
        """The bytes of one file."""
        ...


class LocalFiles:
    """The files of this machine, as the process may read them."""

    def read_file(self, path: str) -> list[tuple[str, int]]:
        """Name and size of the file at `path`; nothing if there is none, or a folder.

        Raises:
            ArtifactError: the path leads to something other than a file or folder, or elsewhere.
        """
        place = local_path(path)
        if place is None:
            raise ArtifactError(
                f"{path!r} is not a path of this machine; register the model in a session: "
                f"CREATE MODEL m FROM '{path}'"
            )
        kind = irregular(place)
        if kind not in (None, "a directory"):
            raise not_regular(path, kind)
        return [(place, os.path.getsize(place))] if os.path.isfile(place) else []

    def file_content(self, path: str) -> bytes:
        """The bytes of one file."""
        with open(local_path(path) or path, "rb") as file:
            return file.read()


LOCAL_FILES = LocalFiles()


class Host(Files, Protocol):
    """Where a session's files and rows are."""

    def write_file(self, path: str, content: bytes) -> None:
        """Write one file, replacing an existing one.

        Raises:
            ArtifactError: the path holds something other than a regular file.
        """
        ...

    def columns(self, query: str) -> list[str]:
        """The names of a query's columns. Raises ProbeError if the engine cannot bind it."""
        ...

    def function_type(self, name: str) -> str | None:
        """What a function that the user has made returns; None for any other."""
        ...

    def view(self, table: str) -> str | None:
        """The query of a view by its name in a query, if it can be written out; else None."""
        ...

    def read(self, query: str, parameters: Sequence[Any] = ()) -> Sequence[tuple[Any, ...]]:
        """The rows of a query of ours."""
        ...

    def with_values(self, query: str, values: Any) -> str:
        """The query with values in place of its parameters: a sequence or a mapping.

        Raises:
            ParseError, ConfigError: a parameter has no value.
        """
        ...

    def fetch_frame(self, query: str) -> Any:
        """The rows of a query as a pandas frame. Raises ParseError if it is not a query."""
        ...


class RowHost(Host, Protocol):
    """A host whose rows models can be trained on: DuckDB's."""

    def check_access(self, path: str) -> None:
        """Check that the engine's settings allow a file at `path`, which need not exist.

        Raises:
            duckdb.PermissionException: they do not.
        """
        ...

    def describe(self, query: str) -> list[tuple[str, str]]:
        """Name and type of each column of a query, in DuckDB's words.

        Raises:
            ParseError: it is not a query, or the engine cannot bind it.
        """
        ...

    def estimated_rows(self, query: str) -> int | None:
        """How many rows the engine expects of a query; None if it does not say."""
        ...

    def memory_limit(self) -> float:
        """The bytes of memory that the user lets the engine use."""
        ...

    def drop_pages(self) -> None:
        """Let the engine forget pages of tables that it has read, where they take much of its
        memory: somebody else needs it."""
        ...

    def temporary_folder(self) -> str | None:
        """Where the engine puts what does not fit into memory; None: the system's own folder."""
        ...

    def batches(self, query: str, rows: int) -> Iterator[Any]:
        """The rows of a query as pyarrow RecordBatches of so many rows, as the engine makes
        them."""
        ...

    def literal(self, value: Any) -> str:
        """A value of Python as the engine's SQL writes it, with its type."""
        ...
