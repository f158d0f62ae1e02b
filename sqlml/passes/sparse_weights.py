"""Replace products with one-hot columns by lookups of weights (CMLCompiler, section 4.3.2).

Lookups pay off only for one-hot columns (torch 2.13, one thread, best of 7). Products of K = 2 to
200 columns with weights (K, 1) became 1.3 to 200 times as fast; with weights (K, 100), 0.1 to 9
times. `_lookup_pays_off` approximates the boundary by a line. The terms of a row's sum are added in
another order, which BLAS might also choose. Infinite weights stay dense, because 0 * inf is NaN.
`take_categories` makes the same change before the lowering, for many categories, and is exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial, reduce

import numpy as np

from sqlml.ir.builder import Builder, Value, make_pass, rewrite
from sqlml.ir.program import Node, Program
from sqlml.passes.fold_layout import flatten_concat
from sqlml.passes.narrow_dtypes import Range, infer_ranges
from sqlml.types import FLOATS, INTEGERS, ROWS, Array, dtype_of

MIN_COLUMNS = 5
"""Minimum number of one-hot columns for which a lookup pays off."""


def sparse_weights(program: Program) -> Program:
    """Return `program` with lookups instead of products of one-hot columns."""
    use_counts = np.zeros(len(program.nodes), np.int64)
    for node in program.nodes:
        np.add.at(use_counts, list(node.inputs), 1)
    np.add.at(use_counts, list(program.outputs.values()), 1)
    ranges = infer_ranges(program)

    def rule(builder: Builder, node: Node, inputs: Sequence[Value]) -> Value | None:
        if node.op != "matmul" or use_counts[node.inputs[0]] > 1:
            return None
        weights = program.nodes[node.inputs[1]]
        if weights.op != "constant" or node.type.dtype not in FLOATS:
            return None
        left_node = program.nodes[node.inputs[0]]
        indices, values = node.inputs[:1], [inputs[0]]
        if left_node.op == "concat":
            indices = left_node.inputs
            values = [builder.value(i) for i in builder.node(inputs[0]).inputs]
        operands = []
        for i, value in zip(indices, values, strict=True):
            codes = _find_codes(program, i) if use_counts[i] == 1 else None
            code_range = None if codes is None else ranges[codes]
            operands.append(_Operand(value, codes is not None, code_range))
        return _multiply_operands(builder, operands, weights.attrs["value"])

    return rewrite(program, rule, keep_inputs=True)


@dataclass(frozen=True, slots=True)
class _Operand:
    """Columns on the left side of a product; for one-hot columns, `codes` is the codes' range."""

    value: Value
    one_hot: bool
    codes: Range | None


def _find_codes(program: Program, i: int) -> int | None:
    """Return the index of the node with the codes of one-hot columns, or None for other nodes.

    One-hot columns are lowered to a cast of the comparison of codes (n, 1) with 0 to K - 1.
    """
    cast = program.nodes[i]
    if cast.op != "cast":
        return None
    comparison = program.nodes[cast.inputs[0]]
    if comparison.op != "eq" or len(comparison.type.shape) != 2 or comparison.type.shape[0] != ROWS:
        return None
    codes, category_codes = (program.nodes[j] for j in comparison.inputs)
    if category_codes.op != "constant" or codes.type.dtype not in INTEGERS:
        return None
    is_single_column = codes.type.shape == (ROWS, 1) and not codes.type.sparse
    is_full_range = np.array_equal(category_codes.attrs["value"], np.arange(comparison.type.width))
    return comparison.inputs[0] if is_single_column and is_full_range else None


def _multiply_operands(
    builder: Builder, operands: Sequence[_Operand], weights: Array
) -> Value | None:
    dense_operands: list[tuple[Value, Array]] = []
    terms: list[Value] = []
    widths = [operand.value.type.width for operand in operands]
    weight_blocks = np.split(weights, np.cumsum(widths)[:-1])
    for operand, weight_block in zip(operands, weight_blocks, strict=True):
        if operand.one_hot and _lookup_pays_off(weight_block) and np.isfinite(weight_block).all():
            terms.append(_look_up(builder, operand, weight_block))
        else:
            dense_operands.append((operand.value, weight_block))
    if not terms:
        return None
    if dense_operands:
        dense_values, dense_blocks = zip(*dense_operands, strict=True)
        x = builder.cast(builder.concat(dense_values), dtype_of(weights))
        terms.insert(0, builder.op("matmul", x, builder.constant(np.concatenate(dense_blocks))))
    return reduce(partial(builder.op, "add"), terms)


