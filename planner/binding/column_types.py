"""Conversions of columns to features: which types fit a feature, and the SQL that converts them."""

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

_NESTED_TYPES: Mapping[Kind, str] = MappingProxyType(
    {
        "list": "lists of strings or numbers (VARCHAR[], BIGINT[] ..)",
        "map": "a MAP(VARCHAR, ..) or a STRUCT, of numbers or strings",
        "pairs": "lists of pairs (STRUCT(name VARCHAR, value DOUBLE)[])",
    }
)
"""Kind of a nested feature -> description of the column types that fit it."""


def convert_to_json(sql: str, sql_type: str, kind: Kind, dialect: Dialect = DUCKDB) -> str | None:
    """Convert `sql` to JSON for a nested feature, or return None if `sql_type` does not fit `kind`.

    An untyped expression, which always fits, is NULL or a parameter without a known type.
    """
    if sql_type == "JSON":
        return f"CAST({sql} AS VARCHAR)"
    is_convertible = sql_type in UNTYPED or _NESTED_CHECKS[kind](sql_type)
    return dialect.json(sql, sql_type) if is_convertible else None


def suggest_conversion(sql: str, sql_type: str, kind: Kind) -> str:
    """Return SQL that converts `sql` to a nested feature, for the advice in an error."""
    element_type, key_and_value = element(sql_type), map_types(sql_type)
    if kind == "list":
        if key_and_value is not None:
            return f"map_keys({sql})"
        return f"[{sql}]" if element_type is None else f"CAST({sql} AS VARCHAR[])"
    if kind == "pairs" and key_and_value is not None:
        return f"map_entries({sql})"
    if kind == "map" and key_and_value is not None:
        value_type = key_and_value[1] if _is_scalar(key_and_value[1]) else "VARCHAR"
        return f"CAST({sql} AS MAP(VARCHAR, {value_type}))"
    if kind == "map" and _is_pairs(sql_type):
        return f"map_from_entries({sql})"
    if sql_type == "VARCHAR":
        return f"CAST({sql} AS JSON)"
    value = sql if _is_scalar(sql_type) else ".."
    return f"[{{'name': 'x', 'value': {value}}}]" if kind == "pairs" else f"{{'x': {value}}}"


def _is_scalar(sql_type: str) -> bool:
    return NUMBERS.fullmatch(sql_type) is not None or _is_string(sql_type)


def _is_string(sql_type: str) -> bool:
    return sql_type in UNTYPED or STRINGS.fullmatch(sql_type) is not None


def _maps_string_to_scalar(map_type: tuple[str, str] | None) -> bool:
    return map_type is not None and _is_string(map_type[0]) and _is_scalar(map_type[1])


def _is_list(sql_type: str) -> bool:
    element_type = element(sql_type)
    return element_type is not None and _is_scalar(element_type)


def _is_map(sql_type: str) -> bool:
    fields = struct_fields(sql_type)
    if fields is None:
        return _maps_string_to_scalar(map_types(sql_type))
    return bool(fields) and all(field.type and _is_scalar(field.type) for field in fields)


def _is_pairs(sql_type: str) -> bool:
    element_type = element(sql_type)
    return element_type is not None and (
        element_type in UNTYPED or _maps_string_to_scalar(pair_types(element_type))
    )


_NESTED_CHECKS: Mapping[Kind, Callable[[str], bool]] = MappingProxyType(
    {"list": _is_list, "map": _is_map, "pairs": _is_pairs}
)


_NULL = re.compile(r"[(\s]*NULL[)\s]*", re.IGNORECASE)
"""A bare NULL, whose type is INTEGER in DuckDB 1.5."""

_EMPTY = re.compile(r"[(\s]*(\[(\s|,|NULL)*\]|MAP\s*\{\s*\})[)\s]*", re.IGNORECASE)
"""An empty list or map, or a list of bare NULLs, whose type is INTEGER[] in DuckDB 1.5."""


@dataclass(frozen=True, slots=True)
class BoundInput:
    """The SQL expression that feeds a feature, and the expression's type in the engine."""

    sql: str
    type: str


