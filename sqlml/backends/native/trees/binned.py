"""Turn the node tests of an Ensemble into comparisons of small integers (bins and ranks)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from sqlml.backends.native.jit.specialise import inlined_helper
from sqlml.backends.native.trees.set_bins import SetBins, make_set_bins
from sqlml.ir.tree_shape import find_largest_below
from sqlml.ir.trees import Ensemble
from sqlml.types import Array

# `Ranks`: the bin of a value is the number of thresholds of the column that are below the value.
#
# Every node test then compares two small integers, a bin and the rank of a threshold, with the same
# result as the float test. A booster trained on histograms has at most 255 thresholds per column,
# so a bin is a byte.
#
# A look-up and a short search find the bin. A column's range is cut into equal cells. A table has
# the number of thresholds in lower cells, and a branchless binary search finds the value among the
# few thresholds in the same cell. A threshold in a lower cell is below the value, because both
# cells come from the same product, and rounding is monotonic. Columns with crowded thresholds have
# one cell and use only the binary search.

MAX_CELLS = 16384
"""The most cells of a column: 64 KB. With 4,096 cells, 10,000 thresholds took 1.5 times as long."""

SPARE_STEPS = 2
"""Halving steps that a table of cells must save to be worth a look-up."""

FEW = 16
"""In columns with up to this many thresholds, each value is compared with all of them."""

TILE = 16
"""Columns that are read together. A cache line holds this many float32 numbers."""

PAGE = 255
"""The most thresholds of a page, because a bin of one byte counts up to 255."""


@dataclass(frozen=True, slots=True, eq=False)
class Ranks:
    """Tables that turn C columns into bins of `dtype`, uint8 or uint16, in `width` panel columns.

    In the panel column `high`, NaN has the bin `nan_bin`. A column whose nodes send NaN both ways
    also has a panel column `least`, where NaN has bin 0 and `shift` is added to other bins. If bins
    exceed a byte, a column may have several consecutive panel columns, called pages. Page p holds
    the part of a bin between PAGE * p and PAGE * (p + 1).
    """

    dtype: np.dtype[Any]
    width: int
    thresholds: Array  # (T,) of the tests' dtype, column by column, each padded with infinities.
    begin: Array  # int64 (C,), where a column's thresholds begin.
    steps: Array  # int64 (C,), halving steps of a search.
    low: Array  # (C,) of the tests' dtype: `low` and `scale` map a value to its cell.
    scale: Array
    top: Array  # (C,) of the tests' dtype, the index of the last cell.
    cells: Array  # int32, the number of thresholds below each cell.
    first: Array  # int64 (C,), where a column's cells begin.
    high: Array  # int64 (C,).
    least: Array  # int64 (C,), -1 if there is no such panel column.
    nan_bin: Array  # int64 (C,).
    count: Array  # int64 (C,), the number of thresholds of a column.
    shift: Array  # int64 (C,), 0 or 1.
    pages: Array  # int64 (C,).

    def arrays(self) -> tuple[Array, ...]:
        """Return the arrays that `fill_bins` reads in addition to the columns, in field order."""
        return tuple(getattr(self, field.name) for field in fields(self)[2:])


def make_ranks(
    columns: Sequence[Array],
    nan_bin: Array,
    least: Array,
    shifted: Array,
    threshold_dtype: np.dtype[Any],
    paged: bool = False,
) -> Ranks | None:
    """Build tables for columns with the sorted, distinct thresholds `columns`.

    Returns None if a bin needs more than 16 bits.

    Args:
        nan_bin: int64 (C,), the bin of NaN.
        least: bool (C,), True for columns with a second panel column, where NaN is the lowest bin.
        shifted: bool (C,), True for columns where the bins of numbers in the second panel column
            are one higher, so that a test can distinguish NaN from every number.
        paged: True if every bin must fit into one byte.
    """
    counts = np.array([thresholds.size for thresholds in columns], np.int64)
    shift = shifted.astype(np.int64)
    max_bin = int((counts + shift).max(initial=0))
    if max_bin > np.iinfo(np.uint16).max:
        return None
    grids = [_make_grid(thresholds) for thresholds in columns]
    padding = [np.full(1 << grid.steps, np.inf, threshold_dtype) for grid in grids]
    padded_thresholds = [np.concatenate(arrays) for arrays in zip(columns, padding, strict=True)]
    pages = np.maximum(1, -(-(counts + shift) // PAGE)) if paged else np.ones(counts.size, np.int64)
    has_panel_columns = np.stack([np.ones_like(pages), least], axis=1)
    panel_starts = _find_starts((has_panel_columns * pages[:, None]).ravel()).reshape(-1, 2)
    return Ranks(
        dtype=np.dtype(np.uint8 if paged or max_bin <= PAGE else np.uint16),
        width=int((has_panel_columns * pages[:, None]).sum()),
        thresholds=np.concatenate([*padded_thresholds, np.zeros(0, threshold_dtype)]),
        begin=_find_starts([column.size for column in padded_thresholds]),
        steps=np.array([grid.steps for grid in grids], np.int64),
        low=np.array([grid.low for grid in grids], threshold_dtype),
        scale=np.array([grid.scale for grid in grids], threshold_dtype),
        top=np.array([grid.cells.size - 1 for grid in grids], threshold_dtype),
        cells=np.concatenate([*(grid.cells for grid in grids), np.zeros(0)]).astype(np.int32),
        first=_find_starts([grid.cells.size for grid in grids]),
        high=panel_starts[:, 0].copy(),
        least=np.where(least, panel_starts[:, 1], -1),
        nan_bin=np.asarray(nan_bin, np.int64),
        count=counts,
        shift=shift,
        pages=pages,
    )


def _find_starts(sizes: Sequence[int] | Array) -> Array:
    """Return where each array begins in a concatenation of arrays with these sizes."""
    sizes = np.asarray(sizes, np.int64)
    return np.cumsum(sizes) - sizes


@dataclass(frozen=True, slots=True, eq=False)
class _Grid:
    """Equal cells over a column's thresholds, and the number of thresholds below each cell."""

    low: Any
    scale: Any
    cells: Array
    steps: int


