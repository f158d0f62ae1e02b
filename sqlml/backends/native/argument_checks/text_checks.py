"""Checks of the arguments of kernels that read texts.

`memory`, `start`, `stop` and `strings` are checked by whoever calls these checks: the kernels get
the texts of the query. So the checks only compare how many items a row has.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sqlml.backends.native.argument_checks.conditions import (
    MAX_COUNT,
    Rows,
    is_power_of_two,
    is_word_table,
)
from sqlml.backends.native.jit.helpers import compiled_helper
from sqlml.backends.native.text.linear_of_texts import SCALE, SELECT, WITHIN, WORDS
from sqlml.backends.native.text.token_kernels import (
    CODE_POINTS,
    PAGE_BITS,
    PAGE_SIZE,
    SPACE,
    WORD,
)
from sqlml.ir.operators.text import MAX_N

_EMPTY = np.uint64((1 << 64) - 1)
"""The first integer of an empty slot in the tables of `plan_bytecode.py`."""

_DAMAGED = 0xFFFD
"""The character that stands for a byte that is not UTF-8."""


def check_text_bounds(strings: Rows, start: Rows, stop: Rows) -> Any:
    """Check `find_ends`: a string takes two integers, and has one start and one stop."""
    return strings.size == 2 and start.size == 1 and stop.size == 1


def check_text_hashes(memory: Any, start: Rows, stop: Rows, out: Rows) -> Any:
    """Check `hash_texts`."""
    return start.size == 1 and stop.size == 1 and out.shape[1] > 0


def check_text_codes(
    strings: Rows, memory: Any, slots: Any, slot_codes: Any, table: Any, long_codes: Any, out: Rows
) -> Any:
    """Check `look_up` of `plan_bytecode.py`; its searches end at empty slots."""
    slot_count = slots.shape[0]
    if strings.size != 2 or out.shape[1] < 1 or slots.shape[1] != 2:
        return False
    if not is_power_of_two(slot_count) or slot_codes.size != slot_count:
        return False
    has_empty_slot = False
    for slot in range(slot_count):
        has_empty_slot |= slots[slot, 0] == _EMPTY
    # The last two codes are for unknown strings and NULL.
    ends = table[1]
    return has_empty_slot and is_word_table(table) and long_codes.size == ends.size + 2


@compiled_helper
def _is_character_tables(tables: Any) -> Any:
    """Return True if `tables` of `token_kernels.py` keep tokens within `measure_capacity`.

    A byte of a text becomes at most three bytes of tokens. ASCII characters, and the character for
    a damaged byte, are read from one byte, and other characters from two bytes or more.
    """
    pages, lower, marks = tables
    if pages.size << PAGE_BITS != CODE_POINTS or lower.size != marks.size:
        return False
    if pages[0] != 0 or lower.size < PAGE_SIZE:
        return False
    has_characters = True
    for code in range(CODE_POINTS):
        place = (np.int64(pages[code >> PAGE_BITS]) << PAGE_BITS) | (code & (PAGE_SIZE - 1))
        if place >= lower.size:
            return False
        lowered = code + np.int64(lower[place])
        limit = 0x10000 if code < 0x80 or code == _DAMAGED else CODE_POINTS
        has_characters &= bool((lowered >= 0) & (lowered < limit))
    # The kernels end the last word of a text with a space.
    return has_characters and marks[0x20] & (SPACE | WORD) == SPACE


@compiled_helper
def _count_columns(operators: Any, columns: Any) -> Any:
    """Return how many columns the operators leave of `columns`, or -1 if one has too few factors.

    The factors of an operator precede those of the operator before, so all are read only once.
    """
    table, factors, _ = operators
    if table.shape[1] != 4:
        return -1
    limit = factors.size
    for k in range(table.shape[0]):
        op, begin, size = table[k, 0], table[k, 2], table[k, 3]
        if begin < 0 or begin > limit or size < 0 or size > limit - begin:
            return -1
        limit = begin
        if op == SCALE and size < (columns if size > 1 else min(columns, 1)):
            return -1
        if op == SELECT:
            if size < columns:
                return -1
            columns = 0
            for j in range(begin, begin + size):
                position = factors[j]
                if not (position >= -1.0 and position < MAX_COUNT):
                    return -1
                columns = max(columns, np.int64(position) + 1)
    return columns


def check_text_sums(memory: Any, start: Rows, stop: Rows, layer: Any, out: Rows) -> Any:
    """Check `add_text_sums`, which describes `layer`.

    The kernel allocates the buffers for tokens and their columns itself, so they must be large
    enough for any text.
    """
    tables, settings, stop_table, grams, vocabulary, operators, sums = layer
    is_weighted, weights = sums
    within, min_n, max_n = grams
    word_table, width, _, is_hashed = vocabulary
    kind, words, ends = settings[0], stop_table[1], word_table[1]
    if start.size != 1 or stop.size != 1:
        return False
    if kind < WORDS or kind > WITHIN or within != (kind == WITHIN):
        return False
    if min_n < 1 or min_n > max_n or max_n > MAX_N:
        return False
    if not (_is_character_tables(tables) and is_word_table(words) and is_word_table(word_table)):
        return False
    if is_hashed and (width < 1 or width > MAX_COUNT):
        return False
    columns = _count_columns(operators, width if is_hashed else ends.size)
    if columns < 0 or not is_weighted:
        return columns >= 0 and columns <= out.shape[1]
    return columns <= weights.shape[0] and weights.shape[1] == out.shape[1]