Available = dict[str, list[BoundInput]]
"""Folded name -> all columns with that name."""


def convert_to_feature(
    bound: BoundInput, feature: Feature, model_label: str, scope: Scope, offset: int
) -> BoundInput:
    """Convert `bound` to the type that `feature` needs, or raise ColumnTypeError at `offset`."""
    if feature.kind == "any":
        return bound  # A SQL expression, which accepts any type, reads the feature.
    dialect, shown_sql = scope.dialect, scope.dialect.display(bound.sql)
    is_untyped = bound.type in UNTYPED or _NULL.fullmatch(bound.sql) is not None
    if feature.kind in NESTED:
        is_untyped = is_untyped or _EMPTY.fullmatch(bound.sql) is not None
        sql_type = UNTYPED[0] if is_untyped else bound.type
        sql = convert_to_json(bound.sql, sql_type, feature.kind, dialect)
        if sql is not None:
            return BoundInput(sql, bound.type)
        suggestion = suggest_conversion(shown_sql, bound.type, feature.kind)
        expected_types = _NESTED_TYPES[feature.kind]
    elif feature.kind == "string":
        if bound.type == "VARCHAR":
            return bound
        string_type = dialect.type("VARCHAR")
        if is_untyped or STRINGS.fullmatch(bound.type):
            return BoundInput(f"CAST({bound.sql} AS {string_type})", "VARCHAR")
        suggestion, expected_types = f"CAST({shown_sql} AS {string_type})", "strings"
    elif feature.kind == DATETIME:
        if is_untyped:
            return BoundInput(f"CAST({bound.sql} AS DOUBLE)", "DOUBLE")
        if dialect.takes_as_datetime(bound.type):
            return BoundInput(dialect.microseconds(bound.sql), bound.type)
        suggestion = f"CAST({shown_sql} AS TIMESTAMP)"
        if bound.type == "TIMESTAMP WITH TIME ZONE":
            suggestion = f"timezone('UTC', {shown_sql})"
        expected_types = "dates and timestamps without a time zone"
    else:
        if is_untyped:
            return BoundInput(bound.sql, "DOUBLE")
        if NUMBERS.fullmatch(bound.type):
            return bound
        suggestion, expected_types = _suggest_number(shown_sql, bound.type, dialect), "numbers"
    is_list_of_numbers = feature.kind == "number" and element(bound.type) is not None
    advice = "give it one number of each list" if is_list_of_numbers else "cast it"
    message = (
        f"feature {feature.name!r} of {model_label} takes {expected_types}, but {shown_sql} is "
        f"{dialect.type(bound.type)}; {advice}, for instance "
        f"{dialect.quote_name(feature.name)} := {suggestion}, if that is what the model was "
        "trained on"
    )
    raise ColumnTypeError(message, scope.sql, offset)


def _suggest_number(sql: str, sql_type: str, dialect: Dialect) -> str:
    if element(sql_type) is not None:
        return f"{dialect.first(sql)} (an element) or {dialect.sum(sql)}"
    if sql_type.startswith(("DATE", "TIME", "INTERVAL")):
        return dialect.seconds(sql)
    return f"CAST({sql} AS DOUBLE)"


def parenthesize(sql: str) -> str:
    """Put an expression in brackets, unless an operator or a cast can follow it unbracketed."""
    return sql if re.fullmatch(r"[\w.]+|\"[^\"]*\"|`[^`]*`", sql) else f"({sql})"


_FLOAT32_EXACT_TYPES = frozenset("TINYINT SMALLINT UTINYINT USMALLINT FLOAT BOOLEAN".split())
"""Types whose values are all exact in float32."""


def fits_float32(bound_inputs: Mapping[str, BoundInput], program: Program) -> bool:
    """Return whether all numbers and category codes are exact in float32."""
    if any(feature.kind == DATETIME for feature in program.features):
        return False
    codes_fit = [n.attrs["categories"].size < 1 << 24 for n in program.nodes if n.op == "encode"]
    number_types = [b.type for b in bound_inputs.values() if NUMBERS.fullmatch(b.type)]
    return all(codes_fit) and _FLOAT32_EXACT_TYPES.issuperset(number_types)
