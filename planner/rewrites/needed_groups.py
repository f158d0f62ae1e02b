"""`only_needed_groups`: of a joined subquery that groups, only the groups that some rows need.

::

    FROM s LEFT JOIN (SELECT k, sum(v) FROM t GROUP BY k) a ON s.k = a.k
    WITH sqlml_rows AS MATERIALIZED (..)
    FROM sqlml_rows AS s LEFT JOIN (
      SELECT k, sum(v) FROM t WHERE k IN (SELECT s.k FROM .. AS s) GROUP BY k
    ) a ON s.k = a.k

The rows are materialized since they are read twice, and must be the same both times.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from sqlml.parsing.places import Span
from sqlml.planner.rewrites.draft import Draft
from sqlml.planner.syntax.first_table import FirstTable, first_table
from sqlml.planner.syntax.joins import LeftJoin

ROWS, UNSURE = "sqlml_rows", "sqlml_unsure"
"""The first table's rows, and those of which a small model is not sure."""

TextOf = Callable[[Span], str]
"""A place -> its text as it is now."""


def rows_of_block(draft: Draft, text: str, block: Span) -> FirstTable | None:
    """The first table of a block, if it may be read where a WITH clause stands; else None."""
    table = first_table(text, block)
    if table is None or not all(map(draft.context.is_steady, table.functions)):
        return None
    places = (table.written, *table.conditions)
    if any(place.holds(call.span) for place in places for call in draft.outline.calls):
        return None
    return table


def grouped(draft: Draft, joins: Sequence[LeftJoin], block: Span) -> list[LeftJoin]:
    """Those of the joins of a block whose tables are groups by their keys."""
    return [
        join
        for join in joins
        if join.grouped is not None
        and join.block == block
        and all(map(draft.context.is_steady, join.grouped.functions))
    ]


def only_needed_groups(
    joins: Sequence[LeftJoin], rows: str, alias: str, part: TextOf
) -> dict[Span, str]:
    """Place -> text of joined subqueries that make only the groups of some rows.

    Args:
        joins: all of them `grouped`.
        rows: the name of a table of these rows; alias: by which the keys call it.
    """
    edits: dict[Span, str] = {}
    for join in joins:
        assert join.grouped is not None
        needed = " AND ".join(
            f"{key} IN (SELECT {_qualified(other, alias)} FROM {rows} AS {alias})"
            for key, other in join.keys.items()
        )
        edits |= join.grouped.where(part(join.grouped.place), needed)
    return edits


def before_block(block: Span, tables: Mapping[str, str]) -> dict[Span, str]:
    """Place -> text of a WITH clause before a block, of tables by their names."""
    listed = ", ".join(f"{name} AS MATERIALIZED ({query})" for name, query in tables.items())
    return {Span(block.start, block.start): f"WITH {listed} "}


def where(conditions: Sequence[str]) -> str:
    """A WHERE of conditions, with a blank before it; nothing where there are none."""
    return f" WHERE {' AND '.join(f'({c})' for c in conditions)}" if conditions else ""


def _qualified(key: str, alias: str) -> str:
    """A key of ON as it is, and one of USING as a column of the rows."""
    return key if "." in key else f"{alias}.{key}"
