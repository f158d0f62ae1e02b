"""Products with one-hot columns as lookups: rows of weights are taken, zeros are not multiplied.

CMLCompiler, section 4.3.2, replaces dense operators by sparse ones on CPUs where under a share of
the numbers are not zero. Measured (torch 2.13, one thread, best of 7; how many times faster):

* one-hot columns times weights (K, m), m = 1: K = 2 to 200 1.3 to 200; m = 5: 0.7 to 90; m = 20:
  0.5 to 24; m = 100: 0.1 to 9, which `_pays` puts in a line;
* weights of L1 models with 2 to 20 % of entries left: torch.sparse 0.3 to 1.1, and 2.3 to 3.1 for
  1000 x 1000 at 1 %; `inject_selection` has dropped the rows without any, which is what pays;
* path matrices C of GEMM, all trees in one CSR matrix: 1.1 at 31 inner nodes per tree, 2.6 at 100,
  4.1 at 255; where it pays, traversal is over ten times faster than GEMM;
* onnxruntime has no sparse product.

So only the first is done. The one-hot columns are exact 0 and 1, so each product is 0 or a weight;
the sum of a row has fewer terms and another order, which is as much as BLAS promises. Weights
that are not finite stay dense (0 * inf is NaN).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sqlml.ir.builder import Builder, Value, rewrite
from sqlml.ir.program import Node, Program
from sqlml.passes.fold_layout import parts_of
from sqlml.passes.narrow_dtypes import Range, ranges
from sqlml.types import FLOATS, INTEGERS, ROWS, Array

FEWEST_COLUMNS = 5
"""One-hot columns of one code that are worth a lookup."""


def sparse_weights(program: Program) -> Program:
    """Return `program` with its products of one-hot columns as lookups."""
    uses = np.zeros(len(program.nodes), np.int64)
    for node in program.nodes:
        np.add.at(uses, list(node.inputs), 1)
    np.add.at(uses, list(program.outputs.values()), 1)
    known = ranges(program)

    def rule(b: Builder, node: Node, inputs: Sequence[Value]) -> Value | None:
        if node.op != "matmul" or uses[node.inputs[0]] > 1:
            return None
        weights = program.nodes[node.inputs[1]]
        if weights.op != "constant" or node.type.dtype not in FLOATS:
            return None
        below = program.nodes[node.inputs[0]]
        places = below.inputs if below.op == "concat" else (node.inputs[0],)
        values = [inputs[0]]
        if below.op == "concat":
            values = [b.value(i) for i in b.node(inputs[0]).inputs]
        parts = []
        for i, value in zip(places, values, strict=True):
            codes = _codes(program, i) if uses[i] == 1 else None
            between = None if codes is None else known[codes]
            parts.append(_Part(value, codes is not None, between))
        return _product(b, parts, weights.attrs["value"])

    return rewrite(program, rule, keep_inputs=True)


@dataclass(frozen=True, slots=True)
class _Part:
    """Columns of a product's left side, and, if they are one-hot, what their codes lie between."""

    value: Value
    one_hot: bool
    codes: Range | None


def _codes(program: Program, i: int) -> int | None:
    """The (n, 1) codes of which node i is one-hot: cast(eq(codes, 0 .. K-1))."""
    cast = program.nodes[i]
    if cast.op != "cast":
        return None
    same = program.nodes[cast.inputs[0]]
    if same.op != "eq" or len(same.type.shape) != 2 or same.type.shape[0] != ROWS:
        return None
    codes, numbers = (program.nodes[j] for j in same.inputs)
    if numbers.op != "constant" or codes.type.dtype not in INTEGERS:
        return None
    if codes.type.shape != (ROWS, 1) or codes.type.sparse:
        return None
    value: Array = numbers.attrs["value"]
    counted = np.array_equal(value, np.arange(same.type.width))
    return same.inputs[0] if counted else None


def _product(b: Builder, parts: Sequence[_Part], weights: Array) -> Value | None:
    start = 0
    left: list[Value] = []
    rows: list[Array] = []
    terms: list[Value] = []
    for part in parts:
        block = weights[start : start + part.value.type.width]
        start += block.shape[0]
        if part.one_hot and _pays(block) and np.isfinite(block).all():
            terms.append(_look_up(b, part, block))
        else:
            left.append(part.value)
            rows.append(block)
    if not terms:
        return None
    if left:
        x = b.beside(left)
        if x.type.dtype != weights.dtype:
            x = b.op("cast", x, dtype=weights.dtype.name)
        terms.insert(0, b.op("matmul", x, b.constant(np.concatenate(rows))))
    total = terms[0]
    for term in terms[1:]:
        total = b.op("add", total, term)
    return total


def _pays(block: Array) -> bool:
    width, outputs = block.shape
    return bool(width >= max(FEWEST_COLUMNS, outputs // 2))


def _look_up(b: Builder, part: _Part, block: Array) -> Value:
    """The row of `block` (K, m) of each code, zeros for codes outside 0 .. K-1: (n, m)."""
    codes = b.value(b.node(b.value(b.node(part.value).inputs[0])).inputs[0])
    if codes.type.dtype in ("int8", "int16"):
        codes = b.op("cast", codes, dtype="int32")
    size, outputs = block.shape

    def number(value: int) -> Value:
        return b.constant(np.array([value], codes.type.dtype))

    if part.codes is None or part.codes[0] < -1 or part.codes[1] > size:
        codes = b.op("minimum", b.op("maximum", codes, number(-1)), number(size))
    nothing = np.zeros((1, outputs), block.dtype)
    table = b.constant(np.concatenate([nothing, block, nothing]))
    return b.op("reshape", b.op("take", table, b.op("add", codes, number(1))), shape=(outputs,))


# Weights of one-hot columns are looked up by the category, where there are very many. Exact.
#
# Of the columns that one_hot makes for a row one is 1 and the others are 0, so a linear model
# adds one of their weights and zeros. The weights become a table with a row for each category,
# and one of zeros for a category that has no column; its row goes into the sum at the same place.


FEWEST_CATEGORIES = 64
"""Columns of a category from which on a look-up is worth its steps: measured, 32 to 128."""

_LARGER = 4
"""How many times as many columns a category must have as the model has outputs."""


def take_categories(program: Program) -> Program:
    """Return `program` with tables in place of wide one-hot columns under linear models."""
    return rewrite(program, _take_categories, ops=("linear",))


def _take_categories(b: Builder, node: Node, inputs: Sequence[Value]) -> Value | None:
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
        if found is None or part.type.width < max(FEWEST_CATEGORIES, _LARGER * outputs):
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
