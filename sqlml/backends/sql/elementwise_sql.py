"""Elementwise operators as SQL: each number depends only on the numbers at its position."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping

import numpy as np

from sqlml.backends.sql.expression import Expression, NodePrinter, Printer, Value
from sqlml.dialects import DUCKDB, Dialect
from sqlml.dialects.portable import MAX_EXPONENT
from sqlml.errors import BackendError
from sqlml.ir.operators.imputation import make_not_finite_error
from sqlml.types import FLOATS

LARGEST = "'3.4028235677973366e38'::DOUBLE"
"""The smallest float64 that rounds to an infinite float32; casting it raises an error in DuckDB."""

Form = Callable[[Dialect, str], str]
"""A function that maps a dialect and the SQL of a number to SQL."""


def _make_unary_printer(form: Form, twice: bool = False) -> Printer:
    """Return a printer that applies `form`; if `twice`, `form` writes its operand several times."""

    def to_sql(context: NodePrinter) -> Value:
        (x,) = context.values
        operands = context.bind(x) if twice else x
        return tuple(operand.with_sql(form(context.dialect, operand.sql)) for operand in operands)

    return to_sql


def _make_call(name: str) -> Form:
    return lambda d, x: d.call(name, x)


def _make_function_printer(form: Form, twice: bool = False, nan: bool = True) -> Printer:
    """Return a printer that applies `form` to each number as a DOUBLE, and rounds the result once.

    If `twice`, `form` writes its operand several times. If `nan`, the result may be NaN even if the
    operand is not.
    """

    def to_sql(context: NodePrinter) -> Value:
        (x,), dialect, is_double = context.values, context.dialect, context.dtype == "float64"
        results = []
        for operand in context.bind(x) if twice or dialect.missing_is_null else x:
            sql = form(dialect, operand.sql if is_double else f"CAST({operand.sql} AS DOUBLE)")
            sql = sql if is_double else dialect.narrowed(sql)
            results.append(Expression(sql, nan=nan or operand.nan))
        return tuple(results)

    return to_sql


def _sigmoid_sql(context: NodePrinter) -> Value:
    (x,), dialect = context.values, context.dialect
    if context.dtype != "float64":
        return tuple(_xgboost_sigmoid_sql(context, operand) for operand in context.bind(x))
    results = []
    for operand in context.bind(x) if dialect.missing_is_null else x:
        exponential = dialect.call("exp", dialect.negated(operand.sql))
        sql = dialect.operator("/", "1", dialect.operator("+", "1", exponential))
        if dialect.missing_is_null:  # The power may overflow, and not every engine has infinity.
            overflows = f"{operand.sql} < {context.number(-MAX_EXPONENT)}"
            sql = f"CASE WHEN {overflows} THEN {context.number(0)} ELSE {sql} END"
        results.append(operand.with_sql(sql))
    return tuple(results)


def _xgboost_sigmoid_sql(context: NodePrinter, operand: Expression) -> Expression:
    """Return the sigmoid by XGBoost's float32 formula, as the reference interpreter does."""
    dialect = context.dialect
    clipped = dialect.call("least", dialect.negated(operand.sql), context.number(88.7))
    if operand.nan:
        clipped = f"CASE WHEN {context.missing(operand)} THEN {operand.sql} ELSE {clipped} END"
    double_sql = f"CAST({clipped} AS DOUBLE)"
    if dialect.missing_is_null:
        (bound,) = context.bind([Expression(double_sql)])
        double_sql = bound.sql
    exponential = dialect.narrowed(dialect.call("exp", double_sql))
    one = context.number(1)
    denominator = context.total([exponential, one, context.number(1e-16)])
    return operand.with_sql(dialect.rounded(dialect.divided(one, denominator, context.sql_type)))


def _make_arithmetic_printer(symbol: str) -> Printer:
    def to_sql(context: NodePrinter) -> Value:
        nan = context.dtype in FLOATS  # NaN can result from infinities: inf - inf, inf * 0.
        pairs = context.broadcast_operands()
        return tuple(Expression(context.operator(symbol, a.sql, b.sql), nan=nan) for a, b in pairs)

    return to_sql


def _square_sql(context: NodePrinter) -> Value:
    x = context.bind(context.values[0])
    return tuple(operand.with_sql(context.operator("*", operand.sql, operand.sql)) for operand in x)


