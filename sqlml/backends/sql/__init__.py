"""The sql backend: Programs as SQL expressions, which need no function call."""

from sqlml.backends.sql.expression import string_literal
from sqlml.backends.sql.linear import Linear, linear_sql
from sqlml.backends.sql.printer import expressions, print_sql, printable

__all__ = ["Linear", "expressions", "linear_sql", "print_sql", "printable", "string_literal"]
