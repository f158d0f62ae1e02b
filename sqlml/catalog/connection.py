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

    def tables(self, schema: str) -> frozenset[str]:
        """The catalog's tables that a schema, as `schema` gave it, has: all that may be used.

        Raises:
            CatalogError: one of them is not as sqlml makes it (`sound_tables.py`).
        """
        ...

    @property
    def keeps_types(self) -> bool:
        """Whether a file with a type in it can be opened after its process was killed."""
        ...

    def type(self, name: str) -> str | None:
        """The definition of a type by its qualified name (already quoted); None if it does not
        exist."""
        ...

    def parameters(self, function: str, name: str) -> list[str]:
        """The lists of parameters of a qualified function (quoted) of this name, as text."""
        ...

    def exists(self, schema: str) -> bool:
        """Whether the qualified schema (already quoted) has a model catalog.

        Raises:
            CatalogError: it is not as sqlml makes it.
        """
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

    def collected(self, digests: Sequence[str]) -> None:
        """Called with the Programs that are no longer needed after the statement."""
        ...

    def has_database(self, name: str) -> bool:
        """Whether a database of this name is attached."""
        ...
