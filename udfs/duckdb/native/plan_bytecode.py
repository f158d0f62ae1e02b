"""Write a compiled Program as a plan: the table of integers that the row path follows.

Categories are looked up in DuckDB's own texts. Such a text has 16 bytes (`duckdb_string_t`): its
length as uint32, then all of its bytes padded with zeros if they are up to 12, or else 4 of them
and the address of the whole text. So a short text is two 64-bit integers, which are compared as
such; a long one is hashed byte by byte. NULL has the length `NULL_LENGTH`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sqlml.backends.base import find_filler, find_text_filler
from sqlml.backends.native.jit.argument_kinds import ArrayKind
from sqlml.backends.native.jit.process_memory import bytes_at
from sqlml.backends.native.jit.specialise import (
    COUNT,
    compiled_helper,
    kinds_of,
    reads,
    specialise,
    writes,
)
from sqlml.backends.native.kernel_calls import INPUT, MEMORY, RESULT, Call, KernelCalls, Rows
from sqlml.backends.native.rows.column_kernels import call_convert, call_shift
from sqlml.backends.native.text.count_tokens import WORD_TABLE, make_word_table
from sqlml.backends.native.text.token_kernels import find_word, hash_bytes
from sqlml.ir.program import Program
from sqlml.ir.utf8_column import CODEC, TextColumn, pack_words
from sqlml.types import Array
from sqlml.udfs.batch_function import BatchFunction, Lookup
from sqlml.udfs.duckdb.native.memory_layout import (
    HEAD,
    INLINE_BYTES,
    NOT_MADE,
    NULL_LENGTH,
    STRUCT,
    TEXT_BYTES,
)

_U = np.uint64
_LENGTH, _NULL, _INLINE = _U((1 << 32) - 1), _U(NULL_LENGTH), _U(INLINE_BYTES)
_EMPTY = _U((1 << 64) - 1)
"""The first integer of a slot without a text: no text is both that long and short."""

_MIX, _MIX_2 = _U(0x9E3779B97F4A7C15), _U(0xC2B2AE3D27D4EB4F)


def code_calls(lookup: Lookup, width: int) -> Iterator[Call]:
    """Yield the calls that write the codes of a block's texts to its matrix (n, width)."""
    program, dtype = lookup.compiled.program, np.dtype(lookup.dtype)
    for column, output in zip(lookup.looked_up, lookup.outputs, strict=True):
        name, keys = _keys(program, output)
        place = text_place(lookup.first + lookup.inputs.index(name))
        strings = Rows(place, np.dtype(np.uint64), 2, flat=True)
        out = Rows(INPUT, dtype, 1, column, width)
        tables = _tables(keys, _codes(lookup, output, name, keys).astype(dtype))
        kinds = (
            reads(np.uint64, 1, "C"),
            reads(np.uint8, 1, "C"),
            *kinds_of(*tables[:2]),
            WORD_TABLE,
            *kinds_of(tables[3]),
            ArrayKind(dtype, 2, "A", False),
        )
        yield Call(specialise(look_up, kinds), (strings, MEMORY, *tables, out))


def text_ends(k: int, start: Rows, stop: Rows) -> Call:
    """Return the call that writes the start and end addresses of text argument k."""
    strings = Rows(text_place(k), np.dtype(np.uint64), 2, flat=True)
    address = writes(np.int64, 1)
    kernel = specialise(find_ends, (writes(np.uint64, 1), address, address))
    return Call(kernel, (strings, start, stop))


def text_place(k: int) -> int:
    return 2 + k


def _keys(program: Program, output: str) -> tuple[str, list[str]]:
    """Return the input behind an output, and the texts that the steps between recognize."""
    keys: dict[str, None] = {}
    i = program.outputs[output]
    while program.nodes[i].op != "input":
        attrs = program.nodes[i].attrs
        texts = attrs["categories"] if program.nodes[i].op == "encode" else [attrs.get("missing")]
        keys.update(dict.fromkeys(text for text in texts if isinstance(text, str)))
        (i,) = program.nodes[i].inputs
    return str(program.nodes[i].attrs["name"]), list(keys)


