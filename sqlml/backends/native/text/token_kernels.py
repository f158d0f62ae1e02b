"""Characters, tokens, n-grams, hashes and look-ups over UTF-8 bytes: `count_tokens.py`'s kernels.

Each loop over characters reads them with the same few lines: as a function of their own, inlined
or not, they cost a word counter half of its speed.

Arguments that belong together come as one: `texts` are data uint8, start and stop int64 (n,);
`table` are packed words and their ends, slots and hashes (`count_tokens.table`); `tables` the lower
case and the marks of each code point; `units` out uint8, first and last, between which unit u is
out[first[u]:last[u]], and heads: text (or group) i has the units heads[i] up to heads[i + 1].
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from sqlml.backends.native.jit.helpers import called

CODE_POINTS = sys.maxunicode + 1
WORD, SPACE, HARD = 1, 2, 4
"""Marks of a character; the lower case of a HARD one takes Python to find."""

_U = np.uint64
_MASK, _C1, _C2 = _U(0xFFFFFFFF), _U(0xCC9E2D51), _U(0x1B873593)
_N, _F1, _F2 = _U(0xE6546B64), _U(0x85EBCA6B), _U(0xC2B2AE35)


@called
def hash_bytes(data: Any, start: Any, stop: Any) -> Any:
    """MurmurHash3 of data[start:stop] (`ir/hashes.py`), as uint64 below 2**32."""
    h = _U(0)
    at = start
    while at + 4 <= stop:
        k = (
            _U(data[at])
            | (_U(data[at + 1]) << _U(8))
            | (_U(data[at + 2]) << _U(16))
            | (_U(data[at + 3]) << _U(24))
        )
        k = (k * _C1) & _MASK
        k = ((k << _U(15)) | (k >> _U(17))) & _MASK
        h ^= (k * _C2) & _MASK
        h = ((h << _U(13)) | (h >> _U(19))) & _MASK
        h = (h * _U(5) + _N) & _MASK
        at += 4
    k = _U(0)
    shift = _U(0)
    while at < stop:
        k |= _U(data[at]) << shift
        shift += _U(8)
        at += 1
    k = (k * _C1) & _MASK
    k = ((k << _U(15)) | (k >> _U(17))) & _MASK
    h ^= (k * _C2) & _MASK
    h ^= _U(stop - start)
    h = ((h ^ (h >> _U(16))) * _F1) & _MASK
    h = ((h ^ (h >> _U(13))) * _F2) & _MASK
    return h ^ (h >> _U(16))


@called
def find_word(data: Any, start: Any, stop: Any, h: Any, table: Any) -> Any:
    """(the word that equals data[start:stop], or -1; the slot where it is or would be)."""
    words, ends, slots, hashes = table
    last = slots.size - 1
    slot = np.int64(h) & last
    while slots[slot] >= 0:
        if hashes[slot] == h:
            word = np.int64(slots[slot])
            first = ends[word - 1] if word > 0 else 0
            if ends[word] - first == stop - start:
                k = 0
                while k < stop - start and data[start + k] == words[first + k]:
                    k += 1
                if k == stop - start:
                    return word, slot
        slot = (slot + 1) & last
    return -1, slot


def look_up(texts: Any, table: Any, found: Any) -> None:
    """The word that each text equals, or -1."""
    data, start, stop = texts
    for i in range(start.size):
        h = hash_bytes(data, start[i], stop[i])
        found[i], _ = find_word(data, start[i], stop[i], h, table)


def build(keys: Any, table: Any) -> None:
    """Fill the table; of equal words it finds the last. `keys` is a copy of `words`.

    (So the types are those of `count`, and what it calls is compiled once for both.)
    """
    _, ends, slots, hashes = table
    start = np.int64(0)
    for word in range(ends.size):
        h = hash_bytes(keys, start, ends[word])
        _, slot = find_word(keys, start, ends[word], h, table)
        slots[slot] = word
        hashes[slot] = np.uint32(h)
        start = ends[word]


@called
def _decode(data: Any, at: Any, stop: Any) -> Any:
    """(code point, the byte after it); a byte that starts no character is one of its own."""
    first = np.int64(data[at])
    if first < 0x80:
        return first, at + 1
    size, code = 1, np.int64(0xFFFD)
    if 0xC0 <= first < 0xE0:
        size, code = 2, first & 0x1F
    elif 0xE0 <= first < 0xF0:
        size, code = 3, first & 0x0F
    elif 0xF0 <= first < 0xF8:
        size, code = 4, first & 0x07
    if at + size > stop:
        return np.int64(0xFFFD), at + 1
    for k in range(1, size):
        code = (code << 6) | (np.int64(data[at + k]) & 0x3F)
    if code >= CODE_POINTS:
        code = np.int64(0xFFFD)
    return code, at + size


@called
def _encode(code: Any, out: Any, at: Any) -> Any:
    """Write a code point; the byte after it."""
    if code < 0x80:
        out[at] = code
        return at + 1
    if code < 0x800:
        out[at] = 0xC0 | (code >> 6)
        out[at + 1] = 0x80 | (code & 0x3F)
        return at + 2
    if code < 0x10000:
        out[at] = 0xE0 | (code >> 12)
        out[at + 1] = 0x80 | ((code >> 6) & 0x3F)
        out[at + 2] = 0x80 | (code & 0x3F)
        return at + 3
    out[at] = 0xF0 | (code >> 18)
    out[at + 1] = 0x80 | ((code >> 12) & 0x3F)
    out[at + 2] = 0x80 | ((code >> 6) & 0x3F)
    out[at + 3] = 0x80 | (code & 0x3F)
    return at + 4


def room(size: Any, rows: Any) -> Any:
    """The most units, and the most bytes of them, that are cut of texts of so many bytes.

    A byte that is no character becomes the three of U+FFFD, lower case adds half of a character at
    most, and `cut_within` puts a space before and behind each word.
    """
    return 2 * size + 2 * rows + 8, 3 * size + 2 * rows + 8


@called
def is_hard(data: Any, start: Any, stop: Any, marks: Any, mark: Any, accents: Any) -> Any:
    """Whether data[start:stop] has a character of `mark`, or one beyond ASCII if `accents`."""
    at = start
    while at < stop:
        if data[at] < 0x80:
            at += 1
            continue
        code, at = _decode(data, at, stop)
        if accents or marks[code] & mark:
            return True
    return False


def scan(texts: Any, marks: Any, mark: Any, accents: Any, found: Any) -> None:
    """Mark the texts in bool (n,) that `is_hard`."""
    data, start, stop = texts
    for row in range(start.size):
        found[row] = is_hard(data, start[row], stop[row], marks, mark, accents)


def cut_words(texts: Any, tables: Any, lowering: Any, least: Any, cut: Any) -> None:
    """Write the words of the texts to `out`, a space apart; the units are words."""
    data, start, stop = texts
    lower, marks = tables
    out, first, last, heads = cut
    units, size = 0, 0
    for row in range(start.size):
        heads[row] = units
        length, began = 0, size
        at, end = start[row], stop[row]
        while at <= end:
            code, after = np.int64(0x20), at + 1
            if at < end:
                code, after = _decode(data, at, end)
                if lowering:
                    code = np.int64(lower[code])
            if marks[code] & WORD:
                size = _encode(code, out, size)
                length += 1
            elif length:
                if length >= least:
                    first[units], last[units] = began, size
                    units += 1
                    out[size] = 0x20
                    size += 1
                    began = size
                size = began
                length = 0
            at = after
    heads[start.size] = units


def drop_words(cut: Any, table: Any) -> None:
    """Take the words that are in a table out of what `cut_words` wrote, and close the gaps."""
    out, first, last, heads = cut
    units, size = 0, 0
    for row in range(heads.size - 1):
        start, heads[row] = heads[row], units
        for unit in range(start, heads[row + 1]):
            a, b = first[unit], last[unit]
            word, _ = find_word(out, a, b, hash_bytes(out, a, b), table)
            if word < 0:
                first[units] = size
                for k in range(a, b):
                    out[size] = out[k]
                    size += 1
                last[units] = size
                units += 1
                out[size] = 0x20
                size += 1
    heads[heads.size - 1] = units


def cut_characters(texts: Any, tables: Any, lowering: Any, cut: Any) -> None:
    """Write the texts to `out`, spaces that follow each other as one; the units are characters."""
    data, start, stop = texts
    lower, marks = tables
    out, first, last, heads = cut
    units, size = 0, 0
    for row in range(start.size):
        heads[row] = units
        spaces = 0
        at, end = start[row], stop[row]
        while at < end:
            code, at = _decode(data, at, end)
            if lowering:
                code = np.int64(lower[code])
            spaces = spaces + 1 if marks[code] & SPACE else 0
            if spaces == 2:
                size = first[units - 1]
                out[size] = 0x20
                size += 1
                last[units - 1] = size
            elif spaces < 2:
                first[units] = size
                size = _encode(code, out, size)
                last[units] = size
                units += 1
    heads[start.size] = units


def cut_within(texts: Any, tables: Any, lowering: Any, cut: Any, groups: Any) -> None:
    """Write each word of the texts between two spaces; the units are characters.

    Each word is a group; text i has the groups groups[i] up to groups[i + 1].
    """
    data, start, stop = texts
    lower, marks = tables
    out, first, last, heads = cut
    units, size, words = 0, 0, 0
    for row in range(start.size):
        groups[row] = words
        inside = False
        at, end = start[row], stop[row]
        while at <= end:
            code, after = np.int64(0x20), at + 1
            if at < end:
                code, after = _decode(data, at, end)
                if lowering:
                    code = np.int64(lower[code])
            space = marks[code] & SPACE
            if not space and not inside:
                heads[words] = units
                words += 1
            if (not space and not inside) or (space and inside):
                first[units], last[units] = size, size + 1
                out[size] = 0x20
                size += 1
                units += 1
            inside = not space
            if inside:
                first[units] = size
                size = _encode(code, out, size)
                last[units] = size
                units += 1
            at = after
    groups[start.size] = words
    heads[words] = units


@called
def _sort(keys: Any, size: Any) -> None:
    """Shell's sort of keys[:size]: numba takes a second to compile the sort of an array."""
    gap = 1
    while gap < size:
        gap = 3 * gap + 1
    while gap > 0:
        for i in range(gap, size):
            key, at = keys[i], i
            while at >= gap and keys[at - gap] > key:
                keys[at] = keys[at - gap]
                at -= gap
            keys[at] = key
        gap //= 3


