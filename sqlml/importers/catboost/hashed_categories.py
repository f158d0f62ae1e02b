"""Categories of which a file has only hashes: whole numbers are found by trying."""

from __future__ import annotations

from functools import lru_cache

from sqlml.ir.operators.hashing import city_hash32
from sqlml.types import Array

WHOLE_NUMBERS = range(-1000, 65_536)
"""Numbers whose texts are tried as the origin of an unnamed hash."""


def texts_of(values: tuple[str, ...] | Array) -> tuple[str, ...] | None:
    """The texts of categories; of bare hashes only when all are those of integers."""
    if isinstance(values, tuple):
        return values
    known = _whole_numbers()
    found = [known.get(int(h)) for h in values]
    return tuple(str(n) for n in found) if None not in found else None


def is_whole(text: str) -> bool:
    """Whether a text is what CatBoost makes of an integer that float64 holds."""
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdecimal()) or len(digits) > 15:
        return False
    return str(int(text)) == text


@lru_cache(maxsize=1)
def _whole_numbers() -> dict[int, int]:
    return {city_hash32(str(n)): n for n in WHOLE_NUMBERS}
