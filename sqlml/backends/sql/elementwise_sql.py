"""Operators that compute each number from the numbers at the same position, as SQL."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping

import numpy as np

from sqlml.backends.sql.expression import Expression, Printer, Printing, Value
from sqlml.dialects import DUCKDB, Dialect
from sqlml.dialects.portable import MAX_EXPONENT
from sqlml.errors import BackendError
from sqlml.ir.operators.imputation import make_not_finite_error
from sqlml.types import FLOATS

LARGEST = "'3.4028235677973366e38'::DOUBLE"
"""Smallest float64 that rounds to an infinite float32; the engine's cast raises an error for it."""

Form = Callable[[Dialect, str], str]
"""A function that maps a dialect and the SQL of a number to SQL."""


def _make_unary_printer(form: Form, twice: bool = False) -> Printer:
    """Return a printer of `form`; `twice` means that it repeats the number."""

    def printer(node: Printing) -> Value:
        (x,) = node.values
        operands = node.bind(x) if twice else x
        return tuple(
            Expression(form(node.dialect, operand.sql), nan=operand.nan) for operand in operands
        )

    return printer


def _make_call(name: str) -> Form:
    return lambda d, x: d.call(name, x)


def _make_function_printer(form: Form, twice: bool = False, nan: bool = True) -> Printer:
    """Return a printer of a function of a DOUBLE, rounded once; if `nan`, it may return NaN.

    `twice` means that `form` repeats the number.
    """

    def printer(node: Printing) -> Value:
        (x,) = node.values
        operands = node.bind(x) if twice or node.dialect.missing_is_null else x
        texts = [form(node.dialect, _cast_to_double(operand, node.dtype)) for operand in operands]
        return tuple(
            Expression(
                t if node.dtype == "float64" else node.dialect.narrowed(t), nan=nan or operand.nan
            )
            for t, operand in zip(texts, operands, strict=True)
        )

    return printer


def _cast_to_double(operand: Expression, dtype: str) -> str:
    return operand.sql if dtype == "float64" else f"CAST({operand.sql} AS DOUBLE)"


def _print_sigmoid(node: Printing) -> Value:
    (x,) = node.values
    dialect = node.dialect
    if node.dtype == "float64":
        x = node.bind(x) if dialect.missing_is_null else x
        powers = [dialect.call("exp", dialect.negated(operand.sql)) for operand in x]
        quotients = [
            dialect.operator("/", "1", dialect.operator("+", "1", power)) for power in powers
        ]
        if dialect.missing_is_null:  # The power may overflow, and not every engine has infinity.
            quotients = [
                f"CASE WHEN {operand.sql} < {node.number(-MAX_EXPONENT)} "
                f"THEN {node.number(0)} ELSE {sql} END"
                for operand, sql in zip(x, quotients, strict=True)
            ]
        return tuple(
            Expression(sql, nan=operand.nan) for operand, sql in zip(x, quotients, strict=True)
        )
    return tuple(_print_xgboost_sigmoid(node, operand) for operand in node.bind(x))


def _print_xgboost_sigmoid(node: Printing, operand: Expression) -> Expression:
    """Print XGBoost's formula for the sigmoid, as in the reference."""
    dialect = node.dialect
    clipped = dialect.call("least", dialect.negated(operand.sql), node.number(88.7))
    if operand.nan:
        clipped = f"CASE WHEN {node.missing(operand)} THEN {operand.sql} ELSE {clipped} END"
    double_sql = f"CAST({clipped} AS DOUBLE)"
    if dialect.missing_is_null:
        (bound,) = node.bind([Expression(double_sql)])
        double_sql = bound.sql
    power = dialect.narrowed(dialect.call("exp", double_sql))
    one = node.number(1)
    denominator = node.total([power, one, node.number(1e-16)])
    return Expression(
        dialect.rounded(dialect.divided(one, denominator, node.sql_type)), nan=operand.nan
    )


