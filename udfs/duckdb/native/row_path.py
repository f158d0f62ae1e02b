"""The row path: the kernel that DuckDB calls for each vector of rows, without Python's lock.

    score(info, chunk, out):
        take the plan of the function, or let Python build one
        for each block of rows: gather the columns into a matrix, and make the calls of the plan

The FLOAT or DOUBLE columns come first, with NaN for NULL, and the VARCHAR columns follow. A plan is
a table of integers (`plan_bytecode.py`) whose calls run kernels (`kernel_calls.py`). If a plan has
no calls, or if a kernel rejects a row, `native_functions._score_in_python` scores the block. A call
by name uses the state of the function to which the call was bound. Functions of DuckDB's C
API are called by name; `c_api.py` finds their addresses.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sqlml.backends.native.follow_calls import ALIGN, align_address, follow
from sqlml.backends.native.jit.call_wrapper import LONG
from sqlml.backends.native.jit.helpers import intrinsic
from sqlml.backends.native.jit.process_memory import (
    array_like_at,
    bits_at,
    doubles_at,
    floats_at,
    free,
    int32s_at,
    integer_signature,
    malloc,
    process_function_1,
    process_function_2,
    process_function_6,
    words_at,
)
from sqlml.backends.native.jit.specialise import COUNT, Signature, compiled_helper, inlined_helper
from sqlml.udfs.duckdb.native.memory_layout import (
    ALL_BATCHES,
    BATCHES,
    BLOCK_ROWS,
    BUFFERS,
    BUILD_PLAN,
    CALLS_BY_NAME,
    COLUMNS,
    FLAT,
    GROUPS,
    HEAD,
    INDEX,
    LARGE_BATCH,
    LARGE_CALLS,
    LARGE_TABLE,
    LEVELS,
    MATRIX_WIDTH,
    MAX_WORDS,
    MEASURE,
    NO_MEMORY,
    NOT_BUILT,
    NULL_LENGTH,
    NULL_ROW,
    NUMBER_BYTES,
    PACKED_ROWS,
    REPORT,
    RESULT_BYTES,
    ROW_FORMAT,
    SCORE,
    SMALL_CALLS,
    SMALL_TABLE,
    STATE,
    STRUCT,
    TEXTS,
    USERS,
    WIDTH,
)


def _make_atomic_intrinsic(operation: str) -> Any:
    """Return an intrinsic that changes an integer in memory and returns the previous value."""

    def change(typing: Any, address: Any, operand: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            pointer = builder.inttoptr(arguments[0], LONG.as_pointer())
            return builder.atomic_rmw(operation, pointer, arguments[1], "seq_cst")

        return integer_signature(2), generate

    return intrinsic(change)


add_atomically, exchange_atomically = _make_atomic_intrinsic("add"), _make_atomic_intrinsic("xchg")

SIGNATURE: Signature = (COUNT, COUNT, COUNT)
"""Argument kinds of `score`: the addresses of the call, the chunk, and the result."""

COLUMNS_SIGNATURE: Signature = (COUNT,) * 6
"""Argument kinds of `score_columns`."""

BLOCK_ARGUMENTS = 4  # The integers that `native_functions._score_in_python` reads.

TILE_ROWS = 64
"""Rows that are gathered at a time, so that this part of the matrix stays in the L1 cache."""

_U = np.uint64
call_python: Any = process_function_6("sqlml_call_python")
"""Calls a Python function with four integers; see `runtime.c`."""

duckdb_scalar_function_set_error: Any = process_function_2("duckdb_scalar_function_set_error")
duckdb_scalar_function_get_extra_info: Any = process_function_1(
    "duckdb_scalar_function_get_extra_info"
)
duckdb_scalar_function_get_bind_data: Any = process_function_1(
    "duckdb_scalar_function_get_bind_data"
)
duckdb_data_chunk_get_size: Any = process_function_1("duckdb_data_chunk_get_size")
duckdb_data_chunk_get_column_count: Any = process_function_1("duckdb_data_chunk_get_column_count")
duckdb_data_chunk_get_vector: Any = process_function_2("duckdb_data_chunk_get_vector")
duckdb_vector_get_data: Any = process_function_1("duckdb_vector_get_data")
duckdb_vector_get_validity: Any = process_function_1("duckdb_vector_get_validity")
duckdb_vector_ensure_validity_writable: Any = process_function_1(
    "duckdb_vector_ensure_validity_writable"
)
duckdb_array_vector_get_child: Any = process_function_1("duckdb_array_vector_get_child")
duckdb_struct_vector_get_child: Any = process_function_2("duckdb_struct_vector_get_child")
duckdb_list_vector_get_child: Any = process_function_1("duckdb_list_vector_get_child")
duckdb_list_vector_reserve: Any = process_function_2("duckdb_list_vector_reserve")
duckdb_list_vector_set_size: Any = process_function_2("duckdb_list_vector_set_size")


@inlined_helper
def is_valid(bits: Any, row: Any) -> Any:
    return (bits[row >> _U(6)] >> (row & _U(63))) & _U(1) == _U(1)


@inlined_helper
def _set_list_entries(vector: Any, rows: Any, ends: Any) -> Any:
    """Write the offset and length of each list in a list vector; return the vector's child vector.

    Each row has one list per group. The list of group k has the numbers ends[k] to ends[k + 1] - 1
    of the row. The caller has reserved memory for the numbers.
    """
    list_count = ends.size - 1
    duckdb_list_vector_set_size(vector, rows * ends[list_count])
    entries = words_at(duckdb_vector_get_data(vector), 2 * rows * list_count)
    for r in range(rows):
        for k in range(list_count):
            position = 2 * (r * list_count + k)
            entries[position] = r * ends[list_count] + ends[k]
            entries[position + 1] = ends[k + 1] - ends[k]
    return duckdb_list_vector_get_child(vector)


@inlined_helper
def _gather(
    columns: Any, masks: Any, target: Any, first: Any, rows: Any, width: Any, x: Any
) -> None:
    """Copy rows `first` to `first` + `rows` - 1 into x (rows * width,); NULL becomes NaN.

    Args:
        columns: int64 (k,), the address of each column's numbers.
        masks: int64 (k,), the address of each column's validity mask, or 0 without NULLs.
        target: int64 (k,), the column of x to which each column is copied, or -1 to skip it.
    """
    for begin in range(0, rows, TILE_ROWS):
        end = min(begin + TILE_ROWS, rows)
        for c in range(target.size):
            if target[c] < 0:
                continue
            column = array_like_at(x, columns[c], first + rows)
            if masks[c] == 0:
                for r in range(_U(begin), _U(end)):
                    x[r * _U(width) + _U(target[c])] = column[_U(first) + r]
            else:
                bits = bits_at(masks[c], (first + rows + 63) // 64)
                for r in range(_U(begin), _U(end)):
                    at = _U(first) + r
                    x[r * _U(width) + _U(target[c])] = column[at] if is_valid(bits, at) else np.nan


@inlined_helper
def _gather_packed(addresses: Any, target: Any, first: Any, rows: Any, width: Any, x: Any) -> None:
    """Copy packed rows into x as `_gather` does; `addresses` are those of numbers and mask."""
    column_count, mask = target.size, addresses[1]
    numbers = array_like_at(x, addresses[0], (first + rows) * column_count)
    bits = bits_at(mask, ((first + rows) * column_count + 63) // 64)
    for r in range(rows):
        for c in range(column_count):
            if target[c] >= 0:
                i = _U((first + r) * column_count + c)
                x[r * width + target[c]] = numbers[i] if mask == 0 or is_valid(bits, i) else np.nan


@inlined_helper
def _has_null(mask: Any, rows: Any) -> Any:
    if mask != 0:
        bits = bits_at(mask, (rows + 63) // 64)
        for r in range(rows):
            if not is_valid(bits, _U(r)):
                return True
    return False


@inlined_helper
def _gather_texts(strings_at: Any, mask: Any, first: Any, rows: Any, out_at: Any) -> None:
    """Copy strings from row `first` on to the address `out_at`; NULL has length NULL_LENGTH."""
    strings, out = bits_at(strings_at, 2 * (first + rows)), bits_at(out_at, 2 * rows)
    for r in range(rows):
        out[2 * r], out[2 * r + 1] = strings[2 * (first + r)], strings[2 * (first + r) + 1]
    if mask != 0:
        bits = bits_at(mask, (first + rows + 63) // 64)
        for r in range(rows):
            if not is_valid(bits, _U(first + r)):
                out[2 * r] = _U(NULL_LENGTH)


@inlined_helper
def _scatter(results_at: Any, first: Any, rows: Any, field_sizes: Any, struct_vector: Any) -> None:
    """Write results (rows, fields) to the fields of a struct vector, from row `first` on.

    `field_sizes` has the bytes of each field's values: 4 for INTEGER, 8 for DOUBLE.
    """
    num_fields = field_sizes.size
    results = doubles_at(results_at, rows * num_fields)
    for k in range(num_fields):
        field_at = duckdb_vector_get_data(duckdb_struct_vector_get_child(struct_vector, k))
        if field_sizes[k] == 4:
            field_integers = int32s_at(field_at, first + rows)
            for r in range(rows):
                field_integers[first + r] = np.int32(results[r * num_fields + k])
        else:
            field_doubles = doubles_at(field_at, first + rows)
            for r in range(rows):
                field_doubles[first + r] = results[r * num_fields + k]


@compiled_helper
def _pick(columns: Any, masks: Any, target: Any, picked_rows: Any, width: Any, x: Any) -> None:
    """Copy `picked_rows` of DOUBLE columns into x, as `_gather` does for consecutive rows."""
    # Views of 1 << 40 items reach any row, since the length of a column is unknown here.
    for begin in range(0, picked_rows.size, TILE_ROWS):
        end = min(begin + TILE_ROWS, picked_rows.size)
        for c in range(target.size):
            if target[c] < 0:
                continue
            column = doubles_at(columns[c], 1 << 40)
            bits = bits_at(masks[c], 1 << 40)
            for r in range(_U(begin), _U(end)):
                row = _U(picked_rows[r])
                has_number = masks[c] == 0 or is_valid(bits, row)
                x[r * _U(width) + _U(target[c])] = column[row] if has_number else np.nan


@compiled_helper
def _pick_texts(strings_at: Any, mask: Any, picked_rows: Any, out_at: Any) -> None:
    """Copy the strings of `picked_rows`, as `_gather_texts` does for consecutive rows."""
    strings, out = bits_at(strings_at, 1 << 40), bits_at(out_at, 2 * picked_rows.size)
    bits = bits_at(mask, 1 << 40)
    for r in range(picked_rows.size):
        row = _U(picked_rows[r])
        out[2 * r], out[2 * r + 1] = strings[_U(2) * row], strings[_U(2) * row + _U(1)]
        if mask != 0 and not is_valid(bits, row):
            out[2 * r] = _U(NULL_LENGTH)


@compiled_helper
def _write_picked(results_at: Any, picked_rows: Any, result_bytes: Any, out: Any) -> None:
    """Write result k to row picked_rows[k] at `out`: 4 bytes are an INTEGER, 8 bytes a DOUBLE."""
    if result_bytes == 4:
        result_integers = int32s_at(results_at, picked_rows.size)
        out_integers = int32s_at(out, 1 << 40)
        for r in range(picked_rows.size):
            out_integers[picked_rows[r]] = result_integers[r]
    else:
        results, out_numbers = doubles_at(results_at, picked_rows.size), doubles_at(out, 1 << 40)
        for r in range(picked_rows.size):
            out_numbers[picked_rows[r]] = results[r]


@inlined_helper
def _choose_calls(plan: Any, rows: Any) -> Any:
    return plan[SMALL_CALLS] if rows < plan[LARGE_BATCH] else plan[LARGE_CALLS]


def put_plan(state_at: Any, plan_at: Any) -> Any:
    """Replace a function's plan; return how many threads may still use the previous plan.

    A thread counts itself before it reads the plan. So if the count is 0, no thread uses the
    previous plan.
    """
    exchange_atomically(state_at, plan_at)
    return add_atomically(state_at + 8 * USERS, 0)


def same(address: Any) -> Any:
    """Copy a call's bind data for DuckDB: the address of a permanent state, which is shared."""
    return address


