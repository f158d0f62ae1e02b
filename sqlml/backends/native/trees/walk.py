"""`walk` and `count`: test a block of rows at nodes, with cursors in vector registers.

numba cannot keep an array in registers during a loop, so these loops are written in LLVM IR, which
has vectors for every processor.

Processors with AVX-512 compare bytes into mask registers, at most at half the rate of plain
arithmetic. In the average of a bin and the complement of a rank, (bin + 255 - rank + 1) / 2, the
highest bit is set unless the bin is below the rank, and a byte shuffle turns such a byte into 0. So
two plain instructions compute `step` if the bin is below the rank, otherwise 0. Bins of two bytes
need three instructions. A node and 64 rows in the cache took 1.72 cycles with comparisons, 1.21
with averages, and 0.81 with averages in triples (Zen 5).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from llvmlite import ir

from sqlml.backends.native.jit.call_wrapper import (
    LONG,
    broadcast,
    declare_function,
    get_item_pointers,
    get_pointers,
    long,
    vector_pointer,
)
from sqlml.backends.native.jit.helpers import inlined_helper, intrinsic
from sqlml.backends.native.jit.processor_levels import VECTOR_BYTES, has_feature
from sqlml.ir.trees import Ensemble
from sqlml.types import Array


@dataclass(frozen=True, slots=True, eq=False)
class Exits:
    """The upper parts of T trees, with U inner nodes and E exits; all arrays are int64.

    An exit is a leaf, or the root of a subtree below the cut. Exits are numbered from left to
    right, tree by tree.
    """

    first: Array  # (T + 1,), the first exit of each tree.
    exit: Array  # (E,), the inner node at which an exit arrives, or ~leaf.
    node: Array  # (U,), inner nodes of the Ensemble, tree by tree and parents before children.
    starts: Array  # (T + 1,), where the nodes of each tree begin in `node`.
    # Exits below each inner node, (U,), counted from the first exit of the tree.
    lo: Array  # The leftmost exit.
    mid: Array  # The leftmost exit below the right child.
    last: Array  # The rightmost exit.


def number_exits(ensemble: Ensemble, cuts: Array | None = None) -> Exits:
    """Number the exits of `ensemble`; tree t is cut at depth cuts[t] (default: no cut)."""
    left, right, roots = (
        array.astype(np.int64) for array in (ensemble.left, ensemble.right, ensemble.roots)
    )
    depths, tree_of_node = ensemble.depths(), ensemble.node_roots()
    # The entry after the last node serves all leaves, whose numbers are negative.
    is_upper = np.append(
        np.ones(ensemble.nodes, bool) if cuts is None else depths < cuts[tree_of_node], False
    )
    exit_counts = np.ones(ensemble.nodes + 1, np.int64)
    by_depth = np.argsort(depths, kind="stable")
    by_depth = by_depth[is_upper[by_depth]]
    levels = np.split(by_depth, np.flatnonzero(np.diff(depths[by_depth])) + 1)

    def count_exits(children: Array) -> Array:
        return exit_counts[np.maximum(children, -1)]

    for level in reversed(levels):
        exit_counts[level] = count_exits(left[level]) + count_exits(right[level])
    tree_starts = np.cumsum([0, *count_exits(roots)], dtype=np.int64)
    first_exits = np.zeros(ensemble.nodes, np.int64)
    exit_nodes = np.zeros(int(tree_starts[-1]), np.int64)

    def place_children(children: Array, positions: Array) -> None:
        is_inner = is_upper[np.maximum(children, -1)]
        first_exits[children[is_inner]] = positions[is_inner]
        exit_nodes[positions[~is_inner]] = children[~is_inner]

    place_children(roots, tree_starts[:-1])
    middle_exits = np.zeros(ensemble.nodes, np.int64)
    for level in levels:
        middle_exits[level] = first_exits[level] + count_exits(left[level])
        place_children(left[level], first_exits[level])
        place_children(right[level], middle_exits[level])
    upper_nodes = np.flatnonzero(is_upper[:-1])
    offsets = tree_starts[tree_of_node[upper_nodes]]
    return Exits(
        first=tree_starts,
        exit=exit_nodes,
        node=upper_nodes,
        starts=np.searchsorted(tree_of_node[upper_nodes], np.arange(ensemble.trees + 1)),
        lo=first_exits[upper_nodes] - offsets,
        mid=middle_exits[upper_nodes] - offsets,
        last=first_exits[upper_nodes] + exit_counts[upper_nodes] - 1 - offsets,
    )


# A triple is a node and the two children, one of which may be missing. The three nodes are tested
# together, so that the rows at the node are found once. From the root down, two levels of a tree at
# a time become triples. Nodes without inner children and the nodes of a small tree remain single.

NONE = -1
"""Marks a missing child, which is an exit and not an upper node."""

MAX_SINGLE_NODES = 4
"""Trees with up to this many nodes have no triples, since a second loop would take longer."""


def order_triples(
    ensemble: Ensemble, exits: Exits, single_trees: Array | None = None
) -> tuple[Array, Array]:
    """Return the upper nodes of `ensemble` in the order of `walk`, and the offsets `starts`.

    For tree t, the nodes from starts[2t] up to starts[2t + 1] are triples: a node, the left child
    and the right child; a missing child is NONE. The nodes up to starts[2t + 2] are single. Parents
    come before children. Both arrays are int64. `single_trees`, bool (T,), marks trees whose nodes
    are all single.
    """
    upper, sizes = exits.node, np.diff(exits.starts)
    trees = np.repeat(np.arange(ensemble.trees), sizes)
    is_single_tree = sizes <= MAX_SINGLE_NODES
    if single_trees is not None:
        is_single_tree |= single_trees
    # The entry after the last node serves all leaves.
    is_upper = np.zeros(ensemble.nodes + 1, bool)
    is_upper[upper] = True

    def find_upper_children(children: Array) -> Array:
        child_nodes = np.maximum(children[upper].astype(np.int64), NONE)
        return np.where(is_upper[child_nodes], child_nodes, NONE)

    left, right = find_upper_children(ensemble.left), find_upper_children(ensemble.right)
    is_at_even_depth = ensemble.depths()[upper] % 2 == 0
    is_alone = is_single_tree[trees]
    is_triple = is_at_even_depth & ((left != NONE) | (right != NONE)) & ~is_alone
    is_single = (is_at_even_depth & ~is_triple) | is_alone
    nodes = np.concatenate([np.stack([upper, left, right], 1)[is_triple].ravel(), upper[is_single]])
    groups = np.concatenate([np.repeat(2 * trees[is_triple], 3), 2 * trees[is_single] + 1])
    order = np.argsort(groups, kind="stable")
    return nodes[order], np.searchsorted(groups[order], np.arange(2 * ensemble.trees + 1))


VECTORS = 8
"""Vectors of cursors in a walk: half of the 16 registers of smaller processors."""

BLOCK_BYTES = 512
"""Bytes of cursors in a block. A cursor has one byte or, like the bins, two bytes.

