"""Remove operators that undo or repeat their neighbours, and compare margins. Exact.

`fold_monotone` does not merge sums or products with constants, because that rounds differently. A
softmax before argmax stays, although Hummingbird drops it: margins that differ in the last bit may
have equal float32 probabilities, of which the source library selects the first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from sqlml.ir import reference
from sqlml.ir.builder import Builder, Rule, Value, make_pass
from sqlml.ir.operators.elementwise import UFUNCS
from sqlml.ir.program import Node
from sqlml.passes.float_order import find_turning_point
from sqlml.types import Array, numpy_dtype


def _cancel_inverse(builder: Builder, node: Node, inputs: Sequence[Value]) -> Value | None:
    source = builder.node(inputs[0])
    return builder.value(source.inputs[0]) if source.op == node.op else None


def _drop_repetition(builder: Builder, node: Node, inputs: Sequence[Value]) -> Value | None:
    return inputs[0] if builder.node(inputs[0]).op == node.op else None


def _fold_abs(builder: Builder, node: Node, inputs: Sequence[Value]) -> Value | None:
    source = builder.node(inputs[0])
    if source.op == "neg":
        return builder.op("abs", builder.value(source.inputs[0]))
    return _drop_repetition(builder, node, inputs)


def _merge_bounds(builder: Builder, node: Node, inputs: Sequence[Value]) -> Value | None:
    """Fold maximum(maximum(x, c), d) into maximum(x, max(c, d)), and minimum likewise."""
    source = builder.node(inputs[0])
    if source.op != node.op:
        return None
    outer_bound = _read_constant(builder, inputs[1])
    inner_bound = _read_constant(builder, builder.value(source.inputs[1]))
    if outer_bound is None or inner_bound is None:
        return None
    bound = UFUNCS[node.op](outer_bound, inner_bound)
    return builder.op(node.op, builder.value(source.inputs[0]), bound)


def _read_constant(builder: Builder, value: Value) -> Array | None:
    node = builder.node(value)
    if node.op != "constant":
        return None
    array: Array = node.attrs["value"]
    return array if array.ndim <= 1 else None


def _drop_second_impute(builder: Builder, node: Node, inputs: Sequence[Value]) -> Value | None:
    first_impute = builder.node(inputs[0])
    if first_impute.op != "impute" or np.isnan(first_impute.attrs["fill"]).any():
        return None
    both_fill_nan = all(np.isnan(n.attrs["missing"]) for n in (node, first_impute))
    return inputs[0] if both_fill_nan else None


def _drop_second_check(builder: Builder, node: Node, inputs: Sequence[Value]) -> Value | None:
    first_check = builder.node(inputs[0])
    if first_check.op != "require_finite" or "low" in node.attrs or "high" in node.attrs:
        return None
    return inputs[0] if node.attrs["allow_nan"] or not first_check.attrs["allow_nan"] else None


_RULES: Mapping[str, Rule] = {
    "neg": _cancel_inverse,
    "not": _cancel_inverse,
    "abs": _fold_abs,
    "trunc": _drop_repetition,
    "maximum": _merge_bounds,
    "minimum": _merge_bounds,
    "impute": _drop_second_impute,
    "require_finite": _drop_second_check,
}


@make_pass(*_RULES)
def fold_monotone(builder: Builder, node: Node, inputs: Sequence[Value]) -> Value | None:
    return _RULES[node.op](builder, node, inputs)


@make_pass("gt", "ge", "lt", "le")
def compare_margins(builder: Builder, node: Node, inputs: Sequence[Value]) -> Value | None:
    """Turn a comparison of a sigmoid with a number into a comparison of the margin.

    The sigmoid never decreases, so bisection finds the smallest float x with sigmoid(x) > p. If
    rounding makes the sigmoid decrease near this float, the comparison does not change. A
    comparison with 1 - sigmoid(x) is one with 1/2: the difference is exact for sigmoids from there.
    """
    left = builder.node(inputs[0])
    bound = _find_bound(builder, inputs[0], inputs[1])
    if left.op != "sigmoid" or bound is None:
        return None
    margin = builder.value(left.inputs[0])
    dtype = numpy_dtype(margin.type.dtype)
    if dtype.name not in ("float32", "float64"):
        return None

    def holds(x: Array) -> Array:
        with np.errstate(all="ignore"):
            probabilities = reference.FUNCTIONS["sigmoid"]([x], {})
        return np.asarray(UFUNCS[node.op](probabilities, bound))

    neighbours = find_turning_point(holds, dtype)
    if neighbours is None:
        return None
    last, following, _ = neighbours
    # gt and le split after `last`, ge and lt before `following`.
    limit = np.full_like(bound, last if node.op in ("gt", "le") else following)
    return builder.op(node.op, margin, builder.constant(limit))


def _find_bound(builder: Builder, sigmoid: Value, compared: Value) -> Array | None:
    """Return the number (1,) that `sigmoid` is compared with, or None if there is none."""
    node = builder.node(compared)
    if node.op == "constant" and node.attrs["value"].size == 1:
        bound: Array = node.attrs["value"].reshape(1)
        return bound
    if node.op != "sub" or node.inputs[1] != sigmoid.index:
        return None
    minuend = _read_constant(builder, builder.value(node.inputs[0]))
    is_one = minuend is not None and minuend.size == 1 and minuend.item() == 1.0
    return np.full(1, 0.5, numpy_dtype(sigmoid.type.dtype)) if is_one else None
