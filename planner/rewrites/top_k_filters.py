"""The rule `top_k_filters`: for the best rows by a call, the full model ranks only the best rows of
a small model.

::

    SELECT id FROM s LEFT JOIN a ON s.k = a.k WHERE s.y > 0 ORDER BY full(x, f) DESC LIMIT 20
    SELECT id FROM (SELECT * FROM s WHERE s.y > 0 ORDER BY small(x) DESC LIMIT n) AS s
    LEFT JOIN a ON s.k = a.k WHERE s.y > 0 ORDER BY full(x, f) DESC LIMIT 20

n is the learned ratio times k, and at least the share of rows that this was of the training tables,
since the best of more rows are rarer (Willump, section 4.2).
"""

from __future__ import annotations

import math
from dataclasses import replace

from sqlml.catalog.small_models import FilterFacts
from sqlml.dialects.duckdb import builtin
from sqlml.parsing.places import Span
from sqlml.planner.binding.context import find_row_queries
from sqlml.planner.binding.probe_queries import ProbeError
from sqlml.planner.binding.requested_output import Target
from sqlml.planner.plan.plan import PlannedCall
from sqlml.planner.plan.plan_call import plan_call
from sqlml.planner.program.function_names import Part
from sqlml.planner.program.prepare import SharedParts
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
from sqlml.planner.rewrites.gated_sources import (
    ROWS,
    TextOf,
    find_rereadable_table,
    grouped,
    prepend_ctes,
    restrict_groups,
    where,
)
from sqlml.planner.rewrites.planned_calls import make_scope
from sqlml.planner.rewrites.unneeded_joins import has_one_partner
from sqlml.planner.syntax.joins import LeftJoin, find_left_joins
from sqlml.planner.syntax.outline import ModelCall, splice
from sqlml.planner.syntax.top_k import TopK, find_top_k


def top_k_filters(draft: Draft) -> Draft:
    """Filter tables for the best rows by calls, or record why one is not filtered."""
    for call in draft.filters:
        if call in draft.planned:
            result = _filter_table(draft, call)
            if isinstance(result, str):
                planned = replace(draft.planned[call], exact=result)
                result = replace(draft, planned={**draft.planned, call: planned})
            draft = result
    return draft


def _filter_table(draft: Draft, call: ModelCall) -> Draft | str:
    """Return the statement with the filtered table of one call, or the reason why it is not
    filtered.
    """
    text, facts = query_text(draft), draft.filters[call].facts
    if text is None:
        return "only queries are filtered"
    planned = draft.planned[call]
    small = _plan_small_score(draft, call)
    cascaded_call = describe_cascaded_call(
        call, planned, frozenset(name for name, _ in small.reads)
    )
    if cascaded_call is None:
        return "only queries are filtered"
    top_k = find_top_k(
        text,
        cascaded_call,
        list_reads(draft, frozenset({call})),
        [c.span for c in draft.outline.calls],
        lambda query: columns_of(draft, query),
        draft.context.function_type,
    )
    if isinstance(top_k, str):
        return top_k
    if top_k.k > facts.k:
        return f"it asks for {top_k.k} rows, and the top-K filter is for {facts.k} at most"
    joins = find_left_joins(text) if top_k.joins else []
    if not _have_unique_keys(draft, joins, top_k, facts.keys):
        return (
            "a joined table has no key that is known to be unique; if it is, say so by option "
            "unique_keys of ADD TOP_K FILTER"
        )
    if any(place.contains(c.span) for place in top_k.filters for c in draft.outline.calls):
        return "a condition calls a model"
    if not all(map(draft.context.is_repeatable, top_k.functions)):
        return "a condition may have another result when it is evaluated again"
    blanks = draft.parameters.as_nulls()
    probe_texts = [
        splice(draft.text, draft.nulls, blanks, p)
        for p in (top_k.source_without_alias, *top_k.filters)
    ]
    probe = _write_best_rows(
        top_k, probe_texts[0], probe_texts[1:], write_stand_in(top_k.features), "1"
    )
    if not binds(draft, {top_k.source: f"({probe}) AS {top_k.alias}"}):
        return "its conditions, or the small model's features, are not of the first table alone"
    ranked = plan_small_call(draft, call, top_k.features, small)
    table, *filters = (
        draft.write_part(place) for place in (top_k.source_without_alias, *top_k.filters)
    )
    best = _write_best_rows(
        top_k, table, filters, ranked.sql, _write_row_count(top_k, table, filters, facts)
    )
    edits = {top_k.source: f"({best}) AS {top_k.alias}"}
    edits = _restrict_groups(draft, text, top_k, joins, best) or edits
    planned = replace(planned, small=ranked, filtered=facts, idle=top_k.idle)
    return replace(draft, edits={**draft.edits, **edits}, planned={**draft.planned, call: planned})


