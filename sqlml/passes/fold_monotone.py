"""Remove operators that undo or repeat their neighbours, and compare margins. Exact.

`fold_monotone` folds neg of neg, abs of abs or of neg, not of not, trunc of trunc, an imputer after
one that left no NaN, a check after an equal or stricter one, maximum of maximum and minimum of
minimum with constants. It does not merge sums or products with constants, which would round
differently.

`compare_margins` turns a comparison of a sigmoid with a number into a comparison of the margin. The
sigmoid never decreases, so sigmoid(x) > p holds from some float on, which bisection finds with the
reference's sigmoid. The floats around it are tried, too; if rounding makes the function decrease
there, nothing is changed. A softmax before argmax stays, although Hummingbird drops it: margins
that differ in the last bit may have equal float32 probabilities, and then the source library
selects the first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from sqlml.ir import reference
from sqlml.ir.builder import Builder, Value, rewrite
from sqlml.ir.operators.elementwise import UFUNCS
from sqlml.ir.program import Node, Program
from sqlml.passes.float_order import find_turn
from sqlml.types import Array, numpy_dtype


def fold_monotone(program: Program) -> Program:
    """Return `program` without operators that undo or repeat their neighbours."""
    return rewrite(program, _fold_monotone, ops=_RULES)


def _fold_monotone(b: Builder, node: Node, inputs: Sequence[Value]) -> Value | None:
    return _RULES[node.op](b, node, inputs)


def _cancel_inverse(b: Builder, node: Node, inputs: Sequence[Value]) -> Value | None:
    below = b.node(inputs[0])
    return b.value(below.inputs[0]) if below.op == node.op else None


def _drop_repeated(b: Builder, node: Node, inputs: Sequence[Value]) -> Value | None:
    return inputs[0] if b.node(inputs[0]).op == node.op else None


def _fold_abs(b: Builder, node: Node, inputs: Sequence[Value]) -> Value | None:
    below = b.node(inputs[0])
    if below.op == "neg":
        return b.op("abs", b.value(below.inputs[0]))
    return _drop_repeated(b, node, inputs)


def _merge_bounds(b: Builder, node: Node, inputs: Sequence[Value]) -> Value | None:
    """Fold maximum(maximum(x, c), d) into maximum(x, max(c, d)), and minimum likewise."""
    below = b.node(inputs[0])
    if below.op != node.op:
        return None
    outer, inner = _read_constant(b, inputs[1]), _read_constant(b, b.value(below.inputs[1]))
    if outer is None or inner is None:
        return None
    limit = np.maximum(outer, inner) if node.op == "maximum" else np.minimum(outer, inner)
    return b.op(node.op, b.value(below.inputs[0]), b.constant(limit))


def _read_constant(b: Builder, value: Value) -> Array | None:
    node = b.node(value)
    if node.op != "constant":
        return None
    array: Array = node.attrs["value"]
    return array if array.ndim <= 1 else None


def _drop_second_impute(b: Builder, node: Node, inputs: Sequence[Value]) -> Value | None:
    below = b.node(inputs[0])
    fills_all = below.op == "impute" and not np.isnan(below.attrs["fill"]).any()
    both_fill_nan = all(np.isnan(n.attrs["missing"]) for n in (node, below)) if fills_all else False
    return inputs[0] if both_fill_nan else None


def _drop_second_check(b: Builder, node: Node, inputs: Sequence[Value]) -> Value | None:
    """Drop a check right after an equal or stricter one."""
    below = b.node(inputs[0])
    if below.op != "require_finite" or "low" in node.attrs or "high" in node.attrs:
        return None
    return inputs[0] if node.attrs["allow_nan"] or not below.attrs["allow_nan"] else None


_RULES: Mapping[str, Callable[[Builder, Node, Sequence[Value]], Value | None]] = MappingProxyType(
    {
        "neg": _cancel_inverse,
        "not": _cancel_inverse,
        "abs": _fold_abs,
        "trunc": _drop_repeated,
        "maximum": _merge_bounds,
        "minimum": _merge_bounds,
        "impute": _drop_second_impute,
        "require_finite": _drop_second_check,
    }
)


def compare_margins(program: Program) -> Program:
    """Return `program` with comparisons of margins instead of comparisons of sigmoids."""
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
        result: Array = UFUNCS[node.op](p, bound)
        return result

    neighbours = find_turn(holds, dtype)
    if neighbours is None:
        return None
    last, following, _ = neighbours
    # gt and le split after `last`, ge and lt before `following`.
    limit = np.full_like(right.attrs["value"], last if node.op in ("gt", "le") else following)
    return b.op(node.op, margin, b.constant(limit))
