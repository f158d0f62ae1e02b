"""`SetBins`: bins for tests of membership in a set. The bin is 0 for members, 1 for other numbers.

A category is an integer. For each column that sets test, a table has a row of bins for each integer
up to the largest category in any of these sets, a row for other numbers, and a row for NaN. A row
has one byte per set. So a number is converted to a code, which names a row of the table, and the
rows of many numbers are transposed to the columns of the panel, SIDE rows and sets at a time.

Sets of a single category share a column of the table: the categories have the bins 1 to
SHARED_SETS, and all other numbers have bin 0. So a thousand categories that trees test one by one
take four columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from llvmlite import ir

from sqlml.backends.native.jit.call_wrapper import (
    LONG,
    get_pointers,
    long,
    transpose_vectors,
    vector_pointer,
)
from sqlml.backends.native.jit.helpers import intrinsic
from sqlml.backends.native.jit.specialise import inlined_helper
from sqlml.ir.tree_shape import SHARED_SETS, find_shared_sets
from sqlml.ir.trees import Ensemble
from sqlml.types import Array

MAX_TABLE_BYTES = 32 << 20
"""The most bytes of an ensemble's tables."""

SIDE = 16
"""Rows and sets that are transposed together. The columns of a table are padded to a multiple."""


@dataclass(frozen=True, slots=True, eq=False)
class SetBins:
    """The tables of F columns. Their columns, S in all, are the last columns of a panel."""

    columns: Array  # int64 (F,), column numbers in the ensemble's input.
    limit: Array  # int64 (F,), a column's numbers from 0 to limit - 1 are codes.
    count: Array  # int64 (F,), the columns of each table.
    begin: Array  # int64 (F,), where each table begins.
    table: Array  # uint8, the concatenated tables, row by row.
    of_node: Array  # int64 (M,), the column of each node's set, -1 for a numeric node.
    bin_of_node: Array  # int64 (M,), the bin of the rows that go left.

    @property
    def width(self) -> int:
        return int(self.count.sum())

    def arrays(self) -> tuple[Array, ...]:
        """Return the arrays that `fill_set_bins` reads in addition to the columns."""
        return self.limit, self.count, self.begin, self.table


def make_set_bins(ensemble: Ensemble) -> SetBins | None:
    """Return the bins of an ensemble's sets, or None if the tables exceed MAX_TABLE_BYTES."""
    of_node, bin_of_node = np.full(ensemble.nodes, -1, np.int64), np.zeros(ensemble.nodes, np.int64)
    empty = np.zeros(0, np.int64)
    if not ensemble.has_categories or ensemble.categorical is None or ensemble.set_offsets is None:
        no_table = np.zeros(0, np.uint8)
        return SetBins(empty, empty, empty, empty, no_table, of_node, bin_of_node)
    shared = find_shared_sets(ensemble)
    sizes = np.diff(ensemble.set_offsets).astype(np.int64) * 32
    sizes = np.maximum(sizes, ensemble.find_only_categories() + 1)
    columns = np.unique(ensemble.feature[ensemble.categorical])
    limits, tables, width, table_bytes = [], [], 0, 0
    for column in columns.tolist():
        nodes = np.flatnonzero(ensemble.categorical & (ensemble.feature == column))
        limits.append(int(sizes[nodes].max()))
        table_columns: list[Array] = []
        for bins, nodes_of_bins, bin_of_nodes in _list_bins(
            ensemble, nodes, shared[nodes], limits[-1]
        ):
            of_node[nodes_of_bins] = width + len(table_columns)
            bin_of_node[nodes_of_bins] = bin_of_nodes
            table_columns.append(bins)
            table_bytes += bins.size
            if table_bytes > MAX_TABLE_BYTES:
                return None
        padding = -len(table_columns) % SIDE
        table = np.pad(np.stack(table_columns, axis=1), ((0, 0), (0, padding)))
        tables.append(table.ravel())
        width += table.shape[1]
    table_sizes = np.array([table.size for table in tables], np.int64)
    limit = np.array(limits, np.int64)
    return SetBins(
        columns=columns.astype(np.int64),
        limit=limit,
        count=table_sizes // (limit + 2),
        begin=np.cumsum(table_sizes) - table_sizes,
        table=np.concatenate(tables),
        of_node=of_node,
        bin_of_node=bin_of_node,
    )