def _codes(lookup: Lookup, output: str, name: str, keys: list[str]) -> Array:
    """Return the codes of the keys, then of an unknown text, then of NULL."""
    longest = max(map(len, keys), default=0)
    texts = np.array([*keys, "?" * (longest + 1), None], object).reshape(-1, 1)
    others = {other: texts for other in lookup.inputs if other != name}
    codes: Array = lookup.compiled.run({name: texts, **others}, [output])[output][:, 0]
    return codes


def _tables(keys: list[str], codes: Array) -> tuple[Array, Array, Any, Array]:
    """Return slots of short keys (2**k, 2) and their codes, a table of long ones, and theirs.

    The last two of `codes`, those of other texts and of NULL, follow the codes of the long keys.
    """
    size = np.array([len(key.encode("utf-8", CODEC)) for key in keys], np.int64)
    short, long = np.flatnonzero(size <= INLINE_BYTES), np.flatnonzero(size > INLINE_BYTES)
    count = 1 << max(1, int(2 * short.size).bit_length())
    slots = np.full((count, 2), _EMPTY)
    slot_codes = np.zeros(count, codes.dtype)
    short_keys = (*pack_words([keys[i] for i in short]), codes[short].copy())
    kinds = (*kinds_of(*short_keys), writes(np.uint64, 2), writes(codes.dtype, 1))
    specialise(fill_slots, kinds)(*short_keys, slots, slot_codes)
    long_codes = np.append(codes[long], codes[-2:])
    return slots, slot_codes, make_word_table(*pack_words([keys[i] for i in long])), long_codes


@compiled_helper
def _find_slot(first: Any, second: Any, slots: Any) -> Any:
    """Return the slot of a short text, or the empty slot where it belongs."""
    h = (first * _MIX) ^ (second * _MIX_2)
    h = (h ^ (h >> _U(32))) * _MIX
    last = _U(slots.shape[0] - 1)
    slot = (h >> _U(32)) & last
    while slots[slot, 0] != _EMPTY and not (slots[slot, 0] == first and slots[slot, 1] == second):
        slot = (slot + _U(1)) & last
    return slot


def fill_slots(data: Any, ends: Any, codes: Any, slots: Any, slot_codes: Any) -> None:
    """Insert packed short texts and their codes into empty slots."""
    start = np.int64(0)
    for k in range(ends.size):
        first, second = _U(ends[k] - start), _U(0)
        for i in range(ends[k] - start):
            byte = _U(data[start + i])
            if i < 4:
                first |= byte << _U(32 + 8 * i)
            else:
                second |= byte << _U(8 * i - 32)
        slot = _find_slot(first, second, slots)
        slots[slot, 0], slots[slot, 1], slot_codes[slot] = first, second, codes[k]
        start = ends[k]


def look_up(
    strings: Any, memory: Any, slots: Any, slot_codes: Any, table: Any, long_codes: Any, out: Any
) -> None:
    """Write the codes of DuckDB's texts, uint64 (2 n,), to out (n, 1); see `_tables`."""
    unknown_code, null_code = long_codes[-2], long_codes[-1]
    for r in range(out.shape[0]):
        first, second = strings[2 * r], strings[2 * r + 1]
        length = first & _LENGTH
        code = unknown_code
        if length <= _INLINE:
            slot = _find_slot(first, second, slots)
            if slots[slot, 0] != _EMPTY:
                code = slot_codes[slot]
        elif length == _NULL:
            code = null_code
        elif long_codes.size > 2:
            start, stop = np.int64(second), np.int64(second + length)
            word, _ = find_word(memory, start, stop, hash_bytes(memory, start, stop), table)
            if word >= 0:
                code = long_codes[word]
        out[r, 0] = code


def find_ends(strings: Any, start: Any, stop: Any) -> Any:
    """Write where texts, uint64 (2 n,), start and end; return the row of the first NULL, or -1."""
    for r in range(start.size):
        length = strings[2 * r] & _LENGTH
        if length == _NULL:
            return r
        short = np.int64(strings.ctypes.data) + 16 * r + 4
        start[r] = short if length <= _INLINE else np.int64(strings[2 * r + 1])
        stop[r] = start[r] + np.int64(length)
    return -1


