"""The operands, the three-valued logic and the functions of expressions.

A NULL number is NaN, because Programs have no other missing value. A condition is a pair of masks:
one of the rows where the condition is true, and one of the rows where it is false. In all other
rows, the condition is NULL.
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
    """A float64 number per row, (n, 1), or a literal, (1,); NaN stands for NULL."""

    value: Value


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition as two bool masks, of the rows where the condition is true and false.

    If the condition is never NULL, `false` is None, and all rows outside of `true` are false.
    """

    true: Value
    false: Value | None = None


@dataclass(frozen=True, slots=True)
class Column:
    """The index of a column in the frame; the first use decides whether the column has numbers."""

    index: int


@dataclass(frozen=True, slots=True)
class Date:
    """A date or timestamp literal, as microseconds since 1970-01-01."""

    microseconds: float


@dataclass(frozen=True, slots=True)
class Text:
    """A string literal."""

    value: str


@dataclass(frozen=True, slots=True)
class Null:
    """The literal NULL."""


Operand = Number | Condition | Column | Date | Text | Null
"""The result of compiling an expression or a part of one."""


class ConditionBuilder:
    """Builds SQL conditions, which are true, false or NULL."""

    def __init__(self, builder: Builder) -> None:
        self.builder = builder

    def make_number(self, value: float) -> Number:
        return Number(self.builder.constant(np.array([value], np.float64)))

    def make_truth(self, value: bool | None) -> Condition:
        true = self.builder.constant(np.array([value is True]))
        return Condition(true, true if value is None else None)

    def compare(self, operator: str, opposite: str, left: Number, right: Number) -> Condition:
        """Build `left operator right`, which is false where `left opposite right` is true."""

        def build_mask(name: str) -> Value:
            condition = self.builder.op(name, left.value, right.value)
            if name != "ne":
                return condition
            # Unlike the other operators, "ne" is true for NaN.
            op = self.builder.op
            is_null = op("or", op("isnan", left.value), op("isnan", right.value))
            return op("and", condition, op("not", is_null))

        return Condition(build_mask(operator), build_mask(opposite))

    def build_is_null(self, number: Number) -> Condition:
        return Condition(self.builder.op("isnan", number.value))

    def negate(self, condition: Condition) -> Condition:
        true, false = condition.true, condition.false
        return Condition(self.builder.op("not", true)) if false is None else Condition(false, true)

    def conjoin(self, left: Condition, right: Condition) -> Condition:
        return self._combine("and", "or", left, right)

    def disjoin(self, left: Condition, right: Condition) -> Condition:
        return self._combine("or", "and", left, right)

    def build_is_true(self, condition: Condition) -> Condition:
        return Condition(condition.true)

    def build_is_not_null(self, condition: Condition) -> Condition:
        return Condition(self.builder.op("or", condition.true, self._build_false_mask(condition)))

    def to_number(self, condition: Condition) -> Number:
        """Convert a condition to the numbers 1 (true) and 0 (false), or to NULL."""
        if condition.false is None:
            return Number(self.builder.cast(condition.true, "float64"))
        false_or_null = self.builder.op("where", condition.false, 0.0, np.nan)
        return Number(self.builder.op("where", condition.true, 1.0, false_or_null))

    def to_truth(self, number: Number) -> Condition:
        return self.compare("ne", "eq", number, self.make_number(0.0))

    def choose(self, condition: Condition, then: Number, other: Number) -> Number:
        return Number(self.builder.op("where", condition.true, then.value, other.value))

    def _combine(self, true_op: str, false_op: str, left: Condition, right: Condition) -> Condition:
        true = self.builder.op(true_op, left.true, right.true)
        if left.false is None and right.false is None:
            return Condition(true)
        false_masks = map(self._build_false_mask, (left, right))
        return Condition(true, self.builder.op(false_op, *false_masks))

    def _build_false_mask(self, truth: Condition) -> Value:
        return self.builder.op("not", truth.true) if truth.false is None else truth.false


@dataclass(frozen=True, slots=True)
class NumberFunction:
    """A function of `min_arity` to `max_arity` numbers; `build` emits the operators."""

    build: Callable[[Builder, Sequence[Value]], Value]
    min_arity: int = 1
    max_arity: int = 1


def _make_operator_function(name: str, arity: int = 1) -> NumberFunction:
    return NumberFunction(lambda builder, operands: builder.op(name, *operands), arity, arity)


def compute_remainder(builder: Builder, operands: Sequence[Value]) -> Value:
    """Return the remainder with the sign of the dividend, or NaN if the divisor is 0."""
    op = builder.op
    magnitude = op("mod", op("abs", operands[0]), op("abs", operands[1]))
    return op("where", op("lt", operands[0], 0.0), op("neg", magnitude), magnitude)


def _build_round(builder: Builder, operands: Sequence[Value]) -> Value:
    """Round the first operand, with halves away from zero, to the decimals in the second one."""
    op = builder.op
    if len(operands) == 1:
        return _round_to_integer(builder, operands[0])
    scale = op("pow", builder.constant(np.array([10.0])), operands[1])
    rounded = op("div", _round_to_integer(builder, op("mul", operands[0], scale)), scale)
    overflows = op("ge", op("abs", rounded), np.inf)
    return op("where", op("or", overflows, op("isnan", rounded)), operands[0], rounded)


def _round_to_integer(builder: Builder, x: Value) -> Value:
    op = builder.op
    truncated = op("trunc", x)
    rounds_away = op("ge", op("abs", op("sub", x, truncated)), 0.5)
    return op("where", rounds_away, op("add", truncated, op("sign", x)), truncated)


