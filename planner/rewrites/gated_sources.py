"""The rule `gated_sources`: sources that only the full model of a cascade needs are computed for
few rows.

::

    SELECT id, coalesce(small(x), full(x, f)) FROM s LEFT JOIN a ON s.k = a.k
    SELECT id, coalesce(small(x), full(x, f))
    FROM s LEFT JOIN a ON CASE WHEN TRY(small(x)) IS NULL THEN s.k END = a.k

A row of which the small model is sure then matches no row of `a`. A call of a user's function
becomes `CASE WHEN TRY(small(x)) IS NULL THEN f(...) END`. A joined subquery that groups computes
only the groups of the unsure rows::

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
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from sqlml.dialects.duckdb import builtin
from sqlml.parsing.places import Span
from sqlml.planner.binding.probe_queries import TextOf
from sqlml.planner.plan.plan import PlannedCall
from sqlml.planner.rewrites.draft import Draft
from sqlml.planner.rewrites.small_model_calls import (
    ROWS,
    build_stand_in_sql,
    build_where_sql,
    can_bind,
    describe_calls,
    find_grouped_joins,
    find_query_sql,
    find_rereadable_table,
    have_one_partner,
    plan_small_call,
    prepend_ctes,
    restrict_groups,
)
from sqlml.planner.syntax.joins import LeftJoin, find_left_joins
from sqlml.planner.syntax.lineage import FeatureSource
from sqlml.planner.syntax.outline import ModelCall
from sqlml.planner.syntax.top_k import IdleSource, find_idle_sources

_UNSURE = "sqlml_unsure"
"""The name of a CTE with the rows for which a small model is unsure."""

_ROW = "sqlml_row"
"""The name of a lambda's parameter, which holds a struct of feature values."""

_CALL = re.compile(r'[\w"]\s*\(')


def gated_sources(draft: Draft) -> Draft:
    """Skip joins and calls that feed only the full model if the small model decides a row."""
    small_features = {
        call: frozenset(name for name, _ in planned.small_model_reads)
        for call, planned in draft.planned.items()
        if call in draft.cascades and not call.has_local_names
    }
    query = find_query_sql(draft)
    if not small_features or query is None or any(call.block is None for call in small_features):
        return draft
    calls = list(small_features)
    idle_sources = find_idle_sources(query, describe_calls(draft, small_features))
    joins = find_left_joins(query) if idle_sources else []
    gated_joins: dict[tuple[int, Span], list[IdleSource]] = {}
    for idle in idle_sources:
        gated_draft = _gate_source(draft, calls[idle.call_index], idle, joins)
        if gated_draft is not None:
            draft = gated_draft
            if idle.source.kind == "join":
                gated_joins.setdefault((idle.call_index, idle.source.block), []).append(idle)
    for (call_index, _), sources in gated_joins.items():
        spans = [idle.source.span for idle in sources]
        block_joins = [join for join in joins if any(map(join.span.contains, spans))]
        draft = _restrict_groups(draft, query, calls[call_index], sources[0], block_joins)
    return draft


def _restrict_groups(
    draft: Draft, query: str, call: ModelCall, idle: IdleSource, joins: list[LeftJoin]
) -> Draft:
    """Let the gated joins of a block compute only groups for which the small model is unsure.

    `idle` is one of the idle sources in the block.
    """
    block, small_call = idle.source.block, draft.planned[call].small_call
    joins = find_grouped_joins(draft, joins, block)
    table = find_rereadable_table(draft, query, block) if joins else None
    if table is None or small_call is None or Span(block.start, block.start) in draft.edits:
        return draft

    def build_edits(small_sql: str, text_of: TextOf) -> dict[Span, str]:
        rows_sql = f"SELECT * FROM {text_of(table.span_without_alias)} AS {table.alias}"
        tables = {
            ROWS: rows_sql + build_where_sql(list(map(text_of, table.condition_spans))),
            _UNSURE: f"SELECT * FROM {ROWS} AS {table.alias} WHERE {small_sql} IS NULL",
        }
        return {
            **prepend_ctes(block, tables),
            **restrict_groups(joins, _UNSURE, table.alias, text_of),
            table.span: f"{ROWS} AS {table.alias}",
        }

    if not can_bind(draft, build_edits(build_stand_in_sql(idle.features), draft.probe_edits.apply)):
        return draft
    small_sql = _build_small_model_sql(draft, call, idle.features, small_call)
    return replace(draft, edits={**draft.edits, **build_edits(small_sql, draft.build_part)})


