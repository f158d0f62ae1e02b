"""Elementwise operators as SQL: each number depends only on the numbers at its position."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping

import numpy as np

from sqlml.backends.sql.expression import Expression, NodePrinter, Printer, Value
from sqlml.dialects import DUCKDB, Dialect
from sqlml.dialects.portable import MAX_EXPONENT
from sqlml.errors import BackendError, MissingValueError
from sqlml.ir.operators.imputation import make_not_finite_error
from sqlml.types import FLOATS

LARGEST = "'3.4028235677973366e38'::DOUBLE"
"""The smallest float64 that rounds to infinity in float32; DuckDB raises an error for the cast."""

Form = Callable[[Dialect, str], str]
"""A function that maps a dialect and the SQL of a number to SQL."""


def _make_unary_printer(form: Form, twice: bool = False) -> Printer:
    """Return a printer that applies `form`; if `twice`, `form` repeats the operand."""

    def to_sql(printer: NodePrinter) -> Value:
        (x,) = printer.values
        operands = printer.bind(x) if twice else x
        return tuple(operand.with_sql(form(printer.dialect, operand.sql)) for operand in operands)

    return to_sql


def _make_call_form(name: str) -> Form:
    return lambda d, x: d.call(name, x)


def _make_function_printer(form: Form, twice: bool = False, may_be_nan: bool = True) -> Printer:
    """Return a printer that applies `form` to each number as a DOUBLE, and rounds the result once.

    If `twice`, `form` repeats the operand. If `may_be_nan`, other operands than NaN may yield NaN.
    """

    def to_sql(printer: NodePrinter) -> Value:
        (x,), dialect, is_double = printer.values, printer.dialect, printer.dtype == "float64"
        results = []
        for operand in printer.bind(x) if twice or dialect.missing_is_null else x:
            sql = form(dialect, operand.sql if is_double else f"CAST({operand.sql} AS DOUBLE)")
            sql = sql if is_double else dialect.narrowed(sql)
            results.append(Expression(sql, nan=may_be_nan or operand.nan))
        return tuple(results)

    return to_sql


def _print_sigmoid(printer: NodePrinter) -> Value:
    (x,), dialect = printer.values, printer.dialect
    if printer.dtype != "float64":
        return tuple(_print_xgboost_sigmoid(printer, operand) for operand in printer.bind(x))
    results = []
    for operand in printer.bind(x) if dialect.missing_is_null else x:
        exponential = dialect.call("exp", dialect.negated(operand.sql))
        sql = dialect.operator("/", "1", dialect.operator("+", "1", exponential))
        if dialect.missing_is_null:  # The exponential may overflow where infinity is missing.
            overflows = f"{operand.sql} < {printer.number(-MAX_EXPONENT)}"
            sql = f"CASE WHEN {overflows} THEN {printer.number(0)} ELSE {sql} END"
        results.append(operand.with_sql(sql))
    return tuple(results)


def _print_xgboost_sigmoid(printer: NodePrinter, operand: Expression) -> Expression:
    """Print XGBoost's float32 formula, which the reference interpreter also uses."""
    dialect = printer.dialect
    clipped = dialect.call("least", dialect.negated(operand.sql), printer.number(88.7))
    if operand.nan:
        clipped = f"CASE WHEN {printer.missing(operand)} THEN {operand.sql} ELSE {clipped} END"
    double_sql = f"CAST({clipped} AS DOUBLE)"
    if dialect.missing_is_null:
        (bound,) = printer.bind([Expression(double_sql)])
        double_sql = bound.sql
    exponential = dialect.narrowed(dialect.call("exp", double_sql))
    one = printer.number(1)
    denominator = printer.total([exponential, one, printer.number(1e-16)])
    return operand.with_sql(dialect.rounded(dialect.divided(one, denominator, printer.sql_type)))