def _make_arithmetic_printer(symbol: str) -> Printer:
    def printer(node: Printing) -> Value:
        # NaN can result from infinities: inf - inf, inf * 0.
        return tuple(
            Expression(node.operator(symbol, a.sql, b.sql), nan=node.dtype in FLOATS)
            for a, b in node.side_by_side()
        )

    return printer


def _print_square(node: Printing) -> Value:
    x = node.bind(node.values[0])
    return tuple(
        Expression(node.operator("*", operand.sql, operand.sql), nan=operand.nan) for operand in x
    )


def _print_quotient(node: Printing) -> Value:
    """Print quotients; if the engine rejects x / 0, divisors that are not literals need a CASE."""
    by_cases = node.dialect.missing_is_null
    quotients = []
    for a, b in node.side_by_side(bound=by_cases):
        sql = node.dialect.divided(a.sql, b.sql, node.sql_type)
        if not _is_nonzero(b) and by_cases:
            high, low = node.dialect.overflow(), node.dialect.overflow("-")
            by_zero = f"WHEN {a.sql} > 0 THEN {high} WHEN {a.sql} < 0 THEN {low}"
            sql = f"CASE WHEN {b.sql} <> 0 THEN {sql} {by_zero} END"
        elif node.dialect is not DUCKDB and not _is_nonzero(b):
            raise BackendError("a division is not printed as Spark SQL, which rejects x / 0")
        if node.dtype == "float32":
            sql = node.dialect.rounded(sql)
        quotients.append(Expression(sql, nan=node.dtype in FLOATS))
    return tuple(quotients)


def _print_mod(node: Printing) -> Value:
    """Print remainders that have the sign of the divisor, unlike in engines.

    The divisor must be a positive literal.
    """
    if node.dialect.missing_is_null:
        return tuple(_print_remainder(node, a, b) for a, b in node.side_by_side(bound=True))
    remainders = []
    for a, b in node.side_by_side(bound=True):
        if not (_is_nonzero(b) and not b.sql.startswith("'-")):
            raise BackendError("mod is printed as SQL only by a positive number")
        remainder = node.dialect.operator("%", a.sql, b.sql)
        adjusted = node.dialect.operator("+", remainder, b.sql)
        remainders.append(
            Expression(
                f"CASE WHEN {remainder} < 0 THEN {adjusted} ELSE {remainder} END",
                nan=node.dtype in FLOATS,
            )
        )
    return tuple(remainders)


def _print_remainder(node: Printing, a: Expression, b: Expression) -> Expression:
    """Print a remainder without the operator, which few engines support for fractions.

    The quotient may be rounded up to the next integer; then the remainder is negative. The model
    rejects numbers whose integer quotient times the divisor may exceed 53 bits, so the difference
    is exact (Sterbenz, Floating-Point Computation, 1974, theorem 4.3.1), or rounded once, as in
    numpy.
    """
    divisor = _parse_literal(b) or 0.0
    if node.dtype != "float64" or not 1 <= divisor <= 1 << 53 or not divisor.is_integer():
        raise BackendError(
            "a remainder becomes SQL of other databases only if a float64 is divided by a whole "
            "number from 1 to 2^53"
        )
    dialect = node.dialect
    zeros = int(divisor) & -int(divisor)  # 2 to the power of the number of trailing zero bits.
    max_number = node.number(float((1 << 52) * zeros))
    quotient = dialect.call("floor", dialect.operator("/", a.sql, b.sql))
    (remainder,) = node.bind(
        [Expression(dialect.operator("-", a.sql, dialect.operator("*", quotient, b.sql)))]
    )
    positive = dialect.operator("+", remainder.sql, b.sql)
    sql = f"CASE WHEN {remainder.sql} < 0 THEN {positive} ELSE {remainder.sql} END"
    return node.reject_when(
        Expression(sql, nan=a.nan), [(f"(abs({a.sql}) > {max_number})", "")], nan=a.nan
    )


