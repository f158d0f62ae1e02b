"""The lockstep kernel: rows descend trees side by side, with the original float tests.

A step must wait for the node that the previous step loads, so a single row in a single tree leaves
the processor idle. Here many pairs of a row and a tree take turns, so that their loads overlap. The
pairs may be one row in hundreds of trees, or hundreds of rows in one tree. Nothing is prepared per
batch. This suits few rows, and trees with so many thresholds that searching the thresholds takes
longer than the descent.

A node is a record of 8 bytes for float32, otherwise of 16 bytes: the threshold of a `<=` test, and
a link. The high bits of the link are the column. The low bits are the distance to the right child,
which follows the left child. A leaf has distance 0 and threshold NaN. No number is <= NaN, so no
step needs a branch. The payload of the NaN is the leaf's number in the tree.

Few rows descend the trees of a window in order of depth, the deepest first. So the pairs that may
still move come first at every level. Many rows descend one tree block by block, while the next tree
is prefetched. A second-level cache holds these blocks, so each tree is read less often from memory.
For low trees, the upper levels are evaluated for a block of rows at once. Below LEVELS levels,
pairs that have arrived are dropped. If NaN may go left, rows are first checked for NaN, and rows
without NaN skip the NaN test.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir

from sqlml.backends.costs import LANES, TOP, TURNED_COLUMNS
from sqlml.backends.native.jit.call_wrapper import broadcast, get_pointers, vector_pointer
from sqlml.backends.native.jit.helpers import intrinsic
from sqlml.backends.native.jit.processor_levels import LINE_BYTES
from sqlml.backends.native.jit.specialise import inlined_helper
from sqlml.backends.native.vm.register_machine import SIDE, fetch, transpose
from sqlml.types import Array

# The upper levels of a tree, evaluated for 64 rows at a time: `pass_top_levels`.
#
# At the first levels, all rows test the same few columns. So a block of rows is transposed
# (`transpose_rows`). A node is compared with 64 adjacent numbers, and the results are the bits of a
# word. The 15 words of the first four levels are combined into the position of each row.

NODES, EXITS = (1 << TOP) - 1, 1 << TOP

_U = np.uint64


def make_top_levels(
    roots: Array, column: Array, threshold: Array, right: Array
) -> tuple[Array, Array, Array]:
    """Return the upper levels of trees for `pass_top_levels`.

    Args:
        roots: int64 (trees,), positions of the roots.
        column, threshold: (positions,), the tests.
        right: int64 (positions,), the position of the right child, which follows the left child;
            for a leaf, the position of the leaf.

    Returns three arrays: where the column of each node begins in a transposed block, uint32
    (trees * NODES,), level by level; the thresholds of these nodes, NaN below a leaf; and the
    positions where rows continue, uint32 (trees * EXITS,).
    """
    columns = np.zeros((roots.size, NODES), np.uint32)
    thresholds = np.full((roots.size, NODES), np.nan, threshold.dtype)
    positions = roots.reshape(-1, 1)
    for level in range(TOP):
        nodes_of_level = slice((1 << level) - 1, (2 << level) - 1)
        is_inner = right[positions] != positions
        columns[:, nodes_of_level] = np.where(is_inner, column[positions] * LANES, 0)
        thresholds[:, nodes_of_level] = np.where(is_inner, threshold[positions], np.nan)
        children = np.stack([right[positions] - is_inner, right[positions]], axis=2)
        positions = children.reshape(roots.size, 2 << level)
    return columns.ravel(), thresholds.ravel(), positions.astype(np.uint32).ravel()


@inlined_helper
def transpose_rows(flat: Any, first_row: Any, stride: Any, rows: Any, transposed: Any) -> None:
    """Copy rows of `stride` numbers, from `first_row` on, to the columns of `transposed`."""
    square_rows = rows - rows % SIDE
    for r in range(0, square_rows, SIDE):
        begin = (first_row + r) * stride
        for c in range(0, stride - SIDE + 1, SIDE):
            transpose(flat, _U(begin + c), _U(stride), transposed, _U(c * LANES + r), _U(LANES))
        for c in range(stride - stride % SIDE, stride):
            for i in range(SIDE):
                transposed[_U(c * LANES + r + i)] = flat[_U(begin + i * stride + c)]
    for r in range(square_rows, rows):
        for c in range(stride):
            transposed[_U(c * LANES + r)] = flat[_U((first_row + r) * stride + c)]


@inlined_helper
def pass_top_levels(transposed: Any, tops: Any, tree: Any, scratch: Any, positions: Any) -> None:
    """Write where each row of a transposed block leaves the top of `tree` to `positions` (LANES,).

    `tops` is the result of `make_top_levels`; `scratch` is uint64 (NODES,) and int32 (LANES,).
    """
    columns, thresholds, exits = tops
    words, exit_index = scratch
    first_node = _U(tree * NODES)
    for k in range(_U(NODES)):
        words[k] = _above(transposed, _U(columns[first_node + k]), thresholds[first_node + k])
    # The bits of a, b, c and d tell which rows go right at the first four levels.
    a = words[0]
    b = _select_bits(a, words[1], words[2])
    c = _select_bits(b, _select_bits(a, words[3], words[5]), _select_bits(a, words[4], words[6]))
    left, right = _select_bits(a, words[7], words[11]), _select_bits(a, words[9], words[13])
    left_2, right_2 = _select_bits(a, words[8], words[12]), _select_bits(a, words[10], words[14])
    d = _select_bits(c, _select_bits(b, left, right), _select_bits(b, left_2, right_2))
    _spread(d, c, b, a, exit_index)
    for r in range(_U(LANES)):
        positions[r] = exits[_U(tree * EXITS) + _U(exit_index[r])]


@inlined_helper
def _select_bits(where: Any, left: Any, right: Any) -> Any:
    return (where & right) | (~where & left)


@intrinsic
def _above(typing: Any, numbers: Any, begin: Any, threshold: Any) -> Any:
    """Emit an integer whose bit r is set unless numbers[begin + r] <= threshold, for r < LANES."""
    from numba import types  # Importing numba is slow.

    return types.uint64(numbers, types.uint64, numbers.dtype), _generate_above


def _generate_above(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    dtype, (_, begin, threshold) = signature.args[0].dtype, arguments
    vector = ir.VectorType(context.get_data_type(dtype), LANES)
    (data,) = get_pointers(context, builder, signature, arguments, 0)
    numbers = builder.load(vector_pointer(builder, data, begin, vector), align=dtype.bitwidth // 8)
    is_above = builder.fcmp_unordered(">", numbers, broadcast(builder, threshold, vector))
    return builder.bitcast(is_above, ir.IntType(LANES))


@intrinsic
def _spread(typing: Any, a: Any, b: Any, c: Any, d: Any, target: Any) -> Any:
    """Emit code that sets target[r], for r < LANES, to bit r of a, b, c and d; a is the low bit."""
    from numba import types

    words = [types.uint64] * TOP
    return types.void(*words, target), _generate_spread


def _generate_spread(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    vector = ir.VectorType(ir.IntType(32), LANES)
    total = ir.Constant(vector, [0] * LANES)
    for shift, word in enumerate(arguments[:TOP]):
        bits = builder.zext(builder.bitcast(word, ir.VectorType(ir.IntType(1), LANES)), vector)
        total = builder.or_(total, builder.shl(bits, ir.Constant(vector, [shift] * LANES)))
    (data,) = get_pointers(context, builder, signature, arguments, TOP)
    builder.store(total, builder.bitcast(data, vector.as_pointer()), align=4)
    return context.get_dummy_value()


PAIRS = 256
"""Pairs of a row and a tree that descend together."""

WINDOW, FEW_ROWS = 256, 64
"""Trees of a window, which descend in order of depth, and the most rows that descend windows."""

ROW_NUMBERS = 1 << 16
"""The most numbers in rows that descend together, to stay in the L1 or L2 cache."""

PAYLOAD, LONG_PAYLOAD = 22, 51
"""Bits that can hold a leaf's number in a quiet NaN of 32 and of 64 bits."""

