"""The databases for which models are exported, with the SQL and the limits of each.

To add a database, add a `Database` and a row to `DATABASES`.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from sqlml.dialects import DUCKDB, SPARK
from sqlml.dialects.portable import Portable
from sqlml.planner.databases.range_errors import RangeErrors


def format_with_exponent(value: float) -> str:
    """Format a float64 with an exponent and the fewest digits that identify the number.

    >>> format_with_exponent(0.5), format_with_exponent(1e300)
    ('0.5e0', '1e+300')
    """
    digits = repr(value)
    return digits if "e" in digits else f"{digits}e0"


def format_exactly(value: float) -> str:
    """Format a float64 as SQL for SQLite: as a short decimal, or else as a quotient of integers.

    SQLite reads integers exactly, but it does not read all decimal fractions exactly.

    >>> format_exactly(0.5), format_exactly(3.0), format_exactly(0.1)
    ('0.5', '3.0', '(3602879701896397.0/36028797018963968.0)')
    """
    digits = repr(value)
    if "e" not in digits and len(digits.lstrip("-")) <= 16:
        decimals = digits.partition(".")[2]
        if float(value).is_integer() or len(decimals) <= 4 and (value * 16).is_integer():
            return digits
    return _format_integer_quotient(value, ".0")


def format_exactly_with_exponents(value: float) -> str:
    """Format a float64 as SQL for SQL Server: as a short number, or else as a quotient of integers.

    All numbers get an exponent, since SQL Server reads a number without an exponent as a decimal.

    >>> [format_exactly_with_exponents(value) for value in (-0.5, 3.0, 0.1)]
    ['-0.5e0', '3.0e0', '(3602879701896397e0/36028797018963968e0)']
    """
    digits = repr(value)
    is_short = "e" not in digits and len(digits.lstrip("-")) <= 16 and (value * 16).is_integer()
    return f"{digits}e0" if is_short else _format_integer_quotient(value, "e0")


def _format_integer_quotient(value: float, suffix: str) -> str:
    """Format a float64 as a quotient or product of integers below 2^63, each with `suffix`."""
    mantissa, exponent = math.frexp(value)
    integer, exponent = int(math.ldexp(mantissa, 53)), exponent - 53
    while integer % 2 == 0 and integer:
        integer, exponent = integer // 2, exponent + 1
    quotient_sql = f"{integer}{suffix}"
    while exponent < 0:
        shift = min(-exponent, 62)
        quotient_sql, exponent = f"{quotient_sql}/{2**shift}{suffix}", exponent + shift
    while exponent > 0:
        shift = min(exponent, 62)
        quotient_sql, exponent = f"{quotient_sql}*{2**shift}{suffix}", exponent - shift
    return f"({quotient_sql})"


def round_by_arithmetic(x: str) -> str:
    """Return the SQL that rounds `x` to a float32, ties to even, without using a 32-bit type.

    Adding and subtracting 3 * 2^28 * ufp(x) removes the 29 bits that a float64 has beyond a
    float32. `ufp(x)`, the unit in the first place of x, is computed as in Rump, Ogita and Oishi,
    "Accurate floating-point summation, part I", 2008, algorithm 3.5. The SQL uses at least
    2^-126 instead, since float32 numbers below that are evenly spaced.
    """
    scaled = f"(4503599627370497.0*({x}))"
    ufp = f"abs({scaled}-{scaled}*(9007199254740991/9007199254740992.0))"
    min_normal = "(1/85070591730234615865843651857942052864.0)"  # 2^-126
    large_power = f"(805306368.0*greatest({ufp}, {min_normal}))"  # 3 * 2^28
    return f"(({x}+{large_power})-{large_power})"


_EXPM1 = "CASE WHEN exp(2 * x) = 1 THEN 2 * x ELSE (exp(2 * x) - 1) * (2 * x) / ln(exp(2 * x)) END"

_TANH_SQL = f"CASE WHEN abs(x) > 20 THEN sign(x) ELSE ({_EXPM1}) / (({_EXPM1}) + 2) END"
"""The SQL of tanh, from exp(2x) - 1. Kahan's method computes this without loss of digits near 0."""

_CBRT_SQL = (
    "CASE WHEN x = 0 THEN x ELSE sign(x) * (power(abs(x), 1 / 3e0) - (power(power(abs(x), 1 / 3e0),"
    " 3) - abs(x)) / (3 * power(power(abs(x), 1 / 3e0), 2))) END"
)
"""The SQL of the cube root, which improves a power by one step of Newton's method."""


