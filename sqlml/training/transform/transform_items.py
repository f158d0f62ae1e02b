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
from sqlml.planner.syntax import preprocessing
from sqlml.planner.syntax.preprocessing_calls import replace_structs
from sqlml.training.transform import preprocessors
from sqlml.training.transform.fitted_rows import FittedRows
from sqlml.types import fold

NamedFeature = tuple[str, RowExpression | None]
"""The name of a feature, and the expression that computes it, or None for an unchanged column."""


def transform_items(
    rows: FittedRows, texts: Sequence[str], option_columns: set[str]
) -> list[NamedFeature]:
    """Compile `texts`, the items of TRANSFORM (...), to features whose SQL types are not yet set.

    A star leaves out `option_columns`, the case-folded names of columns that options name.
    """
    features: list[NamedFeature] = []
    items = parse_items(rows.host.read, [replace_structs(text) for text in texts])
    listed_names = {fold(n) for i in items if not i.star for n in (i.column or "", i.name)}
    for item in items:
        if item.star:
            _check_excluded(rows, item)
            excluded = item.excluded | listed_names | option_columns
            features += [(name, None) for name in rows.columns if fold(name) not in excluded]
        elif _has_several_features(rows, item):
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


def _has_several_features(rows: FittedRows, item: Item) -> bool:
    """Return whether the outermost function of an item computes several features."""
    name = find_function_name(item.tree)
    if name == "ml_one_hot_encoder":
        return _drops_category(name, _read_constants(rows, name, list_arguments(item.tree)))
    return name in preprocessing.MULTI_FEATURE_FUNCTIONS


def _drops_category(name: str, values: Sequence[Any]) -> bool:
    return name == "ml_one_hot_encoder" and values[:1] == ("most_frequent",)


def _compile_multi_item(rows: FittedRows, item: Item) -> list[NamedFeature]:
    name = str(find_function_name(item.tree))
    check_plain_call(item.tree)
    trees = list_arguments(item.tree)
    preprocessing.check_argument_count(name, len(trees))
    if not item.name:
        raise ParseError(f"give {item.text!r} in TRANSFORM a name with AS")
    is_struct = name in ("ml_feature_cross", "ml_polynomial_expand")
    fields = _list_struct_fields(name, trees[0]) if is_struct else {}
    values = _read_constants(rows, name, trees)
    if is_struct:
        field_sql, columns = _compile_with_shared_columns(rows, fields)
        expressions = preprocessing.expand_struct(name, field_sql, *values)
    else:
        column, columns = _compile_expression(rows, Item("", trees[0], item.text))
        bound_arguments = _bind_arguments(rows, name, column, columns, values)
        is_list = name == "ml_multi_hot_encoder"
        compile_item = preprocessors.compile_multi_hot if is_list else preprocessors.compile_dummies
        expressions = compile_item(bound_arguments)
    is_single = len(expressions) == 1
    names = [item.name] if is_single else [f"{item.name}_{suffix}" for suffix in expressions]
    named_sqls = zip(names, expressions.values(), strict=True)
    return [(feature, RowExpression(sql, columns, "DOUBLE")) for feature, sql in named_sqls]


def _read_constants(
    rows: FittedRows, name: str, trees: Sequence[Mapping[str, Any]]
) -> tuple[Any, ...]:
    """Check the number of arguments of a call, and return the values of all but the first one."""
    preprocessing.check_argument_count(name, len(trees))
    values = [
        _evaluate(rows, name, *to_stored_sql(rows.host.read, Item("", tree, ""), [*rows.columns]))
        for tree in trees[1:]
    ]
    return preprocessing.align_constants(name, values)


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


def _list_struct_fields(name: str, tree: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    items = list_arguments(tree) if find_function_name(tree) in _STRUCT_FUNCTIONS else []
    names = [field.get("sqlml_name") or (field.get("column_names") or ("",))[-1] for field in items]
    fields_by_name = dict(zip(map(str, names), items, strict=True))
    min_count = 2 if name == "ml_feature_cross" else 1
    if not min_count <= len(fields_by_name) == len(items) or "" in fields_by_name:
        example = preprocessing.SIGNATURES[name].example
        count = "at least two columns" if min_count == 2 else "columns with different names"
        raise ParseError(f"{name} takes a struct of {count}: {example}")
    return fields_by_name


_STRUCT_FUNCTIONS = ("struct_pack", "row", "struct")
"""Functions that `{'a': a}`, `(a, b)` and `STRUCT(a, b)` call."""


def _compile_expression(rows: FittedRows, item: Item) -> tuple[str, tuple[str, ...]]:
    return to_stored_sql(rows.host.read, item, list(rows.columns), partial(_compile_call, rows))


def _compile_call(
    rows: FittedRows, name: str, arguments: Sequence[str], columns: Sequence[str]
) -> str | None:
    preprocessing.check_argument_count(name, len(arguments))
    column, *other_arguments = arguments
    values = preprocessing.align_constants(
        name, [_evaluate(rows, name, text, columns) for text in other_arguments]
    )
    if name in preprocessing.MULTI_FEATURE_FUNCTIONS or _drops_category(name, values):
        raise ParseError(f"{name} computes several features, so it must stand alone in TRANSFORM")
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
    preprocessing.check_column(name, shown_column, sql_type)
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
        example = preprocessing.SIGNATURES[name].example
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
