"""Structs as arguments: a row, a struct column, `{..}`: their fields as named columns."""

from __future__ import annotations

from collections.abc import Sequence

from sqlml.dialects.type_names import struct_fields
from sqlml.errors import BindError
from sqlml.front.lexer import closing, split_commas
from sqlml.planner.calls import Argument
from sqlml.planner.column_types import Available, Bound, bracket
from sqlml.planner.scope import Scope
from sqlml.types import fold


def struct_columns(plain: Sequence[Argument], scope: Scope) -> Available | None:
    """The fields of the one argument that is a struct or a table's row; None when it is neither."""
    if len(plain) != 1:
        return None
    (argument,) = plain
    literal = _struct_literal(argument, scope)
    if literal is not None:
        return literal
    sql = scope.span(argument.start, argument.end)
    try:
        (column,) = scope.single([(argument.start, argument.end)])
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
    tokens = scope.tokens
    if not tokens[argument.start].is_symbol("{"):
        return None
    if closing(tokens, argument.start) != argument.end - 1:
        return None
    entries = split_commas(tokens, argument.start + 1, argument.end - 1)
    names, ranges = [], []
    for begin, end in entries:
        if end - begin < 3 or not tokens[begin + 1].is_symbol(":"):
            return None
        if tokens[begin].kind not in ("string", "word", "name"):
            return None
        names.append(tokens[begin].text)
        ranges.append((begin + 2, end))
    available: Available = {}
    for name, (begin, end), column in zip(names, ranges, scope.single(ranges), strict=True):
        sql = scope.span(begin, end)
        available.setdefault(fold(name), []).append(Bound(bracket(sql), column.type))
    return available
