"""Make the kernel calls of a table (`kernel_calls.py`) in machine code."""

from __future__ import annotations

from typing import Any

from sqlml.backends.native.jit.process_memory import call_1
from sqlml.backends.native.jit.specialise import inlined_helper
from sqlml.backends.native.kernel_calls import PATCH_ADDRESS

ALIGN = 64
"""Bytes of a cache line, at which scratch buffers begin."""


@inlined_helper
def align_address(address: Any) -> Any:
    """Round an address up to the beginning of a cache line."""
    return (address + ALIGN - 1) // ALIGN * ALIGN


@inlined_helper
def follow(table: Any, call_count: Any, rows: Any, buffers: Any, words: Any) -> Any:
    """Make the calls of `table` for a block of rows; stop if a call returns anything but -1.

    Returns the result of the last call. `buffers` holds the addresses of the buffers, and `words`
    is scratch space.
    """
    index = 0
    for _ in range(call_count):
        address, word_count, patch_count = table[index], table[index + 1], table[index + 2]
        index += 3
        for i in range(word_count):
            words[i] = table[index + i]
        index += word_count
        for _ in range(patch_count):
            patch_kind, value = table[index + 1], table[index + 2]
            if patch_kind == PATCH_ADDRESS:
                words[table[index]] = buffers[value >> 32] + (value & 0xFFFFFFFF)
            else:
                words[table[index]] = value * rows
            index += 3
        result = call_1(address, words.ctypes.data)
        if result >= 0 or result < -1:
            return result
    return -1
