"""`without_range_errors`: expressions that a database computes for all numbers.

Some databases end a query where a number of one row becomes too large for its type, or so small
that only 0 is left. Others give infinity and 0, as IEEE 754 asks. An operation that may leave the
range is put into a CASE that gives what IEEE 754 would give, or NULL where there is no infinity.

::

    x * 0.5     CASE WHEN ABS(x) < 9.9e-324 THEN 0 ELSE x * 0.5 END
    x * 3       CASE WHEN ABS(x) > 5.9e+307 THEN x * infinity ELSE x * 3 END

Sums are kept within the range by bounds of their terms: a term that is greater than a share of the
greatest number counts as infinite.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import expressions as exp

from sqlml.backends.sql.layers import ROUNDED_SUM

_MOST = sys.float_info.max
_LEAST = 5e-324

_MOST_FLOAT32 = 3.4028235677973366e38
"""From here on a float64 is rounded to an infinite float32."""

_LEAST_FLOAT32 = 7.006492321624086e-46
"""Below this a float64 is rounded to 0."""

_LOST = 1e291
"""Less than this does not change the greatest number when it is added to it."""

_TAME = ("1e-150", "1e+150")
"""Two numbers between these have a product and a quotient within the range."""

_LOG_MOST, _LOG_LEAST = "709.78", "-744.4"
"""Logarithms of the greatest and of the least number."""


@dataclass(frozen=True, slots=True)
class RangeErrors:
    """What ends a query of a database.

    Attributes:
        overflow: a result of float64 that is infinite. underflow: one that is rounded to 0, of
            numbers that are not, also in a cast to float32. float32: a cast to float32 of a number
            beyond its range, or another result of that cast than infinity. is_finite: there is no
            infinity, for which the greatest number stands in what a Program computes.
    """

    overflow: bool = False
    underflow: bool = False
    float32: bool = False
    is_finite: bool = False


def without_range_errors(node: exp.Expr, errors: RangeErrors) -> exp.Expr:
    """Return an expression in `Portable`'s SQL with a CASE around each operation that may end the
    query of a database."""
    return _Guard(errors).guarded(node, math.inf)


class _Guard:
    def __init__(self, errors: RangeErrors) -> None:
        self._errors = errors

    def guarded(self, node: exp.Expr, most: float) -> exp.Expr:
        """Return `node` as an expression that raises no error, and whose result is infinite if it
        is greater than `most`."""
        if isinstance(node, exp.Paren):
            inner = self.guarded(node.this, most)
            return inner if isinstance(inner, exp.Paren) else exp.paren(inner, copy=False)
        if isinstance(node, exp.Anonymous) and node.name == ROUNDED_SUM:
            return self._rounded_sum(node)
        if isinstance(node, exp.Cast) and _is_literal(node):
            return node
        if (wide := _narrowed(node)) is not None:
            return self._narrow(node, wide, most)
        if isinstance(node, exp.Add | exp.Sub):
            return self._sum(node, most)
        if isinstance(node, exp.Mul):
            return self._product(node, most)
        if isinstance(node, exp.Div):
            return self._quotient(node, most)
        if isinstance(node, exp.Pow):
            return self._power_of_two(node)
        for child in list(node.iter_expressions()):
            changed = self.guarded(child, math.inf)
            if changed is not child:
                child.replace(changed)
        return self._capped(node, most) if most < bound(node) else node

    def _capped(self, node: exp.Expr, most: float) -> exp.Expr:
        """Return `node`, infinite beyond `most`."""
        if not self._errors.overflow or most >= _MOST:
            return node
        return _case([(_above(node, most), _mul(node, _number(math.inf)))], node)

    def _sum(self, node: exp.Expr, most: float) -> exp.Expr:
        """Return a sum of terms from left to right."""
        terms: list[tuple[type[exp.Expr], exp.Expr]] = []
        first: exp.Expr = node
        while isinstance(first, exp.Add | exp.Sub):
            terms.insert(0, (type(first), first.expression))
            first = first.this
            while isinstance(first, exp.Paren) and isinstance(first.this, exp.Add | exp.Sub):
                first = first.this
        bounds = [bound(first), *(bound(term) for _, term in terms)]
        share = math.inf
        if self._errors.overflow and (
            bounds.count(math.inf) > 1 or sum(b for b in bounds if b < math.inf) > _LOST
        ):
            share = _MOST / (2 * len(bounds))
        made = self.guarded(first, share)
        for kind, term in terms:
            made = kind(this=made, expression=self.guarded(term, share))
        infinite = [
            (_above(term, _MOST, equal=True), exp.Neg(this=term) if kind is exp.Sub else term)
            for kind, term in [(exp.Add, first), *terms]
            if self._errors.is_finite and _may_be_infinite(term)
        ]
        made = _case(infinite, made)
        if most < math.inf:
            return self._capped(exp.paren(made, copy=False), most)
        return made

    def _product(self, node: exp.Expr, most: float) -> exp.Expr:
        a, b = node.this, node.expression
        if isinstance(b.unnest(), exp.Cast | exp.Literal) and (factor := literal(b)) is not None:
            return self._multiple(a, b, factor, most)
        if (factor := literal(a)) is not None:
            return self._multiple(b, a, factor, most)
        a, b = self.guarded(a, math.inf), self.guarded(b, math.inf)
        size = exp.Add(this=_log(a), expression=_log(b))
        plain = _mul(a, b)
        zero = _is_zero(a) if a == b else exp.or_(_is_zero(a), _is_zero(b))
        return self._of_two(a, b, plain, size, zero, most)

    def _multiple(self, x: exp.Expr, by: exp.Expr, factor: float, most: float) -> exp.Expr:
        """Return a number times a literal."""
        largest, least = bound(x), _least(x)
        x = self.guarded(x, math.inf)
        whens: list[tuple[exp.Expr, exp.Expr]] = []
        limit = min(most, _MOST)
        size = abs(factor)
        if self._errors.overflow and size and largest * size > limit:
            above = math.nextafter(limit / size, 0) if limit / size < _MOST else _MOST
            if above < _MOST:
                infinite = _mul(x, _number(math.copysign(math.inf, factor)))
                whens.append((_above(x, above), infinite))
        if self._errors.underflow and 0 < size < 1 and least * size < _LEAST:
            whens.append((_below(x, _LEAST / size), _number(0.0)))
        return _case(whens, _mul(x, by))

    def _quotient(self, node: exp.Expr, most: float) -> exp.Expr:
        a, b = node.this, node.expression
        divisor = literal(b)
        if divisor:
            largest, least, limit = bound(a), _least(a), min(most, _MOST)
            a, size = self.guarded(a, math.inf), abs(divisor)
            whens: list[tuple[exp.Expr, exp.Expr]] = []
            if self._errors.overflow and largest / size > limit and limit * size < _MOST:
                infinite = _mul(a, _number(math.copysign(math.inf, divisor)))
                whens.append((_above(a, math.nextafter(limit * size, 0)), infinite))
            if self._errors.underflow and size > 1 and least / size < _LEAST:
                below = _LEAST * size
                whens.append((_below(a, below), _number(0.0)))
            return _case(whens, exp.Div(this=a.copy(), expression=b))
        numerator = literal(a)
        a, b = self.guarded(a, math.inf), self.guarded(b, math.inf)
        plain = exp.Div(this=a.copy(), expression=b.copy())
        if (
            numerator is not None
            and 1 <= abs(numerator) <= 1e15
            and isinstance(b.unnest(), exp.Add)
        ):
            return plain  # 1 / (1 + x), where x is not below 0
        logarithm = exp.Sub(this=_log(a), expression=_log(b))
        return self._of_two(a, b, plain, logarithm, _is_zero(a), most)

    def _of_two(
        self,
        a: exp.Expr,
        b: exp.Expr,
        plain: exp.Expr,
        size: exp.Expr,
        is_safe: exp.Expr,
        most: float,
    ) -> exp.Expr:
        """Return a product or quotient of two numbers, `size` being the logarithm of its size."""
        if not (self._errors.overflow or self._errors.underflow):
            return plain
        operands = (a,) if a == b else (a, b)
        inside = exp.and_(*map(_between, operands))
        infinite = exp.or_(*(_above(one, _MOST) for one in operands))
        sign = _mul(_func("sign", a), _func("sign", b))
        whens = [(inside, plain), (exp.or_(is_safe, infinite), plain.copy())]
        if self._errors.overflow:
            too_large = exp.GT(this=size.copy(), expression=exp.Literal.number(_LOG_MOST))
            whens.append((too_large, _mul(exp.paren(sign), _number(math.inf))))
        if self._errors.underflow:
            too_small = exp.LT(this=size.copy(), expression=exp.Literal.number(_LOG_LEAST))
            whens.append((too_small, _number(0.0)))
        made = _case(whens, plain.copy())
        return made if most >= _MOST else self._capped(made, most)

    def _power_of_two(self, node: exp.Expr) -> exp.Expr:
        """Return 2 to the power of a number, the only power that `Portable` has."""
        power = self.guarded(node.expression, math.inf)
        made = node.copy()
        made.set("expression", power.copy())
        whens: list[tuple[exp.Expr, exp.Expr]] = []
        if self._errors.overflow:
            large = exp.GTE(this=power.copy(), expression=exp.Literal.number("1024"))
            whens.append((large, _number(math.inf)))
        if self._errors.underflow:
            small = exp.LT(this=power.copy(), expression=exp.Literal.number("-1074"))
            whens.append((small, _number(0.0)))
        return _case(whens, made)

    def _narrow(self, node: exp.Expr, x: exp.Expr, most: float) -> exp.Expr:
        """Return `x` rounded to a float32."""
        product, factor = x.unnest(), 1.0
        by = literal(product.expression) if isinstance(product, exp.Mul) else None
        if by and 1e-100 < abs(by) < 1e100:  # told from the number that is multiplied
            number, factor = self.guarded(product.this, math.inf), by
            x = exp.paren(_mul(number, product.expression), copy=False)
        else:
            number = x = self.guarded(x, math.inf)
        made = node.copy()
        made.this.set("this", x.copy())
        whens: list[tuple[exp.Expr, exp.Expr]] = []
        if self._errors.float32 and not _is_checked(node):
            limit = min(most, _MOST_FLOAT32) / abs(factor)
            infinite = _mul(number, _number(math.copysign(math.inf, factor)))
            whens.append((_above(number, limit, equal=True), infinite))
        if self._errors.underflow:
            whens.append((_below(number, _LEAST_FLOAT32 / abs(factor)), _number(0.0)))
        return _case(whens, made)

    def _rounded_sum(self, node: exp.Expr) -> exp.Expr:
        """Return a sum whose terms may be rounded products; sums of trees are columns."""
        terms = node.expressions
        share = _MOST_FLOAT32 / (2 * len(terms))
        made = node.copy()
        made.set("expressions", [self._term(term, share) for term in terms])
        return made

    def _term(self, term: exp.Expr, share: float) -> exp.Expr:
        inner = term.unnest()
        return term if isinstance(inner, exp.Column) else self.guarded(term, share)


def _may_be_infinite(node: exp.Expr) -> bool:
    """Return whether a result of `node` is written as infinity."""
    case = node.unnest()
    if not isinstance(case, exp.Case):
        return False
    results = [*(when.args["true"] for when in case.args["ifs"]), case.args.get("default")]
    numbers = [literal(one) for one in results if one is not None]
    return any(number is not None and math.isinf(number) for number in numbers)


def bound(node: exp.Expr) -> float:
    """Return a number that the absolute value of `node` does not exceed."""
    return _extent(node, largest=True)


def _least(node: exp.Expr) -> float:
    """Return a number that the absolute value of `node` is not below, unless it is 0."""
    return _extent(node, largest=False)


def _extent(node: exp.Expr, largest: bool) -> float:
    value = literal(node)
    if value is not None:
        return abs(value) if value or largest else math.inf
    unknown = math.inf if largest else _LEAST
    if isinstance(node, exp.Paren | exp.Neg):
        return _extent(node.this, largest)
    if isinstance(node, exp.Cast):
        is_whole = node.to.this is exp.DType.BIGINT
        found = _extent(node.this, largest)
        return max(found, 1.0) if is_whole and not largest else found
    if isinstance(node, exp.Case):
        results = [when.args["true"] for when in node.args["ifs"]]
        if node.args.get("default") is not None:
            results.append(node.args["default"])
        each = [_extent(one, largest) for one in results if not isinstance(one, exp.Null)]
        return (max if largest else min)(each, default=unknown)
    if isinstance(node, exp.Mul):
        return _extent(node.this, largest) * _extent(node.expression, largest)
    return unknown


def literal(node: exp.Expr) -> float | None:
    """Return the number that a literal stands for."""
    node = node.unnest()
    if isinstance(node, exp.Neg):
        inner = literal(node.this)
        return None if inner is None else -inner
    if isinstance(node, exp.Cast):
        if _is_literal(node):
            return float(node.this.this)
        return literal(node.this)
    if isinstance(node, exp.Literal) and not node.is_string:
        return float(node.this)
    return None


def _is_literal(node: exp.Cast) -> bool:
    is_text = isinstance(node.this, exp.Literal) and node.this.is_string
    return is_text and node.to.this in (exp.DType.DOUBLE, exp.DType.FLOAT, exp.DType.BIGINT)


def _narrowed(node: exp.Expr) -> exp.Expr | None:
    """Return what is cast to FLOAT and back, if that is what `node` is."""
    if not (isinstance(node, exp.Cast) and node.to.this is exp.DType.DOUBLE):
        return None
    inner = node.this
    is_narrow = isinstance(inner, exp.Cast) and inner.to.this is exp.DType.FLOAT
    return inner.this if is_narrow and not _is_literal(inner) else None


def _is_checked(node: exp.Expr) -> bool:
    """Whether `node` is computed for numbers within the range of float32 only."""
    branch = node.find_ancestor(exp.If)
    return branch is not None and any(
        literal(test.expression) == _MOST_FLOAT32 for test in branch.this.find_all(exp.LT)
    )


def _case(whens: Sequence[tuple[exp.Expr, exp.Expr]], default: exp.Expr) -> exp.Expr:
    if not whens:
        return default
    made = exp.Case(default=default.copy())
    for condition, value in whens:
        made.append("ifs", exp.If(this=condition, true=value))
    return exp.paren(made, copy=False)


def _number(value: float) -> exp.Expr:
    text = f"{'-' if value < 0 else ''}infinity" if math.isinf(value) else repr(value)
    return exp.cast(exp.Literal.string(text), exp.DType.DOUBLE)


def _mul(a: exp.Expr, b: exp.Expr) -> exp.Expr:
    return exp.Mul(this=_operand(a), expression=_operand(b))


def _operand(node: exp.Expr) -> exp.Expr:
    return exp.paren(node.copy()) if isinstance(node, exp.Binary) else node.copy()


def _func(name: str, x: exp.Expr) -> exp.Expr:
    return exp.func(name, x.copy())


def _log(x: exp.Expr) -> exp.Expr:
    return _func("ln", _func("abs", x))


def _above(x: exp.Expr, limit: float, equal: bool = False) -> exp.Expr:
    kind = exp.GTE if equal else exp.GT
    return kind(this=_func("abs", x), expression=_number(limit))


def _below(x: exp.Expr, limit: float) -> exp.Expr:
    return exp.LT(this=_func("abs", x), expression=_number(limit))


def _is_zero(x: exp.Expr) -> exp.Expr:
    return exp.EQ(this=_operand(x), expression=_number(0.0))


def _between(x: exp.Expr) -> exp.Expr:
    low, high = (_number(float(text)) for text in _TAME)
    return exp.Between(this=_func("abs", x), low=low, high=high)
