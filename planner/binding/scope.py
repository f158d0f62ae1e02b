"""`Scope`: where a call stands, and how the engine binds its arguments there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlml.dialects import Dialect
from sqlml.errors import BindError
from sqlml.parsing.places import Span
from sqlml.planner.binding.probe_queries import Column, Describe, Text, columns_of
from sqlml.planner.syntax.outline import Block, Outline


@dataclass(frozen=True, slots=True)
class Scope:
    """Where a call stands: the statement, the block around it, and the engine.

    `text` is the statement as it goes to the engine, `probed` as it stands in probes: there calls
    and parameters are NULLs of their types. `untyped` are the parameters and local names, which
    have no type yet, `types` the types of parameters that their values tell.
    """

    outline: Outline
    block: Block | None
    text: Text
    probed: Text
    untyped: frozenset[Span]
    describe: Describe
    dialect: Dialect
    types: Mapping[Span, str]

    @property
    def sql(self) -> str:
        """The statement as the user wrote it."""
        return self.outline.sql

    def columns(self, places: Sequence[Span]) -> tuple[tuple[Column, ...], ...]:
        """The columns that the select items at these places yield here.

        Raises:
            BindError: the engine cannot bind them.
        """
        found = self.ask([self.probed(place) for place in places])
        return tuple(
            (Column("NULL", "NULL"),) if self._is_untyped(place) else columns
            for place, columns in zip(places, found, strict=True)
        )

    def single(self, places: Sequence[Span]) -> tuple[Column, ...]:
        """The one column that each of the expressions at these places yields.

        Raises:
            BindError: the engine cannot bind one, or it yields several columns.
        """
        asked = [place for place in places if place not in self.types]
        found = dict(zip(asked, self.columns(asked) if asked else (), strict=True))
        for place, columns in found.items():
            if len(columns) != 1:
                raise BindError(
                    f"{self.text(place)} stands for {len(columns)} columns; write * or "
                    "COLUMNS(..) on its own, or one expression per feature",
                    self.sql,
                    place.start,
                )
        known = {place: (Column("", kind),) for place, kind in self.types.items()}
        return tuple((found.get(place) or known[place])[0] for place in places)

    def _is_untyped(self, place: Span) -> bool:
        """NULL itself (1.5 says that it is INTEGER), or a name or parameter without a type."""
        return place in self.untyped or self.sql[place.start : place.end].upper() == "NULL"

    def ask(self, items: Sequence[str]) -> tuple[tuple[Column, ...], ...]:
        """The columns that `items`, written as SQL, yield here."""
        return columns_of(items, self.block, self.probed, self.describe)
