"""What the engine is to compute for a model: the function's arguments, or the model itself."""

from __future__ import annotations

import re
from collections.abc import Mapping

from sqlml.backends.sql import Linear, expressions, linear_sql
from sqlml.planner.build import Prepared
from sqlml.planner.column_types import Bound


def texts(prepared: Prepared, bounds: Mapping[str, Bound]) -> str:
    """The second argument, where the model reads whole texts: their bytes as a list."""
    own = [f"encode({bounds[name].sql})" for name in prepared.split.texts]
    return f", [{', '.join(own)}]::BLOB[]" if own else ""


def linear(prepared: Prepared, bounds: Mapping[str, Bound]) -> Linear | None:
    """The model as an expression, where it is a linear one of plain columns."""
    columns = plain_columns(prepared, bounds)
    return None if columns is None else linear_sql(prepared.split.core, columns)


def plain_columns(prepared: Prepared, bounds: Mapping[str, Bound]) -> list[str] | None:
    """The columns of the packed matrix as SQL; None where one of them is more than a column."""
    columns = [bounds[c.name].sql for c in prepared.split.columns if not c.encoded]
    whole = prepared.split.encoders is None and all(map(plain, columns))
    return columns if whole else None


def plain(sql: str) -> bool:
    """Whether an expression may be written several times: it is cheap, and the same each time."""
    return _COLUMN.fullmatch(sql) is not None


_COLUMN = re.compile(r'(\w+|"([^"]|"")*")(\.(\w+|"([^"]|"")*"))*|\(-?\d+(\.\d*)?([eE][+-]?\d+)?\)')
"""A column, or a number as `bracket` writes it."""


def packed(prepared: Prepared, bounds: Mapping[str, Bound], kind: str) -> str:
    """The one argument of the engine function: all columns as a fixed-size array."""
    encoded: dict[str, str] = {}
    if prepared.split.encoders is not None:
        strings = {n: bounds[n].sql for n in prepared.split.encoders.inputs}
        encoded = expressions(prepared.split.encoders, strings)
    parts = [
        f"CAST({encoded[c.name]} AS {kind})" if c.encoded else _as(bounds[c.name], kind)
        for c in prepared.split.columns
    ] or [f"CAST(0 AS {kind})"]
    # A cast list and not array_value(..): that takes 6 times as long (28 FLOATs, 2.0 and 1.5). A
    # STRUCT is handed over in a third of the time, but Arrow then lets go of the GIL more often,
    # and with two threads the query takes longer (28 columns, 30 trees: 0.8x of one thread's time,
    # 1.1x of two threads').
    return f"[{', '.join(parts)}]::{kind}[{len(parts)}]"


def _as(bound: Bound, kind: str) -> str:
    """The expression as a `kind`: a column that is one goes as it is, which binds sooner."""
    own = bound.type == kind and not bound.sql.startswith("(") and plain(bound.sql)
    return bound.sql if own else f"CAST({bound.sql} AS {kind})"
