"""Rows that sqlml knows itself, written as a query without tables.

The rows are part of the statement, because the engine must not read them for the user from a
catalog table: a forged table would be read unchecked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlml.dialects import Dialect
from sqlml.errors import BindError

Columns = Mapping[str, str]
"""Types of a result's columns by name."""

Table = tuple[Columns, Sequence[Sequence[Any]]]


MOST_VALUES = 200_000
"""The maximum number of values in a statement, which the engine has to parse."""


def literal_table(columns: Columns, rows: Sequence[Sequence[Any]], dialect: Dialect) -> str:
    """Return a query in brackets that yields the rows, with the types of `columns` even if there
    are no rows.

    Raises:
        BindError: there are too many rows.
    """
    if len(rows) * len(columns) > MOST_VALUES:
        most = MOST_VALUES // len(columns)
        raise BindError(f"the result has {len(rows):,} rows; the maximum is {most:,}")
    kinds = [dialect.type(kind) for kind in columns.values()]
    names = [dialect.quote_name(name) for name in columns]
    empty = ", ".join(
        f"CAST(NULL AS {kind}) AS {name}" for kind, name in zip(kinds, names, strict=True)
    )
    if not rows:
        return f"(SELECT {empty} WHERE 1 = 0)"
    listed = [f"({', '.join(_literal(v, dialect) for v in row)})" for row in rows]
    numbered = ", ".join(f"c{n}" for n in range(len(names)))
    typed = ", ".join(
        f"CAST(c{n} AS {kind}) AS {name}"
        for n, (kind, name) in enumerate(zip(kinds, names, strict=True))
    )
    return f"(SELECT {typed} FROM (VALUES {', '.join(listed)}) AS sqlml_facts({numbered}))"


def _literal(value: Any, dialect: Dialect) -> str:
    """Return a value, which may come from an untrusted user, as a literal."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return dialect.array([_literal(item, dialect) for item in value])
    return dialect.text(repr(value) if isinstance(value, int | float) else str(value))
