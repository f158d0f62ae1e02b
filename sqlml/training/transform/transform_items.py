"""The items of TRANSFORM (...), compiled to row expressions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import partial
from typing import Any

from sqlml.catalog.row_expressions import (
    Item,
    RowExpression,
    check_plain_call,
    find_function_name,
    list_arguments,
    parse_items,
    shorten_names,
    to_stored_sql,
)
from sqlml.dialects.duckdb import DUCKDB
from sqlml.errors import ConfigError, ParseError
from sqlml.training.transform import preprocessors
from sqlml.training.transform.fitted_rows import FittedRows
from sqlml.types import fold

NamedFeature = tuple[str, RowExpression | None]
"""The name of a feature, and the expression that computes it, or None for an unchanged column."""

MULTI_FEATURE_FUNCTIONS = ("ml_multi_hot_encoder", "ml_feature_cross")
"""Functions that compute several features, and so cannot be nested."""


def transform_items(
    rows: FittedRows, texts: Sequence[str], option_columns: set[str]
) -> list[NamedFeature]:
    """Compile `texts`, the items of TRANSFORM (...), to features whose SQL types are not yet set.

    A star leaves out `option_columns`, the case-folded names of columns that options name.
    """
    features: list[NamedFeature] = []
    items = parse_items(rows.host.read, texts)
    listed_names = {fold(n) for i in items if not i.star for n in (i.column or "", i.name)}
    for item in items:
        if item.star:
            _check_excluded(rows, item)
            excluded = item.excluded | listed_names | option_columns
            features += [(name, None) for name in rows.columns if fold(name) not in excluded]
        elif find_function_name(item.tree) in MULTI_FEATURE_FUNCTIONS:
            features += _compile_multi_item(rows, item)
        else:
            features.append(_compile_item(rows, item))
    return features


def _check_excluded(rows: FittedRows, item: Item) -> None:
    missing = item.excluded - {fold(name) for name in rows.columns}
    if missing:
        columns = ", ".join(list(rows.columns)[:30])
        fault = f"EXCLUDE names a column {min(missing)!r} that the query does not have"
        raise ParseError(f"{fault}; its columns: {columns}")


def _compile_item(rows: FittedRows, item: Item) -> NamedFeature:
    sql, columns = _compile_expression(rows, item)
    if not item.name:
        raise ParseError(f"give {item.text!r} in TRANSFORM a name with AS")
    if item.column is not None and fold(item.name) == fold(item.column):
        return columns[0], None
    return item.name, RowExpression(sql, columns, "DOUBLE")


def _compile_multi_item(rows: FittedRows, item: Item) -> list[NamedFeature]:
    name = str(find_function_name(item.tree))
    check_plain_call(item.tree)
    trees = list_arguments(item.tree)
    preprocessors.check_argument_count(name, len(trees))
    if not item.name:
        raise ParseError(f"give {item.text!r} in TRANSFORM a name with AS")
    fields = _list_struct_fields(trees[0]) if name == "ml_feature_cross" else {}
    values = tuple(
        _evaluate(rows, name, *to_stored_sql(rows.host.read, Item("", tree, ""), [*rows.columns]))
        for tree in trees[1:]
    )
    preprocessors.check_constants(name, values)
    if fields:
        field_sql, columns = _compile_with_shared_columns(rows, fields)
        degree = values[0] if values and values[0] else 2
        expressions = preprocessors.compile_feature_cross(field_sql, degree)
    else:
        column, columns = _compile_expression(rows, Item("", trees[0], item.text))
        bound_arguments = _bind_arguments(rows, name, column, columns, values)
        expressions = preprocessors.compile_multi_hot(bound_arguments)
    is_single = len(expressions) == 1
    names = [item.name] if is_single else [f"{item.name}_{suffix}" for suffix in expressions]
    named_sqls = zip(names, expressions.values(), strict=True)
    return [(feature, RowExpression(sql, columns, "DOUBLE")) for feature, sql in named_sqls]


def _compile_with_shared_columns(
    rows: FittedRows, trees: Mapping[str, Mapping[str, Any]]
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Compile `trees` with shared placeholders; return SQL keyed by name, and the columns."""
    compiled = {
        name: _compile_expression(rows, Item(name, tree, name)) for name, tree in trees.items()
    }
    columns = tuple(dict.fromkeys(c for _, own_columns in compiled.values() for c in own_columns))
    placeholders = {column: f"sqlml_raw_{n}" for n, column in enumerate(columns)}
    expressions = {
        name: RowExpression(sql, own_columns, "VARCHAR").to_sql(placeholders)
        for name, (sql, own_columns) in compiled.items()
    }
    return expressions, columns


