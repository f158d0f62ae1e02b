"""The rule `volatile_calls`: calls that may reject a row are not evaluated for rows that do not
exist.

To find out whether a LEFT JOIN can become an inner join, DuckDB evaluates the filters above it for
a row of NULLs, and an error about that row ends the query. It does not do so with volatile
functions, so a call that may be part of such a filter becomes volatile. Calls that the engine may
compare are either all volatile or none: otherwise the engine would not find a volatile call of
SELECT among those of GROUP BY.
"""

from __future__ import annotations

from dataclasses import replace

from sqlml.planner.program.prepare_program import can_reject_rows
from sqlml.planner.rewrites.draft import Draft
from sqlml.planner.rewrites.shared_calls import group_comparable_calls
from sqlml.planner.syntax.outline import ModelCall

_FILTERS = frozenset({"WHERE", "FROM", "HAVING"})
_STORED = frozenset({"INDEX", "MACRO", "FUNCTION"})
"""Kinds of objects that store expressions, in which the engine may reject volatile functions."""


def volatile_calls(draft: Draft) -> Draft:
    """Make the function of a call volatile if the engine might evaluate it for a row of NULLs."""
    created = draft.outline.created
    if not draft.dialect.lazy_calls:
        return draft
    shared = {
        call: replace(draft.shared[call], once=True)
        for calls in group_comparable_calls(draft)
        if all(_may_be_volatile(call, created) for call in calls)
        and any(_may_filter_rows(c, created) and _may_reject_rows(draft, c) for c in calls)
        for call in calls
        if call in draft.shared
    }
    return replace(draft, shared={**draft.shared, **shared}) if shared else draft


def _may_reject_rows(draft: Draft, call: ModelCall) -> bool:
    return any(can_reject_rows(target.model.program) for target in draft.list_targets(call))


def _may_filter_rows(call: ModelCall, created: str) -> bool:
    """Return whether the call is in a filter, or in a column that a filter may test."""
    return call.clause in _FILTERS or call.is_nested or created == "VIEW"


def _may_be_volatile(call: ModelCall, created: str) -> bool:
    """Return whether the engine accepts a volatile function instead of the call.

    The engine rejects volatile functions in an index, where the call is `must_be_stable`, and in a
    select item, including subqueries of the item, whose name another clause or item uses.
    """
    if call.must_be_stable or created in _STORED:
        return False
    return all(item.accepts_volatile for item in call.items)
