"""`transform_items`: what TRANSFORM (..) lists, as expressions of a row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import partial
from typing import Any

from sqlml.catalog.row_expressions import (
    Item,
    RowExpression,
    argument_trees,
    called,
    check_plain_call,
    items_of,
    kept,
    shown,
)
from sqlml.dialects.duckdb import DUCKDB
from sqlml.errors import ParseError
from sqlml.training.transform.fitted_rows import FittedRows
from sqlml.training.transform.preprocessor_forms import (
    FORMS,
    check_column,
    check_count,
    check_values,
)
from sqlml.training.transform.preprocessors import (
    PREPROCESSORS,
    Arguments,
    feature_cross,
    multi_hot,
)
from sqlml.types import fold

Named = tuple[str, RowExpression | None]
"""The name of a feature and the expression that makes it; None for a column as it is."""

SEVERAL = ("ml_multi_hot_encoder", "ml_feature_cross")
"""Functions that make several features, and stand alone."""


def transform_items(rows: FittedRows, texts: Sequence[str], named: set[str]) -> list[Named]:
    """Name and expression of each feature, of yet unknown types.

    Args:
        texts: the items. named: columns that options name, folded, which a star leaves out.

    Raises:
        ParseError: an item is no expression over a row, or has no name.
    """
    made: list[Named] = []
    listed = items_of(rows.host.read, texts)
    plain = {fold(n) for i in listed if not i.star for n in (i.column or "", i.name)}
    for item in listed:
        if item.star:
            _check_excluded(rows, item)
            gone = item.excluded | plain | named
            made += [(name, None) for name in rows.columns if fold(name) not in gone]
        elif called(item.tree) in SEVERAL:
            made += _several(rows, item)
        else:
            made.append(_one(rows, item))
    return made


def _check_excluded(rows: FittedRows, item: Item) -> None:
    missing = item.excluded - {fold(name) for name in rows.columns}
    if missing:
        known = ", ".join(list(rows.columns)[:30])
        raise ParseError(
            f"EXCLUDE names a column {min(missing)!r} that the query does not have; its columns: "
            f"{known}"
        )


def _one(rows: FittedRows, item: Item) -> Named:
    sql, columns = _kept(rows, item)
    if not item.name:
        raise ParseError(f"give {item.text!r} in TRANSFORM a name with AS")
    if item.column is not None and fold(item.name) == fold(item.column):
        return columns[0], None
    return item.name, RowExpression(sql, columns, "DOUBLE")


def _several(rows: FittedRows, item: Item) -> list[Named]:
    """The features of a function that makes several, called by the item's name and their own."""
    name = str(called(item.tree))
    check_plain_call(item.tree)
    trees = argument_trees(item.tree)
    check_count(name, len(trees))
    if not item.name:
        raise ParseError(f"give {item.text!r} in TRANSFORM a name with AS")
    fields = _fields(trees[0]) if name == "ml_feature_cross" else {}
    values = tuple(_constant(rows, name, tree) for tree in trees[1:])
    check_values(name, values)
    if fields:
        whole = [Item(field, tree, field) for field, tree in fields.items()]
        joined = _together(rows, whole)
        made = feature_cross(joined, values[0] if values and values[0] else 2)
        columns = tuple(dict.fromkeys(c for i in whole for c in _kept(rows, i)[1]))
    else:
        column, columns = _kept(rows, Item("", trees[0], item.text))
        made = multi_hot(_arguments(rows, name, column, columns, values))
    single = len(made) == 1
    return [
        (item.name if single else f"{item.name}_{part}", RowExpression(sql, columns, "DOUBLE"))
        for part, sql in made.items()
    ]


def _together(rows: FittedRows, items: Sequence[Item]) -> dict[str, str]:
    """Expressions whose places stand for the columns of all of them."""
    columns = tuple(dict.fromkeys(c for item in items for c in _kept(rows, item)[1]))
    places = {column: f"sqlml_raw_{n}" for n, column in enumerate(columns)}
    made = {}
    for item in items:
        sql, own = _kept(rows, item)
        made[item.name] = RowExpression(sql, own, "VARCHAR").plain(places)
    return made


def _fields(tree: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The columns that a struct names, by the names of its fields.

    Raises:
        ParseError: it is no struct of at least two columns.
    """
    fields = argument_trees(tree) if called(tree) in _STRUCTS else []
    named = {_field_name(field): field for field in fields}
    if len(named) < 2 or "" in named:
        example = FORMS["ml_feature_cross"].example
        raise ParseError(f"ml_feature_cross takes a struct of at least two columns: {example}")
    return named


_STRUCTS = ("struct_pack", "row", "struct")
"""What `{'a': a}`, `(a, b)` and `STRUCT(a, b)` call."""


def _field_name(tree: Mapping[str, Any]) -> str:
    names = tree.get("column_names") or ("",)
    return str(tree.get("sqlml_name") or names[-1])


def _kept(rows: FittedRows, item: Item) -> tuple[str, tuple[str, ...]]:
    return kept(rows.host.read, item, list(rows.columns), partial(_preprocessed, rows))


def _preprocessed(
    rows: FittedRows, name: str, arguments: Sequence[str], columns: Sequence[str]
) -> str | None:
    """What stands for the call of a preprocessing function."""
    if name in SEVERAL:
        raise ParseError(f"{name} makes several features, and stands alone in TRANSFORM")
    check_count(name, len(arguments))
    column, *others = arguments
    values = tuple(_value(rows, name, text, columns) for text in others)
    check_values(name, values)
    return PREPROCESSORS[name](_arguments(rows, name, column, tuple(columns), values))


def _arguments(
    rows: FittedRows, name: str, column: str, columns: tuple[str, ...], values: tuple[Any, ...]
) -> Arguments:
    """The arguments of a call, whose column the function takes.

    Args:
        columns: those that places in `column` mean.
    """
    made = RowExpression(column, columns, "DOUBLE")
    (kind,) = rows.types([made])
    written = _written(made)
    check_column(name, written, kind)
    return Arguments(name, column, kind, written, values, partial(_ask, rows, columns))


def _ask(rows: FittedRows, columns: Sequence[str], aggregates: str) -> tuple[Any, ...]:
    """Values over the rows that are fitted to, of expressions as they are kept."""
    quoted = {name: DUCKDB.quote_name(name) for name in columns}
    return rows.ask(RowExpression(aggregates, tuple(columns), "DOUBLE").plain(quoted))


def _constant(rows: FittedRows, name: str, tree: Mapping[str, Any]) -> Any:
    """The value of an argument of a function."""
    return _value(rows, name, *kept(rows.host.read, Item("", tree, ""), list(rows.columns)))


def _value(rows: FittedRows, name: str, sql: str, columns: Sequence[str]) -> Any:
    """The value of an argument of a function, which reads no column.

    Raises:
        ParseError: it reads one.
    """
    if "sqlml_raw_" in sql:
        written = _written(RowExpression(sql, tuple(columns), "DOUBLE"))
        example = FORMS[name].example
        raise ParseError(
            f"{name} takes constants behind its first argument, not {written}: {example}"
        )
    ((value,),) = rows.host.read(f"SELECT {sql}")
    return _plain(value)


def _written(made: RowExpression) -> str:
    """An expression as messages show it."""
    return shown(made.plain({column: column for column in made.columns}))


def _plain(value: Any) -> Any:
    """A value with numbers in place of decimals."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return float(value) if isinstance(value, Decimal) else value
