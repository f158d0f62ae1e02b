"""Places of a statement in which no model may be called."""

from __future__ import annotations

from sqlml.errors import BindError
from sqlml.planner.syntax.outline import ModelCall


def refuse_in_definition(call: ModelCall, sql: str) -> None:
    """Refuse a call in what a table keeps: a generated column, DEFAULT or CHECK.

    Raises:
        BindError: the call stands in one.
    """
    if call.defines:
        raise BindError(
            "a model call cannot stand in a generated column, DEFAULT or CHECK: the table could "
            "not be read without sqlml; create a view of it instead",
            sql,
            call.span.start,
        )