def _lookup_pays_off(weight_block: Array) -> bool:
    width, num_outputs = weight_block.shape
    return bool(width >= max(MIN_COLUMNS, num_outputs // 2))


def _look_up(builder: Builder, operand: _Operand, weight_block: Array) -> Value:
    """Return the row of `weight_block` (K, m) for each code; zeros for an unknown code."""
    comparison = builder.value(builder.node(operand.value).inputs[0])
    codes = builder.value(builder.node(comparison).inputs[0])
    if codes.type.dtype in ("int8", "int16"):
        codes = builder.op("cast", codes, dtype="int32")
    num_codes, num_outputs = weight_block.shape

    def make_constant(value: int) -> Value:
        return builder.constant(np.array([value], codes.type.dtype))

    if operand.codes is None or operand.codes[0] < -1 or operand.codes[1] > num_codes:
        codes = builder.op("maximum", codes, make_constant(-1))
        codes = builder.op("minimum", codes, make_constant(num_codes))
    zeros = np.zeros((1, num_outputs), weight_block.dtype)
    table = builder.constant(np.concatenate([zeros, weight_block, zeros]))
    index = builder.op("add", codes, make_constant(1))
    return builder.op("reshape", builder.op("take", table, index), shape=(num_outputs,))


MIN_CATEGORIES = 64
"""Minimum number of one-hot columns for which `take_categories` pays off; measured: 32 to 128."""


@make_pass("linear")
def take_categories(builder: Builder, node: Node, inputs: Sequence[Value]) -> Value | None:
    """Look up rows of a table instead of multiplying many one-hot columns with weights."""
    weights: Array = node.attrs["weights"]
    (x,), num_outputs = inputs, weights.shape[1]
    if x.type.sparse or not np.isfinite(weights).all():
        return None
    values = flatten_concat(builder, x)
    weight_blocks = np.split(weights, np.cumsum([value.type.width for value in values])[:-1])
    has_changed = False
    for i, (value, weight_block) in enumerate(zip(values, weight_blocks, strict=True)):
        match = _match_one_hot(builder, value)
        if match is None or value.type.width < max(MIN_CATEGORIES, 4 * num_outputs):
            continue
        codes, width, columns = match
        table = np.zeros((width + 1, num_outputs), weights.dtype)
        table[columns] = weight_block
        values[i] = _take_rows(builder, codes, table)
        weight_blocks[i] = np.eye(num_outputs, dtype=weights.dtype)
        has_changed = True
    if not has_changed:
        return None
    weights = np.concatenate(weight_blocks)
    return builder.op("linear", builder.concat(values), weights=weights, bias=node.attrs["bias"])


def _match_one_hot(builder: Builder, value: Value) -> tuple[Value, int, Array] | None:
    """Return the codes, their number and the selected columns, or None if not one-hot."""
    node = builder.node(value)
    columns = None
    if node.op == "select":
        columns = np.asarray(node.attrs["indices"])
        node = builder.node(builder.value(node.inputs[0]))
        if np.unique(columns).size != columns.size:
            return None
    if node.op != "one_hot" or node.type.dtype != value.type.dtype:
        return None
    width = int(node.attrs["width"])
    return builder.value(node.inputs[0]), width, np.arange(width) if columns is None else columns


def _take_rows(builder: Builder, codes: Value, table: Array) -> Value:
    last_row, zero = (builder.constant(np.array([row])) for row in (table.shape[0] - 1, 0))
    codes = builder.cast(codes, "int64")
    is_known = builder.op("and", builder.op("ge", codes, zero), builder.op("lt", codes, last_row))
    index = builder.op("where", is_known, codes, last_row)
    if table.shape[1] == 1:
        return builder.op("take", builder.constant(table[:, 0]), index)
    rows = builder.op("take", builder.constant(table), index)
    return builder.op("reshape", rows, shape=(table.shape[1],))
