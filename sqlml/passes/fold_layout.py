"""Fold concat, select and cast: less copying, the same values. Exact.

* select of a select, of a concat, or of all columns in order: one select, or none;
* a concat whose neighbours select from one value: one select;
* a concat of casts to one dtype: the cast of a concat;
* a cast to the dtype that a value has, and float32 -> float64 -> float32: nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sqlml.ir.builder import Builder, Value
from sqlml.ir.program import Node, Program
from sqlml.ir.rewrite import rewrite
from sqlml.types import Array


def fold_layout(program: Program) -> Program:
    """Return `program` with its layout operators folded."""
    return rewrite(program, _rule)


def _rule(b: Builder, node: Node, inputs: Sequence[Value]) -> Value | None:
    if node.op == "cast":
        return _cast(b, inputs[0], str(node.attrs["dtype"]))
    if node.op == "select":
        return select(b, inputs[0], node.attrs["indices"])
    if node.op == "concat":
        return _concat(b, inputs)
    return None


def _cast(b: Builder, x: Value, dtype: str) -> Value:
    if x.type.dtype == dtype:
        return x
    source = b.node(x)
    if source.op == "cast" and x.type.dtype == "float64" and dtype == "float32":
        inner = b.value(source.inputs[0])
        if inner.type.dtype == "float32":
            return inner
    return b.op("cast", x, dtype=dtype)


def select(b: Builder, x: Value, indices: Array) -> Value:
    """Columns `indices` of `x`, looking through selects and concats."""
    if np.array_equal(indices, np.arange(x.type.width)):
        return x
    source = b.node(x)
    if source.op == "select":
        through: Array = source.attrs["indices"]
        return select(b, b.value(source.inputs[0]), through[indices])
    if source.op == "concat" and indices.size:
        parts = [b.value(i) for i in source.inputs]
        owner = np.repeat(np.arange(len(parts)), [p.type.width for p in parts])
        first = np.cumsum([0, *[p.type.width for p in parts]])
        cuts = np.flatnonzero(np.diff(owner[indices])) + 1
        chosen = []
        for run in np.split(indices, cuts):
            part = parts[owner[run[0]]]
            piece = select(b, part, run - first[owner[run[0]]])
            chosen.append(_cast(b, piece, x.type.dtype))
        return _concat(b, chosen)
    return b.op("select", x, indices=indices)


def _concat(b: Builder, parts: Sequence[Value]) -> Value:
    parts = [p for p in parts if p.type.width] or list(parts[:1])
    merged: list[Value] = []
    for part in parts:
        joined = _join(b, merged[-1], part) if merged else None
        if joined is None:
            merged.append(part)
        else:
            merged[-1] = joined
    return merged[0] if len(merged) == 1 else b.op("concat", *merged)


def _join(b: Builder, left: Value, right: Value) -> Value | None:
    """One value for two neighbours that select from (or cast) the same value, else None."""
    first, second = b.node(left), b.node(right)
    if first.op == second.op == "cast" and left.type.dtype == right.type.dtype:
        inner = _join(b, b.value(first.inputs[0]), b.value(second.inputs[0]))
        return None if inner is None else _cast(b, inner, left.type.dtype)
    if left.type.dtype != right.type.dtype:
        return None
    a = _selection(b, left)
    c = _selection(b, right)
    if a[0].index != c[0].index:
        return None
    return select(b, a[0], np.concatenate([a[1], c[1]]))


def _selection(b: Builder, x: Value) -> tuple[Value, Array]:
    node = b.node(x)
    if node.op == "select":
        return b.value(node.inputs[0]), node.attrs["indices"]
    return x, np.arange(x.type.width, dtype=np.int64)