def _parse_literal(operand: Expression) -> float | None:
    """Return the number of a literal, or None for another expression."""
    match = re.fullmatch(r"'([^']*)'::(FLOAT|DOUBLE)", operand.sql)
    return None if match is None else float(match[1])


def _is_nonzero(operand: Expression) -> bool:
    return bool(_parse_literal(operand))


def _make_duckdb_printer(name: str) -> Printer:
    """Return a printer of a function that other engines support with another type of result."""
    printer = _make_unary_printer(_make_call(name))

    def print_if_supported(node: Printing) -> Value:
        is_portable = node.dialect.missing_is_null and name != "trunc"
        if node.dialect is not DUCKDB and not is_portable:
            raise BackendError(f"operator {node.op} is not printed as SQL of {node.dialect.name}")
        return printer(node)

    return print_if_supported


def _print_sign(node: Printing) -> Value:
    signs = []
    for operand in node.bind(node.values[0]):
        sql = f"CASE WHEN {operand.sql} < 0 THEN -1 WHEN {operand.sql} = 0 THEN 0 "
        sql += f"WHEN {node.missing(operand)} THEN {operand.sql} " if operand.nan else ""
        signs.append(Expression(f"CAST({sql}ELSE 1 END AS {node.sql_type})", nan=operand.nan))
    return tuple(signs)


def _make_extreme_printer(name: str) -> Printer:
    """Return a printer of the greatest or least of two numbers; missing if one of them is."""

    def printer(node: Printing) -> Value:
        must_guard = name == "least" or node.dialect.missing_is_null
        extremes = []
        for a, b in node.side_by_side(bound=must_guard):
            sql = node.dialect.call(name, a.sql, b.sql)
            for operand in (a, b):
                if operand.nan and must_guard:
                    sql = f"CASE WHEN {node.missing(operand)} THEN {operand.sql} ELSE {sql} END"
            extremes.append(Expression(sql, nan=a.nan or b.nan))
        return tuple(extremes)

    return printer


def _make_comparison_printer(symbol: str, suspects: str) -> Printer:
    """Return a printer of a comparison that tests the sides in `suspects` ("a", "b") for NaN."""

    def printer(node: Printing) -> Value:
        must_guard = (
            any(operand.nan for v in node.values for operand in v) and node.operand in FLOATS
        )
        tests = []
        for a, b in node.side_by_side(bound=must_guard):
            sql = f"({a.sql} {symbol} {b.sql})"
            sides = "ab" if node.dialect.missing_is_null else suspects
            checks = [
                operand for side, operand in (("a", a), ("b", b)) if side in sides and operand.nan
            ]
            if checks and node.operand in FLOATS:
                if symbol == "<>":
                    sql = f"({sql} OR {' OR '.join(map(node.missing, checks))})"
                else:
                    conditions = [f"NOT {node.missing(operand)}" for operand in checks]
                    sql = f"({sql} AND {' AND '.join(conditions)})"
            tests.append(Expression(sql, nan=False))
        return tuple(tests)

    return printer


def _make_logical_printer(symbol: str) -> Printer:
    return lambda p: tuple(
        Expression(f"({a.sql} {symbol} {b.sql})", nan=False) for a, b in p.side_by_side()
    )


def _print_where(node: Printing) -> Value:
    return tuple(
        Expression(f"CASE WHEN {condition.sql} THEN {a.sql} ELSE {b.sql} END", nan=a.nan or b.nan)
        for condition, a, b in node.side_by_side()
    )


