"""Write a compiled Program as a plan: the table of integers that the row path follows.

Categories are looked up in DuckDB's own strings. A string takes 16 bytes (`duckdb_string_t`), which
begin with the length as uint32. If the string has up to 12 bytes, these bytes follow, padded with
zeros. Otherwise, the first 4 bytes and the address of the whole string follow. So a short string is
compared as two 64-bit integers, and a long string is hashed byte by byte. NULL has the length
`NULL_LENGTH`.
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
    reads,
    specialise,
    to_kinds,
    writes,
)
from sqlml.backends.native.kernel_calls import INPUT, MEMORY, RESULT, Call, KernelCalls, Rows
from sqlml.backends.native.rows.column_kernels import call_convert, call_shift
from sqlml.backends.native.text.count_tokens import make_word_table
from sqlml.backends.native.text.token_kernels import find_word, hash_bytes
from sqlml.ir.program import Program
from sqlml.ir.utf8_column import CODEC, TextColumn, pack_words
from sqlml.types import Array
from sqlml.udfs.batch_function import BatchFunction, CategoryEncoder
from sqlml.udfs.duckdb.native.memory_layout import (
    HEAD,
    INLINE_BYTES,
    NOT_BUILT,
    NULL_LENGTH,
    STRUCT,
    TEXT_BYTES,
)

_U = np.uint64
_LENGTH_MASK, _NULL_MARK, _INLINE = _U((1 << 32) - 1), _U(NULL_LENGTH), _U(INLINE_BYTES)
_EMPTY = _U((1 << 64) - 1)
"""The first integer of an empty slot; no short string has this length."""

_MIX, _MIX_2 = _U(0x9E3779B97F4A7C15), _U(0xC2B2AE3D27D4EB4F)


def make_code_calls(lookup: CategoryEncoder, width: int) -> Iterator[Call]:
    """Yield the calls that write the codes of a block's strings to the matrix (n, width)."""
    program, dtype = lookup.compiled.program, np.dtype(lookup.dtype)
    for column, output in zip(lookup.looked_up_columns, lookup.outputs, strict=True):
        input_name, keys = _find_keys(program, output)
        text_buffer = get_text_buffer(lookup.first_text + lookup.inputs.index(input_name))
        strings = Rows(text_buffer, np.dtype(np.uint64), 2, is_flat=True)
        out = Rows(INPUT, dtype, 1, column, width)
        tables = _make_tables(keys, _compute_codes(lookup, output, input_name, keys).astype(dtype))
        argument_kinds = (
            reads(np.uint64, 1, "C"),
            reads(np.uint8, 1, "C"),
            *to_kinds(*tables),
            ArrayKind(dtype, 2, "A", False),
        )
        yield Call(specialise(look_up, argument_kinds), (strings, MEMORY, *tables, out))


def make_find_bounds_call(text_index: int, start: Rows, stop: Rows) -> Call:
    """Return the call that writes the addresses where a text argument's strings start and end."""
    strings = Rows(get_text_buffer(text_index), np.dtype(np.uint64), 2, is_flat=True)
    address_kind = writes(np.int64, 1)
    kernel = specialise(find_ends, (writes(np.uint64, 1), address_kind, address_kind))
    return Call(kernel, (strings, start, stop))


def get_text_buffer(text_index: int) -> int:
    """Return the buffer number of a text argument; buffers 0 and 1 hold the matrix and results."""
    return 2 + text_index


def _find_keys(program: Program, output: str) -> tuple[str, list[str]]:
    """Return the name of the input that `output` encodes, and the strings that have codes."""
    keys: dict[str, None] = {}
    node = program.nodes[program.outputs[output]]
    while node.op != "input":
        texts = node.attrs["categories"] if node.op == "encode" else [node.attrs.get("missing")]
        keys.update(dict.fromkeys(text for text in texts if isinstance(text, str)))
        (input_index,) = node.inputs
        node = program.nodes[input_index]
    return str(node.attrs["name"]), list(keys)


def _compute_codes(lookup: CategoryEncoder, output: str, input_name: str, keys: list[str]) -> Array:
    """Return the codes of the keys, the code of an unknown string, and the code of NULL."""
    # A string that is longer than all keys is unknown.
    longest = max(map(len, keys), default=0)
    texts = np.array([*keys, "?" * (longest + 1), None], object).reshape(-1, 1)
    inputs = {other_name: texts for other_name in lookup.inputs if other_name != input_name}
    codes: Array = lookup.compiled.run({input_name: texts, **inputs}, [output])[output][:, 0]
    return codes


