"""Guards that keep expressions within the range of a database's numbers.

Some databases end a query if a number of one row overflows or underflows, while others return
infinity or 0, as IEEE 754 demands. An operation that may leave the range becomes a CASE, which
returns the result of IEEE 754, or NULL if the database has no infinity.

::

    x * 0.5     CASE WHEN ABS(x) < 9.9e-324 THEN 0 ELSE x * 0.5 END
    x * 3       CASE WHEN ABS(x) > 5.9e+307 THEN x * infinity ELSE x * 3 END

Sums stay within the range because their terms are bounded: a term above a share of the largest
number counts as infinite.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from operator import mul, truediv

from sqlglot import expressions as exp

from sqlml.backends.sql.layers import ROUNDED_SUM

_MAX, _MIN = sys.float_info.max, 5e-324
_MAX_FLOAT32 = 3.4028235677973366e38  # The smallest float64 that is rounded to an infinite float32.
_MIN_FLOAT32 = 7.006492321624086e-46  # Smaller numbers are rounded to a float32 of 0.
_NEGLIGIBLE = 1e291  # Smaller terms do not change the largest number when added to it.
_SAFE_RANGE = (1e-150, 1e150)  # Products and quotients of these numbers stay finite and nonzero.
_LOG_MAX, _LOG_MIN = "709.78", "-744.4"  # Logarithms of the largest and the smallest number.


@dataclass(frozen=True, slots=True)
class RangeErrors:
    """The arithmetic errors that end a query of a database, and its deviations from IEEE 754."""

    overflow: bool = False  # A float64 operation with an infinite result ends a query.
    # An operation or a cast to float32 whose result is rounded to 0 ends a query.
    underflow: bool = False
    # A cast to float32 of a number that is too large ends a query, or does not return infinity.
    float32: bool = False
    is_finite: bool = False  # The database has no infinity. The largest number replaces infinity.


_Branch = tuple[exp.Expr, exp.Expr]
"""A condition of a CASE, and the result if the condition is true."""


def prevent_range_errors(node: exp.Expr, errors: RangeErrors) -> exp.Expr:
    """Return the portable SQL `node` with a CASE around each operation that may raise `errors`."""
    return _RangeGuard(errors).guard(node, math.inf)


class _RangeGuard:
    """A guard that puts CASEs around operations that would raise one of a database's errors."""

    def __init__(self, errors: RangeErrors) -> None:
        self._errors = errors

    def guard(self, node: exp.Expr, max_result: float) -> exp.Expr:
        """Return `node` with a CASE around each operation that may end the query.

        A result whose absolute value is above `max_result` becomes infinite.
        """
        if isinstance(node, exp.Paren):
            inner = self.guard(node.this, max_result)
            return inner if isinstance(inner, exp.Paren) else exp.paren(inner, copy=False)
        if isinstance(node, exp.Anonymous) and node.name == ROUNDED_SUM:
            return self._guard_rounded_sum(node)
        if isinstance(node, exp.Cast) and _is_number_literal(node):
            return node
        if (operand := _find_float32_operand(node)) is not None:
            return self._guard_cast(node, operand, max_result)
        if isinstance(node, exp.Add | exp.Sub):
            return self._guard_sum(node, max_result)
        if isinstance(node, exp.Mul):
            return self._guard_product(node, max_result)
        if isinstance(node, exp.Div):
            return self._guard_quotient(node, max_result)
        if isinstance(node, exp.Pow):
            return self._guard_power(node)
        for child in list(node.iter_expressions()):
            guarded_child = self.guard(child, math.inf)
            if guarded_child is not child:
                child.replace(guarded_child)
        is_bounded = _find_extent(node, is_largest=True) <= max_result
        return node if is_bounded else self._cap_result(node, max_result)

    def _cap_result(self, node: exp.Expr, max_result: float) -> exp.Expr:
        """Return a CASE that is infinite if |`node`| exceeds `max_result`, and `node` otherwise."""
        if not self._errors.overflow or max_result >= _MAX:
            return node
        return _build_case([(_build_above_test(node, max_result), _build_infinity(node))], node)

    def _guard_sum(self, node: exp.Expr, max_result: float) -> exp.Expr:
        """Return the sum or difference `node` with guarded terms, whose total cannot overflow."""
        terms: list[tuple[type[exp.Expr], exp.Expr]] = []
        first_term: exp.Expr = node
        while isinstance(first_term, exp.Add | exp.Sub):
            terms.insert(0, (type(first_term), first_term.expression))
            inner = first_term.this.unnest()
            first_term = inner if isinstance(inner, exp.Add | exp.Sub) else first_term.this
        terms.insert(0, (exp.Add, first_term))
        extents = [_find_extent(term, is_largest=True) for _, term in terms]
        max_term = math.inf
        if self._errors.overflow and (
            extents.count(math.inf) > 1
            or sum(extent for extent in extents if extent < math.inf) > _NEGLIGIBLE
        ):
            max_term = _MAX / (2 * len(extents))
        total = self.guard(first_term, max_term)
        for operation, term in terms[1:]:
            total = operation(this=total, expression=self.guard(term, max_term))
        branches: list[_Branch] = []
        for operation, term in terms:
            # If the database has no infinity, a term that stands for it replaces the sum.
            if self._errors.is_finite and _may_be_infinite(term):
                is_infinite = _build_above_test(term, _MAX, or_equal=True)
                branches.append((is_infinite, exp.Neg(this=term) if operation is exp.Sub else term))
        total = _build_case(branches, total)
        is_limited = max_result < math.inf
        return self._cap_result(exp.paren(total, copy=False), max_result) if is_limited else total

    def _guard_product(self, node: exp.Expr, max_result: float) -> exp.Expr:
        left, right = node.this, node.expression
        is_literal = isinstance(right.unnest(), exp.Cast | exp.Literal)
        if is_literal and read_literal(right) is not None:
            return self._guard_scaling(node, left, right, max_result)
        if read_literal(left) is not None:
            return self._guard_scaling(node, right, left, max_result)
        left, right = self.guard(left, math.inf), self.guard(right, math.inf)
        log_size = exp.Add(this=_build_log_abs(left), expression=_build_log_abs(right))
        zero_test = _build_zero_test(left)
        if left != right:
            zero_test = exp.or_(zero_test, _build_zero_test(right))
        product = _build_product(left, right)
        return self._guard_operation(left, right, product, log_size, zero_test, max_result)

    def _guard_scaling(
        self, node: exp.Expr, operand: exp.Expr, literal: exp.Expr, max_result: float
    ) -> exp.Expr:
        """Return a CASE around `node`, which multiplies or divides `operand` by a literal."""
        is_product = isinstance(node, exp.Mul)
        factor = read_literal(literal) or 0.0
        scale, unscale = (mul, truediv) if is_product else (truediv, mul)
        largest, smallest = (_find_extent(operand, is_largest) for is_largest in (True, False))
        operand = self.guard(operand, math.inf)
        branches: list[_Branch] = []
        limit = min(max_result, _MAX)
        size = abs(factor)
        overflows = size and scale(largest, size) > limit and unscale(limit, size) < _MAX
        if self._errors.overflow and overflows:
            above_test = _build_above_test(operand, math.nextafter(unscale(limit, size), 0))
            branches.append((above_test, _build_infinity(operand, factor)))
        underflows = size and scale(1.0, size) < 1 and scale(smallest, size) < _MIN
        if self._errors.underflow and underflows:
            below_test = _build_below_test(operand, unscale(_MIN, size))
            branches.append((below_test, _build_number(0.0)))
        if is_product:
            return _build_case(branches, _build_product(operand, literal))
        return _build_case(branches, exp.Div(this=operand.copy(), expression=literal))

    def _guard_quotient(self, node: exp.Expr, max_result: float) -> exp.Expr:
        dividend, divisor = node.this, node.expression
        if read_literal(divisor):
            return self._guard_scaling(node, dividend, divisor, max_result)
        numerator = read_literal(dividend)
        dividend, divisor = self.guard(dividend, math.inf), self.guard(divisor, math.inf)
        quotient = exp.Div(this=dividend.copy(), expression=divisor.copy())
        is_moderate = numerator is not None and 1 <= abs(numerator) <= 1e15
        if is_moderate and isinstance(divisor.unnest(), exp.Add):
            return quotient  # A logistic function, 1 / (1 + x) with x >= 0, is always safe.
        log_size = exp.Sub(this=_build_log_abs(dividend), expression=_build_log_abs(divisor))
        zero_test = _build_zero_test(dividend)
        return self._guard_operation(dividend, divisor, quotient, log_size, zero_test, max_result)

    def _guard_operation(
        self,
        left: exp.Expr,
        right: exp.Expr,
        operation: exp.Expr,
        log_size: exp.Expr,
        safe_test: exp.Expr,
        max_result: float,
    ) -> exp.Expr:
        """Return a CASE around `operation`, the product or quotient of `left` and `right`.

        `log_size` is the SQL of the logarithm of the result's absolute value. If the condition
        `safe_test` is true, the operation raises no error.
        """
        if not (self._errors.overflow or self._errors.underflow):
            return operation
        operands = (left,) if left == right else (left, right)
        safe_range_test = exp.and_(*map(_build_safe_range_test, operands))
        is_infinite = exp.or_(*(_build_above_test(operand, _MAX) for operand in operands))
        sign = _build_product(_build_call("sign", left), _build_call("sign", right))
        exact_test = exp.or_(safe_test, is_infinite)
        branches = [(safe_range_test, operation), (exact_test, operation.copy())]
        if self._errors.overflow:
            overflow_test = exp.GT(this=log_size.copy(), expression=exp.Literal.number(_LOG_MAX))
            infinity = _build_product(exp.paren(sign), _build_number(math.inf))
            branches.append((overflow_test, infinity))
        if self._errors.underflow:
            underflow_test = exp.LT(this=log_size.copy(), expression=exp.Literal.number(_LOG_MIN))
            branches.append((underflow_test, _build_number(0.0)))
        guarded_case = _build_case(branches, operation.copy())
        return guarded_case if max_result >= _MAX else self._cap_result(guarded_case, max_result)

    def _guard_power(self, node: exp.Expr) -> exp.Expr:
        """Return a CASE around the power of 2 `node`. `Portable` has no other powers."""
        exponent = self.guard(node.expression, math.inf)
        power_node = node.copy()
        power_node.set("expression", exponent.copy())
        branches: list[_Branch] = []
        if self._errors.overflow:
            overflow_test = exp.GTE(this=exponent.copy(), expression=exp.Literal.number("1024"))
            branches.append((overflow_test, _build_number(math.inf)))
        if self._errors.underflow:
            underflow_test = exp.LT(this=exponent.copy(), expression=exp.Literal.number("-1074"))
            branches.append((underflow_test, _build_number(0.0)))
        return _build_case(branches, power_node)

    def _guard_cast(self, node: exp.Expr, operand: exp.Expr, max_result: float) -> exp.Expr:
        """Return a CASE around `node`, which casts `operand` to a float32 and back."""
        product = operand.unnest()
        factor = 1.0
        literal = read_literal(product.expression) if isinstance(product, exp.Mul) else None
        if literal and 1e-100 < abs(literal) < 1e100:
            # Compare the number that the literal multiplies with bounds divided by the literal.
            number, factor = self.guard(product.this, math.inf), literal
            operand = exp.paren(_build_product(number, product.expression), copy=False)
        else:
            number = operand = self.guard(operand, math.inf)
        cast = node.copy()
        cast.this.set("this", operand.copy())
        branches: list[_Branch] = []
        if self._errors.float32 and not _is_range_checked(node):
            limit = min(max_result, _MAX_FLOAT32) / abs(factor)
            above_test = _build_above_test(number, limit, or_equal=True)
            branches.append((above_test, _build_infinity(number, factor)))
        if self._errors.underflow:
            below_test = _build_below_test(number, _MIN_FLOAT32 / abs(factor))
            branches.append((below_test, _build_number(0.0)))
        return _build_case(branches, cast)

    def _guard_rounded_sum(self, node: exp.Expr) -> exp.Expr:
        """Guard the terms of the rounded sum `node`, except columns, which hold sums of trees."""
        terms = node.expressions
        max_term = _MAX_FLOAT32 / (2 * len(terms))
        total = node.copy()
        guarded_terms = [
            term if isinstance(term.unnest(), exp.Column) else self.guard(term, max_term)
            for term in terms
        ]
        total.set("expressions", guarded_terms)
        return total


