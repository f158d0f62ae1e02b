"""Layout of the memory that machine code shares with Python, as indices of 64-bit integers."""

from __future__ import annotations

STATE = 12
(
    PLAN,
    USERS,
    BATCHES,
    INDEX,
    BUILD_PLAN,
    SCORE,
    MEASURE,
    REPORT,
    NO_MEMORY,
    ALL_BATCHES,
    ROW_FORMAT,
    NULL_ROW,
) = range(STATE)
"""A function's state, which is never freed.

In order: the address of its plan or 0; the count of threads that may follow a plan; the count of
its batches; its index; the addresses of the Python functions `native_functions._make_plan`,
`_score_in_python`, `_measure` (or 0) and `report_interrupt`; the address of the message for a lack
of memory; the address of the count of all batches; how rows arrive (COLUMNS_ALONE, PACKED_ROWS or
CALLS_BY_NAME); and the address of the message for a NULL row.
"""

COLUMNS_ALONE, PACKED_ROWS, CALLS_BY_NAME = range(3)
"""Forms of a call: one argument per column, a name and an array of numbers (`DOUBLE[n]`), or a name
and an array where the name is only known when a call is bound."""

HEAD = 16
(
    COLUMNS,
    TEXTS,
    MATRIX_WIDTH,
    NUMBER_BYTES,
    BLOCK_ROWS,
    LARGE_BATCH,
    SMALL_TABLE,
    SMALL_CALLS,
    LARGE_TABLE,
    LARGE_CALLS,
    MAX_WORDS,
    BUFFERS,
    WIDTH,
    RESULT_BYTES,
    LEVELS,
    GROUPS,
) = range(HEAD)
"""The head of a plan.

The head is followed by three lists: the matrix column of each of the COLUMNS numeric columns, or -1
to skip it; the bytes per row of each of the BUFFERS intermediate buffers, of which the first are
the TEXTS string columns; and the offsets of the GROUPS in a row's numbers, or the bytes of each
field of a struct. If there are no calls, Python scores each block of rows.
"""

STRUCT = -1
"""LEVELS of a plan whose results are structs. Other values are the nesting depth of lists."""

NOT_BUILT = -1
"""Marks calls that the plan does not have yet; Python builds another plan with them."""

TEXT_BYTES, INLINE_BYTES, NULL_LENGTH = 16, 12, (1 << 32) - 1
"""Bytes of a DuckDB string, most bytes of a short string, length of NULL (`plan_bytecode.py`)."""
