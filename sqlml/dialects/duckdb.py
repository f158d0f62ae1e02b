"""`DUCKDB`: the SQL of DuckDB 1.5 and 2.0."""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from functools import partial, reduce

_MAIN = "system.main."


def builtin(name: str) -> str:
    """A function of the engine by its full name, which no macro of a database hides.

    A bare name means a macro of that name, if the database has one, and so do operators and `[..]`,
    `{..}`, `x[i]`. Only those of the engine's functions are safe that are no macros themselves
    (`list_sum`, `nullif`): the engine looks for what these call by bare names.

    >>> builtin("lower"), builtin("+")
    ('system.main.lower', 'system.main."+"')
    """
    return f"{_MAIN}{name}" if name.isidentifier() else f'{_MAIN}"{name}"'


_UPPER, _LOWER = string.ascii_uppercase, string.ascii_lowercase


def folded(expression: str) -> str:
    """The SQL of a name as the engine compares it, without regard to case in ASCII alone: `fold`.

    >>> folded("x")
    "system.main.translate(x, 'ABCDEFGHIJKLMNOPQRSTUVWXYZ', 'abcdefghijklmnopqrstuvwxyz')"
    """
    return f"{builtin('translate')}({expression}, '{_UPPER}', '{_LOWER}')"


_SEPARATORS = ("|", ";", "\n", "\x1f")
_FEW = 16
"""Texts that are as well written one by one."""


