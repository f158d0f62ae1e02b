"""Guards that keep expressions within the range of a database's numbers.

Some databases end a query if a number of one row overflows or underflows, while others return
infinity or 0, as IEEE 754 demands. An operation that may leave the range becomes a CASE, which
returns the result of IEEE 754, or NULL where there is no infinity.

::

    x * 0.5     CASE WHEN ABS(x) < 9.9e-324 THEN 0 ELSE x * 0.5 END
    x * 3       CASE WHEN ABS(x) > 5.9e+307 THEN x * infinity ELSE x * 3 END

Sums stay within the range by bounds on their terms: a term above a share of the greatest number
counts as infinite.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import expressions as exp

from sqlml.backends.sql.layers import ROUNDED_SUM

_MAX, _MIN = sys.float_info.max, 5e-324
_MAX_FLOAT32 = 3.4028235677973366e38  # The least float64 that is rounded to an infinite float32.
_MIN_FLOAT32 = 7.006492321624086e-46  # Smaller numbers are rounded to a float32 of 0.
_NEGLIGIBLE = 1e291  # Smaller terms do not change the greatest number.
_SAFE_RANGE = (1e-150, 1e150)  # Products and quotients of such numbers are within the range.
_LOG_MAX, _LOG_MIN = "709.78", "-744.4"  # Logarithms of the greatest and the least number.


@dataclass(frozen=True, slots=True)
class RangeErrors:
    """The operations that end a query of a database, or that differ from IEEE 754."""

    overflow: bool = False  # A float64 result that would be infinite ends a query.
    # A result that would be rounded to 0 ends a query, also in a cast to float32.
    underflow: bool = False
    # A cast to float32 of a number beyond its range ends a query, or its result is not infinity.
    float32: bool = False
    is_finite: bool = False  # There is no infinity; the greatest number stands for it.


_When = tuple[exp.Expr, exp.Expr]


def prevent_range_errors(node: exp.Expr, errors: RangeErrors) -> exp.Expr:
    """Return an expression of `Portable`'s SQL with a CASE around each unsafe operation."""
    return _RangeGuard(errors).guard(node, math.inf)


