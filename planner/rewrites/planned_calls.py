"""`planned_calls`: each call becomes SQL, in its place and, where a rule lets it, in FROM."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from sqlml.errors import SqlmlError, StatementError
from sqlml.planner.binding.bind import other_columns
from sqlml.planner.binding.estimated_rows import rows_of
from sqlml.planner.binding.requested_output import Target
from sqlml.planner.binding.scope import Scope
from sqlml.planner.call.plan_call import PlacedCall, plan_call
from sqlml.planner.call.plan_named import plan_named
from sqlml.planner.program.shared import Shared
from sqlml.planner.rewrites.added_columns import MadeInFrom
from sqlml.planner.rewrites.draft import Draft
from sqlml.planner.rewrites.table_form import refuse_hidden
from sqlml.planner.rewrites.widened_from import Source
from sqlml.planner.syntax.column_names import column_names
from sqlml.planner.syntax.outline import ModelCall
from sqlml.planner.syntax.splice import inner_first, splice


def planned_calls(draft: Draft) -> Draft:
    """The statement with its calls as they run, those first on which others depend.

    Raises:
        BindError and its kin: an argument of a call does not fit.
        ConfigError, BackendError: a model's options, or the session's, ask for what cannot be.
    """
    numbers = draft.given.renumbered(draft.has_parameters_in_calls)
    draft = replace(draft, edits={**numbers, **draft.edits})
    for call in inner_first(draft.targets):
        draft = _with_call(draft, call)
    named = column_names(draft.text, draft.written, draft.context.column_name, draft.dialect)
    return replace(draft, names=named)


def _with_call(draft: Draft, call: ModelCall) -> Draft:
    """The statement with one more of its calls planned."""
    scope = scope_of(draft, call)
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
            return draft  # the engine does not bind it
        raise
    except SqlmlError as error:  # what the model is, or is asked to run on
        raise error.at(draft.text, call.span.start, f"model {target.model.name!r}: ") from None
    sql = planned.sql + target.key
    written = draft.dialect.negated(sql) if call in draft.negated else sql
    return replace(
        draft,
        planned={**draft.planned, call: planned},
        written={**draft.written, call: written},
        probes={**draft.probes, call: _probe(draft, call, made, written)},
        in_from=_in_from(draft, call, made, scope),
    )


def _by_function(
    plan: Callable[..., PlacedCall], shared: Shared, call: ModelCall, target: Target
) -> PlacedCall:
    """The call of one of several models that rows name."""
    own = replace(shared, parts=(target.part,))
    return plan(call=call, target=target, shared=own, row_in_from=False, by_function=True)


def scope_of(draft: Draft, call: ModelCall) -> Scope:
    """Where the call stands, with the calls that are planned already as they are written now."""
    blanks = {**draft.given.as_nulls(), **dict.fromkeys(call.local, "NULL")}
    return Scope(
        outline=draft.outline,
        block=call.block,
        text=draft.part,
        probed=partial(splice, draft.text, draft.nulls, blanks),
        untyped=draft.given.untyped() | frozenset(call.local),
        describe=draft.context.describe,
        dialect=draft.dialect,
        types=draft.given.types(),
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


def _probe(draft: Draft, call: ModelCall, made: PlacedCall, written: str) -> str:
    """What stands for the call where the engine is asked whether columns in FROM bind."""
    if made.column is not None:
        return written
    probe = draft.nulls[call]
    inner = any(c is not call and call.span.holds(c.span) for c in draft.targets)
    if not made.planned.calls_function and not inner:  # it must bind, too, where FROM is another
        probe = f"CASE WHEN ({made.planned.sql}) IS NULL THEN {probe} ELSE {probe} END"
    if made.row is not None:
        probe = f"CASE WHEN {made.row.name} IS NULL THEN NULL ELSE {probe} END"
    return probe


def _in_from(
    draft: Draft, call: ModelCall, made: PlacedCall, scope: Scope
) -> dict[Source, MadeInFrom]:
    """The FROM clauses that make columns, with those for one more call."""
    source = draft.models_from.get(call) or draft.rows_from.get(call)
    if source is None or (made.row is None and made.column is None):
        return dict(draft.in_from)
    clause = draft.in_from.get(source)
    if clause is None:
        clause = MadeInFrom.of(source, draft.dialect, scope.text, scope.probed)
    return {**draft.in_from, source: clause.adding(made.row, made.column)}
