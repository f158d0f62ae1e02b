"""The option `on_unknown`, which can treat categories that a model has never seen as NULL."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from sqlml.backends.sql.expression import number_literal, string_literal
from sqlml.bounded_cache import cache_by_program
from sqlml.dialects import DUCKDB, Dialect
from sqlml.errors import ConfigError
from sqlml.ir.builder import Builder, Value, rewrite
from sqlml.ir.program import Node, Program
from sqlml.planner.binding.column_types import BoundInput
from sqlml.planner.binding.refused_nulls import find_null_inputs
from sqlml.types import Array


def find_known_categories(options: Mapping[str, Any], program: Program) -> Mapping[str, Array]:
    """Return the known categories of each input whose unknown categories count as NULL.

    The mapping is empty unless the option `on_unknown` is 'null'. Raises ConfigError if the model
    checks something other than the categories of a column.
    """
    return _find_checked_categories(program) if options.get("on_unknown") == "null" else {}


def check_null_accepted(options: Mapping[str, Any], program: Program) -> None:
    """Raise ConfigError if the model rejects NULL too, so that NULL would not help the rows."""
    categories = find_known_categories(options, program)
    if not categories or options.get("on_null") == "null":
        return
    columns = find_null_inputs({"on_null": "null"}, program) & categories.keys()
    if columns:
        raise ConfigError(
            "on_unknown = 'null' turns a category that the model has never seen into NULL, which "
            f"the model also rejects in column {min(columns)!r}: set on_null = 'null' as well, so "
            "that the result for such a row is NULL"
        )


def replace_unknown_with_null(
    bound_inputs: Mapping[str, BoundInput],
    known_categories: Mapping[str, Array],
    dialect: Dialect = DUCKDB,
) -> dict[str, BoundInput]:
    """Return the inputs as expressions in which each unknown category becomes NULL."""
    new_inputs = dict(bound_inputs)
    for name in known_categories.keys() & new_inputs.keys():
        sql = _build_null_unless_known(new_inputs[name].sql, known_categories[name], dialect)
        new_inputs[name] = replace(new_inputs[name], sql=sql)
    return new_inputs


def _build_null_unless_known(sql: str, categories: Array, dialect: Dialect) -> str:
    values = categories.tolist()
    if categories.dtype == object:
        literals, compared_sql = [string_literal(v, dialect) for v in values], sql
    else:
        literals = [number_literal(v, dialect=dialect) for v in values]
        compared_sql = f"CAST({sql} AS DOUBLE)"
    # DuckDB turns IN and list_contains into joins, which do not keep the order of rows.
    position_sql = dialect.position(dialect.array(literals), compared_sql)
    return f"(CASE WHEN {position_sql} > 0 THEN {sql} END)"


@cache_by_program
def accept_unknown_as_missing(program: Program) -> Program:
    """Return a Program that treats an unknown category as a missing value."""

    def rewrite_check(builder: Builder, node: Node, inputs: Any) -> Value | None:
        if node.op != "require_known":
            return None
        missing_code = int(_find_encoder(program, node).attrs["missing"])
        if missing_code < 0:
            return None  # The model rejects NULL as well, with the same result.
        return builder.op("where", builder.op("lt", inputs[0], 0), missing_code, inputs[0])

    return rewrite(program, rewrite_check)


@cache_by_program
def _find_checked_categories(program: Program) -> Mapping[str, Array]:
    categories_by_input: dict[str, Array] = {}
    for check_node in (node for node in program.nodes if node.op == "require_known"):
        encoder = _find_encoder(program, check_node)
        source_node = program.nodes[encoder.inputs[0]]
        while source_node.op == "require_finite" or (
            source_node.op == "fill" and "missing" not in source_node.attrs
        ):
            source_node = program.nodes[source_node.inputs[0]]
        if source_node.op != "input":
            raise _make_unavailable_error(check_node)
        input_name = str(source_node.attrs["name"])
        categories: Array = encoder.attrs["categories"]
        if input_name in categories_by_input:
            known_values = set(categories_by_input[input_name].tolist())
            categories = categories[[value in known_values for value in categories.tolist()]]
        categories_by_input[input_name] = categories
    return MappingProxyType(categories_by_input)


def _find_encoder(program: Program, check_node: Node) -> Node:
    input_node = program.nodes[check_node.inputs[0]]
    if input_node.op != "encode":
        raise _make_unavailable_error(check_node)
    return input_node


def _make_unavailable_error(node: Node) -> ConfigError:
    return ConfigError(
        f"on_unknown = 'null' is not available for this model: {node.attrs['step']} checks "
        f"numbers that it computes from column {node.attrs['feature']!r}; filter such rows in the "
        "query"
    )