@dataclass(frozen=True, slots=True)
class Database:
    """A database for which models are exported, with its SQL syntax and its limits."""

    name: str  # The database's name in messages.
    dialect: str  # The name of the dialect in sqlglot.
    numbers: Portable  # Formats and rounds arithmetic.
    format_literal: Callable[[float], str]  # Finite number -> float64 literal.
    infinity: str  # The SQL of infinity, or of the largest number if `has_infinity` is false.
    # Templates that read a column `{c}`. `number_sql` reads it as a float64, with NULL for NaN.
    # `string_sql` reads it as a string that is compared byte by byte.
    number_sql: str
    string_sql: str
    type_names: Mapping[str, str]  # Kind of a feature or prediction -> SQL type.
    # Reads a BOOLEAN or numeric column as a float64, or is None if `number_sql` can read both.
    boolean_sql: str | None = None
    # Reads a date or a timestamp without time zone as microseconds since 1970, if supported.
    date_sql: str | None = None
    # If true, numbers in a CASE are written as integers, and the CASE is multiplied by a factor,
    # since the database is slow with other constants.
    scales_results: bool = False
    string_suffix: str = ""  # `string_sql` appends this suffix, so compared literals need it, too.
    # Quotes a string with a backslash or non-ASCII characters so that it means the same under all
    # settings of the server and the connection. It is None if plain literals always mean the same.
    quote_odd_text: Callable[[str], str] | None = None
    float32_name: str = ""  # The name of the 32-bit type, if sqlglot writes another type.
    booleans: tuple[str, ...] = ()  # Expressions for false and true, if there are no keywords.
    # The template of a statement that creates a function. It has fields for the name, the
    # `parameters` with their types, the parameters' `names` alone, the return type, the query, and
    # a tag that does not occur in the query. It is None if functions cannot be written in SQL.
    function_template: str | None = None
    # Name of a function that the database lacks -> expression of `x` that replaces it.
    substitutes: Mapping[str, str] = field(default_factory=dict)
    has_infinity: bool = True
    range_errors: RangeErrors = RangeErrors()  # Errors that end a query because of one row.
    # The maximum length of the expression into which the database merges a function's queries.
    max_merged_length: int | None = None
    tags: tuple[str, ...] = ()  # The tags that the database allows, or () for any tag.
    # The words that need quotes, if other names must stay unquoted because quotes preserve case.
    reserved: frozenset[str] | None = None
    # Functions that `t.name` calls with the row if the table has no column `name`. For example,
    # `t.count` means `count(t)`.
    functions_of_rows: frozenset[str] = frozenset()
    # Ends a query, so that the optimizer does not merge the query into the outer query and compute
    # the columns several times.
    fence: str = ""
    settings: str = ""  # Ends a SELECT that has no fences, if fences prevent parallelism.
    max_length: int = 1 << 24  # The default maximum length of a statement.
    raise_limit: str = ""  # A statement that allows longer statements on a connection.
    max_columns: int = 1600  # The maximum number of columns of a query.
    max_case_depth: int = 200  # The maximum depth of nested CASEs.
    has_node_tables: bool = False  # FORM nodes, which stores trees as table rows, is supported.


def _round_by_cast(sql: str) -> str:
    return f"CAST(CAST({sql} AS FLOAT) AS DOUBLE)"


_CASTS = Portable(_round_by_cast, roundings=100)
_FINITE_CASTS = Portable(_round_by_cast, roundings=100, has_infinity=False)
_ARITHMETIC = Portable(round_by_arithmetic, roundings=1)
"""Rounds sums of float32 numbers by arithmetic. The dialects above cast to a 32-bit type."""


def _build_boolean_template(text_type: str, number_type: str) -> str:
    return (
        f"CASE CAST({{c}} AS {text_type}) WHEN 'true' THEN 1 WHEN 'false' THEN 0 "
        f"ELSE CAST(CAST({{c}} AS {text_type}) AS {number_type}) END"
    )


def _make_type_names(
    number: str, string: str, integer: str, boolean: str, datetime: str = ""
) -> Mapping[str, str]:
    type_names = {"number": number, "string": string, "integer": integer, "boolean": boolean}
    return {**type_names, "datetime": datetime}


