"""Fold concat, select and cast, so that less is copied. Exact.

A select looks through selects and concats, neighbours in a concat that select from one value
become one select, and a concat of casts becomes the cast of a concat. (A select of a concat stays
if it selects a column twice; otherwise it would become many small selects.)
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
    return rewrite(program, _fold_node, keep_inputs=keep_inputs, ops=("cast", "concat", "select"))


def _fold_node(b: Builder, node: Node, inputs: Sequence[Value]) -> Value | None:
    if node.op == "cast":
        return _fold_cast(b, inputs[0], str(node.attrs["dtype"]))
    if node.op == "select":
        return _fold_select(b, inputs[0], node.attrs["indices"])
    values = _merge_neighbours(b, inputs)
    if len(values) == len(inputs):
        return None
    return match_sparsity(b, b.concat(values), node.type.sparse)


def match_sparsity(b: Builder, value: Value, sparse: bool) -> Value:
    """Convert `value` to sparse rows if `sparse`, otherwise to dense rows."""
    if value.type.sparse == sparse:
        return value
    return b.op("sparsify", value) if sparse else b.op("densify", value, fill=0.0)


def _cast_or_fold(b: Builder, x: Value, dtype: str) -> Value:
    folded = _fold_cast(b, x, dtype)
    return b.op("cast", x, dtype=dtype) if folded is None else folded


def _fold_cast(b: Builder, x: Value, dtype: str) -> Value | None:
    """Return an existing value that equals `x` cast to `dtype`, or None without such a value."""
    if x.type.dtype == dtype:
        return x
    source = b.node(x)
    if x.type.dtype == "float64" and dtype == "float32" and source.op == "cast":
        inner = b.value(source.inputs[0])
        return inner if inner.type.dtype == "float32" else None
    return None


def fold_select(b: Builder, x: Value, indices: Array) -> Value:
    folded = _fold_select(b, x, indices)
    return b.op("select", x, indices=indices) if folded is None else folded


def _fold_select(b: Builder, x: Value, indices: Array) -> Value | None:
    """Fold a select of columns `indices` into `x`; return None if there is nothing to fold."""
    width = x.type.width
    if indices.size == width and np.array_equal(indices, np.arange(width)):
        return x
    source = b.node(x)
    if source.op == "select":
        source_indices: Array = source.attrs["indices"]
        return fold_select(b, b.value(source.inputs[0]), source_indices[indices])
    if source.op == "concat" and indices.size == np.unique(indices).size > 0:
        selected = select_from_concat(b, x, indices, partial(fold_select, b))
        return match_sparsity(b, b.concat(_merge_neighbours(b, selected)), x.type.sparse)
    return None


def flatten_concat(b: Builder, x: Value) -> list[Value]:
    """Return the values that `x` concatenates if all have the dtype of `x`, otherwise [`x`]."""
    node = b.node(x)
    if node.op != "concat" or any(b.value(i).type.dtype != x.type.dtype for i in node.inputs):
        return [x]
    return [value for i in node.inputs for value in flatten_concat(b, b.value(i))]


def select_from_concat(
    b: Builder, x: Value, indices: Array, select_from: Callable[[Value, Array], Value]
) -> list[Value]:
    """Select columns of the concat `x`; call `select_from` once per run of columns of one input."""
    input_indices, first_columns = b.node(x).inputs, b.first_columns(x)
    input_of_column = np.searchsorted(first_columns, indices, "right") - 1
    starts = np.flatnonzero(np.diff(input_of_column)) + 1
    runs = zip(np.split(indices, starts), input_of_column[[0, *starts]].tolist(), strict=True)
    selected = [select_from(b.value(input_indices[k]), run - first_columns[k]) for run, k in runs]
    return [_cast_or_fold(b, value, x.type.dtype) for value in selected]


def _merge_neighbours(b: Builder, values: Sequence[Value]) -> list[Value]:
    values = [value for value in values if value.type.width] or list(values[:1])
    return [_merge_run(b, list(run)) for _, run in groupby(values, partial(_find_merge_key, b))]


def _find_merge_key(b: Builder, x: Value) -> tuple[object, ...]:
    """Return a key for merging `x`: the value from which it selects, and the casts above it."""
    casts: list[object] = []
    while (node := b.node(x)).op == "cast":
        casts.append(node.type.dtype)
        x = b.value(node.inputs[0])
    source_index = node.inputs[0] if node.op == "select" else x.index
    return (source_index, *casts)


def _merge_run(b: Builder, run: Sequence[Value]) -> Value:
    if len(run) == 1:
        return run[0]
    node = b.node(run[0])
    if node.op == "cast":
        inner = _merge_run(b, [b.value(b.node(value).inputs[0]) for value in run])
        return _cast_or_fold(b, inner, run[0].type.dtype)
    sources = [_split_selection(b, value) for value in run]
    return fold_select(b, sources[0][0], np.concatenate([indices for _, indices in sources]))


def _split_selection(b: Builder, x: Value) -> tuple[Value, Array]:
    node = b.node(x)
    if node.op == "select":
        return b.value(node.inputs[0]), node.attrs["indices"]
    return x, np.arange(x.type.width, dtype=np.int64)