def _may_be_infinite(node: exp.Expr) -> bool:
    """Return whether `node` is a CASE that returns a literal infinity in one of its branches."""
    case = node.unnest()
    if not isinstance(case, exp.Case):
        return False
    results = [*(when.args["true"] for when in case.args["ifs"]), case.args.get("default")]
    numbers = [read_literal(result) for result in results if result is not None]
    return any(number is not None and math.isinf(number) for number in numbers)


def _find_extent(node: exp.Expr, is_largest: bool) -> float:
    """Return an upper bound of |`node`| if `is_largest`, or else a lower bound if nonzero."""
    value = read_literal(node)
    if value is not None:
        return abs(value) if value or is_largest else math.inf
    unknown_extent = math.inf if is_largest else _MIN
    if isinstance(node, exp.Paren | exp.Neg):
        return _find_extent(node.this, is_largest)
    if isinstance(node, exp.Cast):
        extent = _find_extent(node.this, is_largest)
        is_integer = node.to.this is exp.DType.BIGINT
        return max(extent, 1.0) if is_integer and not is_largest else extent
    if isinstance(node, exp.Case):
        results = [*(when.args["true"] for when in node.args["ifs"]), node.args.get("default")]
        numbers = [result for result in results if not isinstance(result, exp.Null | None)]
        extents = [_find_extent(number, is_largest) for number in numbers]
        return (max if is_largest else min)(extents, default=unknown_extent)
    if isinstance(node, exp.Mul):
        return _find_extent(node.this, is_largest) * _find_extent(node.expression, is_largest)
    return unknown_extent


