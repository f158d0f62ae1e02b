"""Codes of categories, looked up in DuckDB's own texts: `Lookup` as calls of a kernel.

A text is 16 bytes, `duckdb_string_t`: its length as uint32, then all of its bytes and zeros if they
are up to 12, else 4 of them and the address of the whole. So a short text is two words, which are
compared as such; a long one is hashed byte by byte. NULL has the length `NULL`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from sqlml.backends.native.jit.argument_kinds import ArrayKind
from sqlml.backends.native.jit.process_memory import bytes_at
from sqlml.backends.native.jit.specialise import COUNT, called, kinds_of, reads, specialise, writes
from sqlml.backends.native.kernel_calls import INPUT, MEMORY, Call, Rows
from sqlml.backends.native.text.count_tokens import TABLE, table
from sqlml.backends.native.text.token_kernels import find_word, hash_bytes
from sqlml.ir.program import Program
from sqlml.ir.utf8_column import CODEC, Texts, pack
from sqlml.types import Array
from sqlml.udfs.category_codes import Lookup

INLINE = 12
"""The most bytes of a short text."""

NULL = (1 << 32) - 1
"""The length of a text that is missing."""

_U = np.uint64
_LENGTH, _NULL, _INLINE = _U((1 << 32) - 1), _U(NULL), _U(INLINE)
_EMPTY = _U((1 << 64) - 1)
"""The first word of a slot without a text: no text is so long and short."""

_MIX, _MIX_2 = _U(0x9E3779B97F4A7C15), _U(0xC2B2AE3D27D4EB4F)


def code_calls(lookup: Lookup, width: int) -> Iterator[Call]:
    """The calls that write the codes of a block's texts to columns of its matrix (n, width).

    Text k of a function lies at the place `text_place(k)`.
    """
    program, dtype = lookup.compiled.program, np.dtype(lookup.dtype)
    places = {name: lookup.first + k for k, name in enumerate(lookup.inputs)}
    for column, output in zip(lookup.found, lookup.outputs, strict=True):
        name, keys = _keys(program, output)
        codes = _codes(lookup, output, name, keys).astype(dtype)
        strings = Rows(text_place(places[name]), np.dtype(np.uint64), 2, flat=True)
        out = Rows(INPUT, dtype, 1, column, width)
        tables = _tables(keys, codes[:-2])
        kinds = (
            reads(np.uint64, 1, "C"),
            reads(np.uint8, 1, "C"),
            *kinds_of(*tables[:2]),
            TABLE,
            *kinds_of(tables[3], codes[-2:]),
            ArrayKind(dtype, 2, "A", False),
        )
        kernel = specialise(look_up, kinds)
        yield Call(kernel, (strings, MEMORY, *tables, codes[-2:].copy(), out))


def text_ends(k: int, start: Rows, stop: Rows) -> Call:
    """The call that writes the addresses between which the texts of argument k lie.

    It ends with the first text that is NULL.
    """
    strings = Rows(text_place(k), np.dtype(np.uint64), 2, flat=True)
    address = writes(np.int64, 1)
    kernel = specialise(find_ends, (writes(np.uint64, 1), address, address))
    return Call(kernel, (strings, start, stop))


def text_place(k: int) -> int:
    """The place of a block's texts in argument k of those that are texts."""
    return 2 + k


def _keys(program: Program, output: str) -> tuple[str, list[str]]:
    """The input that makes an output, and the texts that the steps between know."""
    keys: dict[str, None] = {}
    i = program.outputs[output]
    while program.nodes[i].op != "input":
        attrs = program.nodes[i].attrs
        known = attrs["categories"] if program.nodes[i].op == "encode" else [attrs.get("missing")]
        keys.update(dict.fromkeys(text for text in known if isinstance(text, str)))
        (i,) = program.nodes[i].inputs
    return str(program.nodes[i].attrs["name"]), list(keys)


def _codes(lookup: Lookup, output: str, name: str, keys: list[str]) -> Array:
    """The codes of the keys, then of a text that is none of them, then of NULL."""
    longest = max(map(len, keys), default=0)
    texts = np.array([*keys, "?" * (longest + 1), None], object).reshape(-1, 1)
    others = {other: texts for other in lookup.inputs if other != name}
    codes: Array = lookup.compiled.run({name: texts, **others}, [output])[output][:, 0]
    return codes