The arrays of a model depend on it, so it is the same for all processors. A walk visits the nodes
once for each part of the block that fits into VECTORS vectors.
"""

_PART_BYTES = VECTORS * VECTOR_BYTES

_SHUFFLES = has_feature("avx512bw")

ROWS_STEP = 64
"""The rows of an incomplete block are rounded up to a multiple of this number."""


@inlined_helper
def count_block_rows(block: Any, remaining: Any) -> Any:
    """Return how many rows of `block`, an array of full size, to fill for the `remaining` rows."""
    return min(np.int64(block.size), (remaining + ROWS_STEP - 1) // ROWS_STEP * ROWS_STEP)


class _BlockEmitter:
    """Emits LLVM IR for a block of rows, as vectors of integers with `bits` bits."""

    def __init__(self, builder: Any, bits: int, columns: Any) -> None:
        self.builder, self.bits, self.columns = builder, bits, columns
        self.lanes = VECTOR_BYTES * 8 // bits
        self.vector = ir.VectorType(ir.IntType(bits), self.lanes)

    def broadcast_item(self, array: Any, index: Any) -> Any:
        number = self.builder.load(self.builder.gep(array, [index]))
        return broadcast(self.builder, number, self.vector)

    def vector_pointer(self, array: Any, k: int) -> Any:
        return vector_pointer(self.builder, array, long(k * self.lanes), self.vector)

    def column_pointer(self, offsets: Any, node: Any) -> Any:
        builder = self.builder
        start = builder.load(builder.gep(offsets, [node]))
        return builder.gep(self.columns, [builder.zext(start, LONG)])

    def load_bins(self, column: Any, k: int, low: Any) -> Any:
        """Emit the bins of part k of `column`, less `low` unless it is None."""
        bins = self.builder.load(self.vector_pointer(column, k), align=1)
        return bins if low is None else self.builder.sub(bins, low)

    def select_below(
        self, column: Any, k: int, low: Any, rank: Any, flipped: Any, step: Any
    ) -> Any:
        """Emit `step` in lanes whose bin less `low` is below `rank`, otherwise 0.

        `flipped` is ~rank.
        """
        builder, bins = self.builder, self.load_bins(column, k, low)
        if self.bits == 8 and _SHUFFLES:
            means = self._call("llvm.x86.avx512.pavg.b.512", bins, flipped)
            return self._call("llvm.x86.avx512.pshuf.b.512", step, means)
        zero = ir.Constant(self.vector, [0] * self.lanes)
        if self.bits == 16 and _SHUFFLES:
            means = self._call("llvm.x86.avx512.pavg.w.512", bins, flipped)
            sign = builder.ashr(means, ir.Constant(self.vector, [15] * self.lanes))
            return builder.and_(builder.not_(sign), step)
        return builder.select(builder.icmp_unsigned("<", bins, rank), step, zero)

    def _call(self, name: str, *arguments: Any) -> Any:
        function = declare_function(self.builder.module, name, self.vector, *arguments)
        return self.builder.call(function, arguments)


class _NodeLoop:
    """Emits a loop over nodes, `size` at a time, with cursors as loop variables."""

    def __init__(
        self, block: _BlockEmitter, first: Any, end: Any, size: int, cursors: list[Any]
    ) -> None:
        builder = block.builder
        self._builder, self._size, entry_block = builder, size, builder.block
        blocks = map(builder.append_basic_block, ("head", "node", "done"))
        self._head, body, self._done = blocks
        builder.branch(self._head)
        builder.position_at_end(self._head)
        self.node = builder.phi(LONG)
        self.node.add_incoming(first, entry_block)
        self.cursors = [builder.phi(block.vector) for _ in cursors]
        for phi, cursor in zip(self.cursors, cursors, strict=True):
            phi.add_incoming(cursor, entry_block)
        builder.cbranch(builder.icmp_signed("<", self.node, end), body, self._done)
        builder.position_at_end(body)

    def close(self, moved_cursors: list[Any]) -> list[Any]:
        """End the loop body with `moved_cursors`; return the cursors after the last node."""
        builder = self._builder
        next_node = builder.add(self.node, long(self._size))
        self.node.add_incoming(next_node, builder.block)
        for phi, value in zip(self.cursors, moved_cursors, strict=True):
            phi.add_incoming(value, builder.block)
        builder.branch(self._head)
        builder.position_at_end(self._done)
        return self.cursors


@intrinsic
def walk(
    typing: Any,
    panel: Any,
    nodes: Any,
    sets: Any,
    begin: Any,
    singles: Any,
    end: Any,
    cursor: Any,
    rows: Any,
) -> Any:
    """Emit a walk over triples of nodes from `begin`, and single nodes from `singles` to `end`.

    The walk writes to `cursor` the exit of each of the first `rows` rows. panel, of the size
    C * block, and `cursor` (block,) have the same unsigned dtype. `nodes` is a tuple of arrays:
    offset (uint32, where a node's column begins in the panel); rank, flipped (~rank), last (with
    one more entry) and step, of the panel's dtype; starts, which is not read; and low, of the
    panel's dtype. A row goes left if its bin less `low` is below `rank`. If `sets` is None, `low`
    is 0 and not read.
    """
    from numba import types  # Importing numba is slow.

    counts = (types.int64, types.int64, types.int64)
    return types.void(panel, nodes, sets, *counts, cursor, types.int64), _generate_walk


def _generate_walk(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    panel, cursors = get_pointers(context, builder, signature, arguments, 0, 6)
    nodes = _get_node_pointers(context, builder, signature, arguments)
    bits = signature.args[0].dtype.bitwidth

    def walk_part(first_row: Any, vectors: int) -> None:
        part = builder.gep(panel, [first_row]), builder.gep(cursors, [first_row])
        _walk_part(builder, bits, part, nodes, arguments[3:6], vectors)

    _emit_parts(builder, bits, arguments[7], walk_part)
    return context.get_dummy_value()


def _get_node_pointers(context: Any, builder: Any, signature: Any, arguments: Any) -> list[Any]:
    """Return the pointers of the arrays `nodes`, without starts; that of `low` may be None."""
    from numba import types

    *pointers, _, lows = get_item_pointers(context, builder, signature, arguments, 1)
    return [*pointers, None if isinstance(signature.args[2], types.NoneType) else lows]


def _emit_parts(builder: Any, bits: int, rows: Any, emit: Callable[[Any, int], None]) -> None:
    """Emit the parts of a block of which the first `rows` rows are used.

    `emit` takes the first row of a part and the number of its vectors, which have cursors of `bits`
    bits. A part with few used rows has a quarter or half of the vectors.
    """

    def emit_smallest(first_row: Any, remaining: Any, vectors: int) -> None:
        if vectors < VECTORS:
            fits = builder.icmp_signed("<=", remaining, long(vectors * VECTOR_BYTES * 8 // bits))
            with builder.if_else(fits) as (then, otherwise):
                with then:
                    emit(first_row, vectors)
                with otherwise:
                    emit_smallest(first_row, remaining, 2 * vectors)
        else:
            emit(first_row, vectors)

    for start in range(0, BLOCK_BYTES, _PART_BYTES):
        first_row = long(8 * start // bits)
        remaining = builder.sub(rows, first_row)
        with builder.if_then(builder.icmp_signed(">", remaining, long(0))):
            emit_smallest(first_row, remaining, VECTORS // 4)


def _walk_part(
    builder: Any, bits: int, part: tuple[Any, Any], nodes: Any, bounds: Any, vectors: int
) -> None:
    panel, cursors = part
    offsets, ranks, flipped, lasts, steps, lows = nodes
    first_triple, first_single, end = bounds
    block = _BlockEmitter(builder, bits, panel)
    zeros = ir.Constant(block.vector, [0] * block.lanes)
    has_triples = builder.icmp_signed("<", first_triple, end)
    root = builder.select(has_triples, block.broadcast_item(lasts, first_triple), zeros)
    current_cursors = [root] * vectors

    def move(cursor: Any, last: Any, step: Any) -> Any:
        is_at_node = builder.icmp_unsigned("==", cursor, last)
        return builder.select(is_at_node, builder.add(cursor, step), cursor)

    def load_node(node: Any) -> tuple[Any, ...]:
        low = None if lows is None else block.broadcast_item(lows, node)
        numbers = (block.broadcast_item(array, node) for array in (ranks, flipped, steps))
        return (block.column_pointer(offsets, node), low, *numbers)

    loop = _NodeLoop(block, first_triple, first_single, 3, current_cursors)
    node, left, right = (load_node(builder.add(loop.node, long(k))) for k in range(3))
    last = block.broadcast_item(lasts, loop.node)
    column, low, rank, _, step = node
    moved_cursors = []
    for k, cursor in enumerate(loop.cursors):
        left_step = builder.add(step, block.select_below(left[0], k, *left[1:]))
        right_step = block.select_below(right[0], k, *right[1:])
        goes_left = builder.icmp_unsigned("<", block.load_bins(column, k, low), rank)
        moved_cursors.append(move(cursor, last, builder.select(goes_left, left_step, right_step)))
    current_cursors = loop.close(moved_cursors)

    loop = _NodeLoop(block, first_single, end, 1, current_cursors)
    column, *test = load_node(loop.node)
    last = block.broadcast_item(lasts, loop.node)
    moved_cursors = []
    for k, cursor in enumerate(loop.cursors):
        step_below = block.select_below(column, k, *test)
        moved_cursors.append(move(cursor, last, step_below))
    current_cursors = loop.close(moved_cursors)
    for k, cursor in enumerate(current_cursors):
        builder.store(cursor, block.vector_pointer(cursors, k), align=1)


@intrinsic
def count(
    typing: Any,
    panel: Any,
    nodes: Any,
    sets: Any,
    begin: Any,
    end: Any,
    cursor: Any,
    rows: Any,
) -> Any:
    """Emit tests at the nodes `begin` to `end` - 1 of an oblivious tree.

    If a row's bin less `low` is at least `rank`, the test sets the bits `step` in the row's cursor.
    The arguments are those of `walk`.
    """
    from numba import types  # Importing numba is slow.

    counts = (types.int64, types.int64)
    return types.void(panel, nodes, sets, *counts, cursor, types.int64), _generate_count


def _generate_count(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    panel, cursors = get_pointers(context, builder, signature, arguments, 0, 5)
    nodes = _get_node_pointers(context, builder, signature, arguments)
    bits = signature.args[0].dtype.bitwidth

    def count_part(first_row: Any, vectors: int) -> None:
        part = builder.gep(panel, [first_row]), builder.gep(cursors, [first_row])
        _count_part(builder, bits, part, nodes, arguments[3:5], vectors)

    _emit_parts(builder, bits, arguments[6], count_part)
    return context.get_dummy_value()


def _count_part(
    builder: Any, bits: int, part: tuple[Any, Any], nodes: Any, bounds: Any, vectors: int
) -> None:
    panel, cursors = part
    offsets, ranks, _, _, steps, lows = nodes
    block = _BlockEmitter(builder, bits, panel)
    zeros = ir.Constant(block.vector, [0] * block.lanes)
    begin, end = bounds
    loop = _NodeLoop(block, begin, end, 1, [zeros] * vectors)
    column = block.column_pointer(offsets, loop.node)
    rank, bit = block.broadcast_item(ranks, loop.node), block.broadcast_item(steps, loop.node)
    low = None if lows is None else block.broadcast_item(lows, loop.node)
    moved_cursors = []
    for k, cursor in enumerate(loop.cursors):
        is_above = builder.icmp_unsigned(">=", block.load_bins(column, k, low), rank)
        moved_cursors.append(builder.select(is_above, builder.or_(cursor, bit), cursor))
    for k, cursor in enumerate(loop.close(moved_cursors)):
        builder.store(cursor, block.vector_pointer(cursors, k), align=1)


@inlined_helper
def find_exits(panel: Any, nodes: Any, sets: Any, tree: Any, cursor: Any, rows: Any) -> None:
    """Write the exits at which the first `rows` rows of a block leave `tree`; see `walk`."""
    starts = nodes[5]
    first, singles, end = starts[2 * tree], starts[2 * tree + 1], starts[2 * tree + 2]
    walk(panel, nodes, sets, first, singles, end, cursor, rows)
