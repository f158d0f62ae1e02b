"""Structs as arguments: a row, a struct column, `{..}`: their fields as named columns."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from operator import itemgetter

from sqlml.dialects.type_names import struct_fields
from sqlml.errors import BindError
from sqlml.parsing.places import Span, overlaps
from sqlml.planner.binding.column_types import Available, Bound, bracket
from sqlml.planner.binding.probe_queries import is_row_of_table
from sqlml.planner.binding.scope import Scope
from sqlml.planner.syntax.outline import Argument
from sqlml.types import fold


def struct_columns(plain: Sequence[Argument], scope: Scope) -> Available | None:
    """The fields of the one argument that is a struct or a table's row; None when it is neither."""
    if len(plain) != 1:
        return None
    (argument,) = plain
    literal = _struct_literal(argument, scope)
    if literal is not None:
        return literal
    sql = scope.text(argument.span)
    try:
        (column,) = scope.single([argument.span])
    except BindError:
        return None
    fields = struct_fields(column.type)
    if fields is None:
        return None
    # The engine makes the row of a table anew for each field that is read of it, so its columns are
    # read instead. A struct column's fields are not read as `c.a`: where a table has the name c,
    # too, that is the table's column.
    is_row = _is_row_of_table(argument, [field.name for field in fields], scope)
    available: Available = {}
    for field in fields:
        read = scope.dialect.field(sql, field.name)
        if is_row:
            read = f"{sql}.{scope.dialect.quote_name(field.name)}"
        available.setdefault(fold(field.name), []).append(Bound(read, field.type))
    return available


def _is_row_of_table(argument: Argument, fields: Sequence[str], scope: Scope) -> bool:
    """Return whether an argument is the row of a table whose columns can be read in its place.

    They cannot where the query groups its rows by that row.
    """
    names = [word for word, _ in _words_in(argument.span, scope)]
    if scope.block is None or argument.column is None or names != [argument.column]:
        return False
    grouped = () if scope.block.group is None else _words_in(scope.block.group, scope)
    for word, at in grouped:
        in_call = overlaps(Span(at, at + 1), scope.outline.outer_calls)
        if word == argument.column and not in_call:
            return False
    return is_row_of_table(
        scope.text(argument.span),
        argument.column,
        fields,
        scope.block,
        scope.probed,
        scope.describe,
    )


def _words_in(place: Span, scope: Scope) -> Sequence[tuple[str, int]]:
    """Return the identifiers at a place, folded, with their places."""
    words = scope.outline.words
    first = bisect_left(words, place.start, key=itemgetter(1))
    return words[first : bisect_left(words, place.end, key=itemgetter(1))]


def _struct_literal(argument: Argument, scope: Scope) -> Available | None:
    """`{'a': x, 'b': y}`: its entries feed the features directly."""
    if argument.fields is None:
        return None
    places = [place for _, place in argument.fields]
    available: Available = {}
    for (name, place), column in zip(argument.fields, scope.single(places), strict=True):
        value = Bound(bracket(scope.text(place)), column.type)
        available.setdefault(fold(name), []).append(value)
    return available
