"""Literals of dates in a step's SQL, and its functions of dates beside their parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from types import MappingProxyType

from sqlglot import exp

from sqlml.errors import UnsupportedModelError
from sqlml.importers.calendar_parts import HOUR, MINUTE, PARTS, SECOND, Moment
from sqlml.importers.sql_steps.row_values import Date
from sqlml.ir.builder import Value

OF_DATES = frozenset(PARTS) | {"date_diff", "date_part", "datediff", "datepart"}
"""What is called with columns of dates."""

A_DATE = exp.Cast(this=exp.Literal.string("1970-01-01"), to=exp.DataType.build("DATE"))
"""What says that the columns beside it are dates."""


def is_date(tree: exp.Expr) -> bool:
    """Whether it is a literal such as DATE '2026-01-31'."""
    is_cast = isinstance(tree, exp.Cast) and isinstance(tree.this, exp.Literal)
    return is_cast and tree.this.is_string and tree.args["to"].sql("duckdb").upper() in DATES


DATES = ("DATE", "TIMESTAMP")


def date_of(text: str, kind: str, tree: exp.Expr) -> Date:
    """A date in ISO 8601, which `tree` casts to a `kind` of `DATES`.

    Raises:
        UnsupportedModelError: it is none, or has a time zone.
    """
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is not None:
        raise UnsupportedModelError(
            f"{tree.sql('duckdb')} is not a date; write DATE '2026-01-31' or TIMESTAMP "
            "'2026-01-31 12:00:00'"
        )
    if kind == "DATE":
        moment = moment.replace(hour=0, minute=0, second=0, microsecond=0)
    since = moment - datetime(1970, 1, 1)
    return Date(float((since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds))


def _whole_units(microseconds: int) -> Callable[[Moment], Value]:
    """A date in units that begin with the day."""

    def count(moment: Moment) -> Value:
        b, x = moment.builder, moment.microseconds
        start = b.op("sub", x, b.op("mod", x, float(microseconds)))
        return b.op("div", start, float(microseconds))

    return count


UNITS: Mapping[str, Callable[[Moment], Value]] = MappingProxyType(
    {
        "year": lambda m: m.year,
        "month": lambda m: m.months,
        "day": lambda m: m.days,
        "hour": _whole_units(HOUR),
        "minute": _whole_units(MINUTE),
        "second": _whole_units(SECOND),
    }
)
"""Unit -> how many of them a date is behind a fixed one."""