def _make_grid(thresholds: Array) -> _Grid:
    """Return the grid with the fewest halving steps, or a single cell if this saves few steps."""
    number_type = thresholds.dtype.type
    zero = number_type(0)
    single_cell = _Grid(zero, zero, np.zeros(1, np.int64), _count_halvings(thresholds.size))
    finite_thresholds = thresholds[np.isfinite(thresholds)]
    if thresholds.size <= FEW or finite_thresholds.size < 4:
        return single_cell
    best_grid = single_cell
    low, high = finite_thresholds[0], finite_thresholds[-1]
    cell_count = min(1 << _count_halvings(2 * finite_thresholds.size), MAX_CELLS)
    while cell_count <= MAX_CELLS:
        with np.errstate(all="ignore"):
            scale = number_type(cell_count - 1) / (high - low)
            cell_positions = (thresholds - low) * scale
        if not (np.isfinite(scale) and scale > 0 and not np.isnan(cell_positions).any()):
            return best_grid
        cells = np.clip(cell_positions, 0, cell_count - 1).astype(np.int64)
        counts = np.bincount(cells, minlength=cell_count)
        steps = _count_halvings(int(counts.max()))
        if steps + SPARE_STEPS <= single_cell.steps and steps < best_grid.steps:
            best_grid = _Grid(low, scale, np.cumsum(counts) - counts, steps)
        cell_count *= 2
    return best_grid


def _count_halvings(count: int) -> int:
    return int(count).bit_length()


