"""The lockstep kernel: some rows go down some trees side by side, by the tests as they are.

A step waits for the node that the step before has found, so one row in one tree leaves a processor
idle. Here many pairs of a row and a tree take their steps in turns, and their loads overlap: one
row in hundreds of trees as well as hundreds of rows in one. Nothing is made ready for a batch,
which is what few rows want.

A node is one record: threshold, `first`, its child for yes, beside which lies the one for no, and
the column of its test, which is yes for numbers up to the threshold (`Decisions`). A leaf is its
own child by a test that never holds, so that no step branches; every few levels the pairs that
have arrived are left out.
"""

from __future__ import annotations

from typing import Any

import numpy as np

PAIRS = 256
"""Pairs of a row and a tree that go down together."""

ROW_NUMBERS = 1 << 15
"""Numbers of the rows that go down together: they stay in the first or second level cache."""

LEVELS = 4
"""Levels between two looks at which pairs have arrived."""

MEMBER, MISSING = 1 << 31, 1 << 30
"""Bits of a node's column: the test is for membership in a set; NaN is a member."""


def score(
    x: Any,
    flat: Any,
    stride: Any,
    columns: Any,
    negated: Any,
    roots: Any,
    nodes: Any,
    leaf: Any,
    sets: Any,
    target: Any,
    values: Any,
    base: Any,
    out: Any,
) -> None:
    """out (n, K) = base and the exit leaves' values, tree by tree in the leaves' dtype.

    Column c of a node's test is column `columns[c]` int64 of x (n, k), or minus that where
    `negated`; or where `stride` is not 0, column c of `flat`, the rows in the tests' dtype, each
    `stride` numbers long. roots uint32 (trees,) are numbers of nodes; leaf uint32 (nodes,) is the
    row of `values` (leaves, V) of a leaf. sets is None, or the first word and the number of
    categories of each node's set, uint32 (nodes,), and the words' bits.
    """
    width = stride if stride else max(1, columns.size)
    rows = max(1, min(x.shape[0], PAIRS, ROW_NUMBERS // width))
    trees = max(1, PAIRS // rows)
    copied = np.empty(0 if stride else rows * width, nodes.threshold.dtype)
    pairs = rows * trees
    state, pair = np.empty(pairs, np.uint32), np.empty(pairs, np.uint32)
    row, arrived = np.empty(pairs, np.uint32), np.empty(pairs, np.uint32)
    column_bits = np.uint32(MISSING - 1)
    one = np.uint32(1)
    for start in range(0, x.shape[0], rows):
        used = min(rows, x.shape[0] - start)
        if stride == 0:
            for r in range(used):
                for c in range(columns.size):
                    number = x[start + r, columns[c]]
                    copied[r * width + c] = -number if negated[c] else number
        held = flat[start * stride :] if stride else copied
        for r in range(used):
            for k in range(base.size):
                out[start + r, k] = base[k]
        for first in range(0, roots.size, trees):
            last = min(roots.size, first + trees)
            moving = np.int64(0)
            for t in range(first, last):
                for r in range(used):
                    state[moving], row[moving], pair[moving] = roots[t], r * width, moving
                    moving += 1
            while moving > 0:
                kept = np.uint64(0)
                for i in range(moving):
                    at, which, begin = state[np.uint64(i)], pair[np.uint64(i)], row[np.uint64(i)]
                    arrived[np.uint64(which)] = at
                    state[kept], pair[kept], row[kept] = at, which, begin
                    kept += np.uint64(np.uint32(nodes[np.uint64(at)].first + one) != at)
                moving = np.int64(kept)
                for _ in range(LEVELS):
                    for i in range(moving):
                        at = state[np.uint64(i)]
                        node = nodes[np.uint64(at)]
                        if sets is None:
                            v = held[np.uint64(row[np.uint64(i)] + node.column)]
                            yes = v <= node.threshold
                        else:
                            v = held[np.uint64(row[np.uint64(i)] + (node.column & column_bits))]
                            yes = v <= node.threshold
                            if node.column & np.uint32(MEMBER):
                                begin_of, size, words = sets
                                if v >= 0 and v < size[at]:
                                    code = np.uint32(v)
                                    word = words[begin_of[at] + code // np.uint32(32)]
                                    yes = (word >> (code % np.uint32(32))) & np.uint32(1) != 0
                                else:
                                    yes = v != v and node.column & np.uint32(MISSING) != 0
                        state[np.uint64(i)] = node.first + (np.uint32(0) if yes else one)
            at_pair = 0
            for t in range(first, last):
                for r in range(used):
                    exit_leaf = np.uint64(leaf[np.uint64(arrived[np.uint64(at_pair)])])
                    at_pair += 1
                    for k in range(values.shape[1]):
                        out[start + r, target[t] + k] += values[exit_leaf, np.uint64(k)]
