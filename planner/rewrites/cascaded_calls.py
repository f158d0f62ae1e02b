"""The rules `called_models` and `cascaded_calls`: the target of each call, and the small model that
the call runs first.

::

    SELECT predict('m', *, approximate := true) FROM t
    SELECT coalesce(small(...), full(...)) FROM t

The engine evaluates the later arguments of a coalesce only for rows of which the small model is not
sure (Willump, figure 3). A call in ORDER BY may get a top-K filter instead (`top_k_filters.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sqlml.catalog.small_models import Cascade, TopKFilter
from sqlml.errors import BindError, MissingOutputError
from sqlml.planner.binding.models_of_rows import read_models_of_rows
from sqlml.planner.binding.probe_queries import ProbeError
from sqlml.planner.binding.requested_output import Target, check_position, find_target
from sqlml.planner.program.choose import may_approximate
from sqlml.planner.rewrites.draft import Draft
from sqlml.planner.syntax.outline import ModelCall, ModelColumn, sort_inner_first

_DEEP_NESTING = 200
"""The depth of a call above which the engine is asked whether it accepts the statement."""


def called_models(draft: Draft) -> Draft:
    """Find the target of each call: the model and the output of the model that the call returns.

    Returns the same draft if the engine's parser rejects the statement because it nests too deeply.
    """
    sql, parameters, context = draft.text, draft.parameters, draft.context
    for call in draft.outline.calls:
        if call.background is not None and draft.outline.is_stored:
            message = (
                "a view, macro or prepared statement cannot have background rows, since they are "
                "read at planning; put background := in the query that uses it"
            )
            raise BindError(message, sql, call.background.start)
    new_draft = draft
    for call in sort_inner_first(draft.outline.calls):
        if isinstance(call.model, ModelColumn):
            new_draft = _add_models_of_rows(new_draft, call, call.model)
            continue
        target = find_target(call, sql, parameters, context)
        if target is not None:
            new_draft = replace(new_draft, targets={**new_draft.targets, call: target})
    if not new_draft.targets:
        return new_draft
    new_draft = replace(new_draft, targets=_leave_compared_keys(new_draft))
    new_draft = replace(new_draft, targets=_share_calibrations(new_draft))
    consumed = [parameter for call in new_draft.targets for parameter in call.planning_parameters]
    consumed += [
        call.coverage.parameter
        for call, target in new_draft.targets.items()
        if target.coverage is not None and call.coverage is not None and call.coverage.parameter
    ]
    new_draft = replace(new_draft, parameters=parameters.consume(consumed))
    return draft if _is_too_deep(new_draft) else new_draft


def _leave_compared_keys(draft: Draft) -> Mapping[ModelCall, Target]:
    """Leave keys to the engine in queries that also group by the whole result.

    It compares `predict_proba('m', *)` with that part of `predict_proba('m', *)['yes']`.
    """

    def identify_result(call: ModelCall, target: Target) -> Any:
        return call.output, target.model.program.hash, target.output

    compared = {
        identify_result(call, target)
        for call, target in draft.targets.items()
        if target.chosen is None and call.output in draft.outline.comparing_outputs
    }
    return {
        call: replace(target, chosen=None, key=draft.text[call.key.span.start : call.key.span.end])
        if call.key is not None
        and not target.key
        and call not in draft.models_of_rows
        and identify_result(call, target) in compared
        else target
        for call, target in draft.targets.items()
    }


def _share_calibrations(draft: Draft) -> Mapping[ModelCall, Target]:
    """Compute predictions with the calibrated Program if a query requests both for the same rows.

    `SELECT predict('m', *), predict_interval('m', *)` then evaluates the model once.
    """
    calibrated = {
        _identify_rows(call, target): target
        for call, target in draft.targets.items()
        if target.coverage is not None and call not in draft.models_of_rows
    }
    if not calibrated:
        return draft.targets
    targets = dict(draft.targets)
    for call, target in draft.targets.items():
        other = calibrated.get(_identify_rows(call, target))
        if (
            other is not None
            and not any(target.variant)
            and _binds_alike(call, target, other)
            and call not in draft.models_of_rows
            and call.approximate is not True
            and target.output in other.model.program.outputs
        ):
            targets[call] = replace(
                target,
                model=other.model,
                coverage=other.coverage,
                coverage_sql=other.coverage_sql,
            )
    return targets


def _binds_alike(call: ModelCall, target: Target, other: Target) -> bool:
    """Return whether a call is valid for the calibrated model only if it is for the model."""
    has_only_stars = all(argument.star is not None for argument in call.arguments)
    return has_only_stars or len(target.model.columns) == len(other.model.columns)


def _identify_rows(call: ModelCall, target: Target) -> Any:
    model = target.model
    span = None if call.block is None else call.block.span
    return model.database, model.name, model.version, span, call.written_arguments


def _add_models_of_rows(draft: Draft, call: ModelCall, column: ModelColumn) -> Draft:
    """Add the models that the rows of a call name, or replace the call by NULL without rows."""
    context = draft.context
    has_star = any(argument.star is not None for argument in call.arguments)
    if not has_star and context.is_user_function(call.function):
        return draft
    check_position(call, draft.text, context)
    models = None
    outline = draft.outline
    try:
        models = read_models_of_rows(call, column, outline, draft.parameters, context, draft.nulls)
    except MissingOutputError:
        if draft.expanded is None or not draft.expanded.is_generated(call.span.start):
            raise
    if models is None:
        return replace(draft, edits={**draft.edits, call.span: "NULL"})
    target = next(iter(models.targets.values()))
    models_of_rows = {**draft.models_of_rows, call: models}
    return replace(draft, targets={**draft.targets, call: target}, models_of_rows=models_of_rows)


def _is_too_deep(draft: Draft) -> bool:
    """Return whether the engine's parser rejects the statement because it nests too deeply.

    Planning such a statement would be slow. Raises BindError if the engine's binder rejects it.
    """
    if max(call.depth + call.queries for call in draft.targets) <= _DEEP_NESTING:
        return False
    try:
        draft.context.describe(draft.probe)
    except ProbeError as error:
        message = str(error)
        if "expression depth" not in message:
            return False  # Not a query, or its error is reported better later.
        if message.startswith("Parser"):
            return True
        raise BindError(message) from None
    return False


def cascaded_calls(draft: Draft) -> Draft:
    """Add the small model that each call runs first, or the reason why it runs no small model."""
    choices = {
        call: _choose_small_model(draft, target)
        for call, target in draft.targets.items()
        if call not in draft.models_of_rows
        and may_approximate({**target.model.options, **draft.context.settings}, call.approximate)
    }
    if not choices:
        return draft
    return replace(
        draft,
        cascades={call: small for call, small in choices.items() if isinstance(small, Cascade)},
        filters={call: small for call, small in choices.items() if isinstance(small, TopKFilter)},
        exact_reasons={call: reason for call, reason in choices.items() if isinstance(reason, str)},
    )


def _choose_small_model(draft: Draft, target: Target) -> Cascade | TopKFilter | str:
    """Return the small model that a call may run first, or the reason why there is none."""
    if not draft.dialect.lazy_calls:
        return "this engine evaluates both models for every row"
    if target.trees is not None:
        return "the small model was learned for all trees"
    model = target.model
    small_models = draft.context.small_models(model)
    cascade, top_k_filter = small_models.get("cascade"), small_models.get("top_k")
    if target.output == "label" and model.program.labels:
        if isinstance(cascade, Cascade):
            return cascade
        return f"version {model.version} has no cascade: ALTER MODEL .. ADD CASCADE"
    if not isinstance(top_k_filter, TopKFilter):
        reason = f"version {model.version} has no top-K filter for its order"
        return f"{reason}: ALTER MODEL .. ADD TOP_K FILTER"
    if not _ranks_like_call(top_k_filter, target):
        return "the top-K filter ranks rows by another class or output"
    return top_k_filter


def _ranks_like_call(top_k_filter: TopKFilter, target: Target) -> bool:
    ranking, program = top_k_filter.facts, target.model.program
    if target.output == ranking.output:
        return ranking.output == "label" or target.column == ranking.column
    if target.output != "score" or ranking.output != "proba" or len(program.labels) != 1:
        return False
    # Only with two classes does the score rise with the second class's probability.
    has_two_classes = len(program.labels[0]) == 2 and program.output_type("score").width == 1
    return has_two_classes and ranking.column == 1