def _make_arithmetic_printer(symbol: str) -> Printer:
    def to_sql(printer: NodePrinter) -> Value:
        nan = printer.dtype in FLOATS  # NaN can result from infinities: inf - inf, inf * 0.
        pairs = printer.broadcast_operands()
        return tuple(Expression(printer.operator(symbol, a.sql, b.sql), nan=nan) for a, b in pairs)

    return to_sql


def _print_square(printer: NodePrinter) -> Value:
    x = printer.bind(printer.values[0])
    return tuple(operand.with_sql(printer.operator("*", operand.sql, operand.sql)) for operand in x)


def _print_quotient(printer: NodePrinter) -> Value:
    """Print quotients; if the engine rejects x / 0, a CASE tests divisors that may be 0."""
    needs_case = printer.dialect.missing_is_null
    quotients = []
    for a, b in printer.broadcast_operands(bound=needs_case):
        sql = printer.dialect.divided(a.sql, b.sql, printer.sql_type)
        if needs_case and not _parse_literal(b):
            high, low = printer.dialect.overflow(), printer.dialect.overflow("-")
            zero_cases = f"WHEN {a.sql} > 0 THEN {high} WHEN {a.sql} < 0 THEN {low}"
            sql = f"CASE WHEN {b.sql} <> 0 THEN {sql} {zero_cases} END"
        elif printer.dialect is not DUCKDB and not _parse_literal(b):
            raise BackendError("a division is not printed as Spark SQL, which rejects x / 0")
        if printer.dtype == "float32":
            sql = printer.dialect.rounded(sql)
        quotients.append(Expression(sql, nan=printer.dtype in FLOATS))
    return tuple(quotients)


def _print_mod(printer: NodePrinter) -> Value:
    """Print remainders that are not negative; the divisor must be a positive literal."""
    pairs = printer.broadcast_operands(bound=True)
    if printer.dialect.missing_is_null:
        return tuple(_print_remainder(printer, a, b) for a, b in pairs)
    remainders = []
    for a, b in pairs:
        if not _parse_literal(b) or b.sql.startswith("'-"):
            raise BackendError("mod is printed as SQL only if the divisor is a positive literal")
        remainder = printer.dialect.operator("%", a.sql, b.sql)
        adjusted = printer.dialect.operator("+", remainder, b.sql)
        sql = f"CASE WHEN {remainder} < 0 THEN {adjusted} ELSE {remainder} END"
        remainders.append(Expression(sql, nan=printer.dtype in FLOATS))
    return tuple(remainders)


def _print_remainder(printer: NodePrinter, a: Expression, b: Expression) -> Expression:
    """Print a - floor(a / b) * b, because few engines support the operator % for fractions.

    If the quotient was rounded up to the next integer, the difference is negative, and b is added.
    The model rejects a number if the integer quotient times b may exceed 53 bits. So the difference
    is exact (Sterbenz, Floating-Point Computation, 1974, theorem 4.3.1), or rounded as in numpy.
    """
    divisor = _parse_literal(b) or 0.0
    if printer.dtype != "float64" or not 1 <= divisor <= 1 << 53 or not divisor.is_integer():
        raise BackendError(
            "a remainder becomes SQL of other databases only if a float64 is divided by a whole "
            "number from 1 to 2^53"
        )
    dialect = printer.dialect
    lowest_bit = int(divisor) & -int(divisor)
    max_number = printer.number(float((1 << 52) * lowest_bit))
    quotient = dialect.call("floor", dialect.operator("/", a.sql, b.sql))
    difference = dialect.operator("-", a.sql, dialect.operator("*", quotient, b.sql))
    (remainder,) = printer.bind([Expression(difference)])
    positive = dialect.operator("+", remainder.sql, b.sql)
    sql = f"CASE WHEN {remainder.sql} < 0 THEN {positive} ELSE {remainder.sql} END"
    return printer.reject_when(a.with_sql(sql), [(f"(abs({a.sql}) > {max_number})", "")], nan=a.nan)