def _quote_postgres(text: str) -> str:
    r"""Return a PostgreSQL string literal that does not depend on standard_conforming_strings.

    >>> print(_quote_postgres("it's \\"))
    E'it''s \\'
    """
    return "E'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def _quote_mysql(text: str) -> str:
    """Return a MySQL string that depends on neither the character set nor NO_BACKSLASH_ESCAPES.

    >>> _quote_mysql("ä")
    "CONVERT(X'c3a4' USING utf8mb4)"
    """
    return f"CONVERT(X'{text.encode().hex()}' USING utf8mb4)"


def _quote_sqlserver(text: str) -> str:
    r"""Return a SQL Server string, split between a backslash and a line break to keep both.

    >>> print(_quote_sqlserver("it's"))
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
"""PostgreSQL functions, up to version 18, whose single argument may be a row."""

_POSTGRES = Database(
    name="PostgreSQL",
    dialect="postgres",
    numbers=_CASTS,
    format_literal=lambda value: f"'{value!r}'::float8",
    infinity="'infinity'::float8",
    range_errors=RangeErrors(overflow=True, underflow=True, float32=True),
    number_sql="nullif(CAST({c} AS double precision), 'NaN'::float8)",
    boolean_sql=_build_boolean_template("text", "double precision"),
    string_sql='CAST({c} AS text) COLLATE "C"',
    date_sql=(
        "CAST(round(extract(epoch FROM CAST({c} AS timestamp)) * 1000000) AS double precision)"
    ),
    quote_odd_text=_quote_postgres,
    type_names=_make_type_names("double precision", "text", "bigint", "boolean", "timestamp"),
    function_template=(
        "CREATE OR REPLACE FUNCTION {name}({parameters}) RETURNS {type}\n"
        "LANGUAGE sql IMMUTABLE PARALLEL SAFE AS ${tag}$\n{query}\n${tag}$;\n"
    ),
    functions_of_rows=_FUNCTIONS_OF_ROWS,
    fence=" OFFSET 0",
    max_length=(1 << 30) - 1,
    has_node_tables=True,
)

_MARIADB = Database(
    name="MariaDB",
    dialect="mysql",
    numbers=_FINITE_CASTS,
    format_literal=format_with_exponent,
    infinity="1.7976931348623157e308",
    has_infinity=False,
    range_errors=RangeErrors(overflow=True, float32=True, is_finite=True),
    substitutes={"tanh": _TANH_SQL, "cbrt": _CBRT_SQL},
    number_sql="CAST({c} AS DOUBLE)",
    string_sql="CAST(CONVERT({c} USING utf8mb4) AS BINARY)",
    date_sql=("CAST(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', CAST({c} AS DATETIME(6))) AS DOUBLE)"),
    quote_odd_text=_quote_mysql,
    type_names=_make_type_names(
        "DOUBLE", "LONGTEXT CHARACTER SET utf8mb4", "BIGINT", "BOOLEAN", "DATETIME(6)"
    ),
    function_template=(
        "CREATE OR REPLACE FUNCTION {name}({parameters}) RETURNS {type} DETERMINISTIC NO SQL\n"
        "RETURN (\n{query}\n);\n"
    ),
    fence=" LIMIT 18446744073709551615",
)

_MYSQL = replace(
    _MARIADB,
    name="MySQL",
    function_template=(
        "DROP FUNCTION IF EXISTS {name};\n\n"
        "CREATE FUNCTION {name}({parameters}) RETURNS {type} DETERMINISTIC NO SQL\n"
        "RETURN (\n{query}\n);\n"
    ),
    max_length=1 << 26,
)

_SQLITE = Database(
    name="SQLite",
    dialect="sqlite",
    numbers=_ARITHMETIC,
    format_literal=format_exactly,
    # For each constant operand, SQLite searches all constants of the statement. It does not do so
    # for the results of a CASE.
    scales_results=True,
    infinity="9e999",
    substitutes={"cbrt": _CBRT_SQL},
    number_sql="CAST({c} AS REAL)",
    string_sql="({c} || '')",
    # SQLite's functions have a resolution of milliseconds. They also accept text that must
    # not count as a date: 'now', a number, the 31st of February, or a time zone at the end.
    date_sql=(
        "CASE WHEN date(substr({c}, 1, 10), '+0 days') = substr({c}, 1, 10) "
        "AND substr({c}, 11) NOT GLOB '*[^0-9 T:.]*' AND substr({c}, 20, 1) IN ('', '.') "
        "AND substr({c}, 21) NOT GLOB '*[^0-9]*' "
        "THEN CAST(strftime('%s', substr({c}, 1, 19)) AS REAL) * 1000000.0 "
        "+ round(CAST('0' || substr({c}, 20, 7) AS REAL) * 1000000.0) END"
    ),
    type_names=_make_type_names("REAL", "TEXT", "INTEGER", "INTEGER"),
    fence=" LIMIT -1 OFFSET 0",
    max_length=10**9,
)

_DUCKDB = Database(
    name="DuckDB",
    dialect="duckdb",
    numbers=_CASTS,
    format_literal=format_with_exponent,
    infinity="'inf'::DOUBLE",
    range_errors=RangeErrors(float32=True),
    number_sql="nullif(CAST({c} AS DOUBLE), 'nan'::DOUBLE)",
    string_sql='CAST({c} AS VARCHAR) COLLATE "binary"',
    date_sql=DUCKDB.microseconds("{c}"),
    type_names=_make_type_names("DOUBLE", "VARCHAR", "BIGINT", "BOOLEAN"),
    function_template="CREATE OR REPLACE MACRO {name}({names}) AS (\n{query}\n);\n",
    max_length=1 << 30,
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
"""The reserved words of Snowflake (docs.snowflake.com, Reserved & limited keywords)."""

_SNOWFLAKE = Database(
    name="Snowflake",
    dialect="snowflake",
    numbers=_ARITHMETIC,
    format_literal=lambda value: f"'{value!r}'::FLOAT",
    infinity="'inf'::FLOAT",
    number_sql="nullif(CAST({c} AS FLOAT), 'NaN'::FLOAT)",
    boolean_sql=_build_boolean_template("VARCHAR", "FLOAT"),
    string_sql="COLLATE(CAST({c} AS VARCHAR), '')",
    date_sql="CAST(date_part(epoch_microsecond, CAST({c} AS TIMESTAMP_NTZ)) AS FLOAT)",
    type_names=_make_type_names("FLOAT", "VARCHAR", "NUMBER(38, 0)", "BOOLEAN", "TIMESTAMP_NTZ"),
    function_template=(
        "CREATE OR REPLACE FUNCTION {name}({parameters}) RETURNS {type}\n"
        "IMMUTABLE AS ${tag}$\n{query}\n${tag}$;\n"
    ),
    tags=("",),
    reserved=_RESERVED,
    max_length=1 << 20,
)

_BIGQUERY = Database(
    name="BigQuery",
    dialect="bigquery",
    numbers=_ARITHMETIC,
    format_literal=repr,
    infinity="CAST('inf' AS FLOAT64)",
    number_sql="IF(IS_NAN(CAST({c} AS FLOAT64)), NULL, CAST({c} AS FLOAT64))",
    boolean_sql=_build_boolean_template("STRING", "FLOAT64"),
    string_sql="COLLATE(CAST({c} AS STRING), '')",
    date_sql=(
        "CAST(DATETIME_DIFF(CAST({c} AS DATETIME), DATETIME '1970-01-01', MICROSECOND) AS FLOAT64)"
    ),
    type_names=_make_type_names("FLOAT64", "STRING", "INT64", "BOOL", "DATETIME"),
    function_template=(
        "CREATE OR REPLACE FUNCTION {name}({parameters}) RETURNS {type} AS (\n({query})\n);\n"
    ),
    max_length=1 << 20,
)

_CLICKHOUSE = Database(
    name="ClickHouse",
    dialect="clickhouse",
    numbers=_CASTS,
    format_literal=repr,
    infinity="inf",
    number_sql=("if(isNaN(CAST({c} AS Nullable(Float64))), NULL, CAST({c} AS Nullable(Float64)))"),
    string_sql="CAST({c} AS Nullable(String))",
    type_names=_make_type_names("Float64", "String", "Int64", "Bool"),
    # Without fences, ClickHouse merges the queries into expressions whose names alone take minutes
    # to build. It pushes down a plain LIMIT, and BY 1 means the first column.
    fence=" LIMIT 18446744073709551615 BY ''",
    settings="\nSETTINGS query_plan_merge_expressions = 0",
    max_length=1 << 18,
    raise_limit=(
        "SET max_query_size = 1000000000, max_ast_elements = 1000000000, "
        "max_expanded_ast_elements = 1000000000;\n"
    ),
)

_TRINO = Database(
    name="Trino",
    dialect="trino",
    numbers=_CASTS,
    format_literal=format_with_exponent,
    infinity="infinity()",
    number_sql="if(is_nan(CAST({c} AS DOUBLE)), NULL, CAST({c} AS DOUBLE))",
    string_sql="CAST({c} AS VARCHAR)",
    # The fractional seconds that to_unixtime returns are not exact.
    date_sql=(
        "(CAST(date_diff('second', timestamp '1970-01-01 00:00:00', "
        "date_trunc('second', CAST({c} AS timestamp(6)))) AS double) * 1000000e0 "
        "+ CAST(substr(CAST(CAST({c} AS timestamp(6)) AS varchar), -6) AS double))"
    ),
    type_names=_make_type_names("DOUBLE", "VARCHAR", "BIGINT", "BOOLEAN"),
    max_length=1_000_000,
)

_REDSHIFT = Database(
    name="Redshift",
    dialect="redshift",
    functions_of_rows=_FUNCTIONS_OF_ROWS,
    numbers=_CASTS,
    format_literal=lambda value: f"'{value!r}'::float8",
    infinity="'infinity'::float8",
    range_errors=RangeErrors(overflow=True, underflow=True, float32=True),
    substitutes={"tanh": _TANH_SQL},
    number_sql="nullif(CAST({c} AS double precision), 'NaN'::float8)",
    boolean_sql="CAST(CAST({c} AS integer) AS double precision)",
    string_sql="collate(CAST({c} AS varchar(65535)), 'case_sensitive')",
    date_sql=(
        "CAST(datediff(microsecond, timestamp '1970-01-01', CAST({c} AS timestamp)) "
        "AS double precision)"
    ),
    type_names=_make_type_names("double precision", "varchar(65535)", "bigint", "boolean"),
)

_SQLSERVER = Database(
    name="SQL Server",
    dialect="tsql",
    numbers=Portable(_round_by_cast, roundings=20, levels=6, has_infinity=False),
    format_literal=lambda value: (
        format_with_exponent(value)
        if abs(value) == sys.float_info.max
        else format_exactly_with_exponents(value)
    ),
    infinity="1.7976931348623157e308",
    has_infinity=False,
    range_errors=RangeErrors(overflow=True, float32=True, is_finite=True),
    substitutes={"tanh": _TANH_SQL, "cbrt": _CBRT_SQL},
    number_sql="CAST({c} AS float)",
    # Comparisons in SQL Server ignore trailing blanks, so a '.' is appended to all strings.
    string_sql="(CAST({c} AS nvarchar(max)) + N'.') COLLATE Latin1_General_100_BIN2",
    date_sql=("CAST(DATEDIFF_BIG(microsecond, '1970-01-01', CAST({c} AS datetime2(6))) AS float)"),
    string_suffix=".",
    quote_odd_text=_quote_sqlserver,
    float32_name="REAL",
    booleans=("CAST(0 AS bit)", "CAST(1 AS bit)"),
    type_names=_make_type_names("float", "nvarchar(max)", "bigint", "bit"),
    fence=" ORDER BY (SELECT NULL) OFFSET 0 ROWS FETCH NEXT 9223372036854775807 ROWS ONLY",
    max_length=1 << 28,
    max_columns=4096,
    max_case_depth=10,
)

_SPARK = Database(
    name="Spark",
    dialect="spark",
    numbers=_CASTS,
    format_literal=lambda value: f"{value!r}D",
    infinity="CAST('inf' AS DOUBLE)",
    number_sql="nanvl(CAST({c} AS DOUBLE), NULL)",
    string_sql="CAST({c} AS STRING)",
    date_sql=SPARK.microseconds("{c}"),
    type_names=_make_type_names("DOUBLE", "STRING", "BIGINT", "BOOLEAN", "TIMESTAMP_NTZ"),
    function_template=(
        "CREATE OR REPLACE FUNCTION {name}({parameters}) RETURNS {type} DETERMINISTIC\n"
        "RETURN (\n{query}\n);\n"
    ),
    max_merged_length=1_000_000,
)

_DATABRICKS = replace(_SPARK, name="Databricks", dialect="databricks")

DATABASES: Mapping[str, Database] = {
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
"""Database name in `EXPORT ... DIALECT` -> database."""
