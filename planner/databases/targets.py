"""`DATABASES`: the databases that models are exported for, and what each spells its own way."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from sqlml.dialects import DUCKDB, SPARK
from sqlml.dialects.portable import Portable
from sqlml.planner.databases.range_errors import RangeErrors

# Numbers where a database lacks a literal, a type or a function for them.


def with_exponent(value: float) -> str:
    """A float64 in as few digits as tell it from others, with an exponent.

    >>> with_exponent(0.5), with_exponent(1e300)
    ('0.5e0', '1e+300')
    """
    text = repr(value)
    return text if "e" in text else f"{text}e0"


def exact(value: float) -> str:
    """A float64 as whole numbers alone, which SQLite reads exactly, unlike digits behind a point.

    >>> exact(0.5), exact(3.0), exact(0.1)
    ('0.5', '3.0', '(3602879701896397.0/36028797018963968.0)')
    """
    text = repr(value)
    if "e" not in text and len(text.lstrip("-")) <= 16:
        digits = text.partition(".")[2]
        if float(value).is_integer() or len(digits) <= 4 and (value * 16).is_integer():
            return text
    return _of_wholes(value, ".0")


def exact_with_exponents(value: float) -> str:
    """A float64 as whole numbers with exponents, which SQL Server reads as floats; without an
    exponent they would be decimals.

    >>> exact_with_exponents(-0.5), exact_with_exponents(3.0), exact_with_exponents(0.1)
    ('-0.5e0', '3.0e0', '(3602879701896397e0/36028797018963968e0)')
    """
    text = repr(value)
    is_short = "e" not in text and len(text.lstrip("-")) <= 16 and (value * 16).is_integer()
    return f"{text}e0" if is_short else _of_wholes(value, "e0")


def _of_wholes(value: float, point: str) -> str:
    """Quotients and products of whole numbers, each below 2^63 and with `point` behind it."""
    mantissa, exponent = math.frexp(value)
    whole, exponent = int(math.ldexp(mantissa, 53)), exponent - 53
    while whole % 2 == 0 and whole:
        whole, exponent = whole // 2, exponent + 1
    made = f"{whole}{point}"
    while exponent < 0:
        step = min(-exponent, 62)
        made, exponent = f"{made}/{2**step}{point}", exponent + step
    while exponent > 0:
        step = min(exponent, 62)
        made, exponent = f"{made}*{2**step}{point}", exponent - step
    return f"({made})"


def by_arithmetic(x: str) -> str:
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

TANH = f"CASE WHEN abs(x) > 20 THEN sign(x) ELSE ({_EXPM1}) / (({_EXPM1}) + 2) END"
"""By exp(2x) - 1, found in Kahan's way, which loses no digits near 0."""

CBRT = (
    "CASE WHEN x = 0 THEN x ELSE sign(x) * (power(abs(x), 1 / 3e0) - (power(power(abs(x), 1 / 3e0),"
    " 3) - abs(x)) / (3 * power(power(abs(x), 1 / 3e0), 2))) END"
)
"""By a power, and one step of Newton's from there."""


# `Database`: what a database in which sqlml does not run spells its own way.


