"""A comparison of a sigmoid with a number becomes a comparison of the margin itself. Exact.

The sigmoid never decreases, so sigmoid(x) > p holds from some float on, which bisection finds with
the reference's own sigmoid; a few floats around it are tried too, and where rounding makes the
function step back there, nothing is changed.

A softmax before argmax stays, though Hummingbird drops it: two margins that differ in the last bit
may have equal float32 probabilities, and then the source library takes the first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from sqlml.ir import reference
from sqlml.ir.builder import Builder, Value
from sqlml.ir.program import Node, Program
from sqlml.ir.rewrite import rewrite
from sqlml.passes.analysis.float_order import last_true
from sqlml.types import Array, numpy_dtype

AROUND = 64
"""Floats on each side of the found one that must agree with it."""


def compare_margins(program: Program) -> Program:
    """Return `program` with comparisons of margins in place of comparisons of sigmoids."""
    return rewrite(program, _rule, ops=("gt", "ge", "lt", "le"))


def _rule(b: Builder, node: Node, inputs: Sequence[Value]) -> Value | None:
    left, right = (b.node(v) for v in inputs)
    if left.op != "sigmoid" or right.op != "constant" or right.attrs["value"].size != 1:
        return None
    margin = b.value(left.inputs[0])
    dtype = numpy_dtype(margin.type.dtype)
    if dtype.name not in ("float32", "float64"):
        return None
    bound: Array = right.attrs["value"].reshape(1)

    def below(x: Array) -> Array:
        """Whether the sigmoid of x lies on the lower side of the comparison."""
        p = _sigmoid(x)
        lower: Array = p <= bound if node.op in ("gt", "le") else p < bound
        return lower

    last, following = last_true(below, 1, dtype)
    if np.isnan(last[0]) or np.isnan(following[0]) or not _agrees(below, last, following):
        return None
    # gt and le split behind `last`, ge and lt before `following`.
    limit = last if node.op in ("gt", "le") else following
    return b.op(node.op, margin, b.constant(limit.reshape(right.attrs["value"].shape)))


def _sigmoid(x: Array) -> Array:
    with np.errstate(all="ignore"):
        return reference.FUNCTIONS["sigmoid"]([x], {})


def _agrees(below: Callable[[Array], Array], last: Array, following: Array) -> bool:
    down, up = last, following
    for _ in range(AROUND):
        if not below(down)[0] or below(up)[0]:
            return False
        down, up = np.nextafter(down, -np.inf), np.nextafter(up, np.inf)
    return True
