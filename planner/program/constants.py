"""`Constants`: values of a model's inputs that have become part of it, and how names spell them.

A number is spelled by the bits of its DOUBLE, without the zeros at their end, and a text by its
bytes, so that every value has one spelling, in letters and digits that a function's name may have.
"""

from __future__ import annotations

import re
import struct
import threading

from sqlml.bounded_cache import Recent
from sqlml.ir.program import Program
from sqlml.limits import MADE_BYTES

Constant = tuple[int, float | str | None]
"""The place of an input among those of the Program, and its value; None is NULL."""

Constants = tuple[Constant, ...]

PATTERN = r"(?:_k\d{1,6}(?:n|f[0-9a-f]{1,16}|s(?:[0-9a-f]{2})*))*"
"""A regular expression of what `spelled` makes."""

MOST = 64
"""Different constants of a model; other literals are passed as columns, as parameters are."""

_BYTES = 1000
"""What the constants of one call take, about."""

_made: Recent[str, set[Constants]] = Recent(MADE_BYTES)
_lock = threading.Lock()

_ONE = re.compile(r"_k(\d{1,6})([nfs])([0-9a-f]*)")


def spelled(constants: Constants) -> str:
    """As a part of a function's name.

    >>> spelled(((0, 3.0), (2, None), (11, "pro")))
    '_k0f4008_k2n_k11s70726f'
    """
    return "".join(f"_k{place}{_value(value)}" for place, value in constants)


def _value(value: float | str | None) -> str:
    if value is None:
        return "n"
    if isinstance(value, str):
        return "s" + value.encode("utf-8").hex()
    return "f" + (struct.pack(">d", value).hex().rstrip("0") or "0")


def parse_constants(text: str) -> Constants:
    """What `spelled` has spelled.

    >>> parse_constants("_k0f4008_k2n_k11s70726f")
    ((0, 3.0), (2, None), (11, 'pro'))
    """
    made: list[Constant] = []
    for place, kind, digits in _ONE.findall(text):
        value: float | str | None = None
        if kind == "f":
            (value,) = struct.unpack(">d", bytes.fromhex(digits.ljust(16, "0")))
        elif kind == "s":
            value = bytes.fromhex(digits).decode("utf-8", "replace")
        made.append((int(place), value))
    return tuple(made)


def admitted(program: Program, found: Constants) -> bool:
    """Whether these constants are among the first `MOST` of a model; they count from now on."""
    with _lock:
        made = _made.get(program.hash) or set()
        if found not in made and len(made) >= MOST:
            return False
        made.add(found)
        _made.put(program.hash, made, _BYTES * len(made))
        return True