def _restrict_groups(
    draft: Draft, text: str, top_k: TopK, joins: list[LeftJoin], best: str
) -> dict[Span, str]:
    """Return the edits that move the filtered table before its block, if joins compute only groups
    that its rows need.

    Returns nothing if they cannot.
    """
    joins = grouped(draft, joins, top_k.block)
    if not joins or find_rereadable_table(draft, text, top_k.block) is None:
        return {}
    source = {top_k.source: f"{ROWS} AS {top_k.alias}"}
    blanks = draft.parameters.as_nulls()

    def edits(query: str, part: TextOf) -> dict[Span, str]:
        needed = restrict_groups(joins, ROWS, top_k.alias, part)
        return {**prepend_ctes(top_k.block, {ROWS: query}), **needed, **source}

    def asked(place: Span) -> str:
        return splice(draft.text, draft.nulls, blanks, place)

    all_rows = f"SELECT * FROM {asked(top_k.source_without_alias)} AS {top_k.alias}"
    return edits(best, draft.write_part) if binds(draft, edits(all_rows, asked)) else {}


def _plan_small_score(draft: Draft, call: ModelCall) -> PlannedCall:
    """Plan the small model's score where the call stands."""
    target, scope = draft.targets[call], make_scope(draft, call)
    program = draft.filters[call].small
    placed = plan_call(
        call=call,
        target=Target(replace(target.model, program=program), "score", None),
        shared=SharedParts(parts=(Part("score", None),)),
        scope=scope,
        context=draft.context,
        rows=find_row_queries(call, scope),
        row_in_from=False,
    )
    return placed.planned


def _have_unique_keys(
    draft: Draft, joins: list[LeftJoin], top_k: TopK, user_keys: tuple[frozenset[str], ...]
) -> bool:
    """Return whether each row has at most one partner in each joined table."""
    keys = draft.context.unique_keys
    if not top_k.joins:
        return True
    filtered_joins = [
        next((j for j in joins if j.span.contains(place)), None) for place in top_k.joins
    ]
    describe = draft.context.describe
    try:
        return keys is not None and all(
            j is not None and has_one_partner(j, keys, describe, user_keys) for j in filtered_joins
        )
    except ProbeError:
        return False


def _write_best_rows(top_k: TopK, table: str, filters: list[str], small: str, rows: str) -> str:
    """Return the query for the filtered table."""
    return (
        f"SELECT * FROM {table} AS {top_k.alias}{where(filters)} "
        f"ORDER BY {small} DESC NULLS LAST LIMIT {rows}"
    )


def _write_row_count(found: TopK, table: str, filters: list[str], facts: FilterFacts) -> str:
    """Return the number of rows that the full model ranks, as SQL."""
    least, share = math.ceil(facts.ratio * facts.k), facts.ratio * facts.k / facts.rows
    counted = f"{builtin('ceil')}({share!r} * {builtin('count')}(*))"
    return (
        f"(SELECT {builtin('greatest')}({least}, CAST({counted} AS BIGINT)) "
        f"FROM {table} AS {found.alias}{where(filters)})"
    )