def texts_of(strings: Array) -> TextColumn:
    """Copy DuckDB's texts, uint64 (2 n,), into a text column."""
    length = (strings[::2] & _LENGTH).astype(np.int64)
    missing = length == NULL_LENGTH
    stop = np.cumsum(np.where(missing, 0, length))
    data = np.empty(int(stop[-1]) if stop.size else 0, np.uint8)
    kinds = (reads(np.uint64, 1, "C"), reads(np.int64, 1, "C"), COUNT, writes(np.uint8, 1))
    specialise(copy_bytes, kinds)(strings, stop, strings.ctypes.data, data)
    return TextColumn(data, np.append(0, stop)[:-1], stop, missing)


def copy_bytes(strings: Any, stop: Any, address: Any, data: Any) -> None:
    """Copy the bytes of the texts at an address to `data`, each up to its `stop`."""
    start = np.int64(0)
    for r in range(stop.size):
        size = stop[r] - start
        at = np.int64(strings[2 * r + 1]) if size > INLINE_BYTES else address + 16 * r + 4
        bytes_of = bytes_at(at, size)
        for i in range(size):
            data[start + i] = bytes_of[i]
        start = stop[r]


VECTOR = 2048  # Rows of a vector of DuckDB, at most.

BLOCK_BYTES, FEWEST_ROWS, FEWEST_BYTES = 4 << 20, 64, 16 << 20
"""Bytes of a block at most. A block of FEWEST_ROWS may exceed BLOCK_BYTES, up to FEWEST_BYTES."""

_BYTES = {"INTEGER": 4, "DOUBLE": 8}


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """A plan for a matrix of `width` columns, with all that its integers `words` point to.

    The calls for small and for large batches are built when such a batch arrives, since each has
    kernels to compile.
    """

    words: Array
    width: int
    lookups: tuple[Call, ...] = ()
    few: KernelCalls | None = None
    many: KernelCalls | None = None
    references: tuple[Any, ...] = ()

    @property
    def address(self) -> int:
        address: int = self.words.ctypes.data
        return address


def find_obstacle(function: BatchFunction) -> str | None:
    """Return why machine code cannot score a function's batches, or None if it can."""
    if function.last is not None:
        return "it remembers rows that come again"
    return None if _filler(function) is not None else "some of the model's steps run in Python"


def build_plan(function: BatchFunction, rows: int, before: Plan | None = None) -> Plan:
    """Build a plan with calls for batches of `rows` rows, and those of the plan `before`.

    It has no calls where Python scores the batches. Raises NotReady if a kernel is being compiled,
    and the caller need not wait.
    """
    filler = None if find_obstacle(function) else _filler(function)
    plan = None if filler is None else _plan_calls(function, filler, rows, before)
    return plan_for_python(function) if plan is None else plan


def plan_for_python(function: BatchFunction) -> Plan:
    packed, texts = function.packed, (TEXT_BYTES,) * function.texts
    return Plan(_write_plan(function, range(packed), packed, (0, 0, 0, 0, 0, 0), texts), packed)


def _count_model_texts(function: BatchFunction) -> int:
    """Count the texts that the model itself reads; the others are looked up."""
    return function.texts if function.lookup is None else function.lookup.first


def _filler(function: BatchFunction) -> Any:
    """Return the function's filler if it can write its output with kernel calls, or None."""
    width = function.width
    if _count_model_texts(function):
        filler = find_text_filler(function.compiled, function.output)
    else:
        filler = find_filler(function.compiled, function.output, range(width), width)
    fits = hasattr(filler, "calls") and filler is not None and filler.input == function.dtype
    return filler if fits else None


