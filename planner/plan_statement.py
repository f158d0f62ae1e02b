"""Plan a statement: read it, rewrite it by the rules, and say what goes to the engine.

The rest of the user's text stays byte for byte as it was.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import cache, partial
from typing import Any

from sqlml.errors import ParseError
from sqlml.planner.binding.context import Context, NoColumns
from sqlml.planner.binding.probe_queries import ProbeError
from sqlml.planner.plan.plan import Plan
from sqlml.planner.rewrites.draft import Draft
from sqlml.planner.rewrites.tentative_rules import rewritten
from sqlml.planner.syntax.arguments import without_calls
from sqlml.planner.syntax.parameters import Parameters
from sqlml.planner.syntax.read import outline_of


def plan(sql: str, parameters: Any, context: Context, without: Collection[str] = ()) -> Plan | None:
    """The plan of one statement, or None when it calls no model and asks nothing about one.

    Args:
        without: names of rules that are left out.

    Raises:
        ParseError: it calls a model, and is SQL that cannot be read here.
        BindError and its kin, UnknownModelError, ConfigError: each says what to change.
    """
    try:
        read = read_statement(sql, parameters, context)
    except ParseError as error:
        return _unread(sql, error, context)
    draft = rewritten(read, without)
    concerned = draft.targets or draft.edits or draft.written_out is not None
    return _plan(sql, draft) if concerned else None


def read_statement(sql: str, parameters: Any, context: Context) -> Draft:
    """The statement before all rules; what it asks of the engine is asked once.

    Raises:
        ParseError: it cannot be read here.
    """
    outline = outline_of(sql, context.dialect.name)
    asking = replace(
        context,
        model=cache(context.model),
        describe=cache(context.describe),
        rows=cache(context.rows),
        explained=cache(context.explained),
        known_columns={},
        no_columns=partial(_waited_for, context.no_columns) if outline.kept else context.no_columns,
        kept=outline.kept,
    )
    given = Parameters(outline.parameters, parameters, context.type_of)
    return Draft(outline=outline, context=asking, given=given)


def _waited_for(no_columns: NoColumns, _: bool) -> str | None:
    """The engine's answer once machine code is there: a view keeps its functions for ever."""
    return no_columns(True)


def _plan(sql: str, draft: Draft) -> Plan:
    """What the rules decided about the user's statement `sql`."""
    made = draft.sql
    rest, dropped = draft.given.remaining()
    if draft.has_parameters_in_calls:
        made, rest, dropped = draft.given.fitted(made)
    return Plan(
        statement=sql,
        sql=made,
        calls=tuple(draft.planned.values()),
        parameters=rest,
        dropped_names=dropped,
        dropped_joins=tuple(" ".join(join.split()) for join in draft.joins),
        kept=draft.outline.kept,
    )


def _unread(sql: str, error: ParseError, context: Context) -> Plan | None:
    """An unreadable statement without its calls, for the engine to report what is wrong; None if it
    calls no model.

    Raises:
        ParseError: the engine can read it.
    """
    try:
        rest = without_calls(sql, context.dialect.name)
    except ParseError:
        return None
    if rest is None:
        return None
    try:
        context.describe(rest)
    except ProbeError as refused:
        if str(refused).startswith(("Parser", "Syntax")):
            return Plan(sql, rest, ())
    raise ParseError(
        f"sqlml cannot read this statement ({error.message}); move the part that it cannot read "
        "into a view, and call the model on the view",
        sql,
        error.offset,
    ) from None
