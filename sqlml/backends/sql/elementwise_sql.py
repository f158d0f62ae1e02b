"""Operators that compute each number from those at the same position, as SQL."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping

import numpy as np

from sqlml.backends.sql.expression import Expression, Printer, Printing, Value
from sqlml.dialects import DUCKDB, Dialect
from sqlml.dialects.portable import MAX_EXPONENT
from sqlml.errors import BackendError
from sqlml.ir.operators.imputation import not_finite_error
from sqlml.types import FLOATS

LARGEST = "'3.4028235677973366e38'::DOUBLE"
"""Least float64 that rounds to an infinite float32, for which the engine's cast raises an error."""

Form = Callable[[Dialect, str], str]
"""A function from a dialect and a number to SQL."""


def _unary(form: Form, twice: bool = False) -> Printer:
    """Return a printer of `form`; `twice` means that it repeats the number."""

    def printer(p: Printing) -> Value:
        (x,) = p.values
        operands = p.bind(x) if twice else x
        return tuple(Expression(form(p.dialect, e.sql), nan=e.nan) for e in operands)

    return printer


def _call(name: str) -> Form:
    return lambda d, x: d.call(name, x)


def _function(form: Form, twice: bool = False, nan: bool = True) -> Printer:
    """Return a printer of a function of DOUBLE, rounded once; if `nan`, it may return NaN."""

    def printer(p: Printing) -> Value:
        (x,) = p.values
        operands = p.bind(x) if twice or p.dialect.missing_is_null else x
        texts = [form(p.dialect, _double(e, p.dtype)) for e in operands]
        return tuple(
            Expression(t if p.dtype == "float64" else p.dialect.narrowed(t), nan=nan or e.nan)
            for t, e in zip(texts, operands, strict=True)
        )

    return printer


def _double(e: Expression, dtype: str) -> str:
    return e.sql if dtype == "float64" else f"CAST({e.sql} AS DOUBLE)"


def _sigmoid(p: Printing) -> Value:
    (x,) = p.values
    d = p.dialect
    if p.dtype == "float64":
        x = p.bind(x) if d.missing_is_null else x
        powers = [d.call("exp", d.negated(e.sql)) for e in x]
        quotients = [d.operator("/", "1", d.operator("+", "1", power)) for power in powers]
        if d.missing_is_null:  # The power may overflow, and not every engine has infinity.
            quotients = [
                f"CASE WHEN {e.sql} < {p.number(-MAX_EXPONENT)} THEN {p.number(0)} ELSE {sql} END"
                for e, sql in zip(x, quotients, strict=True)
            ]
        return tuple(Expression(sql, nan=e.nan) for e, sql in zip(x, quotients, strict=True))
    return tuple(_sigmoid_of_xgboost(p, e) for e in p.bind(x))


def _sigmoid_of_xgboost(p: Printing, e: Expression) -> Expression:
    """Return XGBoost's formula, as in the reference."""
    d = p.dialect
    limited = d.call("least", d.negated(e.sql), p.number(88.7))
    if e.nan:
        limited = f"CASE WHEN {p.missing(e)} THEN {e.sql} ELSE {limited} END"
    wide = f"CAST({limited} AS DOUBLE)"
    if d.missing_is_null:
        (bound,) = p.bind([Expression(wide)])
        wide = bound.sql
    power = d.narrowed(d.call("exp", wide))
    one = p.number(1)
    denominator = p.total([power, one, p.number(1e-16)])
    return Expression(d.rounded(d.divided(one, denominator, p.sql_type)), nan=e.nan)


def _arithmetic(symbol: str) -> Printer:
    def printer(p: Printing) -> Value:
        # NaN can result from infinities: inf - inf, inf * 0.
        return tuple(
            Expression(p.operator(symbol, a.sql, b.sql), nan=p.dtype in FLOATS)
            for a, b in p.side_by_side()
        )

    return printer


def _square(p: Printing) -> Value:
    x = p.bind(p.values[0])
    return tuple(Expression(p.operator("*", e.sql, e.sql), nan=e.nan) for e in x)


