"""Functions of models that DuckDB calls as machine code, without Python's lock."""
