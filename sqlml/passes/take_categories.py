"""Weights of one-hot columns are looked up by the category, where there are very many. Exact.

Of the columns that one_hot makes for a row one is 1 and the others are 0, so a linear model adds
one of their weights and zeros. The weights become a table with a row for each category, and one of
zeros for a category that has no column; its row goes into the sum at the same place.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sqlml.ir.builder import Builder, Value
from sqlml.ir.program import Node, Program
from sqlml.ir.rewrite import rewrite
from sqlml.passes.fold_layout import parts_of
from sqlml.types import Array

FEWEST = 64
"""Columns of a category from which on a look-up is worth its steps: measured, 32 to 128."""

_LARGER = 4
"""How many times as many columns a category must have as the model has outputs."""


def take_categories(program: Program) -> Program:
    """Return `program` with tables in place of wide one-hot columns under linear models."""
    return rewrite(program, _rule, ops=("linear",))


def _rule(b: Builder, node: Node, inputs: Sequence[Value]) -> Value | None:
    weights: Array = node.attrs["weights"]
    x = inputs[0]
    if x.type.sparse or not np.isfinite(weights).all():
        return None
    outputs = weights.shape[1]
    parts: list[Value] = []
    kept: list[Array] = []
    first, changed = 0, False
    for part in parts_of(b, x):
        own = weights[first : first + part.type.width]
        first += part.type.width
        found = _one_hot(b, part)
        if found is None or part.type.width < max(FEWEST, _LARGER * outputs):
            parts.append(part)
            kept.append(own)
            continue
        codes, width, columns = found
        table = np.zeros((width + 1, outputs), weights.dtype)
        table[columns] = own
        parts.append(_taken(b, codes, table))
        kept.append(np.eye(outputs, dtype=weights.dtype))
        changed = True
    if not changed:
        return None
    weights = np.concatenate(kept)
    return b.op("linear", b.beside(parts), weights=weights, bias=node.attrs["bias"])


def _one_hot(b: Builder, part: Value) -> tuple[Value, int, Array] | None:
    """The codes of one-hot columns, how many there were, and which of them `part` is."""
    node = b.node(part)
    columns = None
    if node.op == "select":
        columns = np.asarray(node.attrs["indices"])
        node = b.node(b.value(node.inputs[0]))
        if np.unique(columns).size != columns.size:
            return None
    if node.op != "one_hot" or node.type.dtype != part.type.dtype:
        return None
    width = int(node.attrs["width"])
    return b.value(node.inputs[0]), width, np.arange(width) if columns is None else columns


def _taken(b: Builder, codes: Value, table: Array) -> Value:
    """The rows of `table` for `codes`, the last of them where a code is not a category."""
    last = b.constant(np.array([table.shape[0] - 1], np.int64))
    if codes.type.dtype != "int64":
        codes = b.op("cast", codes, dtype="int64")
    zero = b.constant(np.array([0], np.int64))
    known = b.op("and", b.op("ge", codes, zero), b.op("lt", codes, last))
    index = b.op("where", known, codes, last)
    if table.shape[1] == 1:
        return b.op("take", b.constant(table[:, 0]), index)
    found = b.op("take", b.constant(table), index)
    return b.op("reshape", found, shape=(table.shape[1],))
