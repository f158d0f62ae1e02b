"""`rows_by_model`: rows that name many models are sorted by these before they are scored.

::

    SELECT id, predict(shop, *) FROM t WHERE a
    SELECT id, f FROM (SELECT * EXCLUDE (n) FROM (SELECT *, f(shop, ..) AS f FROM (
        SELECT *, row_number() OVER () AS n FROM t WHERE a ORDER BY shop) AS t) ORDER BY n) AS t

The engine hands over 2,048 rows at a time, and each model among them is called by itself, which
takes long where its numbers have left the processor's caches meanwhile. Measured for 200,000 rows
of 28 columns: the sorts take 0.04 s; they are worth it for 20 models of 100 trees (0.06 s in place
of 0.11 s) and 60 (0.07 s in place of 0.18 s), but not for 60 of 20 trees (0.06 s in place of
0.05 s). The second sort gives the rows back as they came.
"""

from __future__ import annotations

from dataclasses import replace

from sqlml.planner.binding.models_of_rows import ModelsOfRows
from sqlml.planner.rewrites.draft import Draft
from sqlml.planner.rewrites.widened_from import Source, source_of
from sqlml.planner.syntax.outline import ModelCall

MOST_UNSORTED, MOST_BYTES = 256, 4 << 20
"""Models that a batch may have, and bytes of them, without a loss that is worth two sorts."""


def rows_by_model(draft: Draft) -> Draft:
    """The statement in which FROM sorts rows by their models, where these are many."""
    if not draft.dialect.lazy_calls:
        return draft
    sources = {
        call: source
        for call, named in draft.named.items()
        if _are_many(named) and (source := _source(draft, call)) is not None
    }
    if not sources:
        return draft
    shared = {call: replace(draft.together(call), in_from=True) for call in sources}
    return replace(
        draft,
        shared={**draft.shared, **shared},
        models_from={**draft.models_from, **sources},
    )


def _are_many(named: ModelsOfRows) -> bool:
    models = [target.model.program for target in named.targets.values()]
    return len(models) > MOST_UNSORTED or sum(model.nbytes for model in models) > MOST_BYTES


def _source(draft: Draft, call: ModelCall) -> Source | None:
    """The FROM clause that may sort the rows of a call; None if it would score other rows."""
    if call.clause != "SELECT" or not call.always_asked or call.in_try or call.block is None:
        return None
    source, where = source_of(call, draft.outline), call.block.where
    if source is None or (where is not None and len(source.filters) < len(call.block.filters)):
        return None
    return source if where is None or call.block.filters else None
