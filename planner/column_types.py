"""Which column types feed which features, and the SQL expression that feeds one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from sqlml.errors import ColumnTypeError
from sqlml.front.lexer import quote_name
from sqlml.planner.scope import Scope
from sqlml.types import Feature

NUMBERS = re.compile(
    r"U?(TINYINT|SMALLINT|INTEGER|BIGINT|HUGEINT)|BIGNUM|VARINT|FLOAT|DOUBLE|BOOLEAN"
    r"|DECIMAL\(\d+, ?\d+\)"
)


STRINGS = re.compile(r"(VARCHAR|ENUM\(.*\))", re.DOTALL)


UNTYPED = ('"NULL"', "NULL", "UNKNOWN")
NULL = re.compile(r"[(\s]*NULL[)\s]*", re.IGNORECASE)
"""A bare NULL, whose column DuckDB 1.5 calls an INTEGER."""


SMALL_NUMBERS = frozenset("TINYINT SMALLINT UTINYINT USMALLINT FLOAT BOOLEAN".split())
"""Types whose every value is exact in float32."""


@dataclass(frozen=True, slots=True)
class Bound:
    """The SQL expression that feeds a feature, and its type in the engine."""

    sql: str
    type: str


Available = dict[str, list[Bound]]
"""Folded column name -> everything of that name."""


def typed(bound: Bound, feature: Feature, model: str, scope: Scope, at: int) -> Bound:
    """`bound` as the feature wants it: an ENUM becomes its text; a wrong type is an error."""
    untyped = bound.type in UNTYPED or NULL.fullmatch(bound.sql) is not None
    if feature.kind == "string":
        if bound.type == "VARCHAR":
            return bound
        if untyped or STRINGS.fullmatch(bound.type):
            return Bound(f"CAST({bound.sql} AS VARCHAR)", "VARCHAR")
        fix = f"CAST({bound.sql} AS VARCHAR)"
        wants = "strings"
    else:
        if untyped:
            return Bound(bound.sql, "DOUBLE")
        if NUMBERS.fullmatch(bound.type):
            return bound
        fix = (
            f"date_part('epoch', {bound.sql})"
            if bound.type.startswith(("DATE", "TIME"))
            else f"CAST({bound.sql} AS DOUBLE)"
        )
        wants = "numbers"
    raise ColumnTypeError(
        f"feature {feature.name!r} of {model} takes {wants}, but {bound.sql} is {bound.type}; "
        f"cast it, for instance {quote_name(feature.name)} := {fix}, if that is what the model "
        "was trained on",
        scope.sql,
        at,
    )


def bracket(sql: str) -> str:
    """An expression safe to put before an operator or a cast."""
    return sql if re.fullmatch(r"[\w.]+|\"[^\"]*\"", sql) else f"({sql})"


def layout_is_exact(bounds: Mapping[str, Bound]) -> bool:
    """Whether all numbers are exact in float32, so that the packed matrix may be FLOAT."""
    return all(b.type in SMALL_NUMBERS for b in bounds.values() if not STRINGS.fullmatch(b.type))
