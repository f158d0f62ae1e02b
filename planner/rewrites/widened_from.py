"""`Source`: a FROM clause that can take a column more, as text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sqlml.dialects import Dialect
from sqlml.parsing.places import Span, overlaps
from sqlml.planner.syntax.outline import ModelCall, Outline, SingleSource


@dataclass(frozen=True, slots=True)
class Source:
    """A FROM clause that can take a column more, and its name.

    `stars` are the places of the block's stars, and `lists` what opens a star's own list of columns
    to leave out. `filters` are the operands of WHERE's ANDs that call no model.
    """

    span: Span
    alias: str
    stars: tuple[Span, ...]
    lists: tuple[Span, ...]
    filters: tuple[Span, ...]

    def text(
        self, written: str, columns: Mapping[str, str], where: Sequence[str], dialect: Dialect
    ) -> str:
        """The FROM clause `written` with `columns` (name -> expression) besides its own."""
        made = ", ".join(f"{sql} AS {dialect.quote_name(name)}" for name, sql in columns.items())
        return f"(SELECT *, {made} FROM {written}{_where(where)}) AS {self.alias}"

    def numbered(
        self, written: str, order: Sequence[str], where: Sequence[str], dialect: Dialect
    ) -> str:
        """The FROM clause `written` sorted by `order`, each row with its number from before."""
        made = f"{dialect.row_number} AS {_NUMBER}"
        by = ", ".join(order)
        return f"(SELECT *, {made} FROM {written}{_where(where)} ORDER BY {by}) AS {self.alias}"

    def as_numbered(self, written: str, dialect: Dialect) -> str:
        """What `numbered` made as it was before, but for other columns."""
        columns = dialect.star_without([_NUMBER])
        return f"(SELECT {columns} FROM {written} ORDER BY {_NUMBER}) AS {self.alias}"

    def patches(self, columns: Iterable[str], dialect: Dialect) -> dict[Span, str]:
        """Place -> text: stars that leave `columns` out."""
        names = [dialect.quote_name(name) for name in columns]
        return dict.fromkeys(self.stars, dialect.star_without(names)) | dict.fromkeys(
            self.lists, f"({', '.join(names)}, "
        )


_NUMBER = "sqlml_number"


def _where(terms: Sequence[str]) -> str:
    return f" WHERE {' AND '.join(terms)}" if terms else ""


def source_of(call: ModelCall, outline: Outline) -> Source | None:
    """The FROM clause of the block around a call; None if it must stay as it is."""
    block = call.block
    if block is None or outline.prefix is None or block.is_chain:
        return None
    single: SingleSource | None = outline.singles.get(block.span)
    if single is None:
        return None
    filters = tuple(f for f in block.filters if not overlaps(f, outline.outer_calls))
    alias = outline.sql[single.alias.start : single.alias.end]
    return Source(single.span, alias, single.stars, single.lists, filters)


def row_source(call: ModelCall, outline: Outline) -> Source | None:
    """The FROM clause that can make the row of a call; None if the row would differ there.

    It would if a window reads the rows that WHERE keeps, or if ORDER BY means a select item by a
    name that a column also has.
    """
    if "over" in call.words or call.means_outputs:
        return None
    return source_of(call, outline)
