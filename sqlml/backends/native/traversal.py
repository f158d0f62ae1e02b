"""The traversal kernels: a block of rows goes down one tree in lockstep, level by level.

A panel is a block of up to LANES rows, column after column, so that column c of row r is
`panel[c * LANES + r]`; `feature` holds `c * LANES`. Nodes of a tree lie behind each other with
siblings side by side: `first` is the child for "yes", `first + 1` the one for "no". A leaf is its
own child by a test that always holds, so the inner loop has no branch, its iterations do not wait
for each other, and the processor overlaps their loads. Unsigned numbers spare numba's test for
negative indices. Trees come one after the other in the source's order, and so do the sums.
"""

from __future__ import annotations

from typing import Any

import numpy as np

LANES = 128
"""Rows of a panel: enough to hide the latency of loads, few enough for the first-level cache."""

PATIENCE = 8
"""In trees deeper than this, look every so many levels whether all rows have reached a leaf."""


def pack(x: Any, columns: Any, negated: Any, panels: Any) -> None:
    """Lay the rows of x (n, k) out as panels (ceil(n / LANES), (columns + 1) * LANES).

    Panel column 0 is 0 for every row; column c + 1 is x's column `columns[c]`, or minus it.
    """
    n = x.shape[0]
    for p in range(panels.shape[0]):
        start = p * LANES
        stop = min(start + LANES, n)
        panel = panels[p]
        for r in range(LANES):
            panel[r] = 0
        for c in range(columns.size):
            at = (c + 1) * LANES
            j = columns[c]
            if negated[c]:
                for r in range(stop - start):
                    panel[at + r] = -x[start + r, j]
            else:
                for r in range(stop - start):
                    panel[at + r] = x[start + r, j]


def traverse(
    panels: Any,
    roots: Any,
    depths: Any,
    feature: Any,
    threshold: Any,
    first: Any,
    leaf: Any,
    values: Any,
    target: Any,
    out: Any,
) -> None:
    """Add the exit leaves' values to out (n, K), tree by tree; no categorical nodes."""
    n = out.shape[0]
    at = np.empty(LANES, np.uint32)
    width = values.shape[1]
    for p in range(panels.shape[0]):
        panel = panels[p]
        start = p * LANES
        rows = min(LANES, n - start)
        for t in range(roots.size):
            root = roots[t]
            depth = depths[t]
            for r in range(rows):
                at[np.uint64(r)] = root
            for level in range(depth):
                for r in range(rows):
                    k = at[np.uint64(r)]
                    inside = panel[feature[k] + np.uint32(r)] <= threshold[k]
                    at[np.uint64(r)] = first[k] + (np.uint32(0) if inside else np.uint32(1))
                if depth > PATIENCE and level % PATIENCE == PATIENCE - 1:
                    moving = np.uint32(0)
                    for r in range(rows):
                        k = at[np.uint64(r)]
                        moving |= first[k] ^ k
                    if moving == 0:
                        break
            column = target[t]
            if width == 1:
                for r in range(rows):
                    out[start + r, column] += values[leaf[at[np.uint64(r)]], 0]
            else:
                for r in range(rows):
                    exit_leaf = leaf[at[np.uint64(r)]]
                    for v in range(width):
                        out[start + r, column + v] += values[exit_leaf, v]


def traverse_sets(
    panels: Any,
    roots: Any,
    depths: Any,
    feature: Any,
    threshold: Any,
    first: Any,
    leaf: Any,
    values: Any,
    target: Any,
    kind: Any,
    begin: Any,
    size: Any,
    words: Any,
    out: Any,
) -> None:
    """The same with categorical nodes.

    `kind` is 0 at a numeric node, 1 at a categorical node, 2 at one where NaN counts as a
    member; its set has categories below `size`, as bits from `words[begin]` on.
    """
    n = out.shape[0]
    at = np.empty(LANES, np.uint32)
    width = values.shape[1]
    for p in range(panels.shape[0]):
        panel = panels[p]
        start = p * LANES
        rows = min(LANES, n - start)
        for t in range(roots.size):
            root = roots[t]
            depth = depths[t]
            for r in range(rows):
                at[np.uint64(r)] = root
            for level in range(depth):
                for r in range(rows):
                    k = at[np.uint64(r)]
                    x = panel[feature[k] + np.uint32(r)]
                    inside = x <= threshold[k]
                    if kind[k] != 0:
                        if x >= 0 and x < size[k]:
                            code = np.uint32(x)
                            word = words[begin[k] + code // np.uint32(32)]
                            inside = ((word >> (code % np.uint32(32))) & np.uint32(1)) != 0
                        else:
                            inside = kind[k] == 2 and x != x
                    at[np.uint64(r)] = first[k] + (np.uint32(0) if inside else np.uint32(1))
                if depth > PATIENCE and level % PATIENCE == PATIENCE - 1:
                    moving = np.uint32(0)
                    for r in range(rows):
                        k = at[np.uint64(r)]
                        moving |= first[k] ^ k
                    if moving == 0:
                        break
            column = target[t]
            for r in range(rows):
                exit_leaf = leaf[at[np.uint64(r)]]
                for v in range(width):
                    out[start + r, column + v] += values[exit_leaf, v]
