"""`Connection`: what the catalog needs of an engine's connection."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol


class Connection(Protocol):
    """A connection of a SQL engine, for the catalog's own statements."""

    def read(self, sql: str, params: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Rows of a query, in the user's transaction."""
        ...

    def write(self, sql: str, params: Sequence[Any] = ()) -> None:
        """Run a statement in the user's transaction."""
        ...

    def columns(self, relation: str) -> tuple[str, ...] | None:
        """The columns' names of a qualified table or view (already quoted); None: there is none."""
        ...

    def parameters(self, function: str, name: str) -> list[str]:
        """The lists of parameters of a qualified function (quoted) of this name, as text."""
        ...

    def exists(self, schema: str) -> bool:
        """Whether the qualified schema (already quoted) has a model catalog."""
        ...

    def atomic(self, work: Callable[[], None]) -> None:
        """Run `work` in the user's open transaction, or else in one of its own."""
        ...

    def in_transaction(self) -> bool:
        """Whether the user has a transaction open."""
        ...

    def schema(self, database: str | None) -> str:
        """The qualified, quoted schema of the catalog in a database (None: the current one)."""
        ...

    def has_database(self, name: str) -> bool:
        """Whether a database of this name is attached."""
        ...
