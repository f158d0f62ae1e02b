"""The parser of the SQL surface, built on sqlglot's DuckDB and Spark parsers.

In: the text of one or several statements. Out: `Statement` values (`parse`), sqlglot trees whose
nodes know their spans (`parse_trees`), or tokens (`tokenize`).

Read first:
    statements.py: the statements about models, as frozen values.
    model_statements.py: the grammar, with a method for each statement or change of ALTER MODEL.
    sqlglot_dialects.py: calls of models, and corrections of syntax that sqlglot misreads.

To add a statement, add a value to `statements.py`, and a rule to `STATEMENT_RULES` or `CHANGES` in
`model_statements.py`; `statement_parts.py` has the shared parts.
"""
