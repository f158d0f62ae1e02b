"""Checks of the arguments of the kernels in `rows/`.

A check has the parameters of its kernel. It returns True only if the kernel stays inside its
arrays and ends, whatever its rows contain and however many there are. In the call of a check, an
array of rows has a single row at an invalid address, so only its shape may be read.

Kernels stay inside their arrays of rows if these are as wide as the constants require. Constants
may be of any size, but arrays with a length of 0 may have other lengths that no memory backs. So a
length is compared with a width of rows, or with the length of a flat array, before it is used.
"""

from __future__ import annotations

from typing import Any

from sqlml.backends.native.argument_checks.conditions import (
    Rows,
    has_indices_below,
    has_valid_ends,
    has_valid_offsets,
    is_power_of_two,
)
from sqlml.backends.native.jit.helpers import compiled_helper
from sqlml.backends.native.rows.matmul_tiles import SINGLE_WIDTH, TILE_ROWS


def check_read_rows(x: Rows) -> Any:
    """Check a kernel that only reads the columns of its rows, so any rows fit."""
    return x.shape[1] >= 0


def check_equal_widths(x: Rows, out: Rows) -> Any:
    """Check a kernel that writes each number of x (n, k) to the same column of `out`."""
    return x.shape[1] == out.shape[1]


def check_first_columns(x: Rows, out: Rows) -> Any:
    """Check a kernel that computes column 0 of `out` from a row with at least one column."""
    return x.shape[1] > 0 and out.shape[1] > 0


# ---- column_kernels.py, sparse.py


def check_convert(x: Rows, out: Rows) -> Any:
    """Check `_convert`, whose arrays are flat."""
    return x.size == out.size


def check_take(x: Rows, columns: Any, out: Rows) -> Any:
    """Check `_take`."""
    return columns.size == out.shape[1] and has_indices_below(columns, x.shape[1])


def check_shift(x: Rows, offsets: Any, out: Rows) -> Any:
    """Check `_shift`."""
    return x.shape[1] == offsets.size and offsets.size == out.shape[1]


def check_impute(x: Rows, fill: Any, missing: Any, out: Rows) -> Any:
    """Check `_impute`."""
    has_equal_widths = x.shape[1] == fill.size and fill.size == out.shape[1]
    return has_equal_widths and missing.size > 0


def check_limits(x: Rows, low: Any, high: Any, allow_nan: Any) -> Any:
    """Check `_is_outside`."""
    return low.size == x.shape[1] and high.size == x.shape[1]


def check_map(x: Rows, a: Any, b: Any, map_code: Any, allow_nan: Any, out: Rows) -> Any:
    """Check `_map`, which advances by the length of `a`."""
    return a.size > 0 and b.size == a.size and x.size == out.size


def check_normalise(x: Rows, settings: Any, limits: Any, out: Rows) -> Any:
    """Check `_normalise`, which advances by the width of a row, the first setting."""
    if settings.size != 2 or limits.size != 1 or x.size != out.size:
        return False
    return settings[0] == x.size and x.size > 0


def check_repeated_row(row: Any, out: Rows) -> Any:
    """Check `_fill` and `_add`."""
    return row.size == out.shape[1]


def check_products(x: Rows, weights: Any, out: Rows) -> Any:
    """Check `_add_products`."""
    return weights.shape[0] == x.shape[1] and weights.shape[1] == out.shape[1]


# ---- linear_kernels.py, matmul_tiles.py, distance_kernels.py, weighted_median.py


def check_linear(x: Rows, weights: Any, bias: Any, out: Rows) -> Any:
    """Check `_one_output` and `_outputs`."""
    is_wide_enough = bias.size > 0 and bias.size == out.shape[1]
    return is_wide_enough and weights.shape[0] == x.shape[1] and weights.shape[1] == out.shape[1]


def check_norms(x: Rows, means: Any, rotations: Any, rotated_width: Any, out: Rows) -> Any:
    """Check `_norms`, which reads whole tiles of the rotations of each class."""
    classes, width = out.shape[1], x.shape[1]
    if classes <= 0 or width <= 0 or means.shape[0] != classes or means.shape[1] != width:
        return False
    padded_width = rotations.shape[0] // classes
    is_padded = rotations.shape[1] == width and padded_width % TILE_ROWS == 0
    return is_padded and 0 <= rotated_width and rotated_width <= padded_width


def check_pairwise(x: Rows, points: Any, metric_code: Any, out: Rows) -> Any:
    """Check `_pairwise`."""
    return points.shape[0] == x.shape[1] and points.shape[1] == out.shape[1]


