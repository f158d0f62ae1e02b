"""Encode numbers as the indices of known categories, as the operator `encode` does."""

from __future__ import annotations

from typing import Any

import numpy as np

from sqlml.backends.native.jit.helpers import compiled_helper
from sqlml.backends.native.kernel_calls import RowKernel
from sqlml.types import Array

_U = np.uint64
_MIX = _U(0x9E3779B97F4A7C15)


def make_code_kernel(categories: Array, missing_code: int, dtype: np.dtype[Any]) -> RowKernel:
    """Return a kernel that maps x (n, 1) of `dtype` to float64 codes (n, 1).

    The last of equal categories determines the code. An unknown number gets -1, and NaN gets
    `missing_code`.
    """
    indices = np.flatnonzero(categories == categories)[::-1]
    numbers, first_indices = np.unique(categories[indices], return_index=True)
    table = _make_table(numbers.astype(np.float64), indices[first_indices].astype(np.float64))
    constants = (*table, missing_code)
    code_dtype = np.dtype(np.float64)
    return RowKernel.of(_look_up, dtype, constants, 1, code_dtype, takes_any_stride=True)


def _make_table(numbers: Array, codes: Array) -> tuple[Array, Array]:
    """Return a hash table of distinct numbers: the numbers in 2**k slots, and their codes.

    At least half of the slots are empty, which is marked by NaN.
    """
    slot_count = 1 << max(1, int(2 * numbers.size).bit_length())
    slots, slot_codes = np.full(slot_count, np.nan), np.zeros(slot_count)
    with np.errstate(over="ignore"):
        slot_of_number = (_hash_bits((numbers + 0.0).view(np.uint64)) & _U(slot_count - 1)).astype(
            np.int64
        )
    waiting = np.arange(numbers.size)
    while waiting.size:
        # The first number of those that want an empty slot gets it; others move to the next slot.
        candidates = waiting[np.isnan(slots[slot_of_number[waiting]])]
        taken, first = np.unique(slot_of_number[candidates], return_index=True)
        slots[taken], slot_codes[taken] = numbers[candidates[first]], codes[candidates[first]]
        waiting = np.setdiff1d(waiting, candidates[first], assume_unique=True)
        slot_of_number[waiting] = (slot_of_number[waiting] + 1) % slot_count
    return slots, slot_codes


@compiled_helper
def _hash_bits(bits: Any) -> Any:
    """Mix the 64 bits of a number: the low bits of most integers, as float64, are 0."""
    mixed = bits * _MIX
    return ((mixed ^ (mixed >> _U(32))) * _MIX) >> _U(32)


def _look_up(x: Any, slots: Any, codes: Any, missing_code: Any, out: Any) -> None:
    last_slot = _U(slots.size - 1)
    for r in range(x.shape[0]):
        value = np.float64(x[r, 0]) + 0.0  # This turns -0.0 into 0.0.
        slot = _hash_bits(np.float64(value).view(np.uint64)) & last_slot
        while slots[slot] != value and slots[slot] == slots[slot]:
            slot = (slot + _U(1)) & last_slot
        code = codes[slot] if slots[slot] == value else -1.0
        out[r, 0] = np.float64(missing_code) if value != value else code
