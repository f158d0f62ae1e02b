"""What the tests of macros on plain connections share."""

from __future__ import annotations

from typing import Any

import duckdb

IS_2 = not duckdb.__version__.startswith("1.")
CONFIG: dict[str, Any] = {} if IS_2 else {"storage_compatibility_version": "v1.4.0"}
"""What DuckDB 1.5 needs to keep the types of a macro's parameters in a file."""

BARE = (
    "SELECT DISTINCT function_name FROM duckdb_functions() "
    "WHERE schema_name = 'main' AND NOT internal AND function_name IN "
    "('predict', 'predict_proba', 'predict_score', 'transform') ORDER BY 1"
)
"""Finds which of our macros there are."""


def rows(con: Any, query: str) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = con.execute(query).fetchall()
    return found