def check_nearest(x: Rows, tree: Any, takes_roots: Any, out: Rows) -> Any:
    """Check `_find_nearest`; `tree` is described at `_fill_heaps`.

    The tree is complete, because all nodes before the middle have two children. So its depth, and
    the height of the stack, is the logarithm of a number of nodes that fit into a file.
    """
    points, order, node_ranges, node_bounds, settings = tree
    point_count, node_count, width = order.size, node_ranges.shape[0], x.shape[1]
    if points.shape[0] != point_count or points.shape[1] != width or out.shape[1] < 2:
        return False
    # The norms that the expanded form reads are not among the arguments.
    if settings.size != 3 or settings[2] != 0:
        return False
    if node_ranges.shape[1] != 2 or node_count % 2 == 0:
        return False
    if node_count > 1:
        least_width = 2 * width if settings[1] == 1 else width + 1
        if node_bounds.shape[0] != node_count or node_bounds.shape[1] < least_width:
            return False
    # Leaves that share points would make a search slower than one without a tree.
    remaining = point_count
    for node in range(node_count // 2, node_count):
        start, stop = node_ranges[node, 0], node_ranges[node, 1]
        if start < 0 or start > stop or stop > point_count or stop - start > remaining:
            return False
        remaining -= stop - start
    return True


def check_first_nearest(x: Rows, points: Any, point_count: Any, takes_roots: Any, out: Rows) -> Any:
    """Check `_find_first`, which reads whole panels of points."""
    panels, width, neighbours = points.shape[0], x.shape[1], out.shape[1] // 2
    if width < 1 or points.shape[1] != width or points.shape[2] != SINGLE_WIDTH:
        return False
    if point_count < 1 or panels != (point_count - 1) // SINGLE_WIDTH + 1:
        return False
    return out.shape[1] == 2 * neighbours and neighbours > 0 and neighbours <= point_count


def check_medians(x: Rows, weights: Any, out: Rows) -> Any:
    """Check `_find_medians`."""
    return weights.size > 0 and weights.size == x.shape[1] and out.shape[1] > 0


# ---- number_codes.py, normal_distribution.py, piecewise_kernels.py


def check_number_codes(x: Rows, slots: Any, codes: Any, missing_code: Any, out: Rows) -> Any:
    """Check `_look_up`, whose search ends at an empty slot, which is NaN."""
    if not is_power_of_two(slots.size) or codes.size != slots.size:
        return False
    has_empty_slot = False
    for slot in range(slots.size):
        has_empty_slot |= slots[slot] != slots[slot]
    return has_empty_slot and x.shape[1] > 0 and out.shape[1] > 0


@compiled_helper
def _is_fraction(coefficients: Any) -> Any:
    """Return True if `coefficients` (2, k) are those of two polynomials."""
    return coefficients.shape[0] == 2 and coefficients.shape[1] > 0


def check_quantiles(x: Rows, middle: Any, near_tail: Any, far_tail: Any, out: Rows) -> Any:
    """Check `_find_quantiles`."""
    has_fractions = _is_fraction(middle) and _is_fraction(near_tail) and _is_fraction(far_tail)
    return has_fractions and x.shape[1] == out.shape[1]


def check_search(x: Rows, edges: Any, offsets: Any, right: Any, out: Rows) -> Any:
    """Check `_search`, whose search ends for edges in any order."""
    width = x.shape[1]
    return width == out.shape[1] and has_valid_offsets(offsets, width, 0, edges.size)


def check_interpolate(
    x: Rows, points: Any, values: Any, slopes: Any, offsets: Any, out: Rows
) -> Any:
    """Check `_interpolate`, which reads the first and the last point of each column."""
    width = x.shape[1]
    if width != out.shape[1] or values.size != points.size or slopes.size != points.size:
        return False
    return has_valid_offsets(offsets, width, 1, points.size)


def check_bspline(x: Rows, knots: Any, degree: Any, out: Rows) -> Any:
    """Check `_bspline`; a column needs a knot span that `degree` others precede and follow."""
    width, knot_count = x.shape[1], knots.shape[1]
    if width <= 0 or knots.shape[0] != width or degree < 0 or degree >= knot_count // 2:
        return False
    # The last span begins at knot knot_count - degree - 2.
    return out.shape[1] % width == 0 and out.shape[1] // width == knot_count - degree - 1


# ---- combinations.py


def check_combinations(x: Rows, columns: Any, slots: Any, values: Any, out: Rows) -> Any:
    """Check `find_combinations`; `combinations._make_tables` describes the tuples.

    Each table has an empty slot, where a search for an unknown key ends. The tables of slots follow
    each other, so that all slots are read only once.
    """
    columns_read, positions, column_ends = columns
    stored_keys, starts, shifts, empty_keys = slots
    stored_values, value_starts, widths = values
    table_count = widths.size
    if column_ends.size != table_count or value_starts.size != table_count:
        return False
    if starts.size != table_count or shifts.size != table_count or empty_keys.size != table_count:
        return False
    if columns_read.size > x.shape[1] or not has_indices_below(columns_read, x.shape[1]):
        return False
    if not has_indices_below(positions, columns_read.size):
        return False
    if not has_valid_ends(column_ends, positions.size):
        return False
    least_start, remaining_width = 0, out.shape[1]
    for table in range(table_count):
        start, shift, width = starts[table], shifts[table], widths[table]
        if shift < 24 or shift > 63:
            return False
        slot_count = 1 << (64 - shift)
        if start < least_start or start > stored_keys.size - slot_count:
            return False
        value_start = value_starts[table]
        if width < 0 or width > remaining_width:
            return False
        if value_start < 0 or value_start > stored_values.size:
            return False
        if width > (stored_values.size - value_start) // slot_count:
            return False
        has_empty_slot = False
        for slot in range(start, start + slot_count):
            has_empty_slot |= stored_keys[slot] == empty_keys[table]
        if not has_empty_slot:
            return False
        least_start = start + slot_count
        remaining_width -= width
    return remaining_width == 0
