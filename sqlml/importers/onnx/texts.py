"""Comparisons and choices that may be of strings, as files of sqlml write them.

A string that is not equal to itself is NULL; where strings equal to one are replaced by another,
that is a `fill`.
"""

from __future__ import annotations

import numpy as np

from sqlml.importers.onnx.items import Call, Const, Item, Rows, Texts, aligned
from sqlml.importers.onnx.model import NULL
from sqlml.ir.builder import Value


def identity(call: Call) -> Item:
    """The same; strings with the one that stands for NULL, where the file names it."""
    item, null = call.item(0), call.node.notes.get(NULL)
    if null is None or not isinstance(item, Texts):
        return item
    return Texts(tuple(call.op("fill", c, value=null) for c in item.columns), item.inner)


def equal(call: Call) -> Item:
    """Strings with themselves or with one constant; numbers with numbers."""
    left, right = call.item(0), call.item(1)
    if isinstance(left, Texts) and isinstance(right, Texts):
        if left.columns != right.columns or left.inner != right.inner:
            raise call.unknown("it compares two columns of strings")
        return _joined(call, [call.op("not", call.op("isnan", c)) for c in left.columns], left)
    if isinstance(left, Texts) and isinstance(right, Const):
        known = _text(call, right)
        return _joined(call, [_same(call, c, known) for c in left.columns], left)
    values, inner = aligned(call, [left, right])
    return Rows(call.op("eq", *values), inner)


def where(call: Call) -> Item:
    """Numbers by a condition; strings with one of them replaced."""
    condition, chosen, other = (call.item(i) for i in range(3))
    if isinstance(other, Texts) and isinstance(chosen, Const):
        return _filled(call, condition, _text(call, chosen), other)
    values, inner = aligned(call, [condition, chosen, other])
    return Rows(call.op("where", *values), inner)


def _filled(call: Call, condition: Item, value: str, x: Texts) -> Item:
    if len(x.columns) == 1 and isinstance(condition, Rows):
        b, (column,) = call.builder, x.columns
        test = b.node(condition.value)
        found = b.node(b.value(test.inputs[0])) if test.op == "eq" else test
        if found.op == "encode" and found.inputs == (column.index,):
            (known,) = found.attrs["categories"].tolist()
            return Texts((call.op("fill", column, value=value, missing=known),), x.inner)
    raise call.unknown("it chooses strings by something else than one of them")


def _text(call: Call, item: Const) -> str:
    if item.value.size != 1 or item.value.dtype != object:
        raise call.unknown("it compares strings with something else than one string")
    return str(item.value.item())


def _same(call: Call, column: Value, known: str) -> Value:
    categories = np.array([known], object)
    code = call.op("encode", column, categories=categories, missing=-1)
    return call.op("eq", code, call.scalar(0, "int64"))


def _joined(call: Call, columns: list[Value], like: Texts) -> Rows:
    return Rows(columns[0] if len(columns) == 1 else call.op("concat", *columns), like.inner)
