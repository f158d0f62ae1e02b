"""`shared_calls`: calls of one model on the same row share one evaluation.

`SELECT predict('m', *), predict_proba('m', *) FROM t` calls one function, which makes both side by
side; the engine evaluates equal calls of one projection once. What stands in WHERE or ON is
evaluated by another operator of the engine, before: there the function is one that
remembers the rows that it scored last, for those of them that come again, unless the next rule,
`models_in_from`, lets FROM call it.

What the engine compares must be written alike. A query that groups may write the same row in
several ways, as in `SELECT predict('m', t.*) FROM t GROUP BY predict('m', a, b)`, also in a
subquery that looks at it; so all calls of one model in its output share one function.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from sqlml.planner.binding.requested_output import Target
from sqlml.planner.program.shared import Shared
from sqlml.planner.rewrites.draft import Draft
from sqlml.planner.syntax.outline import ModelCall, Outline

_FIRST = frozenset({"WHERE", "FROM"})
"""Clauses whose rows are filtered before the others see them."""


def shared_calls(draft: Draft) -> Draft:
    """Say for each call which parts its function computes, for it and for those it shares with."""
    alone = draft.targets.keys() - draft.shareable.keys()
    shared = {c: Shared(parts=(draft.targets[c].part,)) for c in alone}
    for calls in sharing_groups(draft):
        parts = tuple(sorted({draft.targets[c].part for c in calls}, key=str))
        again = len({call.clause in _FIRST for call in calls}) > 1
        shared |= dict.fromkeys(calls, Shared(parts=parts, calls=len(calls), again=again))
    return replace(draft, shared=shared)


def sharing_groups(draft: Draft) -> list[list[ModelCall]]:
    """Group the calls that share one function."""
    return _grouped((sharing_key(c, t, draft.outline), c) for c, t in draft.shareable.items())


def comparable_groups(draft: Draft) -> list[list[ModelCall]]:
    """Group the calls that the engine may compare: each group must be written alike.

    WHERE, ON and other parts of FROM are not compared with anything, so each of their calls is a
    group.
    """
    return _grouped((_comparable_key(draft, call), call) for call in draft.targets)


def sharing_key(call: ModelCall, target: Target, outline: Outline) -> Any:
    """Return a key that is equal for calls that share one function.

    These are calls of one model version in one query whose arguments are written alike, and in the
    output of a query that groups all calls of the version.
    """
    model, block = target.model, call.block
    if len(model.program.labels) > 1:
        return call  # several targets come as lists of their own
    version = model.database, model.name, model.version, model.program.hash
    if block is not None and block.output in outline.comparing:
        return block.output, version
    if call.means_outputs:
        return call  # its names may be others there
    return None if block is None else block.span, version, call.spelled


def _comparable_key(draft: Draft, call: ModelCall) -> Any:
    if call.output is None:
        return call
    named = draft.named.get(call)
    targets = [draft.targets[call]] if named is None else named.targets.values()
    models = frozenset(target.model.program.hash for target in targets)
    compares = call.output in draft.outline.comparing
    return call.output, models, None if compares else call.spelled


def _grouped(keyed: Iterable[tuple[Any, ModelCall]]) -> list[list[ModelCall]]:
    groups: dict[Any, list[ModelCall]] = {}
    for key, call in keyed:
        groups.setdefault(key, []).append(call)
    return list(groups.values())
