"""The rule `planned_calls`: each call becomes SQL, in its place or in FROM."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from itertools import pairwise

from sqlml.errors import SqlmlError, StatementError
from sqlml.planner.binding.bind import find_other_columns
from sqlml.planner.binding.context import find_row_queries
from sqlml.planner.binding.probe_queries import Scope
from sqlml.planner.binding.requested_output import Target
from sqlml.planner.plan.call_draft import CallSite
from sqlml.planner.plan.plan_call import CallInFrom, plan_call
from sqlml.planner.plan.plan_named import plan_named_call
from sqlml.planner.program.prepare import SharedParts
from sqlml.planner.rewrites.draft import Draft
from sqlml.planner.rewrites.table_form import check_new_column
from sqlml.planner.rewrites.widened_from import WidenedSource
from sqlml.planner.syntax.outline import CALLS, ModelCall, name_unnamed_items, sort_inner_first


def planned_calls(draft: Draft) -> Draft:
    """Plan the calls, those first on which others depend."""
    numbers = draft.parameters.renumber(draft.has_parameters_in_calls)
    planner = _CallPlanner(replace(draft, edits={**numbers, **draft.edits}))
    for call in sort_inner_first(draft.targets):
        planner.add(call)
    calls, column_name = planner.draft.call_sql, draft.context.column_name
    aliases = name_unnamed_items(draft.text, calls, column_name, draft.dialect)
    return replace(planner.draft, column_aliases=aliases)


class _CallPlanner:
    """The calls of a statement that are planned so far.

    The mappings of its draft grow in place: copies would make planning quadratic in the calls.
    """

    def __init__(self, draft: Draft) -> None:
        self._planned = dict(draft.planned)
        self._call_sql = dict(draft.call_sql)
        self._probes = dict(draft.call_probes)
        self._widened_sources = dict(draft.widened_sources)
        self.draft = replace(
            draft,
            planned=self._planned,
            call_sql=self._call_sql,
            call_probes=self._probes,
            widened_sources=self._widened_sources,
        )
        self._edits = self.draft.collect_edits()
        self._outer_calls = _find_nesting_calls(draft.targets)

    def add(self, call: ModelCall) -> None:
        """Plan one more call."""
        draft = self.draft
        scope = replace(make_scope(draft, call), text=self._edits.apply)
        placed = _plan(draft, call, scope)
        if placed is None:
            return
        call_sql = placed.planned.sql + draft.targets[call].key
        if call in draft.negated_calls:
            call_sql = draft.dialect.negated(call_sql)
        self._planned[call], self._call_sql[call] = placed.planned, call_sql
        self._probes[call] = _write_probe(draft, call, placed, call_sql, call in self._outer_calls)
        self._edits.add({call.span: call_sql}, CALLS)
        self._widen_source(call, placed, scope)

    def _widen_source(self, call: ModelCall, placed: CallInFrom, scope: Scope) -> None:
        """Let FROM compute the columns that a call has there."""
        draft = self.draft
        source = draft.models_from.get(call) or draft.rows_from.get(call)
        if source is None or (placed.row is None and placed.column is None):
            return
        widened = self._widened_sources.get(source)
        if widened is None:
            widened = WidenedSource.create(source, draft.dialect, scope.text, scope.probed)
        else:
            for layer, texts in widened.edits_by_layer(draft.filters_first).items():
                self._edits.remove(texts, layer)
        self._widened_sources[source] = widened = widened.with_columns(placed.row, placed.column)
        for layer, texts in widened.edits_by_layer(draft.filters_first).items():
            self._edits.add(texts, layer)


def _find_nesting_calls(calls: Iterable[ModelCall]) -> frozenset[ModelCall]:
    """Return the calls that contain others."""
    ordered = sorted(calls, key=lambda call: (call.span.start, -call.span.end))
    return frozenset(a for a, b in pairwise(ordered) if a.span.contains(b.span))


def _plan(draft: Draft, call: ModelCall, scope: Scope) -> CallInFrom | None:
    """Plan a call; return None for one that the engine does not bind."""
    if draft.expanded is not None and draft.expanded.is_generated(call.span.start):
        check_new_column(draft, call, find_other_columns(call, (), scope))
    target, shared = draft.targets[call], draft.find_shared(call)
    rows = find_row_queries(call, _find_counted_scope(draft, scope))
    site = CallSite(call, scope, draft.context, rows)
    try:
        models = draft.models_of_rows.get(call)
        if models is not None:
            plan_one = partial(_plan_function, site, shared)
            placed = plan_named_call(
                call, target, models, scope, plan_one, sorts=call in draft.models_from
            )
        else:
            placed = plan_call(
                site, target=target, shared=shared, row_in_from=call in draft.rows_from
            )
        planned = replace(placed.planned, exact=draft.exact_reasons.get(call, ""))
        if (cascade := draft.cascades.get(call)) is not None:
            small_target = replace(target, model=replace(target.model, program=cascade.small))
            small = plan_call(site, target=small_target, shared=shared).planned
            planned = planned.with_cascade(small, cascade.facts)
    except StatementError:
        if call.in_unused_cte:
            return None
        raise
    except SqlmlError as error:  # about the model or its backend
        raise error.at(draft.text, call.span.start, f"model {target.model.name!r}: ") from None
    return replace(placed, planned=planned)


def _plan_function(
    site: CallSite, shared: SharedParts, call: ModelCall, target: Target
) -> CallInFrom:
    """Plan the call of one of several models that rows name."""
    own_parts = replace(shared, parts=(target.part,))
    return plan_call(replace(site, call=call), target=target, shared=own_parts, by_function=True)


def make_scope(draft: Draft, call: ModelCall) -> Scope:
    """Return the scope of a call, in which calls that are already planned have their final text."""
    local = dict.fromkeys(call.local_names, "NULL")
    return Scope(
        outline=draft.outline,
        block=call.block,
        text=draft.write_part,
        probed=partial(draft.probe_edits.apply, more=local),
        untyped=draft.parameters.untyped | frozenset(call.local_names),
        describe=draft.context.describe,
        dialect=draft.dialect,
        types=draft.parameters.types,
    )


def _find_counted_scope(draft: Draft, scope: Scope) -> Scope:
    """Return the scope whose rows are counted for a call, which may decide how its function runs.

    For calls in the output of a query that groups, and in its subqueries, it is that query, since
    they must be written alike.
    """
    block = scope.block
    if block is None or block.output not in draft.outline.comparing_outputs:
        return scope
    while block.span != block.output and block.parent is not None:
        block = block.parent
    return replace(scope, block=block)


def _write_probe(
    draft: Draft, call: ModelCall, placed: CallInFrom, call_sql: str, has_calls: bool
) -> str:
    """Return the replacement of a call, maybe around others, in the probe of a widened FROM."""
    if placed.column is not None:
        return call_sql
    probe = draft.nulls[call]
    # An expression must also bind to the changed FROM.
    if not placed.planned.calls_function and not has_calls:
        probe = f"CASE WHEN ({placed.planned.sql}) IS NULL THEN {probe} ELSE {probe} END"
    if placed.row is not None:
        probe = f"CASE WHEN {placed.row.name} IS NULL THEN NULL ELSE {probe} END"
    return probe
