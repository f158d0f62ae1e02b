"""`top_k_filters`: of a query for the best rows by a call, the full model ranks only some.

::

    SELECT id FROM s LEFT JOIN a ON s.k = a.k WHERE s.y > 0 ORDER BY full(x, f) DESC LIMIT 20
    SELECT id FROM (SELECT * FROM s WHERE s.y > 0 ORDER BY small(x) DESC LIMIT n) AS s
    LEFT JOIN a ON s.k = a.k WHERE s.y > 0 ORDER BY full(x, f) DESC LIMIT 20

n is the ratio that was learned times k, and at least the share of rows that this was of the tables
which were tried: the best of more rows are rarer (Willump, section 4.2).
"""

from __future__ import annotations

import math
from dataclasses import replace

from sqlml.catalog.small_models import FilterFacts
from sqlml.dialects.duckdb import builtin
from sqlml.parsing.places import Span
from sqlml.planner.binding.context import rows_of
from sqlml.planner.binding.probe_queries import ProbeError
from sqlml.planner.binding.requested_output import Target
from sqlml.planner.plan.plan import PlannedCall
from sqlml.planner.plan.plan_call import plan_call
from sqlml.planner.program.function_names import Part
from sqlml.planner.program.prepare import Shared
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
from sqlml.planner.rewrites.gated_sources import (
    ROWS,
    TextOf,
    before_block,
    grouped,
    only_needed_groups,
    rows_of_block,
    where,
)
from sqlml.planner.rewrites.planned_calls import scope_of
from sqlml.planner.rewrites.unneeded_joins import has_one_partner
from sqlml.planner.syntax.joins import LeftJoin, left_joins
from sqlml.planner.syntax.outline import ModelCall, splice
from sqlml.planner.syntax.top_k import TopK, top_k


def top_k_filters(draft: Draft) -> Draft:
    """The statement whose tables are filtered for its best rows, or why one is not."""
    for call in draft.filters:
        if call in draft.planned:
            made = _filtered(draft, call)
            if isinstance(made, str):
                planned = replace(draft.planned[call], exact=made)
                made = replace(draft, planned={**draft.planned, call: planned})
            draft = made
    return draft


def _filtered(draft: Draft, call: ModelCall) -> Draft | str:
    """The statement with the table of one call filtered; or why it is not."""
    text, facts = statement_text(draft), draft.filters[call].facts
    if text is None:
        return "only queries are filtered"
    planned = draft.planned[call]
    small = _small(draft, call)
    one = as_cascaded(call, planned, frozenset(name for name, _ in small.reads))
    if one is None:
        return "only queries are filtered"
    found = top_k(
        text,
        one,
        read_by(draft, frozenset({call})),
        [c.span for c in draft.outline.calls],
        lambda query: columns_of(draft, query),
        draft.context.function_type,
    )
    if isinstance(found, str):
        return found
    if found.k > facts.k:
        return f"it asks for {found.k} rows, and the top-K filter is for {facts.k} at most"
    joins = left_joins(text) if found.joins else []
    if not _all_unique(draft, joins, found, facts.keys):
        return (
            "a joined table has no key that is known to be unique; if it is, say so by option "
            "unique_keys of ADD TOP_K FILTER"
        )
    if any(place.holds(c.span) for place in found.filters for c in draft.outline.calls):
        return "a condition calls a model"
    if not all(map(draft.context.is_steady, found.functions)):
        return "a condition may have another answer when it is asked once more"
    blanks = draft.given.as_nulls()
    asked = [splice(draft.text, draft.nulls, blanks, p) for p in (found.written, *found.filters)]
    probe = _best(found, asked[0], asked[1:], stand_in(found.features), "1")
    if not binds(draft, {found.source: f"({probe}) AS {found.alias}"}):
        return "its conditions, or the small model's features, are not of the first table alone"
    ranked = small_call(draft, call, found.features, small)
    table, *filters = (draft.part(place) for place in (found.written, *found.filters))
    best = _best(found, table, filters, ranked.sql, _rows(found, table, filters, facts))
    made = {found.source: f"({best}) AS {found.alias}"}
    made = _with_few_groups(draft, text, found, joins, best) or made
    planned = replace(planned, small=ranked, filtered=facts, idle=found.idle)
    return replace(draft, edits={**draft.edits, **made}, planned={**draft.planned, call: planned})


def _with_few_groups(
    draft: Draft, text: str, found: TopK, joins: list[LeftJoin], best: str
) -> dict[Span, str]:
    """Place -> text of the filtered table before its block, if joins make only the groups that its
    rows need; nothing where they cannot."""
    joins = grouped(draft, joins, found.block)
    if not joins or rows_of_block(draft, text, found.block) is None:
        return {}
    source = {found.source: f"{ROWS} AS {found.alias}"}
    blanks = draft.given.as_nulls()

    def edits(query: str, part: TextOf) -> dict[Span, str]:
        needed = only_needed_groups(joins, ROWS, found.alias, part)
        return {**before_block(found.block, {ROWS: query}), **needed, **source}

    def asked(place: Span) -> str:
        return splice(draft.text, draft.nulls, blanks, place)

    all_rows = f"SELECT * FROM {asked(found.written)} AS {found.alias}"
    return edits(best, draft.part) if binds(draft, edits(all_rows, asked)) else {}


def _small(draft: Draft, call: ModelCall) -> PlannedCall:
    """The small model's score where the call stands."""
    target, scope = draft.targets[call], scope_of(draft, call)
    program = draft.filters[call].small
    made = plan_call(
        call=call,
        target=Target(replace(target.model, program=program), "score", None),
        shared=Shared(parts=(Part("score", None),)),
        scope=scope,
        context=draft.context,
        rows=rows_of(call, scope),
        row_in_from=False,
    )
    return made.planned


def _all_unique(
    draft: Draft, joins: list[LeftJoin], found: TopK, told: tuple[frozenset[str], ...]
) -> bool:
    """Whether each row has one partner at most in each joined table."""
    keys = draft.context.unique_keys
    if not found.joins:
        return True
    own = [next((j for j in joins if j.span.holds(place)), None) for place in found.joins]
    describe = draft.context.describe
    try:
        return keys is not None and all(
            j is not None and has_one_partner(j, keys, describe, told) for j in own
        )
    except ProbeError:
        return False


def _best(found: TopK, table: str, filters: list[str], small: str, rows: str) -> str:
    """The query for the filtered table."""
    return (
        f"SELECT * FROM {table} AS {found.alias}{where(filters)} "
        f"ORDER BY {small} DESC NULLS LAST LIMIT {rows}"
    )


def _rows(found: TopK, table: str, filters: list[str], facts: FilterFacts) -> str:
    """How many rows are left to the full model."""
    least, share = math.ceil(facts.ratio * facts.k), facts.ratio * facts.k / facts.rows
    counted = f"{builtin('ceil')}({share!r} * {builtin('count')}(*))"
    return (
        f"(SELECT {builtin('greatest')}({least}, CAST({counted} AS BIGINT)) "
        f"FROM {table} AS {found.alias}{where(filters)})"
    )
