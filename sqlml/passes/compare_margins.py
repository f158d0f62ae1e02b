"""A comparison of a sigmoid with a number becomes a comparison of the margin itself. Exact.

The sigmoid never decreases, so sigmoid(x) > p holds from some float on, which bisection finds with
the reference's own sigmoid; floats around it are tried too, and where rounding makes the function
step back there, nothing is changed.

A softmax before argmax stays, though Hummingbird drops it: two margins that differ in the last bit
may have equal float32 probabilities, and then the source library takes the first.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sqlml.ir import reference
from sqlml.ir.builder import Builder, Value
from sqlml.ir.operators.elementwise import UFUNCS
from sqlml.ir.program import Node, Program
from sqlml.ir.rewrite import rewrite
from sqlml.passes.analysis.float_order import turn
from sqlml.types import Array, numpy_dtype


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

    def holds(x: Array) -> Array:
        with np.errstate(all="ignore"):
            p = reference.FUNCTIONS["sigmoid"]([x], {})
        held: Array = UFUNCS[node.op](p, bound)
        return held

    found = turn(holds, dtype)
    if found is None:
        return None
    last, following, _ = found
    # gt and le split behind `last`, ge and lt before `following`.
    limit = np.full_like(right.attrs["value"], last if node.op in ("gt", "le") else following)
    return b.op(node.op, margin, b.constant(limit))
