"""Expressions over columns, compiled to operators of a Program.

`formula.py` and `sql_steps.py` are front ends: they parse patsy's formulas and the SQL of the
user's own steps into sqlglot's trees. `compiler.py` compiles both, with the functions and the
three-valued logic of `functions.py`. A tree has the meaning of SQL, so a front end writes down
where its language differs: numpy's comparisons are never NULL, for example. The expressions of
TRANSFORM are not compiled, because the engine computes them (`training/transform`).

To cover another function, add it to a table of `functions.py`.
"""
