"""The sql backend: prints Programs as SQL, which needs no function calls.

Read first:

* `expression.py`: `Expression`, a number of a row as SQL, and `NodePrinter`, a node to print.
* `printer.py`: the walk over the Program. `layers.py` turns it into queries for other databases.
* `column_sql.py`, `elementwise_sql.py`, `tree_sql.py`: a printer per operator.

To print another operator, add a function from `NodePrinter` to its columns to `PRINTERS` in one of
these. The contract tests compare it with the reference interpreter.
"""