def _print_cast(node: Printing) -> Value:
    source, target = node.operand, node.dtype
    if source == target:
        return node.values[0]
    if source == "float64" and target == "float32":
        return tuple(_print_narrowed(node, operand) for operand in node.bind(node.values[0]))
    if target == "bool":
        zero = node.number(0, source)
        return tuple(
            Expression(f"({operand.sql} <> {zero})", nan=False) for operand in node.values[0]
        )
    to_integer = source in FLOATS and target not in FLOATS
    sql_type = node.type_of(target)
    results = []
    for operand in (
        node.bind(node.values[0]) if to_integer and node.dialect.missing_is_null else node.values[0]
    ):
        sql = f"CAST({operand.sql} AS {sql_type})"
        if to_integer:
            sql = node.dialect.truncated(operand.sql, sql_type)
        elif source == "bool":
            sql = node.dialect.number_of(operand.sql, sql_type)
        results.append(Expression(sql, nan=operand.nan and target in FLOATS))
    return tuple(results)


def _print_narrowed(node: Printing, operand: Expression) -> Expression:
    """Print a cast of a float64 to float32 in which large numbers become infinite."""
    fits = f"{node.dialect.call('abs', operand.sql)} < {LARGEST}" + (
        f" OR {node.missing(operand)}" if operand.nan else ""
    )
    low, high = (node.number(np.inf * sign) for sign in (-1, 1))
    return Expression(
        f"CASE WHEN {fits} THEN {node.dialect.narrowed(operand.sql)} "
        f"WHEN {operand.sql} > 0 THEN {high} ELSE {low} END",
        nan=operand.nan,
    )


def _print_require_finite(node: Printing) -> Value:
    checked = []
    x = node.bind(node.values[0])
    names, all_numbers = node.attrs["features"], np.full(len(x), np.inf)
    lows, highs = node.attrs.get("low", -all_numbers), node.attrs.get("high", all_numbers)
    for operand, feature, low, high in zip(x, names, lows.tolist(), highs.tolist(), strict=True):
        conditions = _print_range_conditions(node, operand.sql, low, high)
        if node.attrs["allow_nan"] and high < math.inf:  # NaN is greater than all numbers.
            conditions[-1] = f"({conditions[-1]} AND NOT {node.missing(operand)})"
        whens = [
            (
                " OR ".join(conditions),
                node.error(make_not_finite_error(feature, node.attrs["step"], False)),
            )
        ]
        if operand.nan and not node.attrs["allow_nan"]:
            missing = node.error(make_not_finite_error(feature, node.attrs["step"], True))
            whens.insert(0, (node.missing(operand), missing))
        checked.append(
            node.reject_when(operand, whens, nan=operand.nan and node.attrs["allow_nan"])
        )
    return tuple(checked)


def _print_range_conditions(node: Printing, sql: str, low: float, high: float) -> list[str]:
    """Return the conditions under which a number is infinite or outside of `low` and `high`."""
    if math.isfinite(high) and low == -high:
        return [f"{node.dialect.call('abs', sql)} > {node.number(high)}"]
    conditions = (
        [] if math.isfinite(low) and math.isfinite(high) else [node.dialect.is_infinite(sql)]
    )
    if low > -math.inf:
        conditions.append(f"{sql} < {node.number(low)}")
    if high < math.inf:
        conditions.append(f"{sql} > {node.number(high)}")
    return conditions


def _print_impute(node: Printing) -> Value:
    fills = node.constants(node.attrs["fill"])
    missing = node.attrs["missing"]
    filled = []
    for operand, fill in zip(node.bind(node.values[0]), fills, strict=True):
        is_missing = (
            node.missing(operand)
            if missing != missing
            else f"{operand.sql} = {node.number(missing)}"
        )
        sql = f"CASE WHEN {is_missing} THEN {fill.sql} ELSE {operand.sql} END"
        nan_stays = missing == missing and operand.nan
        filled.append(Expression(sql, nan=fill.nan or nan_stays))
    return tuple(filled)


def _print_log(dialect: Dialect, x: str) -> str:
    other_cases = f"WHEN {x} = 0 THEN {dialect.overflow('-')} ELSE {dialect.missing('DOUBLE')}"
    return f"CASE WHEN {x} > 0 THEN {dialect.call('ln', x)} {other_cases} END"


