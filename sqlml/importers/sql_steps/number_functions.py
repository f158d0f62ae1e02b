"""`FUNCTIONS`: DuckDB's functions of numbers, by name, as operators."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from sqlml.ir.builder import Builder, Value

Make = Callable[[Builder, Sequence[Value]], Value]


@dataclass(frozen=True, slots=True)
class NumberFunction:
    """What makes a number of `least` to `most` numbers; NULL of NULL, except as it says."""

    make: Make
    least: int = 1
    most: int = 1


def _operator(name: str, arity: int = 1) -> NumberFunction:
    return NumberFunction(lambda b, x: b.op(name, *x), arity, arity)


def _times(factor: float) -> NumberFunction:
    return NumberFunction(lambda b, x: b.op("mul", x[0], factor))


def remainder(b: Builder, x: Sequence[Value]) -> Value:
    """`%`: the remainder with the sign of the first number, as in C; NaN by 0."""
    size = b.op("mod", b.op("abs", x[0]), b.op("abs", x[1]))
    return b.op("where", b.op("lt", x[0], 0.0), b.op("neg", size), size)


def _rounded(b: Builder, x: Sequence[Value]) -> Value:
    """To the nearest whole number, halves away from zero; the second argument counts decimals.

    As the engine does: times a power of ten, rounded, and divided by it again; a number that is
    too large for that is left as it is.
    """
    if len(x) == 1:
        return _whole(b, x[0])
    power = b.op("pow", b.constant(np.array([10.0])), x[1])
    made = b.op("div", _whole(b, b.op("mul", x[0], power)), power)
    out = b.op("ge", b.op("abs", made), np.inf)
    return b.op("where", b.op("or", out, b.op("isnan", made)), x[0], made)


def _whole(b: Builder, x: Value) -> Value:
    whole = b.op("trunc", x)
    far = b.op("ge", b.op("abs", b.op("sub", x, whole)), 0.5)
    return b.op("where", far, b.op("add", whole, b.op("sign", x)), whole)


def _extreme(operator: str) -> NumberFunction:
    """GREATEST or LEAST of the numbers that are not NULL."""

    def make(b: Builder, x: Sequence[Value]) -> Value:
        made = x[0]
        for other in x[1:]:
            beyond = b.op(operator, made, other)
            beyond = b.op("where", b.op("isnan", other), made, beyond)
            made = b.op("where", b.op("isnan", made), other, beyond)
        return made

    return NumberFunction(make, 1, 100)


def _logarithm(b: Builder, x: Sequence[Value]) -> Value:
    """LOG(x) to base 10, and LOG(base, x)."""
    last = b.op("log10", x[-1])
    return last if len(x) == 1 else b.op("div", last, b.op("log10", x[0]))


def _cotangent(b: Builder, x: Sequence[Value]) -> Value:
    return b.op("div", 1.0, b.op("tan", x[0]))


_RENAMED = MappingProxyType(
    {
        "acos": "arccos",
        "acosh": "arccosh",
        "asin": "arcsin",
        "asinh": "arcsinh",
        "atan": "arctan",
        "atanh": "arctanh",
        "ceiling": "ceil",
        "ln": "log",
    }
)
_SAME = "abs cbrt ceil cos cosh exp floor log10 log2 sign sin sinh sqrt tan tanh trunc".split()
_POWER = _operator("pow", 2)

FUNCTIONS: Mapping[str, NumberFunction] = MappingProxyType(
    {
        **{name: _operator(name) for name in _SAME},
        **{name: _operator(own) for name, own in _RENAMED.items()},
        "cot": NumberFunction(_cotangent),
        "degrees": _times(180 / math.pi),
        "fmod": _operator("mod", 2),  # unlike %, with the sign of the second
        "greatest": _extreme("maximum"),
        "least": _extreme("minimum"),
        "log": NumberFunction(_logarithm, 1, 2),
        "mod": NumberFunction(remainder, 2, 2),
        "pi": NumberFunction(lambda b, x: b.constant(np.array([math.pi])), 0, 0),
        "pow": _POWER,
        "power": _POWER,
        "radians": _times(math.pi / 180),
        "round": NumberFunction(_rounded, 1, 2),
    }
)
