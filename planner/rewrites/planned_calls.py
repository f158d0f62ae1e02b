"""The rule `planned_calls`: each call becomes SQL, either at its position or in FROM."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from itertools import pairwise

from sqlml.errors import BindError, SqlmlError, StatementError
from sqlml.planner.binding.bind import find_other_columns
from sqlml.planner.binding.context import make_row_estimate
from sqlml.planner.binding.probe_queries import ProbeError, Scope
from sqlml.planner.binding.requested_output import Target
from sqlml.planner.plan.call_draft import CallSite
from sqlml.planner.plan.plan_call import CallInFrom, plan_call
from sqlml.planner.plan.plan_named import plan_named_call
from sqlml.planner.program.prepare_program import SharedParts
from sqlml.planner.rewrites.draft import Draft
from sqlml.planner.rewrites.shared_calls import sorts_rows
from sqlml.planner.rewrites.short_probes import ShortProbes
from sqlml.planner.rewrites.table_form import check_new_column
from sqlml.planner.rewrites.widened_from import WidenedSource
from sqlml.planner.syntax.arguments import find_literals
from sqlml.planner.syntax.outline import (
    CALLS,
    ModelCall,
    WidenableSource,
    make_missing_aliases,
    sort_inner_first,
)


def planned_calls(draft: Draft) -> Draft:
    """Plan all calls, each after the calls on which it depends."""
    parameter_edits = draft.parameters.renumber_positional(draft.has_parameters_in_calls)
    planner = _CallPlanner(replace(draft, edits={**parameter_edits, **draft.edits}))
    for call in sort_inner_first(draft.targets):
        planner.plan(call)
    call_sql, column_name = planner.draft.call_sql, draft.context.column_name
    aliases = make_missing_aliases(draft.text, call_sql, column_name, draft.dialect)
    return replace(planner.draft, column_aliases=aliases)


class _CallPlanner:
    """A planner that plans the calls of a statement one by one.

    The mappings of `draft` grow in place, since copies would make planning quadratic in the number
    of calls.
    """

    def __init__(self, draft: Draft) -> None:
        self._planned_calls, self._call_sql = dict(draft.planned), dict(draft.call_sql)
        self._probes, self._widened_sources = dict(draft.call_probes), dict(draft.widened_sources)
        self.draft = replace(
            draft,
            planned=self._planned_calls,
            call_sql=self._call_sql,
            call_probes=self._probes,
            widened_sources=self._widened_sources,
        )
        self._edits, self._short_probes = self.draft.collect_edits(), ShortProbes(self.draft)
        self._nesting_calls = _find_nesting_calls(draft.targets)

    def plan(self, call: ModelCall) -> None:
        """Plan a call, and add the SQL, the probe and the columns in FROM to the draft."""
        draft = self.draft
        local_nulls = dict.fromkeys(call.local_names, "NULL")
        probed = partial(self._short_probes.build, extra=local_nulls)
        scope = replace(make_scope(draft, call), text=self._edits.apply, probed=probed)
        call_in_from = _plan_call(draft, call, scope)
        if call_in_from is None:
            return
        call_sql = call_in_from.planned.sql + draft.targets[call].key
        if call in draft.negated_calls:
            call_sql = draft.dialect.negated(call_sql)
        _reject_literal_keys(draft, call, call_sql)
        self._planned_calls[call], self._call_sql[call] = call_in_from.planned, call_sql
        has_calls = call in self._nesting_calls
        self._probes[call] = _build_probe_sql(draft, call, call_in_from, call_sql, has_calls)
        self._edits.add({call.span: call_sql}, CALLS)
        self._widen_source(call, call_in_from, scope)

    def _widen_source(self, call: ModelCall, call_in_from: CallInFrom, scope: Scope) -> None:
        draft = self.draft
        source = draft.model_source_of.get(call) or draft.row_source_of.get(call)
        if source is None or (call_in_from.row is None and call_in_from.column is None):
            return
        widened_source = self._widened_sources.get(source)
        if widened_source is None:
            texts, needs_order = (scope.text, scope.probed), _needs_order(draft, source)
            widened_source = WidenedSource.create(source, draft.dialect, *texts, needs_order)
        else:
            for layer, edits in widened_source.build_edits(draft.filters_first).items():
                self._edits.remove(edits, layer)
        widened_source = widened_source.with_columns(call_in_from.row, call_in_from.column)
        self._widened_sources[source] = widened_source
        for layer, edits in widened_source.build_edits(draft.filters_first).items():
            self._edits.add(edits, layer)


def _reject_literal_keys(draft: Draft, call: ModelCall, call_sql: str) -> None:
    """Raise BindError if grouping sets replace a literal in the SQL of a call by NULL."""
    if call.block is None or not call.block.literal_keys:
        return
    literals = find_literals(call_sql, draft.dialect.name)
    for span in call.block.literal_keys:
        key_sql = draft.text[span.start : span.end]
        if find_literals(key_sql, draft.dialect.name) & literals:
            raise BindError(
                f"{key_sql} is a key of grouping sets, and the engine would also replace it in the "
                f"SQL of this call: select {key_sql} in a subquery, and group by its column",
                draft.text,
                call.span.start,
            )


def _needs_order(draft: Draft, source: WidenableSource) -> bool:
    """Return whether rows that are sorted by model need their original order again."""
    if source.aggregates is None or not sorts_rows(draft):
        return True
    if not source.aggregates:
        return False
    # Only aggregates take DISTINCT: a macro or function of the user with such a name does not.
    calls = ", ".join(f"{name}(DISTINCT 1)" for name in sorted(source.aggregates))
    try:
        draft.context.describe(f"SELECT {calls}")
    except ProbeError:
        return True
    return False


def _find_nesting_calls(calls: Iterable[ModelCall]) -> frozenset[ModelCall]:
    ordered = sorted(calls, key=lambda call: (call.span.start, -call.span.end))
    return frozenset(outer for outer, inner in pairwise(ordered) if outer.span.contains(inner.span))


def _plan_call(draft: Draft, call: ModelCall, scope: Scope) -> CallInFrom | None:
    """Plan a call, or return None for an invalid call in a CTE that nothing reads."""
    if draft.expanded is not None and draft.expanded.is_generated(call.span.start):
        check_new_column(draft, call, find_other_columns(call, (), scope))
    target, shared = draft.targets[call], draft.find_shared(call)
    row_estimate = make_row_estimate(call, _find_estimate_scope(draft, call))
    site = CallSite(call, scope, draft.context, row_estimate)
    try:
        models = draft.models_of_rows.get(call)
        if models is not None:
            plan_single = partial(_plan_call_of_one_model, site, shared)
            sorts = call in draft.model_source_of
            call_in_from = plan_named_call(call, target, models, scope, plan_single, sorts=sorts)
        else:
            in_from = call in draft.row_source_of
            call_in_from = plan_call(site, target=target, shared=shared, row_in_from=in_from)
        planned = replace(call_in_from.planned, exact_reason=draft.exact_reasons.get(call, ""))
        if (cascade := draft.cascades.get(call)) is not None:
            small_target = replace(target, model=replace(target.model, program=cascade.small))
            small_call = plan_call(site, target=small_target, shared=shared).planned
            planned = planned.with_cascade(small_call, cascade.facts)
    except StatementError:
        if call.in_unused_cte:
            return None
        raise
    except SqlmlError as error:  # The error is about the model or its backend.
        raise error.at(draft.text, call.span.start, f"model {target.model.name!r}: ") from None
    return replace(call_in_from, planned=planned)


def _plan_call_of_one_model(
    site: CallSite, shared: SharedParts, call: ModelCall, target: Target
) -> CallInFrom:
    """Plan a call for the model of `target`, which is one of the models that the rows name."""
    own_parts = replace(shared, parts=(target.part,))
    return plan_call(replace(site, call=call), target=target, shared=own_parts, by_function=True)


def make_scope(draft: Draft, call: ModelCall) -> Scope:
    """Return the scope of a call, in which SQL replaces the calls that are already planned."""
    local_nulls = dict.fromkeys(call.local_names, "NULL")
    return Scope(
        outline=draft.outline,
        block=call.block,
        text=draft.build_part,
        probed=partial(draft.probe_edits.apply, extra=local_nulls),
        untyped=draft.parameters.untyped | frozenset(call.local_names),
        describe=draft.context.describe,
        dialect=draft.dialect,
        types=draft.parameters.types,
    )


def _find_estimate_scope(draft: Draft, call: ModelCall) -> Scope:
    """Return the scope in which to estimate the number of rows for a call.

    The number may decide how the call is written. All calls in the output of a query that groups
    must be written alike, so they share the scope of that query.
    """
    scope = make_scope(draft, call)
    block = scope.block
    if block is None or block.output not in draft.outline.comparing_outputs:
        return scope
    while block.span != block.output and block.parent is not None:
        block = block.parent
    return replace(scope, block=block)


def _build_probe_sql(
    draft: Draft, call: ModelCall, call_in_from: CallInFrom, call_sql: str, has_calls: bool
) -> str:
    """Build the SQL that replaces a call in a probe whose FROM computes columns."""
    if call_in_from.column is not None:
        return call_sql
    probe_sql = draft.nulls[call]
    # A call that became an expression stays in the probe, since it must bind to the changed FROM.
    if not call_in_from.planned.calls_function and not has_calls:
        probe_sql = (
            f"CASE WHEN ({call_in_from.planned.sql}) IS NULL THEN {probe_sql} ELSE {probe_sql} END"
        )
    if call_in_from.row is not None:
        probe_sql = f"CASE WHEN {call_in_from.row.name} IS NULL THEN NULL ELSE {probe_sql} END"
    return probe_sql