def _gate_source(
    draft: Draft, call: ModelCall, idle_source: IdleSource, joins: Sequence[LeftJoin]
) -> Draft | None:
    """Return the draft with one more gated source, or None if the source cannot be gated."""
    source, planned = idle_source.source, draft.planned[call]
    if any(source.span.contains(c.span) for c in draft.outline.calls):
        return None
    if any(widened.span.contains(source.span) for widened in draft.widened_sources):
        return None  # This FROM clause is rewritten to compute columns of calls.
    join: LeftJoin | None = None
    if source.kind == "join":
        join = next((j for j in joins if j.span.contains(source.span)), None)
        if join is None or draft.outline.is_stored:
            return None  # A view or macro outlives the current keys of its tables.
        if join.is_using and join.using is None:
            return None
        if not have_one_partner(draft, [join], draft.cascades[call].facts.keys):
            return None
    stand_in_sql = build_stand_in_sql(idle_source.features)
    probe_edits = _build_gate_edits(source, join, stand_in_sql, draft.probe_edits.apply)
    if planned.small_call is None or not can_bind(draft, probe_edits):
        return None
    small_sql = _build_small_model_sql(draft, call, idle_source.features, planned.small_call)
    edits = _build_gate_edits(source, join, small_sql, draft.build_part)
    if source.name not in planned.idle_parts:  # Several features may call the same function.
        planned = replace(planned, idle_parts=(*planned.idle_parts, source.name))
    return replace(draft, edits={**draft.edits, **edits}, planned={**draft.planned, call: planned})


def _build_gate_edits(
    source: FeatureSource, join: LeftJoin | None, small_sql: str, text_of: TextOf
) -> dict[Span, str]:
    """Return edits that compute `source` only for rows whose small result `small_sql` is NULL."""
    if join is not None and join.using is not None:
        return join.using.build_on_edits(partial(_build_gate_sql, small_sql))
    gated_spans = source.outer_spans or ((source.span,) if join is None else join.other_sides)
    return {gated: _build_gate_sql(small_sql, text_of(gated)) for gated in gated_spans}


def _build_small_model_sql(
    draft: Draft, call: ModelCall, features: Mapping[str, str], small_call: PlannedCall
) -> str:
    """Build the SQL of a small model's result, which is NULL if the model rejects a row.

    Since 2.0.1, DuckDB computes an expression twice if the expression occurs inside and outside of
    TRY. So features that contain calls are computed outside.
    """
    if not any(map(_CALL.search, features.values())):
        return f"TRY({plan_small_call(draft, call, features, small_call).sql})"
    columns = {name: f"f{n}" for n, name in enumerate(features)}
    row_fields = ", ".join(f"{columns[name]} := {feature}" for name, feature in features.items())
    fields = {name: f"{_ROW}.{column}" for name, column in columns.items()}
    score_sql = f"TRY({plan_small_call(draft, call, fields, small_call).sql})"
    rows_sql = f"{builtin('list_value')}({builtin('struct_pack')}({row_fields}))"
    results_sql = f"{builtin('list_transform')}({rows_sql}, lambda {_ROW}: {score_sql})"
    return f"{builtin('array_extract')}({results_sql}, 1)"


def _build_gate_sql(small_sql: str, gated_sql: str) -> str:
    return f"CASE WHEN {small_sql} IS NULL THEN {gated_sql} END"
