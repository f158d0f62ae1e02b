"""All rewrite rules in their order, and `rewrite`, which applies them.

Some rules add columns to FROM. A new column can shadow one that the user meant, so the engine binds
the statement with and without them, and a rule is dropped if the two bindings differ. Views and
joined CTEs are expanded if a cascade or a top-K filter then skips more work.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import cache

from sqlml.errors import ConfigError, SqlmlError
from sqlml.parsing.places import Span
from sqlml.planner.binding.probe_queries import ProbeError
from sqlml.planner.rewrites.cascaded_calls import called_models, cascaded_calls
from sqlml.planner.rewrites.draft import Draft
from sqlml.planner.rewrites.gated_sources import gated_sources
from sqlml.planner.rewrites.metric_aggregates import metric_aggregates
from sqlml.planner.rewrites.planned_calls import planned_calls
from sqlml.planner.rewrites.probability_comparisons import probability_comparisons
from sqlml.planner.rewrites.shared_calls import (
    models_in_from,
    rows_by_model,
    rows_in_from,
    shared_calls,
    sorts_rows,
)
from sqlml.planner.rewrites.table_form import table_form
from sqlml.planner.rewrites.top_k_filters import top_k_filters
from sqlml.planner.rewrites.unneeded_joins import unneeded_joins
from sqlml.planner.rewrites.volatile_calls import volatile_calls
from sqlml.planner.syntax.named_queries import find_named_tables, inline_joined_cte
from sqlml.planner.syntax.outline import splice
from sqlml.planner.syntax.read_outline import read_outline

Rule = Callable[[Draft], Draft]

RULES: tuple[Rule, ...] = (
    metric_aggregates,
    table_form,
    called_models,
    cascaded_calls,
    probability_comparisons,
    shared_calls,
    volatile_calls,
    models_in_from,
    rows_in_from,
    rows_by_model,
    planned_calls,
    gated_sources,
    top_k_filters,
    unneeded_joins,
)
"""All rules in the order of their application.

Each has a golden file of titled statements, except `called_models`, which changes no text. The
rules before `planned_calls` decide how calls become SQL, and the rules after it change that SQL.
"""

REVOCABLE_RULES: tuple[tuple[Rule, Callable[[Draft], bool]], ...] = (
    (rows_in_from, lambda draft: draft.filters_first),
    (rows_by_model, sorts_rows),
    (models_in_from, lambda draft: bool(draft.model_source_of)),
)
"""Rules that may be revoked, in this order, each with a test of whether it changed the draft."""


def rewrite(draft: Draft, disabled: Collection[str] = ()) -> Draft:
    """Apply all rules except `disabled` rules, and rules that change what the user's names mean.

    Views are expanded first if a cascade or a top-K filter then skips more work.
    """
    rewritten = _apply_safe_rules(draft, disabled)
    if not (rewritten.cascades or rewritten.filters):
        return rewritten
    expanded_draft = expand_views(draft)
    if expanded_draft is draft:
        return rewritten
    try:
        candidate = _apply_safe_rules(expanded_draft, disabled)
    except (SqlmlError, ProbeError):
        return rewritten
    if _count_gated_sources(candidate) <= _count_gated_sources(rewritten):
        return rewritten
    probes = (d.build_probe(edits=d.without_prefix) for d in (rewritten, candidate))
    return candidate if draft.binds_alike(*probes) else rewritten


def _count_gated_sources(draft: Draft) -> int:
    """Count the sources and tables of planned calls that are read only for some rows."""
    calls = draft.planned.values()
    return sum(len(c.idle_parts) + (c.filtered is not None) for c in calls)


def _apply_safe_rules(draft: Draft, disabled: Collection[str]) -> Draft:
    """Apply the rules, and revoke them one by one until the user's names keep their meaning."""
    rewritten = apply_rules(draft, disabled=disabled)
    for rule, has_changed in REVOCABLE_RULES:
        if not rewritten.widened_sources or _binds_like_original(rewritten):
            break
        disabled = (*disabled, rule.__name__)
        if has_changed(rewritten):
            rewritten = apply_rules(draft, disabled=disabled)
    return rewritten


def _binds_like_original(draft: Draft) -> bool:
    """Return whether the result columns are the same with the columns that FROM computes."""
    original_probe = draft.build_probe(draft.column_aliases, draft.without_prefix)
    return draft.binds_alike(original_probe, draft.build_widened_probe(draft.without_prefix))


def apply_rules(
    draft: Draft, last_rule: str | None = None, disabled: Collection[str] = ()
) -> Draft:
    """Apply the rules that are not `disabled`, in order, up to the rule named `last_rule`.

    Raises ConfigError for an unknown rule. The errors of rules point at the user's text.
    """
    names = [rule.__name__ for rule in RULES]
    for name in (*([] if last_rule is None else [last_rule]), *disabled):
        if name not in names:
            raise ConfigError(f"unknown rule {name!r}; rules: {', '.join(names)}")
    for rule in RULES:
        if rule.__name__ not in disabled:
            try:
                draft = rule(draft)
            except SqlmlError as error:
                if draft.expanded is None:
                    raise
                raise draft.expanded.locate_error(error) from None
        if rule.__name__ == last_rule:
            break
    return draft


MAX_VIEW_DEPTH = 8
"""The maximum depth of nested views that are expanded."""

MAX_INLINED_CTES = 16

MAX_ADDED_LENGTH = 10_000
"""The maximum number of added characters. Views that read other views twice grow exponentially."""


def expand_views(draft: Draft) -> Draft:
    """Replace views and joined CTEs with subqueries in a draft to which no rule is applied yet::

        SELECT id, predict('m', *, approximate := true) FROM v
        SELECT id, predict('m', *, approximate := true) FROM (SELECT ... FROM s ...) AS v

    A small model can only save joins and functions that are part of the statement itself, and a
    joined CTE has no known keys. The same draft is returned if the statement is stored, or reads no
    view and joins no CTE.
    """
    if draft.outline.is_stored:
        return draft
    expanded_sql = expand_views_in_text(draft.text, draft.context.view)
    if expanded_sql == draft.text:
        return draft
    try:
        return draft.with_outline(read_outline(expanded_sql, draft.dialect.name))
    except SqlmlError:
        return draft


def expand_views_in_text(sql: str, view: Callable[[str], str | None]) -> str:
    """Return a DuckDB statement in which subqueries replace views and joined CTEs.

    `view` returns the query of a view, given the name in the statement, or None for other tables.
    """
    expanded_sql, view = sql, cache(view)
    for _ in range(MAX_VIEW_DEPTH):
        edits: dict[Span, str] = {}
        for table in find_named_tables(expanded_sql):
            query = view(expanded_sql[table.span.start : table.span.end])
            if query is not None:
                edits[table.span] = f"({query})" + (table.alias_sql and f" AS {table.alias_sql}")
        if not edits:
            break
        expanded_sql = splice(expanded_sql, {}, edits, Span(0, len(expanded_sql)))
        if len(expanded_sql) > len(sql) + MAX_ADDED_LENGTH:
            return sql
    for _ in range(MAX_INLINED_CTES):
        cte_edits = inline_joined_cte(expanded_sql)
        if not cte_edits:
            break
        expanded_sql = splice(expanded_sql, {}, cte_edits, Span(0, len(expanded_sql)))
    return expanded_sql
