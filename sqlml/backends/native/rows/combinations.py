"""`look_up_combinations`: look up the values of combinations of categories in hash tables.

The tables of many combinations exceed the cache, and successive rows read unrelated slots. So the
slots of a block of rows are computed and prefetched before the keys are compared, and the values
are prefetched before they are copied.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sqlml.backends.native.jit.specialise import compiled_helper, specialise, to_kinds, writes
from sqlml.backends.native.kernel_calls import RowKernel
from sqlml.backends.native.vm.register_machine import fetch
from sqlml.bounded_cache import cache_by_arrays
from sqlml.ir.operators.categories import MAX_EXACT_INTEGER, MULTIPLIER, unpack_combinations
from sqlml.ir.program import Attrs
from sqlml.types import Array

ROWS = 256
"""Rows per block."""

_U = np.uint64
_MULTIPLIER, _MIX = _U(MULTIPLIER), _U(0x9E3779B97F4A7C15)
_WHOLE = float(MAX_EXACT_INTEGER)


def make_combination_kernel(attrs: Attrs) -> RowKernel:
    """Return a kernel that looks up the values of column combinations in float64 x (n, k)."""
    width, dtype = int(attrs["widths"].sum()), attrs["values"].dtype
    arrays = (attrs["keys"], attrs["values"], attrs["columns"])
    tables = cache_by_arrays("combinations", arrays, lambda: _make_tables(attrs))
    return RowKernel.of(find_combinations, np.dtype(np.float64), tables, width, dtype)


def _make_tables(attrs: Attrs) -> tuple[Any, ...]:
    """Build the arguments `columns`, `slots` and `values` of `find_combinations`.

    columns: the columns of x that are read; the positions in this list of each combination's
        columns; and where the positions of each combination end.
    slots: the key in each slot; and per combination, where the slots begin, the shift that turns a
        hash into a slot, and the key that marks empty slots.
    values: the values of each slot; and per combination, where the values begin and how many a slot
        has. Empty slots hold the values of an absent combination.
    """
    combinations = list(unpack_combinations(attrs))
    bits = np.array([max(1, int(1.5 * c.keys.size).bit_length()) for c in combinations], np.int64)
    starts = np.cumsum(np.append(0, 1 << bits))
    value_starts = np.cumsum(np.append(0, (1 << bits) * attrs["widths"]))
    absent_keys = [_find_absent_key(combination.keys) for combination in combinations]
    empty_keys = np.array(absent_keys, np.int64).view(np.uint64)
    slot_keys = np.repeat(empty_keys, 1 << bits)
    values = np.empty(int(value_starts[-1]), attrs["values"].dtype)
    for combination, start, stop in zip(combinations, value_starts, value_starts[1:], strict=False):
        slot_count = (stop - start) // combination.values.shape[1]
        values[start:stop] = np.tile(combination.values[-1], slot_count)
    slots = (slot_keys, starts[:-1].copy(), 64 - bits, empty_keys)
    slot_values = (values, value_starts[:-1].copy(), attrs["widths"])
    source_tables = (attrs["keys"].view(np.uint64), attrs["key_ends"], attrs["values"])
    _, *other_kinds = to_kinds(*slots)
    written_slots = (writes(np.uint64, 1), *other_kinds)
    written_values = (writes(values.dtype, 1), *to_kinds(*slot_values[1:]))
    kernel = specialise(fill_slots, (to_kinds(*source_tables), written_slots, written_values))
    kernel(source_tables, slots, slot_values)
    columns_read, positions = np.unique(attrs["columns"], return_inverse=True)
    columns = (columns_read.astype(np.int64), positions.astype(np.int64), attrs["column_ends"])
    return (columns, slots, slot_values)


def _find_absent_key(keys: Array) -> int:
    if not keys.size or keys[-1] < np.iinfo(np.int64).max:
        return int(keys[-1]) + 1 if keys.size else 0
    gaps = np.flatnonzero(keys[1:] - 1 > keys[:-1])
    return int(keys[gaps[0]]) + 1 if gaps.size else int(keys[0]) - 1


@compiled_helper
def _choose_first_slot(key: Any, shift: Any) -> Any:
    return np.int64(((key ^ (key >> _U(29))) * _MIX) >> _U(shift))


def fill_slots(sources: Any, slots: Any, values: Any) -> None:
    """Put each key and the key's values into an empty slot of the combination's table."""
    keys, ends, source_values = sources
    stored_keys, starts, shifts, empty_keys = slots
    stored_values, value_starts, widths = values
    begin, value_offset = np.int64(0), np.int64(0)
    for table in range(ends.size):
        slot_mask, width = (np.int64(1) << (64 - shifts[table])) - 1, widths[table]
        for index in range(begin, ends[table]):
            slot = _choose_first_slot(keys[index], shifts[table])
            while stored_keys[starts[table] + slot] != empty_keys[table]:
                slot = (slot + 1) & slot_mask
            stored_keys[starts[table] + slot] = keys[index]
            target = value_starts[table] + slot * width
            for output in range(width):
                stored_values[target + output] = source_values[value_offset + output]
            value_offset += width
        begin = ends[table]
        value_offset += width


def find_combinations(x: Any, columns: Any, slots: Any, values: Any, out: Any) -> None:
    """Write the values of each row's combinations to out (n, outputs)."""
    columns_read, positions, ends = columns
    stored_keys, starts, shifts, empty_keys = slots
    stored_values, value_starts, widths = values
    column_integers = np.empty((columns_read.size, ROWS), np.uint64)
    row_keys, row_slots = np.empty(ROWS, np.uint64), np.empty(ROWS, np.int64)
    for first_row in range(0, x.shape[0], ROWS):
        rows = min(ROWS, x.shape[0] - first_row)
        for r in range(rows):
            for c in range(columns_read.size):
                value = x[first_row + r, columns_read[c]]
                column_integers[c, r] = _U(np.int64(value)) if -_WHOLE < value < _WHOLE else _U(0)
        begin, output = np.int64(0), np.int64(0)
        for table in range(widths.size):
            start, width = starts[table], widths[table]
            slot_mask = (np.int64(1) << (64 - shifts[table])) - 1
            row_keys[:rows] = _U(0)
            for c in range(begin, ends[table]):
                column_values = column_integers[positions[c]]
                for r in range(rows):
                    row_keys[r] = _MULTIPLIER * (row_keys[r] + _MULTIPLIER * column_values[r])
            for r in range(rows):
                row_slots[r] = _choose_first_slot(row_keys[r], shifts[table])
                fetch(stored_keys, _U(start + row_slots[r]))
            for r in range(rows):
                position = row_slots[r]
                stored_key = stored_keys[start + position]
                while stored_key != row_keys[r] and stored_key != empty_keys[table]:
                    position = (position + 1) & slot_mask
                    stored_key = stored_keys[start + position]
                row_slots[r] = value_starts[table] + position * width
                fetch(stored_values, _U(row_slots[r]))
            for r in range(rows):
                for j in range(width):
                    out[first_row + r, output + j] = stored_values[row_slots[r] + j]
            begin = ends[table]
            output += width
