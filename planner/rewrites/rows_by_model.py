"""The rule `rows_by_model`: rows that name many models are sorted by model before they are scored.

::

    SELECT id, predict(shop, *) FROM t WHERE a
    SELECT id, f FROM (SELECT * EXCLUDE (n) FROM (SELECT *, f(shop, ...) AS f FROM (
        SELECT *, row_number() OVER () AS n FROM t WHERE a ORDER BY shop) AS t) ORDER BY n) AS t

The engine passes 2,048 rows at a time, and each model among them is called separately, which takes
long if its numbers have left the processor's caches. Measured for 200,000 rows of 28 columns: the
sorts take 0.04 s; they pay for 20 models of 100 trees (0.06 s instead of 0.11 s) and 60 (0.07 s
instead of 0.18 s), but not for 60 of 20 trees (0.06 s instead of 0.05 s). The second sort restores
the order of rows.
"""

from __future__ import annotations

from dataclasses import replace

from sqlml.planner.binding.models_of_rows import ModelsOfRows
from sqlml.planner.rewrites.draft import Draft
from sqlml.planner.rewrites.widened_from import WidenableSource, find_source
from sqlml.planner.syntax.outline import ModelCall

MOST_UNSORTED, MOST_BYTES = 256, 4 << 20
"""The number of models in a batch, and their bytes, up to which two sorts do not pay."""


def rows_by_model(draft: Draft) -> Draft:
    """Let FROM sort rows by their models if these are many."""
    if not draft.dialect.lazy_calls:
        return draft
    sources = {
        call: source
        for call, models in draft.models_of_rows.items()
        if _has_many_models(models) and (source := _find_source(draft, call)) is not None
    }
    if not sources:
        return draft
    shared = {call: replace(draft.find_shared(call), in_from=True) for call in sources}
    return replace(
        draft,
        shared={**draft.shared, **shared},
        models_from={**draft.models_from, **sources},
    )


def _has_many_models(models_of_rows: ModelsOfRows) -> bool:
    models = [target.model.program for target in models_of_rows.targets.values()]
    return len(models) > MOST_UNSORTED or sum(model.nbytes for model in models) > MOST_BYTES


def _find_source(draft: Draft, call: ModelCall) -> WidenableSource | None:
    """Return the FROM clause that may sort the rows of a call; None if it would score other
    rows.
    """
    if call.clause != "SELECT" or not call.is_always_evaluated or call.in_try or call.block is None:
        return None
    source, where = find_source(call, draft.outline), call.block.where
    if source is None or (where is not None and len(source.filters) < len(call.block.filters)):
        return None
    return source if where is None or call.block.filters else None