@dataclass(frozen=True, slots=True)
class Database:
    """A database that a model is exported for.

    Attributes:
        name: as people call it. dialect: as sqlglot calls its SQL.
        numbers: what its arithmetic needs.
        literal: a finite number -> a literal of the type of float64.
        scales_results: whether a CASE gives whole numbers, which a factor outside of it scales: for
            a database that takes long to prepare many computed constants.
        infinity: +infinity, as an expression; of a database without, its greatest number, which
            does for what is between inputs and results (`has_infinity`).
        range_errors: what ends a query there for a number of one row.
        functions: name -> an expression of `x` in place of a function that the database lacks.
        number_column: a column -> the same as a float64, and NULL where it is NaN.
        boolean_column: a column that is likely to be BOOLEAN -> the same as a float64, whether it
            is one or holds numbers; None: `number_column` does it.
        text_column: a column -> a text that equals another only if all bytes are the same.
        date_column: a date or a timestamp without a time zone -> the microseconds since 1970 as a
            float64; None: no dates.
        ending: what `text_column` adds to each text, and a text that is compared with it has too.
        odd_text: a text with a backslash or beyond ASCII -> a literal that means the same under all
            settings of the database and of a connection; None: the plain one does.
        float32: its type of 32 bits, where sqlglot takes another for it.
        booleans: expressions of false and true, where it has no such words.
        types: of parameters and results, by the kinds of features and predictions.
        function: a statement that makes a function, with places for its name, parameters with
            their types or their `names` alone, type and query, and for a tag that the query does
            not have; None: it has no functions that are written in SQL.
        merges: of a database that merges the queries of a function: how long an expression may
            become by that, in characters.
        tags: if given, the only tags that the database knows.
        reserved: where a name without quotes is another one in them, as in capitals: the words that
            need quotes all the same. Other plain names are written without.
        functions_of_rows: names that stand for a function behind the name of a table and a point,
            if that has no column of that name: `t.count` is `count(t)` there.
        fence: ends a query that must not be merged into the one around it, which would compute
            its columns several times.
        settings: ends a SELECT that is not a view's, in place of fences: for a database whose
            fences take away its parallelism.
        characters: the longest statement that it takes by default.
        raised: a statement by which a connection takes longer ones.
        columns: the most columns of a query.
        cases: how many CASEs may stand in each other.
        has_nodes: whether trees may be rows of a table that a query walks.
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
    boolean_column: Callable[[str], str] | None = None
    date_column: Callable[[str], str] | None = None
    scales_results: bool = False
    ending: str = ""
    odd_text: Callable[[str], str] | None = None
    float32: str = ""
    booleans: tuple[str, ...] = ()
    function: str | None = None
    functions: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    has_infinity: bool = True
    range_errors: RangeErrors = RangeErrors()
    merges: int | None = None
    tags: tuple[str, ...] = ()
    reserved: frozenset[str] | None = None
    functions_of_rows: frozenset[str] = frozenset()
    fence: str = ""
    settings: str = ""
    characters: int = 1 << 24
    raised: str = ""
    columns: int = 1600
    cases: int = 200
    has_nodes: bool = False
    is_run: bool = False


def _cast(x: str) -> str:
    return f"CAST(CAST({x} AS FLOAT) AS DOUBLE)"


_CAST = Portable(_cast, roundings=100)
_FINITE_CAST = Portable(_cast, roundings=100, has_infinity=False)
_ARITHMETIC = Portable(by_arithmetic, roundings=1)
"""How sums of float32 numbers are rounded: by a type for them, or where there is none."""


def _as(text: str) -> Callable[[str], str]:
    """What is made of a column `{c}`."""
    return lambda column: text.replace("{c}", column)


def _types(
    number: str, string: str, integer: str, boolean: str, datetime: str = ""
) -> Mapping[str, str]:
    made = {"number": number, "string": string, "integer": integer, "boolean": boolean}
    made["datetime"] = datetime
    return MappingProxyType(made)


def _escaped(text: str) -> str:
    r"""Of PostgreSQL, whatever standard_conforming_strings says.

    >>> print(_escaped("it's \\"))
    E'it''s \\'
    """
    return "E'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def _as_bytes(text: str) -> str:
    """Of MySQL, whatever the connection's character set and NO_BACKSLASH_ESCAPES say.

    >>> _as_bytes("ä")
    "CONVERT(X'c3a4' USING utf8mb4)"
    """
    return f"CONVERT(X'{text.encode().hex()}' USING utf8mb4)"


def _national(text: str) -> str:
    r"""Of SQL Server, which leaves out a line's end behind a backslash.

    >>> print(_national("it's"))
    N'it''s'
    """
    quoted = text.replace("'", "''").replace("\\\n", "\\' + N'\n")
    return f"(N'{quoted}')" if " + N'" in quoted else f"N'{quoted}'"


_FUNCTIONS_OF_ROWS = frozenset(
    "any_out any_value anycompatible_out anycompatiblenonarray_out anyelement_out anynonarray_out "
    "array_agg concat count cume_dist dense_rank first_value hash_record json_agg json_agg_strict "
    "json_build_array json_build_object json_scalar jsonb_agg jsonb_agg_strict jsonb_build_array "
    "jsonb_build_object lag last_value lead max min mode num_nonnulls num_nulls percent_rank "
    "pg_collation_for pg_column_compression pg_column_size pg_column_toast_chunk_id pg_typeof "
    "quote_literal quote_nullable rank record_out record_send row_to_json to_json to_jsonb".split()
)
"""Functions of PostgreSQL up to 18 that take one argument of any type, or a row."""

_POSTGRES = Database(
    name="PostgreSQL",
    dialect="postgres",
    numbers=_CAST,
    literal=lambda value: f"'{value!r}'::float8",
    infinity="'infinity'::float8",
    range_errors=RangeErrors(overflow=True, underflow=True, float32=True),
    number_column=_as("nullif(CAST({c} AS double precision), 'NaN'::float8)"),
    boolean_column=_as(
        "CASE CAST({c} AS text) WHEN 'true' THEN 1 WHEN 'false' THEN 0 "
        "ELSE CAST(CAST({c} AS text) AS double precision) END"
    ),
    text_column=_as('CAST({c} AS text) COLLATE "C"'),
    date_column=_as(
        "CAST(round(extract(epoch FROM CAST({c} AS timestamp)) * 1000000) AS double precision)"
    ),
    odd_text=_escaped,
    types=_types("double precision", "text", "bigint", "boolean", "timestamp"),
    function=(
        "CREATE OR REPLACE FUNCTION {name}({parameters}) RETURNS {type}\n"
        "LANGUAGE sql IMMUTABLE PARALLEL SAFE AS ${tag}$\n{query}\n${tag}$;\n"
    ),
    functions_of_rows=_FUNCTIONS_OF_ROWS,
    fence=" OFFSET 0",
    characters=(1 << 30) - 1,
    has_nodes=True,
    is_run=True,
)

_MARIADB = Database(
    name="MariaDB",
    dialect="mysql",
    numbers=_FINITE_CAST,
    literal=with_exponent,
    infinity="1.7976931348623157e308",
    has_infinity=False,
    range_errors=RangeErrors(overflow=True, float32=True, is_finite=True),
    functions=MappingProxyType({"tanh": TANH, "cbrt": CBRT}),
    number_column=_as("CAST({c} AS DOUBLE)"),
    text_column=_as("CAST(CONVERT({c} USING utf8mb4) AS BINARY)"),
    date_column=_as(
        "CAST(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', CAST({c} AS DATETIME(6))) AS DOUBLE)"
    ),
    odd_text=_as_bytes,
    types=_types("DOUBLE", "LONGTEXT CHARACTER SET utf8mb4", "BIGINT", "BOOLEAN", "DATETIME(6)"),
    function=(
        "CREATE OR REPLACE FUNCTION {name}({parameters}) RETURNS {type} DETERMINISTIC NO SQL\n"
        "RETURN (\n{query}\n);\n"
    ),
    fence=" LIMIT 18446744073709551615",
    is_run=True,
)

_MYSQL = replace(
    _MARIADB,
    name="MySQL",
    function=(
        "DROP FUNCTION IF EXISTS {name};\n\n"
        "CREATE FUNCTION {name}({parameters}) RETURNS {type} DETERMINISTIC NO SQL\n"
        "RETURN (\n{query}\n);\n"
    ),
    characters=1 << 26,
    is_run=False,
)

_SQLITE = Database(
    name="SQLite",
    dialect="sqlite",
    numbers=_ARITHMETIC,
    literal=exact,
    # For each constant operand, it searches all constants of the statement; not for results of a
    # CASE.
    scales_results=True,
    infinity="9e999",
    functions=MappingProxyType({"cbrt": CBRT}),
    number_column=_as("CAST({c} AS REAL)"),
    text_column=_as("({c} || '')"),
    # Its own functions know no more than milliseconds, and take much else for a date: 'now', a
    # number, the 31st of February, a time zone at the end.
    date_column=_as(
        "CASE WHEN date(substr({c}, 1, 10), '+0 days') = substr({c}, 1, 10) "
        "AND substr({c}, 11) NOT GLOB '*[^0-9 T:.]*' AND substr({c}, 20, 1) IN ('', '.') "
        "AND substr({c}, 21) NOT GLOB '*[^0-9]*' "
        "THEN CAST(strftime('%s', substr({c}, 1, 19)) AS REAL) * 1000000.0 "
        "+ round(CAST('0' || substr({c}, 20, 7) AS REAL) * 1000000.0) END"
    ),
    types=_types("REAL", "TEXT", "INTEGER", "INTEGER"),
    fence=" LIMIT -1 OFFSET 0",
    characters=10**9,
    is_run=True,
)

_DUCKDB = Database(
    name="DuckDB",
    dialect="duckdb",
    numbers=_CAST,
    literal=with_exponent,
    infinity="'inf'::DOUBLE",
    range_errors=RangeErrors(float32=True),
    number_column=_as("nullif(CAST({c} AS DOUBLE), 'nan'::DOUBLE)"),
    text_column=_as('CAST({c} AS VARCHAR) COLLATE "binary"'),
    date_column=DUCKDB.microseconds,
    types=_types("DOUBLE", "VARCHAR", "BIGINT", "BOOLEAN"),
    function="CREATE OR REPLACE MACRO {name}({names}) AS (\n{query}\n);\n",
    characters=1 << 30,
    is_run=True,
)

_RESERVED = frozenset(
    "ACCOUNT ALL ALTER AND ANY AS BETWEEN BY CASE CAST CHECK COLUMN CONNECT CONNECTION CONSTRAINT "
    "CREATE CROSS CURRENT CURRENT_DATE CURRENT_TIME CURRENT_TIMESTAMP CURRENT_USER DATABASE DELETE "
    "DISTINCT DROP ELSE EXISTS FALSE FOLLOWING FOR FROM FULL GRANT GROUP GSCLUSTER HAVING ILIKE IN "
    "INCREMENT INNER INSERT INTERSECT INTO IS ISSUE JOIN LATERAL LEFT LIKE LOCALTIME "
    "LOCALTIMESTAMP MINUS NATURAL NOT NULL OF ON OR ORDER ORGANIZATION QUALIFY REGEXP REVOKE RIGHT "
    "RLIKE ROW ROWS SAMPLE SCHEMA SELECT SET SOME START TABLE TABLESAMPLE THEN TO TRIGGER TRUE "
    "TRY_CAST UNION UNIQUE UPDATE USING VALUES VIEW WHEN WHENEVER WHERE WITH".split()
)
"""Of Snowflake (docs.snowflake.com, Reserved & limited keywords)."""

_SNOWFLAKE = Database(
    name="Snowflake",
    dialect="snowflake",
    numbers=_ARITHMETIC,
    literal=lambda value: f"'{value!r}'::FLOAT",
    infinity="'inf'::FLOAT",
    number_column=_as("nullif(CAST({c} AS FLOAT), 'NaN'::FLOAT)"),
    boolean_column=_as(
        "CASE CAST({c} AS VARCHAR) WHEN 'true' THEN 1 WHEN 'false' THEN 0 "
        "ELSE CAST(CAST({c} AS VARCHAR) AS FLOAT) END"
    ),
    text_column=_as("COLLATE(CAST({c} AS VARCHAR), '')"),
    date_column=_as("CAST(date_part(epoch_microsecond, CAST({c} AS TIMESTAMP_NTZ)) AS FLOAT)"),
    types=_types("FLOAT", "VARCHAR", "NUMBER(38, 0)", "BOOLEAN", "TIMESTAMP_NTZ"),
    function=(
        "CREATE OR REPLACE FUNCTION {name}({parameters}) RETURNS {type}\n"
        "IMMUTABLE AS ${tag}$\n{query}\n${tag}$;\n"
    ),
    tags=("",),
    reserved=_RESERVED,
    characters=1 << 20,
)

_BIGQUERY = Database(
    name="BigQuery",
    dialect="bigquery",
    numbers=_ARITHMETIC,
    literal=repr,
    infinity="CAST('inf' AS FLOAT64)",
    number_column=_as("IF(IS_NAN(CAST({c} AS FLOAT64)), NULL, CAST({c} AS FLOAT64))"),
    boolean_column=_as(
        "CASE CAST({c} AS STRING) WHEN 'true' THEN 1 WHEN 'false' THEN 0 "
        "ELSE CAST(CAST({c} AS STRING) AS FLOAT64) END"
    ),
    text_column=_as("COLLATE(CAST({c} AS STRING), '')"),
    date_column=_as(
        "CAST(DATETIME_DIFF(CAST({c} AS DATETIME), DATETIME '1970-01-01', MICROSECOND) AS FLOAT64)"
    ),
    types=_types("FLOAT64", "STRING", "INT64", "BOOL", "DATETIME"),
    function="CREATE OR REPLACE FUNCTION {name}({parameters}) RETURNS {type} AS (\n({query})\n);\n",
    characters=1 << 20,
)

_CLICKHOUSE = Database(
    name="ClickHouse",
    dialect="clickhouse",
    numbers=_CAST,
    literal=repr,
    infinity="inf",
    number_column=_as(
        "if(isNaN(CAST({c} AS Nullable(Float64))), NULL, CAST({c} AS Nullable(Float64)))"
    ),
    text_column=_as("CAST({c} AS Nullable(String))"),
    types=_types("Float64", "String", "Int64", "Bool"),
    # It merges queries to expressions whose names alone take it minutes; a plain LIMIT it moves
    # down, out of their way, and 1 would be the first column.
    fence=" LIMIT 18446744073709551615 BY ''",
    settings="\nSETTINGS query_plan_merge_expressions = 0",
    characters=1 << 18,
    raised=(
        "SET max_query_size = 1000000000, max_ast_elements = 1000000000, "
        "max_expanded_ast_elements = 1000000000;\n"
    ),
    is_run=True,
)

_TRINO = Database(
    name="Trino",
    dialect="trino",
    numbers=_CAST,
    literal=with_exponent,
    infinity="infinity()",
    number_column=_as("if(is_nan(CAST({c} AS DOUBLE)), NULL, CAST({c} AS DOUBLE))"),
    text_column=_as("CAST({c} AS VARCHAR)"),
    # to_unixtime gives seconds with a fraction, which are not exact.
    date_column=_as(
        "(CAST(date_diff('second', timestamp '1970-01-01 00:00:00', "
        "date_trunc('second', CAST({c} AS timestamp(6)))) AS double) * 1000000e0 "
        "+ CAST(substr(CAST(CAST({c} AS timestamp(6)) AS varchar), -6) AS double))"
    ),
    types=_types("DOUBLE", "VARCHAR", "BIGINT", "BOOLEAN"),
    characters=1_000_000,
)

_REDSHIFT = Database(
    name="Redshift",
    dialect="redshift",
    functions_of_rows=_FUNCTIONS_OF_ROWS,
    numbers=_CAST,
    literal=lambda value: f"'{value!r}'::float8",
    infinity="'infinity'::float8",
    range_errors=RangeErrors(overflow=True, underflow=True, float32=True),
    functions=MappingProxyType({"tanh": TANH}),
    number_column=_as("nullif(CAST({c} AS double precision), 'NaN'::float8)"),
    boolean_column=_as("CAST(CAST({c} AS integer) AS double precision)"),
    text_column=_as("collate(CAST({c} AS varchar(65535)), 'case_sensitive')"),
    date_column=_as(
        "CAST(datediff(microsecond, timestamp '1970-01-01', CAST({c} AS timestamp)) "
        "AS double precision)"
    ),
    types=_types("double precision", "varchar(65535)", "bigint", "boolean"),
)

_SQLSERVER = Database(
    name="SQL Server",
    dialect="tsql",
    numbers=Portable(_cast, roundings=20, levels=6, has_infinity=False),
    literal=lambda value: (
        with_exponent(value) if abs(value) == sys.float_info.max else exact_with_exponents(value)
    ),
    infinity="1.7976931348623157e308",
    has_infinity=False,
    range_errors=RangeErrors(overflow=True, float32=True, is_finite=True),
    functions=MappingProxyType({"tanh": TANH, "cbrt": CBRT}),
    number_column=_as("CAST({c} AS float)"),
    # Blanks at the end of a text count only where something follows them.
    text_column=_as("(CAST({c} AS nvarchar(max)) + N'.') COLLATE Latin1_General_100_BIN2"),
    date_column=_as(
        "CAST(DATEDIFF_BIG(microsecond, '1970-01-01', CAST({c} AS datetime2(6))) AS float)"
    ),
    ending=".",
    odd_text=_national,
    float32="REAL",
    booleans=("CAST(0 AS bit)", "CAST(1 AS bit)"),
    types=_types("float", "nvarchar(max)", "bigint", "bit"),
    fence=" ORDER BY (SELECT NULL) OFFSET 0 ROWS FETCH NEXT 9223372036854775807 ROWS ONLY",
    characters=1 << 28,
    columns=4096,
    cases=10,
)

_SPARK = Database(
    name="Spark",
    dialect="spark",
    numbers=_CAST,
    literal=lambda value: f"{value!r}D",
    infinity="CAST('inf' AS DOUBLE)",
    number_column=_as("nanvl(CAST({c} AS DOUBLE), NULL)"),
    text_column=_as("CAST({c} AS STRING)"),
    date_column=SPARK.microseconds,
    types=_types("DOUBLE", "STRING", "BIGINT", "BOOLEAN", "TIMESTAMP_NTZ"),
    function=(
        "CREATE OR REPLACE FUNCTION {name}({parameters}) RETURNS {type} DETERMINISTIC\n"
        "RETURN (\n{query}\n);\n"
    ),
    merges=1_000_000,
    is_run=True,
)

_DATABRICKS = replace(_SPARK, name="Databricks", dialect="databricks", is_run=False)

DATABASES: Mapping[str, Database] = MappingProxyType(
    {
        "postgres": _POSTGRES,
        "mariadb": _MARIADB,
        "mysql": _MYSQL,
        "sqlite": _SQLITE,
        "duckdb": _DUCKDB,
        "spark": _SPARK,
        "databricks": _DATABRICKS,
        "snowflake": _SNOWFLAKE,
        "bigquery": _BIGQUERY,
        "clickhouse": _CLICKHOUSE,
        "trino": _TRINO,
        "redshift": _REDSHIFT,
        "sqlserver": _SQLSERVER,
    }
)
"""Databases by the names that DIALECT takes."""
