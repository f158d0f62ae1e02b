"""The lockstep kernel: some rows go down some trees side by side, by the tests as they are.

A step waits for the node that the step before has found, so one row in one tree leaves a processor
idle. Here many pairs of a row and a tree take their steps in turns, and their loads overlap: one
row in hundreds of trees as well as hundreds of rows in one. Nothing is prepared per batch, which
suits few rows, and trees with so many thresholds that a search among them takes longer than a tree.

A node is one record of 8 bytes for float32, else 16: the threshold of its test, which is for
numbers up to it, and a link, whose low bits say how far behind the node its right child lies, next
to the left one, and whose high bits name the column. A leaf is 0 behind itself, and its threshold
is NaN, so that no step branches: no number is up to NaN. The payload of that NaN is the leaf's
number in its tree, so a row that has arrived reads no more of the tree.

Few rows go down the trees of a window by depth, the deepest first, so that those which may still
move are the first ones, however many levels there are. Many rows go down one tree block by block,
as many blocks as a second-level cache holds, so that a tree is read from memory that often less,
and the next tree is asked for meanwhile; where trees are low, the upper levels are answered for a
block of rows at once (`lockstep.py`). Below LEVELS levels the pairs that have arrived are left
out. Where NaN may go left, rows are looked through for it, and none without it asks for it again.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir

from sqlml.backends.native.jit.helpers import intrinsic
from sqlml.backends.native.jit.specialise import helper
from sqlml.backends.native.vm.run import LINE_BYTES, SIDE, fetch, turn
from sqlml.types import Array

# The upper levels of a tree, answered for 64 rows at a time: `enter`.
#
# Going down in lockstep, a row reads a number of its own at each level. But at the first levels
# all rows ask the same few columns. So a block of rows is turned, column by column (`turn_rows`):
# a node then is compared with 64 numbers that lie side by side, and its answers are the bits of a
# word. The 15 words of the first four levels are put together by bits, and say where each row
# goes on.


TOP = 4
"""Levels that are answered for all rows of a block."""

LANES = 64
"""Rows of a block."""

LOW, TURNED_COLUMNS = 12, 12
"""Levels of the trees that go down turned blocks, and the most columns for each tree: more take
longer to be turned than is won."""

NODES, EXITS = (1 << TOP) - 1, 1 << TOP

_U = np.uint64


def tops(roots: Array, column: Array, threshold: Array, right: Array) -> tuple[Array, Array, Array]:
    """The upper levels of trees, for `enter`.

    Args:
        roots: int64 (trees,): their places.
        column, threshold: by place.
        right: int64 (places,): the place of the right child, behind the left one; of a leaf its
            own.

    Returns:
        uint32 (trees * NODES,): where the nodes' columns begin in a turned block, level by level;
        their thresholds, NaN for what lies below a leaf; uint32 (trees * EXITS,): the places that
        rows come to.
    """
    columns = np.zeros((roots.size, NODES), np.uint32)
    thresholds = np.full((roots.size, NODES), np.nan, threshold.dtype)
    places = roots.reshape(-1, 1)
    for level in range(TOP):
        at = slice((1 << level) - 1, (2 << level) - 1)
        inner = right[places] != places
        columns[:, at] = np.where(inner, column[places] * LANES, 0)
        thresholds[:, at] = np.where(inner, threshold[places], np.nan)
        both = np.stack([right[places] - inner, right[places]], axis=2)
        places = both.reshape(roots.size, 2 << level)
    return columns.ravel(), thresholds.ravel(), places.astype(np.uint32).ravel()


@helper
def turn_rows(flat: Any, first: Any, stride: Any, used: Any, turned: Any) -> None:
    """turned (stride * LANES,) = rows of `stride` numbers from row `first` on, column by column."""
    whole = used - used % SIDE
    for r in range(0, whole, SIDE):
        begin = (first + r) * stride
        for c in range(0, stride - SIDE + 1, SIDE):
            turn(flat, _U(begin + c), _U(stride), turned, _U(c * LANES + r), _U(LANES))
        for c in range(stride - stride % SIDE, stride):
            for i in range(SIDE):
                turned[_U(c * LANES + r + i)] = flat[_U(begin + i * stride + c)]
    for r in range(whole, used):
        for c in range(stride):
            turned[_U(c * LANES + r)] = flat[_U((first + r) * stride + c)]


@helper
def enter(
    turned: Any, columns: Any, thresholds: Any, exits: Any, t: Any, words: Any, which: Any, to: Any
) -> None:
    """Write to `to` (LANES,) where the rows of a turned block are below the top of tree t.

    words uint64 (NODES,), which int32 (LANES,): room.
    """
    w, first = words, _U(t * NODES)
    for k in range(_U(NODES)):
        w[k] = _above(turned, _U(columns[first + k]), thresholds[first + k])
    a = w[0]
    b = _pick(a, w[1], w[2])
    c = _pick(b, _pick(a, w[3], w[5]), _pick(a, w[4], w[6]))
    left, right = _pick(a, w[7], w[11]), _pick(a, w[9], w[13])
    left_2, right_2 = _pick(a, w[8], w[12]), _pick(a, w[10], w[14])
    d = _pick(c, _pick(b, left, right), _pick(b, left_2, right_2))
    _spread(d, c, b, a, which)
    for r in range(_U(LANES)):
        to[r] = exits[_U(t * EXITS) + _U(which[r])]


@helper
def _pick(where: Any, left: Any, right: Any) -> Any:
    """The bits of `right` where a bit is set, else those of `left`."""
    return (where & right) | (~where & left)


def _above_of(typing: Any, numbers: Any, begin: Any, threshold: Any) -> Any:
    """A word of bits: which of LANES numbers from `begin` on are not up to a threshold."""
    from numba import types  # only to compile

    return types.uint64(numbers, types.uint64, numbers.dtype), _generate_above


def _generate_above(context: Any, b: Any, signature: Any, arguments: Any) -> Any:
    (kind, *_), (array, begin, threshold) = signature.args, arguments
    vector = ir.VectorType(context.get_data_type(kind.dtype), LANES)
    data = context.make_array(kind)(context, b, array).data
    given = b.load(
        b.bitcast(b.gep(data, [begin]), vector.as_pointer()), align=kind.dtype.bitwidth // 8
    )
    nothing = ir.Constant(vector, ir.Undefined)
    one = b.insert_element(nothing, threshold, ir.Constant(ir.IntType(32), 0))
    everywhere = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
    bound = b.shuffle_vector(one, nothing, everywhere)
    return b.bitcast(b.fcmp_unordered(">", given, bound), ir.IntType(LANES))


def _spread_of(typing: Any, a: Any, b: Any, c: Any, d: Any, to: Any) -> Any:
    """Write LANES numbers of TOP bits, whose lowest are the bits of the first word."""
    from numba import types

    words = [types.uint64] * TOP
    return types.void(*words, to), _generate_spread


def _generate_spread(context: Any, b: Any, signature: Any, arguments: Any) -> Any:
    *words, array = arguments
    vector = ir.VectorType(ir.IntType(32), LANES)
    total = ir.Constant(vector, [0] * LANES)
    for place, word in enumerate(words):
        bits = b.zext(b.bitcast(word, ir.VectorType(ir.IntType(1), LANES)), vector)
        total = b.or_(total, b.shl(bits, ir.Constant(vector, [place] * LANES)))
    data = context.make_array(signature.args[-1])(context, b, array).data
    b.store(total, b.bitcast(data, vector.as_pointer()), align=4)
    return context.get_dummy_value()


_above, _spread = intrinsic(_above_of), intrinsic(_spread_of)


PAIRS = 256
"""Pairs of a row and a tree that go down together."""

WINDOW, FEW_ROWS = 256, 64
"""Trees that are walked by depth, where so few rows go down together."""

ROW_NUMBERS = 1 << 16
"""Numbers of the rows that go down together: they stay in the first or second level cache."""

PAYLOAD, LONG_PAYLOAD = 22, 51
"""Bits of a quiet NaN that are free, of 32 and of 64."""

LEVELS, LOOKS = 12, 4
"""Levels without a look at which pairs have arrived, and levels between two looks below them."""

PASS_NUMBERS = 1 << 17
"""Numbers of the rows that go down a tree before the next one comes: a quarter of a usual
second-level cache, which also holds a tree of 10,000 nodes and the next one."""

ANY, FINITE, NAN_TOO = 0, 1, 2
"""What numbers the rows may have: all, all but NaN and the infinities, all but these."""


@helper
def _level(
    held: Any,
    nodes: Any,
    bits: Any,
    left: Any,
    sets: Any,
    missing: Any,
    state: Any,
    row: Any,
    count: Any,
) -> None:
    """Replace the first nodes of `state` with the following ones; their rows begin at `row`."""
    behind = nodes.link.dtype.type((1 << bits) - 1)
    shift = nodes.link.dtype.type(bits)
    if sets is None:
        if not missing:
            for i in range(count):
                place = state[i]
                node = nodes[_U(place)]
                yes = held[_U(row[i]) + _U(node.link >> shift)] <= node.threshold
                state[i] = np.uint32(place + np.uint32(node.link & behind) - np.uint32(yes))
        else:
            for i in range(count):
                place = state[i]
                node = nodes[_U(place)]
                v = held[_U(row[i]) + _U(node.link >> shift)]
                yes = (v <= node.threshold) | ((v != v) & (left[_U(place)] != 0))
                state[i] = np.uint32(place + np.uint32(node.link & behind) - np.uint32(yes))
    else:
        for i in range(count):
            place = state[i]
            node = nodes[_U(place)]
            test = _U(node.link >> shift)
            v = held[_U(row[i]) + (test >> _U(1))]
            yes = (v <= node.threshold) | ((v != v) & (left[_U(place)] != 0))
            if test & _U(1):
                begin, size, words = sets
                if v >= 0 and v < size[_U(place)]:
                    code = np.uint32(v)
                    word = words[begin[_U(place)] + code // np.uint32(32)]
                    yes = (word >> (code % np.uint32(32))) & np.uint32(1) != 0
            state[i] = np.uint32(place + np.uint32(node.link & behind) - np.uint32(yes))


@helper
def _go_on(
    held: Any,
    nodes: Any,
    bits: Any,
    left: Any,
    sets: Any,
    missing: Any,
    state: Any,
    row: Any,
    going: Any,
    room: Any,
) -> None:
    """Replace the first nodes of `state` with the leaves below them, leaving out who has arrived.

    room: three times as many numbers.
    """
    behind = nodes.link.dtype.type((1 << bits) - 1)
    size = room.size // 3
    at, pair, begins = room[:size], room[size : 2 * size], room[2 * size :]
    for i in range(going):
        at[i], begins[i], pair[i] = state[i], row[i], i
    while going > 0:
        kept = _U(0)
        for i in range(going):
            place, begun, which = at[i], begins[i], pair[i]
            state[_U(which)] = place
            at[kept], begins[kept], pair[kept] = place, begun, which
            kept += _U((nodes[_U(place)].link & behind) != 0)
        going = kept
        for _ in range(LOOKS):
            _level(held, nodes, bits, left, sets, missing, at, begins, going)


@helper
def _go_down_turned(
    flat: Any,
    pass_start: Any,
    held_rows: Any,
    stride: Any,
    columns: Any,
    thresholds: Any,
    exits: Any,
    trees: Any,
    nodes: Any,
    bits: Any,
    leaf: Any,
    target: Any,
    values: Any,
    out: Any,
    turned: Any,
) -> None:
    """Add the leaves of some rows to out, block by block of LANES rows, none of which is NaN where
    that goes left."""
    number, words = _number(leaf), _U(nodes.itemsize // leaf.itemsize)
    blocks = (held_rows + LANES - 1) // LANES
    size = stride * LANES
    for b in range(blocks):
        used = min(LANES, held_rows - b * LANES)
        turn_rows(flat, pass_start + b * LANES, stride, used, turned[b * size :])
    answers, which = np.empty(NODES, np.uint64), np.empty(LANES, np.int32)
    part = np.empty(LANES, np.uint32)
    behind, shift = nodes.link.dtype.type((1 << bits) - 1), nodes.link.dtype.type(bits)
    for t in range(trees.shape[0]):
        depth = trees[t - t % WINDOW + trees[t, 2], 1]
        from_leaf, to = _U(trees[t, 3]), target[t]
        for b in range(blocks):
            _fetch_tree(trees, min(t + 1, trees.shape[0] - 1), nodes, b, blocks)
            held = turned[b * size :]
            enter(held, columns, thresholds, exits, t, answers, which, part)
            for _ in range(TOP, depth):
                for r in range(_U(LANES)):
                    place = part[r]
                    node = nodes[_U(place)]
                    yes = held[_U(node.link >> shift) * _U(LANES) + r] <= node.threshold
                    part[r] = np.uint32(place + np.uint32(node.link & behind) - np.uint32(yes))
            start = pass_start + b * LANES
            for r in range(min(LANES, held_rows - b * LANES)):
                own = leaf[_U(part[r]) * words] & number
                for k in range(values.shape[1]):
                    out[start + r, to + k] += values[from_leaf + _U(own), _U(k)]


@helper
def _fetch_tree(trees: Any, t: Any, nodes: Any, part: Any, parts: Any) -> None:
    """Ask the memory for one of some parts of tree t."""
    a_line = LINE_BYTES // nodes.itemsize
    root, share = trees[t - t % WINDOW + trees[t, 2], 0], trees[t, 4] // (parts * a_line) + 1
    for line in range(part * share, (part + 1) * share):
        fetch(nodes, _U(root + line * a_line))


@helper
def _number(leaf: Any) -> Any:
    """The bits of a leaf's threshold that are its number in its tree."""
    payload = PAYLOAD if leaf.itemsize == 4 else LONG_PAYLOAD
    return leaf.dtype.type((_U(1) << _U(payload)) - _U(1))