def _make_tables(keys: list[str], codes: Array) -> tuple[Array, Array, Any, Array]:
    """Return hash tables of the keys: slots (2**k, 2) of short keys, the codes of the slots, a
    table of long keys, and the codes of long keys.

    The last two codes, for an unknown string and NULL, are appended to the codes of long keys.
    """
    sizes = np.array([len(key.encode("utf-8", CODEC)) for key in keys], np.int64)
    short_indices = np.flatnonzero(sizes <= INLINE_BYTES)
    long_indices = np.flatnonzero(sizes > INLINE_BYTES)
    slot_count = 1 << max(1, int(2 * short_indices.size).bit_length())
    slots = np.full((slot_count, 2), _EMPTY)
    slot_codes = np.zeros(slot_count, codes.dtype)
    short_keys = (*pack_words([keys[i] for i in short_indices]), codes[short_indices].copy())
    argument_kinds = (*to_kinds(*short_keys), writes(np.uint64, 2), writes(codes.dtype, 1))
    specialise(fill_slots, argument_kinds)(*short_keys, slots, slot_codes)
    long_codes = np.append(codes[long_indices], codes[-2:])
    long_words = make_word_table(*pack_words([keys[i] for i in long_indices]))
    return slots, slot_codes, long_words, long_codes


@compiled_helper
def _find_slot(first: Any, second: Any, slots: Any) -> Any:
    """Return the slot of a short string, given as two integers, or the empty slot to insert it."""
    hash_value = (first * _MIX) ^ (second * _MIX_2)
    hash_value = (hash_value ^ (hash_value >> _U(32))) * _MIX
    last_slot = _U(slots.shape[0] - 1)
    slot = (hash_value >> _U(32)) & last_slot
    while slots[slot, 0] != _EMPTY and not (slots[slot, 0] == first and slots[slot, 1] == second):
        slot = (slot + _U(1)) & last_slot
    return slot


def fill_slots(data: Any, ends: Any, codes: Any, slots: Any, slot_codes: Any) -> None:
    """Insert short strings and codes into empty slots; string k ends at ends[k] in `data`."""
    # Each string becomes two integers with the layout of `duckdb_string_t`.
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
    """Write the codes of DuckDB's strings, uint64 (2 n,), to `out`; see `_make_tables`."""
    unknown_code, null_code = long_codes[-2], long_codes[-1]
    for r in range(out.shape[0]):
        first, second = strings[2 * r], strings[2 * r + 1]
        length = first & _LENGTH_MASK
        code = unknown_code
        if length <= _INLINE:
            slot = _find_slot(first, second, slots)
            if slots[slot, 0] != _EMPTY:
                code = slot_codes[slot]
        elif length == _NULL_MARK:
            code = null_code
        elif long_codes.size > 2:
            start, stop = np.int64(second), np.int64(second + length)
            word, _ = find_word(memory, start, stop, hash_bytes(memory, start, stop), table)
            if word >= 0:
                code = long_codes[word]
        out[r, 0] = code


def find_ends(strings: Any, start: Any, stop: Any) -> Any:
    """Write the addresses where strings start and end; return the first row with NULL, or -1."""
    for r in range(start.size):
        length = strings[2 * r] & _LENGTH_MASK
        if length == _NULL_MARK:
            return r
        inline_start = np.int64(strings.ctypes.data) + 16 * r + 4
        start[r] = inline_start if length <= _INLINE else np.int64(strings[2 * r + 1])
        stop[r] = start[r] + np.int64(length)
    return -1


def copy_to_text_column(strings: Array) -> TextColumn:
    """Copy DuckDB's strings, uint64 (2 n,), into a text column."""
    length = (strings[::2] & _LENGTH_MASK).astype(np.int64)
    missing = length == NULL_LENGTH
    stop = np.cumsum(np.where(missing, 0, length))
    data = np.empty(int(stop[-1]) if stop.size else 0, np.uint8)
    argument_kinds = (reads(np.uint64, 1, "C"), reads(np.int64, 1, "C"), COUNT, writes(np.uint8, 1))
    specialise(copy_bytes, argument_kinds)(strings, stop, strings.ctypes.data, data)
    return TextColumn(data, np.append(0, stop)[:-1], stop, missing)


