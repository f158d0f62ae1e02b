"""`flat_parts`: the columns that a list, a map or a struct is to a model."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import duckdb

from sqlml.catalog.row_expressions import RowExpression, may_be_kept
from sqlml.dialects.duckdb import DUCKDB, builtin
from sqlml.dialects.type_names import NUMBERS
from sqlml.training.transform.fitted_rows import FittedRows

MOST_ITEMS = 100
"""Entries of lists of names, and keys of maps, that become columns: the most frequent ones."""

MOST_PLACES = 4096
"""Parts of one column; one with more is left out."""

FlatPart = tuple[str, str, RowExpression]
"""The name of a column, its type, and what makes it."""


def flat_parts(rows: FittedRows, name: str, made: RowExpression) -> list[FlatPart]:
    """The parts of a column that is nested, parts of parts included; none of any other, and of
    lists of numbers of different lengths.

    An array's numbers, or a list's if all are equally long, are parts by their place; the most
    frequent entries of lists of names are parts that say whether they are there; the most frequent
    keys of a map, its values, 0 or missing without the key; and the fields of a struct.

    Args:
        made: what reads the column, with its type in the engine.
    """
    if not _NESTED.search(made.type):
        return []
    kind = duckdb.sqltype(made.type)
    found = _PARTS.get(kind.id, _nothing)(rows, made, kind)
    flat: list[FlatPart] = []
    for suffix, sql, type_name in found:
        part = RowExpression(sql, made.columns, type_name)
        own = f"{name}_{suffix}"
        flat += flat_parts(rows, own, part) or [(own, type_name, part)]
        if len(flat) > MOST_PLACES:
            return []
    return flat


_NESTED = re.compile(r"\]$|^(MAP|STRUCT)\(", re.DOTALL)

Found = Iterator[tuple[str, str, str]]
"""Suffix of the name, expression and type of each part."""


def _nothing(rows: FittedRows, made: RowExpression, kind: Any) -> Found:
    return iter(())


def _places(made: RowExpression, count: int, child: str) -> Found:
    for place in range(1, count + 1 if count <= MOST_PLACES else 0):
        yield str(place), f"{builtin('array_extract')}({made.sql}, {place})", child


def _of_array(rows: FittedRows, made: RowExpression, kind: Any) -> Found:
    (_, child), (_, size) = kind.children
    return _places(made, size, str(child))


def _of_list(rows: FittedRows, made: RowExpression, kind: Any) -> Found:
    child = str(kind.children[0][1])
    if NUMBERS.fullmatch(child):
        length = f"{builtin('len')}({_plain(made)})"
        least, most = rows.ask(f"{builtin('min')}({length}), {builtin('max')}({length})")
        yield from _places(made, (least or 0) if least == most else 0, child)
    elif _is_name(child):
        texts = f"CAST({made.sql} AS VARCHAR[])"
        for text in _frequent(rows, _plain(made)):
            found = f"{builtin('list_contains')}({texts}, {DUCKDB.quote_string(text)})"
            yield text, found, "BOOLEAN"


def _of_map(rows: FittedRows, made: RowExpression, kind: Any) -> Found:
    (_, key), (_, value) = kind.children
    value = str(value)
    if not _is_name(str(key)) or not (NUMBERS.fullmatch(value) or _is_name(value)):
        return
    keys = f"{builtin('map_keys')}({_plain(made)})"
    for text in _frequent(rows, keys):
        wanted = f"CAST({DUCKDB.quote_string(text)} AS {key})"
        found = f"{builtin('map_extract_value')}({made.sql}, {wanted})"
        if NUMBERS.fullmatch(value):  # as DictVectorizer has it
            zero = f"CASE WHEN {made.sql} IS NOT NULL THEN CAST(0 AS {value}) END"
            found = f"COALESCE({found}, {zero})"
        yield text, found, value


def _of_struct(rows: FittedRows, made: RowExpression, kind: Any) -> Found:
    for field, child in kind.children:
        if not field or not may_be_kept(field):
            continue
        name = DUCKDB.quote_string(field)
        yield field, f"{builtin('struct_extract')}({made.sql}, {name})", str(child)


_PARTS: Mapping[str, Callable[[FittedRows, RowExpression, Any], Found]] = MappingProxyType(
    {"array": _of_array, "list": _of_list, "map": _of_map, "struct": _of_struct}
)
"""Kind of type -> its parts."""


def _frequent(rows: FittedRows, lists: str) -> list[str]:
    """The most frequent entries of lists."""
    found = rows.most_frequent(f"CAST({lists} AS VARCHAR[])", MOST_ITEMS)
    return sorted(text for text in found if may_be_kept(text))


def _is_name(kind: str) -> bool:
    return kind == "VARCHAR" or kind.startswith("ENUM(")


def _plain(made: RowExpression) -> str:
    """The expression over the query's own columns."""
    return made.plain({name: DUCKDB.quote_name(name) for name in made.columns})
