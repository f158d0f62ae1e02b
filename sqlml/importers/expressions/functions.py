"""The operands, the three-valued logic and the functions of expressions.

NULL numbers are NaN, because Programs have no other missing value. SQL's conditions have three
values, so a condition is a pair: where it is true, and where it is false; elsewhere it is NULL.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import reduce

import numpy as np
from sqlglot import exp

from sqlml.errors import UnsupportedModelError
from sqlml.importers.calendar_parts import HOUR, MINUTE, SECOND, Moment
from sqlml.ir.builder import Builder, Value


@dataclass(frozen=True, slots=True)
class Number:
    """Numbers, float64, (n, 1) or (1,) for a literal; NaN is NULL."""

    value: Value


@dataclass(frozen=True, slots=True)
class Truth:
    """The rows where a condition is true, and where it is false: bool, (n, 1) or (1,) each.

    `false` is None for a condition that is never NULL.
    """

    true: Value
    false: Value | None = None


@dataclass(frozen=True, slots=True)
class Column:
    """A column by its number, whose type is still open."""

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
    """SQL's three-valued logic on the operators of a Builder."""

    def __init__(self, builder: Builder) -> None:
        self.builder = builder

    def number(self, value: float) -> Number:
        return Number(self.builder.constant(np.array([value], np.float64)))

    def truth(self, value: bool | None) -> Truth:
        true = self.builder.constant(np.array([value is True]))
        return Truth(true, true if value is None else None)

    def compare(self, operator: str, opposite: str, a: Number, b: Number) -> Truth:
        """Compare numbers by an operator and its opposite; neither holds for NaN."""

        def holds(name: str) -> Value:
            condition = self.builder.op(name, a.value, b.value)
            if name != "ne":
                return condition
            # Unlike the other operators, it is true for NaN.
            is_null = self.builder.op(
                "or", self.builder.op("isnan", a.value), self.builder.op("isnan", b.value)
            )
            return self.builder.op("and", condition, self._not(is_null))

        return Truth(holds(operator), holds(opposite))

    def is_null(self, a: Number) -> Truth:
        """Return IS NULL, which is never NULL itself."""
        return Truth(self.builder.op("isnan", a.value))

    def negate(self, a: Truth) -> Truth:
        return Truth(self._not(a.true)) if a.false is None else Truth(a.false, a.true)

    def conjoin(self, a: Truth, b: Truth) -> Truth:
        return self._combine("and", "or", a, b)

    def disjoin(self, a: Truth, b: Truth) -> Truth:
        return self._combine("or", "and", a, b)

    def is_true(self, a: Truth) -> Truth:
        """Return IS TRUE, which is never NULL."""
        return Truth(a.true)

    def is_known(self, a: Truth) -> Truth:
        """Return IS NOT NULL of a condition."""
        return Truth(self.builder.op("or", a.true, self._where_false(a)))

    def to_number(self, a: Truth) -> Number:
        """Convert a condition to 1, 0 or NULL."""
        if a.false is None:
            return Number(self.builder.cast(a.true, "float64"))
        known = self.builder.op("where", a.false, 0.0, np.nan)
        return Number(self.builder.op("where", a.true, 1.0, known))

    def to_truth(self, a: Number) -> Truth:
        return self.compare("ne", "eq", a, self.number(0.0))

    def choose(self, condition: Truth, then: Number, other: Number) -> Number:
        return Number(self.builder.op("where", condition.true, then.value, other.value))

    def _combine(self, on_true: str, on_false: str, a: Truth, b: Truth) -> Truth:
        true = self.builder.op(on_true, a.true, b.true)
        if a.false is None and b.false is None:
            return Truth(true)
        return Truth(true, self.builder.op(on_false, self._where_false(a), self._where_false(b)))

    def _where_false(self, a: Truth) -> Value:
        return self._not(a.true) if a.false is None else a.false

    def _not(self, a: Value) -> Value:
        return self.builder.op("not", a)


@dataclass(frozen=True, slots=True)
class NumberFunction:
    """A function of `least` to `most` numbers."""

    build: Callable[[Builder, Sequence[Value]], Value]
    least: int = 1
    most: int = 1


def _operator(name: str, arity: int = 1) -> NumberFunction:
    return NumberFunction(lambda b, x: b.op(name, *x), arity, arity)


def compute_remainder(b: Builder, x: Sequence[Value]) -> Value:
    """Return `%`, the remainder with the sign of the first number, as in C; NaN for 0."""
    size = b.op("mod", b.op("abs", x[0]), b.op("abs", x[1]))
    return b.op("where", b.op("lt", x[0], 0.0), b.op("neg", size), size)


