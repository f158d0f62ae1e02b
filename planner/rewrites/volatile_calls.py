"""`volatile_calls`: calls that may refuse a row are not evaluated for rows that no query has.

To find out whether a LEFT JOIN may become an inner one, DuckDB evaluates the filters above it for a
row of NULLs that no query asks for, and an error about that row ends the query. It does not do so
with a volatile function, so a call that may be part of such a filter gets one. Of the calls that
the engine may compare, all are volatile or none is: the engine would not find a volatile call of
SELECT among those of GROUP BY that are not.
"""

from __future__ import annotations

from dataclasses import replace

from sqlml.planner.program.prepare import refuses_rows
from sqlml.planner.rewrites.draft import Draft
from sqlml.planner.rewrites.models_in_from import comparable_groups
from sqlml.planner.syntax.outline import ModelCall

_FILTERS = frozenset({"WHERE", "FROM", "HAVING"})
_STORED = frozenset({"INDEX", "MACRO", "FUNCTION"})
"""What CREATE makes of expressions where the engine may refuse volatile functions."""


def volatile_calls(draft: Draft) -> Draft:
    """Mark the calls that the engine must evaluate only where they are written."""
    created = draft.outline.created
    if not draft.dialect.lazy_calls:
        return draft
    shared = {
        call: replace(draft.shared[call], once=True)
        for calls in comparable_groups(draft)
        if all(_may_be_volatile(call, created) for call in calls)
        and any(_filters_rows(c, created) and _refuses_rows(draft, c) for c in calls)
        for call in calls
        if call in draft.shared
    }
    return replace(draft, shared={**draft.shared, **shared}) if shared else draft


def _refuses_rows(draft: Draft, call: ModelCall) -> bool:
    """Whether some row may be an error to a model that the call asks."""
    named = draft.named.get(call)
    targets = [draft.targets[call]] if named is None else named.targets.values()
    return any(refuses_rows(target.model.program) for target in targets)


def _filters_rows(call: ModelCall, created: str) -> bool:
    """Whether a filter, or a column that one may test, holds the call."""
    return call.clause in _FILTERS or call.nested or created == "VIEW"


def _may_be_volatile(call: ModelCall, created: str) -> bool:
    """Whether the engine accepts a volatile function instead of the call.

    It accepts none in an index, in a select item whose name another clause or item uses (a subquery
    in such an item is part of it), and where the call is `steady`.
    """
    return not call.steady and created not in _STORED and all(i.volatile for i in call.items)
