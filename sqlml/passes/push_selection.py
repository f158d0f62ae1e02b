"""Feature selection pushed down towards the inputs. Exact.

Paper 000, section 5.2: a select moves through operators that work column by column (casts,
imputers, scalers, one-hot vocabularies, checks) and stops at those that mix columns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from sqlml.ir.builder import Builder, Value
from sqlml.ir.ops import OPS
from sqlml.ir.program import Node, Program
from sqlml.ir.rewrite import rewrite
from sqlml.passes.fold_layout import select as fold_select
from sqlml.types import Array


def push_selection(program: Program) -> Program:
    """Return `program` with its selects as near to the inputs as they go."""
    return rewrite(program, _rule)


def _rule(b: Builder, node: Node, inputs: Sequence[Value]) -> Value | None:
    if node.op != "select":
        return None
    indices: Array = node.attrs["indices"]
    return _push(b, inputs[0], indices)


def _push(b: Builder, x: Value, indices: Array) -> Value:
    if np.array_equal(indices, np.arange(x.type.width)):
        return x
    node = b.node(x)
    if node.op == "concat" and indices.size:
        parts = [b.value(i) for i in node.inputs]
        owner = np.repeat(np.arange(len(parts)), [p.type.width for p in parts])
        first = np.cumsum([0, *[p.type.width for p in parts]])
        cuts = np.flatnonzero(np.diff(owner[indices])) + 1
        runs = np.split(indices, cuts)
        pieces = [_push(b, parts[owner[r[0]]], r - first[owner[r[0]]]) for r in runs]
        pieces = [
            p if p.type.dtype == x.type.dtype else b.op("cast", p, dtype=x.type.dtype)
            for p in pieces
        ]
        return pieces[0] if len(pieces) == 1 else b.op("concat", *pieces)
    rule = _RULES.get(node.op)
    if rule is not None and indices.size:
        return rule(b, node, indices)
    if OPS[node.op].group == "injective" and node.op in _ELEMENTWISE and indices.size:
        moved = [_push_operand(b, b.value(i), x, indices) for i in node.inputs]
        if all(m is not None for m in moved):
            return b.op(node.op, *[m for m in moved if m is not None], **node.attrs)
    return fold_select(b, x, indices)


_ELEMENTWISE = frozenset(
    "add sub mul div maximum minimum lt le gt ge eq ne and or not isnan where cast neg abs sign "
    "square exp log log1p expm1 sqrt sigmoid tanh trunc".split()
)


def _push_operand(b: Builder, v: Value, x: Value, indices: Array) -> Value | None:
    """Operand `v` of an elementwise operator with result `x`, narrowed to the chosen columns."""
    if v.type.rowwise:
        if len(v.type.shape) != 2:
            return None
        return _push(b, v, indices) if v.type.width == x.type.width else v
    node = b.node(v)
    if node.op != "constant" or len(v.type.shape) > 1:
        return None
    value: Array = node.attrs["value"]
    return b.constant(value[indices]) if value.shape == (x.type.width,) else v


def _impute(b: Builder, node: Node, indices: Array) -> Value:
    x = _push(b, b.value(node.inputs[0]), indices)
    fill: Array = node.attrs["fill"]
    return b.op("impute", x, fill=fill[indices], missing=node.attrs["missing"])


def _require_finite(b: Builder, node: Node, indices: Array) -> Value:
    x = _push(b, b.value(node.inputs[0]), indices)
    features: tuple[str, ...] = node.attrs["features"]
    return b.op(
        "require_finite", x, **{**node.attrs, "features": tuple(features[i] for i in indices)}
    )


_RULES: Mapping[str, Callable[[Builder, Node, Array], Value]] = MappingProxyType(
    {"impute": _impute, "require_finite": _require_finite}
)
