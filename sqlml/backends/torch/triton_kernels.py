"""Triton kernels of strategy `fused`: one maps rows to ranks, the other sums all trees.

If TRITON_INTERPRET=1, numpy interprets the kernels, so that tests run without a GPU. The kernels
are long and have many parameters, because Triton passes each array and constant separately, and
calls of small functions are not free.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl


def _rank_columns(
    x: tl.tensor,
    rows: tl.tensor,
    features: tl.tensor,
    columns: tl.tensor,
    feature: tl.tensor,
    negated: tl.tensor,
    size: tl.tensor,
    edges: tl.tensor,
    staged: tl.tensor,
    MISSING: tl.constexpr,
    SETS: tl.constexpr,
    STEPS: tl.constexpr,
    EACH: tl.constexpr,
    ROWS: tl.constexpr,
) -> None:
    """Write the ranks of EACH columns and ROWS rows to `staged` (blocks, columns, ROWS)."""
    block = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, ROWS)
    row = block * ROWS + lane
    first_column = tl.program_id(1) * EACH
    for column in range(first_column, tl.minimum(first_column + EACH, columns)):
        offset = row * features + tl.load(feature + column)
        value = tl.load(x + offset, mask=row < rows, other=0).to(edges.dtype.element_ty)
        value = tl.where(tl.load(negated + column) != 0, -value, value)
        column_edges = edges + column * ((1 << STEPS) - 1)
        rank = tl.zeros([ROWS], tl.int32)
        for step in tl.static_range(STEPS):
            half = 1 << (STEPS - 1 - step)
            is_below = tl.load(column_edges + rank + (half - 1)) < value
            rank = tl.where(is_below, rank + half, rank)
        is_nan = value != value
        rank = tl.where(is_nan, MISSING, rank)
        if SETS:
            limit = tl.load(size + column)
            is_code = (value >= 0) & (value < limit.to(value.dtype))
            code = tl.where(is_code, value, 0).to(tl.int32)
            code = tl.where(is_code, code, limit + is_nan.to(tl.int32))
            rank = tl.where(limit >= 0, code, rank)
        tl.store(staged + (block * columns + column) * ROWS + lane, rank)


def _sum_trees(
    staged: tl.tensor,
    rows: tl.tensor,
    columns: tl.tensor,
    words: tl.tensor,
    node: tl.tensor,
    child: tl.tensor,
    depth: tl.tensor,
    first_slot: tl.tensor,
    first_value: tl.tensor,
    values: tl.tensor,
    group_output: tl.tensor,
    group_count: tl.tensor,
    group_begin: tl.tensor,
    terms: tl.tensor,
    base: tl.tensor,
    out: tl.tensor,
    leaf_values: tl.tensor,
    outputs: tl.tensor,
    groups: tl.tensor,
    PERFECT: tl.constexpr,
    SETS: tl.constexpr,
    PACKED: tl.constexpr,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
) -> None:
    """Send ROWS rows through all trees of one group of outputs; see `fused_trees.Layout`.

    The sums stay in registers. Terms are added in the order of the source library, and each sum is
    rounded to the leaves' dtype after each term. A leaf has `leaf_values` values. A node has 32
    bits if PACKED, otherwise 64. A group has at most WIDTH outputs.
    """
    program = tl.program_id(0)  # Other dimensions of a grid allow fewer programs.
    block = (program // groups).to(tl.int64)
    group = program % groups
    lane = tl.arange(0, ROWS)
    ranks = staged + block * columns * ROWS
    output = tl.load(group_output + group)
    begin = tl.load(group_begin + group)
    end = tl.load(group_begin + group + 1)
    offsets = tl.arange(0, WIDTH)
    is_used = offsets < tl.load(group_count + group)
    if WIDTH == 1:
        total = tl.zeros([ROWS], values.dtype.element_ty) + tl.load(base + output)
    else:
        start = tl.load(base + output + offsets, mask=is_used, other=0)
        total = tl.zeros([ROWS, WIDTH], values.dtype.element_ty) + start[None, :]
    for term in range(begin, end):
        tree = tl.load(terms + 2 * term)
        levels = tl.load(depth + tree)
        slot = tl.load(first_slot + tree)
        if PERFECT:  # The nodes of a tree are numbered from 1.
            position = tl.full([ROWS], 1, tl.int32)
            slots = node + slot - 1
        else:
            position = tl.full([ROWS], 0, tl.int32)
            slots = node + slot
        for _ in range(levels):
            packed = tl.load(slots + position)
            if PACKED:
                column = packed >> 16
                test = (packed << 16) >> 16
            else:
                column = (packed >> 32).to(tl.int32)
                test = packed.to(tl.int32)
            if SETS:
                is_set = column < 0
                column = tl.where(is_set, ~column, column)
            rank = tl.load(ranks + (column * ROWS + lane)).to(tl.int32)
            passes = rank <= test
            if SETS:
                word = tl.load(words + test + (rank >> 5), mask=is_set, other=0)
                passes = tl.where(is_set, ((word >> (rank & 31)) & 1) != 0, passes)
            step = passes.to(tl.int32)
            if PERFECT:
                position = 2 * position + step
            else:
                child_slot = tl.load(child + slot + position)
                position = tl.where(child_slot < 0, position, child_slot + step)
        if PERFECT:
            leaf = position + (tl.load(first_value + tree) - (1 << levels))
        else:
            leaf = ~tl.load(child + slot + position)
        value = values + tl.load(terms + 2 * term + 1) + leaf.to(tl.int64) * leaf_values
        if WIDTH == 1:
            total += tl.load(value)
        else:
            total += tl.load(value[:, None] + offsets[None, :], mask=is_used[None, :], other=0)
    row = block * ROWS + lane
    target = out + row * outputs + output
    if WIDTH == 1:
        tl.store(target, total, mask=row < rows)
    else:
        is_stored = (row < rows)[:, None] & is_used[None, :]
        tl.store(target[:, None] + offsets[None, :], total, mask=is_stored)


# By default, Triton would compile again for batches of one row, and of a multiple of 16 rows.
rank_columns: Any = triton.jit(_rank_columns, do_not_specialize=["rows"])
sum_trees: Any = triton.jit(_sum_trees, do_not_specialize=["rows"])