def read_literal(node: exp.Expr) -> float | None:
    """Return the value of `node` if it is a numeric literal, or None for other expressions."""
    node = node.unnest()
    if isinstance(node, exp.Neg):
        value = read_literal(node.this)
        return None if value is None else -value
    if isinstance(node, exp.Cast):
        return float(node.this.this) if _is_number_literal(node) else read_literal(node.this)
    if isinstance(node, exp.Literal) and not node.is_string:
        return float(node.this)
    return None


def _is_number_literal(node: exp.Cast) -> bool:
    is_string = isinstance(node.this, exp.Literal) and node.this.is_string
    return is_string and node.to.this in (exp.DType.DOUBLE, exp.DType.FLOAT, exp.DType.BIGINT)


def _find_float32_operand(node: exp.Expr) -> exp.Expr | None:
    """Return the operand of `node` if it is a cast to FLOAT and back to DOUBLE, or else None."""
    if not (isinstance(node, exp.Cast) and node.to.this is exp.DType.DOUBLE):
        return None
    inner = node.this
    is_narrow = isinstance(inner, exp.Cast) and inner.to.this is exp.DType.FLOAT
    return inner.this if is_narrow and not _is_number_literal(inner) else None


def _is_range_checked(node: exp.Expr) -> bool:
    """Return whether `node` is in a CASE branch that tests whether a number fits a float32."""
    branch = node.find_ancestor(exp.If)
    return branch is not None and any(
        read_literal(test.expression) == _MAX_FLOAT32 for test in branch.this.find_all(exp.LT)
    )