def _quotient_sql(context: NodePrinter) -> Value:
    """Print quotients; if the engine rejects x / 0, a CASE guards each divisor that may be 0."""
    needs_case = context.dialect.missing_is_null
    quotients = []
    for a, b in context.broadcast_operands(bound=needs_case):
        sql = context.dialect.divided(a.sql, b.sql, context.sql_type)
        if needs_case and not _parse_literal(b):
            high, low = context.dialect.overflow(), context.dialect.overflow("-")
            zero_cases = f"WHEN {a.sql} > 0 THEN {high} WHEN {a.sql} < 0 THEN {low}"
            sql = f"CASE WHEN {b.sql} <> 0 THEN {sql} {zero_cases} END"
        elif context.dialect is not DUCKDB and not _parse_literal(b):
            raise BackendError("a division is not printed as Spark SQL, which rejects x / 0")
        if context.dtype == "float32":
            sql = context.dialect.rounded(sql)
        quotients.append(Expression(sql, nan=context.dtype in FLOATS))
    return tuple(quotients)


def _mod_sql(context: NodePrinter) -> Value:
    """Print remainders, which are not negative, as the divisor must be a positive literal."""
    pairs = context.broadcast_operands(bound=True)
    if context.dialect.missing_is_null:
        return tuple(_remainder_sql(context, a, b) for a, b in pairs)
    remainders = []
    for a, b in pairs:
        if not _parse_literal(b) or b.sql.startswith("'-"):
            raise BackendError("mod is printed as SQL only if the divisor is a positive literal")
        remainder = context.dialect.operator("%", a.sql, b.sql)
        adjusted = context.dialect.operator("+", remainder, b.sql)
        sql = f"CASE WHEN {remainder} < 0 THEN {adjusted} ELSE {remainder} END"
        remainders.append(Expression(sql, nan=context.dtype in FLOATS))
    return tuple(remainders)


def _remainder_sql(context: NodePrinter, a: Expression, b: Expression) -> Expression:
    """Return a - floor(a / b) * b, because few engines support the operator % for fractions.

    If the quotient is rounded up to the next integer, the difference is negative, and b is added.
    The model rejects numbers whose integer quotient times b may exceed 53 bits, so the difference
    is exact (Sterbenz, Floating-Point Computation, 1974, theorem 4.3.1), or rounded once, as in
    numpy.
    """
    divisor = _parse_literal(b) or 0.0
    if context.dtype != "float64" or not 1 <= divisor <= 1 << 53 or not divisor.is_integer():
        raise BackendError(
            "a remainder becomes SQL of other databases only if a float64 is divided by a whole "
            "number from 1 to 2^53"
        )
    dialect = context.dialect
    lowest_bit = int(divisor) & -int(divisor)  # 2 to the power of the number of trailing zero bits.
    max_number = context.number(float((1 << 52) * lowest_bit))
    quotient = dialect.call("floor", dialect.operator("/", a.sql, b.sql))
    difference = dialect.operator("-", a.sql, dialect.operator("*", quotient, b.sql))
    (remainder,) = context.bind([Expression(difference)])
    positive = dialect.operator("+", remainder.sql, b.sql)
    sql = f"CASE WHEN {remainder.sql} < 0 THEN {positive} ELSE {remainder.sql} END"
    size_test = f"(abs({a.sql}) > {max_number})"
    return context.reject_when(a.with_sql(sql), [(size_test, "")], nan=a.nan)


def _parse_literal(operand: Expression) -> float | None:
    """Return the number if `operand` is a literal, or None if it is another expression."""
    match = re.fullmatch(r"'([^']*)'::(FLOAT|DOUBLE)", operand.sql)
    return None if match is None else float(match[1])


def _make_duckdb_printer(name: str) -> Printer:
    """Return a printer of calls of `name`; it rejects dialects with another result type."""
    printer = _make_unary_printer(_make_call(name))

    def print_if_supported(context: NodePrinter) -> Value:
        dialect = context.dialect
        is_portable = dialect.missing_is_null and name != "trunc"
        if dialect is not DUCKDB and not is_portable:
            raise BackendError(f"operator {context.op} is not printed as SQL of {dialect.name}")
        return printer(context)

    return print_if_supported


def _sign_sql(context: NodePrinter) -> Value:
    signs = []
    for operand in context.bind(context.values[0]):
        sql = f"CASE WHEN {operand.sql} < 0 THEN -1 WHEN {operand.sql} = 0 THEN 0 "
        sql += f"WHEN {context.missing(operand)} THEN {operand.sql} " if operand.nan else ""
        signs.append(Expression(f"CAST({sql}ELSE 1 END AS {context.sql_type})", nan=operand.nan))
    return tuple(signs)


