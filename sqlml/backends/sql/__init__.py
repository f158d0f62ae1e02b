"""The sql backend: Programs as SQL, which need no function call.

Read first:

* `expression.py`: `Expression`, a number of a row as SQL, and `Printing`, a node to be printed.
* `printer.py`: the walk over the Program. `layers.py` turns it into queries for other databases.
* `column_sql.py`, `elementwise_sql.py`, `tree_sql.py`: a printer per operator.

To print another operator, add a function from `Printing` to its columns to `PRINTERS` in one of
these. The contract tests compare it with the reference.
"""
