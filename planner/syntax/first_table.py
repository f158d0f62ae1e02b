"""`first_table`: where a block's rows come from, to which other tables are joined."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from sqlglot import exp

from sqlml.errors import ParseError
from sqlml.parsing.places import Span, span
from sqlml.parsing.recursion_limit import deeply
from sqlml.parsing.trees import trees
from sqlml.planner.syntax.items import terms_of
from sqlml.planner.syntax.joins import functions_of, table_place


@dataclass(frozen=True, slots=True)
class FirstTable:
    """The first table of FROM in a block to which a WITH clause can be added.

    Attributes:
        place: of the table with its alias; written: without it; alias: by which the block calls it.
        conditions: the places of the terms of WHERE.
        functions: that these call, but for what sqlglot knows.
    """

    place: Span
    written: Span
    alias: str
    conditions: tuple[Span, ...]
    functions: frozenset[str]


def first_table(sql: str, block: Span) -> FirstTable | None:
    """The first table of the block at a place of a DuckDB statement that is one query; None if it
    cannot be followed."""
    try:
        return deeply(sql, "duckdb", partial(_first_table, sql, block))
    except ParseError:
        return None


def _first_table(sql: str, block: Span) -> FirstTable | None:
    (tree,) = trees(sql)
    select = next((s for s in tree.find_all(exp.Select) if span(s) == block), None)
    if select is None or select.args.get("with_") is not None or select.args.get("from_") is None:
        return None
    if not isinstance(select.parent, exp.Subquery | exp.CTE | None):
        return None  # a part of a UNION takes no WITH
    table, where = select.args["from_"].this, select.args.get("where")
    named = table.args.get("alias")
    if table.args.get("sample") or (named is not None and named.args.get("columns")):
        return None
    place, written = span(table), table_place(sql, table)
    name = span(named.this if named is not None else table.this)
    if place is None or written is None or name is None:
        return None
    terms = [] if where is None else terms_of(where.this)
    conditions = [span(term) for term in terms]
    if None in conditions:
        return None
    return FirstTable(
        place,
        written,
        sql[name.start : name.end],
        tuple(c for c in conditions if c is not None),
        frozenset[str]().union(*map(functions_of, terms)),
    )
