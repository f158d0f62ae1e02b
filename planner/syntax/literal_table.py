"""`literal_table`: rows that sqlml knows itself, as a query without tables.

They are written into the statement as they are, since a table of the catalog is not the engine's to
read for a user: a forged one would be read without a check.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlml.dialects import Dialect
from sqlml.errors import BindError

Columns = Mapping[str, str]
"""Name -> type of the columns of an answer."""

Table = tuple[Columns, Sequence[Sequence[Any]]]


MOST_VALUES = 200_000
"""Values that are written into a statement, which the engine has to parse."""


def literal_table(columns: Columns, rows: Sequence[Sequence[Any]], dialect: Dialect) -> str:
    """A parenthesised query that returns the rows, typed as `columns` says even if it is empty.

    Raises:
        BindError: there are very many rows.
    """
    if len(rows) * len(columns) > MOST_VALUES:
        most = MOST_VALUES // len(columns)
        raise BindError(f"the answer has {len(rows):,} rows; it may have {most:,}")
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
    """A value, which a stranger may have written, as a literal."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return dialect.array([_literal(item, dialect) for item in value])
    return dialect.text(repr(value) if isinstance(value, int | float) else str(value))
