"""The leaf-cursor kernel: every node looks at a block of rows, a byte a row, without a branch.

The leaves of a tree are numbered from left to right. A row's cursor is the leftmost leaf that it
may still reach, at first leaf 0. Nodes come with parents before children: a node is (column, rank,
`lo`, its leftmost leaf, and `mid`, the leftmost leaf of its right child). The rows whose cursor is
`lo` are those at this node, and those among them with a bin of `rank` or more move to `mid`. After
the last node the cursor is the exit leaf. It is the GEMM strategy of Hummingbird (section 4.1),
each node for each row, with comparisons of bytes in place of a product.

The cursors of a block stay in vector registers while the nodes pass by. numba cannot say that of a
loop over an array, so `walk` writes the vectors in LLVM's own language, which has them for every
processor.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from sqlml.backends.native.leaf_values import SMALL, add_leaves
from sqlml.backends.native.processor import VECTOR_BYTES
from sqlml.backends.native.ranks import bins
from sqlml.backends.native.set_bins import fill_set_bins

VECTORS = 8
"""Vectors of cursors that a walk carries: half of the registers of the smaller processors."""


BLOCK_BYTES = VECTORS * VECTOR_BYTES
"""Bytes of cursors in a block: as many rows with bins of one byte, half as many with two."""


def _walk(
    typing: Any,
    panel: Any,
    offset: Any,
    rank: Any,
    lo: Any,
    mid: Any,
    begin: Any,
    end: Any,
    cursor: Any,
) -> Any:
    """Send a block of rows from node `begin` to `end`, and write their cursors.

    panel (C * rows,), rank, lo, mid (nodes,) and cursor (rows,) of one unsigned dtype; offset
    uint32 (nodes,), where a node's column begins in the panel.
    """
    signature = types.void(panel, offset, rank, lo, mid, types.int64, types.int64, cursor)
    bits = panel.dtype.bitwidth
    lanes = VECTOR_BYTES * 8 // bits

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        number, long = ir.IntType(bits), ir.IntType(64)
        vector = ir.VectorType(number, lanes)
        kinds = signature.args

        def data(i: int) -> Any:
            return context.make_array(kinds[i])(context, builder, arguments[i]).data

        columns, offsets, ranks, los, mids, cursors = (data(i) for i in (0, 1, 2, 3, 4, 7))
        first, last = arguments[5], arguments[6]
        entry = builder.block
        head, body, done = (builder.append_basic_block(n) for n in ("head", "node", "done"))
        builder.branch(head)
        builder.position_at_end(head)
        node = builder.phi(long)
        node.add_incoming(first, entry)
        at = [builder.phi(vector) for _ in range(VECTORS)]
        for phi in at:
            phi.add_incoming(ir.Constant(vector, [0] * lanes), entry)
        builder.cbranch(builder.icmp_signed("<", node, last), body, done)

        builder.position_at_end(body)

        def everywhere(array: Any) -> Any:
            one = builder.load(builder.gep(array, [node]))
            nothing = ir.Constant(vector, ir.Undefined)
            lane = builder.insert_element(nothing, one, ir.Constant(ir.IntType(32), 0))
            zeros = ir.Constant(ir.VectorType(ir.IntType(32), lanes), [0] * lanes)
            return builder.shuffle_vector(lane, nothing, zeros)

        least, low, middle = everywhere(ranks), everywhere(los), everywhere(mids)
        start = builder.zext(builder.load(builder.gep(offsets, [node])), long)
        column = builder.gep(columns, [start])
        moved = []
        for k, phi in enumerate(at):
            place = builder.gep(column, [ir.Constant(long, k * lanes)])
            held = builder.load(builder.bitcast(place, vector.as_pointer()), align=1)
            here = builder.icmp_unsigned("==", phi, low)
            right = builder.icmp_unsigned(">=", held, least)
            moved.append(builder.select(builder.and_(here, right), middle, phi))
        node.add_incoming(builder.add(node, ir.Constant(long, 1)), builder.block)
        for phi, value in zip(at, moved, strict=True):
            phi.add_incoming(value, builder.block)
        builder.branch(head)

        builder.position_at_end(done)
        for k, phi in enumerate(at):
            place = builder.gep(cursors, [ir.Constant(long, k * lanes)])
            builder.store(phi, builder.bitcast(place, vector.as_pointer()), align=1)
        return context.get_dummy_value()

    return signature, generate


walk: Any = intrinsic(_walk)


def score(
    x: Any,
    columns: Any,
    thresholds: Any,
    begin: Any,
    steps: Any,
    low: Any,
    scale: Any,
    top: Any,
    cells: Any,
    first: Any,
    high: Any,
    least: Any,
    count: Any,
    shift: Any,
    categorical: Any,
    limit: Any,
    table: Any,
    table_begin: Any,
    owner: Any,
    offset: Any,
    rank: Any,
    lo: Any,
    mid: Any,
    starts: Any,
    leaves: Any,
    values: Any,
    target: Any,
    base: Any,
    out: Any,
) -> None:
    """out (n, K) = base and the exit leaves' values, tree by tree in the leaves' dtype.

    x (n, k); the arrays of `Ranks`; those of `SetBins`, whose bins stand behind the others;
    offset, rank, lo, mid (nodes,); starts int64 (trees + 1,)
    into the nodes; leaves int64 (trees + 1,) into `values` (V, leaves and PADDING); target int64
    (trees,).
    """
    rows = BLOCK_BYTES // rank.itemsize
    value = np.empty(rows, thresholds.dtype)
    place = np.empty(rows, np.uint32)
    slots = (high >= 0).sum() + (least >= 0).sum()
    panel = np.empty(max(1, slots + table_begin.size) * rows, rank.dtype)
    cursor = np.empty(rows, rank.dtype)
    total = np.empty((base.size, rows), base.dtype)
    for start in range(0, x.shape[0], rows):
        bins(
            x, start, columns, thresholds, begin, steps, low, scale, top, cells, first, high,
            least, count, shift, value, place, panel,
        )  # fmt: skip
        fill_set_bins(
            x, start, categorical, limit, table, table_begin, owner, value, place,
            panel[slots * rows :],
        )  # fmt: skip
        for k in range(base.size):
            for r in range(rows):
                total[k, r] = base[k]
        for t in range(starts.size - 1):
            walk(panel, offset, rank, lo, mid, starts[t], starts[t + 1], cursor)
            own = leaves[t + 1] - leaves[t]
            for v in range(values.shape[0]):
                sums, table_of, row = total[target[t] + v], values[v], leaves[t]
                if own <= SMALL:
                    add_leaves(table_of, row, cursor, sums, 1)
                elif own * sums.itemsize <= 1024:
                    add_leaves(table_of, row, cursor, sums, 2)
                else:
                    add_leaves(table_of, row, cursor, sums, 0)
        held = min(rows, x.shape[0] - start)
        for k in range(base.size):
            for r in range(held):
                out[start + r, k] = total[k, r]