def _parse_literal(operand: Expression) -> float | None:
    match = re.fullmatch(r"'([^']*)'::(FLOAT|DOUBLE)", operand.sql)
    return None if match is None else float(match[1])


def _make_duckdb_printer(name: str) -> Printer:
    """Return a printer of calls that rejects dialects with another result type."""
    print_call = _make_unary_printer(_make_call_form(name))

    def print_if_supported(printer: NodePrinter) -> Value:
        dialect = printer.dialect
        is_portable = dialect.missing_is_null and name != "trunc"
        if dialect is not DUCKDB and not is_portable:
            raise BackendError(f"operator {printer.op} is not printed as SQL of {dialect.name}")
        return print_call(printer)

    return print_if_supported


def _print_sign(printer: NodePrinter) -> Value:
    signs = []
    for operand in printer.bind(printer.values[0]):
        sql = f"CASE WHEN {operand.sql} < 0 THEN -1 WHEN {operand.sql} = 0 THEN 0 "
        sql += f"WHEN {printer.missing(operand)} THEN {operand.sql} " if operand.nan else ""
        signs.append(Expression(f"CAST({sql}ELSE 1 END AS {printer.sql_type})", nan=operand.nan))
    return tuple(signs)


def _make_extreme_printer(name: str) -> Printer:
    """Return a printer of the greater or lesser of two numbers; a missing operand wins."""

    def to_sql(printer: NodePrinter) -> Value:
        needs_case = name == "least" or printer.dialect.missing_is_null
        extremes = []
        for a, b in printer.broadcast_operands(bound=needs_case):
            sql = printer.dialect.call(name, a.sql, b.sql)
            for operand in (a, b):
                if operand.nan and needs_case:
                    sql = f"CASE WHEN {printer.missing(operand)} THEN {operand.sql} ELSE {sql} END"
            extremes.append(Expression(sql, nan=a.nan or b.nan))
        return tuple(extremes)

    return to_sql


def _make_comparison_printer(symbol: str, nan_sides: str) -> Printer:
    """Return a printer of the comparison a `symbol` b; for NaN, only the comparison `<>` holds.

    In DuckDB, NaN is the greatest number, so the side in `nan_sides`, "a" or "b", is tested for
    NaN. If missing values are NULL, both sides are tested.
    """

    def to_sql(printer: NodePrinter) -> Value:
        has_nan = any(e.nan for value in printer.values for e in value)
        needs_guard = printer.operand in FLOATS and has_nan
        tests = []
        for a, b in printer.broadcast_operands(bound=needs_guard):
            sql = f"({a.sql} {symbol} {b.sql})"
            guarded_sides = "ab" if printer.dialect.missing_is_null else nan_sides
            guarded = [e for side, e in (("a", a), ("b", b)) if side in guarded_sides and e.nan]
            if guarded and needs_guard:
                if symbol == "<>":
                    sql = f"({sql} OR {' OR '.join(map(printer.missing, guarded))})"
                else:
                    conditions = [f"NOT {printer.missing(operand)}" for operand in guarded]
                    sql = f"({sql} AND {' AND '.join(conditions)})"
            tests.append(Expression(sql, nan=False))
        return tuple(tests)

    return to_sql


def _make_logical_printer(symbol: str) -> Printer:
    return lambda p: tuple(
        Expression(f"({a.sql} {symbol} {b.sql})", nan=False) for a, b in p.broadcast_operands()
    )


def _print_where(printer: NodePrinter) -> Value:
    return tuple(
        Expression(f"CASE WHEN {condition.sql} THEN {a.sql} ELSE {b.sql} END", nan=a.nan or b.nan)
        for condition, a, b in printer.broadcast_operands()
    )


