"""The entry of the rewriter: it applies the rules, and undoes those that change what the user's
names mean.

Some rules add columns to FROM. A new column can shadow one that the user meant, so the engine binds
the statement with and without them, and a rule is dropped if the two bindings differ. Views and
joined CTEs are expanded if a cascade or a top-K filter then skips more work.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from functools import cache

from sqlml.errors import SqlmlError
from sqlml.parsing.places import Span
from sqlml.planner.binding.probe_queries import ProbeError
from sqlml.planner.rewrites.draft import Draft
from sqlml.planner.rewrites.models_in_from import models_in_from, rows_in_from
from sqlml.planner.rewrites.order import Rule, run
from sqlml.planner.rewrites.rows_by_model import rows_by_model
from sqlml.planner.syntax.named_queries import find_named_tables, inline_joined_cte
from sqlml.planner.syntax.outline import splice
from sqlml.planner.syntax.read_outline import read_outline

DEEPEST = 8
"""The maximum depth of views of views that are expanded."""

MOST_CTES = 16

LONGEST = 10_000
"""The maximum number of characters that views and CTEs may add; beyond it none is expanded, since
views that read others twice grow exponentially.
"""


def expand_views(draft: Draft) -> Draft:
    """Return the statement with expanded views and joined CTEs, before any rule::

        SELECT id, predict('m', *, approximate := true) FROM v
        SELECT id, predict('m', *, approximate := true) FROM (SELECT ... FROM s ...) AS v

    Joins and functions in a view can ask a small model only if they are part of the statement, and
    a joined CTE has no known keys. The same draft is returned if it reads none, or creates a view
    itself.
    """
    text = (
        draft.text
        if draft.outline.is_stored
        else expand_views_in_text(draft.text, draft.context.view)
    )
    if text == draft.text:
        return draft
    try:
        outline = read_outline(text, draft.dialect.name)
    except SqlmlError:
        return draft
    given = replace(draft.parameters, parameters=outline.parameters)
    return replace(draft, outline=outline, parameters=given)


def expand_views_in_text(sql: str, view: Callable[[str], str | None]) -> str:
    """Return a DuckDB statement with the queries of its views, and of joined CTEs, in their places.

    Args:
        view: returns the query of a view by the name in the statement; None for any other table.
    """
    text, view = sql, cache(view)
    for _ in range(DEEPEST):
        edits: dict[Span, str] = {}
        for table in find_named_tables(text):
            query = view(text[table.place.start : table.place.end])
            if query is not None:
                called = f" AS {table.alias_sql}" if table.alias_sql else ""
                edits[table.place] = f"({query}){called}"
        if not edits:
            break
        text = splice(text, {}, edits, Span(0, len(text)))
        if len(text) > len(sql) + LONGEST:
            return sql
    for _ in range(MOST_CTES):
        edits = inline_joined_cte(text)
        if not edits:
            break
        text = splice(text, {}, edits, Span(0, len(text)))
    return text


REVOCABLE_RULES: tuple[tuple[Rule, Callable[[Draft], bool]], ...] = (
    (rows_in_from, lambda draft: draft.filters_first),
    (rows_by_model, lambda draft: not draft.models_of_rows.keys().isdisjoint(draft.models_from)),
    (models_in_from, lambda draft: bool(draft.models_from)),
)
"""Rules that may be revoked, in this order, each with a test of whether it changed the draft."""


def rewritten(draft: Draft, disabled_rules: Collection[str] = ()) -> Draft:
    """Apply all rules except those given, and those that the binder rejects.

    Views are expanded if a cascade or a top-K filter then skips more work, and the expanded
    statement has the same columns.
    """
    result = _apply_confirmed_rules(draft, disabled_rules)
    if not (result.cascades or result.filters):
        return result
    expanded = expand_views(draft)
    if expanded is draft:
        return result
    try:
        candidate = _apply_confirmed_rules(expanded, disabled_rules)
        return (
            candidate
            if _count_skipped(candidate) > _count_skipped(result)
            and _have_same_columns(result, candidate)
            else result
        )
    except (SqlmlError, ProbeError):
        return result


def _count_skipped(draft: Draft) -> int:
    """Count the sources and tables that are read for a few rows only."""
    return sum(len(call.idle) + (call.filtered is not None) for call in draft.planned.values())


def _have_same_columns(first: Draft, other: Draft) -> bool:
    prefixes = [{} if d.outline.prefix is None else {d.outline.prefix: ""} for d in (first, other)]
    columns = [
        d.context.describe(d.write_probe(edits=prefix))
        for d, prefix in zip((first, other), prefixes, strict=True)
    ]
    return columns[0] == columns[1]


def _apply_confirmed_rules(draft: Draft, disabled_rules: Collection[str]) -> Draft:
    """Apply the rules, revoking one after another until the engine binds the user's names alike."""
    result = run(draft, disabled=disabled_rules)
    for rule, has_changed in REVOCABLE_RULES:
        if not result.widened_sources or _binds_like_original(result):
            break
        disabled_rules = (*disabled_rules, rule.__name__)
        if has_changed(result):
            result = run(draft, disabled=disabled_rules)
    return result


def _binds_like_original(draft: Draft) -> bool:
    """Return whether the engine binds the statement with columns in FROM to the same columns as
    without.
    """
    prefix = {} if draft.outline.prefix is None else {draft.outline.prefix: ""}
    before = draft.write_probe(draft.column_aliases, prefix)
    after = draft.write_widened_probe(prefix)
    try:
        return draft.context.describe(before) == draft.context.describe(after)
    except ProbeError:
        return False
