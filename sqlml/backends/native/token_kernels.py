"""The kernels of `tokens.py`: characters, tokens, n-grams, hashes and look-ups over UTF-8 bytes.

Each loop over characters reads them with the same few lines: as a function of their own, inlined
or not, they cost a word counter half of its speed.
"""

from __future__ import annotations

import sys
from typing import Any

import numba
import numpy as np

CODE_POINTS = sys.maxunicode + 1
WORD, SPACE, HARD = 1, 2, 4
"""Marks of a character; the lower case of a HARD one takes Python to find."""
WORDS, CHARS, WITHIN, WHOLE = 0, 1, 2, 3

_inner = numba.njit(nogil=True)
_U = np.uint64
_MASK, _C1, _C2 = _U(0xFFFFFFFF), _U(0xCC9E2D51), _U(0x1B873593)
_N, _F1, _F2 = _U(0xE6546B64), _U(0x85EBCA6B), _U(0xC2B2AE35)


@_inner
def _hash(data: Any, start: Any, stop: Any) -> Any:
    """MurmurHash3 of data[start:stop] (`ir/murmur.py`), as uint64 below 2**32."""
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


@_inner
def _find(
    data: Any, start: Any, stop: Any, h: Any, words: Any, ends: Any, slots: Any, hashes: Any
) -> Any:
    """(the word that equals data[start:stop], or -1; the slot where it is or would be)."""
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


def build(words: Any, ends: Any, slots: Any, hashes: Any) -> None:
    start = np.int64(0)
    for word in range(ends.size):
        h = _hash(words, start, ends[word])
        _, slot = _find(words, start, ends[word], h, words, ends, slots, hashes)
        slots[slot] = word
        hashes[slot] = np.uint32(h)
        start = ends[word]


@_inner
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


@_inner
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


def scan(data: Any, start: Any, stop: Any, marks: Any, mark: Any, accents: Any) -> Any:
    """bool (n,): texts with a character of `mark`, or with one beyond ASCII if `accents`."""
    found = np.zeros(start.size, np.bool_)
    for row in range(start.size):
        at = start[row]
        while at < stop[row]:
            if data[at] < 0x80:
                at += 1
                continue
            code, at = _decode(data, at, stop[row])
            if accents or marks[code] & mark:
                found[row] = True
                break
    return found


@_inner
def _tokens(
    data: Any,
    start: Any,
    stop: Any,
    lowering: Any,
    least: Any,
    lower: Any,
    marks: Any,
    stop_data: Any,
    stop_ends: Any,
    stop_slots: Any,
    stop_hashes: Any,
    out: Any,
    first: Any,
    last: Any,
) -> Any:
    """Write the words of a text to `out`, a space apart; number of words."""
    units, size, length, began = 0, 0, 0, 0
    at = start
    while at <= stop:
        code, after = np.int64(0x20), at + 1
        if at < stop:
            code, after = _decode(data, at, stop)
            if lowering:
                code = np.int64(lower[code])
        if marks[code] & WORD:
            size = _encode(code, out, size)
            length += 1
        elif length:
            keep = length >= least
            if keep and stop_ends.size:
                h = _hash(out, began, size)
                word, _ = _find(out, began, size, h, stop_data, stop_ends, stop_slots, stop_hashes)
                keep = word < 0
            if keep:
                first[units], last[units] = began, size
                units += 1
                out[size] = 0x20
                size += 1
                began = size
            size = began
            length = 0
        at = after
    return units


@_inner
def _characters(
    data: Any,
    start: Any,
    stop: Any,
    lowering: Any,
    lower: Any,
    marks: Any,
    out: Any,
    first: Any,
    last: Any,
) -> Any:
    """Write a text to `out`, spaces that follow each other as one; number of characters."""
    units, size, spaces = 0, 0, 0
    at = start
    while at < stop:
        code, at = _decode(data, at, stop)
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
    return units


