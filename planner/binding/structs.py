"""Structs as arguments: a row, a struct column, `{..}`: their fields as named columns."""

from __future__ import annotations

from collections.abc import Sequence

from sqlml.dialects.type_names import struct_fields
from sqlml.errors import BindError
from sqlml.planner.binding.column_types import Available, Bound, bracket
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
    available: Available = {}
    for field in fields:
        # Not `c.a`: where a table and its struct column share the name c, that is the table's.
        read = scope.dialect.field(sql, field.name)
        available.setdefault(fold(field.name), []).append(Bound(read, field.type))
    return available


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
