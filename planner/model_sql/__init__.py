"""Models as SQL expressions and macros of the engine itself.

The input is a Program and the expressions that feed it. The result is either an expression in the
user's statement, if that is cheaper than a function, or the body of a macro, which works without
planning or even without sqlml.

Read first:

* `sql_or_function.py`: writes a call as an expression if that is cheapest.
* `tree_expression.py`: the expression of a small tree.
* `export_macros.py`: macros that need no sqlml; `macro_bodies.py`: macros that call sqlml's
  functions.

Operators are printed by `sqlml/backends/sql/`. To support another one, add its printer there.
"""
