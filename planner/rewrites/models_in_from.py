"""The rules `shared_calls`, `models_in_from` and `rows_in_from`: calls share evaluations, and FROM
computes common columns.

`shared_calls`: calls of one model on the same row share one function, which computes all their
outputs. The engine evaluates equal calls of one projection once. WHERE and ON are evaluated earlier
by another operator; for these the function remembers the rows that it scored last, unless
`models_in_from` lets FROM call it. Calls that the engine compares must be written alike. A query
that groups may write the same row in several ways, as in `SELECT predict('m', t.*) FROM t GROUP BY
predict('m', a, b)`, so all calls of one model in its output share one function.

`models_in_from`: the engine would evaluate a call in WHERE and in SELECT twice, and it also repeats
a column of FROM in the filter unless its function is volatile. So, with a volatile f::

    SELECT a, predict('m', *) FROM t WHERE predict_proba('m', *, class := 1) > 0.8 AND b
    SELECT a, f[1] FROM (SELECT *, f(...) AS f FROM t) AS t WHERE f[2] > 0.8 AND b

DuckDB still pushes filters that do not need the column below it. Spark does not, so there `b` goes
into the inner query. The rule applies if FROM is one table, file or subquery and nothing sees its
new column, if the engine's binder finds the same columns as before, and if WHERE asks for each row:
`a IS NULL OR predict('m', *) = 1` keeps rows from a model that might reject them.

`rows_in_from`: FROM packs the numbers of a row, which the call then reads as one column::

    SELECT a, predict('m', *) FROM t
    SELECT a, f(r, r) FROM (SELECT *, array(...) AS r FROM t) AS t

Spark copies each column of the rows that it passes to Python several times, and does not repeat the
expression of a column that is used twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from sqlml.planner.binding.requested_output import Target
from sqlml.planner.program.prepare import SharedParts
from sqlml.planner.rewrites.draft import Draft
from sqlml.planner.rewrites.widened_from import WidenableSource, find_row_source, find_source
from sqlml.planner.syntax.outline import ModelCall, Outline

_EARLY_CLAUSES = frozenset({"WHERE", "FROM"})
"""Clauses that filter rows before the others see them."""


def shared_calls(draft: Draft) -> Draft:
    """Determine the outputs that each call's function computes, for it and for those that share
    it.
    """
    unshared = draft.targets.keys() - draft.shareable_calls.keys()
    shared = {c: SharedParts(parts=(draft.targets[c].part,)) for c in unshared}
    for calls in group_sharing_calls(draft):
        parts = tuple(sorted({draft.targets[c].part for c in calls}, key=str))
        again = len({call.clause in _EARLY_CLAUSES for call in calls}) > 1
        shared |= dict.fromkeys(calls, SharedParts(parts=parts, calls=len(calls), again=again))
    return replace(draft, shared=shared)


def group_sharing_calls(draft: Draft) -> list[list[ModelCall]]:
    """Group the calls that share one function."""
    return _group_by_key(
        (make_sharing_key(c, t, draft.outline), c) for c, t in draft.shareable_calls.items()
    )


def group_comparable_calls(draft: Draft) -> list[list[ModelCall]]:
    """Group the calls that the engine may compare; each group must be written alike.

    WHERE, ON and other parts of FROM are compared with nothing, so each of their calls is a group.
    """
    return _group_by_key((_make_comparable_key(draft, call), call) for call in draft.targets)


def make_sharing_key(call: ModelCall, target: Target, outline: Outline) -> Any:
    """Return a key that is equal for calls that share one function.

    These are calls of one model version in one query with the same written arguments; in the output
    of a query that groups, all calls of the version.
    """
    model, block = target.model, call.block
    if len(model.program.labels) > 1:
        return call  # several targets are returned as separate lists
    version = model.database, model.name, model.version, model.program.hash
    if block is not None and block.output in outline.comparing_outputs:
        return block.output, version
    if call.uses_select_names:
        return call  # its names may mean other columns
    return None if block is None else block.span, version, call.written_arguments


def _make_comparable_key(draft: Draft, call: ModelCall) -> Any:
    if call.output is None:
        return call
    models_of_rows = draft.models_of_rows.get(call)
    targets = [draft.targets[call]] if models_of_rows is None else models_of_rows.targets.values()
    models = frozenset(target.model.program.hash for target in targets)
    is_comparing = call.output in draft.outline.comparing_outputs
    return call.output, models, None if is_comparing else call.written_arguments


def _group_by_key(keyed: Iterable[tuple[Any, ModelCall]]) -> list[list[ModelCall]]:
    groups: dict[Any, list[ModelCall]] = {}
    for key, call in keyed:
        groups.setdefault(key, []).append(call)
    return list(groups.values())


def models_in_from(draft: Draft) -> Draft:
    """Let FROM compute what calls in WHERE share with others."""
    shared: dict[ModelCall, SharedParts] = {}
    sources: dict[ModelCall, WidenableSource] = {}
    for calls in group_sharing_calls(draft):
        common = draft.find_shared(calls[0])
        if not common.again or not any(map(_filters_each_row, calls)) or not _are_alike(calls):
            continue
        source = find_source(calls[0], draft.outline)
        if source is None:
            continue
        widened = replace(common, again=False, once=True, in_from=True)
        shared |= dict.fromkeys(calls, widened)
        sources |= dict.fromkeys(calls, source)
    if not sources:
        return draft
    return replace(draft, shared={**draft.shared, **shared}, models_from=sources)


def _are_alike(calls: Sequence[ModelCall]) -> bool:
    """Return whether the calls score the same row, so that one column of FROM can replace all of
    them.
    """
    rows = {(call.block and call.block.span, call.written_arguments) for call in calls}
    return len(rows) == 1 and not any(call.uses_select_names for call in calls)


def _filters_each_row(call: ModelCall) -> bool:
    """Return whether WHERE evaluates the call for each row."""
    return call.clause == "WHERE" and call.is_always_evaluated


def rows_in_from(draft: Draft) -> Draft:
    """Let FROM pack rows, and filter them first, on engines for which this is faster."""
    if not draft.dialect.copies_rows:
        return draft
    sources: dict[ModelCall, WidenableSource] = {}
    for calls in group_comparable_calls(draft):  # each is written alike
        call_sources = [_find_source(draft, call) for call in calls]
        if call_sources[0] is not None and all(
            source == call_sources[0] for source in call_sources
        ):
            sources |= dict.fromkeys(calls, call_sources[0])
    return replace(draft, rows_from=sources, filters_first=True)


def _find_source(draft: Draft, call: ModelCall) -> WidenableSource | None:
    """Return the FROM clause that can pack the row of a call, if there is one."""
    if call not in draft.shareable_calls:
        return None
    return draft.models_from.get(call) or find_row_source(call, draft.outline)