def _print_log1p(dialect: Dialect, x: str) -> str:
    """Print log(1 + x) by Kahan's formula, whose quotient repeats the rounding of 1 + x."""
    one_plus_x = dialect.operator("+", "1", x)
    result = dialect.operator(
        "/", x, dialect.operator("-", one_plus_x, "1")
    )  # About 1, so no product overflows.
    result = dialect.operator("*", dialect.call("ln", one_plus_x), result)
    not_above_minus_one = (
        f"CASE WHEN {x} = -1 THEN {dialect.overflow('-')} ELSE {dialect.missing('DOUBLE')} END"
    )
    return (
        f"CASE WHEN {x} <= -1 THEN {not_above_minus_one} "
        f"WHEN {one_plus_x} = 1 OR {dialect.is_infinite(x)} THEN {x} ELSE {result} END"
    )


def _print_expm1(dialect: Dialect, x: str) -> str:
    power = dialect.call("exp", x)
    power_minus_one = dialect.operator("-", power, "1")
    result = dialect.operator(
        "*", power_minus_one, dialect.operator("/", x, dialect.call("ln", power))
    )
    return (
        f"CASE WHEN {power} = 1 THEN {x} "
        f"WHEN {power} < 1e-16::DOUBLE OR {dialect.is_infinite(power)} THEN {power_minus_one} "
        f"ELSE {result} END"
    )


def _print_sqrt(dialect: Dialect, x: str) -> str:
    return f"CASE WHEN {x} >= 0 THEN {dialect.call('sqrt', x)} ELSE {dialect.missing('DOUBLE')} END"


PRINTERS: Mapping[str, Printer] = {
    "exp": _make_function_printer(_make_call("exp"), nan=False),
    "log": _make_function_printer(_print_log, twice=True),
    "log1p": _make_function_printer(_print_log1p, twice=True),
    "expm1": _make_function_printer(_print_expm1, twice=True),
    "sqrt": _make_function_printer(_print_sqrt, twice=True),
    "sigmoid": _print_sigmoid,
    "tanh": _make_function_printer(_make_call("tanh"), nan=False),
    "exp2": _make_function_printer(lambda d, x: d.call("pow", "2", x), nan=False),
    "cbrt": _make_function_printer(_make_call("cbrt"), nan=False),
    "trunc": _make_duckdb_printer("trunc"),
    "floor": _make_duckdb_printer("floor"),
    "ceil": _make_duckdb_printer("ceil"),
    "rint": _make_unary_printer(lambda d, x: d.rounded_to_even(x), twice=True),
    "neg": _make_unary_printer(lambda d, x: d.negated(x)),
    "abs": _make_unary_printer(_make_call("abs")),
    "square": _print_square,
    "sign": _print_sign,
    "add": _make_arithmetic_printer("+"),
    "sub": _make_arithmetic_printer("-"),
    "mul": _make_arithmetic_printer("*"),
    "div": _print_quotient,
    "mod": _print_mod,
    "maximum": _make_extreme_printer("greatest"),
    "minimum": _make_extreme_printer("least"),
    # In the engine, NaN is the greatest number and equals itself.
    "lt": _make_comparison_printer("<", "b"),
    "le": _make_comparison_printer("<=", "b"),
    "gt": _make_comparison_printer(">", "a"),
    "ge": _make_comparison_printer(">=", "a"),
    "eq": _make_comparison_printer("=", "a"),
    "ne": _make_comparison_printer("<>", "a"),
    "and": _make_logical_printer("AND"),
    "or": _make_logical_printer("OR"),
    "not": _make_unary_printer(lambda d, x: f"(NOT {x})"),
    "isnan": lambda p: tuple(Expression(p.missing(e), nan=False) for e in p.values[0]),
    "where": _print_where,
    "cast": _print_cast,
    "require_finite": _print_require_finite,
    "impute": _print_impute,
}
