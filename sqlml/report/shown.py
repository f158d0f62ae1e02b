"""`shown`: values as a report prints them: short, on one line, and without what browsers act on."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

LONGEST = 60
"""Characters of a value that are printed."""

_TURNING = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""Characters that turn the direction of what stands behind them."""

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
    """A text of several lines; what cannot be printed is a question mark in a diamond."""
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
    made = []
    for text in texts:
        name, n = text, 1
        while name in taken:
            n += 1
            name = f"{text} ({n})"
        taken.add(name)
        made.append(name)
    return tuple(made)


def listed(texts: Sequence[str], most: int = 8) -> str:
    """Texts in a row, the first of them where they are many.

    >>> listed(["a", "b", "c"], 2)
    'a, b and 1 more'
    """
    head = ", ".join(texts[:most])
    return head if len(texts) <= most else f"{head} and {len(texts) - most:,} more"