@helper
def _look(flat: Any, begin: Any, end: Any) -> Any:
    """How many of some numbers are infinite, and how many NaN."""
    odd, missing = 0, 0
    for i in range(_U(begin), _U(end)):
        odd += 1 if flat[i] * 0 != 0 else 0
    if odd > 0:
        for i in range(_U(begin), _U(end)):
            missing += 1 if flat[i] != flat[i] else 0
    return odd - missing, missing


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
    """out (n, K) = base and the exit leaves' values, tree by tree in the leaves' dtype.

    -1, or a row at or before the first with a number that is not `allowed`, with `out` worthless.

    The rows lie in `flat`, each `stride` numbers long. Without `columns`, `tested` is `flat` too,
    and column c of a node's test is column c of the rows; else it is column `columns[c]` int64, as
    a number of the dtype of `tested`, which is empty.
    trees uint32 (trees, 5): the root and the depth of the i-th of its window, and of tree i where
    it stands there, its first leaf and how many places it has. moving uint32 (windows, LEVELS + 1):
    how many trees have nodes at a level. nodes (places,) of records, tree by tree; the last `bits`
    bits of a link say how far behind its node the right child is. leaf is `nodes` as unsigned
    numbers of a threshold's size.
    left uint8 (places,) says where NaN goes left; without sets it is empty if that is nowhere. sets
    is None, or the first word and the number of categories of each node's set, uint32 (places,),
    and the words' bits; then the lowest bit of a link's column says that a test is for membership.
    tops is None, or what `top_levels.enter` needs of each tree.
    values (leaves, V), tree by tree.
    """
    n, count, outputs = out.shape[0], trees.shape[0], values.shape[1]
    width = stride if columns is None else columns.size
    rows = max(1, min(n, PAIRS, ROW_NUMBERS // max(1, width)))
    window = max(1, min(count, WINDOW)) if rows <= FEW_ROWS else 1
    group = min(window, max(1, PAIRS // rows))
    blocks = max(1, PASS_NUMBERS // max(1, rows * width)) if window == 1 else 1
    blocks = max(1, min(blocks, (n + rows - 1) // rows))
    copied = np.empty(0 if columns is None else blocks * rows * width, tested.dtype)
    room = np.empty((window + 4 * group) * rows, np.uint32)
    state = room[: window * rows]
    row = room[window * rows : (window + group) * rows]
    others = room[(window + group) * rows :]
    number = _number(leaf)
    words = _U(nodes.itemsize // leaf.itemsize)
    pass_rows = blocks * rows
    is_turned = tops is not None and n >= LANES and stride <= count * TURNED_COLUMNS
    if is_turned:
        pass_rows = LANES * max(1, PASS_NUMBERS // (LANES * stride))
    turned = np.zeros(pass_rows * stride if is_turned else 0, flat.dtype)
    for pass_start in range(0, n, pass_rows):
        held_rows = min(pass_rows, n - pass_start)
        missing = 0
        if allowed != ANY or left.size > 0:
            ends = (pass_start + held_rows) * stride
            infinite, missing = _look(flat, pass_start * stride, ends)
            if allowed != ANY and infinite + (missing if allowed == FINITE else 0) > 0:
                return pass_start
        if columns is not None:
            for r in range(held_rows):
                for c in range(width):
                    copied[r * width + c] = flat[(pass_start + r) * stride + columns[c]]
        asks = missing > 0 and left.size > 0
        for r in range(held_rows):
            for k in range(base.size):
                out[pass_start + r, k] = base[k]
        if tops is not None:
            if is_turned and not asks:
                _go_down_turned(
                    flat,
                    pass_start,
                    held_rows,
                    stride,
                    tops[0],
                    tops[1],
                    tops[2],
                    trees,
                    nodes,
                    bits,
                    leaf,
                    target,
                    values,
                    out,
                    turned,
                )
                continue
        for begin in range(0, count, window):
            end = min(count, begin + window)
            # Alone, a tree stands at its own place.
            alone = begin - begin % WINDOW + trees[begin, 2]
            for b in range((held_rows + rows - 1) // rows):
                start = pass_start + b * rows
                used = min(rows, n - start)
                if window == 1 and end < count:
                    _fetch_tree(trees, end, nodes, b, blocks)
                held = tested[start * stride :] if columns is None else copied[b * rows * width :]
                if used == 1:
                    row[:] = np.uint32(0)
                else:
                    for i in range(0, group * used, used):
                        for r in range(used):
                            row[_U(i + r)] = r * width
                for first in range(begin, end, group):
                    last = min(end, first + group)
                    from_tree = first if window > 1 else alone
                    part = state[(first - begin) * used :]
                    slot = _U(0)
                    for t in range(from_tree, from_tree + last - first):
                        root = trees[t, 0]
                        for _ in range(used):
                            part[slot] = root
                            slot += _U(1)
                    depth = trees[from_tree, 1]
                    for level in range(min(depth, LEVELS)):
                        alive = moving[begin // WINDOW, level] - (first - begin)
                        alive = min(alive, last - first) if window > 1 else 1
                        pairs = _U(alive * used)
                        _level(held, nodes, bits, left, sets, asks, part, row, pairs)
                    if depth > LEVELS:
                        alive = moving[begin // WINDOW, LEVELS] - (first - begin)
                        going = _U((min(alive, last - first) if window > 1 else 1) * used)
                        _go_on(held, nodes, bits, left, sets, asks, part, row, going, others)
                if rows == 1 and outputs == base.size:
                    for k in range(outputs):
                        total = out[start, k]
                        for t in range(begin, end):
                            own = leaf[_U(state[_U(trees[t, 2])]) * words] & number
                            total += values[_U(trees[t, 3]) + _U(own), k]
                        out[start, k] = total
                    continue
                for t in range(begin, end):
                    slot = _U(trees[t, 2] * used) if window > 1 else _U(0)
                    from_leaf, to = _U(trees[t, 3]), target[t]
                    for r in range(used):
                        own = leaf[_U(state[slot]) * words] & number
                        slot += _U(1)
                        for k in range(outputs):
                            out[start + r, to + k] += values[from_leaf + _U(own), _U(k)]
    return -1