class _RangeGuard:
    def __init__(self, errors: RangeErrors) -> None:
        self._errors = errors

    def guard(self, node: exp.Expr, most: float) -> exp.Expr:
        """Return `node` without errors, and with an infinite result if it is above `most`."""
        if isinstance(node, exp.Paren):
            inner = self.guard(node.this, most)
            return inner if isinstance(inner, exp.Paren) else exp.paren(inner, copy=False)
        if isinstance(node, exp.Anonymous) and node.name == ROUNDED_SUM:
            return self._guard_rounded_sum(node)
        if isinstance(node, exp.Cast) and _is_literal(node):
            return node
        if (wide := _find_narrowed(node)) is not None:
            return self._guard_cast(node, wide, most)
        if isinstance(node, exp.Add | exp.Sub):
            return self._guard_sum(node, most)
        if isinstance(node, exp.Mul):
            return self._guard_product(node, most)
        if isinstance(node, exp.Div):
            return self._guard_quotient(node, most)
        if isinstance(node, exp.Pow):
            return self._guard_power(node)
        for child in list(node.iter_expressions()):
            changed = self.guard(child, math.inf)
            if changed is not child:
                child.replace(changed)
        return self._cap(node, most) if most < _extent(node, largest=True) else node

    def _cap(self, node: exp.Expr, most: float) -> exp.Expr:
        """Return `node`, infinite beyond `most`."""
        if not self._errors.overflow or most >= _MAX:
            return node
        return _build_case([(_is_above(node, most), _make_infinite(node))], node)

    def _guard_sum(self, node: exp.Expr, most: float) -> exp.Expr:
        terms: list[tuple[type[exp.Expr], exp.Expr]] = []
        first: exp.Expr = node
        while isinstance(first, exp.Add | exp.Sub):
            terms.insert(0, (type(first), first.expression))
            first = first.this
            while isinstance(first, exp.Paren) and isinstance(first.this, exp.Add | exp.Sub):
                first = first.this
        bounds = [_extent(first, largest=True), *(_extent(term, largest=True) for _, term in terms)]
        share = math.inf
        if self._errors.overflow and (
            bounds.count(math.inf) > 1 or sum(b for b in bounds if b < math.inf) > _NEGLIGIBLE
        ):
            share = _MAX / (2 * len(bounds))
        total = self.guard(first, share)
        for kind, term in terms:
            total = kind(this=total, expression=self.guard(term, share))
        infinite = [
            (_is_above(term, _MAX, equal=True), exp.Neg(this=term) if kind is exp.Sub else term)
            for kind, term in [(exp.Add, first), *terms]
            if self._errors.is_finite and _may_be_infinite(term)
        ]
        total = _build_case(infinite, total)
        if most < math.inf:
            return self._cap(exp.paren(total, copy=False), most)
        return total

    def _guard_product(self, node: exp.Expr, most: float) -> exp.Expr:
        a, b = node.this, node.expression
        is_literal = isinstance(b.unnest(), exp.Cast | exp.Literal)
        if is_literal and (factor := read_literal(b)) is not None:
            return self._guard_multiple(a, b, factor, most)
        if (factor := read_literal(a)) is not None:
            return self._guard_multiple(b, a, factor, most)
        a, b = self.guard(a, math.inf), self.guard(b, math.inf)
        size = exp.Add(this=_log_abs(a), expression=_log_abs(b))
        plain = _multiply(a, b)
        zero = _is_zero(a) if a == b else exp.or_(_is_zero(a), _is_zero(b))
        return self._guard_operation(a, b, plain, size, zero, most)

    def _guard_multiple(self, x: exp.Expr, by: exp.Expr, factor: float, most: float) -> exp.Expr:
        largest, smallest = _extent(x, largest=True), _extent(x, largest=False)
        x = self.guard(x, math.inf)
        whens: list[_When] = []
        limit = min(most, _MAX)
        size = abs(factor)
        if self._errors.overflow and size and largest * size > limit:
            above = math.nextafter(limit / size, 0) if limit / size < _MAX else _MAX
            if above < _MAX:
                whens.append((_is_above(x, above), _make_infinite(x, factor)))
        if self._errors.underflow and 0 < size < 1 and smallest * size < _MIN:
            whens.append((_is_below(x, _MIN / size), _build_number(0.0)))
        return _build_case(whens, _multiply(x, by))

    def _guard_quotient(self, node: exp.Expr, most: float) -> exp.Expr:
        a, b = node.this, node.expression
        divisor = read_literal(b)
        if divisor:
            largest, smallest = _extent(a, largest=True), _extent(a, largest=False)
            limit, size, a = min(most, _MAX), abs(divisor), self.guard(a, math.inf)
            whens: list[_When] = []
            if self._errors.overflow and largest / size > limit and limit * size < _MAX:
                above = math.nextafter(limit * size, 0)
                whens.append((_is_above(a, above), _make_infinite(a, divisor)))
            if self._errors.underflow and size > 1 and smallest / size < _MIN:
                whens.append((_is_below(a, _MIN * size), _build_number(0.0)))
            return _build_case(whens, exp.Div(this=a.copy(), expression=b))
        numerator = read_literal(a)
        a, b = self.guard(a, math.inf), self.guard(b, math.inf)
        plain = exp.Div(this=a.copy(), expression=b.copy())
        is_moderate = numerator is not None and 1 <= abs(numerator) <= 1e15
        if is_moderate and isinstance(b.unnest(), exp.Add):
            return plain  # A logistic function, 1 / (1 + x) with x >= 0, is always safe.
        logarithm = exp.Sub(this=_log_abs(a), expression=_log_abs(b))
        return self._guard_operation(a, b, plain, logarithm, _is_zero(a), most)

    def _guard_operation(
        self,
        a: exp.Expr,
        b: exp.Expr,
        plain: exp.Expr,
        size: exp.Expr,
        is_safe: exp.Expr,
        most: float,
    ) -> exp.Expr:
        """Return a product or quotient of two numbers, `plain`.

        `size` is the logarithm of the absolute value of the result, `is_safe` the condition that it
        raises no error, and `most` the greatest finite result.
        """
        if not (self._errors.overflow or self._errors.underflow):
            return plain
        operands = (a,) if a == b else (a, b)
        inside = exp.and_(*map(_is_in_safe_range, operands))
        infinite = exp.or_(*(_is_above(one, _MAX) for one in operands))
        sign = _multiply(_call("sign", a), _call("sign", b))
        whens = [(inside, plain), (exp.or_(is_safe, infinite), plain.copy())]
        if self._errors.overflow:
            too_large = exp.GT(this=size.copy(), expression=exp.Literal.number(_LOG_MAX))
            whens.append((too_large, _multiply(exp.paren(sign), _build_number(math.inf))))
        if self._errors.underflow:
            too_small = exp.LT(this=size.copy(), expression=exp.Literal.number(_LOG_MIN))
            whens.append((too_small, _build_number(0.0)))
        guarded_case = _build_case(whens, plain.copy())
        return guarded_case if most >= _MAX else self._cap(guarded_case, most)

    def _guard_power(self, node: exp.Expr) -> exp.Expr:
        """Return 2 to the power of a number, the only power that `Portable` has."""
        power = self.guard(node.expression, math.inf)
        power_node = node.copy()
        power_node.set("expression", power.copy())
        whens: list[_When] = []
        if self._errors.overflow:
            large = exp.GTE(this=power.copy(), expression=exp.Literal.number("1024"))
            whens.append((large, _build_number(math.inf)))
        if self._errors.underflow:
            small = exp.LT(this=power.copy(), expression=exp.Literal.number("-1074"))
            whens.append((small, _build_number(0.0)))
        return _build_case(whens, power_node)

    def _guard_cast(self, node: exp.Expr, x: exp.Expr, most: float) -> exp.Expr:
        product, factor = x.unnest(), 1.0
        by = read_literal(product.expression) if isinstance(product, exp.Mul) else None
        if by and 1e-100 < abs(by) < 1e100:  # The bounds then apply to the multiplied number.
            number, factor = self.guard(product.this, math.inf), by
            x = exp.paren(_multiply(number, product.expression), copy=False)
        else:
            number = x = self.guard(x, math.inf)
        cast = node.copy()
        cast.this.set("this", x.copy())
        whens: list[_When] = []
        if self._errors.float32 and not _is_checked(node):
            limit = min(most, _MAX_FLOAT32) / abs(factor)
            whens.append((_is_above(number, limit, equal=True), _make_infinite(number, factor)))
        if self._errors.underflow:
            whens.append((_is_below(number, _MIN_FLOAT32 / abs(factor)), _build_number(0.0)))
        return _build_case(whens, cast)

    def _guard_rounded_sum(self, node: exp.Expr) -> exp.Expr:
        """Return a sum whose terms may be rounded products; sums of trees are columns."""
        terms = node.expressions
        share = _MAX_FLOAT32 / (2 * len(terms))
        total = node.copy()
        guarded = [
            term if isinstance(term.unnest(), exp.Column) else self.guard(term, share)
            for term in terms
        ]
        total.set("expressions", guarded)
        return total