def _make_extreme_printer(name: str) -> Printer:
    """Return a printer of the greater or lesser of two numbers; it is missing if either is."""

    def to_sql(context: NodePrinter) -> Value:
        must_guard = name == "least" or context.dialect.missing_is_null
        extremes = []
        for a, b in context.broadcast_operands(bound=must_guard):
            sql = context.dialect.call(name, a.sql, b.sql)
            for operand in (a, b):
                if operand.nan and must_guard:
                    sql = f"CASE WHEN {context.missing(operand)} THEN {operand.sql} ELSE {sql} END"
            extremes.append(Expression(sql, nan=a.nan or b.nan))
        return tuple(extremes)

    return to_sql


def _make_comparison_printer(symbol: str, nan_sides: str) -> Printer:
    """Return a printer of the comparison a `symbol` b; for NaN, only the comparison `<>` holds.

    In DuckDB, NaN is the greatest number. So the sides named in `nan_sides`, "a" or "b", are also
    tested for NaN. If missing values are NULL, both sides are tested.
    """

    def to_sql(context: NodePrinter) -> Value:
        has_nan = any(e.nan for value in context.values for e in value)
        must_guard = context.operand in FLOATS and has_nan
        tests = []
        for a, b in context.broadcast_operands(bound=must_guard):
            sql = f"({a.sql} {symbol} {b.sql})"
            guarded_sides = "ab" if context.dialect.missing_is_null else nan_sides
            checks = [e for side, e in (("a", a), ("b", b)) if side in guarded_sides and e.nan]
            if checks and must_guard:
                if symbol == "<>":
                    sql = f"({sql} OR {' OR '.join(map(context.missing, checks))})"
                else:
                    conditions = [f"NOT {context.missing(operand)}" for operand in checks]
                    sql = f"({sql} AND {' AND '.join(conditions)})"
            tests.append(Expression(sql, nan=False))
        return tuple(tests)

    return to_sql


def _make_logical_printer(symbol: str) -> Printer:
    return lambda p: tuple(
        Expression(f"({a.sql} {symbol} {b.sql})", nan=False) for a, b in p.broadcast_operands()
    )


def _where_sql(context: NodePrinter) -> Value:
    return tuple(
        Expression(f"CASE WHEN {condition.sql} THEN {a.sql} ELSE {b.sql} END", nan=a.nan or b.nan)
        for condition, a, b in context.broadcast_operands()
    )


def _cast_sql(context: NodePrinter) -> Value:
    (x,), source, target = context.values, context.operand, context.dtype
    if source == target:
        return x
    if source == "float64" and target == "float32":
        return tuple(_narrowed_sql(context, operand) for operand in context.bind(x))
    if target == "bool":
        zero = context.number(0, source)
        return tuple(Expression(f"({operand.sql} <> {zero})", nan=False) for operand in x)
    to_integer = source in FLOATS and target not in FLOATS
    sql_type = context.type_of(target)
    results = []
    for operand in context.bind(x) if to_integer and context.dialect.missing_is_null else x:
        sql = f"CAST({operand.sql} AS {sql_type})"
        if to_integer:
            sql = context.dialect.truncated(operand.sql, sql_type)
        elif source == "bool":
            sql = context.dialect.number_of(operand.sql, sql_type)
        results.append(Expression(sql, nan=operand.nan and target in FLOATS))
    return tuple(results)


def _narrowed_sql(context: NodePrinter, operand: Expression) -> Expression:
    """Print a cast of float64 `operand` to float32; numbers that are too large become infinite."""
    fits_test = f"{context.dialect.call('abs', operand.sql)} < {LARGEST}"
    fits_test += f" OR {context.missing(operand)}" if operand.nan else ""
    low, high = (context.number(np.inf * sign) for sign in (-1, 1))
    overflow_branches = f"WHEN {operand.sql} > 0 THEN {high} ELSE {low}"
    narrowed = context.dialect.narrowed(operand.sql)
    return operand.with_sql(f"CASE WHEN {fits_test} THEN {narrowed} {overflow_branches} END")


def _require_finite_sql(context: NodePrinter) -> Value:
    """Print the numbers, with errors for missing, infinite and out-of-range numbers."""
    checked = []
    step, allow_nan = context.attrs["step"], context.attrs["allow_nan"]
    x = context.bind(context.values[0])
    features, all_numbers = context.attrs["features"], np.full(len(x), np.inf)
    lows, highs = context.attrs.get("low", -all_numbers), context.attrs.get("high", all_numbers)
    for operand, feature, low, high in zip(x, features, lows.tolist(), highs.tolist(), strict=True):
        conditions = _list_range_conditions(context, operand.sql, low, high)
        if allow_nan and high < math.inf:  # NaN is greater than all numbers.
            conditions[-1] = f"({conditions[-1]} AND NOT {context.missing(operand)})"
        error = context.error(make_not_finite_error(feature, step, False))
        rejections = [(" OR ".join(conditions), error)]
        if operand.nan and not allow_nan:
            missing_error = context.error(make_not_finite_error(feature, step, True))
            rejections.insert(0, (context.missing(operand), missing_error))
        checked.append(context.reject_when(operand, rejections, nan=operand.nan and allow_nan))
    return tuple(checked)


