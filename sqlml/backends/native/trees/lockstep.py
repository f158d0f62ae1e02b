"""The lockstep kernel: some rows go down some trees side by side, by the tests as they are.

A step waits for the node that the step before has found, so one row in one tree leaves a processor
idle. Here many pairs of a row and a tree take their steps in turns, and their loads overlap: one
row in hundreds of trees as well as hundreds of rows in one. Nothing is prepared per batch, which
suits few rows.

A node is one record: threshold, `first`, its left child, next to which lies the right one, and the
column of its test, which is for numbers up to the threshold. A leaf is its own right child by a
test that never holds, so that no step branches. Few rows go down the trees of a window by depth,
the deepest first, so that those which may still move are the first ones, however many levels there
are; below LEVELS of them the pairs that have arrived are left out. Where NaN may go left, each
block of rows is looked through for it, and none without it asks for it again.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sqlml.backends.native.jit.specialise import helper

PAIRS = 256
"""Pairs of a row and a tree that go down together."""

WINDOW, FEW_ROWS = 256, 64
"""Trees that are walked by depth, where so few rows go down together."""

ROW_NUMBERS = 1 << 15
"""Numbers of the rows that go down together: they stay in the first or second level cache."""

LEVELS, LOOKS = 12, 4
"""Levels above which nobody looks who has arrived, and levels between two looks below."""

MEMBER = 1 << 31
"""Bit of a node's column: the test is for membership in a set."""

ANY, FINITE, NAN_TOO = 0, 1, 2
"""What numbers the rows may have: all, all but NaN and the infinities, all but these."""

_U = np.uint64
_COLUMN = np.uint32(MEMBER - 1)


@helper
def _level(
    held: Any, nodes: Any, left: Any, sets: Any, missing: Any, state: Any, row: Any, count: Any
) -> None:
    """Replace the first nodes of `state` with the following ones; their rows begin at `row`."""
    if sets is None:
        if not missing:
            for i in range(count):
                node = nodes[_U(state[i])]
                yes = held[_U(row[i] + node.column)] <= node.threshold
                state[i] = node.first + (np.uint32(0) if yes else np.uint32(1))
        else:
            for i in range(count):
                at = _U(state[i])
                node = nodes[at]
                v = held[_U(row[i] + node.column)]
                yes = (v <= node.threshold) | ((v != v) & (left[at] != 0))
                state[i] = node.first + (np.uint32(0) if yes else np.uint32(1))
    else:
        for i in range(count):
            at = _U(state[i])
            node = nodes[at]
            v = held[_U(row[i] + (node.column & _COLUMN))]
            yes = (v <= node.threshold) | ((v != v) & (left[at] != 0))
            if node.column & np.uint32(MEMBER):
                begin, size, words = sets
                if v >= 0 and v < size[at]:
                    code = np.uint32(v)
                    word = words[begin[at] + code // np.uint32(32)]
                    yes = (word >> (code % np.uint32(32))) & np.uint32(1) != 0
            state[i] = node.first + (np.uint32(0) if yes else np.uint32(1))


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
    leaf: Any,
    left: Any,
    sets: Any,
    target: Any,
    values: Any,
    base: Any,
    out: Any,
) -> Any:
    """out (n, K) = base and the exit leaves' values, tree by tree in the leaves' dtype.

    -1, or the first row of a block with a number that is not `allowed`, with `out` worthless.

    The rows lie in `flat`, each `stride` numbers long. Column c of a node's test is column c of
    them where `tested` is `flat` too; else that is None, and it is column `columns[c]` int64.
    trees uint32 (trees, 3): the root and the depth of the i-th of its window, and where in its
    window tree i stands. moving uint32 (windows, LEVELS + 1): how many trees have nodes at a level.
    leaf uint32 (nodes,) is the row of `values` (leaves, V) of a leaf. left uint8 (nodes,) says
    where NaN goes left; without sets it is empty if that is nowhere. sets is None, or the first
    word and the number of categories of each node's set, uint32 (nodes,), and the words' bits.
    """
    n, count, outputs = out.shape[0], trees.shape[0], values.shape[1]
    width = columns.size if tested is None else stride
    rows = max(1, min(n, PAIRS, ROW_NUMBERS // max(1, width)))
    window = max(1, min(count, WINDOW)) if rows <= FEW_ROWS else 1
    group = min(window, max(1, PAIRS // rows))
    copied = np.empty(rows * width if tested is None else 0, nodes.threshold.dtype)
    room = np.empty((window + 4 * group) * rows, np.uint32)
    state = room[: window * rows]
    row = room[window * rows : (window + group) * rows]
    at = room[(window + group) * rows : (window + 2 * group) * rows]
    pair = room[(window + 2 * group) * rows : (window + 3 * group) * rows]
    begins = room[(window + 3 * group) * rows :]
    for start in range(0, n, rows):
        used = min(rows, n - start)
        missing = 0
        if allowed != ANY or left.size > 0:
            infinite, missing = _look(flat, start * stride, (start + used) * stride)
            if allowed != ANY and infinite + (missing if allowed == FINITE else 0) > 0:
                return start
        if tested is None:
            for r in range(used):
                for c in range(width):
                    copied[r * width + c] = flat[(start + r) * stride + columns[c]]
        asks = missing > 0 and left.size > 0
        held = copied if tested is None else tested[start * stride :]
        if used == 1:
            row[:] = np.uint32(0)
        else:
            for i in range(0, group * used, used):
                for r in range(used):
                    row[_U(i + r)] = r * width
        for r in range(used):
            for k in range(base.size):
                out[start + r, k] = base[k]
        for begin in range(0, count, window):
            end = min(count, begin + window)
            for first in range(begin, end, group):
                last = min(end, first + group)
                # Alone, a tree stands at its own place.
                from_tree = first if window > 1 else first - first % WINDOW + trees[first, 2]
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
                    _level(held, nodes, left, sets, asks, part, row, _U(alive * used))
                if depth > LEVELS:
                    alive = moving[begin // WINDOW, LEVELS] - (first - begin)
                    going = _U((min(alive, last - first) if window > 1 else 1) * used)
                    for i in range(going):
                        at[i], begins[i], pair[i] = part[i], row[i], i
                    while going > 0:
                        kept = _U(0)
                        for i in range(going):
                            place, begun, which = at[i], begins[i], pair[i]
                            part[_U(which)] = place
                            at[kept], begins[kept], pair[kept] = place, begun, which
                            follows = np.uint32(nodes[_U(place)].first + np.uint32(1))
                            kept += _U(follows != place)
                        going = kept
                        for _ in range(LOOKS):
                            _level(held, nodes, left, sets, asks, at, begins, going)
            if rows == 1 and outputs == base.size:
                for k in range(outputs):
                    total = out[start, k]
                    for t in range(begin, end):
                        place = state[_U(trees[t, 2])]
                        total += values[_U(leaf[_U(place)]), k]
                    out[start, k] = total
                continue
            for t in range(begin, end):
                slot = _U(trees[t, 2] * used) if window > 1 else _U(0)
                to = target[t]
                for r in range(used):
                    exit_leaf = _U(leaf[_U(state[slot])])
                    slot += _U(1)
                    for k in range(outputs):
                        out[start + r, to + k] += values[exit_leaf, _U(k)]
    return -1
