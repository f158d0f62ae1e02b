"""Which column types feed which features, and the SQL expression that feeds one."""

from __future__ import annotations

import re
from dataclasses import dataclass

from sqlml.dialects import Dialect
from sqlml.dialects.type_names import NUMBERS, STRINGS, UNTYPED, element
from sqlml.errors import ColumnTypeError
from sqlml.planner.binding.nested_types import WANTS, as_json, fix_of
from sqlml.planner.binding.scope import Scope
from sqlml.types import DATETIME, NESTED, Feature

NULL = re.compile(r"[(\s]*NULL[)\s]*", re.IGNORECASE)
"""A bare NULL, whose column DuckDB 1.5 calls an INTEGER."""

EMPTY = re.compile(r"[(\s]*(\[(\s|,|NULL)*\]|MAP\s*\{\s*\})[)\s]*", re.IGNORECASE)
"""A list or map of nothing, or of bare NULLs, which DuckDB 1.5 calls an INTEGER[]."""


@dataclass(frozen=True, slots=True)
class Bound:
    """The SQL expression that feeds a feature, and its type in the engine."""

    sql: str
    type: str


Available = dict[str, list[Bound]]
"""Folded column name -> everything of that name."""


def typed(bound: Bound, feature: Feature, model: str, scope: Scope, at: int) -> Bound:
    """`bound` as the feature wants it: an ENUM becomes its text, a list or map its JSON.

    Raises:
        ColumnTypeError: the type does not feed the feature; the message says what would.
    """
    if feature.kind == "any":  # an expression reads it, which the engine types itself
        return bound
    shown = scope.dialect.shown(bound.sql)
    untyped = bound.type in UNTYPED or NULL.fullmatch(bound.sql) is not None
    if feature.kind in NESTED:
        untyped = untyped or EMPTY.fullmatch(bound.sql) is not None
        kind = UNTYPED[0] if untyped else bound.type
        sql = as_json(bound.sql, kind, feature.kind, scope.dialect)
        if sql is not None:
            return Bound(sql, bound.type)
        fix = fix_of(shown, bound.type, feature.kind)
        wants = WANTS[feature.kind]
    elif feature.kind == "string":
        if bound.type == "VARCHAR":
            return bound
        if untyped or STRINGS.fullmatch(bound.type):
            return Bound(f"CAST({bound.sql} AS {scope.dialect.type('VARCHAR')})", "VARCHAR")
        fix = f"CAST({shown} AS {scope.dialect.type('VARCHAR')})"
        wants = "strings"
    elif feature.kind == DATETIME:
        if untyped:
            return Bound(f"CAST({bound.sql} AS DOUBLE)", "DOUBLE")
        if scope.dialect.takes_as_datetime(bound.type):
            return Bound(scope.dialect.microseconds(bound.sql), bound.type)
        zoned = bound.type == "TIMESTAMP WITH TIME ZONE"
        fix = f"timezone('UTC', {shown})" if zoned else f"CAST({shown} AS TIMESTAMP)"
        wants = "dates and timestamps without a time zone"
    else:
        if untyped:
            return Bound(bound.sql, "DOUBLE")
        if NUMBERS.fullmatch(bound.type):
            return bound
        fix = _number(bound, scope.dialect)
        wants = "numbers"
    advice = "cast it"
    if feature.kind == "number" and element(bound.type) is not None:
        advice = "give it one number of each list"
    own = scope.dialect.quote_name(feature.name)
    raise ColumnTypeError(
        f"feature {feature.name!r} of {model} takes {wants}, but {shown} is "
        f"{scope.dialect.type(bound.type)}; "
        f"{advice}, for instance {own} := {fix}, if that is what the model was "
        "trained on",
        scope.sql,
        at,
    )


def _number(bound: Bound, dialect: Dialect) -> str:
    """An expression that makes a number of one of another type."""
    inner, shown = element(bound.type), dialect.shown(bound.sql)
    if inner is not None:
        return f"{dialect.first(shown)} (an element) or {dialect.sum(shown)}"
    if bound.type.startswith(("DATE", "TIME", "INTERVAL")):
        return dialect.seconds(shown)
    return f"CAST({shown} AS DOUBLE)"


def bracket(sql: str) -> str:
    """An expression safe to put before an operator or a cast."""
    return sql if re.fullmatch(r"[\w.]+|\"[^\"]*\"|`[^`]*`", sql) else f"({sql})"
