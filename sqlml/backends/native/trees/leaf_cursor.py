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

Trees that ask one question a level, as CatBoost grows them, need no `lo`: the answers are the bits
of the exit leaf's number, the root's the highest. So a tree of depth 6 costs 6 comparisons in place
of 63.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from llvmlite import ir

from sqlml.backends.native.deferred import intrinsic
from sqlml.backends.native.fetching import LINE_BYTES, fetch
from sqlml.backends.native.processor import VECTOR_BYTES
from sqlml.backends.native.trees.leaf_values import PADDING, SMALL, add_leaves, add_rows
from sqlml.backends.native.trees.ranks import bins
from sqlml.backends.native.trees.set_bins import fill_set_bins

VECTORS = 8
"""Vectors of cursors that a walk carries: half of the registers of the smaller processors."""


BLOCK_BYTES = VECTORS * VECTOR_BYTES
"""Bytes of cursors in a block: as many rows with bins of one byte, half as many with two."""


Step = Callable[[Any, Any, Any, Any, Any], Any]
"""Of a builder, the cursors, which rows answer yes, and a node's lo and mid: the cursors then."""


def _moved(builder: Any, cursor: Any, yes: Any, lo: Any, mid: Any) -> Any:
    here = builder.icmp_unsigned("==", cursor, lo)
    return builder.select(builder.and_(here, yes), mid, cursor)


def _counted(builder: Any, cursor: Any, yes: Any, lo: Any, mid: Any) -> Any:
    return builder.select(yes, builder.or_(cursor, mid), cursor)


def _walker(step: Step) -> Any:
    """An intrinsic that shows nodes `begin` to `end` to a block of rows, and writes their cursors.

    panel (C * rows,), rank, lo, mid (nodes,) and cursor (rows,) of one unsigned dtype; offset
    uint32 (nodes,), where a node's column begins in the panel.
    """

    def walker(
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
        from numba import types  # only to compile

        signature = types.void(panel, offset, rank, lo, mid, types.int64, types.int64, cursor)
        return signature, partial(_generate, step)

    return intrinsic(walker)


def _generate(step: Step, context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    kinds = signature.args
    bits = kinds[0].dtype.bitwidth
    lanes = VECTOR_BYTES * 8 // bits
    number, long = ir.IntType(bits), ir.IntType(64)
    vector = ir.VectorType(number, lanes)

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
        yes = builder.icmp_unsigned(">=", held, least)
        moved.append(step(builder, phi, yes, low, middle))
    node.add_incoming(builder.add(node, ir.Constant(long, 1)), builder.block)
    for phi, value in zip(at, moved, strict=True):
        phi.add_incoming(value, builder.block)
    builder.branch(head)

    builder.position_at_end(done)
    for k, phi in enumerate(at):
        place = builder.gep(cursors, [ir.Constant(long, k * lanes)])
        builder.store(phi, builder.bitcast(place, vector.as_pointer()), align=1)
    return context.get_dummy_value()


walk = _walker(_moved)
"""The rows at a node, whose cursor is its `lo`, move to its `mid` where they answer yes."""

count = _walker(_counted)
"""Where they answer yes, all rows add the bit `mid` to their cursor."""


def score(
    x: Any,
    width: Any,
    together: Any,
    tables: Any,
    sets: Any,
    nodes: Any,
    leaves: Any,
    values: Any,
    base: Any,
    out: Any,
) -> None:
    """out (n, K) = base and the exit leaves' values, tree by tree in the leaves' dtype.

    x (n, k); tables as `bins` and sets as `fill_set_bins` reads them, for panels of `width`
    columns. nodes: offset, rank, lo, mid (nodes,) and starts int64 (trees + 1,) into them. leaves:
    int64 (trees + 1,), the first leaf of each tree, target int64 (trees,), and bool (trees,),
    whether a tree's questions are `count`ed. values: one table of all leaves behind the other,
    each with PADDING; or where `together` is not 0, so many numbers a leaf.
    """
    offset, rank, lo, mid, starts = nodes
    first, target, oblivious = leaves
    rows = BLOCK_BYTES // rank.itemsize
    value = np.empty(rows, tables[1].dtype)
    place = np.empty(rows, np.uint32)
    panel = np.empty(width * rows, rank.dtype)
    cursor = np.empty(rows, rank.dtype)
    total = np.empty(max(base.size, together) * rows, base.dtype)
    table = first[-1] + PADDING
    by_row, by_output = (together, 1) if together else (1, rows)
    a_line = np.int64(LINE_BYTES // x.itemsize)
    # While trees score a block, the rows of the next one are asked for.
    in_order = x.strides[1] == x.itemsize and x.strides[0] == x.shape[1] * x.itemsize
    lines = rows * x.shape[1] // (a_line * max(1, target.size)) + 1 if in_order else 0
    for start in range(0, x.shape[0], rows):
        bins(x, start, tables, value, place, panel)
        if sets is not None:
            fill_set_bins(x, start, sets, value, place, panel)
        for k in range(base.size):
            for r in range(rows):
                total[r * by_row + k * by_output] = base[k]
        for t in range(target.size):
            for line in range(t * lines, (t + 1) * lines):
                fetch(x, np.uint64((start + rows) * x.shape[1] + line * a_line))
            if oblivious[t]:
                count(panel, offset, rank, lo, mid, starts[t], starts[t + 1], cursor)
            else:
                walk(panel, offset, rank, lo, mid, starts[t], starts[t + 1], cursor)
            if together:
                add_rows(values, first[t], cursor, total, together)
                continue
            own = first[t + 1] - first[t]
            for v in range(values.size // table):
                sums = total[(target[t] + v) * rows : (target[t] + v + 1) * rows]
                row = v * table + first[t]
                if own <= SMALL:
                    add_leaves(values, row, cursor, sums, 1)
                elif own * sums.itemsize <= 1024:
                    add_leaves(values, row, cursor, sums, 2)
                else:
                    add_leaves(values, row, cursor, sums, 0)
        held = min(rows, x.shape[0] - start)
        for k in range(base.size):
            for r in range(held):
                out[start + r, k] = total[r * by_row + k * by_output]