def copy_bytes(strings: Any, stop: Any, address: Any, data: Any) -> None:
    """Copy the bytes of `strings`, which are at `address`, to `data`; string r ends at stop[r]."""
    start = np.int64(0)
    for r in range(stop.size):
        size = stop[r] - start
        source_at = np.int64(strings[2 * r + 1]) if size > INLINE_BYTES else address + 16 * r + 4
        source = bytes_at(source_at, size)
        for i in range(size):
            data[start + i] = source[i]
        start = stop[r]


VECTOR_ROWS = 2048  # The most rows of a DuckDB vector.

BLOCK_BYTES, FEWEST_ROWS, FEWEST_BYTES = 4 << 20, 64, 16 << 20
"""A block has at most BLOCK_BYTES, but at least FEWEST_ROWS rows if these fit FEWEST_BYTES."""

_BYTES = {"INTEGER": 4, "DOUBLE": 8}


@dataclass(frozen=True, slots=True, eq=False)
class BytecodePlan:
    """A plan for a matrix of `width` columns, encoded as the integers `words`.

    The other fields keep alive what `words` points to. Calls for small and for large batches need
    different kernels, so they are built when the first batch of that size arrives.
    """

    words: Array
    width: int
    lookups: tuple[Call, ...] = ()
    small_calls: KernelCalls | None = None
    large_calls: KernelCalls | None = None
    references: tuple[Any, ...] = ()

    @property
    def address(self) -> int:
        return int(self.words.ctypes.data)


def explain_obstacle(function: BatchFunction) -> str | None:
    """Return the reason why machine code cannot score batches, or None if it can."""
    if function.last_rows is not None:
        return "it remembers rows that come again"
    return None if _find_filler(function) is not None else "some of the model's steps run in Python"


def build_plan(
    function: BatchFunction, row_count: int, old_plan: BytecodePlan | None = None
) -> BytecodePlan:
    """Build a plan with calls for batches of `rows` rows, and with the calls of `old_plan`.

    The plan has no calls if Python scores the batches. Raises NotReady if a kernel is still being
    compiled and the caller need not wait.
    """
    filler = None if explain_obstacle(function) else _find_filler(function)
    plan = None if filler is None else _build_plan_of_calls(function, filler, row_count, old_plan)
    return build_python_plan(function) if plan is None else plan


def build_python_plan(function: BatchFunction) -> BytecodePlan:
    """Build a plan without calls, so that Python scores the batches."""
    width, texts = function.packed, (TEXT_BYTES,) * function.texts
    return BytecodePlan(_encode_plan(function, range(width), width, (0,) * 6, texts), width)


def _count_model_texts(function: BatchFunction) -> int:
    return function.texts if function.lookup is None else function.lookup.first_text


def _find_filler(function: BatchFunction) -> Any:
    """Return a filler that records kernel calls, or None if kernels cannot score all rows."""
    width = function.width
    if _count_model_texts(function):
        filler = find_text_filler(function.compiled, function.output)
    else:
        filler = find_filler(function.compiled, function.output, range(width), width)
    is_usable = hasattr(filler, "make_calls") and filler.input == function.dtype
    return filler if is_usable else None


def _build_plan_of_calls(
    function: BatchFunction, filler: Any, row_count: int, old_plan: BytecodePlan | None
) -> BytecodePlan | None:
    """Build a plan with calls; return None if a kernel depends on numba's runtime."""
    lookup, width = function.lookup, function.width
    large_batch = filler.find_large_batch() if hasattr(filler, "find_large_batch") else 0
    large_batch = int(np.ceil(min(large_batch, VECTOR_ROWS + 1)))
    if old_plan is None:
        lookups = () if lookup is None else tuple(make_code_calls(lookup, width))
        old_plan = BytecodePlan(np.empty(0, np.int64), width, lookups)
    lookups = old_plan.lookups
    small_calls, large_calls = old_plan.small_calls, old_plan.large_calls
    if row_count < large_batch:
        small_calls = small_calls or _make_kernel_calls(function, filler, lookups, 1)
    else:
        large_calls = large_calls or _make_kernel_calls(function, filler, lookups, VECTOR_ROWS)
    batch_calls = [calls for calls in (small_calls, large_calls) if calls is not None]
    tables = {id(calls): calls.encode() for calls in batch_calls}
    call_tables: list[int] = []
    for calls in (small_calls, large_calls):
        table = tables.get(id(calls))
        if calls is None:
            call_tables += 0, NOT_BUILT
        elif table is None:
            return None
        else:
            call_tables += table.ctypes.data, len(calls.calls)
    scratch_sizes = [calls.measure_scratch() for calls in batch_calls]
    buffer_sizes = tuple(max(sizes) for sizes in itertools.zip_longest(*scratch_sizes, fillvalue=0))
    max_words = max(calls.count_max_words() for calls in batch_calls)
    matrix_columns = range(function.packed) if lookup is None else lookup.packed_columns or (-1,)
    call_words = (large_batch, *call_tables, max_words)
    plan_words = _encode_plan(function, matrix_columns, width, call_words, buffer_sizes)
    return BytecodePlan(plan_words, width, lookups, small_calls, large_calls, (tables, filler))