def _divide(p: Printing) -> Value:
    """Return quotients; if the engine rejects x / 0, only for literal divisors, or with a CASE."""
    by_cases = p.dialect.missing_is_null
    quotients = []
    for a, b in p.side_by_side(bound=by_cases):
        sql = p.dialect.divided(a.sql, b.sql, p.sql_type)
        if not _is_nonzero(b) and by_cases:
            high, low = p.dialect.overflow(), p.dialect.overflow("-")
            by_zero = f"WHEN {a.sql} > 0 THEN {high} WHEN {a.sql} < 0 THEN {low}"
            sql = f"CASE WHEN {b.sql} <> 0 THEN {sql} {by_zero} END"
        elif p.dialect is not DUCKDB and not _is_nonzero(b):
            raise BackendError("a division is not printed as Spark SQL, which rejects x / 0")
        if p.dtype == "float32":
            sql = p.dialect.rounded(sql)
        quotients.append(Expression(sql, nan=p.dtype in FLOATS))
    return tuple(quotients)


def _mod(p: Printing) -> Value:
    """Return remainders with the sign of the divisor, a positive literal, unlike engines."""
    if p.dialect.missing_is_null:
        return tuple(_remainder(p, a, b) for a, b in p.side_by_side(bound=True))
    remainders = []
    for a, b in p.side_by_side(bound=True):
        if not (_is_nonzero(b) and not b.sql.startswith("'-")):
            raise BackendError("mod is printed as SQL only by a positive number")
        rest = p.dialect.operator("%", a.sql, b.sql)
        above = p.dialect.operator("+", rest, b.sql)
        remainders.append(
            Expression(f"CASE WHEN {rest} < 0 THEN {above} ELSE {rest} END", nan=p.dtype in FLOATS)
        )
    return tuple(remainders)


def _remainder(p: Printing, a: Expression, b: Expression) -> Expression:
    """Return a remainder without the operator, which few engines have for fractions.

    The quotient may be rounded up to the next integer; then the rest is negative. The model rejects
    numbers whose integer quotient times the divisor may exceed 53 bits, so the difference is exact
    (Sterbenz, Floating-Point Computation, 1974, theorem 4.3.1), or rounded once, as in numpy.
    """
    divisor = _literal(b) or 0.0
    if p.dtype != "float64" or not 1 <= divisor <= 1 << 53 or not divisor.is_integer():
        raise BackendError(
            "a remainder becomes SQL of other databases only if a float64 is divided by a whole "
            "number from 1 to 2^53"
        )
    d = p.dialect
    zeros = int(divisor) & -int(divisor)  # 2 to the power of the number of trailing zero bits.
    most = p.number(float((1 << 52) * zeros))
    quotient = d.call("floor", d.operator("/", a.sql, b.sql))
    (rest,) = p.bind([Expression(d.operator("-", a.sql, d.operator("*", quotient, b.sql)))])
    sql = f"CASE WHEN {rest.sql} < 0 THEN {d.operator('+', rest.sql, b.sql)} ELSE {rest.sql} END"
    return p.reject_when(Expression(sql, nan=a.nan), [(f"(abs({a.sql}) > {most})", "")], nan=a.nan)


def _literal(e: Expression) -> float | None:
    """Return the number of a literal, or None for another expression."""
    match = re.fullmatch(r"'([^']*)'::(FLOAT|DOUBLE)", e.sql)
    return None if match is None else float(match[1])


def _is_nonzero(e: Expression) -> bool:
    return bool(_literal(e))


def _duckdb_only(name: str) -> Printer:
    """Return a printer of a function that returns another type in other engines."""
    printer = _unary(_call(name))

    def print_if_supported(p: Printing) -> Value:
        is_portable = p.dialect.missing_is_null and name != "trunc"
        if p.dialect is not DUCKDB and not is_portable:
            raise BackendError(f"operator {p.op} is not printed as SQL of {p.dialect.name}")
        return printer(p)

    return print_if_supported


def _sign(p: Printing) -> Value:
    signs = []
    for e in p.bind(p.values[0]):
        sql = f"CASE WHEN {e.sql} < 0 THEN -1 WHEN {e.sql} = 0 THEN 0 "
        sql += f"WHEN {p.missing(e)} THEN {e.sql} " if e.nan else ""
        signs.append(Expression(f"CAST({sql}ELSE 1 END AS {p.sql_type})", nan=e.nan))
    return tuple(signs)


