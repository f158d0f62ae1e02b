"""The DuckDB session: queries and statements about models on a DuckDB connection.

A Session passes plain SQL to DuckDB. Queries that call models are planned and rewritten, and their
functions are registered. `sqlml/statements/` carries out statements about models. Results are
DuckDB's results. Errors are translated.

Read first:
    session.py: `Session`, with `_run`, the stages of a text.
    services.py: `Services`, the components of a session, created in one function.
    planned_queries.py: from a query to the SQL that DuckDB runs, and EXPLAIN.

To add a method to the sessions of both engines, put it into `statements/model_methods.py`.
"""
