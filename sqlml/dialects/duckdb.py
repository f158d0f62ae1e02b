"""`DUCKDB`: the SQL of DuckDB 1.5 and 2.0."""

from __future__ import annotations

import string
from collections.abc import Sequence
from functools import partial, reduce

from sqlml.dialects.base import Dialect

_MAIN = "system.main."


def builtin(name: str) -> str:
    """A function of the engine by its full name, which no macro in a database can shadow.

    A bare name means a macro of that name, if the database has one, and so do operators and `[..]`,
    `{..}`, `x[i]`. Only engine functions that are not macros themselves are safe
    (`list_sum`, `nullif`): the engine looks up what macros call by bare names.

    >>> builtin("lower"), builtin("+")
    ('system.main.lower', 'system.main."+"')
    """
    return f"{_MAIN}{name}" if name.isidentifier() else f'{_MAIN}"{name}"'


_UPPER, _LOWER = string.ascii_uppercase, string.ascii_lowercase


def folded(expression: str) -> str:
    """The SQL of a name as the engine compares it, ignoring case only in ASCII: `fold`.

    >>> folded("x")
    "system.main.translate(x, 'ABCDEFGHIJKLMNOPQRSTUVWXYZ', 'abcdefghijklmnopqrstuvwxyz')"
    """
    return f"{builtin('translate')}({expression}, '{_UPPER}', '{_LOWER}')"


_SEPARATORS = ("|", ";", "\n", "\x1f")
_FEW = 16
"""Texts that are as well written one by one."""


class DuckDB(Dialect):
    """DuckDB, whose own functions and operators are called by their full names."""

    name = "duckdb"

    def call(self, name: str, *arguments: str) -> str:
        """A function that no macro of a database hides.

        >>> DUCKDB.call("isnan", "a")
        'system.main.isnan(a)'
        """
        return f"{builtin(name)}({', '.join(arguments)})"

    def operator(self, symbol: str, a: str, b: str) -> str:
        """As a function, since an operator is a bare name as well."""
        return self.call(symbol, a, b)

    def negated(self, number: str) -> str:
        return self.call("-", number)

    def total(self, terms: Sequence[str]) -> str:
        return reduce(partial(self.call, "+"), terms)

    def scorer(self, name: str) -> str:
        """The full name of a function of sqlml: the engine keeps these among its own."""
        return builtin(name)

    def texts(self, texts: Sequence[str]) -> str:
        """Many of them as one text, which is split when the query is planned.

        10,000 are planned in a tenth of the time of so many literals.

        >>> DUCKDB.texts(["it's", "no"])
        "system.main.list_value('it''s', 'no')"
        >>> DUCKDB.texts(list("abcdefghijklmnopq"))
        "system.main.string_split('a|b|c|d|e|f|g|h|i|j|k|l|m|n|o|p|q', '|')"
        """
        separator = next((s for s in _SEPARATORS if not any(s in text for text in texts)), None)
        if len(texts) <= _FEW or separator is None:
            return self.array([self.text(text) for text in texts])
        together = self.text(separator.join(texts))
        return f"system.main.string_split({together}, {self.text(separator)})"

    def shown(self, sql: str) -> str:
        """SQL without the full names.

        >>> DUCKDB.shown(DUCKDB.field("r", "a"))
        "struct_extract(r, 'a')"
        """
        return sql.replace(_MAIN, "")


DUCKDB = DuckDB()
