"""`sql_step`: a transformer of a user's own, by the SQL that says what it does."""

from __future__ import annotations

from typing import Any

from sqlml.importers.frame import Frame
from sqlml.importers.sql_steps.compare_step import check_step
from sqlml.importers.sql_steps.expressions import operators_of
from sqlml.importers.sql_steps.registered import SqlStep, sql_of


def sql_step(step: Any, frame: Frame, kept: SqlStep) -> Frame:
    """The columns that a step makes, each by its expression.

    Args:
        step: the fitted transformer, or the function of a FunctionTransformer.
        kept: what is registered for it.

    Raises:
        UnsupportedModelError: its SQL has no operators, or the step computes something else.
    """
    expressions = sql_of(kept, step, frame.names)
    made = operators_of(expressions, frame)
    if kept.verify:
        check_step(step, expressions, frame)
    return Frame.hstack(frame.builder, made)
