"""`volatile_calls`: calls that may refuse a row are not evaluated for rows that no query has.

To find out whether a LEFT JOIN may become an inner one, DuckDB evaluates the filters above it for a
row of NULLs that no query asks for, and an error about that row ends the query. It does not do so
with a volatile function, so a call that may be part of such a filter gets one.
"""

from __future__ import annotations

from dataclasses import replace

from sqlml.ir.program import Program
from sqlml.planner.program.refuses_rows import refuses_rows
from sqlml.planner.rewrites.draft import Draft
from sqlml.planner.syntax.outline import ModelCall

_FILTERS = frozenset({"WHERE", "FROM", "HAVING"})
_STORED = frozenset({"INDEX", "MACRO", "FUNCTION"})
"""What CREATE makes of expressions where the engine may refuse volatile functions."""


def volatile_calls(draft: Draft) -> Draft:
    """The statement with such calls evaluated only where they are written."""
    if not draft.dialect.lazy_calls:
        return draft
    shared = {
        call: replace(shared, once=True)
        for call, shared in draft.shared.items()
        if guarded(call, draft.outline.created) and any(map(refuses_rows, _programs(draft, call)))
    }
    return replace(draft, shared={**draft.shared, **shared}) if shared else draft


def _programs(draft: Draft, call: ModelCall) -> list[Program]:
    """The models that a call may ask."""
    named = draft.named.get(call)
    targets = [draft.targets[call]] if named is None else named.targets.values()
    return [target.model.program for target in targets]


def guarded(call: ModelCall, created: str) -> bool:
    """Whether a call, in a statement that creates such an object, needs a volatile function."""
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