def _build_case(branches: Sequence[_Branch], default: exp.Expr) -> exp.Expr:
    if not branches:
        return default
    case = exp.Case(default=default.copy())
    for condition, result in branches:
        case.append("ifs", exp.If(this=condition, true=result))
    return exp.paren(case, copy=False)


def _build_number(value: float) -> exp.Expr:
    text = f"{'-' if value < 0 else ''}infinity" if math.isinf(value) else repr(value)
    return exp.cast(exp.Literal.string(text), exp.DType.DOUBLE)


def _build_infinity(node: exp.Expr, sign: float = 1.0) -> exp.Expr:
    return _build_product(node, _build_number(math.copysign(math.inf, sign)))


def _build_product(left: exp.Expr, right: exp.Expr) -> exp.Expr:
    return exp.Mul(this=_parenthesize(left), expression=_parenthesize(right))


def _parenthesize(node: exp.Expr) -> exp.Expr:
    return exp.paren(node.copy()) if isinstance(node, exp.Binary) else node.copy()


def _build_call(name: str, node: exp.Expr) -> exp.Expr:
    return exp.func(name, node.copy())


def _build_log_abs(node: exp.Expr) -> exp.Expr:
    return _build_call("ln", _build_call("abs", node))


def _build_above_test(node: exp.Expr, limit: float, or_equal: bool = False) -> exp.Expr:
    comparison = exp.GTE if or_equal else exp.GT
    return comparison(this=_build_call("abs", node), expression=_build_number(limit))


def _build_below_test(node: exp.Expr, limit: float) -> exp.Expr:
    return exp.LT(this=_build_call("abs", node), expression=_build_number(limit))


def _build_zero_test(node: exp.Expr) -> exp.Expr:
    return exp.EQ(this=_parenthesize(node), expression=_build_number(0.0))


def _build_safe_range_test(node: exp.Expr) -> exp.Expr:
    low, high = map(_build_number, _SAFE_RANGE)
    return exp.Between(this=_build_call("abs", node), low=low, high=high)
