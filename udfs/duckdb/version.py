"""Which DuckDB this is: all that differs between 1.5 and 2.0 asks `IS_TWO`."""

from __future__ import annotations

import duckdb

IS_TWO = hasattr(duckdb.DuckDBPyConnection, "complete")
"""Whether this is DuckDB 2.0: it streams results, tables may have triggers, and a file opens again
whose log has a type in a schema of that log."""
