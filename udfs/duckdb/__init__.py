"""DuckDB as an engine."""
