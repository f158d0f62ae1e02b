"""The parts of a page, such as tables and plots, as plain values. The template escapes them."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, ClassVar

MAX_LENGTH = 60
_DIRECTION_MARKS = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""Characters that change the direction of the following text."""

_UNPRINTABLE = frozenset({"Cc", "Cs", "Cn", "Co", "Zl", "Zp"})


def format_value(value: Any, length: int = MAX_LENGTH) -> str | None:
    """Format a value for a table cell. None stays None.

    >>> format_value(0.123456), format_value(1234567), format_value(True)
    ('0.1235', '1,234,567', 'true')
    """
    if value is None:
        return None
    if isinstance(value, int):
        return str(value).lower() if isinstance(value, bool) else f"{value:,}"
    if isinstance(value, float | Decimal):
        return format_number(float(value))
    return clip(str(value), length)


def format_number(value: float, padded: bool = False) -> str:
    """Format a number with four significant digits, but with all digits before the decimal point.

    If `padded`, keep trailing zeros.

    >>> format_number(12345.678), format_number(0.00001234), format_number(2.0)
    ('12,346', '1.234e-05', '2')
    >>> format_number(0.5), format_number(0.5, padded=True), format_number(1.0, padded=True)
    ('0.5', '0.5000', '1.000')
    """
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "∞" if value > 0 else "-∞"
    magnitude = abs(value)
    if magnitude >= 1e15 or 0 < magnitude < 1e-4:
        return f"{value:.4g}"
    if magnitude >= 1000 or value == 0 or (value == int(value) and not padded):
        return f"{value:,.0f}"
    return (f"{value:#.4g}" if padded else f"{value:.4g}").removesuffix(".")


def clip(text: str, length: int = MAX_LENGTH) -> str:
    r"""Truncate `text` to `length` characters, and replace unprintable characters with U+FFFD.

    >>> clip("a\tb\x00c"), clip("abcdef", 4)
    ('a b�c', 'abc…')
    """
    truncated = text if len(text) <= length else text[: length - 1] + "…"
    return "".join(map(_make_printable, truncated))


def _make_printable(character: str) -> str:
    if character.isspace() and character not in "\x1c\x1d\x1e\x1f":
        return " "
    is_hidden = character in _DIRECTION_MARKS or unicodedata.category(character) in _UNPRINTABLE
    return "�" if is_hidden else character


def make_distinct(texts: Sequence[str]) -> tuple[str, ...]:
    """Add numbers to repeated texts, since each position on the axis of a plot needs a unique name.

    >>> make_distinct(["a", "b", "a"])
    ('a', 'b', 'a (2)')
    """
    names: dict[str, None] = {}
    for text in texts:
        name, n = text, 1
        while name in names:
            n += 1
            name = f"{text} ({n})"
        names[name] = None
    return tuple(names)


def join_first(texts: Sequence[str], count: int) -> str:
    """Join the first `count` texts, and add the number of remaining texts.

    >>> join_first(["a", "b", "c"], 2)
    'a, b and 1 more'
    """
    beginning = ", ".join(texts[:count])
    return beginning if len(texts) <= count else f"{beginning} and {len(texts) - count:,} more"


def note_left_out(count: int, description: str) -> str:
    """Return a sentence such as "3 more columns are left out.", or "" if `count` is below 1."""
    return f"{count:,} {description} are left out." if count > 0 else ""


_MAX_CODE = 20_000
_PERCENTAGE = re.compile(r"\d+(\.\d+)?%")

_MAX_TABLE_WIDTH, _MAX_CELL_WIDTH = 66, 24
"""Maximum widths in characters of a table beside a plot, and of a cell that does not wrap."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table of strings. None is shown as NULL. `numbers` marks right-aligned columns."""

    kind: ClassVar[str] = "table"
    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str | None, ...], ...]
    numbers: tuple[bool, ...]
    note: str = ""

    @property
    def is_wide(self) -> bool:
        """True if the table is too wide to fit beside a plot."""
        lines = (self.columns, *self.rows)
        widths = [max(len(line[n] or "NULL") for line in lines) for n in range(len(self.columns))]
        return sum(min(width, _MAX_CELL_WIDTH) + 3 for width in widths) > _MAX_TABLE_WIDTH


@dataclass(frozen=True, slots=True)
class Plot:
    """A plot, with a table of the plotted numbers.

    `explanation` is shown above the plot. `svg` is the result of `draw_svg`. `description`
    describes the drawing for screen readers, which also read the table.
    """

    kind: ClassVar[str] = "plot"
    title: str
    explanation: str
    svg: str
    description: str
    table: Table


@dataclass(frozen=True, slots=True)
class Pairs:
    """A list of names with values or descriptions."""

    kind: ClassVar[str] = "pairs"
    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Code:
    """A collapsed text in a fixed-width font, such as a query."""

    kind: ClassVar[str] = "code"
    title: str
    text: str


@dataclass(frozen=True, slots=True)
class Note:
    """A sentence, for example why something is missing."""

    kind: ClassVar[str] = "note"
    text: str


ReportPart = Table | Plot | Pairs | Code | Note


@dataclass(frozen=True, slots=True)
class Tile:
    """A number at the top of the page."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class Section:
    """A section of the page. `name` is the anchor for links, and `lead` is the first sentence."""

    name: str
    title: str
    lead: str
    parts: tuple[ReportPart, ...]
    tiles: tuple[Tile, ...] = ()


def make_table(
    caption: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[Any]],
    note: str = "",
    none: str | None = None,
) -> Table:
    """Make a Table of formatted values. None is shown as `none`, or as NULL if `none` is None."""
    columns_of_values = list(zip(*rows, strict=True)) if rows else [()] * len(columns)
    texts_by_column = [
        _format_numbers(values) if _are_numbers(values) else list(map(format_value, values))
        for values in columns_of_values
    ]
    are_numeric = tuple(_are_numbers(v) or _are_percentages(v) for v in columns_of_values)
    texts_by_row = zip(*texts_by_column, strict=True)
    cells = [tuple(none if text is None else text for text in row) for row in texts_by_row]
    return Table(caption, tuple(columns), tuple(cells), are_numeric, note)


def make_code(title: str, text: str) -> Code:
    """Make a Code of the first `_MAX_CODE` characters. U+FFFD replaces unprintable characters."""
    printable = "".join(c if c in "\n\t" else _make_printable(c) for c in text[:_MAX_CODE])
    return Code(title, printable + ("\n…" if len(text) > _MAX_CODE else ""))


def _are_numbers(values: Sequence[Any]) -> bool:
    non_null = [value for value in values if value is not None]
    return bool(non_null) and all(
        isinstance(value, int | float) and not isinstance(value, bool) for value in non_null
    )


def _are_percentages(values: Sequence[Any]) -> bool:
    return bool(values) and all(isinstance(v, str) and _PERCENTAGE.fullmatch(v) for v in values)


def _format_numbers(values: Sequence[Any]) -> list[str | None]:
    """Format a column as integers if all numbers are integers, or else with trailing zeros."""
    are_integers = all(v is None or (math.isfinite(v) and v == int(v)) for v in values)
    return [None if v is None else format_number(float(v), padded=not are_integers) for v in values]
