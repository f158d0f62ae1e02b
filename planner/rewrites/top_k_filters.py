"""The rule `top_k_filters`: a query for the best rows of a call runs the full model only on the
best rows of a small model.

::

    SELECT id FROM s LEFT JOIN a ON s.k = a.k WHERE s.y > 0 ORDER BY full(x, f) DESC LIMIT 20
    SELECT id FROM (SELECT * FROM s WHERE s.y > 0 ORDER BY small(x) DESC LIMIT n) AS s
    LEFT JOIN a ON s.k = a.k WHERE s.y > 0 ORDER BY full(x, f) DESC LIMIT 20

n is the learned ratio times k. For a larger table than in training, n grows in proportion, since
the best of more rows are rarer (Willump, section 4.2).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from sqlml.catalog.small_models import FilterFacts
from sqlml.dialects.duckdb import builtin
from sqlml.parsing.places import Span
from sqlml.planner.binding.context import make_row_estimate
from sqlml.planner.binding.probe_queries import TextOf
from sqlml.planner.binding.requested_output import Target
from sqlml.planner.plan.call_draft import CallSite
from sqlml.planner.plan.plan import PlannedCall
from sqlml.planner.plan.plan_call import plan_call
from sqlml.planner.program.function_spec import ResultPart
from sqlml.planner.program.prepare_program import SharedParts
from sqlml.planner.rewrites.draft import Draft
from sqlml.planner.rewrites.planned_calls import make_scope
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
from sqlml.planner.syntax.outline import ModelCall
from sqlml.planner.syntax.top_k import TopK, find_top_k


def top_k_filters(draft: Draft) -> Draft:
    """Filter the table of each call that has a top-K filter, or record why this is impossible."""
    for call in draft.filters:
        if call in draft.planned:
            result = _filter_table(draft, call)
            if isinstance(result, str):
                planned = replace(draft.planned[call], exact_reason=result)
                result = replace(draft, planned={**draft.planned, call: planned})
            draft = result
    return draft


def _filter_table(draft: Draft, call: ModelCall) -> Draft | str:
    """Return a draft that filters the table of `call`, or the reason why this is impossible."""
    query = find_query_sql(draft)
    facts, planned = draft.filters[call].facts, draft.planned[call]
    if query is None or call.block is None:
        return "only queries are filtered"
    small_call = _plan_small_score(draft, call)
    calls = describe_calls(draft, {call: frozenset(name for name, _ in small_call.reads)})
    top_k = find_top_k(query, calls)
    if isinstance(top_k, str):
        return top_k
    if top_k.k > facts.k:
        return f"it requests {top_k.k} rows, and the top-K filter is for at most {facts.k}"
    joins = find_left_joins(query) if top_k.joins else []
    filtered_joins = [
        next((join for join in joins if join.span.contains(span)), None) for span in top_k.joins
    ]
    if filtered_joins and not have_one_partner(draft, filtered_joins, facts.keys):
        return (
            "a joined table has no key that is known to be unique; if one is, declare it with the "
            "option unique_keys of ADD TOP_K FILTER"
        )
    if any(span.contains(call.span) for span in top_k.filters for call in draft.outline.calls):
        return "a condition calls a model"
    if not all(map(draft.context.is_repeatable, top_k.functions)):
        return "a condition may have another result when it is evaluated again"
    stand_in_sql = build_stand_in_sql(top_k.features)
    probe_table_sql = _build_table_sql(top_k, draft.probe_edits.apply)
    probe_sql = _build_best_rows_sql(probe_table_sql, stand_in_sql, "1")
    if not can_bind(draft, {top_k.source: f"({probe_sql}) AS {top_k.alias}"}):
        return "its conditions or the small model's features read more than the first table"
    ranking_call = plan_small_call(draft, call, top_k.features, small_call)
    table_sql = _build_table_sql(top_k, draft.build_part)
    row_count_sql = _build_row_count_sql(table_sql, facts)
    best_rows_sql = _build_best_rows_sql(table_sql, ranking_call.sql, row_count_sql)
    edits = _restrict_groups(draft, query, top_k, joins, best_rows_sql) or {
        top_k.source: f"({best_rows_sql}) AS {top_k.alias}"
    }
    planned = replace(planned, small_call=ranking_call, filtered=facts, idle_parts=top_k.idle_names)
    return replace(draft, edits={**draft.edits, **edits}, planned={**draft.planned, call: planned})


def _restrict_groups(
    draft: Draft, query: str, top_k: TopK, joins: Sequence[LeftJoin], best_rows_sql: str
) -> dict[Span, str]:
    """Return the edits that make joins compute only the groups of filtered rows, if possible."""
    grouped_joins = find_grouped_joins(draft, joins, top_k.block)
    if not grouped_joins or find_rereadable_table(draft, query, top_k.block) is None:
        return {}

    def build_edits(rows_sql: str, text_of: TextOf) -> dict[Span, str]:
        group_edits = restrict_groups(grouped_joins, ROWS, top_k.alias, text_of)
        source_edit = {top_k.source: f"{ROWS} AS {top_k.alias}"}
        return {**prepend_ctes(top_k.block, {ROWS: rows_sql}), **group_edits, **source_edit}

    probe_text = draft.probe_edits.apply
    all_rows_sql = f"SELECT * FROM {probe_text(top_k.source_without_alias)} AS {top_k.alias}"
    if not can_bind(draft, build_edits(all_rows_sql, probe_text)):
        return {}
    return build_edits(best_rows_sql, draft.build_part)


def _plan_small_score(draft: Draft, call: ModelCall) -> PlannedCall:
    target, scope = draft.targets[call], make_scope(draft, call)
    program = draft.filters[call].small
    return plan_call(
        CallSite(call, scope, draft.context, make_row_estimate(call, scope)),
        target=Target(replace(target.model, program=program), "score", None),
        shared=SharedParts(parts=(ResultPart("score", None),)),
    ).planned


def _build_table_sql(top_k: TopK, text_of: TextOf) -> str:
    where_sql = build_where_sql(list(map(text_of, top_k.filters)))
    return f"FROM {text_of(top_k.source_without_alias)} AS {top_k.alias}{where_sql}"


def _build_best_rows_sql(table_sql: str, score_sql: str, row_count_sql: str) -> str:
    return f"SELECT * {table_sql} ORDER BY {score_sql} DESC NULLS LAST LIMIT {row_count_sql}"


def _build_row_count_sql(table_sql: str, facts: FilterFacts) -> str:
    """Build the SQL that computes how many of the small model's best rows to keep."""
    best_count = facts.ratio * facts.k
    share = best_count / facts.rows
    scaled_count_sql = f"{builtin('ceil')}({share!r} * {builtin('count')}(*))"
    min_count = math.ceil(best_count)
    row_count_sql = f"{builtin('greatest')}({min_count}, CAST({scaled_count_sql} AS BIGINT))"
    return f"(SELECT {row_count_sql} {table_sql})"
