"""The parts of a page, as plain values that the template prints and escapes."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, ClassVar

LONGEST = 60
"""Maximum number of characters of a value."""

_TURNING = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""Characters that change the text direction of what follows."""

_UNPRINTABLE = frozenset({"Cc", "Cs", "Cn", "Co", "Zl", "Zp"})


def shown(value: Any, most: int = LONGEST) -> str | None:
    """A value as a cell has it; None stays None.

    >>> shown(0.123456), shown(1234567), shown(True), shown("a" * 70)[-3:]
    ('0.1235', '1,234,567', 'true', 'aa…')
    """
    if value is None:
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float | Decimal):
        return number(float(value))
    return clipped(str(value), most)


def number(value: float, padded: bool = False) -> str:
    """A number with four significant digits, or more where it is whole.

    Args:
        padded: zeros behind the last digit are kept, and a whole number may have a fraction.

    >>> number(12345.678), number(0.00001234), number(2.0), number(float("nan"))
    ('12,346', '1.234e-05', '2', 'NaN')
    >>> number(0.5), number(0.5, padded=True), number(1.0, padded=True)
    ('0.5', '0.5000', '1.000')
    """
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "∞" if value > 0 else "-∞"
    size = abs(value)
    if size >= 1e15 or 0 < size < 1e-4:
        return f"{value:.4g}"
    if size >= 1000 or value == 0 or (value == int(value) and not padded):
        return f"{value:,.0f}"
    return (f"{value:#.4g}" if padded else f"{value:.4g}").removesuffix(".")


def clipped(text: str, most: int = LONGEST) -> str:
    r"""The beginning of a text; what cannot be printed is a question mark in a diamond.

    >>> clipped("a\tb\x00c"), clipped("abcdef", 4)
    ('a b�c', 'abc…')
    """
    begin = text[: most + 1]
    begin = begin if len(text) <= most else begin[: most - 1] + "…"
    return "".join(_printable(c) for c in begin)


def clean(text: str) -> str:
    """Return a text of several lines, with unprintable characters replaced by U+FFFD."""
    return "".join(c if c in "\n\t" else _printable(c) for c in text)


def _printable(character: str) -> str:
    if character.isspace() and character not in "\x1c\x1d\x1e\x1f":
        return " "
    odd = character in _TURNING or unicodedata.category(character) in _UNPRINTABLE
    return "�" if odd else character


def distinct(texts: Sequence[str]) -> tuple[str, ...]:
    """Names of which no two are the same, as the places of a plot must be.

    >>> distinct(["a", "b", "a"])
    ('a', 'b', 'a (2)')
    """
    taken: set[str] = set()
    names_so_far = []
    for text in texts:
        name, n = text, 1
        while name in taken:
            n += 1
            name = f"{text} ({n})"
        taken.add(name)
        names_so_far.append(name)
    return tuple(names_so_far)


def listed(texts: Sequence[str], most: int = 8) -> str:
    """Texts in a row, the first of them where they are many.

    >>> listed(["a", "b", "c"], 2)
    'a, b and 1 more'
    """
    head = ", ".join(texts[:most])
    return head if len(texts) <= most else f"{head} and {len(texts) - most:,} more"


_MOST_CODE = 20_000
"""Maximum characters of a fixed-width text."""

_SHARE = re.compile(r"\d+(\.\d+)?%")

_ROOM, _MOST_LETTERS = 66, 24
"""Characters of a row next to a plot, and of a cell before its lines are broken."""


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
        """Return whether the table is too wide to stand next to a plot."""
        cells = (self.columns, *self.rows)
        widths = [max(len(row[n] or "NULL") for row in cells) for n in range(len(self.columns))]
        return sum(min(width, _MOST_LETTERS) + 3 for width in widths) > _ROOM


@dataclass(frozen=True, slots=True)
class Plot:
    """A plot with its numbers beside it.

    Attributes:
        says: what the plot shows, in a sentence or two above it.
        svg: the drawing, markup that `charts.py` made.
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
    """Names with descriptions."""

    kind: ClassVar[str] = "pairs"
    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Code:
    """A folded text in a fixed-width font."""

    kind: ClassVar[str] = "code"
    title: str
    text: str


@dataclass(frozen=True, slots=True)
class Note:
    """A sentence, for example why something is missing."""

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
    """A section of the page with a heading; `name` is the anchor of its link."""

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
    """Return the beginning of a text of several lines."""
    more = "\n…" if len(text) > _MOST_CODE else ""
    return Code(title, clean(text[:_MOST_CODE]) + more)


def _are_numbers(values: Sequence[Any]) -> bool:
    some = [value for value in values if value is not None]
    return bool(some) and all(map(_is_number, some))


def _are_shares(values: Sequence[Any]) -> bool:
    return bool(values) and all(isinstance(v, str) and _SHARE.fullmatch(v) for v in values)


def _alike(values: Sequence[Any]) -> list[str | None]:
    """Format numbers with the same number of digits, as integers if all are whole."""
    whole = all(v is None or (math.isfinite(v) and v == int(v)) for v in values)
    return [None if v is None else number(float(v), padded=not whole) for v in values]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
