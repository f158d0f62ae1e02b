"""What an SQL expression has while it becomes operators: numbers, truths, texts and literals.

A missing number is NaN: the Program has no other. A truth is a pair, since SQL has three of them:
where it holds, and where it does not; where neither is so, it is NULL.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType

import numpy as np
from sqlglot import exp

from sqlml.errors import UnsupportedModelError
from sqlml.importers.calendar_parts import HOUR, MINUTE, PARTS, SECOND, Moment
from sqlml.ir.builder import Builder, Value


@dataclass(frozen=True, slots=True)
class Number:
    """Numbers float64, (n, 1) or (1,) of a literal; NaN is NULL."""

    value: Value


@dataclass(frozen=True, slots=True)
class Truth:
    """Where a condition is true, and where it is false: bool, (n, 1) or (1,) each."""

    true: Value
    false: Value


@dataclass(frozen=True, slots=True)
class Column:
    """A column by its place, whose kind is still open."""

    place: int


@dataclass(frozen=True, slots=True)
class Date:
    """A date or timestamp of the text, as microseconds since 1970-01-01."""

    microseconds: float


@dataclass(frozen=True, slots=True)
class Text:
    """A text literal."""

    value: str


@dataclass(frozen=True, slots=True)
class Null:
    """The literal NULL."""


Operand = Number | Truth | Column | Date | Text | Null
"""What an expression, or a part of one, is."""


class Logic:
    """SQL's three-valued logic and its functions of numbers, over a Builder's operators."""

    def __init__(self, builder: Builder) -> None:
        self.builder = builder

    def literal(self, value: float) -> Number:
        """A number of the text."""
        return Number(self.builder.constant(np.array([value], np.float64)))

    def truth(self, known: bool | None) -> Truth:
        """TRUE, FALSE, or NULL as a condition."""
        constant = self.builder.constant
        return Truth(constant(np.array([known is True])), constant(np.array([known is False])))

    def compared(self, operator: str, opposite: str, a: Number, b: Number) -> Truth:
        """A comparison and its opposite; of NaN neither holds."""
        held = self.builder.op(operator, a.value, b.value)
        if operator == "ne":  # which numpy says of NaN
            held = self._and(held, self._both_known(a, b))
        fails = self.builder.op(opposite, a.value, b.value)
        if opposite == "ne":
            fails = self._and(fails, self._both_known(a, b))
        return Truth(held, fails)

    def is_null(self, a: Number) -> Truth:
        """IS NULL, which is never NULL itself."""
        gone = self.builder.op("isnan", a.value)
        return Truth(gone, self._not(gone))

    def negated(self, a: Truth) -> Truth:
        """NOT."""
        return Truth(a.false, a.true)

    def both(self, a: Truth, b: Truth) -> Truth:
        """AND: false as soon as one is."""
        return Truth(self._and(a.true, b.true), self.builder.op("or", a.false, b.false))

    def either(self, a: Truth, b: Truth) -> Truth:
        """OR: true as soon as one is."""
        return self.negated(self.both(self.negated(a), self.negated(b)))

    def is_true(self, a: Truth) -> Truth:
        """IS TRUE, which is never NULL."""
        return Truth(a.true, self._not(a.true))

    def is_known(self, a: Truth) -> Truth:
        """IS NOT NULL of a condition."""
        known = self.builder.op("or", a.true, a.false)
        return Truth(known, self._not(known))

    def number_of(self, a: Truth) -> Number:
        """1, 0 or NULL."""
        return Number(self.where(a.true, 1.0, self.where(a.false, 0.0, np.nan)))

    def truth_of(self, a: Number) -> Truth:
        """A number as a condition: it is false if it is 0."""
        return self.compared("ne", "eq", a, self.literal(0.0))

    def chosen(self, condition: Truth, then: Number, other: Number) -> Number:
        """CASE WHEN condition THEN then ELSE other END."""
        return Number(self.where(condition.true, then.value, other.value))

    def where(self, condition: Value, then: Value | float, other: Value | float) -> Value:
        """One or the other; numbers are constants of float64."""
        return self.builder.op("where", condition, then, other)

    def _and(self, a: Value, b: Value) -> Value:
        return self.builder.op("and", a, b)

    def _not(self, a: Value) -> Value:
        return self.builder.op("not", a)

    def _both_known(self, a: Number, b: Number) -> Value:
        gone = self.builder.op("or", *[self.builder.op("isnan", x.value) for x in (a, b)])
        return self._not(gone)


# `FUNCTIONS`: DuckDB's functions of numbers, by name, as operators.


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


# Literals of dates in a step's SQL, and its functions of dates beside their parts.


OF_DATES = frozenset(PARTS) | {"date_diff", "date_part", "datediff", "datepart"}
"""What is called with columns of dates."""

A_DATE = exp.Cast(this=exp.Literal.string("1970-01-01"), to=exp.DataType.build("DATE"))
"""What says that the columns beside it are dates."""


def is_date(tree: exp.Expr) -> bool:
    """Whether it is a literal such as DATE '2026-01-31'."""
    is_cast = isinstance(tree, exp.Cast) and isinstance(tree.this, exp.Literal)
    return is_cast and tree.this.is_string and tree.args["to"].sql("duckdb").upper() in DATES


DATES = ("DATE", "TIMESTAMP")


def date_of(text: str, kind: str, tree: exp.Expr) -> Date:
    """A date in ISO 8601, which `tree` casts to a `kind` of `DATES`.

    Raises:
        UnsupportedModelError: it is none, or has a time zone.
    """
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is not None:
        raise UnsupportedModelError(
            f"{tree.sql('duckdb')} is not a date; write DATE '2026-01-31' or TIMESTAMP "
            "'2026-01-31 12:00:00'"
        )
    if kind == "DATE":
        moment = moment.replace(hour=0, minute=0, second=0, microsecond=0)
    since = moment - datetime(1970, 1, 1)
    return Date(float((since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds))


def _whole_units(microseconds: int) -> Callable[[Moment], Value]:
    """A date in units that begin with the day."""

    def count(moment: Moment) -> Value:
        b, x = moment.builder, moment.microseconds
        start = b.op("sub", x, b.op("mod", x, float(microseconds)))
        return b.op("div", start, float(microseconds))

    return count


UNITS: Mapping[str, Callable[[Moment], Value]] = MappingProxyType(
    {
        "year": lambda m: m.year,
        "month": lambda m: m.months,
        "day": lambda m: m.days,
        "hour": _whole_units(HOUR),
        "minute": _whole_units(MINUTE),
        "second": _whole_units(SECOND),
    }
)
"""Unit -> how many of them a date is behind a fixed one."""
