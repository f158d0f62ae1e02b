"""Numbers where a database lacks a literal, a type or a function for them."""

from __future__ import annotations

import math


def with_exponent(value: float) -> str:
    """A float64 in as few digits as tell it from others, with an exponent.

    >>> with_exponent(0.5), with_exponent(1e300)
    ('0.5e0', '1e+300')
    """
    text = repr(value)
    return text if "e" in text else f"{text}e0"


def exact(value: float) -> str:
    """A float64 as whole numbers alone, which SQLite reads exactly, unlike digits behind a point.

    >>> exact(0.5), exact(3.0), exact(0.1)
    ('0.5', '3.0', '(3602879701896397.0/36028797018963968.0)')
    """
    text = repr(value)
    if "e" not in text and len(text.lstrip("-")) <= 16:
        digits = text.partition(".")[2]
        if float(value).is_integer() or len(digits) <= 4 and (value * 16).is_integer():
            return text
    return _of_wholes(value, ".0")


def exact_with_exponents(value: float) -> str:
    """A float64 as whole numbers with exponents, which SQL Server reads as floats; without an
    exponent they would be decimals.

    >>> exact_with_exponents(-0.5), exact_with_exponents(3.0), exact_with_exponents(0.1)
    ('-0.5e0', '3.0e0', '(3602879701896397e0/36028797018963968e0)')
    """
    text = repr(value)
    is_short = "e" not in text and len(text.lstrip("-")) <= 16 and (value * 16).is_integer()
    return f"{text}e0" if is_short else _of_wholes(value, "e0")


def _of_wholes(value: float, point: str) -> str:
    """Quotients and products of whole numbers, each below 2^63 and with `point` behind it."""
    mantissa, exponent = math.frexp(value)
    whole, exponent = int(math.ldexp(mantissa, 53)), exponent - 53
    while whole % 2 == 0 and whole:
        whole, exponent = whole // 2, exponent + 1
    made = f"{whole}{point}"
    while exponent < 0:
        step = min(-exponent, 62)
        made, exponent = f"{made}/{2**step}{point}", exponent + step
    while exponent > 0:
        step = min(exponent, 62)
        made, exponent = f"{made}*{2**step}{point}", exponent - step
    return f"({made})"


def by_arithmetic(x: str) -> str:
    """Rounded to 24 bits, to the even of two as near: by adding a power of two that is as much
    greater than the number as a float64 has more bits than a float32, and taking it away again.

    `ufp(x)`, the power of two that x begins with, is found as in Rump, Ogita and Oishi, Accurate
    floating-point summation, part I (2008), algorithm 3.5 of section 3. Below the least normal
    float32 the spacing stays.
    """
    scaled = f"(4503599627370497.0*({x}))"
    ufp = f"abs({scaled}-{scaled}*(9007199254740991/9007199254740992.0))"
    least = "(1/85070591730234615865843651857942052864.0)"  # 2^-126
    big = f"(805306368.0*greatest({ufp}, {least}))"  # 3 * 2^28
    return f"(({x}+{big})-{big})"


_EXPM1 = "CASE WHEN exp(2 * x) = 1 THEN 2 * x ELSE (exp(2 * x) - 1) * (2 * x) / ln(exp(2 * x)) END"

TANH = f"CASE WHEN abs(x) > 20 THEN sign(x) ELSE ({_EXPM1}) / (({_EXPM1}) + 2) END"
"""By exp(2x) - 1, found in Kahan's way, which loses no digits near 0."""

CBRT = (
    "CASE WHEN x = 0 THEN x ELSE sign(x) * (power(abs(x), 1 / 3e0) - (power(power(abs(x), 1 / 3e0),"
    " 3) - abs(x)) / (3 * power(power(abs(x), 1 / 3e0), 2))) END"
)
"""By a power, and one step of Newton's from there."""