def _extreme_of_two(name: str) -> Printer:
    """Return a printer of the greatest or least of two numbers; a missing one is the result."""

    def printer(p: Printing) -> Value:
        must_guard = name == "least" or p.dialect.missing_is_null
        extremes = []
        for a, b in p.side_by_side(bound=must_guard):
            sql = p.dialect.call(name, a.sql, b.sql)
            for e in (a, b):
                if e.nan and must_guard:
                    sql = f"CASE WHEN {p.missing(e)} THEN {e.sql} ELSE {sql} END"
            extremes.append(Expression(sql, nan=a.nan or b.nan))
        return tuple(extremes)

    return printer


def _comparison(symbol: str, suspects: str) -> Printer:
    """Return a printer of a comparison that tests the sides `suspects` ("a", "b") for NaN."""

    def printer(p: Printing) -> Value:
        must_guard = any(e.nan for v in p.values for e in v) and p.operand in FLOATS
        tests = []
        for a, b in p.side_by_side(bound=must_guard):
            sql = f"({a.sql} {symbol} {b.sql})"
            sides = "ab" if p.dialect.missing_is_null else suspects
            checks = [e for side, e in (("a", a), ("b", b)) if side in sides and e.nan]
            if checks and p.operand in FLOATS:
                if symbol == "<>":
                    sql = f"({sql} OR {' OR '.join(map(p.missing, checks))})"
                else:
                    sql = f"({sql} AND {' AND '.join(f'NOT {p.missing(e)}' for e in checks)})"
            tests.append(Expression(sql, nan=False))
        return tuple(tests)

    return printer


def _logical(symbol: str) -> Printer:
    return lambda p: tuple(
        Expression(f"({a.sql} {symbol} {b.sql})", nan=False) for a, b in p.side_by_side()
    )


def _where(p: Printing) -> Value:
    return tuple(
        Expression(f"CASE WHEN {c.sql} THEN {a.sql} ELSE {b.sql} END", nan=a.nan or b.nan)
        for c, a, b in p.side_by_side()
    )


def _cast(p: Printing) -> Value:
    source, target = p.operand, p.dtype
    if source == target:
        return p.values[0]
    if source == "float64" and target == "float32":
        return tuple(_narrow(p, e) for e in p.bind(p.values[0]))
    if target == "bool":
        zero = p.number(0, source)
        return tuple(Expression(f"({e.sql} <> {zero})", nan=False) for e in p.values[0])
    to_integer = source in FLOATS and target not in FLOATS
    kind = p.type_of(target)
    results = []
    for e in p.bind(p.values[0]) if to_integer and p.dialect.missing_is_null else p.values[0]:
        sql = f"CAST({e.sql} AS {kind})"
        if to_integer:
            sql = p.dialect.truncated(e.sql, kind)
        elif source == "bool":
            sql = p.dialect.number_of(e.sql, kind)
        results.append(Expression(sql, nan=e.nan and target in FLOATS))
    return tuple(results)


def _narrow(p: Printing, e: Expression) -> Expression:
    small = f"{p.dialect.call('abs', e.sql)} < {LARGEST}" + (f" OR {p.missing(e)}" if e.nan else "")
    low, high = (p.number(np.inf * sign) for sign in (-1, 1))
    return Expression(
        f"CASE WHEN {small} THEN {p.dialect.narrowed(e.sql)} "
        f"WHEN {e.sql} > 0 THEN {high} ELSE {low} END",
        nan=e.nan,
    )


def _require_finite(p: Printing) -> Value:
    checked = []
    x = p.bind(p.values[0])
    names, all_numbers = p.attrs["features"], np.full(len(x), np.inf)
    lows, highs = p.attrs.get("low", -all_numbers), p.attrs.get("high", all_numbers)
    for e, feature, low, high in zip(x, names, lows.tolist(), highs.tolist(), strict=True):
        bad = _outside(p, e.sql, low, high)
        if p.attrs["allow_nan"] and high < math.inf:  # NaN is greater than all numbers.
            bad[-1] = f"({bad[-1]} AND NOT {p.missing(e)})"
        whens = [(" OR ".join(bad), p.error(not_finite_error(feature, p.attrs["step"], False)))]
        if e.nan and not p.attrs["allow_nan"]:
            missing = p.error(not_finite_error(feature, p.attrs["step"], True))
            whens.insert(0, (p.missing(e), missing))
        checked.append(p.reject_when(e, whens, nan=e.nan and p.attrs["allow_nan"]))
    return tuple(checked)


