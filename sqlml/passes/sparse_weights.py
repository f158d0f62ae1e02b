"""Replace products with one-hot columns by lookups of weights.

CMLCompiler, section 4.3.2, replaces dense operators by sparse ones on CPUs if few of the numbers
are not zero. Measured speedups (torch 2.13, one thread, best of 7):

* one-hot columns times weights (K, m), m = 1: K = 2 to 200 1.3 to 200; m = 5: 0.7 to 90; m = 20:
  0.5 to 24; m = 100: 0.1 to 9, which `_pays` approximates by a line;
* weights of L1 models with 2 to 20 % of entries left: torch.sparse 0.3 to 1.1, and 2.3 to 3.1 for
  1000 x 1000 at 1 %; most of the gain comes from rows of zeros, which `inject_selection` drops;
* path matrices C of GEMM, all trees in one CSR matrix: 1.1 at 31 inner nodes per tree, 2.6 at 100,
  4.1 at 255; where that pays, traversal is over ten times faster than GEMM;
* onnxruntime has no sparse product.

So `sparse_weights` does only the first. One-hot columns are exactly 0 and 1, so each product is 0
or a weight. The sum of a row has fewer terms and another order, as BLAS may also choose. Weights
that are not finite stay dense, because 0 * inf is NaN.

`take_categories` does the same before the lowering, for very many categories, and is exact: the
weights become a table with a row per category and one of zeros for unknown ones, and a row of it is
added at the same position of the sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sqlml.ir.builder import Builder, Value, rewrite
from sqlml.ir.program import Node, Program
from sqlml.passes.fold_layout import flatten_concat
from sqlml.passes.narrow_dtypes import Range, infer_ranges
from sqlml.types import FLOATS, INTEGERS, ROWS, Array

FEWEST_COLUMNS = 5
"""Least number of one-hot columns for which a lookup pays off."""


def sparse_weights(program: Program) -> Program:
    """Return `program` with lookups instead of products of one-hot columns."""
    uses = np.zeros(len(program.nodes), np.int64)
    for node in program.nodes:
        np.add.at(uses, list(node.inputs), 1)
    np.add.at(uses, list(program.outputs.values()), 1)
    range_of = infer_ranges(program)

    def rule(b: Builder, node: Node, inputs: Sequence[Value]) -> Value | None:
        if node.op != "matmul" or uses[node.inputs[0]] > 1:
            return None
        weights = program.nodes[node.inputs[1]]
        if weights.op != "constant" or node.type.dtype not in FLOATS:
            return None
        below = program.nodes[node.inputs[0]]
        indices = below.inputs if below.op == "concat" else (node.inputs[0],)
        values = [inputs[0]]
        if below.op == "concat":
            values = [b.value(i) for i in b.node(inputs[0]).inputs]
        parts = []
        for i, value in zip(indices, values, strict=True):
            codes = _find_codes(program, i) if uses[i] == 1 else None
            code_range = None if codes is None else range_of[codes]
            parts.append(_Part(value, codes is not None, code_range))
        return _multiply_parts(b, parts, weights.attrs["value"])

    return rewrite(program, rule, keep_inputs=True)


@dataclass(frozen=True, slots=True)
class _Part:
    """Columns of a product's left side, and the range of their codes if they are one-hot."""

    value: Value
    one_hot: bool
    codes: Range | None


def _find_codes(program: Program, i: int) -> int | None:
    """Return the codes (n, 1) if node i is their one-hot form cast(eq(codes, [0, ..., K-1]))."""
    cast = program.nodes[i]
    if cast.op != "cast":
        return None
    is_equal = program.nodes[cast.inputs[0]]
    if is_equal.op != "eq" or len(is_equal.type.shape) != 2 or is_equal.type.shape[0] != ROWS:
        return None
    codes, numbers = (program.nodes[j] for j in is_equal.inputs)
    if numbers.op != "constant" or codes.type.dtype not in INTEGERS:
        return None
    if codes.type.shape != (ROWS, 1) or codes.type.sparse:
        return None
    value: Array = numbers.attrs["value"]
    counts_up = np.array_equal(value, np.arange(is_equal.type.width))
    return is_equal.inputs[0] if counts_up else None


def _multiply_parts(b: Builder, parts: Sequence[_Part], weights: Array) -> Value | None:
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
        x = b.concat(left)
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
    """Return the row of `block` (K, m) for each code, or zeros for unknown codes, (n, m)."""
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


FEWEST_CATEGORIES = 64
"""Least number of one-hot columns for which `take_categories` pays off: measured, 32 to 128."""

_LARGER = 4
"""Least ratio of one-hot columns to outputs of the model."""


def take_categories(program: Program) -> Program:
    """Return `program` with tables instead of wide one-hot columns under linear models."""
    return rewrite(program, _take_categories, ops=("linear",))


def _take_categories(b: Builder, node: Node, inputs: Sequence[Value]) -> Value | None:
    weights: Array = node.attrs["weights"]
    x = inputs[0]
    if x.type.sparse or not np.isfinite(weights).all():
        return None
    outputs = weights.shape[1]
    parts: list[Value] = []
    weight_rows: list[Array] = []
    first, changed = 0, False
    for part in flatten_concat(b, x):
        block = weights[first : first + part.type.width]
        first += part.type.width
        match = _match_one_hot(b, part)
        if match is None or part.type.width < max(FEWEST_CATEGORIES, _LARGER * outputs):
            parts.append(part)
            weight_rows.append(block)
            continue
        codes, width, columns = match
        table = np.zeros((width + 1, outputs), weights.dtype)
        table[columns] = block
        parts.append(_take_rows(b, codes, table))
        weight_rows.append(np.eye(outputs, dtype=weights.dtype))
        changed = True
    if not changed:
        return None
    weights = np.concatenate(weight_rows)
    return b.op("linear", b.concat(parts), weights=weights, bias=node.attrs["bias"])


def _match_one_hot(b: Builder, part: Value) -> tuple[Value, int, Array] | None:
    """Return the codes of one-hot columns, their number, and those of them that `part` has."""
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


def _take_rows(b: Builder, codes: Value, table: Array) -> Value:
    """Return the rows of `table` for `codes`; unknown codes get the last row."""
    last = b.constant(np.array([table.shape[0] - 1], np.int64))
    if codes.type.dtype != "int64":
        codes = b.op("cast", codes, dtype="int64")
    zero = b.constant(np.array([0], np.int64))
    is_known = b.op("and", b.op("ge", codes, zero), b.op("lt", codes, last))
    index = b.op("where", is_known, codes, last)
    if table.shape[1] == 1:
        return b.op("take", b.constant(table[:, 0]), index)
    rows = b.op("take", b.constant(table), index)
    return b.op("reshape", rows, shape=(table.shape[1],))
