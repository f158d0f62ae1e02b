"""DuckDB as an engine: binding, registration, execution, and files.

Input: an open `duckdb` connection. Output: a `DuckDBEngine`, which planning and scoring use, and a
`DuckDBHost`, which reads and writes files and rows under the connection's access settings.

Read first: `engine.py`, then `function_registry.py`, which registers each function once per
database, and `functions_by_name.py`, which finds the scoring function when a batch arrives.
`native/` has the functions that DuckDB calls without Python.
"""
