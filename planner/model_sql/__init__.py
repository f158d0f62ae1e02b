"""Models as SQL expressions and macros of the engine itself.

A Program and the expressions that feed its inputs come in, and SQL goes out. The SQL is either an
expression in the user's statement, if that is cheaper than a function, or the body of a macro,
which works without planning or even without sqlml.

Read first:

* `sql_or_function.py`: writes a call as an expression if that is cheapest.
* `tree_expression.py`: the expression of a small tree.
* `export_macros.py`: macros that need no sqlml; `macro_bodies.py`: macros that call sqlml's
  functions.

Operators are printed by `sqlml/backends/sql/`; to support another one, add its printer there.
"""
