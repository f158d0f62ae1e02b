"""Kernels of `count_tokens.py`: characters, tokens, n-grams, hashes and look-ups over UTF-8 bytes.

Each loop over characters repeats the lines that read a character. If the lines are a function, even
an inlined one, a word counter is only half as fast.

Arguments that belong together are tuples:

texts: data, uint8, and start and stop, int64 (n,): text i is data[start[i]:stop[i]].
table: packed words, ends of words, slots and hashes (`count_tokens.Table`).
tables: pages, uint16, and the characters of the different pages: what to add to a code point for
its lower case, int32, and its marks, uint8. Code point c is at pages[c // PAGE_SIZE] * PAGE_SIZE +
c % PAGE_SIZE, which is c for the first page.
tokens: out, uint8; unit u is out[unit_start[u]:unit_stop[u]]; and text (or group) i has the units
from offsets[i] up to offsets[i + 1].
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from sqlml.backends.native.jit.helpers import compiled_helper

CODE_POINTS = sys.maxunicode + 1
PAGE_BITS = 8
PAGE_SIZE = 1 << PAGE_BITS
WORD, SPACE, PYTHON_ONLY = 1, 2, 4
"""Marks of characters: word characters, spaces, and characters that only Python can lower."""

_U = np.uint64
_MASK, _C1, _C2 = _U(0xFFFFFFFF), _U(0xCC9E2D51), _U(0x1B873593)
_N, _F1, _F2 = _U(0xE6546B64), _U(0x85EBCA6B), _U(0xC2B2AE35)


@compiled_helper
def hash_bytes(data: Any, start: Any, stop: Any) -> Any:
    """Return MurmurHash3 of data[start:stop] (`ir/hashes.py`), as uint64 below 2**32."""
    h = _U(0)
    position = start
    while position + 4 <= stop:
        k = (
            _U(data[position])
            | (_U(data[position + 1]) << _U(8))
            | (_U(data[position + 2]) << _U(16))
            | (_U(data[position + 3]) << _U(24))
        )
        k = (k * _C1) & _MASK
        k = ((k << _U(15)) | (k >> _U(17))) & _MASK
        h ^= (k * _C2) & _MASK
        h = ((h << _U(13)) | (h >> _U(19))) & _MASK
        h = (h * _U(5) + _N) & _MASK
        position += 4
    k = _U(0)
    shift = _U(0)
    while position < stop:
        k |= _U(data[position]) << shift
        shift += _U(8)
        position += 1
    k = (k * _C1) & _MASK
    k = ((k << _U(15)) | (k >> _U(17))) & _MASK
    h ^= (k * _C2) & _MASK
    h ^= _U(stop - start)
    h = ((h ^ (h >> _U(16))) * _F1) & _MASK
    h = ((h ^ (h >> _U(13))) * _F2) & _MASK
    return h ^ (h >> _U(16))


@compiled_helper
def find_word(data: Any, start: Any, stop: Any, hash_value: Any, table: Any) -> Any:
    """Find the word data[start:stop] by hash; return the index of the word, or -1, and the slot."""
    words, ends, slots, hashes = table
    slot_mask = slots.size - 1
    slot = np.int64(hash_value) & slot_mask
    while slots[slot] >= 0:
        if hashes[slot] == hash_value:
            word = np.int64(slots[slot])
            word_start = ends[word - 1] if word > 0 else 0
            if ends[word] - word_start == stop - start:
                offset = 0
                while offset < stop - start and data[start + offset] == words[word_start + offset]:
                    offset += 1
                if offset == stop - start:
                    return word, slot
        slot = (slot + 1) & slot_mask
    return -1, slot


def look_up(texts: Any, table: Any, words: Any) -> None:
    """Write the index of the word that equals each text, or -1, to `words`, int64 (n,)."""
    data, start, stop = texts
    for i in range(start.size):
        hash_value = hash_bytes(data, start[i], stop[i])
        words[i], _ = find_word(data, start[i], stop[i], hash_value, table)


def build(keys: Any, table: Any) -> None:
    """Fill the hash table of packed words; if words are equal, the last one is kept.

    `keys` is a copy of the words. It has the type of `out` in `count`, so that `find_word` is
    compiled only once.
    """
    _, ends, slots, hashes = table
    start = np.int64(0)
    for word in range(ends.size):
        hash_value = hash_bytes(keys, start, ends[word])
        _, slot = find_word(keys, start, ends[word], hash_value, table)
        slots[slot] = word
        hashes[slot] = np.uint32(hash_value)
        start = ends[word]


@compiled_helper
def _decode(data: Any, position: Any, stop: Any) -> Any:
    """Return the code point at `position` (U+FFFD if it is damaged), and the next position."""
    first_byte = np.int64(data[position])
    if first_byte < 0x80:
        return first_byte, position + 1
    size, code = 1, np.int64(0xFFFD)
    if 0xC0 <= first_byte < 0xE0:
        size, code = 2, first_byte & 0x1F
    elif 0xE0 <= first_byte < 0xF0:
        size, code = 3, first_byte & 0x0F
    elif 0xF0 <= first_byte < 0xF8:
        size, code = 4, first_byte & 0x07
    if position + size > stop:
        return np.int64(0xFFFD), position + 1
    for offset in range(1, size):
        code = (code << 6) | (np.int64(data[position + offset]) & 0x3F)
    if code >= CODE_POINTS:
        code = np.int64(0xFFFD)
    return code, position + size


@compiled_helper
def _encode(code: Any, out: Any, index: Any) -> Any:
    """Write a code point to `out` at `index`, as UTF-8; return the next index."""
    if code < 0x80:
        out[index] = code
        return index + 1
    if code < 0x800:
        out[index] = 0xC0 | (code >> 6)
        out[index + 1] = 0x80 | (code & 0x3F)
        return index + 2
    if code < 0x10000:
        out[index] = 0xE0 | (code >> 12)
        out[index + 1] = 0x80 | ((code >> 6) & 0x3F)
        out[index + 2] = 0x80 | (code & 0x3F)
        return index + 3
    out[index] = 0xF0 | (code >> 18)
    out[index + 1] = 0x80 | ((code >> 12) & 0x3F)
    out[index + 2] = 0x80 | ((code >> 6) & 0x3F)
    out[index + 3] = 0x80 | (code & 0x3F)
    return index + 4


def measure_capacity(size: Any, rows: Any) -> Any:
    """Return the most units, and the most bytes of units, in `rows` texts of `size` bytes.

    An invalid byte becomes the three bytes of U+FFFD. Lower case makes a character at most 1.5
    times as long. `cut_within` puts a space before and after each word.
    """
    return 2 * size + 2 * rows + 8, 3 * size + 2 * rows + 8


@compiled_helper
def has_marked(data: Any, start: Any, stop: Any, tables: Any, mark: Any, accents: Any) -> Any:
    """Return True if a character has the mark or, if `accents`, if a character is beyond ASCII."""
    pages, _, marks = tables
    position = start
    while position < stop:
        if data[position] < 0x80:
            position += 1
            continue
        code, position = _decode(data, position, stop)
        place = (np.int64(pages[code >> PAGE_BITS]) << PAGE_BITS) | (code & (PAGE_SIZE - 1))
        if accents or marks[place] & mark:
            return True
    return False


def scan(texts: Any, tables: Any, mark: Any, accents: Any, is_marked: Any) -> None:
    """Write the result of `has_marked` for each text to `is_marked`, bool (n,)."""
    data, start, stop = texts
    for row in range(start.size):
        is_marked[row] = has_marked(data, start[row], stop[row], tables, mark, accents)


def cut_words(texts: Any, tables: Any, lowering: Any, min_length: Any, tokens: Any) -> None:
    """Write the words of at least `min_length` characters to `tokens`; the units are words."""
    data, start, stop = texts
    pages, lower, marks = tables
    out, unit_start, unit_stop, offsets = tokens
    units, size = 0, 0
    for row in range(start.size):
        offsets[row] = units
        length, word_start = 0, size
        position, end = start[row], stop[row]
        while position <= end:
            code, after = np.int64(0x20), position + 1
            if position < end:
                code, after = _decode(data, position, end)
            place = code
            if code >= PAGE_SIZE:
                place = (np.int64(pages[code >> PAGE_BITS]) << PAGE_BITS) | (code & (PAGE_SIZE - 1))
            if lowering and lower[place] != 0:
                code += lower[place]
                place = (np.int64(pages[code >> PAGE_BITS]) << PAGE_BITS) | (code & (PAGE_SIZE - 1))
            if marks[place] & WORD:
                size = _encode(code, out, size)
                length += 1
            elif length:
                if length >= min_length:
                    unit_start[units], unit_stop[units] = word_start, size
                    units += 1
                    out[size] = 0x20
                    size += 1
                    word_start = size
                size = word_start
                length = 0
            position = after
    offsets[start.size] = units


def drop_words(tokens: Any, table: Any) -> None:
    """Remove the stop words in `table` from the `tokens` of `cut_words`; close the gaps."""
    out, unit_start, unit_stop, offsets = tokens
    units, size = 0, 0
    for row in range(offsets.size - 1):
        start, offsets[row] = offsets[row], units
        for unit in range(start, offsets[row + 1]):
            begin, end = unit_start[unit], unit_stop[unit]
            word, _ = find_word(out, begin, end, hash_bytes(out, begin, end), table)
            if word < 0:
                unit_start[units] = size
                for index in range(begin, end):
                    out[size] = out[index]
                    size += 1
                unit_stop[units] = size
                units += 1
                out[size] = 0x20
                size += 1
    offsets[offsets.size - 1] = units


def cut_characters(texts: Any, tables: Any, lowering: Any, tokens: Any) -> None:
    """Write the texts to `tokens` with runs of spaces merged; the units are characters."""
    data, start, stop = texts
    pages, lower, marks = tables
    out, unit_start, unit_stop, offsets = tokens
    units, size = 0, 0
    for row in range(start.size):
        offsets[row] = units
        spaces = 0
        position, end = start[row], stop[row]
        while position < end:
            code, position = _decode(data, position, end)
            place = code
            if code >= PAGE_SIZE:
                place = (np.int64(pages[code >> PAGE_BITS]) << PAGE_BITS) | (code & (PAGE_SIZE - 1))
            if lowering and lower[place] != 0:
                code += lower[place]
                place = (np.int64(pages[code >> PAGE_BITS]) << PAGE_BITS) | (code & (PAGE_SIZE - 1))
            spaces = spaces + 1 if marks[place] & SPACE else 0
            if spaces == 2:
                size = unit_start[units - 1]
                out[size] = 0x20
                size += 1
                unit_stop[units - 1] = size
            elif spaces < 2:
                unit_start[units] = size
                size = _encode(code, out, size)
                unit_stop[units] = size
                units += 1
    offsets[start.size] = units


def cut_within(texts: Any, tables: Any, lowering: Any, tokens: Any, groups: Any) -> None:
    """Write each word of the texts to `tokens`, enclosed in spaces; the units are characters.

    Each word is a group; text i has the groups from groups[i] up to groups[i + 1].
    """
    data, start, stop = texts
    pages, lower, marks = tables
    out, unit_start, unit_stop, offsets = tokens
    units, size, words = 0, 0, 0
    for row in range(start.size):
        groups[row] = words
        in_word = False
        position, end = start[row], stop[row]
        while position <= end:
            code, after = np.int64(0x20), position + 1
            if position < end:
                code, after = _decode(data, position, end)
            place = code
            if code >= PAGE_SIZE:
                place = (np.int64(pages[code >> PAGE_BITS]) << PAGE_BITS) | (code & (PAGE_SIZE - 1))
            if lowering and lower[place] != 0:
                code += lower[place]
                place = (np.int64(pages[code >> PAGE_BITS]) << PAGE_BITS) | (code & (PAGE_SIZE - 1))
            is_space = marks[place] & SPACE
            if not is_space and not in_word:
                offsets[words] = units
                words += 1
            if (not is_space and not in_word) or (is_space and in_word):
                unit_start[units], unit_stop[units] = size, size + 1
                out[size] = 0x20
                size += 1
                units += 1
            in_word = not is_space
            if in_word:
                unit_start[units] = size
                size = _encode(code, out, size)
                unit_stop[units] = size
                units += 1
            position = after
    groups[start.size] = words
    offsets[words] = units


@compiled_helper
def _sort(keys: Any, size: Any) -> None:
    """Sort keys[:size] with Shellsort, since numba's sort takes a second to compile."""
    gap = 1
    while gap < size:
        gap = 3 * gap + 1
    while gap > 0:
        for i in range(gap, size):
            key, position = keys[i], i
            while position >= gap and keys[position - gap] > key:
                keys[position] = keys[position - gap]
                position -= gap
            keys[position] = key
        gap //= 3


