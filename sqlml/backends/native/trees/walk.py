"""`walk` and `count`: nodes shown to a block of rows, whose cursors stay in vector registers.

numba cannot say that of a loop over an array, so the vectors are written in LLVM's own language,
which has them for every processor.

Processors with AVX-512 compare bytes into mask registers, which they do at half the rate of plain
arithmetic or less. The average of a bin and the complement of a rank, (bin + 255 - rank + 1) / 2,
has its highest bit where the bin is not below the rank, and there a byte shuffle gives 0: two plain
instructions for "`step` where below, else 0" (three for bins of two bytes). Measured on a Zen 5
with all data at hand, cycles for a node and 64 rows: 1.72 with comparisons only, 1.21 this way, and
0.81 in triples.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from llvmlite import ir

from sqlml.backends.native.jit.helpers import helper, intrinsic
from sqlml.backends.native.jit.object_code import VECTOR_BYTES, has
from sqlml.ir.trees import Ensemble
from sqlml.types import Array

# `Exits`: the upper part of each tree, and the numbers of the places where rows leave it.
#
# Exits are leaves, or subtrees where the upper part is cut. They are numbered from left to right,
# tree by tree, so that a row's exit is the leftmost one that its tests allow.


@dataclass(frozen=True, slots=True, eq=False)
class Exits:
    """Of T trees with U inner nodes in their upper parts and E exits; all int64.

    first (T + 1,): the first exit of each tree. exit (E,): the inner node below it, or ~leaf.
    node (U,): inner nodes of the Ensemble, tree by tree and parents before children; starts
    (T + 1,): the first of each tree; lo (U,): the leftmost exit below a node, mid (U,) that of its
    right child, and last (U,) the rightmost below it, counted from the tree's first.
    """

    first: Array
    exit: Array
    node: Array
    starts: Array
    lo: Array
    mid: Array
    last: Array


def exits(e: Ensemble, cut: Array | None = None) -> Exits:
    """Number the exits of `e` where inner nodes at depth `cut[t]` of tree t are exits (default:
    none are).
    """
    left, right, roots = (a.astype(np.int64) for a in (e.left, e.right, e.roots))
    depths, owner = e.depths(), e.node_roots()
    # The entry after the last node serves all leaves, whose numbers are below 0.
    upper = np.append(np.ones(e.nodes, bool) if cut is None else depths < cut[owner], False)
    size = np.ones(e.nodes + 1, np.int64)
    by_depth = np.argsort(depths, kind="stable")
    by_depth = by_depth[upper[by_depth]]
    levels = np.split(by_depth, np.flatnonzero(np.diff(depths[by_depth])) + 1)

    def below(children: Array) -> Array:
        return size[np.maximum(children, -1)]

    for level in reversed(levels):
        size[level] = below(left[level]) + below(right[level])
    first = np.cumsum([0, *below(roots)], dtype=np.int64)
    start = np.zeros(e.nodes, np.int64)
    exit_of = np.zeros(int(first[-1]), np.int64)

    def place(children: Array, at: Array) -> None:
        inner = upper[np.maximum(children, -1)]
        start[children[inner]] = at[inner]
        exit_of[at[~inner]] = children[~inner]

    place(roots, first[:-1])
    middle = np.zeros(e.nodes, np.int64)
    for level in levels:
        middle[level] = start[level] + below(left[level])
        place(left[level], start[level])
        place(right[level], middle[level])
    node = np.flatnonzero(upper[:-1])
    before = first[owner[node]]
    return Exits(
        first=first,
        exit=exit_of,
        node=node,
        starts=np.searchsorted(owner[node], np.arange(e.trees + 1)),
        lo=start[node] - before,
        mid=middle[node] - before,
        last=start[node] + size[node] - 1 - before,
    )


# `triples`: the order in which `walk` looks at nodes, three at a time where it can.
#
# A node and its two children are answered together, and the rows at the node are found once. From
# the root down, two levels of a tree at a time become triples; the second may lack a child. What
# is left are nodes without inner children, one by one, as are all of a tree of few nodes.


NONE = -1
"""In place of a child that is an exit."""

FEW = 4
"""Nodes of a tree for which a second loop would take longer than it saves."""


def triples(e: Ensemble, numbered: Exits, alone: Array | None = None) -> tuple[Array, Array]:
    """The upper nodes of `e`, and where those of each tree begin, both int64.

    Of tree t, entries starts[2t] to starts[2t + 1] are triples: a node, its left and its right
    child, or NONE; those to starts[2t + 2] are single nodes. Parents come before children. The
    nodes of the trees `alone`, bool (T,), are all single.
    """
    node, sizes = numbered.node, np.diff(numbered.starts)
    tree = np.repeat(np.arange(e.trees), sizes)
    single = sizes <= FEW
    if alone is not None:
        single |= alone
    upper = np.zeros(e.nodes + 1, bool)  # the entry after the last node serves all leaves
    upper[node] = True

    def child(of: Array) -> Array:
        below = np.maximum(of[node].astype(np.int64), NONE)
        return np.where(upper[below], below, NONE)

    left, right = child(e.left), child(e.right)
    first = e.depths()[node] % 2 == 0
    apart = single[tree]
    three = first & ((left != NONE) | (right != NONE)) & ~apart
    one = (first & ~three) | apart
    listed = np.concatenate([np.stack([node, left, right], 1)[three].ravel(), node[one]])
    kind = np.concatenate([np.repeat(2 * tree[three], 3), 2 * tree[one] + 1])
    order = np.argsort(kind, kind="stable")
    return listed[order], np.searchsorted(kind[order], np.arange(2 * e.trees + 1))


VECTORS = 8
"""Vectors of cursors that a walk carries: half of the registers of the smaller processors."""

BLOCK_BYTES = VECTORS * VECTOR_BYTES
"""Bytes of cursors in a block: as many rows with bins of one byte, half as many with two."""

_SHUFFLES = has("avx512bw")


class _Block:
    """What a builder needs to look at a block of rows: vectors of numbers of so many bits."""

    def __init__(self, builder: Any, bits: int, columns: Any) -> None:
        self.builder, self.bits, self.columns = builder, bits, columns
        self.lanes = VECTOR_BYTES * 8 // bits
        self.vector = ir.VectorType(ir.IntType(bits), self.lanes)

    def everywhere(self, array: Any, at: Any) -> Any:
        """The number array[at] in all lanes."""
        builder = self.builder
        one = builder.load(builder.gep(array, [at]))
        nothing = ir.Constant(self.vector, ir.Undefined)
        lane = builder.insert_element(nothing, one, ir.Constant(ir.IntType(32), 0))
        zeros = ir.Constant(ir.VectorType(ir.IntType(32), self.lanes), [0] * self.lanes)
        return builder.shuffle_vector(lane, nothing, zeros)

    def place(self, array: Any, k: int) -> Any:
        """Where vector k of an array lies."""
        at = self.builder.gep(array, [ir.Constant(ir.IntType(64), k * self.lanes)])
        return self.builder.bitcast(at, self.vector.as_pointer())

    def column(self, offsets: Any, node: Any) -> Any:
        """Where the bins that a node looks at lie."""
        builder = self.builder
        start = builder.load(builder.gep(offsets, [node]))
        return builder.gep(self.columns, [builder.zext(start, ir.IntType(64))])

    def bins(self, column: Any, k: int) -> Any:
        """Vector k of a column."""
        return self.builder.load(self.place(column, k), align=1)

    def below(self, column: Any, k: int, rank: Any, flipped: Any, step: Any) -> Any:
        """`step` where the bin is below `rank`, whose complement is `flipped`, else 0."""
        builder, held = self.builder, self.bins(column, k)
        if self.bits == 8 and _SHUFFLES:
            means = self._call("llvm.x86.avx512.pavg.b.512", held, flipped)
            return self._call("llvm.x86.avx512.pshuf.b.512", step, means)
        zero = ir.Constant(self.vector, [0] * self.lanes)
        if self.bits == 16 and _SHUFFLES:
            means = self._call("llvm.x86.avx512.pavg.w.512", held, flipped)
            sign = builder.ashr(means, ir.Constant(self.vector, [15] * self.lanes))
            return builder.and_(builder.not_(sign), step)
        return builder.select(builder.icmp_unsigned("<", held, rank), step, zero)

    def _call(self, name: str, *arguments: Any) -> Any:
        function = self.builder.module.globals.get(name) or ir.Function(
            self.builder.module, ir.FunctionType(self.vector, [self.vector] * 2), name
        )
        return self.builder.call(function, arguments)


class _Loop:
    """A loop over nodes that hands the cursors on from one to the next, `size` nodes at a time."""

    def __init__(self, block: _Block, first: Any, end: Any, size: int, cursors: list[Any]) -> None:
        builder, long = block.builder, ir.IntType(64)
        self._builder, self._size, entry = builder, size, builder.block
        self._head, body, self._done = (
            builder.append_basic_block(n) for n in ("head", "node", "done")
        )
        builder.branch(self._head)
        builder.position_at_end(self._head)
        self.node = builder.phi(long)
        self.node.add_incoming(first, entry)
        self.cursors = [builder.phi(block.vector) for _ in cursors]
        for phi, cursor in zip(self.cursors, cursors, strict=True):
            phi.add_incoming(cursor, entry)
        builder.cbranch(builder.icmp_signed("<", self.node, end), body, self._done)
        builder.position_at_end(body)

    def go_on(self, moved: list[Any]) -> list[Any]:
        """With the cursors `moved` to the next nodes; what follows has those after the last."""
        builder = self._builder
        after = builder.add(self.node, ir.Constant(ir.IntType(64), self._size))
        self.node.add_incoming(after, builder.block)
        for phi, value in zip(self.cursors, moved, strict=True):
            phi.add_incoming(value, builder.block)
        builder.branch(self._head)
        builder.position_at_end(self._done)
        return self.cursors


def _walk(
    typing: Any,
    panel: Any,
    offset: Any,
    rank: Any,
    flipped: Any,
    last: Any,
    step: Any,
    begin: Any,
    singles: Any,
    end: Any,
    cursor: Any,
) -> Any:
    """Show triples of nodes from `begin`, single ones from `singles` to `end`, to a block of rows.

    Their cursors are written. panel (C * rows,), cursor (rows,) and, of the nodes, rank, flipped (~
    rank), last (one more than nodes) and step, of one unsigned dtype; offset uint32, where a node's
    column begins in the panel.
    """
    from numba import types  # only to compile

    arrays = (panel, offset, rank, flipped, last, step)
    counts = (types.int64, types.int64, types.int64)
    return types.void(*arrays, *counts, cursor), _generate_walk


def _generate_walk(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    def data(i: int) -> Any:
        return context.make_array(signature.args[i])(context, builder, arguments[i]).data

    offsets, ranks, flipped, lasts, steps, cursors = (data(i) for i in (1, 2, 3, 4, 5, 9))
    begin, singles, end = arguments[6:9]
    long = ir.IntType(64)
    block = _Block(builder, signature.args[0].dtype.bitwidth, data(0))
    none = ir.Constant(block.vector, [0] * block.lanes)
    some = builder.icmp_signed("<", begin, end)
    root = builder.select(some, block.everywhere(lasts, begin), none)
    at = [root] * VECTORS

    def moved(cursor: Any, here: Any, step: Any) -> Any:
        at_node = builder.icmp_unsigned("==", cursor, here)
        return builder.select(at_node, builder.add(cursor, step), cursor)

    def numbers(node: Any) -> tuple[Any, ...]:
        return (
            block.column(offsets, node),
            *(block.everywhere(array, node) for array in (ranks, flipped, steps)),
        )

    loop = _Loop(block, begin, singles, 3, at)
    node, left, right = (numbers(builder.add(loop.node, ir.Constant(long, k))) for k in range(3))
    here = block.everywhere(lasts, loop.node)
    column, rank, _, step = node
    after = []
    for k, cursor in enumerate(loop.cursors):
        to_left = builder.add(step, block.below(left[0], k, *left[1:]))
        to_right = block.below(right[0], k, *right[1:])
        goes_left = builder.icmp_unsigned("<", block.bins(column, k), rank)
        after.append(moved(cursor, here, builder.select(goes_left, to_left, to_right)))
    at = loop.go_on(after)

    loop = _Loop(block, singles, end, 1, at)
    column, rank, flip, step = numbers(loop.node)
    here = block.everywhere(lasts, loop.node)
    at = loop.go_on(
        [
            moved(cursor, here, block.below(column, k, rank, flip, step))
            for k, cursor in enumerate(loop.cursors)
        ]
    )
    for k, cursor in enumerate(at):
        builder.store(cursor, block.place(cursors, k), align=1)
    return context.get_dummy_value()


def _count(
    typing: Any,
    panel: Any,
    offset: Any,
    rank: Any,
    bit: Any,
    begin: Any,
    end: Any,
    cursor: Any,
) -> Any:
    """Show nodes `begin` to `end` to a block of rows: those of `rank` or more add `bit`.

    Arrays as those of `walk`; the cursors begin at 0.
    """
    from numba import types  # only to compile

    arrays = (panel, offset, rank, bit)
    signature = types.void(*arrays, types.int64, types.int64, cursor)
    return signature, _generate_count


def _generate_count(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    def data(i: int) -> Any:
        return context.make_array(signature.args[i])(context, builder, arguments[i]).data

    offsets, ranks, bits, cursors = (data(i) for i in (1, 2, 3, 6))
    block = _Block(builder, signature.args[0].dtype.bitwidth, data(0))
    none = ir.Constant(block.vector, [0] * block.lanes)
    loop = _Loop(block, arguments[4], arguments[5], 1, [none] * VECTORS)
    column = block.column(offsets, loop.node)
    rank, bit = block.everywhere(ranks, loop.node), block.everywhere(bits, loop.node)
    after = []
    for k, cursor in enumerate(loop.cursors):
        yes = builder.icmp_unsigned(">=", block.bins(column, k), rank)
        after.append(builder.select(yes, builder.or_(cursor, bit), cursor))
    for k, cursor in enumerate(loop.go_on(after)):
        builder.store(cursor, block.place(cursors, k), align=1)
    return context.get_dummy_value()


walk: Any = intrinsic(_walk)
count: Any = intrinsic(_count)


@helper
def leave(panel: Any, nodes: Any, tree: Any, cursor: Any) -> None:
    """The exits of a block of rows from tree `tree`: their cursors; see `_walk`."""
    offset, rank, flipped, last, step, starts = nodes
    begin, singles, end = starts[2 * tree], starts[2 * tree + 1], starts[2 * tree + 2]
    walk(panel, offset, rank, flipped, last, step, begin, singles, end, cursor)
