"""Plan a statement: parse it, apply the rewrite rules, and return the statement for the engine.

The rest of the user's text is preserved byte for byte.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import cache, partial
from typing import Any

from sqlml.errors import ParseError, SqlmlError
from sqlml.planner.binding.context import Context
from sqlml.planner.binding.probe_queries import ProbeError
from sqlml.planner.plan.plan import Plan
from sqlml.planner.rewrites.apply_rules import rewrite
from sqlml.planner.rewrites.draft import Draft
from sqlml.planner.syntax.arguments import replace_calls_with_null
from sqlml.planner.syntax.parameters import Parameters
from sqlml.planner.syntax.preprocessing_calls import expand_preprocessing, locate_error
from sqlml.planner.syntax.read_outline import read_outline


def plan_statement(
    sql: str, parameters: Any, context: Context, disabled_rules: Collection[str] = ()
) -> Plan | None:
    """Plan a statement with all rules except `disabled_rules`, or return None if it uses no model.

    `parameters` holds the parameters' values. Raises ParseError if the statement calls a model
    and sqlml cannot parse it, and BindError, UnknownModelError or ConfigError if a call is wrong.
    """
    if context.dialect.name == "duckdb":
        expanded = expand_preprocessing(sql, context.is_user_function)
        if expanded != sql:
            try:
                plan = _plan_expanded(expanded, parameters, context, disabled_rules)
            except SqlmlError as error:
                raise locate_error(error, expanded, sql) from None
            return Plan(sql, expanded, ()) if plan is None else replace(plan, statement=sql)
    return _plan_expanded(sql, parameters, context, disabled_rules)


def _plan_expanded(
    sql: str, parameters: Any, context: Context, disabled_rules: Collection[str]
) -> Plan | None:
    """Plan a statement whose preprocessing functions are expanded."""
    try:
        original_draft = read_statement(sql, parameters, context)
    except ParseError as error:
        return _plan_unparsed_statement(sql, error, context)
    draft = rewrite(original_draft, disabled_rules)
    if not (draft.targets or draft.edits or draft.expanded is not None):
        return None
    sql_text = draft.sql
    remaining_indices, dropped_names = draft.parameters.find_remaining_values()
    if draft.has_parameters_in_calls:
        sql_text, remaining_indices, dropped_names = draft.parameters.fit_sql(sql_text)
    return Plan(
        statement=sql,
        sql=sql_text,
        calls=tuple(draft.planned.values()),
        parameters=remaining_indices,
        dropped_names=dropped_names,
        dropped_joins=tuple(" ".join(join.split()) for join in draft.removed_joins),
        is_stored=draft.outline.is_stored,
    )


def read_statement(sql: str, parameters: Any, context: Context) -> Draft:
    """Parse a statement into a draft to which no rule is applied yet.

    The draft's context caches answers. Raises ParseError if sqlml cannot parse the statement.
    """
    outline = read_outline(sql, context.dialect.name)
    why_no_columns = context.why_no_columns
    if outline.is_stored:  # A view stores its functions, so wait until kernels are compiled.
        why_no_columns = partial(lambda find_reason, _: find_reason(True), why_no_columns)
    cached_context = replace(
        context,
        model=cache(context.model),
        describe=cache(context.describe),
        estimate_rows=cache(context.estimate_rows),
        explain_against=cache(context.explain_against),
        known_columns={},
        why_no_columns=why_no_columns,
        is_stored=outline.is_stored,
    )
    parameter_values = Parameters(outline.parameters, parameters, context.type_of)
    return Draft(outline=outline, context=cached_context, parameters=parameter_values)


def _plan_unparsed_statement(sql: str, error: ParseError, context: Context) -> Plan | None:
    """Plan a statement that sqlml cannot parse, or return None if it calls no model.

    In the plan, NULL replaces each call, so that the engine reports the syntax error. Raises
    ParseError if the engine can parse the statement.
    """
    try:
        sql_without_calls = replace_calls_with_null(sql, context.dialect.name)
    except ParseError:
        return None
    if sql_without_calls is None:
        return None
    try:
        context.describe(sql_without_calls)
    except ProbeError as probe_error:
        if str(probe_error).startswith(("Parser", "Syntax")):
            return Plan(sql, sql_without_calls, ())
    message = (
        f"sqlml cannot read this statement ({error.message}); move the part that it cannot read "
        "into a view, and call the model on the view"
    )
    raise ParseError(message, sql, error.offset) from None
