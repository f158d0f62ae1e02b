"""`SetBins`: tests for membership in a set, as columns of bins: 0 for members, 1 for the rest.

A category is an integer. Each set is a table of bytes over the numbers below the largest
category that any set of its column has, and two more: what is in no set, and NaN. So a row's
number is cut to a code once a column, and each set costs one look-up a row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from sqlml.backends.native.jit.specialise import helper
from sqlml.ir.trees import Ensemble
from sqlml.types import Array

MOST_BYTES = 32 << 20
"""Bytes that the tables of one ensemble may take."""


@dataclass(frozen=True, slots=True, eq=False)
class SetBins:
    """S distinct sets over F columns.

    columns int64 (F,), of the ensemble's input; limit int64 (F,), the codes for numbers of a
    column; table uint8, the concatenated tables of the sets; begin int64 (S,), where each
    begins; owner int64 (S,), its column among the F. `of_node` int64 (M,) is each node's set, -1
    for a numeric node.
    """

    columns: Array
    limit: Array
    table: Array
    begin: Array
    owner: Array
    of_node: Array

    def arrays(self) -> tuple[Array, ...]:
        """The arrays that `fill_set_bins` reads besides the columns."""
        return self.limit, self.table, self.begin, self.owner


def set_bins(e: Ensemble) -> SetBins | None:
    """The sets of an ensemble, possibly none; None if their tables take too much memory."""
    of_node = np.full(e.nodes, -1, np.int64)
    if not e.has_categories or e.categorical is None or e.set_offsets is None:
        none = np.zeros(0, np.int64)
        return SetBins(none, none, np.zeros(0, np.uint8), none, none, of_node)
    words = np.zeros(0, np.uint32) if e.set_words is None else e.set_words
    nodes = np.flatnonzero(e.categorical)
    sizes = np.diff(e.set_offsets)[nodes].astype(np.int64) * 32
    columns, owner_of = np.unique(e.feature[nodes], return_inverse=True)
    limit = np.zeros(columns.size, np.int64)
    np.maximum.at(limit, owner_of, sizes)
    if (limit + 2)[owner_of].sum() > MOST_BYTES:
        return None
    found: dict[tuple[int, bytes], int] = {}
    tables: list[Array] = []
    owner: list[int] = []
    for node, own in zip(nodes.tolist(), owner_of.tolist(), strict=True):
        table = np.ones(int(limit[own]) + 2, np.uint8)
        held = words[e.set_offsets[node] : e.set_offsets[node + 1]]
        member = np.unpackbits(held.astype("<u4").view(np.uint8), bitorder="little")
        table[: member.size] = 1 - member
        table[-1] = not e.default_left[node]
        key = (own, table.tobytes())
        if key not in found:
            found[key] = len(tables)
            tables.append(table)
            owner.append(own)
        of_node[node] = found[key]
    lengths = np.array([t.size for t in tables], np.int64)
    return SetBins(
        columns=columns.astype(np.int64),
        limit=limit,
        table=np.concatenate(tables),
        begin=np.cumsum(lengths) - lengths,
        owner=np.array(owner, np.int64),
        of_node=of_node,
    )


@helper
def fill_set_bins(x: Any, start: Any, sets: Any, value: Any, place: Any, panel: Any) -> None:
    """Fill the end of `panel` (S * rows) with the bins of rows from `start` of x, set after set.

    sets: the columns of x, int64 (F,), and `SetBins.arrays()`. Rows beyond the end of x repeat its
    last. `value` (rows,) of the tests' dtype, to which x is rounded, and `place` uint32 (rows,)
    are scratch space.
    """
    columns, limit, table, begin, owner = sets
    rows = place.size
    last = -1
    own_panel = panel[panel.size - begin.size * rows :]
    for s in range(begin.size):
        f = owner[s]
        if f != last:
            j, most = columns[f], limit[f]
            for r in range(rows):
                value[np.uint64(r)] = x[min(start + r, x.shape[0] - 1), j]
            for r in range(rows):
                v = value[np.uint64(r)]
                inside = v >= 0 and v < most
                place[np.uint64(r)] = np.uint32(v) if inside else most + (v != v)
            last = f
        own = table[begin[s] :]
        part = own_panel[s * rows :]
        for r in range(rows):
            part[np.uint64(r)] = own[np.uint64(place[np.uint64(r)])]
