"""`DATABASES`: the databases that models are exported for, and what each spells its own way."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from sqlml.dialects.portable import Portable


@dataclass(frozen=True, slots=True)
class Database:
    """A database that a model is exported for.

    Attributes:
        name: as people call it. dialect: as sqlglot calls its SQL.
        numbers: what its arithmetic needs.
        literal: a finite number -> a literal of the type of float64.
        infinity: +infinity, as an expression; of a database without, its greatest number, which
            does for what is between inputs and results (`has_infinity`).
        functions: name -> an expression of `x` in place of a function that the database lacks.
        number_column: a column -> the same as a float64, and NULL where it is NaN.
        text_column: a column -> a text that equals another only if all bytes are the same.
        types: of parameters and results, by the kinds of features and predictions.
        function: a statement that makes a function, with places for its name, parameters, type
            and query, and for a tag that the query does not have; None: it has no functions that
            are written in SQL.
        fence: ends a query that must not be merged into the one around it, which would compute
            its columns several times.
        characters: the longest statement that it takes. columns: the most columns of a query.
        is_run: whether sqlml's tests run it.
    """

    name: str
    dialect: str
    numbers: Portable
    literal: Callable[[float], str]
    infinity: str
    number_column: Callable[[str], str]
    text_column: Callable[[str], str]
    types: Mapping[str, str]
    function: str | None = None
    functions: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    has_infinity: bool = True
    fence: str = ""
    characters: int = 1 << 24
    columns: int = 1600
    is_run: bool = False


def _with_exponent(value: float) -> str:
    """A float64 in as few digits as tell it from others, with an exponent.

    >>> _with_exponent(0.5), _with_exponent(1e300)
    ('0.5e0', '1e+300')
    """
    text = repr(value)
    return text if "e" in text else f"{text}e0"


def _exact(value: float) -> str:
    """A float64 as whole numbers alone, which SQLite reads exactly, unlike digits behind a point.

    >>> _exact(0.5), _exact(3.0), _exact(0.1)
    ('0.5', '3.0', '(3602879701896397/36028797018963968.0)')
    """
    text = repr(value)
    if "e" not in text and len(text.lstrip("-")) <= 16:
        digits = text.partition(".")[2]
        if float(value).is_integer() or len(digits) <= 4 and (value * 16).is_integer():
            return text
    mantissa, exponent = math.frexp(value)
    whole, exponent = int(math.ldexp(mantissa, 53)), exponent - 53
    while whole % 2 == 0 and whole:
        whole, exponent = whole // 2, exponent + 1
    made = str(whole)
    while exponent < 0:
        step = min(-exponent, 62)
        made, exponent = f"{made}/{2**step}.0", exponent + step
    if "/" not in made:
        made += ".0"
    while exponent > 0:
        step = min(exponent, 62)
        made, exponent = f"{made}*{2**step}.0", exponent - step
    return f"({made})"


def _by_arithmetic(x: str) -> str:
    """Rounded to 24 bits, to the even of two as near: by adding a power of two that is as much
    greater than the number as a float64 has more bits than a float32, and taking it away again.

    `ufp(x)`, the power of two that x begins with, is found as in Rump, Ogita and Oishi, Accurate
    floating-point summation, part I (2008), algorithm 3.5 of section 3. Below the least normal
    float32 the spacing stays.
    """
    scaled = f"(4503599627370497.0*({x}))"
    ufp = f"abs({scaled}-{scaled}*(9007199254740991/9007199254740992.0))"
    least = "(1/85070591730234615865843651857942052864.0)"  # 2^-126
    big = f"(805306368.0*greatest({ufp}, {least}))"  # 3 * 2^28
    return f"(({x}+{big})-{big})"


_EXPM1 = "CASE WHEN exp(2 * x) = 1 THEN 2 * x ELSE (exp(2 * x) - 1) * (2 * x) / ln(exp(2 * x)) END"

_TANH = f"CASE WHEN abs(x) > 20 THEN sign(x) ELSE ({_EXPM1}) / (({_EXPM1}) + 2) END"
"""By exp(2x) - 1, found in Kahan's way, which loses no digits near 0."""

_CBRT = (
    "CASE WHEN x = 0 THEN x ELSE sign(x) * (power(abs(x), 1 / 3e0) - (power(power(abs(x), 1 / 3e0),"
    " 3) - abs(x)) / (3 * power(power(abs(x), 1 / 3e0), 2))) END"
)
"""By a power, and one step of Newton's from there."""


def _double(type: str) -> Callable[[str], str]:
    return lambda column: f"CAST({column} AS {type})"


def _types(number: str, string: str, integer: str, boolean: str) -> Mapping[str, str]:
    made = {"number": number, "string": string, "integer": integer, "boolean": boolean}
    return MappingProxyType(made)


POSTGRES = Database(
    name="PostgreSQL",
    dialect="postgres",
    numbers=Portable(lambda x: f"CAST(CAST({x} AS FLOAT) AS DOUBLE)", roundings=4),
    literal=lambda value: f"'{value!r}'::float8",
    infinity="'infinity'::float8",
    number_column=lambda c: f"nullif(CAST({c} AS double precision), 'NaN'::float8)",
    text_column=lambda c: f'CAST({c} AS text) COLLATE "C"',
    types=_types("double precision", "text", "bigint", "boolean"),
    function=(
        "CREATE OR REPLACE FUNCTION {name}({parameters}) RETURNS {type}\n"
        "LANGUAGE sql IMMUTABLE PARALLEL SAFE AS ${tag}$\n{query}\n${tag}$;\n"
    ),
    fence=" OFFSET 0",
    is_run=True,
)

MARIADB = Database(
    name="MariaDB",
    dialect="mysql",
    numbers=Portable(lambda x: f"CAST(CAST({x} AS FLOAT) AS DOUBLE)", roundings=4),
    literal=_with_exponent,
    infinity="1.7976931348623157e308",
    has_infinity=False,
    functions=MappingProxyType({"tanh": _TANH, "cbrt": _CBRT}),
    number_column=_double("DOUBLE"),
    text_column=lambda c: f"CAST(CONVERT({c} USING utf8mb4) AS BINARY)",
    types=_types("DOUBLE", "LONGTEXT CHARACTER SET utf8mb4", "BIGINT", "BOOLEAN"),
    function=(
        "CREATE OR REPLACE FUNCTION {name}({parameters}) RETURNS {type} DETERMINISTIC NO SQL\n"
        "RETURN (\n{query}\n);\n"
    ),
    fence=" LIMIT 18446744073709551615",
    is_run=True,
)

SQLITE = Database(
    name="SQLite",
    dialect="sqlite",
    numbers=Portable(_by_arithmetic, roundings=1),
    literal=_exact,
    infinity="9e999",
    functions=MappingProxyType({"cbrt": _CBRT}),
    number_column=_double("REAL"),
    text_column=lambda c: f"({c} || '')",
    types=_types("REAL", "TEXT", "INTEGER", "INTEGER"),
    fence=" LIMIT -1 OFFSET 0",
    is_run=True,
)

DATABASES: Mapping[str, Database] = MappingProxyType(
    {"postgres": POSTGRES, "mariadb": MARIADB, "sqlite": SQLITE}
)
"""Databases by the names that DIALECT takes."""
