"""Limits on sizes and memory, and the version of the stored format."""

from __future__ import annotations

FORMAT_VERSION = 3
"""Version of the stored Program format (`ir/store.py`) and of the catalog tables."""

MAX_ARTIFACT_BYTES = 4 << 30
"""Maximum size of a model file."""

MAX_FETCHED_ROWS = 5_000_000
"""Maximum number of training rows that Spark's driver fetches."""

MAX_PROGRAM_BYTES = 8 << 30
"""Maximum size of a stored Program after decompression."""

MAX_ROW_VALUES = 1 << 20
"""Maximum number of values per row in any step of a Program, such as a one-hot block."""

MAX_CONSTANT_VALUES = 1 << 28
"""Maximum number of elements in a value that does not depend on rows, in any step."""

MAX_NODES = 1_000_000
"""Maximum number of operators of a stored Program."""

MAX_TREE_DEPTH = 10_000
"""Maximum depth of a tree. Without a limit, a small file could make scoring slow."""

MAX_SQL_CHARACTERS = 4 << 20
"""Maximum length of the SQL expression of a model."""

RECENT_BYTES = 1 << 30
"""Size of a cache of loaded Programs (per database) or of compiled functions (per process)."""

PREPARED_BYTES = 1 << 28
"""Size of a cache of results for one Program and one step of compilation. Most results share arrays
with the Program."""

DROPPED_BYTES = 1 << 24
"""Size of the cache of compiled functions of dropped models, which running queries may call."""

COLUMN_INDICES_BYTES = CALL_CONSTANTS_BYTES = 1 << 22
"""Sizes of two caches: column indices in data frames, and constants in calls of models."""
