"""The user's own steps, whose SQL is registered with `register_step`.

`importer.py` is the entry point: it finds the SQL of a fitted step, converts it to operators
(`sql_expressions.py`, on the three-valued logic of `sql_functions.py`), and compares the result
with the step itself on generated rows. To cover another SQL function, add it to a table there.
"""