def _round(b: Builder, x: Sequence[Value]) -> Value:
    """Round to the nearest integer, halves away from zero; the second argument counts decimals."""
    if len(x) == 1:
        return _round_to_integer(b, x[0])
    power = b.op("pow", b.constant(np.array([10.0])), x[1])
    rounded = b.op("div", _round_to_integer(b, b.op("mul", x[0], power)), power)
    overflows = b.op("ge", b.op("abs", rounded), np.inf)
    return b.op("where", b.op("or", overflows, b.op("isnan", rounded)), x[0], rounded)


def _round_to_integer(b: Builder, x: Value) -> Value:
    truncated = b.op("trunc", x)
    rounds_away = b.op("ge", b.op("abs", b.op("sub", x, truncated)), 0.5)
    return b.op("where", rounds_away, b.op("add", truncated, b.op("sign", x)), truncated)


def _extreme(operator: str) -> NumberFunction:
    """Return GREATEST or LEAST, which ignore NULL."""

    def build(b: Builder, values: Sequence[Value]) -> Value:
        def choose(extreme: Value, x: Value) -> Value:
            larger = b.op("where", b.op("isnan", x), extreme, b.op(operator, extreme, x))
            return b.op("where", b.op("isnan", extreme), x, larger)

        return reduce(choose, values)

    return NumberFunction(build, 1, 100)


def _logarithm(b: Builder, x: Sequence[Value]) -> Value:
    logarithm = b.op("log10", x[-1])
    return logarithm if len(x) == 1 else b.op("div", logarithm, b.op("log10", x[0]))


_SAME_IN_SQL = (
    "abs cbrt ceil cos cosh exp floor log10 log2 sign sin sinh sqrt tan tanh trunc".split()
)
_INVERSES = ("cos", "cosh", "sin", "sinh", "tan", "tanh")

SQL_FUNCTIONS: Mapping[str, NumberFunction] = {
    **{name: _operator(name) for name in _SAME_IN_SQL},
    **{f"a{name}": _operator(f"arc{name}") for name in _INVERSES},
    "ceiling": _operator("ceil"),
    "cot": NumberFunction(lambda b, x: b.op("div", 1.0, b.op("tan", x[0]))),
    "degrees": NumberFunction(lambda b, x: b.op("mul", x[0], 180 / math.pi)),
    "fmod": _operator("mod", 2),  # Unlike %, it has the sign of the second.
    "greatest": _extreme("maximum"),
    "least": _extreme("minimum"),
    "ln": _operator("log"),
    "log": NumberFunction(_logarithm, 1, 2),
    "mod": NumberFunction(compute_remainder, 2, 2),
    "pi": NumberFunction(lambda b, x: b.constant(np.array([math.pi])), 0, 0),
    "pow": _operator("pow", 2),
    "power": _operator("pow", 2),
    "radians": NumberFunction(lambda b, x: b.op("mul", x[0], math.pi / 180)),
    "round": NumberFunction(_round, 1, 2),
}
"""DuckDB's functions of numbers."""

SAME_IN_NUMPY = (
    "abs arccos arccosh arcsin arcsinh arctan arctanh cbrt ceil cos cosh exp exp2 expm1 floor log "
    "log10 log1p log2 rint sign sin sinh sqrt square tan tanh trunc"
).split()
"""The functions of one number that are operators of the same name."""

NUMPY_FUNCTIONS: Mapping[str, NumberFunction] = {
    **{name: _operator(name) for name in SAME_IN_NUMPY},
    "absolute": _operator("abs"),
    "add": _operator("add", 2),
    "divide": _operator("div", 2),
    "maximum": _operator("maximum", 2),
    "minimum": _operator("minimum", 2),
    "mod": _operator("mod", 2),
    "multiply": _operator("mul", 2),
    "negative": _operator("neg"),
    "power": _operator("pow", 2),
    "subtract": _operator("sub", 2),
    "true_divide": _operator("div", 2),
}
"""numpy's functions of numbers, and by their names Python's operators."""


DATES = ("DATE", "TIMESTAMP")


def is_date(tree: exp.Expr) -> bool:
    """Return whether a tree is a literal such as DATE '2026-01-31'."""
    is_cast = isinstance(tree, exp.Cast) and isinstance(tree.this, exp.Literal)
    return is_cast and tree.this.is_string and tree.args["to"].sql("duckdb").upper() in DATES


def parse_date(text: str, kind: str, tree: exp.Expr) -> Date:
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


def _count_units(microseconds: float) -> Callable[[Moment], Value]:
    def count(moment: Moment) -> Value:
        b, x = moment.builder, moment.microseconds
        return b.op("div", b.op("sub", x, b.op("mod", x, microseconds)), microseconds)

    return count


UNITS: Mapping[str, Callable[[Moment], Value]] = {
    "year": lambda m: m.year,
    "month": lambda m: m.months,
    "day": lambda m: m.days,
    "hour": _count_units(float(HOUR)),
    "minute": _count_units(float(MINUTE)),
    "second": _count_units(float(SECOND)),
}
"""The number of each unit from a fixed date to a date."""
