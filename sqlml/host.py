"""`Host`: where a session's files and rows are; `RowHost`: rows that models are trained on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol


class Host(Protocol):
    """Where a session's files and rows are."""

    def read_file(self, path: str) -> list[tuple[str, int]]:
        """Names and sizes of the files that `path` means.

        Raises:
            ArtifactError: one of them is not a regular file.
        """
        ...

    def file_content(self, path: str) -> bytes:
        """The bytes of one file."""
        ...

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