def _tables(keys: list[str], codes: Array) -> tuple[Array, Array, Any, Array]:
    """Slots of short texts (2**k, 2) and their codes, then the table of long ones and theirs."""
    size = np.array([len(key.encode("utf-8", CODEC)) for key in keys], np.int64)
    short, long = np.flatnonzero(size <= INLINE), np.flatnonzero(size > INLINE)
    count = 1 << max(1, int(2 * short.size).bit_length())
    slots = np.full((count, 2), _EMPTY)
    found = np.zeros(count, codes.dtype)
    data, ends = pack([keys[i] for i in short])
    kinds = kinds_of(data, ends, codes[short].copy())
    specialise(fill_slots, (*kinds, writes(np.uint64, 2), writes(codes.dtype, 1)))(
        data, ends, codes[short].copy(), slots, found
    )
    return slots, found, table(*pack([keys[i] for i in long])), codes[long].copy()


@called
def _slot(first: Any, second: Any, slots: Any) -> Any:
    """Where a short text is, or would be."""
    h = (first * _MIX) ^ (second * _MIX_2)
    h = (h ^ (h >> _U(32))) * _MIX
    last = _U(slots.shape[0] - 1)
    slot = (h >> _U(32)) & last
    while slots[slot, 0] != _EMPTY and not (slots[slot, 0] == first and slots[slot, 1] == second):
        slot = (slot + _U(1)) & last
    return slot


def fill_slots(data: Any, ends: Any, codes: Any, slots: Any, found: Any) -> None:
    """Put packed short texts and their codes into slots that are empty."""
    start = np.int64(0)
    for k in range(ends.size):
        first, second = _U(ends[k] - start), _U(0)
        for i in range(ends[k] - start):
            byte = _U(data[start + i])
            if i < 4:
                first |= byte << _U(32 + 8 * i)
            else:
                second |= byte << _U(8 * i - 32)
        slot = _slot(first, second, slots)
        slots[slot, 0], slots[slot, 1], found[slot] = first, second, codes[k]
        start = ends[k]


def look_up(
    strings: Any,
    memory: Any,
    slots: Any,
    short: Any,
    table: Any,
    long: Any,
    others: Any,
    out: Any,
) -> None:
    """Write the codes of texts to out (n, 1).

    strings: uint64 (2 n,); short, long: codes of the slots, and of the words of the table; others:
    those of a text that is unknown, and of NULL.
    """
    for r in range(out.shape[0]):
        first, second = strings[2 * r], strings[2 * r + 1]
        length = first & _LENGTH
        code = others[0]
        if length <= _INLINE:
            slot = _slot(first, second, slots)
            if slots[slot, 0] != _EMPTY:
                code = short[slot]
        elif length == _NULL:
            code = others[1]
        elif long.size:
            start, stop = np.int64(second), np.int64(second + length)
            word, _ = find_word(memory, start, stop, hash_bytes(memory, start, stop), table)
            if word >= 0:
                code = long[word]
        out[r, 0] = code


def find_ends(strings: Any, start: Any, stop: Any) -> Any:
    """Write where texts, uint64 (2 n,), begin and end in memory; the first of NULL, else -1."""
    for r in range(start.size):
        length = strings[2 * r] & _LENGTH
        if length == _NULL:
            return r
        short = np.int64(strings.ctypes.data) + 16 * r + 4
        start[r] = short if length <= _INLINE else np.int64(strings[2 * r + 1])
        stop[r] = start[r] + np.int64(length)
    return -1


def texts_of(strings: Array) -> Texts:
    """DuckDB's texts, uint64 (2 n,), with bytes of their own."""
    length = (strings[::2] & _LENGTH).astype(np.int64)
    missing = length == NULL
    stop = np.cumsum(np.where(missing, 0, length))
    data = np.empty(int(stop[-1]) if stop.size else 0, np.uint8)
    kinds = (reads(np.uint64, 1, "C"), reads(np.int64, 1, "C"), COUNT, writes(np.uint8, 1))
    specialise(copy_bytes, kinds)(strings, stop, strings.ctypes.data, data)
    return Texts(data, np.append(0, stop)[:-1], stop, missing)


def copy_bytes(strings: Any, stop: Any, address: Any, data: Any) -> None:
    """Copy the bytes of texts, which lie at an address, to where each of them ends."""
    start = np.int64(0)
    for r in range(stop.size):
        size = stop[r] - start
        at = np.int64(strings[2 * r + 1]) if size > INLINE else address + 16 * r + 4
        bytes_of = bytes_at(at, size)
        for i in range(size):
            data[start + i] = bytes_of[i]
        start = stop[r]
