"""Limits of sizes and memory, and the version of the stored format."""

from __future__ import annotations

FORMAT_VERSION = 3
"""Version of the stored Program format (`ir/store.py`) and of the catalog tables."""

MAX_ARTIFACT_BYTES = 4 << 30
"""Largest model file that CREATE MODEL reads."""

MAX_FETCHED_ROWS = 5_000_000
"""Maximum number of rows of a Spark query that the driver fetches to train on."""

MAX_PROGRAM_BYTES = 8 << 30
"""Maximum size of a stored Program after decompression."""

MAX_ROW_VALUES = 1 << 20
"""Maximum number of values per row in any step of a Program, such as a one-hot block."""

MAX_CONSTANT_VALUES = 1 << 28
"""Maximum number of elements in a value that does not depend on rows, in any step."""

MAX_NODES = 1_000_000
"""Maximum number of operators of a stored Program."""

MAX_TREE_DEPTH = 10_000
"""Maximum number of splits on a path through a tree: time per row grows with it, even if the file
is small."""

MAX_SQL_CHARACTERS = 4 << 20
"""Maximum length of the SQL expression of a model."""

RECENT_BYTES = 1 << 30
"""Size of each cache of loaded Programs (one per database) and compiled functions (one per
process)."""

PREPARED_BYTES = 1 << 28
"""Size of the cache for the results of each step from a loaded to a compiled Program. There is one
per Program and step; the results share most arrays with the Program."""

DROPPED_BYTES = 1 << 24
"""Size of the cache of compiled functions of dropped models, which running queries may call."""

FOUND_BYTES = MADE_BYTES = 1 << 22
"""Sizes of two caches: feature positions in data frames, and constants in calls of models."""
