"""Categories of which a file has only hashes: whole numbers are found by trying."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

from sqlml.ir.city_hash import city_hash32

WHOLE_NUMBERS = range(-1000, 65_536)
"""Numbers whose texts are tried as the origin of an unnamed hash."""


def texts_of(hashes: Iterable[int], texts: Mapping[int, str]) -> tuple[str, ...] | None:
    """The texts of categories that a file names; of bare hashes only when all are of integers."""
    wanted = list(hashes)
    if all(h in texts for h in wanted):
        return tuple(texts[h] for h in wanted)
    known = _whole_numbers()
    found = [known.get(h) for h in wanted]
    return tuple(str(n) for n in found) if None not in found else None


def are_whole(hashes: Iterable[int], texts: Mapping[int, str]) -> bool:
    """Whether categories are integers, all of them, and there are some."""
    found = texts_of(hashes, texts)
    return bool(found) and all(map(is_whole, found or ()))


def is_whole(text: str) -> bool:
    """Whether a text is what CatBoost makes of an integer that float64 holds."""
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdecimal()) or len(digits) > 15:
        return False
    return str(int(text)) == text


@lru_cache(maxsize=1)
def _whole_numbers() -> dict[int, int]:
    return {city_hash32(str(n)): n for n in WHOLE_NUMBERS}
