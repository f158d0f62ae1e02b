"""What an SQL expression has while it becomes operators: numbers, truths, texts and literals.

A missing number is NaN: the Program has no other. A truth is a pair, since SQL has three of them:
where it holds, and where it does not; where neither is so, it is NULL.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

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
