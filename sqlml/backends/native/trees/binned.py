"""`Binned`: the node tests of an Ensemble as comparisons of small integers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from sqlml.backends.native.jit.specialise import helper
from sqlml.ir.tree_shape import largest_below
from sqlml.ir.trees import Ensemble
from sqlml.types import Array

# `SetBins`: tests for membership in a set, as columns of bins: 0 for members, 1 for the rest.
#
# A category is an integer. Each set is a table of bytes over the numbers below the largest
# category that any set of its column has, and two more: what is in no set, and NaN. So a row's
# number is cut to a code once a column, and each set costs one look-up a row.


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


# `Ranks`: a value's bin is the number of its column's thresholds below it.
#
# Then every node test is a comparison of a bin with the rank of a threshold, two small integers,
# and its answer is the float test's own. A booster that was trained on histograms has at most 255
# thresholds per column, so a bin is a byte.
#
# The bin is found by a look-up and a short search: a column's range is cut into equal cells, a
# table says how many thresholds lie in lower cells, and the few in the value's own cell are
# searched by halving without a branch. The cell is a rounded product, but rounding never
# decreases, and the cells of the thresholds were computed by the same product, so a threshold of
# a lower cell is below the value. Columns whose thresholds crowd together have one cell, and are
# searched only by halving.


MOST_CELLS = 16384
"""Of a column: 64 KB. 4,096 made bins of 10,000 thresholds 1.5 times as slow."""

SPARE_STEPS = 2
"""Halving steps that a table of cells must save to be worth its look-up."""

FEW = 16
"""Thresholds of a column that are all compared with each value: no search is as quick."""

TILE = 16
"""Columns whose values are read together: of so many float32 a cache line holds one each."""

PAGE = 255
"""Thresholds of a page: the most that a bin of one byte can count."""


@dataclass(frozen=True, slots=True, eq=False)
class Ranks:
    """How C columns become bins of dtype uint8 or uint16, in panels of `width` columns.

    thresholds (T,) of the tests' dtype, column after column, each padded with infinities;
    begin int64 (C,), where a column's thresholds begin; steps int64 (C,) of halving; low and scale
    (C,) of the tests' dtype, top (C,) the number of the last cell; cells int32, first int64 (C,)
    where a column's cells begin; count int64 (C,), how many thresholds it has. In column `high`
    int64 (C,) of the panel NaN has the bin `gone` int64 (C,). Where nodes want it to be both high
    and low there is another column, `least` int64 (C,), or -1: there NaN has bin 0, and `shift`
    int64 (C,) is added to the other bins.

    A column whose bins do not fit into a byte may take several panel columns, its pages int64
    (C,), the numbers of which follow each other: page p has the part of a bin between PAGE * p
    and PAGE * (p + 1).
    """

    dtype: np.dtype[Any]
    width: int
    thresholds: Array
    begin: Array
    steps: Array
    low: Array
    scale: Array
    top: Array
    cells: Array
    first: Array
    high: Array
    least: Array
    gone: Array
    count: Array
    shift: Array
    pages: Array

    def arrays(self) -> tuple[Array, ...]:
        """The arrays that `bins` reads besides the columns: all, in the order of the fields."""
        return tuple(getattr(self, field.name) for field in fields(self)[2:])


def ranks(
    columns: Sequence[Array],
    gone: Array,
    least: Array,
    shifted: Array,
    kind: np.dtype[Any],
    paged: bool = False,
) -> Ranks | None:
    """Tables for `columns` of sorted, distinct thresholds of dtype `kind`.

    gone int64 (C,): the bin of NaN. least, shifted: bool (C,). A column is in the panel once more,
    with NaN as its lowest number, where `least`; there all other bins are one higher where
    `shifted`, so that a test can tell NaN from every number. `paged`: all bins are bytes. None if a
    bin takes over 16 bits.
    """
    counts = np.array([c.size for c in columns], np.int64)
    shift = shifted.astype(np.int64)
    most = int((counts + shift).max(initial=0))
    if most > np.iinfo(np.uint16).max:
        return None
    tables = [_grid(c) for c in columns]
    padding = [np.full(1 << t.steps, np.inf, kind) for t in tables]
    padded = [np.concatenate(pair) for pair in zip(columns, padding, strict=True)]
    pages = np.maximum(1, -(-(counts + shift) // PAGE)) if paged else np.ones(counts.size, np.int64)
    twice = np.stack([np.ones_like(pages), least], axis=1)
    slot = _begins((twice * pages[:, None]).ravel()).reshape(-1, 2)
    return Ranks(
        dtype=np.dtype(np.uint8 if paged or most <= PAGE else np.uint16),
        width=int((twice * pages[:, None]).sum()),
        thresholds=np.concatenate([*padded, np.zeros(0, kind)]),
        begin=_begins([p.size for p in padded]),
        steps=np.array([t.steps for t in tables], np.int64),
        low=np.array([t.low for t in tables], kind),
        scale=np.array([t.scale for t in tables], kind),
        top=np.array([t.cells.size - 1 for t in tables], kind),
        cells=np.concatenate([*(t.cells for t in tables), np.zeros(0)]).astype(np.int32),
        first=_begins([t.cells.size for t in tables]),
        high=slot[:, 0].copy(),
        least=np.where(least, slot[:, 1], -1),
        gone=np.asarray(gone, np.int64),
        count=counts,
        shift=shift,
        pages=pages,
    )


def _begins(sizes: Sequence[int] | Array) -> Array:
    """The offset at which each run begins when runs of these lengths are concatenated.

    >>> _begins([2, 3]).tolist(), _begins([]).tolist()
    ([0, 2], [])
    """
    ends = np.cumsum(np.asarray(sizes, np.int64), dtype=np.int64)
    return ends - np.asarray(sizes, np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class _Grid:
    """Equal cells over a column's thresholds: how many of them lie below each cell."""

    low: Any
    scale: Any
    cells: Array
    steps: int