@compiled_helper
def _enter_plan(info: Any, state_at: Any, rows: Any) -> Any:
    """Return the address of a plan for `rows` rows, and count this thread as a user of the plan.

    If the plan is missing, Python builds it. Returns 0 if this fails; the thread is not counted.
    """
    state = words_at(state_at, STATE)
    add_atomically(state_at + 8 * USERS, 1)
    plan_at = add_atomically(state_at, 0)
    while plan_at == 0 or _choose_calls(words_at(plan_at, HEAD), rows) == NOT_BUILT:
        add_atomically(state_at + 8 * USERS, -1)
        if call_python(state[BUILD_PLAN], state[REPORT], state[INDEX], info, rows, 0) == 0:
            return 0
        add_atomically(state_at + 8 * USERS, 1)
        plan_at = add_atomically(state_at, 0)
    return plan_at


@compiled_helper
def _reserve_lists(vector: Any, rows: Any, levels: Any, list_count: Any, number_count: Any) -> None:
    """Reserve room in a vector for the lists of `rows` rows.

    DuckDB throws a C++ exception when memory runs out, and this machine code has no handlers. So
    the caller must not hold memory yet, and must not be counted as a user of a plan.
    """
    if levels > 1:
        duckdb_list_vector_reserve(vector, rows * list_count)
        vector = duckdb_list_vector_get_child(vector)
    if levels > 0:
        duckdb_list_vector_reserve(vector, rows * number_count)


