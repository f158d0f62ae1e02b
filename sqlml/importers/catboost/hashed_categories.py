"""Categories of which a file has only hashes: whole numbers are found by trying."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

import numpy as np

from sqlml.ir.city_hash import city_hash32
from sqlml.types import Array

WHOLE_NUMBERS = range(-1000, 65_536)
"""Numbers whose texts are tried as the origin of an unnamed hash."""

LONG = (5, 6)
"""Digits of more numbers that are tried, where there are FEWEST hashes.

One hash in 4,000 of other texts is by chance that of such a number; not so all of several.
"""

FEWEST = 3


def texts_of(hashes: Iterable[int], texts: Mapping[int, str]) -> tuple[str, ...] | None:
    """The texts of categories that a file names; of bare hashes only when all are of integers."""
    wanted = list(hashes)
    if all(h in texts for h in wanted):
        return tuple(texts[h] for h in wanted)
    known = _whole_numbers()
    found = [known.get(h) for h in wanted]
    if None in found and len(set(wanted)) >= FEWEST:
        of_hash, numbers = _long_numbers()
        place = np.minimum(np.searchsorted(of_hash, wanted), of_hash.size - 1)
        is_long = of_hash[place] == np.array(wanted)
        found = [
            int(numbers[at]) if number is None and same else number
            for number, at, same in zip(found, place.tolist(), is_long.tolist(), strict=True)
        ]
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


@lru_cache(maxsize=1)
def _long_numbers() -> tuple[Array, Array]:
    """The hashes of numbers of LONG digits, int64 ascending, and the numbers, int32.

    CityHash64 of texts from 4 to 8 bytes (`ir/city_hash.py`), for all of them at once.
    """
    multiplier = np.uint64(0x9DDFEA08EB382D69)

    def mixed(value: Array) -> Array:
        made: Array = value ^ (value >> np.uint64(47))
        return made

    hashes, numbers = list[Array](), list[Array]()
    for size in LONG:
        own = np.arange(10 ** (size - 1), 10**size, dtype=np.uint64)
        digits = [own // np.uint64(10**k) % np.uint64(10) + np.uint64(48) for k in range(size)]
        text = digits[::-1]
        first, last = (
            part[0] | part[1] << np.uint64(8) | part[2] << np.uint64(16) | part[3] << np.uint64(24)
            for part in (text[:4], text[-4:])
        )
        u = np.uint64(size) + (first << np.uint64(3))
        a = mixed((u ^ last) * multiplier)
        joined = mixed((last ^ a) * multiplier) * multiplier
        hashes.append((joined & np.uint64(0xFFFFFFFF)).astype(np.int64))
        numbers.append(own.astype(np.int32))
    of_hash = np.concatenate(hashes)
    order = np.argsort(of_hash)
    return of_hash[order], np.concatenate(numbers)[order]
