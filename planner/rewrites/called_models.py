"""`called_models`: what each call computes: its model, one of its outputs, and one class of
that."""

from __future__ import annotations

from dataclasses import replace

from sqlml.errors import BindError
from sqlml.planner.binding.probe_queries import ProbeError
from sqlml.planner.binding.requested_output import target_of
from sqlml.planner.rewrites.draft import Draft

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
    found = {call: target_of(call, text, given, context) for call in draft.outline.calls}
    targets = {call: target for call, target in found.items() if target is not None}
    if not targets:
        return draft
    used = [parameter for call in targets for parameter in call.planned_with]
    made = replace(draft, targets=targets, given=given.using(used))
    return draft if _is_too_deep(made) else made


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