@inlined_helper
def _count_list_numbers(plan_at: Any) -> Any:
    """Return how many numbers the lists of a row have in total."""
    plan = words_at(plan_at, HEAD)
    ends_at = plan_at + 8 * (HEAD + plan[COLUMNS] + plan[BUFFERS])
    return words_at(ends_at, plan[GROUPS] + 1)[plan[GROUPS]]


@inlined_helper
def _measure(info: Any, state: Any, rows: Any) -> None:
    """Record that a batch starts (`rows` is -1) or ends, if the function is metered."""
    if state[MEASURE] != 0:
        call_python(state[MEASURE], state[REPORT], state[INDEX], info, rows, 0)


@compiled_helper
def score_rows(
    info: Any, state_at: Any, addresses: Any, picked_rows: Any, rows: Any, out: Any, reserved: Any
) -> Any:
    """Score rows and write the results to `out`; return False if an error was set in DuckDB.

    Args:
        addresses: int64 (2 k,), the addresses of k columns, numeric columns first, followed by
            the addresses of their validity masks (0 without NULLs). For packed rows, k is 1: the
            only column is an array with all numbers.
        picked_rows: int64 (rows,), the rows to score, whose numeric columns are DOUBLE. `out` is
            then the address of an array, where each row's single result is written to the row's
            position. If `picked_rows` is empty, all rows of a chunk are scored, and `out` is the
            result vector.
        reserved: the number of lists per row, and of numbers per row, for which `out` has room.
    """
    state = words_at(state_at, STATE)
    add_atomically(state_at + 8 * BATCHES, 1)
    add_atomically(state[ALL_BATCHES], 1)
    plan_at = _enter_plan(info, state_at, rows)
    if plan_at == 0:
        return False
    plan = words_at(plan_at, HEAD)
    if plan[LEVELS] > 0 and (
        plan[GROUPS] > reserved[0] or _count_list_numbers(plan_at) > reserved[1]
    ):
        # Room was reserved for an earlier plan, whose results were smaller.
        duckdb_scalar_function_set_error(info, state[NO_MEMORY])
        succeeded = False
    else:
        _measure(info, state, -1)
        succeeded = _score_blocks(info, state, plan_at, addresses, picked_rows, rows, out)
        _measure(info, state, rows)
    add_atomically(state_at + 8 * USERS, -1)
    return succeeded


