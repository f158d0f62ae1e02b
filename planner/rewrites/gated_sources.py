"""The rule `gated_sources`: sources that only the full model of a cascade needs are computed for
few rows.

::

    SELECT id, coalesce(small(x), full(x, f)) FROM s LEFT JOIN a ON s.k = a.k
    SELECT id, coalesce(small(x), full(x, f))
    FROM s LEFT JOIN a ON CASE WHEN TRY(small(x)) IS NULL THEN s.k END = a.k

A row of which the small model is sure then has no partner. A call of a user's function becomes
`CASE WHEN TRY(small(x)) IS NULL THEN f(...) END`. A joined subquery that groups computes only the
groups of other rows::

    FROM s LEFT JOIN (SELECT k, sum(v) FROM t GROUP BY k) a ON s.k = a.k
    WITH sqlml_rows AS MATERIALIZED (...)
    FROM sqlml_rows AS s LEFT JOIN (
      SELECT k, sum(v) FROM t WHERE k IN (SELECT s.k FROM ... AS s) GROUP BY k
    ) a ON s.k = a.k

The rows are materialized because they are read twice and must be the same both times. The rule
applies if nothing else needs the sources (`syntax/top_k.py`), if the table's key is unique, as
declared or as the user has said, so that there is one row with and without a partner, and if the
engine's binder finds the same columns as before.
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
    binds,
    columns_of,
    describe_cascaded_call,
    list_reads,
    plan_small_call,
    query_text,
    write_stand_in,
)
from sqlml.planner.rewrites.draft import Draft
from sqlml.planner.rewrites.unneeded_joins import has_one_partner
from sqlml.planner.syntax.joins import FirstTable, LeftJoin, find_first_table, find_left_joins
from sqlml.planner.syntax.lineage import FeatureSource
from sqlml.planner.syntax.outline import ModelCall, splice
from sqlml.planner.syntax.top_k import IdleSource, find_idle_sources

ROWS, UNSURE = "sqlml_rows", "sqlml_unsure"
"""Names of CTEs: the first table's rows, and those of which a small model is not sure."""

TextOf = Callable[[Span], str]
"""A function from a span to its current text."""


def find_rereadable_table(draft: Draft, text: str, block: Span) -> FirstTable | None:
    """Return the first table of a block if a WITH clause may read it instead; otherwise None."""
    table = find_first_table(text, block)
    if table is None or not all(map(draft.context.is_repeatable, table.functions)):
        return None
    spans = (table.span_without_alias, *table.conditions)
    if any(place.contains(call.span) for place in spans for call in draft.outline.calls):
        return None
    return table


def grouped(draft: Draft, joins: Sequence[LeftJoin], block: Span) -> list[LeftJoin]:
    """Return the joins of a block whose tables are groups by their keys."""
    return [
        join
        for join in joins
        if join.grouped is not None
        and join.block == block
        and all(map(draft.context.is_repeatable, join.grouped.functions))
    ]


def restrict_groups(
    joins: Sequence[LeftJoin], rows: str, alias: str, part: TextOf
) -> dict[Span, str]:
    """Return edits of joined subqueries that make them compute only the groups of some rows.

    Args:
        joins: joins from `grouped`.
        rows: the name of a table with these rows.
        alias: the name by which the keys refer to it.
    """
    edits: dict[Span, str] = {}
    for join in joins:
        assert join.grouped is not None
        needed = " AND ".join(
            f"{key} IN (SELECT {_qualify(other, alias)} FROM {rows} AS {alias})"
            for key, other in join.keys.items()
        )
        edits |= join.grouped.add_condition(part(join.grouped.filter_span), needed)
    return edits


def prepend_ctes(block: Span, tables: Mapping[str, str]) -> dict[Span, str]:
    """Return the edit that inserts a WITH clause before a block."""
    definitions = ", ".join(f"{name} AS MATERIALIZED ({query})" for name, query in tables.items())
    return {Span(block.start, block.start): f"WITH {definitions} "}


def where(conditions: Sequence[str]) -> str:
    """Return a WHERE of conditions with a leading blank; "" without conditions."""
    return f" WHERE {' AND '.join(f'({c})' for c in conditions)}" if conditions else ""


def _qualify(key: str, alias: str) -> str:
    """Return a key of ON as it is, and one of USING as a column of the rows."""
    return key if "." in key else f"{alias}.{key}"


_ROW = "sqlml_row"
"""The parameter of a lambda."""

_CALL = re.compile(r'[\w"]\s*\(')


def gated_sources(draft: Draft) -> Draft:
    """Let such joins and calls ask the small model first."""
    text = query_text(draft)
    calls = [c for c in draft.planned if c in draft.cascades and not c.has_local_names]
    if not calls or text is None:
        return draft
    described = [
        describe_cascaded_call(c, p, frozenset(name for name, _ in p.small_model_reads))
        for c, p in draft.planned.items()
        if c in calls
    ]
    cascaded = [call for call in described if call is not None]
    if len(cascaded) < len(described):
        return draft
    idle_sources = find_idle_sources(
        text,
        cascaded,
        list_reads(draft, frozenset(calls)),
        [call.span for call in draft.outline.calls],
        lambda query: columns_of(draft, query),
        draft.context.function_type,
    )
    joins = find_left_joins(text) if idle_sources else []
    gated_joins: dict[tuple[int, Span], list[IdleSource]] = {}
    for source in idle_sources:
        gated = _gate_source(draft, calls[source.call_index], source, joins)
        if gated is not None:
            draft = gated
            if source.source.kind == "join":
                gated_joins.setdefault((source.call_index, source.source.block), []).append(source)
    for (number, _), sources in gated_joins.items():
        spans = [source.source.span for source in sources]
        block_joins = [join for join in joins if any(join.span.contains(place) for place in spans)]
        draft = _restrict_groups(draft, text, calls[number], sources[0], block_joins)
    return draft


