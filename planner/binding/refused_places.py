"""Refuse model calls where none can stand, and say what to write instead."""

from __future__ import annotations

from sqlml.errors import BindError
from sqlml.planner.binding.context import Context
from sqlml.planner.syntax.outline import ModelCall

_TABLE_FORMS = {"explain": "ml_explain_predict", "transform": None}
"""The table form that does for all rows what a function does for one; ml_predict for the others."""


def refuse_place(call: ModelCall, sql: str, context: Context) -> None:
    """Refuse a call in a table's definition, or as a table in FROM.

    Raises:
        BindError: the call stands in one of these places.
    """
    if call.defines:
        raise BindError(
            "a model call cannot stand in a generated column, DEFAULT or CHECK: the table could "
            "not be read without sqlml; create a view of it instead",
            sql,
            call.span.start,
        )
    if call.is_source and not context.is_user_function(call.function):
        model = f"'{call.model}'" if isinstance(call.model, str) else "'m'"
        form = _TABLE_FORMS.get(call.function, "ml_predict")
        table = _table_name(call, sql)
        whole = "" if form is None else f", or SELECT * FROM {form}(MODEL {model}, TABLE {table})"
        raise BindError(
            f"{call.function} is computed for one row, so it cannot stand in FROM; write "
            f"SELECT *, {call.function}({model}, *) FROM {table}{whole}",
            sql,
            call.span.start,
        )


def _table_name(call: ModelCall, sql: str) -> str:
    """Return the table that the call was probably meant to score, or `t`."""
    if not call.arguments:
        return "t"
    place = call.arguments[0].span
    words = sql[place.start : place.end].split()
    is_named = len(words) == 2 and words[0].upper() == "TABLE"
    return words[-1] if is_named or call.arguments[0].column is not None else "t"
