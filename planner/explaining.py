"""What EXPLAIN adds to a plan: the rows of each call, as the engine estimates them."""

from __future__ import annotations

from dataclasses import replace

from sqlml.front.lexer import tokenize
from sqlml.planner.build import prepare_parts
from sqlml.planner.by_rows import for_rows
from sqlml.planner.plan import Plan, PlannedCall
from sqlml.planner.rows import AskRows


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
    return replace(call, rows=rows, choice=for_rows(prepared.split.core, call.choice, rows.count))


def is_stored(statement: str) -> bool:
    """Whether a statement keeps its text for later, as a view, a macro or a prepared one does.

    What is kept must call functions that another process can make by their names alone.
    """
    words = [t.upper for t in tokenize(statement)[:5]]
    is_table = "TABLE" in words and not {"VIEW", "MACRO", "FUNCTION"} & set(words)
    return words[0] == "PREPARE" or (words[0] == "CREATE" and not is_table)
