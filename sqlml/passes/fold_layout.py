"""Fold concat, select and cast: less copying, the same values. Exact.

* select of a select, of a concat, or of all columns in order: one select, or none (of a concat
  only where no column is chosen twice: else it would become many small ones);
* a concat whose neighbours select from one value: one select;
* a concat of casts to one dtype: the cast of a concat;
* a cast to the dtype that a value has, and float32 -> float64 -> float32: nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from sqlml.ir.builder import Builder, Value, rewrite
from sqlml.ir.program import Node, Program
from sqlml.types import Array


def fold_layout(program: Program, keep_inputs: bool = False) -> Program:
    """Return `program` with its layout operators folded."""
    return rewrite(program, _rule, keep_inputs=keep_inputs, ops=("cast", "concat", "select"))


def _rule(b: Builder, node: Node, inputs: Sequence[Value]) -> Value | None:
    if node.op == "cast":
        return _folded_cast(b, inputs[0], str(node.attrs["dtype"]))
    if node.op == "select":
        return _folded_select(b, inputs[0], node.attrs["indices"])
    merged = _merged(b, inputs)
    if len(merged) == len(inputs):
        return None
    return same_rows(b, b.beside(merged), node.type.sparse)


def same_rows(b: Builder, value: Value, sparse: bool) -> Value:
    """`value` with sparse rows or dense ones: fewer columns may have come from only one kind."""
    if value.type.sparse == sparse:
        return value
    return b.op("sparsify", value) if sparse else b.op("densify", value, fill=0.0)


def _cast(b: Builder, x: Value, dtype: str) -> Value:
    folded = _folded_cast(b, x, dtype)
    return b.op("cast", x, dtype=dtype) if folded is None else folded


def _folded_cast(b: Builder, x: Value, dtype: str) -> Value | None:
    """The cast as a value that is there already, or None."""
    if x.type.dtype == dtype:
        return x
    if x.type.dtype == "float64" and dtype == "float32":
        source = b.node(x)
        if source.op == "cast":
            inner = b.value(source.inputs[0])
            if inner.type.dtype == "float32":
                return inner
    return None


def select(b: Builder, x: Value, indices: Array) -> Value:
    """Columns `indices` of `x`, looking through selects and concats."""
    folded = _folded_select(b, x, indices)
    return b.op("select", x, indices=indices) if folded is None else folded


def _folded_select(b: Builder, x: Value, indices: Array) -> Value | None:
    """The select made of what lies below `x`; None if there is nothing to fold."""
    width = x.type.width
    if indices.size == width and np.array_equal(indices, np.arange(width)):
        return x
    source = b.node(x)
    if source.op == "select":
        through: Array = source.attrs["indices"]
        return select(b, b.value(source.inputs[0]), through[indices])
    if source.op == "concat" and indices.size == np.unique(indices).size > 0:
        chosen = chosen_parts(b, x, indices, partial(select, b))
        return same_rows(b, b.beside(_merged(b, chosen)), x.type.sparse)
    return None


def parts_of(b: Builder, x: Value) -> list[Value]:
    """The values side by side in `x`, where all have its dtype; else `x` itself."""
    node = b.node(x)
    if node.op != "concat" or any(b.value(i).type.dtype != x.type.dtype for i in node.inputs):
        return [x]
    return [p for i in node.inputs for p in parts_of(b, b.value(i))]


def chosen_parts(
    b: Builder, x: Value, indices: Array, choose: Callable[[Value, Array], Value]
) -> list[Value]:
    """Columns `indices` of a concat `x`: of each run of one part what `choose` makes, in x's dtype.

    `choose` is given the part and the columns of it.
    """
    parts, first = b.node(x).inputs, b.starts(x)
    owner = np.searchsorted(first, indices, "right") - 1
    cuts = np.flatnonzero(np.diff(owner)) + 1
    runs = zip(np.split(indices, cuts), owner[[0, *cuts]].tolist(), strict=True)
    made = [choose(b.value(parts[k]), run - first[k]) for run, k in runs]
    return [_cast(b, piece, x.type.dtype) for piece in made]


def _merged(b: Builder, parts: Sequence[Value]) -> list[Value]:
    """`parts` with each run of neighbours made one that select from (or cast) the same value."""
    parts = [p for p in parts if p.type.width] or list(parts[:1])
    runs: list[tuple[tuple[object, ...], list[Value]]] = []
    for part in parts:
        source = _source(b, part)
        if runs and runs[-1][0] == source:
            runs[-1][1].append(part)
        else:
            runs.append((source, [part]))
    return [_joined(b, run) for _, run in runs]


def _source(b: Builder, x: Value) -> tuple[object, ...]:
    """What `x` selects from, and the casts above it: equal for values that become one."""
    casts: list[object] = []
    node = b.node(x)
    while node.op == "cast":
        casts.append(node.type.dtype)
        x = b.value(node.inputs[0])
        node = b.node(x)
    below = node.inputs[0] if node.op == "select" else x.index
    return (below, *casts)


def _joined(b: Builder, run: Sequence[Value]) -> Value:
    """One value for neighbours of one source."""
    if len(run) == 1:
        return run[0]
    node = b.node(run[0])
    if node.op == "cast":
        inner = _joined(b, [b.value(b.node(v).inputs[0]) for v in run])
        return _cast(b, inner, run[0].type.dtype)
    sources = [_selection(b, v) for v in run]
    return select(b, sources[0][0], np.concatenate([indices for _, indices in sources]))


def _selection(b: Builder, x: Value) -> tuple[Value, Array]:
    node = b.node(x)
    if node.op == "select":
        return b.value(node.inputs[0]), node.attrs["indices"]
    return x, np.arange(x.type.width, dtype=np.int64)
