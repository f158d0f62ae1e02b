"""`refused_rows`: calls that may refuse a row are not asked about rows that no query has.

To find out whether a LEFT JOIN may become an inner one, DuckDB evaluates the filters above it for a
row of NULLs that no query asks for, and an error about that row ends the query. It leaves a
volatile function alone, so a call that may be part of such a filter has one.
"""

from __future__ import annotations

from dataclasses import replace

from sqlml.planner.program.refuses_rows import refuses_rows
from sqlml.planner.rewrites.draft import Draft
from sqlml.planner.syntax.outline import ModelCall

_FILTERS = frozenset({"WHERE", "FROM", "HAVING"})
_STORED = frozenset({"INDEX", "MACRO", "FUNCTION"})
"""What CREATE makes of expressions that may stand where the engine takes nothing volatile."""


def refused_rows(draft: Draft) -> Draft:
    """The statement in which such calls are evaluated where they are written, and for no others."""
    if not draft.dialect.lazy_calls:
        return draft
    shared = {
        call: replace(shared, once=True)
        for call, shared in draft.shared.items()
        if refuses_rows(draft.targets[call].model.program) and guarded(call, draft.outline.created)
    }
    return replace(draft, shared={**draft.shared, **shared}) if shared else draft


def guarded(call: ModelCall, created: str) -> bool:
    """Whether a call, in a statement that creates such a thing, is to have a volatile function."""
    return _filters_rows(call, created) and _may_be_volatile(call, created)


def _filters_rows(call: ModelCall, created: str) -> bool:
    """Whether a filter, or a column that one may test, holds the call."""
    return call.clause in _FILTERS or call.nested or created == "VIEW"


def _may_be_volatile(call: ModelCall, created: str) -> bool:
    """Whether the engine takes a volatile function in place of the call.

    It takes none in TRY, in an index, in what a window is ordered or divided by, and in a select
    item whose name another clause or item uses; a subquery in such an item is part of it.
    """
    if call.in_try or created in _STORED:
        return False
    windows = call.block is not None and call.block.windows and call.clause not in _FILTERS
    return not windows and all(item.volatile for item in call.items)