LEVELS, LOOKS = 12, 4
"""Upper levels where no pairs are dropped, and levels between two checks below them."""

PASS_NUMBERS = 1 << 17
"""Numbers in the rows that descend one tree before the next tree. These rows fill a quarter of a
usual second-level cache, which also holds a tree of 10,000 nodes and the next tree."""

ANY, FINITE, FINITE_OR_NAN = 0, 1, 2
"""The numbers that rows may contain: any numbers, finite numbers, or finite numbers and NaN."""


@inlined_helper
def _descend_level(
    rows: Any,
    nodes: Any,
    bits: Any,
    left: Any,
    sets: Any,
    has_nan: Any,
    state: Any,
    begin: Any,
    count: Any,
) -> None:
    """Move each of the first `count` positions in `state` to a child.

    begin[i] is the index in `rows` where the row of state[i] begins. The other arguments are those
    of `score`. The arguments are not tuples, because unpacking tuples makes one row 40% slower.
    """
    distance = nodes.link.dtype.type((1 << bits) - 1)
    shift = nodes.link.dtype.type(bits)
    if sets is None:
        if not has_nan:
            for i in range(count):
                position = state[i]
                node = nodes[_U(position)]
                goes_left = rows[_U(begin[i]) + _U(node.link >> shift)] <= node.threshold
                right = position + np.uint32(node.link & distance)
                state[i] = np.uint32(right - np.uint32(goes_left))
        else:
            for i in range(count):
                position = state[i]
                node = nodes[_U(position)]
                value = rows[_U(begin[i]) + _U(node.link >> shift)]
                is_nan_left = (value != value) & (left[_U(position)] != 0)
                goes_left = (value <= node.threshold) | is_nan_left
                right = position + np.uint32(node.link & distance)
                state[i] = np.uint32(right - np.uint32(goes_left))
    else:
        for i in range(count):
            position = state[i]
            node = nodes[_U(position)]
            test = _U(node.link >> shift)
            value = rows[_U(begin[i]) + (test >> _U(1))]
            goes_left = (value <= node.threshold) | ((value != value) & (left[_U(position)] != 0))
            if test & _U(1):
                first_word, size, words = sets
                if value >= 0 and value < size[_U(position)]:
                    code = np.uint32(value)
                    word = words[first_word[_U(position)] + code // np.uint32(32)]
                    goes_left = (word >> (code % np.uint32(32))) & np.uint32(1) != 0
            state[i] = np.uint32(position + np.uint32(node.link & distance) - np.uint32(goes_left))


@inlined_helper
def _descend_to_leaves(
    rows: Any,
    nodes: Any,
    bits: Any,
    left: Any,
    sets: Any,
    has_nan: Any,
    state: Any,
    begin: Any,
    count: Any,
    scratch: Any,
) -> None:
    """Move each of the first `count` positions in `state` down to a leaf.

    Every LOOKS levels, positions that have reached a leaf are dropped. `scratch` is three times as
    long as `state`. The other arguments are those of `_descend_level`.
    """
    distance = nodes.link.dtype.type((1 << bits) - 1)
    size = scratch.size // 3
    moving, index, begins = scratch[:size], scratch[size : 2 * size], scratch[2 * size :]
    for i in range(count):
        moving[i], begins[i], index[i] = state[i], begin[i], i
    while count > 0:
        remaining = _U(0)
        for i in range(count):
            position, row_begin, pair = moving[i], begins[i], index[i]
            state[_U(pair)] = position
            moving[remaining], begins[remaining], index[remaining] = position, row_begin, pair
            remaining += _U((nodes[_U(position)].link & distance) != 0)
        count = remaining
        for _ in range(LOOKS):
            _descend_level(rows, nodes, bits, left, sets, has_nan, moving, begins, count)


@inlined_helper
def _score_transposed(
    rows: Any, tops: Any, trees: Any, nodes: Any, bits: Any, leaves: Any, out: Any
) -> None:
    """Add the leaf values of rows to `out`, in transposed blocks of LANES rows.

    The rows may contain NaN only if no test sends NaN left. `rows` is a tuple: `flat`, the first
    row, the number of rows, the stride, and scratch space for transposed blocks. `leaves` is a
    tuple of `leaf`, `target` and `values`. The other arguments are those of `score`.
    """
    flat, pass_start, row_count, stride, transposed = rows
    leaf, target, values = leaves
    mask, words_per_node = _leaf_number_mask(leaf), _U(nodes.itemsize // leaf.itemsize)
    blocks = (row_count + LANES - 1) // LANES
    block_size = stride * LANES
    for b in range(blocks):
        n_rows = min(LANES, row_count - b * LANES)
        transpose_rows(flat, pass_start + b * LANES, stride, n_rows, transposed[b * block_size :])
    scratch = (np.empty(NODES, np.uint64), np.empty(LANES, np.int32))
    state = np.empty(LANES, np.uint32)
    distance, shift = nodes.link.dtype.type((1 << bits) - 1), nodes.link.dtype.type(bits)
    for tree in range(trees.shape[0]):
        depth = trees[tree - tree % WINDOW + trees[tree, 2], 1]
        first_leaf, first_output = _U(trees[tree, 3]), target[tree]
        for b in range(blocks):
            next_tree = min(tree + 1, trees.shape[0] - 1)
            _fetch_tree(trees, next_tree, nodes, values, b, blocks, LANES)
            block = transposed[b * block_size :]
            pass_top_levels(block, tops, tree, scratch, state)
            for _ in range(TOP, depth):
                for r in range(_U(LANES)):
                    position = state[r]
                    node = nodes[_U(position)]
                    goes_left = block[_U(node.link >> shift) * _U(LANES) + r] <= node.threshold
                    right = position + np.uint32(node.link & distance)
                    state[r] = np.uint32(right - np.uint32(goes_left))
            start = pass_start + b * LANES
            for r in range(min(LANES, row_count - b * LANES)):
                leaf_number = leaf[_U(state[r]) * words_per_node] & mask
                for k in range(values.shape[1]):
                    out[start + r, first_output + k] += values[first_leaf + _U(leaf_number), _U(k)]


@inlined_helper
def _fetch_tree(
    trees: Any, t: Any, nodes: Any, values: Any, block: Any, blocks: Any, rows: Any
) -> None:
    """Prefetch part `block` of tree t: its nodes and values, each split into `blocks` parts.

    `rows` is the number of rows of a block. They read at most as many leaves, so more lines of
    values are not prefetched.
    """
    line_nodes = LINE_BYTES // nodes.itemsize
    root, lines = trees[t - t % WINDOW + trees[t, 2], 0], trees[t, 4] // (blocks * line_nodes) + 1
    for line in range(block * lines, (block + 1) * lines):
        fetch(nodes, _U(root + line * line_nodes))
    # Half of the positions are leaves.
    line_values, outputs = LINE_BYTES // values.itemsize, values.shape[1]
    first_value = trees[t, 3] * outputs
    value_lines = trees[t, 4] * outputs // (2 * blocks * line_values) + 1
    if value_lines > rows:
        return
    for line in range(block * value_lines, (block + 1) * value_lines):
        fetch(values, _U(first_value + line * line_values))


@inlined_helper
def _leaf_number_mask(leaf: Any) -> Any:
    """Return a mask of the bits in a leaf's threshold that hold the leaf's number."""
    payload = PAYLOAD if leaf.itemsize == 4 else LONG_PAYLOAD
    return leaf.dtype.type((_U(1) << _U(payload)) - _U(1))


@inlined_helper
def _count_special(flat: Any, begin: Any, end: Any) -> Any:
    """Return how many numbers in flat[begin:end] are infinite, and how many are NaN."""
    non_finite_count, nan_count = 0, 0
    for i in range(_U(begin), _U(end)):
        non_finite_count += 1 if flat[i] * 0 != 0 else 0
    if non_finite_count > 0:
        for i in range(_U(begin), _U(end)):
            nan_count += 1 if flat[i] != flat[i] else 0
    return non_finite_count - nan_count, nan_count


def score(
    flat: Any,
    tested: Any,
    stride: Any,
    allowed: Any,
    columns: Any,
    trees: Any,
    moving: Any,
    nodes: Any,
    bits: Any,
    leaf: Any,
    left: Any,
    sets: Any,
    tops: Any,
    target: Any,
    values: Any,
    base: Any,
    out: Any,
) -> Any:
    """Write base plus the exit leaves' values to out (n, K), added tree by tree in out's dtype.

    Returns -1 on success. If a number is not `allowed`, returns a row at or before the row with
    that number, and `out` is invalid. This is one long function with one argument per array, so
    that rows pass all trees of a window while the rows are in the cache.

    Args:
        flat: the rows, each `stride` numbers long.
        tested: `flat` if `columns` is None; otherwise an empty array of the dtype of the tests.
        allowed: ANY, FINITE or FINITE_OR_NAN.
        columns: None if column c of a test is column c of the rows. Otherwise two arrays, int64 and
            of the dtype of `tested`: column c of a test is column `columns[0][c]` of the rows. If
            `columns[1][c]` is a category, the test's number is 0 in rows with this category, NaN in
            rows with NaN, and otherwise 1. It is NaN for other columns.
        trees: uint32 (trees, 5). Row i has the root and depth of the i-th deepest tree of a window,
            followed by tree i's index in that order, first leaf, and number of positions.
        moving: uint32 (windows, LEVELS + 1), the number of trees of a window with nodes at a level.
        nodes: records (positions,), tree by tree; the last `bits` bits of a link are the distance
            to the right child.
        leaf: `nodes`, viewed as unsigned integers of a threshold's size.
        left: uint8 (positions,), whether NaN goes left; empty if no test sends NaN left and `sets`
            is None.
        sets: None, or three arrays: the first word of each node's set, the number of categories in
            each node's set, and the words. The lowest bit of a link's column then marks a set test.
        tops: None, or the result of `make_top_levels`.
        target: int64 (trees,), the output to which a tree's first value is added.
        values: (leaves, V), tree by tree.
    """
    n, tree_count, outputs = out.shape[0], trees.shape[0], values.shape[1]
    width = stride if columns is None else columns[0].size
    rows = max(1, min(n, PAIRS, ROW_NUMBERS // max(1, width)))
    window = max(1, min(tree_count, WINDOW)) if rows <= FEW_ROWS else 1
    group = min(window, max(1, PAIRS // rows))
    blocks = max(1, PASS_NUMBERS // max(1, rows * width)) if window == 1 else 1
    blocks = max(1, min(blocks, (n + rows - 1) // rows))
    tested_rows = np.empty(0 if columns is None else blocks * rows * width, tested.dtype)
    buffer = np.empty((window + 4 * group) * rows, np.uint32)
    state = buffer[: window * rows]
    begins = buffer[window * rows : (window + group) * rows]
    scratch = buffer[(window + group) * rows :]
    mask = _leaf_number_mask(leaf)
    words_per_node = _U(nodes.itemsize // leaf.itemsize)
    pass_rows = blocks * rows
    is_transposed = tops is not None and n >= LANES and stride <= tree_count * TURNED_COLUMNS
    if is_transposed:
        pass_rows = LANES * max(1, PASS_NUMBERS // (LANES * stride))
    transposed = np.zeros(pass_rows * stride if is_transposed else 0, flat.dtype)
    for pass_start in range(0, n, pass_rows):
        pass_count = min(pass_rows, n - pass_start)
        nan_count = 0
        if allowed != ANY or left.size > 0:
            pass_end = (pass_start + pass_count) * stride
            infinite, nan_count = _count_special(flat, pass_start * stride, pass_end)
            if allowed != ANY and infinite + (nan_count if allowed == FINITE else 0) > 0:
                return pass_start
        if columns is not None:
            source_columns, categories = columns
            for r in range(pass_count):
                for c in range(width):
                    value = tested.dtype.type(flat[(pass_start + r) * stride + source_columns[c]])
                    category = categories[c]
                    if category == category:
                        is_other = (value < category) | (value >= category + 1)
                        value = tested.dtype.type(is_other) if value == value else value
                    tested_rows[r * width + c] = value
        has_nan = nan_count > 0 and left.size > 0
        for r in range(pass_count):
            for k in range(base.size):
                out[pass_start + r, k] = base[k]
        if tops is not None:
            if is_transposed and not has_nan:
                row_block = (flat, pass_start, pass_count, stride, transposed)
                leaves = (leaf, target, values)
                _score_transposed(row_block, tops, trees, nodes, bits, leaves, out)
                continue
        for begin in range(0, tree_count, window):
            end = min(tree_count, begin + window)
            # A single tree is at its own position.
            tree_index = begin - begin % WINDOW + trees[begin, 2]
            for b in range((pass_count + rows - 1) // rows):
                start = pass_start + b * rows
                row_count = min(rows, n - start)
                if window == 1 and end < tree_count:
                    _fetch_tree(trees, end, nodes, values, b, blocks, rows)
                block = (
                    tested[start * stride :] if columns is None else tested_rows[b * rows * width :]
                )
                if row_count == 1:
                    begins[:] = np.uint32(0)
                else:
                    for i in range(0, group * row_count, row_count):
                        for r in range(row_count):
                            begins[_U(i + r)] = r * width
                for group_start in range(begin, end, group):
                    group_size = min(end, group_start + group) - group_start
                    from_tree = group_start if window > 1 else tree_index
                    states = state[(group_start - begin) * row_count :]
                    slot = _U(0)
                    for t in range(from_tree, from_tree + group_size):
                        root = trees[t, 0]
                        for _ in range(row_count):
                            states[slot] = root
                            slot += _U(1)
                    depth = trees[from_tree, 1]
                    for level in range(min(depth, LEVELS)):
                        moving_trees = moving[begin // WINDOW, level] - (group_start - begin)
                        moving_trees = min(moving_trees, group_size) if window > 1 else 1
                        pairs = _U(moving_trees * row_count)
                        _descend_level(
                            block, nodes, bits, left, sets, has_nan, states, begins, pairs
                        )
                    if depth > LEVELS:
                        moving_trees = moving[begin // WINDOW, LEVELS] - (group_start - begin)
                        moving_trees = min(moving_trees, group_size) if window > 1 else 1
                        pairs = _U(moving_trees * row_count)
                        _descend_to_leaves(
                            block, nodes, bits, left, sets, has_nan, states, begins, pairs, scratch
                        )
                if rows == 1 and outputs == base.size:
                    for k in range(outputs):
                        total = out[start, k]
                        for t in range(begin, end):
                            leaf_number = leaf[_U(state[_U(trees[t, 2])]) * words_per_node] & mask
                            total += values[_U(trees[t, 3]) + _U(leaf_number), k]
                        out[start, k] = total
                    continue
                for t in range(begin, end):
                    slot = _U(trees[t, 2] * row_count) if window > 1 else _U(0)
                    first_leaf, first_output = _U(trees[t, 3]), target[t]
                    for r in range(row_count):
                        leaf_number = leaf[_U(state[slot]) * words_per_node] & mask
                        slot += _U(1)
                        exit_leaf = first_leaf + _U(leaf_number)
                        for k in range(outputs):
                            out[start + r, first_output + k] += values[exit_leaf, _U(k)]
    return -1
