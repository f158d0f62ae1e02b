"""Helpers of the rules about small models, in cascades and in top-K filters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sqlml.parsing.places import Span
from sqlml.planner.binding.column_types import BoundInput
from sqlml.planner.binding.context import make_row_estimate
from sqlml.planner.binding.probe_queries import ProbeError, TextOf
from sqlml.planner.plan.call_draft import CallSite
from sqlml.planner.plan.plan import PlannedCall
from sqlml.planner.plan.plan_call import plan_call
from sqlml.planner.program.prepare_program import SharedParts
from sqlml.planner.rewrites.draft import Draft
from sqlml.planner.rewrites.planned_calls import make_scope
from sqlml.planner.rewrites.unneeded_joins import has_one_partner
from sqlml.planner.syntax.joins import FirstTable, LeftJoin, find_first_table
from sqlml.planner.syntax.outline import ModelCall
from sqlml.planner.syntax.top_k import CallsOfQuery, CascadedCall

ROWS = "sqlml_rows"
"""The name of a CTE with rows of a block's first table."""


def find_query_sql(draft: Draft) -> str | None:
    """Return the query with blanks for a prefix such as INSERT INTO t, or None without a query."""
    prefix = draft.outline.prefix
    if prefix is None:
        return None
    return draft.text[: prefix.start] + " " * (prefix.end - prefix.start) + draft.text[prefix.end :]


def describe_calls(draft: Draft, small_reads: Mapping[ModelCall, frozenset[str]]) -> CallsOfQuery:
    """Describe the calls of a query for the analysis in `syntax/top_k.py`.

    `small_reads` maps each cascaded call, which must be in a block, to the names of the features
    that the small model reads.
    """
    cascades = []
    for call, small_features in small_reads.items():
        assert call.block is not None
        features = {name: bound.sql for name, bound in draft.planned[call].reads}
        cascades.append(CascadedCall(call.span, call.block.span, features, small_features))
    other_reads = [
        (call.block.span, bound.sql)
        for call, planned in draft.planned.items()
        if call not in small_reads and call.block is not None
        for _, bound in planned.reads
    ]

    def list_columns(query: str) -> list[str]:
        try:
            return [column.name for column in draft.context.describe(query)]
        except ProbeError as error:
            raise ValueError(str(error)) from None

    spans = [call.span for call in draft.outline.calls]
    return CallsOfQuery(cascades, other_reads, spans, list_columns, draft.context.function_type)


def plan_small_call(
    draft: Draft, call: ModelCall, features: Mapping[str, str], small_call: PlannedCall
) -> PlannedCall:
    """Plan a call of a small model in another block, where `features` maps features to SQL.

    `small_call` is the planned call of the small model in the block of the full model's call.
    """
    target, scope = draft.targets[call], make_scope(draft, call)
    program, parts = small_call.source, small_call.spec.parts
    assert program is not None
    return plan_call(
        CallSite(call, scope, draft.context, make_row_estimate(call, scope)),
        target=replace(
            target,
            model=replace(target.model, program=program),
            output=parts[0].output,
            chosen=target.chosen if parts[0].output == target.output else None,
        ),
        shared=SharedParts(parts=parts),
        bound_inputs={
            name: BoundInput(features[name], bound.type) for name, bound in small_call.reads
        },
    ).planned


def build_stand_in_sql(features: Mapping[str, str]) -> str:
    """Return SQL that replaces a small model's call in probes until the function is registered."""
    nulls = " OR ".join(f"({feature}) IS NULL" for feature in features.values()) or "false"
    return f"CASE WHEN {nulls} THEN NULL END"


def can_bind(draft: Draft, probe_edits: Mapping[Span, str]) -> bool:
    """Return whether the statement binds to the same columns with and without `probe_edits`."""
    prefix = draft.without_prefix
    original_probe = draft.build_probe(edits=prefix)
    return draft.binds_alike(original_probe, draft.build_probe(edits={**prefix, **probe_edits}))


def have_one_partner(
    draft: Draft, joins: Sequence[LeftJoin | None], user_keys: Sequence[frozenset[str]]
) -> bool:
    """Return whether each row matches at most one row of each joined table.

    Unsupported joins are None. For `user_keys`, see `has_one_partner`.
    """
    keys, describe = draft.context.unique_keys, draft.context.describe
    try:
        return keys is not None and all(
            join is not None and has_one_partner(join, keys, describe, user_keys) for join in joins
        )
    except ProbeError:
        return False


def find_rereadable_table(draft: Draft, query: str, block: Span) -> FirstTable | None:
    """Return the first table of a block, or None unless a CTE can read the same rows again."""
    table = find_first_table(query, block)
    if table is None or not all(map(draft.context.is_repeatable, table.functions)):
        return None
    spans = (table.span_without_alias, *table.condition_spans)
    has_call = any(span.contains(call.span) for span in spans for call in draft.outline.calls)
    return None if has_call else table


def find_grouped_joins(draft: Draft, joins: Sequence[LeftJoin], block: Span) -> list[LeftJoin]:
    """Return the joins of a block whose tables are subqueries that group by the join's keys."""
    return [
        join
        for join in joins
        if join.grouped_subquery is not None
        and join.block == block
        and all(map(draft.context.is_repeatable, join.grouped_subquery.functions))
    ]


def restrict_groups(
    joins: Sequence[LeftJoin], rows_table: str, alias: str, text_of: TextOf
) -> dict[Span, str]:
    """Return the edits that make grouped joins compute only the groups that `rows_table` needs.

    The keys of ON are qualified with `alias`. The keys of USING are bare columns.
    """
    edits: dict[Span, str] = {}
    for join in joins:
        subquery = join.grouped_subquery
        assert subquery is not None
        condition = " AND ".join(
            f"{key} IN (SELECT {left_sql if '.' in left_sql else f'{alias}.{left_sql}'} "
            f"FROM {rows_table} AS {alias})"
            for key, left_sql in join.keys.items()
        )
        edits |= subquery.add_condition(text_of(subquery.filter_span), condition)
    return edits


def prepend_ctes(block: Span, tables: Mapping[str, str]) -> dict[Span, str]:
    definitions = ", ".join(f"{name} AS MATERIALIZED ({query})" for name, query in tables.items())
    return {Span(block.start, block.start): f"WITH {definitions} "}


def build_where_sql(conditions: Sequence[str]) -> str:
    """Return ` WHERE ...` for all conditions combined, or "" if there are no conditions."""
    return f" WHERE {' AND '.join(f'({c})' for c in conditions)}" if conditions else ""
