"""Aggregate the fitted rows of a query for TRANSFORM, and check the use of time zones.

The engine's plan (`json_serialize_plan`) has the types of all parts, implicit casts, and the bodies
of lambdas. A TIMESTAMP WITH TIME ZONE must not depend on the time zone of the session.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import duckdb

from sqlml.catalog.catalog_connection import strip_excerpt
from sqlml.catalog.row_expressions import RowExpression
from sqlml.dialects.duckdb import DUCKDB, builtin
from sqlml.errors import ParseError
from sqlml.host import RowHost
from sqlml.training.options.request import Request
from sqlml.types import fold


@dataclass(frozen=True)
class FittedRows:
    """The rows of a query that `request` does not hold out, and their column types."""

    host: RowHost
    query: str
    columns: Mapping[str, str]
    request: Request

    def list_types(self, expressions: Sequence[RowExpression]) -> list[str]:
        if not expressions:
            return []
        columns_sql = ", ".join(
            f"{e.to_sql({c: DUCKDB.quote_name(c) for c in e.columns})} AS c{n}"
            for n, e in enumerate(expressions)
        )
        query = f"SELECT {columns_sql} FROM (\n{self.query}\n) AS sqlml_rows"
        try:
            return [sql_type for _, sql_type in self.host.describe(query)]
        except duckdb.Error as error:
            # The excerpt would show the stored form of the expressions.
            raise type(error)(strip_excerpt(error)) from None

    def read_aggregates(self, aggregates: str) -> tuple[Any, ...]:
        (values,) = self.host.read(f"SELECT {aggregates} FROM {self._fitted_rows_sql}")
        return values

    def find_most_frequent(self, lists_sql: str, limit: int) -> list[str]:
        """Return the most frequent entries of `lists_sql`, an expression for lists of strings."""
        item_sql = f"{builtin('unnest')}({lists_sql}) AS item"
        items_query = f"SELECT {item_sql} FROM {self._fitted_rows_sql}"
        entries = self.host.read(
            f"SELECT item FROM ({items_query}) AS sqlml_items WHERE item IS NOT NULL GROUP BY item "
            f"ORDER BY {builtin('count')}(*) DESC, item LIMIT {limit}"
        )
        return [text for (text,) in entries]

    def _find_column(self, name: str | None) -> str | None:
        return next((c for c in self.columns if name is not None and fold(c) == fold(name)), None)

    @cached_property
    def _labelled_rows_sql(self) -> str:
        label = self._find_column(self.request.label)
        where = "" if label is None else f" WHERE {DUCKDB.quote_name(label)} IS NOT NULL"
        return f"(SELECT * FROM (\n{self.query}\n) AS sqlml_query{where}) AS sqlml_rows"

    @cached_property
    def _fitted_rows_sql(self) -> str:
        request = self.request
        group = self._find_column(request.group)
        keys = request.split.build_keys(self.columns, request.label, group, request.seed)
        ((count,),) = self.host.read(f"SELECT {builtin('count')}(*) FROM {self._labelled_rows_sql}")
        split = request.split.settle(count)
        last_fitted = None
        if split.method == "seq" and split.count_trained(count) < count:
            (key,) = keys
            type_sql = DUCKDB.call("typeof", key)
            ((text, sql_type),) = self.host.read(
                f"SELECT CAST({key} AS VARCHAR), {type_sql} FROM {self._labelled_rows_sql} "
                f"ORDER BY {key} NULLS LAST LIMIT 1 OFFSET {max(split.count_trained(count), 1) - 1}"
            )
            last_fitted = f"CAST({'NULL' if text is None else DUCKDB.text(text)} AS {sql_type})"
        if split.method == "none":
            keys = ()
        fitted_rows = split.select_side(self._labelled_rows_sql, keys, last_fitted, held_out=False)
        return f"({fitted_rows}) AS sqlml_fitted"


_ZONE_FREE = frozenset(
    "timezone epoch epoch_ms epoch_us epoch_ns to_timestamp uuid_extract_timestamp "
    "struct_extract array_extract list_extract map_extract_value list_element struct_pack row "
    "list_value len list_transform array_transform list_apply array_apply apply "
    "list_filter array_filter filter list_reduce array_reduce reduce".split()
)
"""Functions of times with a time zone that do not depend on the session's time zone."""


