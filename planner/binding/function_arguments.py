"""What the engine is to compute for a model: the function's arguments, or the model itself."""

from __future__ import annotations

import re
from collections.abc import Mapping

from sqlml.backends.sql import Linear, expressions, linear_sql
from sqlml.dialects import DUCKDB, Dialect
from sqlml.planner.binding.column_types import Bound
from sqlml.planner.program.function_names import REFUSED_TEXT
from sqlml.planner.program.prepare import Prepared


def texts(prepared: Prepared, bounds: Mapping[str, Bound], dialect: Dialect = DUCKDB) -> str:
    """The argument after the numbers, if the function is given whole texts."""
    own = whole_texts(prepared, bounds)
    return f", {dialect.text_arguments(own)}" if own else ""


def whole_texts(prepared: Prepared, bounds: Mapping[str, Bound]) -> list[str]:
    """The texts that the function is given as they are."""
    return [bounds[name].sql for name in prepared.split.whole]


def columns(prepared: Prepared, bounds: Mapping[str, Bound], kind: str, dialect: Dialect) -> str:
    """The arguments of a function that is called by column: numbers of one kind, then texts."""
    whole = [_as(bounds[name], "VARCHAR") for name in prepared.split.whole]
    # To fold the cast of a parameter that has the type takes DuckDB 16 us.
    own = {f"CAST({b.sql} AS {b.type})": b.sql for b in bounds.values() if _is_parameter(b.sql)}
    made = [*numbers(prepared, bounds, kind, dialect), *whole]
    return ", ".join(own.get(argument, argument) for argument in made)


def _is_parameter(sql: str) -> bool:
    return re.fullmatch(r"\(\$\d+\)", sql) is not None


def linear(prepared: Prepared, bounds: Mapping[str, Bound]) -> Linear | None:
    """The model as an expression, where it is a linear one of plain columns."""
    if plain_columns(prepared, bounds) is None:
        return None
    columns = [_as(bounds[c.name], "DOUBLE") for c in prepared.split.columns if not c.encoded]
    return linear_sql(prepared.split.core, columns)


def plain_columns(prepared: Prepared, bounds: Mapping[str, Bound]) -> list[str] | None:
    """The columns of the packed matrix as SQL; None if one of them is not a plain column."""
    columns = [bounds[c.name].sql for c in prepared.split.columns if not c.encoded]
    whole = len(columns) == len(prepared.split.columns) and all(map(plain, columns))
    return columns if whole else None


def plain(sql: str) -> bool:
    """Whether an expression may be written several times: it is cheap, and the same each time."""
    return _COLUMN.fullmatch(sql) is not None


_COLUMN = re.compile(
    r'(\w+|"([^"]|"")*"|`([^`]|``)*`)(\.(\w+|"([^"]|"")*"|`([^`]|``)*`))*'
    r"|\(-?\d+(\.\d*)?([eE][+-]?\d+)?\)"
    r"|system\.main\.struct_extract\(sqlml_n, 'c\d+'\)"
)
"""A column, a number as `bracket` writes it, or a field of `refused_nulls.Once`."""


def packed(
    prepared: Prepared, bounds: Mapping[str, Bound], kind: str, dialect: Dialect = DUCKDB
) -> str:
    """The argument of the engine function that has all columns, as numbers of one kind."""
    return dialect.number_arguments(numbers(prepared, bounds, kind, dialect), kind)


def numbers(
    prepared: Prepared, bounds: Mapping[str, Bound], kind: str, dialect: Dialect = DUCKDB
) -> list[str]:
    """All columns that the engine function reads, as numbers of one kind.

    A text that the model refuses has a code that stands for it, in engines that ask a function
    about no other texts.
    """
    encoded: dict[str, str] = {}
    if prepared.split.encoders is not None:
        strings = {n: bounds[n].sql for n in prepared.split.encoders.inputs}
        unknown = {}
        if dialect.lazy_calls:
            names = {c.name for c in prepared.split.given if c.strict}
            unknown = dict.fromkeys(names, dialect.scorer(REFUSED_TEXT))
        encoded = expressions(prepared.split.encoders, strings, dialect, unknown)
    return [
        f"CAST({encoded[c.name]} AS {kind})" if c.encoded else _as(bounds[c.name], kind)
        for c in prepared.split.given
    ] or [f"CAST(0 AS {kind})"]


def _as(bound: Bound, kind: str) -> str:
    """The expression as a `kind`: a column that is one goes as it is, which binds sooner."""
    column = plain(bound.sql) and not bound.sql.startswith("(") and bound.sql.upper() != "NULL"
    own = bound.type == kind and column
    return bound.sql if own else f"CAST({bound.sql} AS {kind})"