def _may_be_infinite(node: exp.Expr) -> bool:
    """Tell whether a branch of `node` is a literal infinity."""
    case = node.unnest()
    if not isinstance(case, exp.Case):
        return False
    results = [*(when.args["true"] for when in case.args["ifs"]), case.args.get("default")]
    numbers = [read_literal(one) for one in results if one is not None]
    return any(number is not None and math.isinf(number) for number in numbers)


def _extent(node: exp.Expr, largest: bool) -> float:
    """Return a bound of the absolute value of `node`: the largest, or the smallest except 0."""
    value = read_literal(node)
    if value is not None:
        return abs(value) if value or largest else math.inf
    unknown = math.inf if largest else _MIN
    if isinstance(node, exp.Paren | exp.Neg):
        return _extent(node.this, largest)
    if isinstance(node, exp.Cast):
        is_whole = node.to.this is exp.DType.BIGINT
        extent = _extent(node.this, largest)
        return max(extent, 1.0) if is_whole and not largest else extent
    if isinstance(node, exp.Case):
        results = [when.args["true"] for when in node.args["ifs"]]
        if node.args.get("default") is not None:
            results.append(node.args["default"])
        extents = [_extent(one, largest) for one in results if not isinstance(one, exp.Null)]
        return (max if largest else min)(extents, default=unknown)
    if isinstance(node, exp.Mul):
        return _extent(node.this, largest) * _extent(node.expression, largest)
    return unknown


