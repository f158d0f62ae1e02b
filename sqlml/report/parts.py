"""`Section`: what a page consists of, as plain values that the template prints and escapes."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from sqlml.report.shown import clean, number, shown

_MOST_CODE = 20_000
"""Letters of a text in a fixed-width font."""

_SHARE = re.compile(r"\d+(\.\d+)?%")

_ROOM, _MOST_LETTERS = 66, 24
"""Letters that a row has room for at the side of a plot; of a cell before its lines are broken."""


@dataclass(frozen=True, slots=True)
class Table:
    """Texts in rows and columns; None is shown as NULL.

    Attributes:
        caption: what a screen reader calls it.
        numbers: which columns stand at the right.
        note: a line below.
    """

    kind: ClassVar[str] = "table"
    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str | None, ...], ...]
    numbers: tuple[bool, ...]
    note: str = ""

    @property
    def is_wide(self) -> bool:
        """Whether the table is too wide to stand beside a plot."""
        cells = (self.columns, *self.rows)
        widths = [max(len(row[n] or "NULL") for row in cells) for n in range(len(self.columns))]
        return sum(min(width, _MOST_LETTERS) + 3 for width in widths) > _ROOM


@dataclass(frozen=True, slots=True)
class Plot:
    """A plot with its numbers beside it.

    Attributes:
        says: what the plot shows, in a sentence or two above it.
        svg: the drawing, markup that `draw.py` made.
        seen: the drawing in words, for who does not see it.
    """

    kind: ClassVar[str] = "plot"
    title: str
    says: str
    svg: str
    seen: str
    table: Table


@dataclass(frozen=True, slots=True)
class Pairs:
    """Names and what they are."""

    kind: ClassVar[str] = "pairs"
    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Code:
    """A text in a fixed-width font, folded up."""

    kind: ClassVar[str] = "code"
    title: str
    text: str


@dataclass(frozen=True, slots=True)
class Note:
    """A sentence, such as why something is not there."""

    kind: ClassVar[str] = "note"
    text: str


Part = Table | Plot | Pairs | Code | Note


@dataclass(frozen=True, slots=True)
class Tile:
    """A number at the top of the page."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page with a heading; `name` is the anchor of its link."""

    name: str
    title: str
    lead: str
    parts: tuple[Part, ...]
    tiles: tuple[Tile, ...] = ()


def table(
    caption: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[Any]],
    note: str = "",
    none: str | None = None,
) -> Table:
    """A Table of values; a column whose values are numbers stands at the right.

    Args:
        none: what None is shown as, by default NULL.
    """
    columns_of = list(zip(*rows, strict=True)) if rows else [()] * len(columns)
    told = [
        _alike(values) if _are_numbers(values) else [shown(value) for value in values]
        for values in columns_of
    ]
    numbers = tuple(_are_numbers(v) or _are_shares(v) for v in columns_of)
    texts = [tuple(none if t is None else t for t in row) for row in zip(*told, strict=True)]
    return Table(caption, tuple(columns), tuple(texts), numbers, note)


def code(title: str, text: str) -> Code:
    """A text of several lines, its beginning where it is very long."""
    more = "\n…" if len(text) > _MOST_CODE else ""
    return Code(title, clean(text[:_MOST_CODE]) + more)


def _are_numbers(values: Sequence[Any]) -> bool:
    some = [value for value in values if value is not None]
    return bool(some) and all(map(_is_number, some))


def _are_shares(values: Sequence[Any]) -> bool:
    return bool(values) and all(isinstance(v, str) and _SHARE.fullmatch(v) for v in values)


def _alike(values: Sequence[Any]) -> list[str | None]:
    """Numbers with the same number of digits, but for whole ones where all are whole."""
    whole = all(v is None or (math.isfinite(v) and v == int(v)) for v in values)
    return [None if v is None else number(float(v), padded=not whole) for v in values]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
