"""Fold concat, select and cast, so that less is copied. Exact.

A select looks through selects and concats, neighbours in a concat that select from one value
become one select, and a concat of casts becomes the cast of a concat. (A select of a concat stays
if it selects a column twice, else it would become many small ones.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby

import numpy as np

from sqlml.ir.builder import Builder, Value, rewrite
from sqlml.ir.program import Node, Program
from sqlml.types import Array


def fold_layout(program: Program, keep_inputs: bool = False) -> Program:
    return rewrite(program, _rule, keep_inputs=keep_inputs, ops=("cast", "concat", "select"))


def _rule(b: Builder, node: Node, inputs: Sequence[Value]) -> Value | None:
    if node.op == "cast":
        return _fold_cast(b, inputs[0], str(node.attrs["dtype"]))
    if node.op == "select":
        return _fold_select(b, inputs[0], node.attrs["indices"])
    values = _merge_neighbours(b, inputs)
    if len(values) == len(inputs):
        return None
    return match_sparsity(b, b.concat(values), node.type.sparse)


def match_sparsity(b: Builder, value: Value, sparse: bool) -> Value:
    """Convert `value` to sparse or dense rows, because fewer columns may all be of one kind."""
    if value.type.sparse == sparse:
        return value
    return b.op("sparsify", value) if sparse else b.op("densify", value, fill=0.0)


def _cast(b: Builder, x: Value, dtype: str) -> Value:
    folded = _fold_cast(b, x, dtype)
    return b.op("cast", x, dtype=dtype) if folded is None else folded


def _fold_cast(b: Builder, x: Value, dtype: str) -> Value | None:
    """Return an existing value that equals the cast, or None."""
    if x.type.dtype == dtype:
        return x
    source = b.node(x)
    if x.type.dtype == "float64" and dtype == "float32" and source.op == "cast":
        inner = b.value(source.inputs[0])
        return inner if inner.type.dtype == "float32" else None
    return None


def fold_select(b: Builder, x: Value, indices: Array) -> Value:
    """Select columns `indices` of `x`, looking through selects and concats."""
    folded = _fold_select(b, x, indices)
    return b.op("select", x, indices=indices) if folded is None else folded


def _fold_select(b: Builder, x: Value, indices: Array) -> Value | None:
    """Return the select of the values below `x`; None if there is nothing to fold."""
    width = x.type.width
    if indices.size == width and np.array_equal(indices, np.arange(width)):
        return x
    source = b.node(x)
    if source.op == "select":
        through: Array = source.attrs["indices"]
        return fold_select(b, b.value(source.inputs[0]), through[indices])
    if source.op == "concat" and indices.size == np.unique(indices).size > 0:
        chosen = select_from_concat(b, x, indices, partial(fold_select, b))
        return match_sparsity(b, b.concat(_merge_neighbours(b, chosen)), x.type.sparse)
    return None


def flatten_concat(b: Builder, x: Value) -> list[Value]:
    """Return the values that `x` concatenates if all have its dtype, else `x` itself."""
    node = b.node(x)
    if node.op != "concat" or any(b.value(i).type.dtype != x.type.dtype for i in node.inputs):
        return [x]
    return [p for i in node.inputs for p in flatten_concat(b, b.value(i))]


def select_from_concat(
    b: Builder, x: Value, indices: Array, select_from: Callable[[Value, Array], Value]
) -> list[Value]:
    """Select columns `indices` of a concat `x` with one call of `select_from` per run.

    A run is a sequence of columns of one input of the concat; `select_from` receives both.
    """
    parts, first = b.node(x).inputs, b.first_columns(x)
    owner = np.searchsorted(first, indices, "right") - 1
    cuts = np.flatnonzero(np.diff(owner)) + 1
    runs = zip(np.split(indices, cuts), owner[[0, *cuts]].tolist(), strict=True)
    selected = [select_from(b.value(parts[k]), run - first[k]) for run, k in runs]
    return [_cast(b, piece, x.type.dtype) for piece in selected]


def _merge_neighbours(b: Builder, values: Sequence[Value]) -> list[Value]:
    """Merge neighbours that select from (or cast) the same value."""
    values = [p for p in values if p.type.width] or list(values[:1])
    return [_merge_run(b, list(run)) for _, run in groupby(values, partial(_source, b))]


def _source(b: Builder, x: Value) -> tuple[object, ...]:
    """Return the value that `x` selects from and the casts above it, as a key for merging."""
    casts: list[object] = []
    node = b.node(x)
    while node.op == "cast":
        casts.append(node.type.dtype)
        x = b.value(node.inputs[0])
        node = b.node(x)
    below = node.inputs[0] if node.op == "select" else x.index
    return (below, *casts)


def _merge_run(b: Builder, run: Sequence[Value]) -> Value:
    if len(run) == 1:
        return run[0]
    node = b.node(run[0])
    if node.op == "cast":
        inner = _merge_run(b, [b.value(b.node(v).inputs[0]) for v in run])
        return _cast(b, inner, run[0].type.dtype)
    sources = [_selection(b, v) for v in run]
    return fold_select(b, sources[0][0], np.concatenate([indices for _, indices in sources]))


def _selection(b: Builder, x: Value) -> tuple[Value, Array]:
    node = b.node(x)
    if node.op == "select":
        return b.value(node.inputs[0]), node.attrs["indices"]
    return x, np.arange(x.type.width, dtype=np.int64)
