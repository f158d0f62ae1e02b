"""`planned_calls`: each call becomes SQL, in its place and, where a rule lets it, in FROM."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from itertools import pairwise

from sqlml.errors import SqlmlError, StatementError
from sqlml.planner.binding.bind import other_columns
from sqlml.planner.binding.context import rows_of
from sqlml.planner.binding.probe_queries import Scope
from sqlml.planner.binding.requested_output import Target
from sqlml.planner.plan.plan_call import PlacedCall, plan_call
from sqlml.planner.plan.plan_named import plan_named
from sqlml.planner.program.prepare import Shared
from sqlml.planner.rewrites.draft import Draft
from sqlml.planner.rewrites.table_form import refuse_hidden
from sqlml.planner.rewrites.widened_from import MadeInFrom
from sqlml.planner.syntax.outline import CALLS, ModelCall, column_names, inner_first


def planned_calls(draft: Draft) -> Draft:
    """The statement with its calls as they run, those first on which others depend.

    Raises:
        BindError and its kin: an argument of a call does not fit.
        ConfigError, BackendError: a model's options, or the session's, ask for what cannot be.
    """
    numbers = draft.given.renumbered(draft.has_parameters_in_calls)
    plans = _Plans(replace(draft, edits={**numbers, **draft.edits}))
    for call in inner_first(draft.targets):
        plans.add(call)
    draft = plans.draft
    named = column_names(draft.text, draft.written, draft.context.column_name, draft.dialect)
    return replace(draft, names=named)


class _Plans:
    """The calls of a statement that are planned so far.

    What the draft says of them grows in place: a copy for each call would make planning quadratic.
    """

    def __init__(self, draft: Draft) -> None:
        self._planned = dict(draft.planned)
        self._written = dict(draft.written)
        self._probes = dict(draft.probes)
        self._in_from = dict(draft.in_from)
        self.draft = replace(
            draft,
            planned=self._planned,
            written=self._written,
            probes=self._probes,
            in_from=self._in_from,
        )
        self._parts = self.draft.parts()
        self._outer_calls = _outer_calls(draft.targets)

    def add(self, call: ModelCall) -> None:
        """Plan one more call, in a statement with those that were added before."""
        draft = self.draft
        scope = replace(scope_of(draft, call), text=self._parts.text)
        made = _placed(draft, call, scope)
        if made is None:
            return
        written = made.planned.sql + draft.targets[call].key
        if call in draft.negated:
            written = draft.dialect.negated(written)
        self._planned[call], self._written[call] = made.planned, written
        self._probes[call] = _probe(draft, call, made, written, call in self._outer_calls)
        self._parts.put({call.span: written}, CALLS)
        self._add_to_from(call, made, scope)

    def _add_to_from(self, call: ModelCall, made: PlacedCall, scope: Scope) -> None:
        """Let FROM make what a call has there."""
        draft = self.draft
        source = draft.models_from.get(call) or draft.rows_from.get(call)
        if source is None or (made.row is None and made.column is None):
            return
        clause = self._in_from.get(source)
        if clause is None:
            clause = MadeInFrom.of(source, draft.dialect, scope.text, scope.probed)
        else:
            for layer, texts in clause.texts(draft.filters_first).items():
                self._parts.remove(texts, layer)
        self._in_from[source] = clause = clause.adding(made.row, made.column)
        for layer, texts in clause.texts(draft.filters_first).items():
            self._parts.put(texts, layer)


def _outer_calls(calls: Iterable[ModelCall]) -> frozenset[ModelCall]:
    """Return the calls that have others in them."""
    ordered = sorted(calls, key=lambda call: (call.span.start, -call.span.end))
    return frozenset(a for a, b in pairwise(ordered) if a.span.holds(b.span))


def _placed(draft: Draft, call: ModelCall, scope: Scope) -> PlacedCall | None:
    """Plan a call; None for one that the engine does not bind."""
    if draft.written_out is not None and draft.written_out.added(call.span.start):
        refuse_hidden(draft.outline, call, other_columns(call, (), scope), draft.dialect)
    target, shared = draft.targets[call], draft.together(call)
    plan = partial(
        plan_call,
        call=call,
        scope=scope,
        context=draft.context,
        rows=rows_of(call, _counted(draft, scope)),
    )
    try:
        named = draft.named.get(call)
        if named is not None:
            one = partial(_by_function, plan, shared)
            made = plan_named(call, target, named, scope, one, sorts=call in draft.models_from)
        else:
            made = plan(target=target, shared=shared, row_in_from=call in draft.rows_from)
        planned = replace(made.planned, exact=draft.exact.get(call, ""))
        if (cascade := draft.cascades.get(call)) is not None:
            before = replace(target, model=replace(target.model, program=cascade.small))
            small = plan(target=before, shared=shared, row_in_from=False).planned
            planned = planned.after(small, cascade.facts)
    except StatementError:
        if call.unused:
            return None
        raise
    except SqlmlError as error:  # what the model is, or is asked to run on
        raise error.at(draft.text, call.span.start, f"model {target.model.name!r}: ") from None
    return replace(made, planned=planned)


def _by_function(
    plan: Callable[..., PlacedCall], shared: Shared, call: ModelCall, target: Target
) -> PlacedCall:
    """The call of one of several models that rows name."""
    own = replace(shared, parts=(target.part,))
    return plan(call=call, target=target, shared=own, row_in_from=False, by_function=True)


def scope_of(draft: Draft, call: ModelCall) -> Scope:
    """Where the call stands, with the calls that are planned already as they are written now."""
    local = dict.fromkeys(call.local, "NULL")
    return Scope(
        outline=draft.outline,
        block=call.block,
        text=draft.part,
        probed=partial(draft.probed_parts.text, more=local),
        untyped=draft.given.untyped() | frozenset(call.local),
        describe=draft.context.describe,
        dialect=draft.dialect,
        types=draft.given.types,
    )


def _counted(draft: Draft, scope: Scope) -> Scope:
    """Return where rows are counted for a call: the number may decide how its function runs.

    In the output of a query that groups that is this query, also for calls in its subqueries, which
    are written like its own.
    """
    block = scope.block
    if block is None or block.output not in draft.outline.comparing:
        return scope
    while block.span != block.output and block.parent is not None:
        block = block.parent
    return replace(scope, block=block)


def _probe(draft: Draft, call: ModelCall, made: PlacedCall, written: str, has_calls: bool) -> str:
    """Return what stands for the call where the engine is asked whether columns in FROM bind.

    has_calls: others stand in it.
    """
    if made.column is not None:
        return written
    probe = draft.nulls[call]
    # An expression must bind, too, where FROM is another one.
    if not made.planned.calls_function and not has_calls:
        probe = f"CASE WHEN ({made.planned.sql}) IS NULL THEN {probe} ELSE {probe} END"
    if made.row is not None:
        probe = f"CASE WHEN {made.row.name} IS NULL THEN NULL ELSE {probe} END"
    return probe
