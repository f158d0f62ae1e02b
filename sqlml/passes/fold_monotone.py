"""Neighbouring operators that undo or repeat each other become one, or none. Exact.

neg of neg, abs of abs or of neg, not of not, trunc of trunc, an imputer after one that left no NaN,
a check after an equal or stricter one, maximum of maximum and minimum of minimum with
constants. Sums and products of constants are not joined: that would round differently.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from sqlml.ir.builder import Builder, Value
from sqlml.ir.program import Node, Program
from sqlml.ir.rewrite import rewrite
from sqlml.types import Array


def fold_monotone(program: Program) -> Program:
    """Return `program` without operators that their neighbours make needless."""
    return rewrite(program, _rule, ops=_RULES)


def _rule(b: Builder, node: Node, inputs: Sequence[Value]) -> Value | None:
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