def _make_extreme_function(operator: str) -> NumberFunction:
    """Make GREATEST (`operator` is "maximum") or LEAST; both ignore NULL arguments."""

    def build(builder: Builder, operands: Sequence[Value]) -> Value:
        op = builder.op

        def choose(extreme: Value, value: Value) -> Value:
            candidate = op("where", op("isnan", value), extreme, op(operator, extreme, value))
            return op("where", op("isnan", extreme), value, candidate)

        return reduce(choose, operands)

    return NumberFunction(build, 1, 100)


def _build_logarithm(builder: Builder, operands: Sequence[Value]) -> Value:
    op = builder.op
    logarithm = op("log10", operands[-1])
    return logarithm if len(operands) == 1 else op("div", logarithm, op("log10", operands[0]))


_SAME_IN_SQL = "abs cbrt ceil cos cosh exp floor log10 log2 sign sin sinh sqrt tan tanh trunc"
_INVERTIBLE = ("cos", "cosh", "sin", "sinh", "tan", "tanh")

SQL_FUNCTIONS: Mapping[str, NumberFunction] = {
    **{name: _make_operator_function(name) for name in _SAME_IN_SQL.split()},
    **{f"a{name}": _make_operator_function(f"arc{name}") for name in _INVERTIBLE},
    "ceiling": _make_operator_function("ceil"),
    "cot": NumberFunction(lambda builder, x: builder.op("div", 1.0, builder.op("tan", x[0]))),
    "degrees": NumberFunction(lambda builder, x: builder.op("mul", x[0], 180 / math.pi)),
    "fmod": _make_operator_function("mod", 2),  # Unlike %, it has the sign of the divisor.
    "greatest": _make_extreme_function("maximum"),
    "least": _make_extreme_function("minimum"),
    "ln": _make_operator_function("log"),
    "log": NumberFunction(_build_logarithm, 1, 2),
    "mod": NumberFunction(compute_remainder, 2, 2),
    "pi": NumberFunction(lambda builder, x: builder.constant(np.array([math.pi])), 0, 0),
    "pow": _make_operator_function("pow", 2),
    "power": _make_operator_function("pow", 2),
    "radians": NumberFunction(lambda builder, x: builder.op("mul", x[0], math.pi / 180)),
    "round": NumberFunction(_build_round, 1, 2),
}
"""Maps the names of DuckDB's numeric functions to the functions."""

SAME_IN_NUMPY = (
    "abs arccos arccosh arcsin arcsinh arctan arctanh cbrt ceil cos cosh exp exp2 expm1 floor log "
    "log10 log1p log2 rint sign sin sinh sqrt square tan tanh trunc"
).split()
"""NumPy's functions of one number for which the IR has an operator of the same name."""

NUMPY_FUNCTIONS: Mapping[str, NumberFunction] = {
    **{name: _make_operator_function(name) for name in SAME_IN_NUMPY},
    "absolute": _make_operator_function("abs"),
    "add": _make_operator_function("add", 2),
    "divide": _make_operator_function("div", 2),
    "maximum": _make_operator_function("maximum", 2),
    "minimum": _make_operator_function("minimum", 2),
    "mod": _make_operator_function("mod", 2),
    "multiply": _make_operator_function("mul", 2),
    "negative": _make_operator_function("neg"),
    "power": _make_operator_function("pow", 2),
    "subtract": _make_operator_function("sub", 2),
    "true_divide": _make_operator_function("div", 2),
}
"""Maps the names of NumPy's functions, such as add for +, to functions."""

DATE_TYPES = ("DATE", "TIMESTAMP")


def is_date_literal(tree: exp.Expr) -> bool:
    """Return whether `tree` is a date or timestamp literal, such as DATE '2026-01-31'."""
    is_cast = isinstance(tree, exp.Cast) and isinstance(tree.this, exp.Literal)
    return is_cast and tree.this.is_string and tree.args["to"].sql("duckdb").upper() in DATE_TYPES


def parse_date(date_string: str, type_name: str, tree: exp.Expr) -> Date:
    try:
        timestamp = datetime.fromisoformat(date_string.strip())
    except ValueError:
        timestamp = None
    if timestamp is None or timestamp.tzinfo is not None:
        raise UnsupportedModelError(
            f"{tree.sql('duckdb')} is not a date; write DATE '2026-01-31' or TIMESTAMP "
            "'2026-01-31 12:00:00'"
        )
    if type_name == "DATE":
        timestamp = timestamp.replace(hour=0, minute=0, second=0, microsecond=0)
    elapsed = timestamp - datetime(1970, 1, 1)
    return Date(float((elapsed.days * 86_400 + elapsed.seconds) * 1_000_000 + elapsed.microseconds))


def _count_units(moment: Moment, unit_length: int) -> Value:
    op = moment.builder.op
    elapsed = moment.microseconds
    unit = float(unit_length)
    return op("div", op("sub", elapsed, op("mod", elapsed, unit)), unit)


UNITS: Mapping[str, Callable[[Moment], Value]] = {
    "year": lambda m: m.year,
    "month": lambda m: m.builder.op("add", m.builder.op("mul", m.year, 12.0), m.month),
    "day": lambda m: m.days,
    "hour": lambda m: _count_units(m, HOUR),
    "minute": lambda m: _count_units(m, MINUTE),
    "second": lambda m: _count_units(m, SECOND),
}
"""Maps a unit of time to a function that numbers the unit of a moment, for date_diff."""
