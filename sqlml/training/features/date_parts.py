"""`parts_of`: the numbers that a date, a time or an interval is to a model."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from sqlml.catalog.row_expressions import RowExpression
from sqlml.dialects.duckdb import builtin

_DAYS = ("year", "month", "day", "dayofweek")
_HOURS = ("hour", "minute")
_SINCE = ("epoch",)

PARTS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "DATE": (*_DAYS, *_SINCE),
        "TIMESTAMP": (*_DAYS, *_HOURS, *_SINCE),
        "TIMESTAMP_S": (*_DAYS, *_HOURS, *_SINCE),
        "TIMESTAMP_MS": (*_DAYS, *_HOURS, *_SINCE),
        "TIMESTAMP_NS": (*_DAYS, *_HOURS, *_SINCE),
        "TIMESTAMP WITH TIME ZONE": (*_DAYS, *_HOURS, *_SINCE),
        "TIME": (*_HOURS, "second"),
        "INTERVAL": _SINCE,
    }
)
"""Type -> the engine's functions that make numbers of it; `epoch` are seconds, since 1970."""


def parts_of(name: str, made: RowExpression) -> list[tuple[str, RowExpression]]:
    """Name and expression of each part; none if the type has no parts.

    Args:
        made: what reads the date, with its type in the engine.
    """
    sql, columns, kind = made.sql, made.columns, made.type
    if kind == "TIMESTAMP WITH TIME ZONE":  # whatever the session's own time zone
        sql = f"{builtin('timezone')}('UTC', {sql})"
    return [
        (
            f"{name}_{part}",
            RowExpression(
                f"{builtin(part)}({sql})", columns, "DOUBLE" if part == "epoch" else "INTEGER"
            ),
        )
        for part in PARTS.get(kind, ())
    ]
