"""Which nested column types feed lists, maps and pairs, and the SQL that feeds one: its JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
from sqlml.types import Kind

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