def _outside(p: Printing, sql: str, low: float, high: float) -> list[str]:
    """Return the conditions under which a number is infinite or out of bounds."""
    if math.isfinite(high) and low == -high:
        return [f"{p.dialect.call('abs', sql)} > {p.number(high)}"]
    bad = [] if math.isfinite(low) and math.isfinite(high) else [p.dialect.is_infinite(sql)]
    if low > -math.inf:
        bad.append(f"{sql} < {p.number(low)}")
    if high < math.inf:
        bad.append(f"{sql} > {p.number(high)}")
    return bad


def _impute(p: Printing) -> Value:
    fills = p.constants(p.attrs["fill"])
    missing = p.attrs["missing"]
    filled = []
    for e, fill in zip(p.bind(p.values[0]), fills, strict=True):
        is_missing = p.missing(e) if missing != missing else f"{e.sql} = {p.number(missing)}"
        sql = f"CASE WHEN {is_missing} THEN {fill.sql} ELSE {e.sql} END"
        nan_stays = missing == missing and e.nan
        filled.append(Expression(sql, nan=fill.nan or nan_stays))
    return tuple(filled)


def _log(d: Dialect, x: str) -> str:
    of_others = f"WHEN {x} = 0 THEN {d.overflow('-')} ELSE {d.missing('DOUBLE')}"
    return f"CASE WHEN {x} > 0 THEN {d.call('ln', x)} {of_others} END"


def _log1p(d: Dialect, x: str) -> str:
    """Return log(1 + x) by Kahan's formula, in which the quotient repeats the rounding of 1 + x."""
    more = d.operator("+", "1", x)
    result = d.operator("/", x, d.operator("-", more, "1"))  # About 1, so no product overflows.
    result = d.operator("*", d.call("ln", more), result)
    below = f"CASE WHEN {x} = -1 THEN {d.overflow('-')} ELSE {d.missing('DOUBLE')} END"
    return (
        f"CASE WHEN {x} <= -1 THEN {below} "
        f"WHEN {more} = 1 OR {d.is_infinite(x)} THEN {x} ELSE {result} END"
    )


def _expm1(d: Dialect, x: str) -> str:
    power = d.call("exp", x)
    less = d.operator("-", power, "1")
    result = d.operator("*", less, d.operator("/", x, d.call("ln", power)))
    return (
        f"CASE WHEN {power} = 1 THEN {x} WHEN {power} < 1e-16::DOUBLE OR {d.is_infinite(power)} "
        f"THEN {less} ELSE {result} END"
    )


def _sqrt(d: Dialect, x: str) -> str:
    return f"CASE WHEN {x} >= 0 THEN {d.call('sqrt', x)} ELSE {d.missing('DOUBLE')} END"


PRINTERS: Mapping[str, Printer] = {
    "exp": _function(_call("exp"), nan=False),
    "log": _function(_log, twice=True),
    "log1p": _function(_log1p, twice=True),
    "expm1": _function(_expm1, twice=True),
    "sqrt": _function(_sqrt, twice=True),
    "sigmoid": _sigmoid,
    "tanh": _function(_call("tanh"), nan=False),
    "exp2": _function(lambda d, x: d.call("pow", "2", x), nan=False),
    "cbrt": _function(_call("cbrt"), nan=False),
    "trunc": _duckdb_only("trunc"),
    "floor": _duckdb_only("floor"),
    "ceil": _duckdb_only("ceil"),
    "rint": _unary(lambda d, x: d.rounded_to_even(x), twice=True),
    "neg": _unary(lambda d, x: d.negated(x)),
    "abs": _unary(_call("abs")),
    "square": _square,
    "sign": _sign,
    "add": _arithmetic("+"),
    "sub": _arithmetic("-"),
    "mul": _arithmetic("*"),
    "div": _divide,
    "mod": _mod,
    "maximum": _extreme_of_two("greatest"),
    "minimum": _extreme_of_two("least"),
    # In the engine, NaN is the greatest number and equals itself.
    "lt": _comparison("<", "b"),
    "le": _comparison("<=", "b"),
    "gt": _comparison(">", "a"),
    "ge": _comparison(">=", "a"),
    "eq": _comparison("=", "a"),
    "ne": _comparison("<>", "a"),
    "and": _logical("AND"),
    "or": _logical("OR"),
    "not": _unary(lambda d, x: f"(NOT {x})"),
    "isnan": lambda p: tuple(Expression(p.missing(e), nan=False) for e in p.values[0]),
    "where": _where,
    "cast": _cast,
    "require_finite": _require_finite,
    "impute": _impute,
}
