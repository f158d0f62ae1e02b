"""The operands of SQL expressions: numbers, conditions, texts, dates and literals.

NULL numbers are NaN, because Programs have no other missing value. SQL's conditions have three
values, so a condition is a pair: where it is true, and where it is false; elsewhere it is NULL.
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
    """Numbers, float64, (n, 1) or (1,) for a literal; NaN is NULL."""

    value: Value


@dataclass(frozen=True, slots=True)
class Truth:
    """The rows where a condition is true, and where it is false: bool, (n, 1) or (1,) each."""

    true: Value
    false: Value


@dataclass(frozen=True, slots=True)
class Column:
    """A column by its number, whose kind is still open."""

    index: int


@dataclass(frozen=True, slots=True)
class Date:
    """A date or timestamp literal, as microseconds since 1970-01-01."""

    microseconds: float


@dataclass(frozen=True, slots=True)
class Text:
    """A text literal."""

    value: str


@dataclass(frozen=True, slots=True)
class Null:
    """The literal NULL."""


Operand = Number | Truth | Column | Date | Text | Null
"""The value of an expression or a part of one."""


class Logic:
    """SQL's three-valued logic and numeric functions, on the operators of a Builder."""

    def __init__(self, builder: Builder) -> None:
        self.builder = builder

    def literal(self, value: float) -> Number:
        """Return a numeric literal."""
        return Number(self.builder.constant(np.array([value], np.float64)))

    def truth(self, is_known: bool | None) -> Truth:
        """Return TRUE, FALSE, or NULL as a condition."""
        constant = self.builder.constant
        return Truth(
            constant(np.array([is_known is True])), constant(np.array([is_known is False]))
        )

    def compare(self, operator: str, opposite: str, a: Number, b: Number) -> Truth:
        """Compare numbers by an operator and its opposite; neither holds for NaN."""
        condition = self.builder.op(operator, a.value, b.value)
        if operator == "ne":  # numpy returns true for NaN
            condition = self._and(condition, self._both_known(a, b))
        fails = self.builder.op(opposite, a.value, b.value)
        if opposite == "ne":
            fails = self._and(fails, self._both_known(a, b))
        return Truth(condition, fails)

    def is_null(self, a: Number) -> Truth:
        """Return IS NULL, which is never NULL itself."""
        is_null = self.builder.op("isnan", a.value)
        return Truth(is_null, self._not(is_null))

    def negate(self, a: Truth) -> Truth:
        """Return NOT."""
        return Truth(a.false, a.true)

    def conjoin(self, a: Truth, b: Truth) -> Truth:
        """Return AND: false if either is false."""
        return Truth(self._and(a.true, b.true), self.builder.op("or", a.false, b.false))

    def disjoin(self, a: Truth, b: Truth) -> Truth:
        """Return OR: true if either is true."""
        return self.negate(self.conjoin(self.negate(a), self.negate(b)))

    def is_true(self, a: Truth) -> Truth:
        """Return IS TRUE, which is never NULL."""
        return Truth(a.true, self._not(a.true))

    def is_known(self, a: Truth) -> Truth:
        """Return IS NOT NULL of a condition."""
        is_known = self.builder.op("or", a.true, a.false)
        return Truth(is_known, self._not(is_known))

    def to_number(self, a: Truth) -> Number:
        """Convert a condition to 1, 0 or NULL."""
        return Number(self.where(a.true, 1.0, self.where(a.false, 0.0, np.nan)))

    def to_truth(self, a: Number) -> Truth:
        """Convert a number to a condition, which is false for 0."""
        return self.compare("ne", "eq", a, self.literal(0.0))

    def choose(self, condition: Truth, then: Number, other: Number) -> Number:
        """Return CASE WHEN condition THEN then ELSE other END."""
        return Number(self.where(condition.true, then.value, other.value))

    def where(self, condition: Value, then: Value | float, other: Value | float) -> Value:
        """Choose between two values; numbers become float64 constants."""
        return self.builder.op("where", condition, then, other)

    def _and(self, a: Value, b: Value) -> Value:
        return self.builder.op("and", a, b)

    def _not(self, a: Value) -> Value:
        return self.builder.op("not", a)

    def _both_known(self, a: Number, b: Number) -> Value:
        is_null = self.builder.op("or", *[self.builder.op("isnan", x.value) for x in (a, b)])
        return self._not(is_null)