@compiled_helper
def find_keys(tokens: Any, begin: Any, end: Any, grams: Any, vocabulary: Any, keys: Any) -> Any:
    """Write the sorted keys of the n-grams in groups `begin` to `end` - 1; return the key count.

    A key is 2 * column, plus 1 if the n-gram counts as -1. See `count` for the other arguments.
    """
    out, unit_start, unit_stop, offsets = tokens
    within, min_n, max_n = grams
    table, width, signed, hashed = vocabulary
    key_count = 0
    for group in range(begin, end):
        units = offsets[group + 1] - offsets[group]
        for n in range(min_n, max_n + 1):
            size = n
            if n >= units:
                if within:
                    size = units
                elif n > units:
                    break
            for unit in range(offsets[group], offsets[group + 1] - size + 1):
                start, stop = unit_start[unit], unit_stop[unit + size - 1]
                digest = hash_bytes(out, start, stop)
                if hashed:
                    negative = digest >= _U(0x80000000)
                    number = np.int64(_U(0x100000000) - digest) if negative else np.int64(digest)
                    keys[key_count] = (number % width) * 2 + (1 if negative and signed else 0)
                    key_count += 1
                else:
                    word, _ = find_word(out, start, stop, digest, table)
                    if word >= 0:
                        keys[key_count] = word * 2
                        key_count += 1
            if within and n >= units:
                break
    _sort(keys, key_count)
    return key_count