def _plan_calls(
    function: BatchFunction, filler: Any, rows: int, before: Plan | None
) -> Plan | None:
    """Build the plan; None where numba itself runs one of the kernels."""
    lookup, width = function.lookup, function.width
    turn = min(int(np.ceil(filler.turn())) if hasattr(filler, "turn") else 0, VECTOR + 1)
    if before is None:
        lookups = () if lookup is None else tuple(code_calls(lookup, width))
        before = Plan(np.empty(0, np.int64), width, lookups)
    few, many = before.few, before.many
    if rows < turn:
        few = few or _kernel_calls(function, filler, before.lookups, 1)
    else:
        many = many or _kernel_calls(function, filler, before.lookups, VECTOR)
    both = [calls for calls in (few, many) if calls is not None]
    tables = {id(calls): calls.encode() for calls in both}
    heads: list[int] = []
    for calls in (few, many):
        table = tables.get(id(calls))
        if calls is None:
            heads += 0, NOT_MADE
        elif table is None:
            return None
        else:
            heads += table.ctypes.data, len(calls.calls)
    pairs = itertools.zip_longest(*(calls.measure_scratch() for calls in both), fillvalue=0)
    most = max(calls.count_most_words() for calls in both)
    places = range(function.packed) if lookup is None else lookup.packed or (-1,)
    sizes = tuple(max(pair) for pair in pairs)
    words = _write_plan(function, places, width, (turn, *heads, most), sizes)
    return Plan(words, width, before.lookups, few, many, (tables, filler))


def _write_plan(
    function: BatchFunction,
    places: Sequence[int],
    width: int,
    calls: tuple[int, ...],
    sizes: tuple[int, ...],
) -> Array:
    """Write a plan for rows (n, width).

    Args:
        places: column of the matrix for each number, or -1.
        calls: the row count from which a batch is large, the address and count of the calls for
            small batches, the same for large ones, and the most integers of a call.
        sizes: bytes per row of the intermediate buffers.
    """
    number = np.dtype(function.dtype).itemsize
    row = width * number + sum(sizes)
    levels = 2 if function.groups else int(function.columns > 1 or function.listed)
    levels = STRUCT if function.fields else levels
    groups = (function.groups or (function.columns,)) if levels > 0 else ()
    head = (
        function.packed,
        function.texts,
        width,
        number,
        min(_block_rows(row), function.most or VECTOR),
        *calls,
        len(sizes),
        function.columns,
        4 if function.integer else 8,
        levels,
        len(groups),
    )
    assert len(head) == HEAD
    ends = np.cumsum([0, *groups]) if groups else [_BYTES[kind] for _, kind in function.fields]
    return np.array([*head, *places, *sizes, *ends], np.int64)


def _block_rows(row: int) -> int:
    """Return how many rows of `row` bytes to score together.

    >>> [_block_rows(row) for row in (8, 4096, 1 << 17, 1 << 20, 1 << 25)]
    [2048, 1024, 64, 16, 1]
    """
    fewest = max(1, min(FEWEST_ROWS, FEWEST_BYTES // row))
    return min(VECTOR, max(fewest, BLOCK_BYTES // row))


def _kernel_calls(
    function: BatchFunction, filler: Any, before: tuple[Call, ...], rows: int
) -> KernelCalls:
    dtype = np.dtype(np.int32 if function.integer else np.float64)
    places = itertools.count(text_place(function.texts))
    x = Rows(INPUT, np.dtype(function.dtype), function.width)
    result = Rows(RESULT, dtype, function.columns)
    output = result if filler.dtype == dtype else Rows(next(places), filler.dtype, function.columns)
    with_rows = (rows,) if hasattr(filler, "turn") else ()
    addresses = (Rows(place, np.dtype(np.int64), 1, flat=True) for place in places)
    ends = [(next(addresses), next(addresses)) for _ in range(_count_model_texts(function))]
    with_texts = {"texts": ends} if ends else {}
    before += tuple(text_ends(k, *pair) for k, pair in enumerate(ends))
    calls: Sequence[Call] = filler.calls(x, output, places, *with_rows, **with_texts)
    if function.shifts:
        calls = (*calls, call_shift(output, np.array(function.shifts, np.int64), result))
    elif output is not result:
        calls = (*calls, call_convert(output.line(), result.line()))
    return KernelCalls((*before, *calls))
