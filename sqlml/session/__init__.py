"""Models in a DuckDB connection: queries, statements, and errors on their way out."""