@compiled_helper
def _score_blocks(
    info: Any, state: Any, plan_at: Any, addresses: Any, picked_rows: Any, rows: Any, out: Any
) -> Any:
    """Score the rows block by block; return False if an error was set in DuckDB."""
    plan = words_at(plan_at, HEAD)
    calls = words_at(plan[SMALL_TABLE] if rows < plan[LARGE_BATCH] else plan[LARGE_TABLE], 1 << 40)
    call_count, max_block_rows = _choose_calls(plan, rows), max(1, min(plan[BLOCK_ROWS], rows))
    buffer_count, max_words = plan[BUFFERS], plan[MAX_WORDS]
    buffer_sizes = words_at(plan_at + 8 * (HEAD + plan[COLUMNS]), buffer_count)
    # One allocation holds the integers of the calls, the addresses of the buffers, and the buffers.
    matrix_bytes = align_address(plan[MATRIX_WIDTH] * plan[NUMBER_BYTES] * max_block_rows)
    scratch_bytes = ALIGN
    for i in range(buffer_count):
        scratch_bytes += align_address(buffer_sizes[i] * max_block_rows)
    result_row_bytes = plan[WIDTH] * plan[RESULT_BYTES]
    has_result_buffer = plan[LEVELS] == STRUCT or picked_rows.size > 0
    if has_result_buffer:
        scratch_bytes += result_row_bytes * max_block_rows
    word_count = max_words + buffer_count + 2 + BLOCK_ARGUMENTS
    memory_at = malloc(8 * word_count + matrix_bytes + scratch_bytes)
    if memory_at == 0:
        duckdb_scalar_function_set_error(info, state[NO_MEMORY])
        return False
    memory = words_at(memory_at, word_count)
    call_words, block_arguments = memory[:max_words], memory[max_words:][:BLOCK_ARGUMENTS]
    buffers = memory[max_words + BLOCK_ARGUMENTS :]
    buffers[0] = align_address(memory_at + 8 * word_count)
    next_buffer = buffers[0] + matrix_bytes
    for i in range(buffer_count):
        buffers[2 + i] = next_buffer
        next_buffer += align_address(buffer_sizes[i] * max_block_rows)
    if has_result_buffer:
        result = next_buffer
    elif plan[LEVELS] == FLAT:
        result = out
    else:
        result = duckdb_vector_get_data(_set_lists(plan_at, rows, out, block_arguments))
    is_packed = state[ROW_FORMAT] == PACKED_ROWS
    succeeded = True
    for first in range(0, rows, max_block_rows):
        block_rows = min(max_block_rows, rows - first)
        _gather_block(is_packed, plan_at, addresses, picked_rows, first, block_rows, buffers)
        buffers[1] = result if has_result_buffer else result + first * result_row_bytes
        if call_count == 0 or follow(calls, call_count, block_rows, buffers, call_words) != -1:
            block_arguments[0], block_arguments[1] = buffers[0], block_rows
            block_arguments[2], block_arguments[3] = buffers[1], buffers.ctypes.data + 16
            block_at = block_arguments.ctypes.data
            if call_python(state[SCORE], state[REPORT], state[INDEX], info, block_at, plan_at) == 0:
                succeeded = False
                break
        if picked_rows.size > 0:
            _write_picked(result, picked_rows[first : first + block_rows], plan[RESULT_BYTES], out)
        elif plan[LEVELS] == STRUCT:
            field_sizes = words_at(plan_at + 8 * (HEAD + plan[COLUMNS] + buffer_count), plan[WIDTH])
            _scatter(result, first, block_rows, field_sizes, out)
    free(memory_at)
    return succeeded