def _list_range_conditions(context: NodePrinter, sql: str, low: float, high: float) -> list[str]:
    """Return conditions, one of which holds if `sql` is infinite or outside `low` to `high`."""
    if math.isfinite(high) and low == -high:
        return [f"{context.dialect.call('abs', sql)} > {context.number(high)}"]
    is_bounded = math.isfinite(low) and math.isfinite(high)
    conditions = [] if is_bounded else [context.dialect.is_infinite(sql)]
    if low > -math.inf:
        conditions.append(f"{sql} < {context.number(low)}")
    if high < math.inf:
        conditions.append(f"{sql} > {context.number(high)}")
    return conditions


def _impute_sql(context: NodePrinter) -> Value:
    fills = context.literals(context.attrs["fill"])
    marker = context.attrs["missing"]
    filled = []
    for operand, fill in zip(context.bind(context.values[0]), fills, strict=True):
        missing_test = f"{operand.sql} = {context.number(marker)}"
        if marker != marker:
            missing_test = context.missing(operand)
        sql = f"CASE WHEN {missing_test} THEN {fill.sql} ELSE {operand.sql} END"
        keeps_nan = marker == marker and operand.nan
        filled.append(Expression(sql, nan=fill.nan or keeps_nan))
    return tuple(filled)


def _log_sql(dialect: Dialect, x: str) -> str:
    other_cases = f"WHEN {x} = 0 THEN {dialect.overflow('-')} ELSE {dialect.missing('DOUBLE')}"
    return f"CASE WHEN {x} > 0 THEN {dialect.call('ln', x)} {other_cases} END"


def _log1p_sql(dialect: Dialect, x: str) -> str:
    """Return log(1 + x) by Kahan's formula; its quotient cancels the rounding error of 1 + x."""
    one_plus_x = dialect.operator("+", "1", x)
    # The quotient is about 1, so no product overflows.
    quotient = dialect.operator("/", x, dialect.operator("-", one_plus_x, "1"))
    result = dialect.operator("*", dialect.call("ln", one_plus_x), quotient)
    low, missing = dialect.overflow("-"), dialect.missing("DOUBLE")
    not_above_minus_one = f"CASE WHEN {x} = -1 THEN {low} ELSE {missing} END"
    return (
        f"CASE WHEN {x} <= -1 THEN {not_above_minus_one} "
        f"WHEN {one_plus_x} = 1 OR {dialect.is_infinite(x)} THEN {x} ELSE {result} END"
    )


def _expm1_sql(dialect: Dialect, x: str) -> str:
    """Return exp(x) - 1 by Kahan's formula (u - 1) * x / log(u), where u is exp(x)."""
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


def _sqrt_sql(dialect: Dialect, x: str) -> str:
    return f"CASE WHEN {x} >= 0 THEN {dialect.call('sqrt', x)} ELSE {dialect.missing('DOUBLE')} END"


PRINTERS: Mapping[str, Printer] = {
    "exp": _make_function_printer(_make_call("exp"), nan=False),
    "log": _make_function_printer(_log_sql, twice=True),
    "log1p": _make_function_printer(_log1p_sql, twice=True),
    "expm1": _make_function_printer(_expm1_sql, twice=True),
    "sqrt": _make_function_printer(_sqrt_sql, twice=True),
    "sigmoid": _sigmoid_sql,
    "tanh": _make_function_printer(_make_call("tanh"), nan=False),
    "exp2": _make_function_printer(lambda d, x: d.call("pow", "2", x), nan=False),
    "cbrt": _make_function_printer(_make_call("cbrt"), nan=False),
    "trunc": _make_duckdb_printer("trunc"),
    "floor": _make_duckdb_printer("floor"),
    "ceil": _make_duckdb_printer("ceil"),
    "rint": _make_unary_printer(lambda d, x: d.rounded_to_even(x), twice=True),
    "neg": _make_unary_printer(lambda d, x: d.negated(x)),
    "abs": _make_unary_printer(_make_call("abs")),
    "square": _square_sql,
    "sign": _sign_sql,
    "add": _make_arithmetic_printer("+"),
    "sub": _make_arithmetic_printer("-"),
    "mul": _make_arithmetic_printer("*"),
    "div": _quotient_sql,
    "mod": _mod_sql,
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
    "where": _where_sql,
    "cast": _cast_sql,
    "require_finite": _require_finite_sql,
    "impute": _impute_sql,
}
