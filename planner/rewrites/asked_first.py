"""What the rules about small models have in common: the calls as `syntax/` looks at them, and the
call of a small model in another block."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from sqlml.parsing.places import Span
from sqlml.planner.binding.column_types import Bound
from sqlml.planner.binding.context import rows_of
from sqlml.planner.binding.probe_queries import ProbeError
from sqlml.planner.plan.plan import PlannedCall
from sqlml.planner.plan.plan_call import plan_call
from sqlml.planner.program.prepare import Shared
from sqlml.planner.rewrites.draft import Draft
from sqlml.planner.rewrites.planned_calls import scope_of
from sqlml.planner.syntax.outline import ModelCall
from sqlml.planner.syntax.top_k import Cascaded


def statement_text(draft: Draft) -> str | None:
    """The statement's query, with blanks for INSERT INTO, CREATE .. AS and the like before it, so
    that places stay the same; None if the statement has no query."""
    prefix = draft.outline.prefix
    if prefix is None:
        return None
    blank = " " * (prefix.end - prefix.start)
    return draft.text[: prefix.start] + blank + draft.text[prefix.end :]


def as_cascaded(call: ModelCall, planned: PlannedCall, small: frozenset[str]) -> Cascaded | None:
    """A call with what it reads, and what of that its small model reads."""
    if call.block is None:
        return None
    reads = {name: bound.sql for name, bound in planned.reads}
    return Cascaded(call.span, call.block.span, reads, small)


def read_by(draft: Draft, apart: frozenset[ModelCall]) -> list[tuple[Span, str]]:
    """What all calls read but those `apart`: blocks, and expressions in them."""
    return [
        (call.block.span, bound.sql)
        for call, planned in draft.planned.items()
        if call not in apart and call.block is not None
        for _, bound in planned.reads
    ]


def columns_of(draft: Draft, query: str) -> list[str]:
    """The names of a query's columns. Raises ValueError if the engine cannot bind it."""
    try:
        return [column.name for column in draft.context.describe(query)]
    except ProbeError as error:
        raise ValueError(str(error)) from None


def small_call(
    draft: Draft, call: ModelCall, features: Mapping[str, str], small: PlannedCall
) -> PlannedCall:
    """The call of a small model over `features`, its features in another block.

    Args:
        small: the same call in the block of the full model's.
    """
    target, scope = draft.targets[call], scope_of(draft, call)
    program = small.source
    assert program is not None
    made = plan_call(
        call=call,
        target=replace(
            target,
            model=replace(target.model, program=program),
            output=small.spec.parts[0].output,
            chosen=target.chosen if small.spec.parts[0].output == target.output else None,
        ),
        shared=Shared(parts=small.spec.parts),
        scope=scope,
        context=draft.context,
        rows=rows_of(call, scope),
        row_in_from=False,
        bounds={name: Bound(features[name], bound.type) for name, bound in small.reads},
    )
    return made.planned


def stand_in(features: Mapping[str, str]) -> str:
    """What stands for a small model whose function is not registered yet, for the binder."""
    nulls = " OR ".join(f"({feature}) IS NULL" for feature in features.values()) or "false"
    return f"CASE WHEN {nulls} THEN NULL END"


def binds(draft: Draft, probes: Mapping[Span, str]) -> bool:
    """Whether the engine binds the statement with `probes` to the columns that it has without."""
    prefix = {} if draft.outline.prefix is None else {draft.outline.prefix: ""}
    describe = draft.context.describe
    try:
        return describe(draft.probed(edits=prefix)) == describe(
            draft.probed(edits={**prefix, **probes})
        )
    except ProbeError:
        return False