@compiled_helper
def count_keys(keys: Any, key_count: Any, columns: Any, counts: Any) -> Any:
    """Write each column of sorted `keys`, and the sum of the signs; return the column count."""
    column_count = 0
    for k in range(key_count):
        column = keys[k] >> 1
        sign = 1 - 2 * (keys[k] & 1)
        if k and column == keys[k - 1] >> 1:
            counts[column_count - 1] += sign
        else:
            columns[column_count] = column
            counts[column_count] = sign
            column_count += 1
    return column_count


def count(tokens: Any, groups: Any, grams: Any, vocabulary: Any, keys: Any, result: Any) -> None:
    """Count the n-grams of each text as sparse rows, with sorted columns.

    Args:
        groups: int64 (n + 1,), as `cut_within` writes them.
        grams: True if groups are words, the smallest n, and the largest n. A word that is too short
            for an n-gram counts once, as a whole.
        vocabulary: a table, the number of columns, True if hashes are signed, and True if hashes
            replace the table.
        keys: int64 scratch space for the n-grams of one text.
        result: indptr, which starts with 0, indices and counts.
    """
    indptr, indices, counts = result
    size = 0
    for row in range(groups.size - 1):
        key_count = find_keys(tokens, groups[row], groups[row + 1], grams, vocabulary, keys)
        size += count_keys(keys, key_count, indices[size:], counts[size:])
        indptr[row + 1] = size
