"""`rows_in_from`: FROM packs the numbers of a row, of which a call is made in its own place.

::

    SELECT a, predict('m', *) FROM t
    SELECT a, f(r, r) FROM (SELECT *, array(..) AS r FROM t) AS t

Spark copies each column of the rows that it hands to Python several times; r is one column, and a
column that is used twice is not written out where it is used.
"""

from __future__ import annotations

from dataclasses import replace

from sqlml.planner.rewrites.draft import Draft
from sqlml.planner.rewrites.shared_calls import comparable_groups
from sqlml.planner.rewrites.widened_from import Source, row_source
from sqlml.planner.syntax.outline import ModelCall


def rows_in_from(draft: Draft) -> Draft:
    """The statement in which FROM may pack rows, and filter them first, where that pays."""
    if not draft.dialect.copies_rows:
        return draft
    sources: dict[ModelCall, Source] = {}
    for calls in comparable_groups(draft):  # each is written alike
        found = [_source(draft, call) for call in calls]
        if found[0] is not None and all(source == found[0] for source in found):
            sources |= dict.fromkeys(calls, found[0])
    return replace(draft, rows_from=sources, filters_first=True)


def _source(draft: Draft, call: ModelCall) -> Source | None:
    """Return the FROM clause that can make the row of a call, if there is one."""
    if call not in draft.shareable:
        return None
    return draft.models_from.get(call) or row_source(call, draft.outline)
