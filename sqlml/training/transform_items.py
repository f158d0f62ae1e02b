"""`transform_items`: what TRANSFORM (..) lists, as expressions of a row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from sqlml.catalog.row_expressions import (
    Item,
    RowExpression,
    argument_trees,
    called,
    items_of,
    kept,
)
from sqlml.dialects.duckdb import DUCKDB
from sqlml.errors import ParseError
from sqlml.suggestions import closest
from sqlml.training.fitted_rows import FittedRows
from sqlml.training.preprocessors import PREPROCESSORS, Arguments, feature_cross, multi_hot
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
            gone = item.excluded | plain | named
            made += [(name, None) for name in rows.columns if fold(name) not in gone]
        elif called(item.tree) in SEVERAL:
            made += _several(rows, item)
        else:
            made.append(_one(rows, item))
    return made


def _one(rows: FittedRows, item: Item) -> Named:
    sql, columns = _kept(rows, item)
    if not item.name:
        raise ParseError(f"give {item.text!r} in TRANSFORM a name with AS")
    if item.column is not None and fold(item.name) == fold(item.column):
        return columns[0], None
    return item.name, RowExpression(sql, columns, "DOUBLE")


def _several(rows: FittedRows, item: Item) -> list[Named]:
    """The features of a function that makes several, called by the item's name and their own."""
    name = called(item.tree)
    trees = argument_trees(item.tree)
    if not trees or not item.name:
        raise ParseError(f"{name} takes a column, and a name with AS")
    if name == "ml_feature_cross":
        fields = {_field_name(tree): tree for tree in argument_trees(trees[0])}
        whole = [Item(field, tree, field) for field, tree in fields.items()]
        joined = _together(rows, whole)
        degree = int(_constant(rows, trees[1])) if len(trees) > 1 else 2
        made = feature_cross(joined, degree)
        columns = tuple(dict.fromkeys(c for i in whole for c in _kept(rows, i)[1]))
    else:
        column, columns = _kept(rows, Item("", trees[0], item.text))
        values = tuple(_constant(rows, tree) for tree in trees[1:])
        made = multi_hot(Arguments(str(name), column, values, partial(_ask, rows, columns)))
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


def _field_name(tree: Mapping[str, Any]) -> str:
    names = tree.get("column_names") or ()
    name = tree.get("sqlml_name") or (names[-1] if names else "")
    if not name:
        raise ParseError("ml_feature_cross takes a struct of columns: {'a': a, 'b': b}")
    return str(name)


def _kept(rows: FittedRows, item: Item) -> tuple[str, tuple[str, ...]]:
    return kept(rows.host.read, item, list(rows.columns), partial(_preprocessed, rows))


def _preprocessed(
    rows: FittedRows, name: str, arguments: Sequence[str], columns: Sequence[str]
) -> str | None:
    """What stands for the call of a preprocessing function."""
    if name in SEVERAL:
        raise ParseError(f"{name} makes several features, and stands alone in TRANSFORM")
    if name not in PREPROCESSORS:
        near = closest(name, PREPROCESSORS)
        hint = f"did you mean {near}?" if near else f"functions: {', '.join(PREPROCESSORS)}"
        raise ParseError(f"unknown function {name}; {hint}")
    if not arguments:
        raise ParseError(f"{name} takes a column")
    column, *others = arguments
    values = tuple(_value(rows, text) for text in others)
    given = Arguments(name, column, values, partial(_ask, rows, tuple(columns)))
    return PREPROCESSORS[name](given)


def _ask(rows: FittedRows, columns: Sequence[str], aggregates: str) -> tuple[Any, ...]:
    """Values over the rows that are fitted to, of expressions as they are kept."""
    quoted = {name: DUCKDB.quote_name(name) for name in columns}
    return rows.ask(RowExpression(aggregates, tuple(columns), "DOUBLE").plain(quoted))


def _constant(rows: FittedRows, tree: Mapping[str, Any]) -> Any:
    sql, columns = kept(rows.host.read, Item("", tree, ""), list(rows.columns))
    if columns:
        raise ParseError(f"{sql} must be the same for all rows")
    return _value(rows, sql)


def _value(rows: FittedRows, sql: str) -> Any:
    """The value of an expression that reads no column."""
    if "sqlml_raw_" in sql:
        raise ParseError("the arguments after the column must be the same for all rows")
    ((value,),) = rows.host.read(f"SELECT {sql}")
    return float(value) if hasattr(value, "as_tuple") else value