@compiled_helper
def _set_lists(plan_at: Any, rows: Any, out: Any, scratch: Any) -> Any:
    """Set the lists of the vector `out`; return the child vector that holds the numbers."""
    plan = words_at(plan_at, HEAD)
    if plan[LEVELS] > 1:
        scratch[0], scratch[1] = 0, plan[GROUPS]
        out = _set_list_entries(out, rows, scratch[:2])
    if plan[LEVELS] > 0:
        group_ends_at = plan_at + 8 * (HEAD + plan[COLUMNS] + plan[BUFFERS])
        out = _set_list_entries(out, rows, words_at(group_ends_at, plan[GROUPS] + 1))
    return out


@compiled_helper
def _gather_block(
    is_packed: Any, plan_at: Any, addresses: Any, picked: Any, first: Any, rows: Any, buffers: Any
) -> None:
    """Copy a block's numbers to buffer 0, and the string columns to buffers 2, 3, ..."""
    plan = words_at(plan_at, HEAD)
    first_text, size = plan[COLUMNS], plan[MATRIX_WIDTH] * rows
    target = words_at(plan_at + 8 * HEAD, first_text)
    if is_packed:
        packed = doubles_at(buffers[0], size)
        _gather_packed(addresses, target, first, rows, plan[MATRIX_WIDTH], packed)
    elif plan[NUMBER_BYTES] == 4:
        _gather_numbers(addresses, target, picked, first, rows, floats_at(buffers[0], size))
    else:
        _gather_numbers(addresses, target, picked, first, rows, doubles_at(buffers[0], size))
    masks = addresses[addresses.size // 2 :]
    for i in range(plan[TEXTS]):
        strings_at, mask = addresses[first_text + i], masks[first_text + i]
        if picked.size > 0:
            _pick_texts(strings_at, mask, picked[first : first + rows], buffers[2 + i])
        else:
            _gather_texts(strings_at, mask, first, rows, buffers[2 + i])


@compiled_helper
def _gather_numbers(
    addresses: Any, target: Any, picked_rows: Any, first: Any, rows: Any, x: Any
) -> None:
    columns, masks = addresses, addresses[addresses.size // 2 :]
    if picked_rows.size > 0:
        _pick(columns, masks, target, picked_rows[first : first + rows], x.size // rows, x)
    else:
        _gather(columns, masks, target, first, rows, x.size // rows, x)


def score(info: Any, chunk: Any, out: Any) -> Any:
    """Write the results of a chunk of rows to the vector `out` (see the module's docstring)."""
    state_at = duckdb_scalar_function_get_extra_info(info)
    state = words_at(state_at, STATE)
    rows = duckdb_data_chunk_get_size(chunk)
    if state[ROW_FORMAT] == CALLS_BY_NAME:
        bound_state_at = duckdb_scalar_function_get_bind_data(info)
        packed = duckdb_data_chunk_get_vector(chunk, 1)
        if bound_state_at == 0 or _has_null(duckdb_vector_get_validity(packed), rows):
            duckdb_scalar_function_set_error(info, state[NULL_ROW])
            return np.int64(0)
        state_at = bound_state_at
        state = words_at(state_at, STATE)
    is_packed = state[ROW_FORMAT] == PACKED_ROWS
    column_count = 1 if is_packed else duckdb_data_chunk_get_column_count(chunk)
    plan_at = _enter_plan(info, state_at, rows)
    if plan_at == 0:
        return np.int64(0)
    levels, list_count, number_count = (words_at(plan_at, HEAD)[LEVELS], np.int64(0), np.int64(0))
    if levels > 0:
        list_count, number_count = (words_at(plan_at, HEAD)[GROUPS], _count_list_numbers(plan_at))
    add_atomically(state_at + 8 * USERS, -1)
    _reserve_lists(out, rows, levels, list_count, number_count)
    memory_at = malloc(16 * column_count)
    if memory_at == 0:
        duckdb_scalar_function_set_error(info, state[NO_MEMORY])
        return np.int64(0)
    addresses = words_at(memory_at, 2 * column_count)
    for c in range(column_count):
        column = duckdb_data_chunk_get_vector(chunk, c)
        if is_packed:
            column = duckdb_array_vector_get_child(duckdb_data_chunk_get_vector(chunk, 1))
        addresses[c] = duckdb_vector_get_data(column)
        addresses[column_count + c] = duckdb_vector_get_validity(column)
    score_rows(info, state_at, addresses, addresses[:0], rows, out, (list_count, number_count))
    free(memory_at)
    return np.int64(0)


def score_columns(
    info: Any, state_at: Any, addresses_at: Any, columns: Any, rows: Any, out: Any
) -> Any:
    """Write the results of `rows` rows to the memory at `out`; return 0 if an error was set.

    `addresses_at` is the address of the `addresses` of `score_rows`, for `columns` columns.
    """
    addresses = words_at(addresses_at, 2 * columns)
    no_lists = (np.int64(0), np.int64(0))
    succeeded = score_rows(info, state_at, addresses, addresses[:0], rows, out, no_lists)
    return np.int64(1) if succeeded else np.int64(0)
