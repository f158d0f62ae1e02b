"""Neighbouring operators that undo or repeat each other become one, or none. Exact.

neg of neg, abs of abs or of neg, not of not, trunc of trunc, an imputer after one that left no NaN,
a check after an equal or stricter one, maximum of maximum and minimum of minimum with
constants. Sums and products of constants are not joined: that would round differently.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from sqlml.ir import reference
from sqlml.ir.builder import Builder, Value, rewrite
from sqlml.ir.operators.elementwise import UFUNCS
from sqlml.ir.program import Node, Program
from sqlml.passes.float_order import turn
from sqlml.types import Array, numpy_dtype


def fold_monotone(program: Program) -> Program:
    """Return `program` without operators that their neighbours make needless."""
    return rewrite(program, _fold_monotone, ops=_RULES)


def _fold_monotone(b: Builder, node: Node, inputs: Sequence[Value]) -> Value | None:
    return _RULES[node.op](b, node, inputs)


def _undoes(b: Builder, node: Node, inputs: Sequence[Value]) -> Value | None:
    below = b.node(inputs[0])
    return b.value(below.inputs[0]) if below.op == node.op else None


def _repeats(b: Builder, node: Node, inputs: Sequence[Value]) -> Value | None:
    return inputs[0] if b.node(inputs[0]).op == node.op else None


def _abs(b: Builder, node: Node, inputs: Sequence[Value]) -> Value | None:
    below = b.node(inputs[0])
    if below.op == "neg":
        return b.op("abs", b.value(below.inputs[0]))
    return _repeats(b, node, inputs)


def _bound(b: Builder, node: Node, inputs: Sequence[Value]) -> Value | None:
    """maximum(maximum(x, c), d) is maximum(x, max(c, d)); the same for minimum."""
    below = b.node(inputs[0])
    if below.op != node.op:
        return None
    outer, inner = _constant(b, inputs[1]), _constant(b, b.value(below.inputs[1]))
    if outer is None or inner is None:
        return None
    limit = np.maximum(outer, inner) if node.op == "maximum" else np.minimum(outer, inner)
    return b.op(node.op, b.value(below.inputs[0]), b.constant(limit))


def _constant(b: Builder, value: Value) -> Array | None:
    node = b.node(value)
    if node.op != "constant":
        return None
    array: Array = node.attrs["value"]
    return array if array.ndim <= 1 else None


def _impute(b: Builder, node: Node, inputs: Sequence[Value]) -> Value | None:
    below = b.node(inputs[0])
    whole = below.op == "impute" and not np.isnan(below.attrs["fill"]).any()
    asks_nan = all(np.isnan(n.attrs["missing"]) for n in (node, below)) if whole else False
    return inputs[0] if asks_nan else None


def _require_finite(b: Builder, node: Node, inputs: Sequence[Value]) -> Value | None:
    """A check of the very value that was checked before, as strictly or more so."""
    below = b.node(inputs[0])
    if below.op != "require_finite" or "low" in node.attrs or "high" in node.attrs:
        return None
    return inputs[0] if node.attrs["allow_nan"] or not below.attrs["allow_nan"] else None


_RULES: Mapping[str, Callable[[Builder, Node, Sequence[Value]], Value | None]] = MappingProxyType(
    {
        "neg": _undoes,
        "not": _undoes,
        "abs": _abs,
        "trunc": _repeats,
        "maximum": _bound,
        "minimum": _bound,
        "impute": _impute,
        "require_finite": _require_finite,
    }
)


# A comparison of a sigmoid with a number becomes a comparison of the margin itself. Exact.
#
# The sigmoid never decreases, so sigmoid(x) > p holds from some float on, which bisection finds
# with the reference's own sigmoid; floats around it are tried too, and where rounding makes the
# function step back there, nothing is changed.
#
# A softmax before argmax stays, though Hummingbird drops it: two margins that differ in the last
# bit may have equal float32 probabilities, and then the source library takes the first.


def compare_margins(program: Program) -> Program:
    """Return `program` with comparisons of margins in place of comparisons of sigmoids."""
    return rewrite(program, _compare_margins, ops=("gt", "ge", "lt", "le"))


def _compare_margins(b: Builder, node: Node, inputs: Sequence[Value]) -> Value | None:
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
