"""`cascaded_calls`: calls that may be approximated ask a small model first.

::

    SELECT predict('m', *, approximate := true) FROM t
    SELECT coalesce(small(..), full(..)) FROM t

The engine evaluates what follows in a coalesce, arguments included, only for the rows of which the
small model is not sure (Willump, figure 3). What is ordered by a number or a probability may have a
top-K filter (`top_k_filters.py`).
"""

from __future__ import annotations

from dataclasses import replace

from sqlml.catalog.small_models import Cascade, TopKFilter
from sqlml.errors import BindError, MissingOutputError
from sqlml.planner.binding.models_of_rows import models_of_rows
from sqlml.planner.binding.probe_queries import ProbeError
from sqlml.planner.binding.requested_output import Target, refuse_place, target_of
from sqlml.planner.program.choose import may_approximate
from sqlml.planner.rewrites.draft import Draft
from sqlml.planner.syntax.outline import ModelCall, ModelColumn, inner_first

# `called_models`: what each call computes: its model, one of its outputs, and one class of
# that.


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


def cascaded_calls(draft: Draft) -> Draft:
    """The statement with the small models before its calls, or why a call that asks for one has
    none."""
    cascades: dict[ModelCall, Cascade] = {}
    filters: dict[ModelCall, TopKFilter] = {}
    exact: dict[ModelCall, str] = {}
    for call, target in draft.targets.items():
        model = target.model
        if call in draft.named:
            continue
        if not may_approximate({**model.options, **draft.context.settings}, call.approximate):
            continue
        if not draft.dialect.lazy_calls:
            exact[call] = "this engine evaluates both models for every row"
            continue
        small = draft.context.small_models(model)
        cascade, filtering = small.get("cascade"), small.get("top_k")
        if target.output == "label" and model.program.labels:
            if isinstance(cascade, Cascade):
                cascades[call] = cascade
            else:
                exact[call] = f"version {model.version} has no cascade: ALTER MODEL .. ADD CASCADE"
        elif not isinstance(filtering, TopKFilter):
            exact[call] = (
                f"version {model.version} has no top-K filter for its order: ALTER MODEL .. ADD "
                "TOP_K FILTER"
            )
        elif not _is_of(filtering, target):
            exact[call] = "the top-K filter is for the order by another class or output"
        else:
            filters[call] = filtering
    if not (cascades or filters or exact):
        return draft
    return replace(draft, cascades=cascades, filters=filters, exact=exact)


def _is_of(filtering: TopKFilter, target: Target) -> bool:
    """Whether a filter is for the order that a call makes."""
    facts, program = filtering.facts, target.model.program
    if target.output == facts.output:
        return facts.output == "label" or target.column == facts.column
    if target.output != "score" or facts.output != "proba" or len(program.labels) != 1:
        return False  # of two classes the score rises with the second one's probability
    return len(program.labels[0]) == 2 and program.output_type("score").width == 1 == facts.column
