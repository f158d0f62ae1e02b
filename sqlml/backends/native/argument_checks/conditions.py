"""Conditions on arrays that argument checks share, and the roles of a check's parameters."""

from __future__ import annotations

from typing import Any

from sqlml.backends.native.jit.helpers import compiled_helper

# A check annotates its parameters with these names, since only the caller knows where an array
# comes from. A constant of many rows in place of a block's rows would let a kernel write beyond its
# results. Other parameters are constants, whose contents a check may read.
Rows = Any
"""Marks a parameter that is always rows of a buffer. Its shape is known, but not its contents."""

RowsOrNothing = Any
"""Marks parameters of which one is rows of a buffer, and the others are constants of length 0."""

MAX_COUNT = 1 << 31
"""The largest count that a check accepts, so that the product of two counts cannot overflow."""


@compiled_helper
def has_indices_below(indices: Any, limit: Any) -> Any:
    """Return True if each index is at least 0 and below `limit`."""
    is_valid = True
    for i in range(indices.size):
        is_valid &= (indices[i] >= 0) & (indices[i] < limit)
    return is_valid


@compiled_helper
def has_valid_ends(ends: Any, size: Any) -> Any:
    """Return True if `ends` divides `size` items into consecutive parts, the first from item 0."""
    previous = 0
    for i in range(ends.size):
        if ends[i] < previous or ends[i] > size:
            return False
        previous = ends[i]
    return True


@compiled_helper
def has_valid_offsets(offsets: Any, part_count: Any, least: Any, size: Any) -> Any:
    """Return True if part k is from offsets[k] to offsets[k + 1], with at least `least` items."""
    if offsets.size != part_count + 1 or offsets[0] < 0 or offsets[0] > size:
        return False
    for k in range(part_count):
        if offsets[k + 1] < offsets[k] + least or offsets[k + 1] > size:
            return False
    return True


@compiled_helper
def is_power_of_two(number: Any) -> Any:
    return number > 0 and number & (number - 1) == 0


@compiled_helper
def is_word_table(table: Any) -> Any:
    """Return True if `find_word` of `token_kernels.py` finds or misses any word in `table`.

    A search moves from slot to slot until it reaches an empty one.
    """
    words, ends, slots, hashes = table
    if not (is_power_of_two(slots.size) and hashes.size == slots.size):
        return False
    if not has_valid_ends(ends, words.size):
        return False
    has_empty_slot = False
    for slot in range(slots.size):
        if slots[slot] >= ends.size:
            return False
        has_empty_slot |= slots[slot] < 0
    return has_empty_slot
