"""Checks as files of sqlml write them: zeros looked up where nothing is wrong, added to numbers.

The look-up fails where something is wrong. Its node says beside it what is checked; that is
believed only where the graph computes the same.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from sqlml.errors import ProgramError
from sqlml.importers.onnx.items import Call, Const, Rows
from sqlml.importers.onnx.model import CHECK
from sqlml.ir.builder import Builder, Value
from sqlml.types import Array


def checked(call: Call, table: Array, indices: Rows) -> Value | None:
    """The numbers after the check, where the look-up of `indices` in `table` is one."""
    note = call.node.notes.get(CHECK)
    if note is None or table.shape != (1,) or table.dtype.kind not in "if" or table[0] != 0:
        return None
    if table.dtype.kind == "f" and not np.signbit(table[0]):  # x + 0.0 is another -0.0
        return None
    b = call.builder
    cast = b.node(indices.value)
    bad = b.value(cast.inputs[0]) if cast.op == "cast" else indices.value
    if bad.type.dtype != "bool":
        return None
    try:
        attrs = json.loads(note)
        return _known(b, bad, attrs) or _finite(b, bad, attrs)
    except (ValueError, TypeError, KeyError, RecursionError, ProgramError):
        return None


def added(call: Call) -> Value | None:
    """x + zeros of a check of x: the checked numbers."""
    left, right = call.item(0), call.optional(1)
    if isinstance(left, Const) or not isinstance(right, Rows) or right.check is None:
        return None
    x = call.rows(0)
    checks = call.builder.node(right.check).inputs == (x.value.index,)
    return right.check if checks and x.inner == right.inner else None


def _known(b: Builder, bad: Value, attrs: dict[str, Any]) -> Value | None:
    """require_known: bad is x < 0."""
    node = b.node(bad)
    if node.op != "lt" or set(attrs) != {"feature", "step"} or not _is(b, node.inputs[1], 0):
        return None
    return b.op("require_known", b.value(node.inputs[0]), **attrs)


def _finite(b: Builder, bad: Value, attrs: dict[str, Any]) -> Value | None:
    """require_finite: bad is |x| = inf, or that or NaN."""
    if set(attrs) != {"features", "allow_nan", "step"}:
        return None
    parts = [bad]
    if not attrs["allow_nan"]:
        node = b.node(bad)
        if node.op != "or":
            return None
        parts = [b.value(i) for i in node.inputs]
    infinite = b.node(parts[0])
    size = b.node(b.value(infinite.inputs[0]))
    if infinite.op != "eq" or size.op != "abs" or not _is(b, infinite.inputs[1], np.inf):
        return None
    x = size.inputs[0]
    if len(parts) == 2:
        gone = b.node(parts[1])
        if gone.op != "isnan" or gone.inputs != (x,):
            return None
    features = tuple(str(name) for name in attrs["features"])
    value = b.value(x)
    return b.op(
        "require_finite",
        value,
        features=features,
        allow_nan=bool(attrs["allow_nan"]),
        step=str(attrs["step"]),
    )


def _is(b: Builder, index: int, number: float) -> bool:
    value = b.node(b.value(index)).attrs.get("value")
    return value is not None and np.size(value) == 1 and bool(np.all(value == number))
