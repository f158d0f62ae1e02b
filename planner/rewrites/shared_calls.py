"""`shared_calls`: calls of one model on the same row share one evaluation.

`SELECT predict('m', *), predict_proba('m', *) FROM t` calls one function, which makes both side by
side; the engine evaluates equal calls of one projection once. What stands in WHERE or ON is
evaluated by another operator of the engine, before: there the function is one that
remembers the rows that it scored last, for those of them that come again, unless the next rule,
`models_in_from`, lets FROM call it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sqlml.planner.binding.requested_output import Target
from sqlml.planner.program.shared import Shared
from sqlml.planner.rewrites.draft import Draft
from sqlml.planner.syntax.outline import ModelCall

_FIRST = frozenset({"WHERE", "FROM"})
"""Clauses whose rows are filtered before the others see them."""


def shared_calls(draft: Draft) -> Draft:
    """The statement with what each call shares, with itself at least."""
    alone = draft.targets.keys() - draft.shareable.keys()
    shared = {c: Shared(parts=(draft.targets[c].part,)) for c in alone}
    for calls in same_rows(draft.shareable):
        parts = tuple(sorted({draft.targets[c].part for c in calls}, key=str))
        again = len({call.clause in _FIRST for call in calls}) > 1
        shared |= dict.fromkeys(calls, Shared(parts=parts, calls=len(calls), again=again))
    return replace(draft, shared=shared)


def same_rows(targets: Mapping[ModelCall, Target]) -> list[list[ModelCall]]:
    """The calls, those together that score the same row with one model."""
    groups: dict[Any, list[ModelCall]] = {}
    for call, target in targets.items():
        groups.setdefault(same_row(call, target), []).append(call)
    return list(groups.values())


def same_row(call: ModelCall, target: Target) -> Any:
    """Equal for calls of one model version in one block whose arguments are written alike."""
    if len(target.model.program.labels) > 1:
        return call  # several targets come as lists of their own
    if call.means_outputs:
        return call  # its names may be others there
    model = target.model
    query = None if call.block is None else call.block.span
    return query, model.database, model.name, model.version, model.program.hash, call.spelled
