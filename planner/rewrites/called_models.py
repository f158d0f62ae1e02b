"""`called_models`: what each call computes: its model, one of its outputs, and one class of
that."""

from __future__ import annotations

from dataclasses import replace

from sqlml.errors import BindError, MissingOutputError
from sqlml.planner.binding.models_of_rows import models_of_rows
from sqlml.planner.binding.probe_queries import ProbeError
from sqlml.planner.binding.refused_places import refuse_place
from sqlml.planner.binding.requested_output import target_of
from sqlml.planner.rewrites.draft import Draft
from sqlml.planner.syntax.outline import ModelCall, ModelColumn
from sqlml.planner.syntax.splice import inner_first

_DEEP = 200
"""Brackets around a call from which on the engine is asked first whether it takes so many."""


def called_models(draft: Draft) -> Draft:
    """The statement with its calls of models; with none, if it is better left to the engine.

    Raises:
        BindError, UnknownModelError: a call of an unknown model, output or class.
    """
    text, given, context = draft.text, draft.given, draft.context
    for call in draft.outline.calls:
        if call.background is not None and draft.outline.kept:
            raise BindError(
                "a view, macro or prepared statement cannot have background rows, since they are "
                "read at planning; put background := in the query that uses it",
                text,
                call.background.start,
            )
    made = draft
    for call in inner_first(draft.outline.calls):
        if isinstance(call.model, ModelColumn):
            made = _with_models(made, call, call.model)
            continue
        target = target_of(call, text, given, context)
        if target is not None:
            made = replace(made, targets={**made.targets, call: target})
    if not made.targets:
        return made
    used = [parameter for call in made.targets for parameter in call.planned_with]
    made = replace(made, given=given.using(used))
    return draft if _is_too_deep(made) else made


def _with_models(draft: Draft, call: ModelCall, column: ModelColumn) -> Draft:
    """The statement with the models of a call whose rows name them; NULL where there are no rows.

    Raises:
        BindError, UnknownModelError: as `models_of_rows` says.
    """
    context = draft.context
    starred = any(argument.star is not None for argument in call.arguments)
    if not starred and context.is_user_function(call.function):
        return draft
    refuse_place(call, draft.text, context)
    named = None
    try:
        named = models_of_rows(call, column, draft.outline, draft.given, context, draft.nulls)
    except MissingOutputError:
        if draft.written_out is None or not draft.written_out.added(call.span.start):
            raise
    if named is None:
        return replace(draft, edits={**draft.edits, call.span: "NULL"})
    target = next(iter(named.targets.values()))
    return replace(
        draft,
        targets={**draft.targets, call: target},
        named={**draft.named, call: named},
    )


def _is_too_deep(draft: Draft) -> bool:
    """Whether the engine's parser refuses the statement for its depth: planning would take long.

    Raises:
        BindError: its binder does.
    """
    if max(call.depth + call.queries for call in draft.targets) <= _DEEP:
        return False
    try:
        draft.context.describe(draft.probe)
    except ProbeError as error:
        message = str(error)
        if "expression depth" not in message:
            return False  # no query, or an error that is told better where it is
        if message.startswith("Parser"):
            return True
        raise BindError(message) from None
    return False
