"""`ordered_sum`: numbers added from left to right, and trees recognised behind them.

A file that sqlml exported finds the exit leaf of each tree with TreeEnsemble, looks its values up
in a table and adds them with CumSum, base first: all of that is one tree_ensemble of the IR.
Whatever else a graph adds up in order becomes an accumulate.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sqlml.importers.onnx.ranges import first_leaves, whole_range
from sqlml.ir.builder import Builder, Value
from sqlml.ir.trees import Ensemble
from sqlml.types import Array


def ordered_sum(b: Builder, x: Value, columns: Array) -> Value:
    """(n, K): for each of K outputs the sum of its m columns of `x`, from left to right.

    Args:
        x: (n, w) of float32 or float64.
        columns: int64 (K, m), m > 0.
    """
    found = _trees(b, x, columns)
    if found is not None:
        return found
    outputs, terms = columns.shape
    lined = b.op("select", x, indices=columns.T.ravel().astype(np.int64))
    lined = b.op("reshape", lined, shape=(terms, outputs))
    # -0.0 + v is v, for zeros of both signs too
    nothing = np.full(outputs, -0.0, x.type.dtype)
    return b.op("accumulate", lined, base=nothing, target=np.zeros(terms, np.int32))


def constant_rows(b: Builder, like: Value, value: Array) -> Value:
    """(n, k): `value` (k,) in each row of `like`, bit for bit."""
    first = b.op("select", like, indices=np.zeros(1, np.int64))
    row = b.constant(value)
    return b.op("where", b.op("eq", first, first), row, row)


@dataclass(frozen=True, slots=True, eq=False)
class _Sources:
    """Where columns come from, through select, reshape and concat: node and column of each."""

    node: Array
    column: Array


def _sources(b: Builder, x: Value, columns: Array) -> _Sources:
    made = _Sources(np.zeros(columns.size, np.int64), np.zeros(columns.size, np.int64))
    todo = [(x, np.arange(columns.size), columns.ravel().astype(np.int64))]
    while todo:
        value, places, wanted = todo.pop()
        node = b.node(value)
        if node.op == "select" and value.type.rowwise:
            todo.append((b.value(node.inputs[0]), places, node.attrs["indices"][wanted]))
        elif node.op == "reshape":
            todo.append((b.value(node.inputs[0]), places, wanted))
        elif node.op == "concat":
            start = 0
            for i in node.inputs:
                part = b.value(i)
                inside = (wanted >= start) & (wanted < start + part.type.width)
                if inside.any():
                    todo.append((part, places[inside], wanted[inside] - start))
                start += part.type.width
        else:
            made.node[places], made.column[places] = value.index, wanted
    return made


def _trees(b: Builder, x: Value, columns: Array) -> Value | None:
    """The tree_ensemble that the sum is; None where it is none."""
    sources = _sources(b, x, columns)
    kinds = {int(i): _constant(b, b.value(int(i))) for i in np.unique(sources.node)}
    tables = [i for i, value in kinds.items() if value is None]
    if len(tables) != 1:
        return None
    looked_up = _looked_up(b, b.value(tables[0]))
    if looked_up is None:
        return None
    features, trees, values = looked_up
    is_leaf = (sources.node == tables[0]).reshape(columns.shape)
    base = _base(kinds, sources, is_leaf, values.dtype)
    target = _targets(sources.column.reshape(columns.shape), is_leaf, trees.trees, values.shape[1])
    if base is None or target is None:
        return None
    whole = replace(trees, leaf_values=values, target=target, base=base)
    return b.op("tree_ensemble", features, **whole.attrs())


def _constant(b: Builder, value: Value) -> Array | None:
    """The row that `constant_rows` repeats."""
    node = b.node(value)
    if node.op != "where" or node.inputs[1] != node.inputs[2]:
        return None
    row = b.node(b.value(node.inputs[1]))
    if row.op != "constant" or np.ndim(row.attrs["value"]) != 1:
        return None
    return np.broadcast_to(row.attrs["value"], value.type.width)


def _looked_up(b: Builder, value: Value) -> tuple[Value, Ensemble, Array] | None:
    """What trees read, the trees, and the values (L, V) of their leaves, where `value` is a table
    at the places that trees of one number each give."""
    taken = b.node(value)
    if taken.op != "take":
        return None
    table = b.node(b.value(taken.inputs[0])).attrs.get("value")
    index = b.value(taken.inputs[1])
    inside = whole_range(b, index)
    if table is None or inside is None or table.ndim > 2 or not table.size:
        return None
    table = table.reshape(len(table), -1)
    if inside[0].min(initial=0) < 0 or inside[1].max(initial=0) >= len(table):
        return None
    first = np.zeros(index.type.width, np.int64)
    node = b.node(index)
    while node.op in ("add", "cast", "reshape"):
        parts = [b.value(i) for i in node.inputs]
        if node.op == "add":
            constants = [i for i, p in enumerate(parts) if b.node(p).op == "constant"]
            if len(constants) != 1:
                return None
            first = first + np.ravel(b.node(parts.pop(constants[0])).attrs["value"])
        node = b.node(parts[0])
    if node.op != "tree_ensemble" or first.shape != (index.type.width,):
        return None
    trees = Ensemble.of(node.attrs)
    alone = np.array_equal(trees.target, np.arange(first.size)) and trees.outputs == first.size
    if not alone or trees.leaf_values.shape[1] != 1 or table.dtype.kind != "f":
        return None
    owner = np.repeat(
        np.arange(trees.trees), np.diff(np.append(first_leaves(trees), len(trees.leaf_values)))
    )
    number = (trees.base[owner] + trees.leaf_values[:, 0]).astype(np.int64)
    return b.value(node.inputs[0]), trees, table[number + first[owner]]


def _base(
    kinds: dict[int, Array | None], sources: _Sources, is_leaf: Array, dtype: np.dtype[Any]
) -> Array | None:
    """What each output starts from: a constant in the first place; others must change nothing."""
    numbers = np.full(sources.node.size, -0.0, dtype)
    for i, row in kinds.items():
        if row is not None:
            mine = sources.node == i
            numbers[mine] = row[sources.column[mine]]
    lined = numbers.reshape(is_leaf.shape)
    rest = lined[:, 1:]
    idle = is_leaf[:, 1:] | ((rest == 0) & np.signbit(rest))
    return lined[:, 0].copy() if idle.all() else None


def _targets(column: Array, is_leaf: Array, trees: int, values: int) -> Array | None:
    """The first output of each tree, int32 (T,): tree t adds its values to outputs that follow
    each other, and each output has its trees in order; None where that is not so."""
    output, term = np.nonzero(is_leaf)
    used = column[output, term]
    if used.size != trees * values or np.unique(used).size != used.size:
        return None
    flat = np.empty(used.size, np.int64)
    flat[used] = output
    owner = flat.reshape(trees, values)
    follow = np.array_equal(owner, owner[:, :1] + np.arange(values))
    tree = used // values
    ordered = (np.diff(tree)[np.diff(output) == 0] > 0).all()
    return owner[:, 0].astype(np.int32) if follow and ordered else None
