"""Operators that compute each number from its neighbours at the same place, as SQL."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np

from sqlml.backends.sql.expression import Expression, Printing, Value
from sqlml.dialects import DUCKDB, Dialect
from sqlml.dialects.portable import MAX_EXPONENT
from sqlml.errors import BackendError
from sqlml.ir.operators.imputation import not_finite
from sqlml.types import FLOATS

LARGEST = "'3.4028235677973366e38'::DOUBLE"
"""From here on float64 rounds to an infinite float32, and the engine's own cast is an error."""


Form = Callable[[Dialect, str], str]
"""A dialect and a number -> the SQL made from it."""


def _unary(form: Form, twice: bool = False) -> Callable[[Printing], Value]:
    """`twice`: the number is written several times."""

    def printer(p: Printing) -> Value:
        (x,) = p.values
        made = p.bind(x) if twice else x
        return tuple(Expression(form(p.dialect, e.sql), nan=e.nan) for e in made)

    return printer


def _called(name: str) -> Form:
    return lambda d, x: d.call(name, x)


def _function(form: Form, twice: bool = False, nan: bool = True) -> Callable[[Printing], Value]:
    """A function of DOUBLE, rounded once to its own type. `nan`: it makes NaN of numbers."""

    def printer(p: Printing) -> Value:
        (x,) = p.values
        made = p.bind(x) if twice or p.dialect.missing_is_null else x
        texts = [form(p.dialect, _double(e, p.dtype)) for e in made]
        return tuple(
            Expression(t if p.dtype == "float64" else p.dialect.narrowed(t), nan=nan or e.nan)
            for t, e in zip(texts, made, strict=True)
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
        made = [d.operator("/", "1", d.operator("+", "1", power)) for power in powers]
        if d.missing_is_null:  # where the power is infinite, which not every engine has
            made = [
                f"CASE WHEN {e.sql} < {p.number(-MAX_EXPONENT)} THEN {p.number(0)} ELSE {sql} END"
                for e, sql in zip(x, made, strict=True)
            ]
        return tuple(Expression(sql, nan=e.nan) for e, sql in zip(x, made, strict=True))
    return tuple(_sigmoid_of_xgboost(p, e) for e in p.bind(x))


def _sigmoid_of_xgboost(p: Printing, e: Expression) -> Expression:
    """XGBoost's own formula, as in the reference."""
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
    below = p.total([power, one, p.number(1e-16)])
    return Expression(d.rounded(d.divided(one, below, p.sql_type)), nan=e.nan)


def _arithmetic(symbol: str) -> Callable[[Printing], Value]:
    def printer(p: Printing) -> Value:
        # Infinities make NaN of numbers: inf - inf, inf * 0, 0 / 0.
        return tuple(
            Expression(p.operator(symbol, a.sql, b.sql), nan=p.dtype in FLOATS)
            for a, b in p.side_by_side()
        )

    return printer


def _square(p: Printing) -> Value:
    x = p.bind(p.values[0])
    return tuple(Expression(p.operator("*", e.sql, e.sql), nan=e.nan) for e in x)


def _divided(p: Printing) -> Value:
    """Where an engine fails at a divisor of 0, only by numbers that are none, or by cases."""
    by_cases = p.dialect.missing_is_null
    made = []
    for a, b in p.side_by_side(bound=by_cases):
        sql = p.dialect.divided(a.sql, b.sql, p.sql_type)
        if not _is_nonzero(b) and by_cases:
            high, low = p.dialect.overflow(), p.dialect.overflow("-")
            by_zero = f"WHEN {a.sql} > 0 THEN {high} WHEN {a.sql} < 0 THEN {low}"
            sql = f"CASE WHEN {b.sql} <> 0 THEN {sql} {by_zero} END"
        elif p.dialect is not DUCKDB and not _is_nonzero(b):
            raise BackendError("a division is not printed as Spark SQL, which refuses x / 0")
        if p.dtype == "float32":
            sql = p.dialect.rounded(sql)
        made.append(Expression(sql, nan=p.dtype in FLOATS))
    return tuple(made)


def _mod(p: Printing) -> Value:
    """The remainder with the sign of the divisor, of a positive literal; engines give it the sign
    of the other."""
    if p.dialect.missing_is_null:
        return tuple(_remainder(p, a, b) for a, b in p.side_by_side(bound=True))
    made = []
    for a, b in p.side_by_side(bound=True):
        if not (_is_nonzero(b) and not b.sql.startswith("'-")):
            raise BackendError("mod is printed as SQL only by a positive number")
        rest = p.dialect.operator("%", a.sql, b.sql)
        above = p.dialect.operator("+", rest, b.sql)
        made.append(
            Expression(f"CASE WHEN {rest} < 0 THEN {above} ELSE {rest} END", nan=p.dtype in FLOATS)
        )
    return tuple(made)


def _remainder(p: Printing, a: Expression, b: Expression) -> Expression:
    """Without an operator for it, which few engines have for numbers that are not whole.

    The quotient may be rounded up to the next whole number: then the rest is negative. The product
    of the whole quotient and the divisor is exact if it fits in 53 bits; the model refuses numbers
    for which it might not. Then the difference is exact, too (Sterbenz, Floating-Point Computation,
    1974, theorem 4.3.1), or is rounded once, as numpy's.
    """
    divisor = _literal(b) or 0.0
    if p.dtype != "float64" or not 1 <= divisor <= 1 << 53 or not divisor.is_integer():
        raise BackendError(
            "a remainder becomes SQL of other databases only if a float64 is divided by a whole "
            "number from 1 to 2^53"
        )
    d = p.dialect
    zeros = int(divisor) & -int(divisor)  # 2 to the power of the zeros that end its bits
    most = p.number(float((1 << 52) * zeros))
    whole = d.call("floor", d.operator("/", a.sql, b.sql))
    (rest,) = p.bind([Expression(d.operator("-", a.sql, d.operator("*", whole, b.sql)))])
    sql = f"CASE WHEN {rest.sql} < 0 THEN {d.operator('+', rest.sql, b.sql)} ELSE {rest.sql} END"
    return p.refusing(Expression(sql, nan=a.nan), [(f"(abs({a.sql}) > {most})", "")], nan=a.nan)


def _literal(e: Expression) -> float | None:
    """The number that it is the literal of."""
    found = re.fullmatch(r"'([^']*)'::(FLOAT|DOUBLE)", e.sql)
    return None if found is None else float(found[1])


def _is_nonzero(e: Expression) -> bool:
    """Whether it is the literal of a number other than 0."""
    return bool(_literal(e))


def _of_duckdb(name: str) -> Callable[[Printing], Value]:
    """A function that makes integers of another type elsewhere."""
    printer = _unary(_called(name))

    def checked(p: Printing) -> Value:
        own = p.dialect.missing_is_null and name != "trunc"
        if p.dialect is not DUCKDB and not own:
            raise BackendError(f"operator {p.op} is not printed as SQL of {p.dialect.name}")
        return printer(p)

    return checked


def _rint(p: Printing) -> Value:
    x = p.bind(p.values[0])
    return tuple(Expression(p.dialect.rounded_to_even(e.sql), nan=e.nan) for e in x)


def _sign(p: Printing) -> Value:
    made = []
    for e in p.bind(p.values[0]):
        sql = f"CASE WHEN {e.sql} < 0 THEN -1 WHEN {e.sql} = 0 THEN 0 "
        sql += f"WHEN {p.missing(e)} THEN {e.sql} " if e.nan else ""
        made.append(Expression(f"CAST({sql}ELSE 1 END AS {p.sql_type})", nan=e.nan))
    return tuple(made)


def _maximum(p: Printing) -> Value:
    return tuple(  # NaN is the greatest, as it shall be
        _extreme_of_two(p, "greatest", a, b, p.dialect.missing_is_null)
        for a, b in p.side_by_side(bound=p.dialect.missing_is_null)
    )


def _minimum(p: Printing) -> Value:
    return tuple(_extreme_of_two(p, "least", a, b, True) for a, b in p.side_by_side(bound=True))


def _extreme_of_two(
    p: Printing, name: str, a: Expression, b: Expression, checked: bool
) -> Expression:
    """`checked`: a missing number of the two is looked for."""
    sql = p.dialect.call(name, a.sql, b.sql)
    for e in (a, b):
        if e.nan and checked:
            sql = f"CASE WHEN {p.missing(e)} THEN {e.sql} ELSE {sql} END"
    return Expression(sql, nan=a.nan or b.nan)


def _comparison(symbol: str, suspects: str) -> Callable[[Printing], Value]:
    """`suspects`: the sides ("a", "b") for which NaN must be looked for."""

    def printer(p: Printing) -> Value:
        guarded = any(e.nan for v in p.values for e in v) and p.operand in FLOATS
        made = []
        for a, b in p.side_by_side(bound=guarded):
            sql = f"({a.sql} {symbol} {b.sql})"
            sides = "ab" if p.dialect.missing_is_null else suspects
            checks = [e for side, e in (("a", a), ("b", b)) if side in sides and e.nan]
            if checks and p.operand in FLOATS:
                if symbol == "<>":
                    sql = f"({sql} OR {' OR '.join(map(p.missing, checks))})"
                else:
                    sql = f"({sql} AND {' AND '.join(f'NOT {p.missing(e)}' for e in checks)})"
            made.append(Expression(sql, nan=False))
        return tuple(made)

    return printer


def _isnan(p: Printing) -> Value:
    return tuple(Expression(p.missing(e), nan=False) for e in p.values[0])


def _not(p: Printing) -> Value:
    return tuple(Expression(f"(NOT {e.sql})", nan=False) for e in p.values[0])


def _logical(symbol: str) -> Callable[[Printing], Value]:
    return lambda p: tuple(
        Expression(f"({a.sql} {symbol} {b.sql})", nan=False) for a, b in p.side_by_side()
    )


def _where(p: Printing) -> Value:
    return tuple(
        Expression(f"CASE WHEN {c.sql} THEN {a.sql} ELSE {b.sql} END", nan=a.nan or b.nan)
        for c, a, b in p.side_by_side()
    )


def _cast(p: Printing) -> Value:
    below, wanted = p.operand, p.dtype
    if below == wanted:
        return p.values[0]
    if below == "float64" and wanted == "float32":
        return tuple(_narrowed(p, e) for e in p.bind(p.values[0]))
    if wanted == "bool":
        zero = p.number(0, below)
        return tuple(Expression(f"({e.sql} <> {zero})", nan=False) for e in p.values[0])
    whole = below in FLOATS and wanted not in FLOATS
    kind = p.type_of(wanted)
    made = []
    for e in p.bind(p.values[0]) if whole and p.dialect.missing_is_null else p.values[0]:
        sql = f"CAST({e.sql} AS {kind})"
        if whole:
            sql = p.dialect.truncated(e.sql, kind)
        elif below == "bool":
            sql = p.dialect.number_of(e.sql, kind)
        made.append(Expression(sql, nan=e.nan and wanted in FLOATS))
    return tuple(made)


def _narrowed(p: Printing, e: Expression) -> Expression:
    small = f"{p.dialect.call('abs', e.sql)} < {LARGEST}" + (f" OR {p.missing(e)}" if e.nan else "")
    low, high = (p.number(np.inf * sign) for sign in (-1, 1))
    return Expression(
        f"CASE WHEN {small} THEN {p.dialect.narrowed(e.sql)} "
        f"WHEN {e.sql} > 0 THEN {high} ELSE {low} END",
        nan=e.nan,
    )


def _require_finite(p: Printing) -> Value:
    made = []
    x = p.bind(p.values[0])
    names, all_numbers = p.attrs["features"], np.full(len(x), np.inf)
    lows, highs = p.attrs.get("low", -all_numbers), p.attrs.get("high", all_numbers)
    for e, feature, low, high in zip(x, names, lows.tolist(), highs.tolist(), strict=True):
        bad = _outside(p, e.sql, low, high)
        if p.attrs["allow_nan"] and high < math.inf:  # NaN is greater than all numbers there
            bad[-1] = f"({bad[-1]} AND NOT {p.missing(e)})"
        whens = [(" OR ".join(bad), p.error(not_finite(feature, p.attrs["step"], False)))]
        if e.nan and not p.attrs["allow_nan"]:
            missing = p.error(not_finite(feature, p.attrs["step"], True))
            whens.insert(0, (p.missing(e), missing))
        made.append(p.refusing(e, whens, nan=e.nan and p.attrs["allow_nan"]))
    return tuple(made)


def _outside(p: Printing, sql: str, low: float, high: float) -> list[str]:
    """The conditions under which a number is infinite or out of bounds."""
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
    made = []
    for e, fill in zip(p.bind(p.values[0]), fills, strict=True):
        gone = p.missing(e) if missing != missing else f"{e.sql} = {p.number(missing)}"
        stays = missing == missing and e.nan
        made.append(
            Expression(f"CASE WHEN {gone} THEN {fill.sql} ELSE {e.sql} END", nan=fill.nan or stays)
        )
    return tuple(made)


def _log(d: Dialect, x: str) -> str:
    of_others = f"WHEN {x} = 0 THEN {d.overflow('-')} ELSE {d.missing('DOUBLE')}"
    return f"CASE WHEN {x} > 0 THEN {d.call('ln', x)} {of_others} END"


def _log1p(d: Dialect, x: str) -> str:
    """Kahan's way: what rounding 1 + x loses is in the quotient as well."""
    more = d.operator("+", "1", x)
    made = d.operator("/", x, d.operator("-", more, "1"))  # about 1, of which no product overflows
    made = d.operator("*", d.call("ln", more), made)
    below = f"CASE WHEN {x} = -1 THEN {d.overflow('-')} ELSE {d.missing('DOUBLE')} END"
    return (
        f"CASE WHEN {x} <= -1 THEN {below} "
        f"WHEN {more} = 1 OR {d.is_infinite(x)} THEN {x} ELSE {made} END"
    )


def _expm1(d: Dialect, x: str) -> str:
    power = d.call("exp", x)
    less = d.operator("-", power, "1")
    made = d.operator("*", less, d.operator("/", x, d.call("ln", power)))
    return (
        f"CASE WHEN {power} = 1 THEN {x} WHEN {power} < 1e-16::DOUBLE OR {d.is_infinite(power)} "
        f"THEN {less} ELSE {made} END"
    )


def _sqrt(d: Dialect, x: str) -> str:
    return f"CASE WHEN {x} >= 0 THEN {d.call('sqrt', x)} ELSE {d.missing('DOUBLE')} END"


PRINTERS: Mapping[str, Callable[[Printing], Value]] = MappingProxyType(
    {
        "exp": _function(_called("exp"), nan=False),
        "log": _function(_log, twice=True),
        "log1p": _function(_log1p, twice=True),
        "expm1": _function(_expm1, twice=True),
        "sqrt": _function(_sqrt, twice=True),
        "sigmoid": _sigmoid,
        "tanh": _function(_called("tanh"), nan=False),
        "exp2": _function(lambda d, x: d.call("pow", "2", x), nan=False),
        "cbrt": _function(_called("cbrt"), nan=False),
        "trunc": _of_duckdb("trunc"),
        "floor": _of_duckdb("floor"),
        "ceil": _of_duckdb("ceil"),
        "rint": _rint,
        "neg": _unary(lambda d, x: d.negated(x)),
        "abs": _unary(_called("abs")),
        "square": _square,
        "sign": _sign,
        "add": _arithmetic("+"),
        "sub": _arithmetic("-"),
        "mul": _arithmetic("*"),
        "div": _divided,
        "mod": _mod,
        "maximum": _maximum,
        "minimum": _minimum,
        # In the engine NaN is the greatest number and equals itself.
        "lt": _comparison("<", "b"),
        "le": _comparison("<=", "b"),
        "gt": _comparison(">", "a"),
        "ge": _comparison(">=", "a"),
        "eq": _comparison("=", "a"),
        "ne": _comparison("<>", "a"),
        "and": _logical("AND"),
        "or": _logical("OR"),
        "not": _not,
        "isnan": _isnan,
        "where": _where,
        "cast": _cast,
        "require_finite": _require_finite,
        "impute": _impute,
    }
)
