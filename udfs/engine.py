"""The contract of an engine: what binds queries, runs them and takes functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from sqlml.planner.probe import Column


@dataclass(frozen=True, slots=True)
class EngineFunction:
    """A function to register: its name, its batch function, and its types in the engine.

    Without a `function` it is one of ours, to be made from its name when the first batch comes.
    A `volatile` one is evaluated where it is written, and nowhere else.
    """

    name: str
    function: Callable[..., Any] | None
    argument_types: tuple[str, ...]
    result_type: str
    volatile: bool = False


class Host(Protocol):
    """Where a session's files and rows are."""

    def read_file(self, path: str) -> list[tuple[str, int]]:
        """Names and sizes of the files that `path` means.

        Raises:
            ArtifactError: one of them is no regular file.
        """
        ...

    def file_content(self, path: str) -> bytes:
        """The bytes of one file."""
        ...

    def write_file(self, path: str, content: bytes) -> None:
        """Write one file, over one that is there.

        Raises:
            ArtifactError: something is there that is no regular file.
        """
        ...

    def fetch_frame(self, query: str) -> Any:
        """The rows of a query as a pandas frame. Raises ParseError where it is no query."""
        ...


class Engine(Protocol):
    """A SQL engine; it knows nothing of models."""

    def bind(self, query: str) -> tuple[Column, ...]:
        """Names and types of a query's result, without running it."""
        ...

    def register(self, function: EngineFunction) -> str:
        """Make the function callable in the current transaction; returns the name to call."""
        ...

    def execute(self, sql: str, parameters: Any = None) -> Any:
        """Run one statement and return the engine's own result object."""
        ...
