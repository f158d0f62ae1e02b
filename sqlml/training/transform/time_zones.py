"""`check_time_zones`: that expressions of TRANSFORM (..) give the same in any TimeZone.

The engine binds them and tells its plan (`json_serialize_plan`), with the type of each part, the
casts that it adds by itself, and the bodies of lambdas. What takes or makes a TIMESTAMP WITH TIME
ZONE must be known not to ask for the session's own zone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from sqlml.catalog.row_expressions import RowExpression
from sqlml.dialects.duckdb import DUCKDB, builtin
from sqlml.errors import ParseError
from sqlml.training.transform.fitted_rows import FittedRows

_FREE = frozenset(
    "timezone epoch epoch_ms epoch_us epoch_ns to_timestamp uuid_extract_timestamp "
    "struct_extract array_extract list_extract map_extract_value list_element struct_pack row "
    "list_value len list_transform array_transform list_apply array_apply apply "
    "list_filter array_filter filter list_reduce array_reduce reduce".split()
)
"""Functions that take or make times with a zone, whatever the session's own zone is."""


def check_time_zones(rows: FittedRows, made: Mapping[str, RowExpression]) -> None:
    """Refuse expressions whose values change with the session's TimeZone.

    Args:
        made: the name of a feature -> its expression, which the engine can bind.

    Raises:
        ParseError: one of them is refused.
    """
    if not made:
        return
    columns = list(dict.fromkeys(c for e in made.values() for c in e.columns))
    places = {column: f"sqlml_c{n}" for n, column in enumerate(columns)}
    inner = [f"CAST(NULL AS {_type(rows.columns[c])}) AS {places[c]}" for c in columns] or ["1"]
    listed = ", ".join(f"{e.plain(places)} AS f{n}" for n, e in enumerate(made.values()))
    query = f"SELECT {listed} FROM (SELECT {', '.join(inner)}) AS sqlml_rows"
    ((told,),) = rows.host.read(f"SELECT {builtin('json_serialize_plan')}(?)", [query])
    plan = json.loads(told)
    if plan.get("error"):
        raise ParseError(f"TRANSFORM cannot be checked: {plan.get('error_message')}")
    for name, tree in zip(made, plan["plans"][0]["expressions"], strict=True):
        if _depends(tree):
            raise ParseError(_refusal(rows, name, made[name]))


def _type(kind: str) -> str:
    """The type of a column, without the names of an ENUM, which may be very many."""
    return "VARCHAR" if kind.startswith("ENUM(") else kind


def _refusal(rows: FittedRows, name: str, made: RowExpression) -> str:
    column = next((c for c in made.columns if rows.columns[c] in _ZONED), None)
    fix = "convert each TIMESTAMPTZ first, with AT TIME ZONE 'UTC'"
    if column is not None:
        quoted = column if column.isidentifier() else DUCKDB.quote_name(column)
        fix = f"write ({quoted} AT TIME ZONE 'UTC') in place of {quoted}"
    return f"feature {name!r} would change with the session's TimeZone: {fix}"


def _depends(tree: Any) -> bool:
    """Whether an expression of a plan, or a part of it, asks for the session's zone."""
    return any(_asks(node) for node in _expressions(tree))


def _expressions(value: Any) -> Iterator[Mapping[str, Any]]:
    """All expressions in a plan, the bodies of lambdas included."""
    if isinstance(value, Mapping):
        if "expression_class" in value:
            yield value
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _expressions(item)


def _asks(node: Mapping[str, Any]) -> bool:
    """Whether an expression by itself asks for the session's zone."""
    children = [*node.get("children", ()), *([node["child"]] if "child" in node else ())]
    taken, made = [_type_of(child) for child in children], _type_of(node)
    zoned = any(map(_has_zone, (*taken, made)))
    if node["type"] == "OPERATOR_CAST":
        return zoned and any(kind != made and kind != _NOTHING for kind in taken)
    if node["expression_class"] == "BOUND_CONSTANT":
        return zoned and not node["value"].get("is_null")
    if node["type"] != "BOUND_FUNCTION" or not zoned:
        return False
    name = str(node["name"] if "name" in node else node["qname"]["path"][-1])
    if name == "timezone":  # of one argument it tells the session's own, of a TIME today's
        return len(children) != 2 or '"TIME WITH TIME ZONE"' in made
    return name not in _FREE


def _type_of(node: Mapping[str, Any]) -> str:
    """The type of an expression, nested ones in whole, as JSON."""
    return json.dumps(node.get("return_type") or node.get("value", {}).get("type"))


_NOTHING = json.dumps({"id": "NULL", "type_info": None})
"""The type of a NULL."""


_ZONED = ("TIMESTAMP WITH TIME ZONE", "TIMESTAMPTZ_NS")


def _has_zone(kind: str) -> bool:
    """Whether a type, or one nested in it, has a time zone."""
    return "TIME ZONE" in kind or "TIMESTAMPTZ" in kind
