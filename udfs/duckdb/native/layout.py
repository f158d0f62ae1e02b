"""The words of memory that the row path shares with Python: a function's state, and its plan."""

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
"""Of a text of DuckDB's (`string_codes.py`)."""
