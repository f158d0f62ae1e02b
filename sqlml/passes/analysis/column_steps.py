"""Column-wise steps between a value and the columns below it, for passes that fold them away.

A step is monotone and non-decreasing in each column: scaling by positive numbers, shifting,
clipping, rounding to float32. So is a chain of them, in exact arithmetic and in floating point.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sqlml.ir.builder import Builder, Value
from sqlml.ir.operators.elementwise import UFUNCS
from sqlml.types import FLOATS, Array, numpy_dtype


@dataclass(frozen=True, slots=True)
class Step:
    """One operator of a chain; `operand` is its constant per column (k,), None for a cast."""

    op: str
    operand: Array | None
    dtype: str

    def apply(self, x: Array, columns: Array) -> Array:
        """The step on values x (m,), the i-th of which stands in column `columns[i]`."""
        if self.operand is None:
            with np.errstate(all="ignore"):
                return x.astype(self.dtype)
        with np.errstate(all="ignore"):
            made: Array = UFUNCS[self.op](x, self.operand[columns])
        return made


_STEPS = frozenset({"add", "sub", "mul", "div", "maximum", "minimum"})
"""Operators that, with a constant, may be a step."""


def step_below(b: Builder, x: Value) -> tuple[Value, Step] | None:
    """The step that makes `x`, with the value it reads; None if another operator makes it."""
    node = b.node(x)
    if node.op == "cast":
        below = b.value(node.inputs[0])
        if below.type.dtype in FLOATS and x.type.dtype in FLOATS:
            return below, Step("cast", None, x.type.dtype)
        return None
    if node.op not in _STEPS or len(x.type.shape) != 2:
        return None
    below, other = (b.value(i) for i in node.inputs)
    if not below.type.rowwise and node.op in ("add", "mul", "maximum", "minimum"):
        below, other = other, below
    constant = b.node(other)
    if constant.op != "constant" or below.type != x.type or x.type.dtype not in FLOATS:
        return None
    value: Array = constant.attrs["value"]
    if value.ndim > 1 or not np.isfinite(value).all():
        return None
    if node.op in ("mul", "div") and not (value > 0).all():
        return None
    operand = np.broadcast_to(value, (x.type.width,)).astype(numpy_dtype(x.type.dtype))
    return below, Step(node.op, operand, x.type.dtype)
