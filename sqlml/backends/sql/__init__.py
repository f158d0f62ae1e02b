"""The sql backend: Programs as SQL expressions, which need no function call."""

from sqlml.backends.sql.linear import Linear, linear_sql
from sqlml.backends.sql.literals import string_literal
from sqlml.backends.sql.printer import print_sql, printable
from sqlml.backends.sql.texts import expressions

__all__ = ["Linear", "expressions", "linear_sql", "print_sql", "printable", "string_literal"]
