"""`plan_html`: a Plan as a notebook draws it: the flow of rows through each call, and its lines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from sqlml import html
from sqlml.planner.plan.text import call_lines, statement_lines

if TYPE_CHECKING:
    from sqlml.planner.plan.plan import Plan, PlannedCall

_FEW = 6
"""Columns that a box names."""


def plan_html(plan: Plan) -> str:
    """The flow of each call above its lines, and what concerns the whole statement."""
    made = []
    for place, call in enumerate(plan.calls):
        lines = call_lines(plan, place)
        made.append(html.flow(_boxes(call, dict(lines))))
        made.append(html.table(("", ""), lines))
    ends = statement_lines(plan)
    return "".join(made + ([html.table(("", ""), ends)] if ends else []))


def _boxes(call: PlannedCall, lines: Mapping[str, str]) -> list[tuple[str, str]]:
    names = [name for name, _ in call.reads]
    more = f" and {len(names) - _FEW} more" if len(names) > _FEW else ""
    left = len(call.unread)
    read = f"{', '.join(names[:_FEW])}{more}" + (f"; {left} not read" if left else "")
    boxes = [("columns", read or "none")]
    boxes.append(("in SQL", lines["in SQL"]))
    if call.calls_function:
        boxes.append(("in a function", lines["in UDF"]))
    return [*boxes, (call.written, f"{call.output}: {call.type}")]
