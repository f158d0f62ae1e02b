"""`Scope`: where a call stands, and what the engine says of its arguments there."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from sqlml.dialects import Dialect
from sqlml.errors import BindError
from sqlml.front.lexer import Token
from sqlml.planner.blocks import Block
from sqlml.planner.clauses import Span
from sqlml.planner.probe import Column, Describe, Text, columns_of
from sqlml.types import fold

_BLAMED = re.compile(
    r'with name "?([^"\s]+)"? does not exist|Referenced (?:column|table) "([^"]+)" not found'
    r'|does not have a column named "([^"]+)"|with name `([^`]+)` cannot be resolved'
)
"""What the engine says of a name that it does not know."""


@dataclass(frozen=True, slots=True)
class Scope:
    """Where a call stands: the statement, its tokens, the block around it, and the engine.

    `text` is the statement as it goes to the engine, `probed` as it stands in probes: there calls
    and parameters are NULLs of their types. `untyped` are the tokens of parameters and local
    names, which have no type yet.
    """

    sql: str
    tokens: Sequence[Token]
    block: Block | None
    text: Text
    probed: Text
    untyped: frozenset[int]
    describe: Describe
    dialect: Dialect

    def span(self, start: int, end: int) -> str:
        """Tokens[start:end] as they go to the engine."""
        return self.text(self._span(start, end))

    def columns(self, ranges: Sequence[tuple[int, int]]) -> tuple[tuple[Column, ...], ...]:
        """The columns that the select items tokens[start:end] yield here.

        Raises:
            BindError: the engine cannot bind them.
        """
        found = self.ask([self.probed(self._span(start, end)) for start, end in ranges])
        return tuple(
            (Column("NULL", "NULL"),) if self._is_untyped(start, end) else columns
            for (start, end), columns in zip(ranges, found, strict=True)
        )

    def single(self, ranges: Sequence[tuple[int, int]]) -> tuple[Column, ...]:
        """The one column that each of the expressions tokens[start:end] yields.

        Raises:
            BindError: the engine cannot bind one, or it yields several columns.
        """
        found = self.columns(ranges)
        for (start, end), columns in zip(ranges, found, strict=True):
            if len(columns) != 1:
                raise BindError(
                    f"{self.span(start, end)} stands for {len(columns)} columns; write * or "
                    "COLUMNS(..) alone, or one expression per feature",
                    self.sql,
                    self.tokens[start].start,
                )
        return tuple(column for (column,) in found)

    def _is_untyped(self, start: int, end: int) -> bool:
        """NULL itself (1.5 says that it is INTEGER), or a name or parameter without a type."""
        if end - start == 1 and self.tokens[start].upper == "NULL":
            return True
        return all(i in self.untyped for i in range(start, end))

    def ask(self, items: Sequence[str]) -> tuple[tuple[Column, ...], ...]:
        """The columns that `items`, written as SQL, yield here."""
        return columns_of(items, self.block, self.probed, self.describe)

    def place_of(self, message: str, place: int) -> int:
        """Where in the statement the name stands that the engine's message is about.

        Of several places the first behind `place`, which is the answer where there is none.
        """
        blamed = _BLAMED.search(message)
        if blamed is None:
            return place
        name = fold(next(g for g in blamed.groups() if g is not None).split(".")[-1])
        found = [t.start for t in self.tokens if t.is_identifier and fold(t.text) == name]
        behind = [start for start in found if start >= place]
        return behind[0] if behind else found[-1] if found else place

    def _span(self, start: int, end: int) -> Span:
        return Span(self.tokens[start].start, self.tokens[end - 1].end)
