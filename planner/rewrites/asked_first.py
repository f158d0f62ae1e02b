"""Helpers of the rules about small models: calls as `syntax/top_k.py` needs them, and calls of
small models in other blocks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from sqlml.parsing.places import Span
from sqlml.planner.binding.column_types import Bound
from sqlml.planner.binding.context import find_row_queries
from sqlml.planner.binding.probe_queries import ProbeError
from sqlml.planner.plan.plan import PlannedCall
from sqlml.planner.plan.plan_call import plan_call
from sqlml.planner.program.prepare import SharedParts
from sqlml.planner.rewrites.draft import Draft
from sqlml.planner.rewrites.planned_calls import make_scope
from sqlml.planner.syntax.outline import ModelCall
from sqlml.planner.syntax.top_k import CascadedCall


def query_text(draft: Draft) -> str | None:
    """Return the statement's query, with blanks instead of a prefix such as INSERT INTO, so that
    offsets stay valid.

    Returns None if the statement has no query.
    """
    prefix = draft.outline.prefix
    if prefix is None:
        return None
    blank = " " * (prefix.end - prefix.start)
    return draft.text[: prefix.start] + blank + draft.text[prefix.end :]


def describe_cascaded_call(
    call: ModelCall, planned: PlannedCall, small_features: frozenset[str]
) -> CascadedCall | None:
    """Return a call with its features, and those of its small model."""
    if call.block is None:
        return None
    features = {name: bound.sql for name, bound in planned.reads}
    return CascadedCall(call.span, call.block.span, features, small_features)


def list_reads(draft: Draft, excluded: frozenset[ModelCall]) -> list[tuple[Span, str]]:
    """Return the expressions that all calls but the `excluded` read, each with its block."""
    return [
        (call.block.span, bound.sql)
        for call, planned in draft.planned.items()
        if call not in excluded and call.block is not None
        for _, bound in planned.reads
    ]


def columns_of(draft: Draft, query: str) -> list[str]:
    """Return the names of a query's columns; raise ValueError if the engine cannot bind it."""
    try:
        return [column.name for column in draft.context.describe(query)]
    except ProbeError as error:
        raise ValueError(str(error)) from None


def plan_small_call(
    draft: Draft, call: ModelCall, features: Mapping[str, str], small: PlannedCall
) -> PlannedCall:
    """Plan the call of a small model over `features`, its features in another block.

    Args:
        small: the same call in the block of the full model's call.
    """
    target, scope = draft.targets[call], make_scope(draft, call)
    program = small.source
    assert program is not None
    placed = plan_call(
        call=call,
        target=replace(
            target,
            model=replace(target.model, program=program),
            output=small.spec.parts[0].output,
            chosen=target.chosen if small.spec.parts[0].output == target.output else None,
        ),
        shared=SharedParts(parts=small.spec.parts),
        scope=scope,
        context=draft.context,
        rows=find_row_queries(call, scope),
        row_in_from=False,
        bounds={name: Bound(features[name], bound.type) for name, bound in small.reads},
    )
    return placed.planned


def write_stand_in(features: Mapping[str, str]) -> str:
    """Return an expression that replaces a small model in probes, since its function is not
    registered yet.
    """
    nulls = " OR ".join(f"({feature}) IS NULL" for feature in features.values()) or "false"
    return f"CASE WHEN {nulls} THEN NULL END"


def binds(draft: Draft, probes: Mapping[Span, str]) -> bool:
    """Return whether the engine binds the statement with `probes` to the same columns as without
    them.
    """
    prefix = {} if draft.outline.prefix is None else {draft.outline.prefix: ""}
    describe = draft.context.describe
    try:
        return describe(draft.write_probe(edits=prefix)) == describe(
            draft.write_probe(edits={**prefix, **probes})
        )
    except ProbeError:
        return False