Make = Callable[[Builder, Sequence[Value]], Value]


@dataclass(frozen=True, slots=True)
class NumberFunction:
    """A function of `least` to `most` numbers; NULL of NULL unless it says otherwise."""

    make: Make
    least: int = 1
    most: int = 1


def _operator(name: str, arity: int = 1) -> NumberFunction:
    return NumberFunction(lambda b, x: b.op(name, *x), arity, arity)


def _times(factor: float) -> NumberFunction:
    return NumberFunction(lambda b, x: b.op("mul", x[0], factor))


def remainder(b: Builder, x: Sequence[Value]) -> Value:
    """Return `%`, the remainder with the sign of the first number, as in C; NaN for 0."""
    size = b.op("mod", b.op("abs", x[0]), b.op("abs", x[1]))
    return b.op("where", b.op("lt", x[0], 0.0), b.op("neg", size), size)


def _round(b: Builder, x: Sequence[Value]) -> Value:
    """Round to the nearest integer, halves away from zero; the second argument counts decimals.

    Like the engine: multiply by a power of ten, round, and divide; numbers too large for that stay.
    """
    if len(x) == 1:
        return _whole(b, x[0])
    power = b.op("pow", b.constant(np.array([10.0])), x[1])
    rounded = b.op("div", _whole(b, b.op("mul", x[0], power)), power)
    out = b.op("ge", b.op("abs", rounded), np.inf)
    return b.op("where", b.op("or", out, b.op("isnan", rounded)), x[0], rounded)


def _whole(b: Builder, x: Value) -> Value:
    rounded = b.op("trunc", x)
    far = b.op("ge", b.op("abs", b.op("sub", x, rounded)), 0.5)
    return b.op("where", far, b.op("add", rounded, b.op("sign", x)), rounded)


def _make_extreme(operator: str) -> NumberFunction:
    """Return GREATEST or LEAST of the numbers that are not NULL."""

    def make(b: Builder, x: Sequence[Value]) -> Value:
        extreme = x[0]
        for other in x[1:]:
            beyond = b.op(operator, extreme, other)
            beyond = b.op("where", b.op("isnan", other), extreme, beyond)
            extreme = b.op("where", b.op("isnan", extreme), other, beyond)
        return extreme

    return NumberFunction(make, 1, 100)


def _logarithm(b: Builder, x: Sequence[Value]) -> Value:
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
        **{name: _operator(op) for name, op in _RENAMED.items()},
        "cot": NumberFunction(_cotangent),
        "degrees": _times(180 / math.pi),
        "fmod": _operator("mod", 2),  # unlike %, has the sign of the second
        "greatest": _make_extreme("maximum"),
        "least": _make_extreme("minimum"),
        "log": NumberFunction(_logarithm, 1, 2),
        "mod": NumberFunction(remainder, 2, 2),
        "pi": NumberFunction(lambda b, x: b.constant(np.array([math.pi])), 0, 0),
        "pow": _POWER,
        "power": _POWER,
        "radians": _times(math.pi / 180),
        "round": NumberFunction(_round, 1, 2),
    }
)


DATE_FUNCTIONS = frozenset(PARTS) | {"date_diff", "date_part", "datediff", "datepart"}
"""The functions whose arguments are columns of dates."""

DATE_LITERALS = exp.Cast(this=exp.Literal.string("1970-01-01"), to=exp.DataType.build("DATE"))
"""The operands that make the columns next to them dates."""


def is_date(tree: exp.Expr) -> bool:
    """Return whether a tree is a literal such as DATE '2026-01-31'."""
    is_cast = isinstance(tree, exp.Cast) and isinstance(tree.this, exp.Literal)
    return is_cast and tree.this.is_string and tree.args["to"].sql("duckdb").upper() in DATES


DATES = ("DATE", "TIMESTAMP")


def date_of(text: str, kind: str, tree: exp.Expr) -> Date:
    """Read a date in ISO 8601, which `tree` casts to a `kind` of `DATES`.

    Raises:
        UnsupportedModelError: it is not a date, or has a time zone.
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


def _count_units(microseconds: int) -> Callable[[Moment], Value]:
    """Convert a date to units that begin with the day."""

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
        "hour": _count_units(HOUR),
        "minute": _count_units(MINUTE),
        "second": _count_units(SECOND),
    }
)
"""The number of each unit from a fixed date to a date."""
