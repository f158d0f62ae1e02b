"""`gated_sources`: what only the full model of a cascade needs is computed for few rows.

::

    SELECT id, coalesce(small(x), full(x, f)) FROM s LEFT JOIN a ON s.k = a.k
    SELECT id, coalesce(small(x), full(x, f))
    FROM s LEFT JOIN a ON CASE WHEN TRY(small(x)) IS NULL THEN s.k END = a.k

A row of which the small model is sure has no partner then, and so with a call of a function of
the user's: it becomes `CASE WHEN TRY(small(x)) IS NULL THEN f(..) END`. Of a joined subquery that
groups, only the groups of the other rows are made (`gated_sources.py`). That is done where nothing
else needs them (`syntax/top_k.py`), where the table's key is unique, as the table declares
or the user has said, so that there is one row with and without a partner, and where the engine's
binder finds the same columns as before.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from sqlml.dialects.duckdb import builtin
from sqlml.parsing.places import Span
from sqlml.planner.binding.probe_queries import ProbeError
from sqlml.planner.plan.plan import PlannedCall
from sqlml.planner.rewrites.asked_first import (
    as_cascaded,
    binds,
    columns_of,
    read_by,
    small_call,
    stand_in,
    statement_text,
)
from sqlml.planner.rewrites.draft import Draft
from sqlml.planner.rewrites.unneeded_joins import has_one_partner
from sqlml.planner.syntax.joins import FirstTable, LeftJoin, first_table, left_joins
from sqlml.planner.syntax.lineage import FeatureSource
from sqlml.planner.syntax.outline import ModelCall, splice
from sqlml.planner.syntax.top_k import IdleSource, idle_sources

# `only_needed_groups`: of a joined subquery that groups, only the groups that some rows need.
#
# ::
#
#     FROM s LEFT JOIN (SELECT k, sum(v) FROM t GROUP BY k) a ON s.k = a.k
#     WITH sqlml_rows AS MATERIALIZED (..)
#     FROM sqlml_rows AS s LEFT JOIN (
#       SELECT k, sum(v) FROM t WHERE k IN (SELECT s.k FROM .. AS s) GROUP BY k
#     ) a ON s.k = a.k
#
# The rows are materialized since they are read twice, and must be the same both times.


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


_ROW = "sqlml_row"
"""The parameter of a lambda."""

_CALL = re.compile(r'[\w"]\s*\(')


def gated_sources(draft: Draft) -> Draft:
    """The statement in which such joins and calls ask the small model first."""
    text = statement_text(draft)
    calls = [c for c in draft.planned if c in draft.cascades and not c.has_local_names]
    if not calls or text is None:
        return draft
    made = [
        as_cascaded(c, p, frozenset(name for name, _ in p.small_reads))
        for c, p in draft.planned.items()
        if c in calls
    ]
    cascaded = [one for one in made if one is not None]
    if len(cascaded) < len(made):
        return draft
    found = idle_sources(
        text,
        cascaded,
        read_by(draft, frozenset(calls)),
        [call.span for call in draft.outline.calls],
        lambda query: columns_of(draft, query),
        draft.context.function_type,
    )
    joins = left_joins(text) if found else []
    asking: dict[tuple[int, Span], list[IdleSource]] = {}
    for source in found:
        made_of = _gated(draft, calls[source.cascaded], source, joins)
        if made_of is not None:
            draft = made_of
            if source.source.kind == "join":
                asking.setdefault((source.cascaded, source.source.block), []).append(source)
    for (number, _), sources in asking.items():
        places = [source.source.span for source in sources]
        theirs = [join for join in joins if any(join.span.holds(place) for place in places)]
        draft = _without_groups(draft, text, calls[number], sources[0], theirs)
    return draft


def _without_groups(
    draft: Draft, text: str, call: ModelCall, idle: IdleSource, joins: list[LeftJoin]
) -> Draft:
    """The statement in which the joins of a block make no groups for rows of which a small model
    is sure.

    Args:
        idle: one of the sources of the block.
        joins: those that ask the small model, each of which gives a row one partner at most.
    """
    block, small = idle.source.block, draft.planned[call].small
    joins = grouped(draft, joins, block)
    table = rows_of_block(draft, text, block) if joins else None
    if table is None or small is None or Span(block.start, block.start) in draft.edits:
        return draft
    rows, alias = f"SELECT * FROM {{}} AS {table.alias}", table.alias

    def edits(ask: str, part: TextOf) -> dict[Span, str]:
        conditions = [part(place) for place in table.conditions]
        unsure = f"{rows.format(ROWS)} WHERE {ask} IS NULL"
        tables = {ROWS: rows.format(part(table.written)) + where(conditions), UNSURE: unsure}
        return {
            **before_block(block, tables),
            **only_needed_groups(joins, UNSURE, alias, part),
            table.place: f"{ROWS} AS {alias}",
        }

    blanks = draft.given.as_nulls()
    probes = edits(stand_in(idle.features), lambda p: splice(draft.text, draft.nulls, blanks, p))
    if not binds(draft, probes):
        return draft
    asked = _tried(draft, call, idle.features, small)
    return replace(draft, edits={**draft.edits, **edits(asked, draft.part)})


def _gated(draft: Draft, call: ModelCall, idle: IdleSource, joins: list[LeftJoin]) -> Draft | None:
    """The statement with one source that asks first; None where it cannot."""
    source, planned = idle.source, draft.planned[call]
    if any(source.span.holds(c.span) for c in draft.outline.calls):
        return None
    if any(made.span.holds(source.span) for made in draft.in_from):
        return None  # FROM makes columns of calls, and is written anew
    join: LeftJoin | None = None
    if source.kind == "join":
        keys, told = draft.context.unique_keys, draft.cascades[call].facts.keys
        join = next((j for j in joins if j.span.holds(source.span)), None)
        if join is None or keys is None or draft.outline.kept:
            return None  # a view or macro outlives the keys that its tables have now
        if join.using and join.as_using is None:
            return None
        try:
            if not has_one_partner(join, keys, draft.context.describe, told):
                return None
        except ProbeError:
            return None
    blanks, ask = draft.given.as_nulls(), stand_in(idle.features)
    probes = _edits(source, join, ask, lambda p: splice(draft.text, draft.nulls, blanks, p))
    if planned.small is None or not binds(draft, probes):
        return None
    small = _tried(draft, call, idle.features, planned.small)
    edits = _edits(source, join, small, draft.part)
    if source.name not in planned.idle:  # the same function may be called for several features
        planned = replace(planned, idle=(*planned.idle, source.name))
    return replace(
        draft,
        edits={**draft.edits, **edits},
        planned={**draft.planned, call: planned},
    )


def _edits(
    source: FeatureSource, join: LeftJoin | None, small: str, part: Callable[[Span], str]
) -> dict[Span, str]:
    """Place -> text, where a source asks the small model first.

    Args:
        part: the text of a place as it is now.
    """
    if join is not None and join.as_using is not None:
        return join.as_using.as_on(partial(_asking, small))
    places = source.outer or ((source.span,) if join is None else join.others)
    return {place: _asking(small, part(place)) for place in places}


def _tried(draft: Draft, call: ModelCall, features: Mapping[str, str], small: PlannedCall) -> str:
    """A small model's answer; NULL where it refuses a row, which nobody may ask the call for.

    Since DuckDB 2.0.1, what stands in TRY and outside is computed twice. So the calls that are
    features stand outside.
    """
    if not any(map(_CALL.search, features.values())):
        return f"TRY({small_call(draft, call, features, small).sql})"
    columns = {name: f"f{number}" for number, name in enumerate(features)}
    row = ", ".join(f"{columns[name]} := {feature}" for name, feature in features.items())
    fields = {name: f"{_ROW}.{column}" for name, column in columns.items()}
    tried = f"TRY({small_call(draft, call, fields, small).sql})"
    rows = f"{builtin('list_value')}({builtin('struct_pack')}({row}))"
    answers = f"{builtin('list_transform')}({rows}, lambda {_ROW}: {tried})"
    return f"{builtin('array_extract')}({answers}, 1)"


def _asking(small: str, text: str) -> str:
    return f"CASE WHEN {small} IS NULL THEN {text} END"