def read_literal(node: exp.Expr) -> float | None:
    """Return the value of a numeric literal; None for other expressions."""
    node = node.unnest()
    if isinstance(node, exp.Neg):
        inner = read_literal(node.this)
        return None if inner is None else -inner
    if isinstance(node, exp.Cast):
        if _is_literal(node):
            return float(node.this.this)
        return read_literal(node.this)
    if isinstance(node, exp.Literal) and not node.is_string:
        return float(node.this)
    return None


def _is_literal(node: exp.Cast) -> bool:
    is_text = isinstance(node.this, exp.Literal) and node.this.is_string
    return is_text and node.to.this in (exp.DType.DOUBLE, exp.DType.FLOAT, exp.DType.BIGINT)


def _find_narrowed(node: exp.Expr) -> exp.Expr | None:
    """Return the operand of a cast to FLOAT and back to DOUBLE, if `node` is one."""
    if not (isinstance(node, exp.Cast) and node.to.this is exp.DType.DOUBLE):
        return None
    inner = node.this
    is_narrow = isinstance(inner, exp.Cast) and inner.to.this is exp.DType.FLOAT
    return inner.this if is_narrow and not _is_literal(inner) else None


def _is_checked(node: exp.Expr) -> bool:
    """Tell whether `node` stands in a branch for numbers within the range of float32."""
    branch = node.find_ancestor(exp.If)
    return branch is not None and any(
        read_literal(test.expression) == _MAX_FLOAT32 for test in branch.this.find_all(exp.LT)
    )


def _build_case(whens: Sequence[_When], default: exp.Expr) -> exp.Expr:
    if not whens:
        return default
    case = exp.Case(default=default.copy())
    for condition, value in whens:
        case.append("ifs", exp.If(this=condition, true=value))
    return exp.paren(case, copy=False)


def _build_number(value: float) -> exp.Expr:
    text = f"{'-' if value < 0 else ''}infinity" if math.isinf(value) else repr(value)
    return exp.cast(exp.Literal.string(text), exp.DType.DOUBLE)


def _make_infinite(x: exp.Expr, sign: float = 1.0) -> exp.Expr:
    return _multiply(x, _build_number(math.copysign(math.inf, sign)))


def _multiply(a: exp.Expr, b: exp.Expr) -> exp.Expr:
    return exp.Mul(this=_parenthesize(a), expression=_parenthesize(b))


def _parenthesize(node: exp.Expr) -> exp.Expr:
    return exp.paren(node.copy()) if isinstance(node, exp.Binary) else node.copy()


def _call(name: str, x: exp.Expr) -> exp.Expr:
    return exp.func(name, x.copy())


def _log_abs(x: exp.Expr) -> exp.Expr:
    return _call("ln", _call("abs", x))


def _is_above(x: exp.Expr, limit: float, equal: bool = False) -> exp.Expr:
    kind = exp.GTE if equal else exp.GT
    return kind(this=_call("abs", x), expression=_build_number(limit))


def _is_below(x: exp.Expr, limit: float) -> exp.Expr:
    return exp.LT(this=_call("abs", x), expression=_build_number(limit))


def _is_zero(x: exp.Expr) -> exp.Expr:
    return exp.EQ(this=_parenthesize(x), expression=_build_number(0.0))


def _is_in_safe_range(x: exp.Expr) -> exp.Expr:
    low, high = map(_build_number, _SAFE_RANGE)
    return exp.Between(this=_call("abs", x), low=low, high=high)
