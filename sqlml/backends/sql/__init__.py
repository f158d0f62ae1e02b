"""The sql backend: Programs as SQL, which need no function call.

`print_sql` returns an output of a Program as one expression of DuckDB or Spark, and
`layers.print_layers` returns outputs as a stack of queries for other databases. `print_encoders`
returns encoders of strings, which feed kernels. `print_linear` returns models of one weighted sum
as especially cheap expressions.

Read first:

* `expression.py`: `Expression`, a number of a row as SQL, and `Printing`, a node that is printed.
* `printer.py`: the walk over the Program.
* `column_sql.py`, `elementwise_sql.py`, `tree_sql.py`: a printer per operator.

To print another operator, add a function from `Printing` to its columns to `PRINTERS` in one of
these. The contract tests compare it with the reference.
"""

from sqlml.backends.sql.expression import string_literal
from sqlml.backends.sql.linear_sql import Linear, print_linear
from sqlml.backends.sql.printer import explain_unprintable, print_encoders, print_sql

__all__ = [
    "Linear",
    "explain_unprintable",
    "print_encoders",
    "print_linear",
    "print_sql",
    "string_literal",
]
