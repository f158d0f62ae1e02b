"""CumSum: sums from left to right, of which the IR makes the last ones alone."""

from __future__ import annotations

import numpy as np

from sqlml.importers.onnx.items import Call, Const, Item, Sums
from sqlml.types import FLOATS


def running_sums(call: Call) -> Item:
    """Sums along a column axis, with their own numbers and from the front."""
    (axis,) = call.ints(1)
    if call.integer("exclusive", 0) or call.integer("reverse", 0):
        raise call.unknown("it adds from the end, or all but a number itself")
    item = call.item(0)
    if isinstance(item, Const):
        return Const(np.cumsum(item.value, axis, item.value.dtype))
    x = call.rows(0)
    rank = len(x.inner) + 1
    axis = axis + rank if axis < 0 else axis
    if not 0 < axis < rank or x.dtype not in FLOATS:
        raise call.unknown("it adds up rows, or whole numbers")
    return Sums(x, axis - 1)
