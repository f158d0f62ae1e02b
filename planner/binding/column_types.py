"""Which column types feed which features, and the SQL expression that feeds one."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from sqlml.dialects import DUCKDB, Dialect
from sqlml.dialects.type_names import (
    NUMBERS,
    STRINGS,
    UNTYPED,
    element,
    map_types,
    pair_types,
    struct_fields,
)
from sqlml.errors import ColumnTypeError
from sqlml.ir.program import Program
from sqlml.planner.binding.probe_queries import Scope
from sqlml.types import DATETIME, NESTED, Feature, Kind

# Which nested column types feed lists, maps and pairs, and the SQL that feeds one: its JSON.


WANTS: Mapping[Kind, str] = MappingProxyType(
    {
        "list": "lists of strings or numbers (VARCHAR[], BIGINT[] ..)",
        "map": "a MAP(VARCHAR, ..) or a STRUCT, of numbers or strings",
        "pairs": "lists of pairs (STRUCT(name VARCHAR, value DOUBLE)[])",
    }
)


def as_json(sql: str, type: str, kind: Kind, dialect: Dialect = DUCKDB) -> str | None:
    """The JSON of an expression, which feeds a feature of `kind`; None if its type cannot.

    An untyped expression is NULL, or a parameter whose value decides its type.
    """
    if type == "JSON":
        return f"CAST({sql} AS VARCHAR)"
    return dialect.json(sql, type) if type in UNTYPED or _FEEDS[kind](type) else None


def fix_of(sql: str, type: str, kind: Kind) -> str:
    """An expression that feeds a feature of `kind`, made of one whose type does not."""
    inner, types = element(type), map_types(type)
    if kind == "list":
        if types is not None:
            return f"map_keys({sql})"
        return f"[{sql}]" if inner is None else f"CAST({sql} AS VARCHAR[])"
    if kind == "pairs" and types is not None:
        return f"map_entries({sql})"
    if kind == "map" and types is not None:
        return f"CAST({sql} AS MAP(VARCHAR, {types[1] if _is_scalar(types[1]) else 'VARCHAR'}))"
    if kind == "map" and _is_pairs(type):
        return f"map_from_entries({sql})"
    if type == "VARCHAR":
        return f"CAST({sql} AS JSON)"
    value = sql if _is_scalar(type) else ".."
    return f"[{{'name': 'x', 'value': {value}}}]" if kind == "pairs" else f"{{'x': {value}}}"


def _is_scalar(kind: str) -> bool:
    return NUMBERS.fullmatch(kind) is not None or _is_name(kind)


def _is_name(kind: str) -> bool:
    return kind in UNTYPED or STRINGS.fullmatch(kind) is not None


def _is_named(types: tuple[str, str] | None) -> bool:
    return types is not None and _is_name(types[0]) and _is_scalar(types[1])


def _is_list(kind: str) -> bool:
    inner = element(kind)
    return inner is not None and _is_scalar(inner)


def _is_map(kind: str) -> bool:
    fields = struct_fields(kind)
    if fields is None:
        return _is_named(map_types(kind))
    return bool(fields) and all(f.type and _is_scalar(f.type) for f in fields)


def _is_pairs(kind: str) -> bool:
    inner = element(kind)
    return inner is not None and (inner in UNTYPED or _is_named(pair_types(inner)))


_FEEDS: Mapping[Kind, Callable[[str], bool]] = MappingProxyType(
    {"list": _is_list, "map": _is_map, "pairs": _is_pairs}
)


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


# `fits_float`: whether a row's numbers may travel as FLOAT, which halves what is handed over.


_EXACT = frozenset("TINYINT SMALLINT UTINYINT USMALLINT FLOAT BOOLEAN".split())
"""Types whose every value is exact in float32."""


def fits_float(bounds: Mapping[str, Bound], program: Program) -> bool:
    """Whether all numbers and codes of categories are exact in float32; dates are not.

    Args:
        bounds: what feeds each input of the Program.
    """
    if any(feature.kind == DATETIME for feature in program.features):
        return False
    codes = [n.attrs["categories"].size < 1 << 24 for n in program.nodes if n.op == "encode"]
    numbers = [b.type in _EXACT for b in bounds.values() if NUMBERS.fullmatch(b.type)]
    return all(codes) and all(numbers)
