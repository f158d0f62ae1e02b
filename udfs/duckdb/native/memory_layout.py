"""Layout of the memory that machine code shares with Python, as indices of 64-bit integers."""

from __future__ import annotations

STATE = 12
PLAN, USERS, BATCHES, INDEX, BUILD_PLAN, SCORE, MEASURE, REPORT = range(8)
NO_MEMORY, ALL_BATCHES, ROW_FORMAT, NULL_ROW = range(8, STATE)
"""A function's state, which is never freed.

In order: the address of the plan, or 0; the number of threads that may follow a plan; the number
of batches; the index of the state; the addresses of the Python functions
`native_functions._make_plan`, `_score_in_python`, `_measure` (or 0) and `report_interrupt`; the
address of the message for a lack of memory; the address of the count of all batches; the form of a
call (COLUMNS_ALONE, PACKED_ROWS or CALLS_BY_NAME); and the address of the message for a NULL row.
"""

COLUMNS_ALONE, PACKED_ROWS, CALLS_BY_NAME = range(3)
"""Forms of a call: one argument per column; a name and an array of numbers (`DOUBLE[n]`); or a name
and an array, where the name is known only when a call is bound."""

HEAD = 16
COLUMNS, TEXTS, MATRIX_WIDTH, NUMBER_BYTES, BLOCK_ROWS, LARGE_BATCH = range(6)
SMALL_TABLE, SMALL_CALLS, LARGE_TABLE, LARGE_CALLS, MAX_WORDS, BUFFERS = range(6, 12)
WIDTH, RESULT_BYTES, LEVELS, GROUPS = range(12, HEAD)
"""The head of a plan.

The head is followed by three lists. The first has the matrix column of each numeric column, or -1
to skip the column. The second has the bytes per row of each intermediate buffer; the first buffers
are the string columns. The third has the offsets of the groups in a row's numbers, or the bytes of
each field of a struct. If a plan has no calls, Python scores each block of rows.
"""

STRUCT, FLAT = -1, -2
"""Values of LEVELS if the results are structs, or numbers in memory that is not a vector's. Other
values are the nesting depth of lists."""

NOT_BUILT = -1
"""Number of calls if a plan lacks the calls for a batch. Python then builds another plan."""

TEXT_BYTES, INLINE_BYTES, NULL_LENGTH = 16, 12, (1 << 32) - 1
"""Bytes of a DuckDB string, most bytes of a short string, and length of NULL."""