@called
def find_keys(cut: Any, begin: Any, end: Any, grams: Any, places: Any, keys: Any) -> Any:
    """Write the keys of the n-grams in groups `begin` up to `end` in order; how many they are.

    A key is twice a column, and one more where the n-gram counts as -1. Arguments as of `count`.
    """
    out, first, last, heads = cut
    within, min_n, max_n = grams
    table, width, signed, hashed = places
    found = 0
    for group in range(begin, end):
        units = heads[group + 1] - heads[group]
        for n in range(min_n, max_n + 1):
            size = n
            if n >= units:
                if within:
                    size = units
                elif n > units:
                    break
            for unit in range(heads[group], heads[group + 1] - size + 1):
                a, b = first[unit], last[unit + size - 1]
                h = hash_bytes(out, a, b)
                if hashed:
                    negative = h >= _U(0x80000000)
                    number = np.int64(_U(0x100000000) - h) if negative else np.int64(h)
                    keys[found] = (number % width) * 2 + (1 if negative and signed else 0)
                    found += 1
                else:
                    word, _ = find_word(out, a, b, h, table)
                    if word >= 0:
                        keys[found] = word * 2
                        found += 1
            if within and n >= units:
                break
    _sort(keys, found)
    return found


@called
def count_keys(keys: Any, found: Any, columns: Any, counts: Any) -> Any:
    """Write the columns and counts of sorted keys (`find_keys`); how many columns there are."""
    stored = 0
    for k in range(found):
        column = keys[k] >> 1
        sign = 1 - 2 * (keys[k] & 1)
        if k and column == keys[k - 1] >> 1:
            counts[stored - 1] += sign
        else:
            columns[stored] = column
            counts[stored] = sign
            stored += 1
    return stored


def count(cut: Any, groups: Any, grams: Any, places: Any, keys: Any, made: Any) -> None:
    """Count the n-grams of the units of each text, the columns of a text in order.

    grams: whether groups are those of `cut_within` (a word that is shorter than an n-gram counts
    once then, as a whole), the least n and the greatest. places: a table, or where `hashed` the
    columns of the result and whether hashes are `signed`. `keys` is room for the n-grams of one
    text. made: indptr, which starts with 0, indices and counts.
    """
    indptr, indices, counts = made
    stored = 0
    for row in range(groups.size - 1):
        found = find_keys(cut, groups[row], groups[row + 1], grams, places, keys)
        stored += count_keys(keys, found, indices[stored:], counts[stored:])
        indptr[row + 1] = stored