@inlined_helper
def fill_bins(
    x: Any, start: Any, tables: Any, tile: Any, rank: Any, panel: Any, filled: Any
) -> None:
    """Fill `panel` (width * rows) with the bins of x from row `start` on, column by column.

    Args:
        tables: the columns of x, int64 (C,), and `Ranks.arrays()`.
        tile, rank: scratch space, (TILE * rows,) of the tests' dtype and (rows,) of uint32.
        filled: how many of a column's rows are filled.

    Rows after the end of x repeat the last row. With unsigned indices, numba omits the test for
    negative indices. If rows are contiguous, TILE columns are read at a time, because a cache line
    would be evicted before the next column is read. All steps of a column are in one function, so
    that the values stay in the cache.
    """
    columns, thresholds, begin, steps, low, scale, top, cells, first = tables[:9]
    high, least, nan_bins, count, shift, pages = tables[9:]
    rows = rank.size
    valid_rows = min(filled, x.shape[0] - start)
    by_row = x.strides[1] < x.strides[0]
    for c in range(columns.size):
        if c % TILE == 0 and by_row:
            for first_row in range(0, valid_rows, TILE):
                for k in range(min(TILE, columns.size - c)):
                    j = columns[c + k]
                    for r in range(first_row, min(first_row + TILE, valid_rows)):
                        tile[np.uint64(k * rows + r)] = x[start + r, j]
        values = tile[c % TILE * rows : (c % TILE + 1) * rows]
        if not by_row:
            for r in range(valid_rows):
                values[np.uint64(r)] = x[start + r, columns[c]]
        for r in range(valid_rows, filled):
            values[np.uint64(r)] = values[np.uint64(valid_rows - 1)]
        lowest, factor, last_cell = low[c], scale[c], top[c]
        bounds = thresholds[begin[c] :]
        if last_cell > 0:
            table = cells[first[c] :]
            for r in range(filled):
                cell = (values[np.uint64(r)] - lowest) * factor
                cell = cell if cell > 0 else values.dtype.type(0)
                cell = cell if cell < last_cell else last_cell
                rank[np.uint64(r)] = table[np.uint64(np.int32(cell))]
        else:
            for r in range(filled):
                rank[np.uint64(r)] = 0
        if count[c] <= FEW:
            for index in range(count[c]):
                bound = bounds[index]
                for r in range(filled):
                    rank[np.uint64(r)] += np.uint32(bound < values[np.uint64(r)])
        else:
            half = np.uint32(1) << np.uint32(steps[c])
            for _ in range(steps[c]):
                half >>= np.uint32(1)
                for r in range(filled):
                    position = rank[np.uint64(r)]
                    below = bounds[np.uint64(position + half - np.uint32(1))] < values[np.uint64(r)]
                    rank[np.uint64(r)] = position + (half if below else np.uint32(0))
        for side in range(2):
            first_page = least[c] if side else high[c]
            if first_page < 0:
                continue
            nan_bin = np.uint32(0) if side else np.uint32(nan_bins[c])
            added = np.uint32(shift[c]) if side else np.uint32(0)
            if pages[c] == 1:
                bins = panel[first_page * rows :]
                for r in range(filled):
                    number = values[np.uint64(r)]
                    bins[np.uint64(r)] = rank[np.uint64(r)] + added if number == number else nan_bin
                continue
            for page in range(pages[c]):
                bins, before = panel[(first_page + page) * rows :], np.int32(PAGE * page)
                for r in range(filled):
                    number = values[np.uint64(r)]
                    bin = np.int32(rank[np.uint64(r)] + added if number == number else nan_bin)
                    bins[np.uint64(r)] = min(max(bin - before, np.int32(0)), np.int32(PAGE))


PanelArrays = tuple[tuple[Array, ...], tuple[Array, ...] | None]
"""The arrays for `fill_bins`, and the arrays for `fill_set_bins`, or None without sets."""