def check_time_zones(rows: FittedRows, expressions: Mapping[str, RowExpression]) -> None:
    """Reject expressions whose values change with the session's TimeZone."""
    if not expressions:
        return
    columns = dict.fromkeys(c for e in expressions.values() for c in e.columns)
    aliases = {column: f"sqlml_c{n}" for n, column in enumerate(columns)}
    columns_sql = []
    for column, alias in aliases.items():
        # The definition of an ENUM may be very long.
        sql_type = "VARCHAR" if rows.columns[column].startswith("ENUM(") else rows.columns[column]
        columns_sql.append(f"CAST(NULL AS {sql_type}) AS {alias}")
    features = ", ".join(f"{e.to_sql(aliases)} AS f{n}" for n, e in enumerate(expressions.values()))
    query = f"SELECT {features} FROM (SELECT {', '.join(columns_sql) or '1'}) AS sqlml_rows"
    ((serialized,),) = rows.host.read(f"SELECT {builtin('json_serialize_plan')}(?)", [query])
    plan = json.loads(serialized)
    if plan.get("error"):
        raise ParseError(f"TRANSFORM cannot be checked: {plan.get('error_message')}")
    for name, tree in zip(expressions, plan["plans"][0]["expressions"], strict=True):
        if any(map(_depends_on_zone, _walk_expressions(tree))):
            raise ParseError(_describe_fix(rows, name, expressions[name]))


def _describe_fix(rows: FittedRows, name: str, expression: RowExpression) -> str:
    column = next((c for c in expression.columns if rows.columns[c] in _ZONED), None)
    fix = "convert each TIMESTAMPTZ first, with AT TIME ZONE 'UTC'"
    if column is not None:
        quoted = column if column.isidentifier() else DUCKDB.quote_name(column)
        fix = f"write ({quoted} AT TIME ZONE 'UTC') instead of {quoted}"
    return f"feature {name!r} would change with the session's TimeZone: {fix}"


def _walk_expressions(value: Any) -> Iterator[Mapping[str, Any]]:
    """Yield all expressions in a plan, including the bodies of lambdas."""
    if isinstance(value, Mapping):
        if "expression_class" in value:
            yield value
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _walk_expressions(item)


def _depends_on_zone(node: Mapping[str, Any]) -> bool:
    children = [*node.get("children", ()), *([node["child"]] if "child" in node else ())]
    argument_types = [_dump_type(child) for child in children]
    result_type = _dump_type(node)
    types_text = " ".join((*argument_types, result_type))
    has_zone = "TIME ZONE" in types_text or "TIMESTAMPTZ" in types_text
    if node["type"] == "OPERATOR_CAST":
        return has_zone and any(t not in (result_type, _NULL_TYPE) for t in argument_types)
    if node["expression_class"] == "BOUND_CONSTANT":
        return has_zone and not node["value"].get("is_null")
    if node["type"] != "BOUND_FUNCTION" or not has_zone:
        return False
    function_name = str(node["name"] if "name" in node else node["qname"]["path"][-1])
    if function_name == "timezone":
        # The session's time zone is used for a single argument, and to convert a TIME.
        return len(children) != 2 or '"TIME WITH TIME ZONE"' in result_type
    return function_name not in _ZONE_FREE


def _dump_type(node: Mapping[str, Any]) -> str:
    return json.dumps(node.get("return_type") or node.get("value", {}).get("type"))


_NULL_TYPE = json.dumps({"id": "NULL", "type_info": None})
_ZONED = ("TIMESTAMP WITH TIME ZONE", "TIMESTAMPTZ_NS")
