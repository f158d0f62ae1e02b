"""`rewritten`: a statement by all rules, some of which are taken back where the engine disagrees.

A column that FROM makes may change what a name means: then the binder finds other columns, or none.
And views are opened where a cascade or a top-K filter saves more so.
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
from sqlml.planner.syntax.named_queries import joined_cte, named_tables
from sqlml.planner.syntax.outline import splice
from sqlml.planner.syntax.read import outline_of

# `opened_views`: views and joined CTEs become the subqueries that they stand for.
#
# ::
#
#     SELECT id, predict('m', *, approximate := true) FROM v
#     SELECT id, predict('m', *, approximate := true) FROM (SELECT .. FROM s LEFT JOIN a ..) AS v
#
# That is no rule by itself: the statement is the same. But joins and functions in a view can ask
# a small model only where it is a part of the statement, and of a CTE that is joined no key is
# known (`tentative_rules.py`).


DEEPEST = 8
"""Views of views that are opened."""

MOST_CTES = 16

LONGEST = 10_000
"""Most characters that views and CTEs may bring; otherwise none is opened, since views that read
others twice grow without end."""


def opened_views(draft: Draft) -> Draft:
    """The statement, which no rule has seen yet, without them; the same draft if it reads none, or
    makes a view itself."""
    text = draft.text if draft.outline.kept else without_views(draft.text, draft.context.view)
    if text == draft.text:
        return draft
    try:
        outline = outline_of(text, draft.dialect.name)
    except SqlmlError:
        return draft
    given = replace(draft.given, parameters=outline.parameters)
    return replace(draft, outline=outline, given=given)


def without_views(sql: str, view: Callable[[str], str | None]) -> str:
    """A DuckDB statement with the queries of its views, and of joined CTEs, in their places.

    Args:
        view: the query of a view as the statement names it; None for any other table.
    """
    text, view = sql, cache(view)
    for _ in range(DEEPEST):
        edits: dict[Span, str] = {}
        for table in named_tables(text):
            query = view(text[table.place.start : table.place.end])
            if query is not None:
                called = f" AS {table.called}" if table.called else ""
                edits[table.place] = f"({query}){called}"
        if not edits:
            break
        text = splice(text, {}, edits, Span(0, len(text)))
        if len(text) > len(sql) + LONGEST:
            return sql
    for _ in range(MOST_CTES):
        edits = joined_cte(text)
        if not edits:
            break
        text = splice(text, {}, edits, Span(0, len(text)))
    return text


TENTATIVE: tuple[tuple[Rule, Callable[[Draft], bool]], ...] = (
    (rows_in_from, lambda draft: draft.filters_first),
    (rows_by_model, lambda draft: not draft.named.keys().isdisjoint(draft.models_from)),
    (models_in_from, lambda draft: bool(draft.models_from)),
)
"""Rules whose work the engine's binder must confirm, and whether they did some.

They are given up in this order.
"""


def rewritten(draft: Draft, without: Collection[str] = ()) -> Draft:
    """The statement by all rules but those in `without`, and those that the binder gainsays."""
    made = _confirmed(draft, without)
    if not (made.cascades or made.filters):
        return made
    opened = opened_views(draft)
    if opened is draft:
        return made
    try:
        other = _confirmed(opened, without)
        return other if _saved(other) > _saved(made) and _binds_alike(made, other) else made
    except (SqlmlError, ProbeError):
        return made


def _saved(draft: Draft) -> int:
    """How many sources and tables few rows need."""
    return sum(len(p.idle) + (p.filtered is not None) for p in draft.planned.values())


def _binds_alike(one: Draft, other: Draft) -> bool:
    prefixes = [{} if d.outline.prefix is None else {d.outline.prefix: ""} for d in (one, other)]
    first, second = (one.probed(edits=prefixes[0]), other.probed(edits=prefixes[1]))
    return one.context.describe(first) == one.context.describe(second)


def _confirmed(draft: Draft, without: Collection[str]) -> Draft:
    """The statement by the rules, without those that the binder gainsays."""
    made = run(draft, without=without)
    for rule, has_changed in TENTATIVE:
        if not made.in_from or _binds_as_written(made):
            break
        without = (*without, rule.__name__)
        if has_changed(made):
            made = run(draft, without=without)
    return made


def _binds_as_written(draft: Draft) -> bool:
    """Whether the engine binds the statement with columns in FROM, to columns as without them."""
    prefix = {} if draft.outline.prefix is None else {draft.outline.prefix: ""}
    before = draft.probed(draft.names, prefix)
    after = draft.probed_with_columns(prefix)
    try:
        return draft.context.describe(before) == draft.context.describe(after)
    except ProbeError:
        return False