def _list_bins(
    ensemble: Ensemble, nodes: Array, shared: Array, limit: int
) -> Iterator[tuple[Array, Array, Array]]:
    """Yield the columns of a table, uint8 (limit + 2,), with their nodes and the nodes' bins.

    `shared` has the category of each of the `nodes` whose set shares a column, otherwise -1.
    """
    single_nodes = nodes[shared >= 0]
    categories, ranks = np.unique(shared[shared >= 0], return_inverse=True)
    for first in range(0, categories.size, SHARED_SETS):
        page = categories[first : first + SHARED_SETS]
        bins = np.zeros(limit + 2, np.uint8)
        bins[page] = np.arange(1, page.size + 1)
        is_in_page = (ranks >= first) & (ranks < first + page.size)
        yield bins, single_nodes[is_in_page], ranks[is_in_page] - first + 1
    nodes_by_bins: dict[bytes, list[int]] = {}
    for node in nodes[shared < 0].tolist():
        bins = np.ones(limit + 2, np.uint8)
        bins[ensemble.set_members(node)] = 0
        bins[-1] = not ensemble.default_left[node]
        nodes_by_bins.setdefault(bins.tobytes(), []).append(node)
    for key, nodes_of_bins in nodes_by_bins.items():
        yield np.frombuffer(key, np.uint8), np.array(nodes_of_bins), np.zeros(1, np.int64)


@inlined_helper
def fill_set_bins(
    x: Any, start: Any, sets: Any, values: Any, rows_at: Any, panel: Any, filled: Any
) -> None:
    """Fill the last S * rows bins of `panel` with the set bins of x from row `start` on.

    Args:
        sets: the columns of x, int64 (F,), and `SetBins.arrays()`.
        values: scratch space (rows,) of the tests' dtype, to which x is rounded.
        rows_at: scratch space (rows,) of uint32, where the rows of the table begin.
        filled: how many of a column's rows are filled, a multiple of SIDE.

    Rows after the end of x repeat the last row.
    """
    columns, limit, count, begin, table = sets
    rows = rows_at.size
    position = panel.size
    for c in range(columns.size):
        position -= count[c] * rows
    for c in range(columns.size):
        input_column, code_limit = columns[c], limit[c]
        table_begin, width = np.uint32(begin[c]), np.uint32(count[c])
        for r in range(filled):
            values[np.uint64(r)] = x[min(start + r, x.shape[0] - 1), input_column]
        for r in range(filled):
            number = values[np.uint64(r)]
            is_code = number >= 0 and number < code_limit
            other_code = np.uint32(code_limit + (number != number))
            code = np.uint32(number) if is_code else other_code
            rows_at[np.uint64(r)] = table_begin + code * width
        for first_set in range(0, count[c], SIDE):
            for r in range(0, filled, SIDE):
                target = np.uint64(position + first_set * rows + r)
                _transpose(table, np.uint64(first_set), rows_at, np.uint64(r), panel, target, rows)
        position += count[c] * rows


@intrinsic
def _transpose(
    typing: Any,
    table: Any,
    first_set: Any,
    rows_at: Any,
    first_row: Any,
    panel: Any,
    target: Any,
    step: Any,
) -> Any:
    """Emit the transposition of a square of bytes: table[rows_at[first_row + r] + first_set + k].

    The byte of row r and set k goes to panel[target + k * step + r].
    """
    from numba import types  # Importing numba is slow.

    signature = types.void(
        table, types.uint64, rows_at, types.uint64, panel, types.uint64, types.int64
    )
    return signature, _generate_transpose


def _generate_transpose(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    table, rows_at, panel = get_pointers(context, builder, signature, arguments, 0, 2, 4)
    first_set, first_row, target, step = (arguments[i] for i in (1, 3, 5, 6))
    vector = ir.VectorType(ir.IntType(8), SIDE)
    vectors = []
    for r in range(SIDE):
        row_at = builder.load(builder.gep(rows_at, [builder.add(first_row, long(r))]))
        index = builder.add(builder.zext(row_at, LONG), first_set)
        vectors.append(builder.load(vector_pointer(builder, table, index, vector), align=1))
    bin_type = context.get_data_type(signature.args[4].dtype)
    bins = ir.VectorType(bin_type, SIDE)
    for k, column in enumerate(transpose_vectors(builder, vectors)):
        value = column if bin_type.width == 8 else builder.zext(column, bins)
        index = builder.add(target, builder.mul(step, long(k)))
        builder.store(value, vector_pointer(builder, panel, index, bins), align=1)
    return context.get_dummy_value()
