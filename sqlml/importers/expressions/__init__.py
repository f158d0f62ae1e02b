"""Expressions over columns, compiled to operators of a Program.

`formula.py` parses patsy's formulas, and `sql_steps.py` the SQL of the user's own steps. Both
return sqlglot trees with the meaning of SQL. `compiler.py` compiles the trees with the functions
and the three-valued logic of `functions.py`. The engine computes the expressions of TRANSFORM
itself.

To support another function, add it to a table of `functions.py`.
"""