def _print_cast(printer: NodePrinter) -> Value:
    (x,), source, target = printer.values, printer.operand, printer.dtype
    if source == target:
        return x
    if source == "float64" and target == "float32":
        return tuple(_print_narrowing_cast(printer, operand) for operand in printer.bind(x))
    if target == "bool":
        zero = printer.number(0, source)
        return tuple(Expression(f"({operand.sql} <> {zero})", nan=False) for operand in x)
    to_integer = source in FLOATS and target not in FLOATS
    sql_type = printer.type_of(target)
    casts = []
    for operand in printer.bind(x) if to_integer and printer.dialect.missing_is_null else x:
        sql = f"CAST({operand.sql} AS {sql_type})"
        if to_integer:
            sql = printer.dialect.truncated(operand.sql, sql_type)
        elif source == "bool":
            sql = printer.dialect.number_of(operand.sql, sql_type)
        casts.append(Expression(sql, nan=operand.nan and target in FLOATS))
    return tuple(casts)


def _print_narrowing_cast(printer: NodePrinter, operand: Expression) -> Expression:
    """Print a cast of a float64 to float32, in which numbers that are too large become infinite."""
    fits_test = f"{printer.dialect.call('abs', operand.sql)} < {LARGEST}"
    fits_test += f" OR {printer.missing(operand)}" if operand.nan else ""
    negative_infinity, infinity = (printer.number(np.inf * sign) for sign in (-1, 1))
    overflow_branches = f"WHEN {operand.sql} > 0 THEN {infinity} ELSE {negative_infinity}"
    narrowed = printer.dialect.narrowed(operand.sql)
    return operand.with_sql(f"CASE WHEN {fits_test} THEN {narrowed} {overflow_branches} END")


def _print_require_finite(printer: NodePrinter) -> Value:
    checked = []
    step, allow_nan = printer.attrs["step"], printer.attrs["allow_nan"]
    x = printer.bind(printer.values[0])
    features, no_limits = printer.attrs["features"], np.full(len(x), np.inf)
    lows, highs = printer.attrs.get("low", -no_limits), printer.attrs.get("high", no_limits)
    for operand, feature, low, high in zip(x, features, lows.tolist(), highs.tolist(), strict=True):
        range_conditions = _list_range_conditions(printer, operand.sql, low, high)
        if allow_nan and high < math.inf:  # NaN is greater than all numbers.
            range_conditions[-1] = f"({range_conditions[-1]} AND NOT {printer.missing(operand)})"
        error = printer.error(make_not_finite_error(feature, step, False))
        rejections = [(" OR ".join(range_conditions), error)]
        if operand.nan and not allow_nan:
            missing_error = printer.error(make_not_finite_error(feature, step, True))
            rejections.insert(0, (printer.missing(operand), missing_error))
        checked.append(printer.reject_when(operand, rejections, nan=operand.nan and allow_nan))
    return tuple(checked)


def _print_require(printer: NodePrinter) -> Value:
    """Print an error for rows that do not meet the condition, the second input."""
    x, (condition,) = printer.values
    error = printer.error(MissingValueError(str(printer.attrs["message"])))
    rejections = [(f"NOT ({condition.sql})", error)]
    return tuple(printer.reject_when(operand, rejections, nan=operand.nan) for operand in x)


def _list_range_conditions(printer: NodePrinter, sql: str, low: float, high: float) -> list[str]:
    """Return conditions, of which one holds if `sql` is infinite or not from `low` to `high`."""
    if math.isfinite(high) and low == -high:
        return [f"{printer.dialect.call('abs', sql)} > {printer.number(high)}"]
    is_bounded = math.isfinite(low) and math.isfinite(high)
    conditions = [] if is_bounded else [printer.dialect.is_infinite(sql)]
    if low > -math.inf:
        conditions.append(f"{sql} < {printer.number(low)}")
    if high < math.inf:
        conditions.append(f"{sql} > {printer.number(high)}")
    return conditions


