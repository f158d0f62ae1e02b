"""`models_in_from`: a model that WHERE and other clauses ask is evaluated once, in FROM.

The engine evaluates WHERE in one operator and SELECT in another, so that a call in both is made
twice, and a column that is computed in FROM is computed again in the filter, unless its function
is called volatile. So, where f is volatile::

    SELECT a, predict('m', *) FROM t WHERE predict_proba('m', *, class := 1) > 0.8 AND b
    SELECT a, f[1] FROM (SELECT *, f(..) AS f FROM t) AS t WHERE f[2] > 0.8 AND b

Filters that do not need the column still go below it, and into the scan: DuckDB sees to that
itself, and for Spark, which leaves them above a volatile column, `b` goes into the inner query.
This is done where FROM is one table, file or subquery, and where nobody can see that it has another
column now: stars leave it out, and nobody takes whole rows. The engine's binder has the last word:
the rewritten block must bind, with columns of the same names and types. And only where WHERE asks
for each row: `a IS NULL OR predict('m', *) = 1` keeps rows from the model that it might refuse.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from sqlml.planner.binding.requested_output import Target
from sqlml.planner.program.prepare import Shared
from sqlml.planner.rewrites.draft import Draft
from sqlml.planner.rewrites.widened_from import Source, row_source, source_of
from sqlml.planner.syntax.outline import ModelCall, Outline

# `shared_calls`: calls of one model on the same row share one evaluation.
#
# `SELECT predict('m', *), predict_proba('m', *) FROM t` calls one function, which makes both side
# by side; the engine evaluates equal calls of one projection once. What stands in WHERE or ON is
# evaluated by another operator of the engine, before: there the function is one that remembers
# the rows that it scored last, for those of them that come again, unless the next rule,
# `models_in_from`, lets FROM call it.
#
# What the engine compares must be written alike. A query that groups may write the same row in
# several ways, as in `SELECT predict('m', t.*) FROM t GROUP BY predict('m', a, b)`, also in a
# subquery that looks at it; so all calls of one model in its output share one function.


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


def models_in_from(draft: Draft) -> Draft:
    """The statement in which FROM may make what calls in WHERE share with others."""
    shared: dict[ModelCall, Shared] = {}
    sources: dict[ModelCall, Source] = {}
    for calls in sharing_groups(draft):
        together = draft.together(calls[0])
        if not together.again or not any(map(_filters, calls)) or not _are_alike(calls):
            continue
        source = source_of(calls[0], draft.outline)
        if source is None:
            continue
        made = replace(together, again=False, once=True, in_from=True)
        shared |= dict.fromkeys(calls, made)
        sources |= dict.fromkeys(calls, source)
    if not sources:
        return draft
    return replace(draft, shared={**draft.shared, **shared}, models_from=sources)


def _are_alike(calls: Sequence[ModelCall]) -> bool:
    """Whether the calls score the same row: one column of FROM can stand for all of them."""
    rows = {(call.block and call.block.span, call.spelled) for call in calls}
    return len(rows) == 1 and not any(call.means_outputs for call in calls)


def _filters(call: ModelCall) -> bool:
    """Whether WHERE asks the call for each row."""
    return call.clause == "WHERE" and call.always_asked


# `rows_in_from`: FROM packs the numbers of a row, of which a call is made in its own place.
#
# ::
#
#     SELECT a, predict('m', *) FROM t
#     SELECT a, f(r, r) FROM (SELECT *, array(..) AS r FROM t) AS t
#
# Spark copies each column of the rows that it hands to Python several times; r is one column, and
# a column that is used twice is not written out where it is used.


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