def _restrict_groups(
    draft: Draft, text: str, call: ModelCall, idle: IdleSource, joins: list[LeftJoin]
) -> Draft:
    """Let the joins of a block compute no groups for rows of which a small model is sure.

    Args:
        idle: one of the sources of the block.
        joins: the gated joins, each of which gives a row at most one partner.
    """
    block, small = idle.source.block, draft.planned[call].small
    joins = grouped(draft, joins, block)
    table = find_rereadable_table(draft, text, block) if joins else None
    if table is None or small is None or Span(block.start, block.start) in draft.edits:
        return draft
    rows, alias = f"SELECT * FROM {{}} AS {table.alias}", table.alias

    def edits(ask: str, part: TextOf) -> dict[Span, str]:
        conditions = [part(place) for place in table.conditions]
        unsure = f"{rows.format(ROWS)} WHERE {ask} IS NULL"
        tables = {
            ROWS: rows.format(part(table.span_without_alias)) + where(conditions),
            UNSURE: unsure,
        }
        return {
            **prepend_ctes(block, tables),
            **restrict_groups(joins, UNSURE, alias, part),
            table.span: f"{ROWS} AS {alias}",
        }

    blanks = draft.parameters.as_nulls()
    probes = edits(
        write_stand_in(idle.features), lambda p: splice(draft.text, draft.nulls, blanks, p)
    )
    if not binds(draft, probes):
        return draft
    small_sql = _try_small_model(draft, call, idle.features, small)
    return replace(draft, edits={**draft.edits, **edits(small_sql, draft.write_part)})


def _gate_source(
    draft: Draft, call: ModelCall, idle: IdleSource, joins: list[LeftJoin]
) -> Draft | None:
    """Return the statement with one gated source; None if it cannot be gated."""
    source, planned = idle.source, draft.planned[call]
    if any(source.span.contains(c.span) for c in draft.outline.calls):
        return None
    if any(source_clause.span.contains(source.span) for source_clause in draft.widened_sources):
        return None  # this FROM clause is rewritten to compute columns of calls
    join: LeftJoin | None = None
    if source.kind == "join":
        keys, user_keys = draft.context.unique_keys, draft.cascades[call].facts.keys
        join = next((j for j in joins if j.span.contains(source.span)), None)
        if join is None or keys is None or draft.outline.is_stored:
            return None  # a view or macro outlives the current keys of its tables
        if join.is_using and join.using is None:
            return None
        try:
            if not has_one_partner(join, keys, draft.context.describe, user_keys):
                return None
        except ProbeError:
            return None
    blanks, ask = draft.parameters.as_nulls(), write_stand_in(idle.features)
    probes = _gate_edits(source, join, ask, lambda p: splice(draft.text, draft.nulls, blanks, p))
    if planned.small is None or not binds(draft, probes):
        return None
    small = _try_small_model(draft, call, idle.features, planned.small)
    edits = _gate_edits(source, join, small, draft.write_part)
    if source.name not in planned.idle:  # several features may call the same function
        planned = replace(planned, idle=(*planned.idle, source.name))
    return replace(
        draft,
        edits={**draft.edits, **edits},
        planned={**draft.planned, call: planned},
    )


def _gate_edits(
    source: FeatureSource, join: LeftJoin | None, small: str, part: Callable[[Span], str]
) -> dict[Span, str]:
    """Return the edits by which a source asks the small model first.

    Args:
        part: returns the current text of a span.
    """
    if join is not None and join.using is not None:
        return join.using.as_on(partial(_only_if_unsure, small))
    spans = source.outer or ((source.span,) if join is None else join.other_sides)
    return {place: _only_if_unsure(small, part(place)) for place in spans}


def _try_small_model(
    draft: Draft, call: ModelCall, features: Mapping[str, str], small: PlannedCall
) -> str:
    """Return a small model's result; NULL if it rejects a row, since this must not fail the query.

    Since DuckDB 2.0.1, an expression both in TRY and outside is computed twice. So calls that are
    features stand outside.
    """
    if not any(map(_CALL.search, features.values())):
        return f"TRY({plan_small_call(draft, call, features, small).sql})"
    columns = {name: f"f{number}" for number, name in enumerate(features)}
    row = ", ".join(f"{columns[name]} := {feature}" for name, feature in features.items())
    fields = {name: f"{_ROW}.{column}" for name, column in columns.items()}
    tried = f"TRY({plan_small_call(draft, call, fields, small).sql})"
    rows = f"{builtin('list_value')}({builtin('struct_pack')}({row}))"
    answers = f"{builtin('list_transform')}({rows}, lambda {_ROW}: {tried})"
    return f"{builtin('array_extract')}({answers}, 1)"


def _only_if_unsure(small: str, text: str) -> str:
    return f"CASE WHEN {small} IS NULL THEN {text} END"