class DuckDB:
    """See `Dialect`."""

    name = "duckdb"
    calls_in_lambdas = lazy_calls = True
    copies_rows = outputs_first = False

    def quote_name(self, name: str) -> str:
        """See `Dialect`.

        >>> DUCKDB.quote_name('a"b')
        '"a""b"'
        """
        return '"' + name.replace('"', '""') + '"'

    def quote_string(self, text: str) -> str:
        """See `Dialect`.

        >>> DUCKDB.quote_string("it's")
        "'it''s'"
        """
        return "'" + text.replace("'", "''") + "'"

    def text(self, text: str) -> str:
        """See `Dialect`."""
        return self.quote_string(text)

    def type(self, name: str) -> str:
        """See `Dialect`."""
        return name

    def call(self, name: str, *arguments: str) -> str:
        """See `Dialect`.

        >>> DUCKDB.call("isnan", "a")
        'system.main.isnan(a)'
        """
        return f"{builtin(name)}({', '.join(arguments)})"

    def operator(self, symbol: str, a: str, b: str) -> str:
        """See `Dialect`: as a function, since an operator is a bare name as well."""
        return self.call(symbol, a, b)

    def negated(self, number: str) -> str:
        """See `Dialect`."""
        return self.call("-", number)

    def total(self, terms: Sequence[str]) -> str:
        """See `Dialect`."""
        return reduce(partial(self.call, "+"), terms)

    def scorer(self, name: str) -> str:
        """See `Dialect`: the engine keeps such functions among its own."""
        return builtin(name)

    def array(self, items: Sequence[str]) -> str:
        """See `Dialect`."""
        return self.call("list_value", *items)

    def texts(self, texts: Sequence[str]) -> str:
        """See `Dialect`: many of them as one text, which is split when the query is planned.

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

    def at(self, values: str, place: str | int) -> str:
        """See `Dialect`."""
        return self.call("array_extract", values, str(place))

    def part(self, values: str, first: int, last: int) -> str:
        """See `Dialect`."""
        return self.call("array_slice", values, str(first), str(last))

    def pick(self, values: str, places: str) -> str:
        """See `Dialect`."""
        return self.call("list_select", values, places)

    def value_at(self, values: str, key: str) -> str:
        """See `Dialect`."""
        return self.call("map_extract_value", values, key)

    def map(self, keys: str, values: str) -> str:
        """See `Dialect`."""
        return self.call("map", keys, values)

    def struct(self, fields: Mapping[str, str]) -> str:
        """See `Dialect`."""
        return self.call("struct_pack", *(f"{name} := {value}" for name, value in fields.items()))

    def row(self, values: str) -> str:
        """See `Dialect`."""
        return self.call("row", values)

    def field(self, value: str, name: str) -> str:
        """See `Dialect`."""
        return self.call("struct_extract", value, self.quote_string(name))

    def member(self, name: str, field: str) -> str:
        """See `Dialect`: not `name.field`, for which the engine looks for a bare struct_extract."""
        return self.field(name, field)

    def let(self, name: str, value: str, body: str) -> str:
        """See `Dialect`."""
        return self.at(self.each(self.array([value]), name, body), 1)

    def each(self, values: str, name: str, body: str) -> str:
        """See `Dialect`."""
        return self.call("list_transform", values, f"lambda {name}: {body}")

    def error(self, message: str) -> str:
        """See `Dialect`."""
        return self.call("error", message)

    def is_finite(self, number: str) -> str:
        """See `Dialect`."""
        return self.call("isfinite", number)

    def bytes(self, text: str) -> str:
        """See `Dialect`."""
        return self.call("encode", text)

    def json(self, value: str, type: str) -> str:
        """See `Dialect`.

        `to_json` is compiled into the engine and writes what Python's json module reads back as it
        was (seen on 1.5.6 and 2.0.0): NaN and Infinity, each DOUBLE in as many digits as tell it
        from its neighbours, a FLOAT as the DOUBLE that it is, DECIMAL, HUGEINT and BIGNUM with all
        digits, and control characters escaped.
        """
        return self.call("to_json", value)

    def shown(self, sql: str) -> str:
        """See `Dialect`.

        >>> DUCKDB.shown(DUCKDB.field("r", "a"))
        "struct_extract(r, 'a')"
        """
        return sql.replace(_MAIN, "")

    def first(self, values: str) -> str:
        """See `Dialect`."""
        return f"{values}[1]"

    def sum(self, values: str) -> str:
        """See `Dialect`."""
        return f"list_sum({values})"

    def seconds(self, time: str) -> str:
        """See `Dialect`."""
        return f"date_part('epoch', {time})"

    def place_of(self, text: str, texts: Sequence[str], other: str = "-1") -> str:
        """See `Dialect`."""
        places = self.map(self.array(texts), self.call("range", str(len(texts))))
        return f"coalesce({self.value_at(places, text)}, {other})"

    def number_arguments(self, numbers: Sequence[str], kind: str) -> str:
        """See `Dialect`: an array, which is handed over as it lies in memory.

        A cast list and not array_value(..): that takes 6 times as long (28 FLOATs, 2.0 and 1.5). A
        STRUCT is handed over in a third of the time, but Arrow then lets go of the GIL more often,
        and with two threads the query takes longer (28 columns, 30 trees: 0.8x of one thread's
        time, 1.1x of two threads').
        """
        return f"{self.array(numbers)}::{kind}[{len(numbers)}]"

    def packed_arguments(self, name: str) -> str:
        """See `Dialect`."""
        return self.quote_name(name)

    def text_arguments(self, texts: Sequence[str]) -> str:
        """See `Dialect`: their bytes, since a VARCHAR may come in several layouts."""
        return f"{self.array([self.bytes(text) for text in texts])}::BLOB[]"

    def returned(self, type: str) -> str:
        """See `Dialect`."""
        return type

    def value_of(self, call: str) -> str:
        """See `Dialect`."""
        return call

    def checked(self, call: str, value: str) -> str:
        """See `Dialect`: the function itself fails."""
        return value

    def is_infinite(self, number: str) -> str:
        """See `Dialect`."""
        return self.call("isinf", number)

    def truncated(self, number: str, type: str) -> str:
        """See `Dialect`."""
        return f"CAST({self.call('trunc', number)} AS {type})"

    def rounded_to_even(self, number: str) -> str:
        """See `Dialect`: round_even is a macro in 1.5, which calls others by bare names."""
        half = self.call("abs", self.operator("-", number, self.call("trunc", number)))
        even = self.operator("*", "2", self.call("round", self.operator("/", number, "2")))
        return f"CASE WHEN {half} = 0.5 THEN {even} ELSE {self.call('round', number)} END"

    def place_of_greatest(self, values: str) -> str:
        """See `Dialect`: list_max is a macro, which calls another by its bare name."""
        most = self.call("list_aggregate", values, "'max'")
        return self.call("list_position", values, most)

    def divided(self, a: str, b: str, kind: str) -> str:
        """See `Dialect`."""
        return self.operator("/", a, b)

    def star_without(self, names: Sequence[str]) -> str:
        """See `Dialect`."""
        return f"* EXCLUDE ({', '.join(names)})"


DUCKDB = DuckDB()
