"""Limits of sizes and memory, and the version of what is stored."""

from __future__ import annotations

FORMAT_VERSION = 3
"""Version of the stored Program format (`ir/store.py`) and of the catalog tables."""

MAX_ARTIFACT_BYTES = 4 << 30
"""Largest model file that CREATE MODEL reads."""

MAX_FETCHED_ROWS = 5_000_000
"""Most rows of a Spark query that the driver fetches to train on."""

MAX_PROGRAM_BYTES = 8 << 30
"""Largest size that a stored Program may take once decompressed."""

MAX_ROW_VALUES = 1 << 20
"""Most numbers that one row may take in any step of a Program (a one-hot block, say)."""

MAX_CONSTANT_VALUES = 1 << 28
"""Most numbers that a value without rows may have in any step of a Program."""

MAX_NODES = 1_000_000
"""Most operators that a stored Program may have."""

MAX_TREE_DEPTH = 10_000
"""Most tests on a path through a tree: time per row grows with it, however small the file."""

MAX_SQL_CHARACTERS = 4 << 20
"""Longest expression that a model is written as in SQL."""

RECENT_BYTES = 1 << 30
"""Memory for each kind of thing that is kept for the next use: loaded Programs of a database,
compiled functions of a process."""

PREPARED_BYTES = 1 << 28
"""Memory for the results of each step from a loaded to a compiled Program, while the Program lives;
most of the arrays are the Program's own."""

DROPPED_BYTES = 1 << 24
"""Memory for compiled functions of dropped models, which a query that runs may still call."""

FOUND_BYTES = MADE_BYTES = 1 << 22
"""Memory for where models' features lie in frames, and for the literals that models have seen."""
