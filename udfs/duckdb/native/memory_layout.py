"""Layout of the memory that the row path shares with Python: a function's state, and its plan."""

from __future__ import annotations

STATE = 12
(
    PLAN,
    USERS,
    BATCHES,
    NUMBER,
    MAKE,
    ASK,
    MEASURE,
    DIED,
    NO_MEMORY,
    ALL_BATCHES,
    ROWS_OF,
    NULL_ROW,
) = range(STATE)
"""Words of a function's state, which is never freed: the address of its plan or 0, how many threads
may follow one, how many batches came, the function's number, and the addresses of four functions of
Python's (`functions._make`, `_ask`, `_measure` or 0, `_died`), of the text of an error, and of the
number of batches that came to any function; how rows come to it (COLUMNS_ALONE, PACKED_ROWS or
NAMED), and the address of the text of another error."""

COLUMNS_ALONE, PACKED_ROWS, NAMED = range(3)
"""How rows come to a function: each column as an argument; after its name, as an array of numbers
(`DOUBLE[n]`); the same, where the name is known only when a call of it is bound."""

HEAD = 16
(
    COLUMNS,
    TEXTS,
    MATRIX_WIDTH,
    NUMBER_BYTES,
    BLOCK,
    TURN,
    FEW_TABLE,
    FEW_CALLS,
    MANY_TABLE,
    MANY_CALLS,
    MOST_WORDS,
    PLACES,
    WIDTH,
    RESULT_BYTES,
    LEVELS,
    GROUPS,
) = range(HEAD)
"""Words of a plan. After them stand the place of each of the COLUMNS of numbers in the rows of the
matrix, or -1, the bytes a row of each of the PLACES between, of which the TEXTS come first, and the
ends of the GROUPS, or the bytes of each field of a struct. Python is asked about each block of rows
where there are no calls."""

STRUCT = -1
"""LEVELS of a plan whose results are the fields of a struct; else how deep their lists are."""

NOT_MADE = -1
"""A number of calls: the plan lacks them still, and Python makes another one."""

TEXT_BYTES = 16
"""Of a text of DuckDB's (`plan_words.py`)."""

ROUTER = 8
(SLOTS_AT, LAST_SLOT, MODELS_AT, MODELS, MOST_TAKEN, REFUSE, DIES, OUT_OF_MEMORY) = range(ROUTER)
"""Words of a function whose rows name their models (`rows_by_model.py`), never freed: the addresses
of its names, their last slot, the address of its models, how many these are, and the most columns
that one takes; the addresses of `named_models._refuse`, of `functions._died`, and of the text of an
error."""

SLOT = 4
(HASH, NAME_AT, NAME_BYTES, MODEL) = range(SLOT)
"""Words of a slot: the hash of a name, its address, 0 in a slot without one, its bytes, and the
number of its model, -1 if its rows have NULL."""

MODEL_WORDS = 4
(STATE_AT, KIND, TAKEN_AT, TAKEN) = range(MODEL_WORDS)
"""Words of a model: the address of its function's state, or 0 if each of its rows has the number
KIND; and which columns of a chunk it takes, and how many these are."""