@_inner
def _in_spaces(
    data: Any,
    start: Any,
    stop: Any,
    lowering: Any,
    lower: Any,
    marks: Any,
    out: Any,
    first: Any,
    last: Any,
    heads: Any,
) -> Any:
    """Write each word of a text between two spaces; number of words, whose first units are
    `heads`, with one more at the end."""
    units, size, words, inside = 0, 0, 0, False
    at = start
    while at <= stop:
        code, after = np.int64(0x20), at + 1
        if at < stop:
            code, after = _decode(data, at, stop)
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
    heads[words] = units
    return words


@_inner
def _grow(values: Any, size: Any) -> Any:
    if values.size >= size:
        return values
    wider = np.empty(2 * size, values.dtype)
    for i in range(values.size):  # numba takes 1.5 s to compile the assignment of a slice
        wider[i] = values[i]
    return wider


def count(
    data: Any,
    start: Any,
    stop: Any,
    kind: Any,
    lowering: Any,
    least: Any,
    min_n: Any,
    max_n: Any,
    lower: Any,
    marks: Any,
    stop_data: Any,
    stop_ends: Any,
    stop_slots: Any,
    stop_hashes: Any,
    words: Any,
    ends: Any,
    slots: Any,
    hashes: Any,
    width: Any,
    signed: Any,
    hashed: Any,
) -> Any:
    """(indptr, columns, counts) of all texts, the columns of a text in order."""
    rows = start.size
    longest = np.int64(0)
    for row in range(rows):
        longest = max(longest, stop[row] - start[row])
    # A character takes half as many bytes more in lower case at most, and a space with it.
    out = np.empty(3 * longest + 8, np.uint8)
    first = np.empty(2 * longest + 8, np.int64)
    last = np.empty(2 * longest + 8, np.int64)
    heads = np.empty(longest + 8, np.int64)
    keys = np.empty(64, np.int64)
    indptr = np.zeros(rows + 1, np.int64)
    indices = np.empty(16 * rows + 64, np.int32)
    counts = np.empty(16 * rows + 64, np.int32)
    stored = 0
    for row in range(rows):
        groups = 1
        heads[0] = 0
        if kind == WORDS:
            heads[1] = _tokens(
                data,
                start[row],
                stop[row],
                lowering,
                least,
                lower,
                marks,
                stop_data,
                stop_ends,
                stop_slots,
                stop_hashes,
                out,
                first,
                last,
            )
        elif kind == CHARS:
            heads[1] = _characters(
                data, start[row], stop[row], lowering, lower, marks, out, first, last
            )
        elif kind == WITHIN:
            groups = _in_spaces(
                data, start[row], stop[row], lowering, lower, marks, out, first, last, heads
            )
        else:
            for k in range(stop[row] - start[row]):
                out[k] = data[start[row] + k]
            first[0], last[0], heads[1] = 0, stop[row] - start[row], 1
        found = 0
        for group in range(groups):
            units = heads[group + 1] - heads[group]
            for n in range(min_n, max_n + 1):
                size = n
                if n >= units:
                    if kind == WITHIN:
                        size = units  # a short word counts once, as a whole
                    elif n > units:
                        break
                keys = _grow(keys, found + units)
                for unit in range(heads[group], heads[group + 1] - size + 1):
                    a, b = first[unit], last[unit + size - 1]
                    h = _hash(out, a, b)
                    if hashed:
                        negative = h >= _U(0x80000000)
                        number = np.int64(_U(0x100000000) - h) if negative else np.int64(h)
                        keys[found] = (number % width) * 2 + (1 if negative and signed else 0)
                        found += 1
                    else:
                        word, _ = _find(out, a, b, h, words, ends, slots, hashes)
                        if word >= 0:
                            keys[found] = word * 2
                            found += 1
                if kind == WITHIN and n >= units:
                    break
        keys[:found].sort()
        indices = _grow(indices, stored + found)
        counts = _grow(counts, stored + found)
        for k in range(found):
            column = keys[k] >> 1
            sign = 1 - 2 * (keys[k] & 1)
            if k and column == keys[k - 1] >> 1:
                counts[stored - 1] += sign
            else:
                indices[stored] = column
                counts[stored] = sign
                stored += 1
        indptr[row + 1] = stored
    return indptr, indices[:stored].copy(), counts[:stored].copy()