def _print_impute(printer: NodePrinter) -> Value:
    fills = printer.literals(printer.attrs["fill"])
    missing_marker = printer.attrs["missing"]
    filled = []
    for operand, fill in zip(printer.bind(printer.values[0]), fills, strict=True):
        missing_test = f"{operand.sql} = {printer.number(missing_marker)}"
        if missing_marker != missing_marker:
            missing_test = printer.missing(operand)
        sql = f"CASE WHEN {missing_test} THEN {fill.sql} ELSE {operand.sql} END"
        keeps_nan = missing_marker == missing_marker and operand.nan
        filled.append(Expression(sql, nan=fill.nan or keeps_nan))
    return tuple(filled)


def _format_log(dialect: Dialect, x: str) -> str:
    other_cases = f"WHEN {x} = 0 THEN {dialect.overflow('-')} ELSE {dialect.missing('DOUBLE')}"
    return f"CASE WHEN {x} > 0 THEN {dialect.call('ln', x)} {other_cases} END"


def _format_log1p(dialect: Dialect, x: str) -> str:
    """Return Kahan's formula, in which the quotient cancels the rounding error of 1 + x."""
    one_plus_x = dialect.operator("+", "1", x)
    # The quotient is about 1, so no product overflows.
    quotient = dialect.operator("/", x, dialect.operator("-", one_plus_x, "1"))
    result = dialect.operator("*", dialect.call("ln", one_plus_x), quotient)
    low, missing_sql = dialect.overflow("-"), dialect.missing("DOUBLE")
    low_cases = f"CASE WHEN {x} = -1 THEN {low} ELSE {missing_sql} END"
    return (
        f"CASE WHEN {x} <= -1 THEN {low_cases} "
        f"WHEN {one_plus_x} = 1 OR {dialect.is_infinite(x)} THEN {x} ELSE {result} END"
    )


def _format_expm1(dialect: Dialect, x: str) -> str:
    """Return Kahan's formula (u - 1) * x / log(u), where u is exp(x)."""
    exponential = dialect.call("exp", x)
    difference = dialect.operator("-", exponential, "1")
    quotient = dialect.operator("/", x, dialect.call("ln", exponential))
    result = dialect.operator("*", difference, quotient)
    is_extreme = f"{exponential} < 1e-16::DOUBLE OR {dialect.is_infinite(exponential)}"
    return (
        f"CASE WHEN {exponential} = 1 THEN {x} "
        f"WHEN {is_extreme} THEN {difference} "
        f"ELSE {result} END"
    )


def _format_sqrt(dialect: Dialect, x: str) -> str:
    return f"CASE WHEN {x} >= 0 THEN {dialect.call('sqrt', x)} ELSE {dialect.missing('DOUBLE')} END"


PRINTERS: Mapping[str, Printer] = {
    "exp": _make_function_printer(_make_call_form("exp"), may_be_nan=False),
    "log": _make_function_printer(_format_log, twice=True),
    "log1p": _make_function_printer(_format_log1p, twice=True),
    "expm1": _make_function_printer(_format_expm1, twice=True),
    "sqrt": _make_function_printer(_format_sqrt, twice=True),
    "sigmoid": _print_sigmoid,
    "tanh": _make_function_printer(_make_call_form("tanh"), may_be_nan=False),
    "exp2": _make_function_printer(lambda d, x: d.call("pow", "2", x), may_be_nan=False),
    "cbrt": _make_function_printer(_make_call_form("cbrt"), may_be_nan=False),
    "trunc": _make_duckdb_printer("trunc"),
    "floor": _make_duckdb_printer("floor"),
    "ceil": _make_duckdb_printer("ceil"),
    "rint": _make_unary_printer(lambda d, x: d.rounded_to_even(x), twice=True),
    "neg": _make_unary_printer(lambda d, x: d.negated(x)),
    "abs": _make_unary_printer(_make_call_form("abs")),
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
    "require": _print_require,
    "require_finite": _print_require_finite,
    "impute": _print_impute,
}
