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
from sqlml.planner.rewrites.widened_from import row_source


def rows_in_from(draft: Draft) -> Draft:
    """The statement in which FROM may pack rows, and filter them first, where that pays."""
    if not draft.dialect.copies_rows:
        return draft
    sources = {
        call: source
        for call in draft.shareable
        if (source := draft.models_from.get(call) or row_source(call, draft.outline)) is not None
    }
    return replace(draft, rows_from=sources, filters_first=True)
