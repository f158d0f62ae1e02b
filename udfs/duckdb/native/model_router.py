"""The kernel that DuckDB calls for rows that name their models, without Python's lock.

    route(info, chunk, out):
        look up the model of each row
        for each model: score its rows (`row_path.score_rows`), and write them to their positions

A chunk has a column of names (VARCHAR), numeric columns (DOUBLE) and string columns (VARCHAR). Each
model uses some of these columns.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sqlml.backends.native.jit.process_memory import (
    bits_at,
    bytes_at,
    free,
    int32s_at,
    malloc,
    words_at,
)
from sqlml.backends.native.jit.specialise import COUNT, Signature, compiled_helper, inlined_helper
from sqlml.backends.native.text.token_kernels import hash_bytes
from sqlml.udfs.duckdb.native.memory_layout import INLINE_BYTES
from sqlml.udfs.duckdb.native.row_path import (
    call_python,
    duckdb_data_chunk_get_size,
    duckdb_data_chunk_get_vector,
    duckdb_scalar_function_get_extra_info,
    duckdb_scalar_function_set_error,
    duckdb_vector_ensure_validity_writable,
    duckdb_vector_get_data,
    duckdb_vector_get_validity,
    is_valid,
    score_rows,
)

SIGNATURE: Signature = (COUNT, COUNT, COUNT)
"""Argument kinds of `route`: the addresses of the call, the chunk, and the result."""

ROUTER = 8
(SLOTS_AT, LAST_SLOT, MODELS_AT, MODELS, MOST_COLUMNS, REFUSE, REPORT, NO_MEMORY) = range(ROUTER)
"""The state of a function whose rows name their models. The state is never freed.

In order: the address of the slots of names, the index of the last slot, the address and number of
models, the most columns that a model uses, and the addresses of `named_models._refuse_name`,
`native_functions.report_interrupt` and an error message.
"""

SLOT = 4
(HASH, NAME_AT, NAME_BYTES, MODEL) = range(SLOT)
"""A slot of a name: the hash, the address or 0, the length in bytes, and the index of the model, or
-1 if the score of the name's rows is NULL."""

MODEL_WORDS = 4
(STATE_AT, RESULT, COLUMNS_AT, COLUMN_COUNT) = range(MODEL_WORDS)
"""A model: the address of the function's state, or 0 if the score of all rows is RESULT; RESULT;
and the address and number of the columns of a chunk that the model uses."""

NO_MODEL, UNKNOWN = -1, -2
"""Special model indexes: the score is NULL, or Python decides."""

_U = np.uint64
_LENGTH_MASK = _U((1 << 32) - 1)


@compiled_helper
def find_slot(name: Any, slots: Any, last_slot: Any) -> Any:
    """Return where the slot of `name` starts, or where the empty slot for `name` starts."""
    hash_value = np.int64(hash_bytes(name, np.int64(0), np.int64(name.size)))
    slot = hash_value & last_slot
    while slots[slot * SLOT + NAME_AT] != 0:
        slot_start = slot * SLOT
        if slots[slot_start + HASH] == hash_value and slots[slot_start + NAME_BYTES] == name.size:
            candidate = bytes_at(slots[slot_start + NAME_AT], name.size)
            k = 0
            while k < name.size and candidate[k] == name[k]:
                k += 1
            if k == name.size:
                break
        slot = (slot + 1) & last_slot
    return slot * SLOT


def put_name(name: Any, model_index: Any, slots: Any, last_slot: Any) -> None:
    """Insert `name`, uint8 (n,), and a model's index; the slots keep only the name's address."""
    slot_start = find_slot(name, slots, last_slot)
    slots[slot_start + HASH] = np.int64(hash_bytes(name, np.int64(0), np.int64(name.size)))
    slots[slot_start + NAME_AT] = np.int64(name.ctypes.data)
    slots[slot_start + NAME_BYTES] = name.size
    slots[slot_start + MODEL] = model_index


@compiled_helper
def _find_model(text_at: Any, first_word: Any, second_word: Any, slots: Any, last_slot: Any) -> Any:
    """Return the index of the model that a DuckDB string at `text_at` names, or UNKNOWN.

    `first_word` and `second_word` are the two 64-bit integers of the string.
    """
    length = np.int64(first_word & _LENGTH_MASK)
    name = bytes_at(text_at + 4 if length <= INLINE_BYTES else np.int64(second_word), length)
    slot_start = find_slot(name, slots, last_slot)
    return slots[slot_start + MODEL] if slots[slot_start + NAME_AT] != 0 else np.int64(UNKNOWN)


