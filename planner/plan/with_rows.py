"""What EXPLAIN adds to a plan: the rows of each call, as the engine estimates them."""

from __future__ import annotations

from dataclasses import replace

from sqlml.planner.binding.estimated_rows import AskRows
from sqlml.planner.choice.row_dependence import for_rows
from sqlml.planner.plan.plan import Plan, PlannedCall
from sqlml.planner.program.prepare import prepare_parts


def with_rows(plan: Plan, ask: AskRows) -> Plan:
    """`plan` with an estimate of the rows of each call, and of the time that these take."""
    return replace(plan, calls=tuple(_with_rows(call, ask) for call in plan.calls))


def _with_rows(call: PlannedCall, ask: AskRows) -> PlannedCall:
    rows = call.rows if call.rows.asked else call.rows.ask(ask)
    if call.source is None or rows.chosen_by:
        return replace(call, rows=rows)
    prepared = prepare_parts(
        call.source, call.spec.parts, call.spec.layout, call.spec.constants, call.spec.lookup
    )
    choice = for_rows(prepared.split.core, call.choice, rows.count, call.spec.by_column)
    return replace(call, rows=rows, choice=choice)