def _list_struct_fields(tree: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    items = list_arguments(tree) if find_function_name(tree) in _STRUCT_FUNCTIONS else []
    names = [field.get("sqlml_name") or (field.get("column_names") or ("",))[-1] for field in items]
    fields_by_name = dict(zip(map(str, names), items, strict=True))
    if len(fields_by_name) < 2 or "" in fields_by_name:
        example = preprocessors.SIGNATURES["ml_feature_cross"].example
        raise ParseError(f"ml_feature_cross takes a struct of at least two columns: {example}")
    return fields_by_name


_STRUCT_FUNCTIONS = ("struct_pack", "row", "struct")
"""Functions that `{'a': a}`, `(a, b)` and `STRUCT(a, b)` call."""


def _compile_expression(rows: FittedRows, item: Item) -> tuple[str, tuple[str, ...]]:
    return to_stored_sql(rows.host.read, item, list(rows.columns), partial(_compile_call, rows))


def _compile_call(
    rows: FittedRows, name: str, arguments: Sequence[str], columns: Sequence[str]
) -> str | None:
    if name in MULTI_FEATURE_FUNCTIONS:
        raise ParseError(f"{name} computes several features, so it must stand alone in TRANSFORM")
    preprocessors.check_argument_count(name, len(arguments))
    column, *other_arguments = arguments
    values = tuple(_evaluate(rows, name, text, columns) for text in other_arguments)
    preprocessors.check_constants(name, values)
    bound_arguments = _bind_arguments(rows, name, column, tuple(columns), values)
    return preprocessors.PREPROCESSORS[name](bound_arguments)


def _bind_arguments(
    rows: FittedRows, name: str, column: str, columns: tuple[str, ...], values: tuple[Any, ...]
) -> preprocessors.Arguments:
    if rows.request.folds is not None:
        raise ConfigError(
            f"option cv: {name} reads all rows, so a fold's model would have learned from the rows "
            "that measure it: leave out cv, or use scalar functions in TRANSFORM"
        )
    expression = RowExpression(column, columns, "DOUBLE")
    (sql_type,) = rows.list_types([expression])
    shown_column = _render_expression(expression)
    preprocessors.check_column(name, shown_column, sql_type)
    ask = partial(_compute_aggregates, rows, columns)
    return preprocessors.Arguments(name, column, sql_type, shown_column, values, ask)


def _compute_aggregates(
    rows: FittedRows, columns: Sequence[str], aggregates: str
) -> tuple[Any, ...]:
    quoted = {name: DUCKDB.quote_name(name) for name in columns}
    return rows.read_aggregates(RowExpression(aggregates, tuple(columns), "DOUBLE").to_sql(quoted))


def _evaluate(rows: FittedRows, name: str, sql: str, columns: Sequence[str]) -> Any:
    if "sqlml_raw_" in sql:
        argument = _render_expression(RowExpression(sql, tuple(columns), "DOUBLE"))
        example = preprocessors.SIGNATURES[name].example
        message = f"{name} takes constants after its first argument, not {argument}: {example}"
        raise ParseError(message)
    ((value,),) = rows.host.read(f"SELECT {sql}")
    return _convert_decimals(value)


def _render_expression(expression: RowExpression) -> str:
    return shorten_names(expression.to_sql({column: column for column in expression.columns}))


def _convert_decimals(value: Any) -> Any:
    if isinstance(value, list):
        return [_convert_decimals(element) for element in value]
    return float(value) if isinstance(value, Decimal) else value