@inlined_helper
def _is_null(mask: Any, row: Any) -> Any:
    return mask != 0 and not is_valid(bits_at(mask, (row + 64) // 64), _U(row))


@compiled_helper
def _set_null(vector: Any, row: Any) -> None:
    duckdb_vector_ensure_validity_writable(vector)
    bits = bits_at(duckdb_vector_get_validity(vector), (row + 64) // 64)
    bits[_U(row) >> _U(6)] &= ~(_U(1) << (_U(row) & _U(63)))


@compiled_helper
def _chain_rows(info: Any, state: Any, name_vector: Any, rows: Any, out: Any, chains: Any) -> Any:
    """Link the rows of each model into a list; return how many models occur, or -1 on an error.

    `chains`, int64 (models + 2 rows,), receives the first row of each model or -1, the next row of
    the same model for each row or -1, and the indexes of the models that occur.
    """
    num_models = state[MODELS]
    first_rows, next_rows = chains[:num_models], chains[num_models:][:rows]
    used_models = chains[num_models + rows :]
    last_slot = state[LAST_SLOT]
    slots = words_at(state[SLOTS_AT], (last_slot + 1) * SLOT)
    texts_at, mask = duckdb_vector_get_data(name_vector), duckdb_vector_get_validity(name_vector)
    words = bits_at(texts_at, 2 * rows)
    model_count, model = 0, np.int64(UNKNOWN)
    first_word, second_word = _U(0), _U(0)
    for row in range(rows - 1, -1, -1):  # This way, each chain has its rows in order.
        if _is_null(mask, row):
            _set_null(out, row)
            continue
        # Equal integers mean equal strings: a short string is stored in them, and a long one is
        # identified by its address.
        if model == UNKNOWN or words[2 * row] != first_word or words[2 * row + 1] != second_word:
            first_word, second_word = words[2 * row], words[2 * row + 1]
            text_at = np.int64(texts_at + 16 * row)
            model = _find_model(text_at, first_word, second_word, slots, last_slot)
            if model == UNKNOWN:
                length = np.int64(first_word & _LENGTH_MASK)
                name_at = text_at + 4 if length <= INLINE_BYTES else np.int64(second_word)
                router_at = np.int64(state.ctypes.data)
                if call_python(state[REFUSE], state[REPORT], router_at, info, name_at, length) == 0:
                    return -1
        if model < 0:
            _set_null(out, row)
            continue
        if first_rows[model] < 0:
            used_models[model_count] = model
            model_count += 1
        next_rows[row] = first_rows[model]
        first_rows[model] = row
    return model_count


def route(info: Any, chunk: Any, out: Any) -> Any:
    """Write the results of a chunk of rows to the vector `out` (see the module's docstring)."""
    state = words_at(duckdb_scalar_function_get_extra_info(info), ROUTER)
    rows, num_models = duckdb_data_chunk_get_size(chunk), state[MODELS]
    word_count = num_models + 3 * rows + 2 * state[MOST_COLUMNS]
    memory_at = malloc(8 * word_count)
    if memory_at == 0:
        duckdb_scalar_function_set_error(info, state[NO_MEMORY])
        return np.int64(0)
    memory = words_at(memory_at, word_count)
    chains, scratch = memory[: num_models + 2 * rows], memory[num_models + 2 * rows :]
    picked_rows, addresses = scratch[:rows], scratch[rows:]
    chains[:num_models] = -1
    used_models = chains[num_models + rows :]
    results_at = duckdb_vector_get_data(out)
    model_count = _chain_rows(
        info, state, duckdb_data_chunk_get_vector(chunk, 0), rows, out, chains
    )
    for k in range(model_count - 1, -1, -1):
        model = words_at(state[MODELS_AT] + 8 * MODEL_WORDS * used_models[k], MODEL_WORDS)
        row, row_count = chains[used_models[k]], 0
        while row >= 0:
            picked_rows[row_count] = row
            row_count += 1
            row = chains[num_models + row]
        if model[STATE_AT] == 0:
            integers = int32s_at(results_at, rows)
            for i in range(row_count):
                integers[picked_rows[i]] = np.int32(model[RESULT])
            continue
        columns = words_at(model[COLUMNS_AT], model[COLUMN_COUNT])
        for c in range(columns.size):
            column = duckdb_data_chunk_get_vector(chunk, columns[c])
            addresses[c] = duckdb_vector_get_data(column)
            addresses[columns.size + c] = duckdb_vector_get_validity(column)
        column_addresses, model_rows = addresses[: 2 * columns.size], picked_rows[:row_count]
        no_lists, state_at = (np.int64(0), np.int64(0)), model[STATE_AT]
        if not score_rows(
            info, state_at, column_addresses, model_rows, row_count, results_at, no_lists
        ):
            break
    free(memory_at)
    return np.int64(0)
