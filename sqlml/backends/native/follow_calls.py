"""`follow`: machine code that makes the calls of a table one after the other (`kernel_calls.py`).

The row path of DuckDB follows a table for its vectors of rows. `Follower` does it for rows and
texts that Python holds: one call in place of many, each of which would take some microseconds.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sqlml.backends.native.jit.process_memory import call_1, free, malloc, words_at
from sqlml.backends.native.jit.specialise import COUNT, helper, reads, specialise, writes
from sqlml.backends.native.kernel_calls import ADDRESS, KernelCalls
from sqlml.types import Array

ALIGN = 64

BLOCK_BYTES, MOST_ROWS = 4 << 20, 512
"""Most bytes of the numbers between of a block of rows, if it has more than one, and most rows."""


class Follower:
    """Calls for rows, results, texts, and numbers between. Thread-safe.

    Args:
        table: what `calls` wrote down.
        ends: how many of the places between are given: those of the texts' addresses, which come
            first.

    Attributes:
        block: how many rows are scored together at most.
    """

    def __init__(self, calls: KernelCalls, table: Array, ends: int) -> None:
        self._kept = calls
        self._sizes = np.array(calls.scratch()[ends:], np.int64)
        self._table, self._count = table, len(calls.calls)
        self._words = calls.most_words()
        self.block = max(1, min(MOST_ROWS, BLOCK_BYTES // max(1, int(self._sizes.sum()))))
        byte = (reads(np.uint8, 2, "C"), reads(np.int64, 2, "C"), writes(np.uint8, 2))
        counts = (COUNT,) * 5
        table_kind = reads(np.int64, 1, "C")
        self._run = specialise(follow_blocks, (table_kind, *counts, table_kind, *byte))

    def run(self, x: Array, ends: Array, out: Array, first: int, stop: int, block: int) -> int:
        """Score rows from `first` on, `block` of them together; the first one of a block that is
        refused, or `stop`.

        x: (n, w), and out: (n, k), of the dtypes of the calls. ends: int64 (m, n), the addresses
        where the texts of a column begin, and where they end, column by column.
        """
        bytes_of = x.view(np.uint8), ends, out.view(np.uint8)
        counts = self._count, self._words, block, first, stop
        found: int = self._run(self._table, *counts, self._sizes, *bytes_of)
        return found


@helper
def aligned(number: Any) -> Any:
    """The next address that a cache line begins with."""
    return (number + ALIGN - 1) // ALIGN * ALIGN


@helper
def follow(table: Any, calls: Any, rows: Any, places: Any, words: Any) -> Any:
    """Make the calls of a table for a block of rows; the first result other than -1, else -1."""
    at = 0
    for _ in range(calls):
        address, size, changes = table[at], table[at + 1], table[at + 2]
        at += 3
        for i in range(size):
            words[i] = table[at + i]
        at += size
        for _ in range(changes):
            what, value = table[at + 1], table[at + 2]
            if what == ADDRESS:
                words[table[at]] = places[value >> 32] + (value & 0xFFFFFFFF)
            else:
                words[table[at]] = value * rows
            at += 3
        found = call_1(address, words.ctypes.data)
        if found >= 0 or found < -1:
            return found
    return -1


def follow_blocks(
    table: Any,
    calls: Any,
    most: Any,
    block: Any,
    first: Any,
    stop: Any,
    sizes: Any,
    x: Any,
    ends: Any,
    out: Any,
) -> Any:
    """Make the calls for each block of rows; where they end (`Follower.run`).

    most: words of a call. sizes: bytes a row of each place between. x, out: bytes (n, w), (n, k).
    """
    rows, count, between = out.shape[0], ends.shape[0], sizes.size
    block = min(block, stop - first)
    taken = ALIGN
    for i in range(between):
        taken += aligned(sizes[i] * block)
    room = most + 2 + count + between
    held_at = malloc(8 * room + taken)
    if held_at == 0:
        return first
    held = words_at(held_at, room)
    words, places = held[:most], held[most:]
    at = aligned(held_at + 8 * room)
    for i in range(between):
        places[2 + count + i] = at
        at += aligned(sizes[i] * block)
    while first < stop:
        here = min(block, stop - first)
        places[0] = np.int64(x.ctypes.data) + first * x.shape[1]
        places[1] = np.int64(out.ctypes.data) + first * out.shape[1]
        for i in range(count):
            places[2 + i] = np.int64(ends.ctypes.data) + 8 * (i * rows + first)
        if follow(table, calls, here, places, words) != -1:
            break
        first += here
    free(held_at)
    return first
