"""`look_up_combinations`: values of combinations of categories, in one hash table for each.

A table of many combinations lies in memory, not in the cache, and a row finds nothing where the row
before it did. So a block of rows computes its slots first and asks the memory for all of them, then
finds its keys, and asks for their values meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from sqlml.backends.native.jit.specialise import called, kinds_of, reads, specialise, writes
from sqlml.backends.native.kernel_calls import Call, Rows
from sqlml.backends.native.vm.run import fetch
from sqlml.bounded_cache import cache_by_arrays
from sqlml.ir.operators.categories import MAX_EXACT_INTEGER, MULTIPLIER, unpack_combinations
from sqlml.ir.program import Attrs
from sqlml.types import Array

ROWS = 256
"""Rows of a block."""

_U = np.uint64
_MULTIPLIER, _MIX = _U(MULTIPLIER), _U(0x9E3779B97F4A7C15)
_WHOLE = float(MAX_EXACT_INTEGER)


def combined(attrs: Attrs) -> Callable[[Array], Array]:
    """x (n, k) float64 -> (n, outputs): what `reference.FUNCTIONS` does with these attributes."""
    constants = _tables(attrs)
    width, dtype = int(attrs["widths"].sum()), attrs["values"].dtype
    kernel = _kernel(constants, dtype)

    def look_up(x: Array) -> Array:
        out = np.empty((x.shape[0], width), dtype)
        kernel(x, *constants, out)
        return out

    return look_up


def combining(attrs: Attrs) -> Callable[[Rows, Rows], Call]:
    """The call of the same, for rows and where its values go."""
    constants = _tables(attrs)
    kernel = _kernel(constants, attrs["values"].dtype)
    return lambda x, out: Call(kernel, (x, *constants, out))


def _kernel(constants: tuple[Any, ...], dtype: np.dtype[Any]) -> Callable[..., Any]:
    kinds = (reads(np.float64, 2), *kinds_of(*constants), writes(dtype, 2))
    return specialise(find_combinations, kinds)


def _tables(attrs: Attrs) -> tuple[Any, ...]:
    """`_made_tables`, once for all kernels of a Program."""
    arrays = (attrs["keys"], attrs["values"], attrs["columns"])
    return cache_by_arrays("combinations", arrays, lambda: _made_tables(attrs))


def _made_tables(attrs: Attrs) -> tuple[Any, ...]:
    """The columns of x that combinations have; their places among these, combination by
    combination, and where each combination's end; keys in slots, where each combination's slots
    begin, by how many bits a hash is shifted to make a slot, and the key of empty slots; the values
    of each slot, where they begin, and how many a slot has.

    Empty slots have the values of a combination that is not there, so that also a row whose hash is
    their key gets these.
    """
    given = list(unpack_combinations(attrs))
    bits = np.array([max(1, int(1.5 * c.keys.size).bit_length()) for c in given], np.int64)
    starts = np.cumsum(np.append(0, 1 << bits))
    value_starts = np.cumsum(np.append(0, (1 << bits) * attrs["widths"]))
    empty = np.array([_absent(c.keys) for c in given], np.int64).view(np.uint64)
    keys = np.repeat(empty, 1 << bits)
    values = np.empty(int(value_starts[-1]), attrs["values"].dtype)
    for c, first, last in zip(given, value_starts, value_starts[1:], strict=False):
        values[first:last] = np.tile(c.values[-1], (last - first) // c.values.shape[1])
    slots = (keys, starts[:-1].copy(), 64 - bits, empty)
    numbers = (values, value_starts[:-1].copy(), attrs["widths"])
    own = (attrs["keys"].view(np.uint64), attrs["key_ends"], attrs["values"])
    whole, *others = kinds_of(*slots)
    written = (writes(np.uint64, 1), *others)
    kinds = (kinds_of(*own), written, (writes(values.dtype, 1), *kinds_of(*numbers[1:])))
    specialise(fill_slots, kinds)(own, slots, numbers)
    used, places = np.unique(attrs["columns"], return_inverse=True)
    columns = (used.astype(np.int64), places.astype(np.int64), attrs["column_ends"])
    return (columns, slots, numbers)


def _absent(keys: Array) -> int:
    """A number that is none of some ascending ones."""
    if not keys.size or keys[-1] < np.iinfo(np.int64).max:
        return int(keys[-1]) + 1 if keys.size else 0
    gap = np.flatnonzero(keys[1:] - 1 > keys[:-1])
    return int(keys[gap[0]]) + 1 if gap.size else int(keys[0]) - 1


@called
def _first_slot(key: Any, shift: Any) -> Any:
    return np.int64(((key ^ (key >> _U(29))) * _MIX) >> _U(shift))


def fill_slots(given: Any, slots: Any, values: Any) -> None:
    """Put each key of its combination and its values into a slot that is empty."""
    keys, ends, numbers = given
    taken, starts, shifts, empty = slots
    held, value_starts, widths = values
    first, at = np.int64(0), np.int64(0)
    for p in range(ends.size):
        last, width = (np.int64(1) << (64 - shifts[p])) - 1, widths[p]
        for k in range(first, ends[p]):
            slot = _first_slot(keys[k], shifts[p])
            while taken[starts[p] + slot] != empty[p]:
                slot = (slot + 1) & last
            taken[starts[p] + slot] = keys[k]
            for j in range(width):
                held[value_starts[p] + slot * width + j] = numbers[at + j]
            at += width
        first = ends[p]
        at += width


def find_combinations(x: Any, columns: Any, slots: Any, values: Any, out: Any) -> None:
    """Write the values of the combinations of each row of x (n, k) to out (n, outputs)."""
    used, column, ends = columns
    taken, starts, shifts, empty = slots
    numbers, value_starts, widths = values
    whole = np.empty((used.size, ROWS), np.uint64)
    key, slot = np.empty(ROWS, np.uint64), np.empty(ROWS, np.int64)
    for first in range(0, x.shape[0], ROWS):
        rows = min(ROWS, x.shape[0] - first)
        for r in range(rows):
            for c in range(used.size):
                value = x[first + r, used[c]]
                whole[c, r] = _U(np.int64(value)) if -_WHOLE < value < _WHOLE else _U(0)
        begin, to = np.int64(0), np.int64(0)
        for p in range(widths.size):
            start, width, last = starts[p], widths[p], (np.int64(1) << (64 - shifts[p])) - 1
            key[:rows] = _U(0)
            for c in range(begin, ends[p]):
                own = whole[column[c]]
                for r in range(rows):
                    key[r] = _MULTIPLIER * (key[r] + _MULTIPLIER * own[r])
            for r in range(rows):
                slot[r] = _first_slot(key[r], shifts[p])
                fetch(taken, _U(start + slot[r]))
            for r in range(rows):
                at = slot[r]
                found = taken[start + at]
                while found != key[r] and found != empty[p]:
                    at = (at + 1) & last
                    found = taken[start + at]
                slot[r] = value_starts[p] + at * width
                fetch(numbers, _U(slot[r]))
            for r in range(rows):
                for j in range(width):
                    out[first + r, to + j] = numbers[slot[r] + j]
            begin = ends[p]
            to += width
