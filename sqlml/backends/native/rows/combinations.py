"""`look_up_combinations`: values of combinations of categories, in one hash table for each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from sqlml.backends.native.jit.specialise import called, kinds_of, reads, specialise, writes
from sqlml.backends.native.kernel_calls import Call, Rows
from sqlml.ir.operators.combinations import MOST_WHOLE, MULTIPLIER
from sqlml.ir.program import Attrs
from sqlml.types import Array

_U = np.uint64
_MULTIPLIER, _MIX = _U(MULTIPLIER), _U(0x9E3779B97F4A7C15)
_WHOLE = float(MOST_WHOLE)


def combined(attrs: Attrs) -> Callable[[Array], Array]:
    """x (n, k) float64 -> (n, outputs): what `reference.FUNCTIONS` does with these attributes."""
    constants = _constants(attrs)
    width, dtype = int(attrs["widths"].sum()), attrs["values"].dtype
    kernel = _kernel(constants, dtype)

    def look_up(x: Array) -> Array:
        out = np.empty((x.shape[0], width), dtype)
        kernel(x, *constants, out)
        return out

    return look_up


def combining(attrs: Attrs) -> Callable[[Rows, Rows], Call]:
    """The call of the same, for rows and where its values go."""
    constants = _constants(attrs)
    kernel = _kernel(constants, attrs["values"].dtype)
    return lambda x, out: Call(kernel, (x, *constants, out))


def _kernel(constants: tuple[Any, ...], dtype: np.dtype[Any]) -> Callable[..., Any]:
    kinds = (reads(np.float64, 2), *kinds_of(*constants), writes(dtype, 2))
    return specialise(find_combinations, kinds)


def _constants(attrs: Attrs) -> tuple[Any, ...]:
    """Columns, where each combination's end; keys, and where each combination's begin; the places
    of keys in slots, -1 for an empty one, where each combination's begin, and by how many bits a
    hash is shifted to make a slot; values, where they begin, and how many a key has."""
    counts = np.diff(attrs["key_ends"], prepend=0)
    bits = np.array([max(1, int(2 * count).bit_length()) for count in counts.tolist()], np.int64)
    key_starts = attrs["key_ends"] - counts
    slot_starts = np.cumsum(np.append(0, 1 << bits))
    value_starts = np.cumsum(np.append(0, (counts + 1) * attrs["widths"]))
    slots = np.full(int(slot_starts[-1]), -1, np.int32)
    keys = attrs["keys"].view(np.uint64)
    table = (keys, attrs["key_ends"], slots, slot_starts[:-1].copy(), 64 - bits)
    kinds = kinds_of(*table)
    specialise(fill_slots, (*kinds[:2], writes(np.int32, 1), *kinds[3:]))(*table)
    columns = attrs["columns"].astype(np.int64)
    return (
        (columns, attrs["column_ends"]),
        (keys, key_starts, attrs["key_ends"]),
        (slots, slot_starts[:-1].copy(), 64 - bits),
        (attrs["values"], value_starts[:-1].copy(), attrs["widths"]),
    )


@called
def _first_slot(key: Any, shift: Any) -> Any:
    return np.int64(((key ^ (key >> _U(29))) * _MIX) >> _U(shift))


def fill_slots(keys: Any, ends: Any, slots: Any, starts: Any, shifts: Any) -> None:
    """Put the place of each key among its combination's into slots that are empty."""
    first = np.int64(0)
    for p in range(ends.size):
        last = (np.int64(1) << (64 - shifts[p])) - 1
        for k in range(first, ends[p]):
            slot = _first_slot(keys[k], shifts[p])
            while slots[starts[p] + slot] >= 0:
                slot = (slot + 1) & last
            slots[starts[p] + slot] = k - first
        first = ends[p]


def find_combinations(x: Any, columns: Any, keys: Any, slots: Any, values: Any, out: Any) -> None:
    """Write the values of the combinations of each row of x (n, k) to out (n, outputs)."""
    column, column_ends = columns
    known, key_starts, key_ends = keys
    taken, slot_starts, shifts = slots
    numbers, value_starts, widths = values
    begin, to = np.int64(0), np.int64(0)
    for p in range(widths.size):
        first_key, missing = key_starts[p], key_ends[p] - key_starts[p]
        first_slot, last = slot_starts[p], (np.int64(1) << (64 - shifts[p])) - 1
        for r in range(out.shape[0]):
            key = _U(0)
            for c in range(begin, column_ends[p]):
                value = x[r, column[c]]
                whole = np.int64(value) if -_WHOLE < value < _WHOLE else np.int64(0)
                key = _MULTIPLIER * (key + _MULTIPLIER * _U(whole))
            slot = _first_slot(key, shifts[p])
            place = np.int64(taken[first_slot + slot])
            while place >= 0 and known[first_key + place] != key:
                slot = (slot + 1) & last
                place = np.int64(taken[first_slot + slot])
            if place < 0:
                place = missing
            at = value_starts[p] + place * widths[p]
            for j in range(widths[p]):
                out[r, to + j] = numbers[at + j]
        begin = column_ends[p]
        to += widths[p]
