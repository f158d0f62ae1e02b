"""Check the arrays that turn rows into bins, and rules that several checks share."""

from __future__ import annotations

from typing import Any

import numpy as np

from sqlml.backends.native.jit.specialise import compiled_helper
from sqlml.backends.native.trees.binned import FEW, PAGE
from sqlml.backends.native.trees.set_bins import SIDE

MAX_STEPS = 31
"""The most halving steps of a search, which computes in 32 bits."""

MAX_PAGES = (1 << 16) // PAGE + 1
"""The most panel columns of a column: a bin has at most 16 bits."""

MAX_CODE = 1 << 31
"""A bound of cells and categories, which are converted to 32 bits."""

INVALID = -1


@compiled_helper
def are_between(numbers: Any, low: Any, end: Any) -> Any:
    """Return True if low <= n < end for each of the integers."""
    for number in numbers:
        if number < low or number >= end:
            return False
    return True


@compiled_helper
def are_offsets(offsets: Any, end: Any) -> Any:
    """Return True if integers ascend (with repetition) from at least 0 to at most `end`."""
    previous = np.int64(0)
    for offset in offsets:
        if offset < previous or offset > end:
            return False
        previous = np.int64(offset)
    return True


@compiled_helper
def is_panel_filled_inside(tables: Any, sets: Any, column_count: Any, width: Any) -> Any:
    """Check the arguments of `fill_bins` and `fill_set_bins`.

    Args:
        tables, sets: the arguments of the kernel; `sets` may be None.
        column_count: the number of columns of a row.
        width: the number of panel columns.
    """
    panel_columns = count_panel_columns(tables, column_count, width) if width >= 0 else INVALID
    if panel_columns == INVALID:
        return False
    if sets is None:
        return width <= panel_columns
    set_columns = count_set_columns(sets, column_count, width)
    return set_columns != INVALID and width - set_columns <= panel_columns


@compiled_helper
def count_panel_columns(tables: Any, column_count: Any, width: Any) -> Any:
    """Return how many panel columns `fill_bins` fills, or INVALID if it leaves its arrays."""
    columns, thresholds, begin, steps, low, scale, top, cells, first = tables[:9]
    high, least, nan_bins, count, shift, pages = tables[9:]
    size = min(begin.size, steps.size, low.size, scale.size, top.size, first.size, high.size)
    size = min(size, least.size, nan_bins.size, count.size, shift.size, pages.size)
    if size < columns.size or not are_between(columns, 0, column_count):
        return INVALID
    panel_columns, cells_end = 0, np.int64(0)
    for c in range(columns.size):
        if begin[c] < 0 or begin[c] > thresholds.size or steps[c] < 0 or steps[c] > MAX_STEPS:
            return INVALID
        threshold_count = thresholds.size - begin[c]
        if count[c] < 0 or count[c] > threshold_count or pages[c] < 1 or pages[c] > MAX_PAGES:
            return INVALID
        for first_page in (high[c], least[c]):
            if first_page >= 0:
                if first_page > width - pages[c]:
                    return INVALID
                panel_columns += pages[c]
        max_rank, last_cell = np.int64(0), np.float64(top[c])
        if last_cell > 0:
            # The cells of columns must not overlap, so that each cell is visited once.
            if first[c] < cells_end or first[c] > cells.size:
                return INVALID
            if last_cell >= min(cells.size - first[c], MAX_CODE):
                return INVALID
            cells_end = first[c] + np.int64(last_cell) + 1
            for rank in cells[first[c] : cells_end]:
                if rank < 0:
                    return INVALID
                max_rank = max(max_rank, np.int64(rank))
        # A search reads up to this many thresholds; few thresholds are read without a search.
        if count[c] > FEW and max_rank > threshold_count - (1 << steps[c]) + 1:
            return INVALID
    return panel_columns


@compiled_helper
def count_set_columns(sets: Any, column_count: Any, width: Any) -> Any:
    """Return how many panel columns `fill_set_bins` fills, or INVALID if it leaves its arrays."""
    columns, limit, count, begin, table = sets
    size = min(limit.size, count.size, begin.size)
    if size < columns.size or not are_between(columns, 0, column_count) or table.size > MAX_CODE:
        return INVALID
    set_columns = np.int64(0)
    for c in range(columns.size):
        if limit[c] < 0 or limit[c] > table.size or begin[c] < 0 or begin[c] > table.size:
            return INVALID
        if count[c] < 0 or count[c] % SIDE != 0 or count[c] > width - set_columns:
            return INVALID
        # The codes are followed by those of other numbers and of NaN.
        if count[c] > (table.size - begin[c]) // (limit[c] + 2):
            return INVALID
        set_columns += count[c]
    return set_columns
