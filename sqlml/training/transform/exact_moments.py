"""`exact_moments`: a mean and a standard deviation that do not depend on the order of rows.

An engine of several threads adds numbers in an order of its own, and the last bits of a sum of
doubles depend on it. Here the numbers are added as integers: shifted by the middle of their range,
scaled by a power of two, and rounded to 128 bits, each for itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from sqlml.dialects.duckdb import DUCKDB

_BITS = 125
"""Bits of a sum in a HUGEINT."""

Ask = Callable[[str], tuple[Any, ...]]
"""Aggregates -> their values."""


def exact_moments(ask: Ask, column: str) -> tuple[float, float]:
    """The mean and the standard deviation (of the population) of a column; 0 without finite values.

    Args:
        ask: is called twice. column: an expression of type DOUBLE.
    """
    call = DUCKDB.call
    least, most, count = ask(", ".join(call(f, column) for f in ("min", "max", "count")))
    if not count or not (math.isfinite(least) and math.isfinite(most)):
        return 0.0, 0.0
    middle = least / 2 + most / 2
    size = max(most - middle, middle - least)
    if size == 0:
        return float(least), 0.0
    power = math.frexp(size)[1]  # so that the values below are in -1 .. 1
    near = call("-", column, _number(middle))
    unit = call("*", near, _number(2.0 ** -max(min(power, 1000), -1000)))
    bits = _BITS - count.bit_length()
    scaled = [call("*", value, _number(2.0**bits)) for value in (unit, call("*", unit, unit))]
    total, squares = ask(", ".join(call("sum", f"CAST({v} AS HUGEINT)") for v in scaled))
    mean, square = (Fraction(int(found), count * 2**bits) for found in (total, squares))
    scale = Fraction(2) ** max(min(power, 1000), -1000)
    spread = max(square - mean * mean, Fraction(0))
    return float(Fraction(middle) + mean * scale), math.sqrt(spread) * float(scale)


def _number(value: float) -> str:
    return f"CAST('{value!r}' AS DOUBLE)"