def _encode_plan(
    function: BatchFunction,
    matrix_columns: Sequence[int],
    width: int,
    call_words: tuple[int, ...],
    buffer_sizes: tuple[int, ...],
) -> Array:
    """Encode a plan for rows (n, width) as integers, in the order of `memory_layout`.

    Args:
        matrix_columns: the matrix column of each packed number, or -1 to skip the number.
        call_words: the row count from which a batch is large; the address and number of the calls
            for small batches, and of those for large batches; and the most integers in one call.
        buffer_sizes: the bytes per row of each intermediate buffer.
    """
    number_bytes = np.dtype(function.dtype).itemsize
    row_bytes = width * number_bytes + sum(buffer_sizes)
    levels = 2 if function.groups else int(function.columns > 1 or function.is_listed)
    levels = STRUCT if function.fields else levels
    groups = (function.groups or (function.columns,)) if levels > 0 else ()
    head_words = (
        function.packed,
        function.texts,
        width,
        number_bytes,
        min(_count_block_rows(row_bytes), function.max_rows or VECTOR_ROWS),
        *call_words,
        len(buffer_sizes),
        function.columns,
        4 if function.is_integer else 8,
        levels,
        len(groups),
    )
    assert len(head_words) == HEAD
    field_bytes = [_BYTES[sql_type] for _, sql_type in function.fields]
    ends_or_sizes = np.cumsum([0, *groups]) if groups else field_bytes
    return np.array([*head_words, *matrix_columns, *buffer_sizes, *ends_or_sizes], np.int64)


def _count_block_rows(row_bytes: int) -> int:
    """Return how many rows of `row_bytes` bytes to score together.

    >>> [_count_block_rows(size) for size in (8, 4096, 1 << 17, 1 << 20, 1 << 25)]
    [2048, 1024, 64, 16, 1]
    """
    min_rows = max(1, min(FEWEST_ROWS, FEWEST_BYTES // row_bytes))
    return min(VECTOR_ROWS, max(min_rows, BLOCK_BYTES // row_bytes))


def _make_kernel_calls(
    function: BatchFunction, filler: Any, lookup_calls: tuple[Call, ...], row_count: int
) -> KernelCalls:
    """Return the calls that look up strings, run the filler, and convert the filler's output."""
    dtype = np.dtype(np.int32 if function.is_integer else np.float64)
    free_buffers = itertools.count(get_text_buffer(function.texts))
    x = Rows(INPUT, np.dtype(function.dtype), function.width)
    result = output = Rows(RESULT, dtype, function.columns)
    if filler.dtype != dtype:
        output = Rows(next(free_buffers), filler.dtype, function.columns)
    options: dict[str, Any] = {}
    if hasattr(filler, "find_large_batch"):
        options["row_count"] = row_count
    addresses = (Rows(buffer, np.dtype(np.int64), 1, is_flat=True) for buffer in free_buffers)
    ends = [(next(addresses), next(addresses)) for _ in range(_count_model_texts(function))]
    if ends:
        options["texts"] = ends
    lookup_calls += tuple(make_find_bounds_call(k, *pair) for k, pair in enumerate(ends))
    calls: Sequence[Call] = filler.make_calls(x, output, free_buffers, **options)
    if function.class_offsets:
        calls = (*calls, call_shift(output, np.array(function.class_offsets, np.int64), result))
    elif output is not result:
        calls = (*calls, call_convert(output.flatten(), result.flatten()))
    return KernelCalls((*lookup_calls, *calls))
