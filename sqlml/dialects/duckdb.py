"""The SQL of DuckDB 1.5 and 2.0."""

from __future__ import annotations

import string
from collections.abc import Sequence
from functools import partial, reduce

from sqlml.dialects.dialect import Dialect

_BUILTIN_SCHEMA = "system.main."


def builtin(name: str) -> str:
    """Return the full name of an engine function, which no macro in a database can shadow.

    If a database has a macro with the name of an engine function, a bare name calls the macro. This
    also affects operators, `[...]`, `{...}` and `x[i]`. Full names of macros in the engine
    (`list_sum`, `nullif`) are not safe, because the macros call functions by bare names.

    >>> builtin("lower"), builtin("+")
    ('system.main.lower', 'system.main."+"')
    """
    return f"{_BUILTIN_SCHEMA}{name}" if name.isidentifier() else f'{_BUILTIN_SCHEMA}"{name}"'


def fold_in_sql(expression: str) -> str:
    """Return SQL that converts ASCII letters to lower case, like `fold`.

    >>> fold_in_sql("x")
    "system.main.translate(x, 'ABCDEFGHIJKLMNOPQRSTUVWXYZ', 'abcdefghijklmnopqrstuvwxyz')"
    """
    upper, lower = string.ascii_uppercase, string.ascii_lowercase
    return f"{builtin('translate')}({expression}, '{upper}', '{lower}')"


_SEPARATORS = ("|", ";", "\n", "\x1f")


class DuckDB(Dialect):
    """The SQL of DuckDB, with full names of functions and operators."""

    name = "duckdb"
    casts_structs_to_maps = True
    # These names may belong to a user's columns of any type.
    row_number_in_table = "TRY_CAST(rowid AS BIGINT)"
    row_number_in_file = (
        f"{builtin('+')}({builtin('*')}(CAST(TRY_CAST(file_index AS BIGINT) AS HUGEINT), "
        f"{1 << 40}), TRY_CAST(file_row_number AS BIGINT))"
    )

    def call(self, name: str, *arguments: str) -> str:
        """Call an engine function by the full name, which no macro in a database can shadow.

        >>> DUCKDB.call("isnan", "a")
        'system.main.isnan(a)'
        """
        return f"{builtin(name)}({', '.join(arguments)})"

    def operator(self, symbol: str, a: str, b: str) -> str:
        """Call an operator as a function, since the engine looks up operators by bare names."""
        return self.call(symbol, a, b)

    def negated(self, number: str) -> str:
        return self.call("-", number)

    def total(self, terms: Sequence[str]) -> str:
        return reduce(partial(self.call, "+"), terms)

    def scorer(self, name: str) -> str:
        """Return the full name of a scoring function, in the schema of the engine's functions."""
        return builtin(name)

    def texts(self, texts: Sequence[str]) -> str:
        """Build a list of strings. A long list is one string that DuckDB splits during planning.

        Planning one string for 10,000 elements is ten times as fast as planning 10,000 literals.

        >>> DUCKDB.texts(["it's", "no"])
        "system.main.list_value('it''s', 'no')"
        >>> DUCKDB.texts(list("abcdefghijklmnopq"))
        "system.main.string_split('a|b|c|d|e|f|g|h|i|j|k|l|m|n|o|p|q', '|')"
        """
        separator = next((s for s in _SEPARATORS if not any(s in text for text in texts)), None)
        if len(texts) <= 16 or separator is None:
            return super().texts(texts)
        return self.call("string_split", self.text(separator.join(texts)), self.text(separator))

    def display(self, sql: str) -> str:
        """Remove the schema from full function names.

        >>> DUCKDB.display(DUCKDB.field("r", "a"))
        "struct_extract(r, 'a')"
        """
        return sql.replace(_BUILTIN_SCHEMA, "")


DUCKDB = DuckDB()
