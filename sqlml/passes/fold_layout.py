"""Fold concat, select and cast, so that less is copied. Exact.

A select of a select or concat becomes a select of the inputs. Neighbours in a concat that select
from the same value become one select. A concat of casts becomes the cast of a concat. A select of a
concat stays if a column is selected twice, because folding would result in many small selects.
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


def _fold_node(builder: Builder, node: Node, inputs: Sequence[Value]) -> Value | None:
    if node.op == "cast":
        return _try_fold_cast(builder, inputs[0], str(node.attrs["dtype"]))
    if node.op == "select":
        return _try_fold_select(builder, inputs[0], node.attrs["indices"])
    values = _merge_neighbours(builder, inputs)
    if len(values) == len(inputs):
        return None
    return match_sparsity(builder, builder.concat(values), node.type.sparse)


def match_sparsity(builder: Builder, value: Value, sparse: bool) -> Value:
    """Convert `value` to sparse rows if `sparse`, otherwise to dense rows."""
    if value.type.sparse == sparse:
        return value
    return builder.op("sparsify", value) if sparse else builder.op("densify", value, fill=0.0)


def _cast_or_fold(builder: Builder, x: Value, dtype: str) -> Value:
    folded = _try_fold_cast(builder, x, dtype)
    return builder.op("cast", x, dtype=dtype) if folded is None else folded


def _try_fold_cast(builder: Builder, x: Value, dtype: str) -> Value | None:
    """Return an existing value that equals `x` cast to `dtype`, or None if a cast is needed."""
    if x.type.dtype == dtype:
        return x
    source = builder.node(x)
    if x.type.dtype == "float64" and dtype == "float32" and source.op == "cast":
        uncast = builder.value(source.inputs[0])
        return uncast if uncast.type.dtype == "float32" else None
    return None


def fold_select(builder: Builder, x: Value, indices: Array) -> Value:
    folded = _try_fold_select(builder, x, indices)
    return builder.op("select", x, indices=indices) if folded is None else folded


def _try_fold_select(builder: Builder, x: Value, indices: Array) -> Value | None:
    """Fold a select of columns `indices` into `x`; return None if there is nothing to fold."""
    width = x.type.width
    if indices.size == width and np.array_equal(indices, np.arange(width)):
        return x
    source = builder.node(x)
    if source.op == "select":
        source_indices: Array = source.attrs["indices"]
        return fold_select(builder, builder.value(source.inputs[0]), source_indices[indices])
    if source.op == "concat" and indices.size == np.unique(indices).size > 0:
        selected = select_from_concat(builder, x, indices, partial(fold_select, builder))
        merged = builder.concat(_merge_neighbours(builder, selected))
        return match_sparsity(builder, merged, x.type.sparse)
    return None


def flatten_concat(builder: Builder, x: Value) -> list[Value]:
    """Return the values that `x` concatenates, or only `x` if one of them has another dtype."""
    node = builder.node(x)
    if node.op != "concat" or any(builder.value(i).type.dtype != x.type.dtype for i in node.inputs):
        return [x]
    return [value for i in node.inputs for value in flatten_concat(builder, builder.value(i))]


def select_from_concat(
    builder: Builder, x: Value, indices: Array, select_from: Callable[[Value, Array], Value]
) -> list[Value]:
    """Select columns of the concat `x`; call `select_from` once per run of columns of one input."""
    operands = [builder.value(i) for i in builder.node(x).inputs]
    first_columns = builder.first_columns(x)
    input_of_column = np.searchsorted(first_columns, indices, "right") - 1
    starts = np.flatnonzero(np.diff(input_of_column)) + 1
    runs = zip(np.split(indices, starts), input_of_column[[0, *starts]].tolist(), strict=True)
    selected = [select_from(operands[k], run - first_columns[k]) for run, k in runs]
    return [_cast_or_fold(builder, value, x.type.dtype) for value in selected]


def _merge_neighbours(builder: Builder, values: Sequence[Value]) -> list[Value]:
    values = [value for value in values if value.type.width] or list(values[:1])
    runs = groupby(values, partial(_find_merge_key, builder))
    return [_merge_run(builder, list(run)) for _, run in runs]


def _find_merge_key(builder: Builder, x: Value) -> tuple[object, ...]:
    """Return a key that is equal for values that can be merged: the source, and the casts."""
    casts: list[object] = []
    while (node := builder.node(x)).op == "cast":
        casts.append(node.type.dtype)
        x = builder.value(node.inputs[0])
    return (node.inputs[0] if node.op == "select" else x.index, *casts)


def _merge_run(builder: Builder, run: Sequence[Value]) -> Value:
    if len(run) == 1:
        return run[0]
    node = builder.node(run[0])
    if node.op == "cast":
        sources = [builder.value(builder.node(value).inputs[0]) for value in run]
        return _cast_or_fold(builder, _merge_run(builder, sources), run[0].type.dtype)
    selections = [_split_selection(builder, value) for value in run]
    indices = np.concatenate([indices for _, indices in selections])
    return fold_select(builder, selections[0][0], indices)


def _split_selection(builder: Builder, x: Value) -> tuple[Value, Array]:
    node = builder.node(x)
    if node.op == "select":
        return builder.value(node.inputs[0]), node.attrs["indices"]
    return x, np.arange(x.type.width, dtype=np.int64)
