"""`opened_views`: views and joined CTEs become the subqueries that they stand for.

::

    SELECT id, predict('m', *, approximate := true) FROM v
    SELECT id, predict('m', *, approximate := true) FROM (SELECT .. FROM s LEFT JOIN a ..) AS v

That is no rule by itself: the statement is the same. But joins and functions in a view can ask a
small model only where it is a part of the statement, and of a CTE that is joined no key is known
(`tentative_rules.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

from sqlml.errors import SqlmlError
from sqlml.parsing.places import Span
from sqlml.planner.rewrites.draft import Draft
from sqlml.planner.syntax.named_queries import joined_cte, named_tables
from sqlml.planner.syntax.read import outline_of
from sqlml.planner.syntax.splice import splice

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
