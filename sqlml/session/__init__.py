"""The DuckDB session: queries and statements about models on a DuckDB connection.

SQL text goes in. Text that only DuckDB has to understand is passed on; queries that call models are
planned and rewritten, and their functions are registered. Statements about models are carried out
by `sqlml/statements/`. Results are DuckDB's, and errors are translated on their way out.

Read first:
    session.py: `Session`, with `_run`, the stages of a text.
    services.py: `Services`, everything that a session works with, wired up in one function.
    planned_queries.py: from a query to the SQL that DuckDB runs, and EXPLAIN.

To add a method to sessions of both engines, put it into `statements/model_methods.py`.
"""
