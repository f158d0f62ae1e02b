"""`FittedRows`: the rows that a model is fitted to, as a query, for what is computed over them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import duckdb

from sqlml.catalog.connection import without_excerpt
from sqlml.catalog.row_expressions import RowExpression
from sqlml.dialects.duckdb import DUCKDB, builtin
from sqlml.errors import ParseError
from sqlml.host import RowHost
from sqlml.training.options.request import Request
from sqlml.types import fold


@dataclass(frozen=True)
class FittedRows:
    """The rows of a query without those that are held out.

    columns: name -> type. request: its split and seed say which rows are.
    """

    host: RowHost
    query: str
    columns: Mapping[str, str]
    request: Request

    def types(self, expressions: Sequence[RowExpression]) -> list[str]:
        """The types that the engine gives to expressions over the query's columns.

        Raises:
            duckdb.Error: it cannot bind one of them.
        """
        if not expressions:
            return []
        listed = ", ".join(
            f"{e.plain({c: DUCKDB.quote_name(c) for c in e.columns})} AS c{n}"
            for n, e in enumerate(expressions)
        )
        query = f"SELECT {listed} FROM (\n{self.query}\n) AS sqlml_rows"
        try:
            return [kind for _, kind in self.host.describe(query)]
        except duckdb.Error as error:  # which shows the expressions as they are kept
            raise type(error)(without_excerpt(error)) from None

    def ask(self, aggregates: str) -> tuple[Any, ...]:
        """The values of aggregates over these rows."""
        (found,) = self.host.read(f"SELECT {aggregates} FROM {self._fitted}")
        return found

    def most_frequent(self, lists: str, most: int) -> list[str]:
        """The most frequent entries of lists of texts, an expression; of equally frequent ones the
        first in order."""
        item = f"{builtin('unnest')}({lists}) AS item"
        items = f"SELECT {item} FROM {self._fitted}"
        found = self.host.read(
            f"SELECT item FROM ({items}) AS sqlml_items WHERE item IS NOT NULL GROUP BY item "
            f"ORDER BY {builtin('count')}(*) DESC, item LIMIT {most}"
        )
        return [text for (text,) in found]

    @cached_property
    def _rows(self) -> str:
        """The rows with a label."""
        label = next((c for c in self.columns if fold(c) == fold(self.request.label or "")), None)
        where = "" if label is None else f" WHERE {DUCKDB.quote_name(label)} IS NOT NULL"
        return f"(SELECT * FROM (\n{self.query}\n) AS sqlml_query{where}) AS sqlml_rows"

    @cached_property
    def _fitted(self) -> str:
        """The rows that are fitted to, in brackets."""
        request = self.request
        names = {fold(name): name for name in self.columns}
        group = names.get(fold(request.group or ""))
        keys = request.split.keys(self.columns, request.label, group, request.seed)
        ((count,),) = self.host.read(f"SELECT {builtin('count')}(*) FROM {self._rows}")
        split = request.split.settled(count)
        last = None
        if split.method == "seq" and split.trained(count) < count:
            (key,) = keys
            text, kind = f"CAST({key} AS VARCHAR)", DUCKDB.call("typeof", key)
            ((value, kind),) = self.host.read(
                f"SELECT {text}, {kind} FROM {self._rows} ORDER BY {key} NULLS LAST "
                f"LIMIT 1 OFFSET {max(split.trained(count), 1) - 1}"
            )
            last = f"CAST({'NULL' if value is None else DUCKDB.text(value)} AS {kind})"
        if split.method == "none":
            keys = ()
        return f"({split.side_sql(self._rows, keys, last, held_out=False)}) AS sqlml_fitted"


# `check_time_zones`: that expressions of TRANSFORM (..) give the same in any TimeZone.
#
# The engine binds them and tells its plan (`json_serialize_plan`), with the type of each part,
# the casts that it adds by itself, and the bodies of lambdas. What takes or makes a TIMESTAMP
# WITH TIME ZONE must be known not to ask for the session's own zone.


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