@dataclass(frozen=True, slots=True, eq=False)
class BinnedTests:
    """Node tests: a row goes left if its bin in panel column slot[i] is in [low[i], rank[i])."""

    tables: Ranks  # The bins of numeric tests.
    columns: Array  # int64 (C,), the columns of the ensemble's input for `tables`.
    sets: SetBins  # Bins of set tests, which follow in the panel.
    slot: Array  # int64 (M,).
    rank: Array  # int64 (M,).
    low: Array  # int64 (M,), 0 for numeric tests.

    @property
    def width(self) -> int:
        return self.tables.width + self.sets.width

    def arrays(self, columns: Array | None) -> PanelArrays:
        """Return the arrays that `fill_bins` and `fill_set_bins` read.

        Column j of the ensemble's input is column columns[j] of the batch (default: j).
        """

        def map_columns(used: Array) -> Array:
            return np.ascontiguousarray(used if columns is None else columns[used], np.int64)

        numeric_arrays = (map_columns(self.columns), *self.tables.arrays())
        if not self.sets.width:
            return numeric_arrays, None
        return numeric_arrays, (map_columns(self.sets.columns), *self.sets.arrays())


def bin_tests(ensemble: Ensemble, paged: bool = False) -> BinnedTests | None:
    """Return node tests of bins (of bytes, if `paged`), or None if the bins are too large."""
    sets = make_set_bins(ensemble)
    if sets is None:
        return None
    is_numeric = sets.of_node < 0
    bounds = (
        ensemble.threshold if ensemble.compare == "le" else find_largest_below(ensemble.threshold)
    )
    used_columns = np.unique(ensemble.feature[is_numeric])
    column_of_node = np.searchsorted(used_columns, ensemble.feature)
    is_nan_only = np.isnan(bounds)  # Only NaN goes left there.
    order = np.argsort(np.where(is_numeric, column_of_node, used_columns.size), kind="stable")
    ends = np.cumsum(np.bincount(column_of_node[is_numeric], minlength=used_columns.size))
    node_groups = np.split(order, ends)[: used_columns.size]
    thresholds = [np.unique(bounds[nodes][~is_nan_only[nodes]]) for nodes in node_groups]
    rank = np.ones(ensemble.nodes, np.int64)
    for column_thresholds, nodes in zip(thresholds, node_groups, strict=True):
        column_ranks = np.searchsorted(column_thresholds, bounds[nodes], side="left") + 1
        rank[nodes] = np.where(is_nan_only[nodes], 0, column_ranks)
    nan_bins = [_find_nan_bin(rank[nodes], ensemble.default_left[nodes]) for nodes in node_groups]
    needs_least = np.array([nan_bin is None for nan_bin in nan_bins], bool)
    sends_only_nan = ensemble.default_left & is_nan_only
    shifted = np.array([sends_only_nan[nodes].any() for nodes in node_groups], bool) & needs_least
    pairs = zip(thresholds, nan_bins, strict=True)
    nan_bin = np.array([t.size if known_bin is None else known_bin for t, known_bin in pairs])
    tables = make_ranks(thresholds, nan_bin, needs_least, shifted, bounds.dtype, paged)
    if tables is None:
        return None
    slots = tables.width + sets.of_node
    for index, nodes in enumerate(node_groups):
        uses_least = ensemble.default_left[nodes] & needs_least[index]
        rank[nodes] += tables.shift[index] * uses_least
        slots[nodes] = np.where(uses_least, tables.least[index], tables.high[index])
    if paged:
        page = np.where(is_numeric, np.maximum(rank - 1, 0) // PAGE, 0)
        slots, rank = slots + page, rank - PAGE * page
    low = sets.bin_of_node
    rank = np.where(is_numeric, rank, low + 1)
    return BinnedTests(tables, used_columns.astype(np.int64), sets, slots, rank, low)


def _find_nan_bin(rank: Array, goes_left: Array) -> int | None:
    """Return a bin that each node sends the same way as NaN, or None if no bin has this property.

    The bin often exists, because some libraries send NaN the same way as zero or as most rows.
    """
    nan_bin = int(rank[~goes_left].max(initial=0))
    return nan_bin if nan_bin < rank[goes_left].min(initial=np.iinfo(np.int64).max) else None