def _grid(thresholds: Array) -> _Grid:
    kind = thresholds.dtype.type
    whole = _Grid(kind(0), kind(0), np.zeros(1, np.int64), _halvings(thresholds.size))
    finite = thresholds[np.isfinite(thresholds)]
    if thresholds.size <= FEW or finite.size < 4:
        return whole
    best = whole
    low, high = finite[0], finite[-1]
    size = min(1 << _halvings(2 * finite.size), MOST_CELLS)
    while size <= MOST_CELLS:
        with np.errstate(all="ignore"):
            scale = kind(size - 1) / (high - low)
            inside = (thresholds - low) * scale
        if not (np.isfinite(scale) and scale > 0 and not np.isnan(inside).any()):
            return best
        held = np.bincount(np.clip(inside, 0, size - 1).astype(np.int64), minlength=size)
        steps = _halvings(int(held.max()))
        if steps + SPARE_STEPS <= whole.steps and steps < best.steps:
            best = _Grid(low, scale, np.cumsum(held) - held, steps)
        size *= 2
    return best


def _halvings(count: int) -> int:
    """Steps of halving that find a place among `count` thresholds.

    >>> [_halvings(n) for n in (0, 1, 2, 3, 4, 255)]
    [0, 1, 2, 2, 3, 8]
    """
    return int(count).bit_length()


@helper
def bins(x: Any, start: Any, tables: Any, tile: Any, place: Any, panel: Any) -> None:
    """Fill `panel` (width * rows) with the bins of rows from `start` of x, column after column.

    tables: the columns of x, int64 (C,), and `Ranks.arrays()`. Rows beyond the end of x repeat its
    last. `tile` (TILE * rows,) and `place` uint32 (rows,) are scratch space. Unsigned numbers spare
    numba's test for negative indices.

    Where rows are contiguous, TILE columns are read at a time: a cache line holds values of as many
    neighbours, and would be evicted before the next one needs it.
    """
    columns, thresholds, begin, steps, low, scale, top, cells, first = tables[:9]
    high, least, missing, count, shift, pages = tables[9:]
    rows = place.size
    held = min(rows, x.shape[0] - start)
    by_row = x.strides[1] < x.strides[0]
    for c in range(columns.size):
        if c % TILE == 0 and by_row:
            for some in range(0, held, TILE):
                for k in range(min(TILE, columns.size - c)):
                    j = columns[c + k]
                    for r in range(some, min(some + TILE, held)):
                        tile[np.uint64(k * rows + r)] = x[start + r, j]
        value = tile[c % TILE * rows : (c % TILE + 1) * rows]
        if not by_row:
            for r in range(held):
                value[np.uint64(r)] = x[start + r, columns[c]]
        for r in range(held, rows):
            value[np.uint64(r)] = value[np.uint64(held - 1)]
        lowest, factor, last = low[c], scale[c], top[c]
        own = thresholds[begin[c] :]
        if last > 0:
            table = cells[first[c] :]
            for r in range(rows):
                cell = (value[np.uint64(r)] - lowest) * factor
                cell = cell if cell > 0 else value.dtype.type(0)
                cell = cell if cell < last else last
                place[np.uint64(r)] = table[np.uint64(np.int32(cell))]
        else:
            for r in range(rows):
                place[np.uint64(r)] = 0
        if count[c] <= FEW:
            for t in range(count[c]):
                bound = own[t]
                for r in range(rows):
                    place[np.uint64(r)] += np.uint32(bound < value[np.uint64(r)])
        else:
            half = np.uint32(1) << np.uint32(steps[c])
            for _ in range(steps[c]):
                half >>= np.uint32(1)
                for r in range(rows):
                    at = place[np.uint64(r)]
                    below = own[np.uint64(at + half - np.uint32(1))] < value[np.uint64(r)]
                    place[np.uint64(r)] = at + (half if below else np.uint32(0))
        for side in range(2):
            first_page = least[c] if side else high[c]
            if first_page < 0:
                continue
            gone = np.uint32(0) if side else np.uint32(missing[c])
            more = np.uint32(shift[c]) if side else np.uint32(0)
            if pages[c] == 1:
                part = panel[first_page * rows :]
                for r in range(rows):
                    v = value[np.uint64(r)]
                    part[np.uint64(r)] = place[np.uint64(r)] + more if v == v else gone
                continue
            for p in range(pages[c]):
                part, before = panel[(first_page + p) * rows :], np.int32(PAGE * p)
                for r in range(rows):
                    v = value[np.uint64(r)]
                    held_back = np.int32(place[np.uint64(r)] + more if v == v else gone) - before
                    part[np.uint64(r)] = min(max(held_back, np.int32(0)), np.int32(PAGE))


