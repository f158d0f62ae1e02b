"""`label_place`: the number of a class, from 0, that a label is."""

from __future__ import annotations

from sqlml.dialects import DUCKDB, Dialect
from sqlml.planner.program.result_sql import label_array
from sqlml.types import Labels


def label_place(label: str, labels: Labels, dialect: Dialect, message: str | None = None) -> str:
    """The SQL of the place of a label among the classes; NULL for NULL.

    Args:
        label: an expression. message: the SQL of what an error for another label begins with;
            None: there are no others.
    """
    text = f"CAST({label} AS {dialect.type('VARCHAR')})"
    other = "NULL"
    if message is not None:
        failed = dialect.error(dialect.operator("||", message, text))
        other = f"CASE WHEN {label} IS NOT NULL THEN CAST({failed} AS INTEGER) END"
    plain = labels.kind == "string" and not any("\0" in str(v) for v in labels.values)
    if plain and dialect is DUCKDB:  # Spark's would give -1 for another label
        return dialect.place_of(text, [dialect.text(str(v)) for v in labels.values], other)
    place = dialect.position(label_array(labels, dialect), label)
    number = dialect.operator("-", dialect.call("nullif", place, "0"), "1")
    return f"coalesce({number}, {other})"