PanelArrays = tuple[tuple[Array, ...], tuple[Array, ...] | None]


@dataclass(frozen=True, slots=True, eq=False)
class Binned:
    """A row goes right at node i when its bin in panel column `slot[i]` is `rank[i]` or more.

    slot and rank are int64 (M,). The bins of numeric tests come from `tables` and are made of the
    ensemble's columns `columns` int64 (C,); those of `sets` follow them in the panel.
    """

    tables: Ranks
    columns: Array
    sets: SetBins
    slot: Array
    rank: Array

    @property
    def width(self) -> int:
        """Columns of a panel."""
        return self.tables.width + self.sets.begin.size

    def arrays(self, columns: Array | None) -> PanelArrays:
        """What `bins` reads, and what `fill_set_bins` does: None if there is no set.

        Column j of the ensemble's input is column `columns[j]` of the batch (default: j).
        """

        def read(own: Array) -> Array:
            return np.ascontiguousarray(own if columns is None else columns[own], np.int64)

        numbers = (read(self.columns), *self.tables.arrays())
        if not self.sets.begin.size:
            return numbers, None
        return numbers, (read(self.sets.columns), *self.sets.arrays())


def binned(e: Ensemble, paged: bool = False) -> Binned | None:
    """The tests of `e`, using only bytes if `paged`.

    None if a column has over 65,535 thresholds or a set is too large.
    """
    sets = set_bins(e)
    if sets is None:
        return None
    numeric = sets.of_node < 0
    at_most = e.threshold if e.compare == "le" else largest_below(e.threshold)
    used = np.unique(e.feature[numeric])
    column = np.searchsorted(used, e.feature)
    never = np.isnan(at_most)  # only NaN goes left there
    nodes_of = np.split(
        np.argsort(np.where(numeric, column, used.size), kind="stable"),
        np.cumsum(np.bincount(column[numeric], minlength=used.size)),
    )[: used.size]
    thresholds = [np.unique(at_most[nodes][~never[nodes]]) for nodes in nodes_of]
    rank = np.ones(e.nodes, np.int64)
    for own, nodes in zip(thresholds, nodes_of, strict=True):
        found = np.searchsorted(own, at_most[nodes], side="left") + 1
        rank[nodes] = np.where(never[nodes], 0, found)
    gone = [_of_nan(rank[nodes], e.default_left[nodes]) for nodes in nodes_of]
    twice = np.array([bin is None for bin in gone], bool)
    shifted = np.array([(e.default_left & never)[nodes].any() for nodes in nodes_of], bool)
    tables = ranks(
        thresholds,
        gone=np.array([c.size if b is None else b for c, b in zip(thresholds, gone, strict=True)]),
        least=twice,
        shifted=twice & shifted,
        kind=at_most.dtype,
        paged=paged,
    )
    if tables is None:
        return None
    slot = tables.width + sets.of_node
    for c, nodes in enumerate(nodes_of):
        in_least = e.default_left[nodes] & twice[c]
        rank[nodes] += tables.shift[c] * in_least
        slot[nodes] = np.where(in_least, tables.least[c], tables.high[c])
    if paged:
        page = np.where(numeric, np.maximum(rank - 1, 0) // PAGE, 0)
        slot, rank = slot + page, rank - PAGE * page
    return Binned(tables, used.astype(np.int64), sets, slot, rank)


def _of_nan(rank: Array, goes_left: Array) -> int | None:
    """A bin that every node sends the same way as NaN; None if there is none.

    For features without missing values in training, some libraries send NaN with zero, or with the
    most rows.
    """
    bin = int(rank[~goes_left].max(initial=0))
    return bin if bin < rank[goes_left].min(initial=np.iinfo(np.int64).max) else None
