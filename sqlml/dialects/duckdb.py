"""`DUCKDB`: the SQL of DuckDB 1.5 and 2.0."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


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

    def array(self, items: Sequence[str]) -> str:
        """See `Dialect`."""
        return f"[{', '.join(items)}]"

    def at(self, values: str, place: str | int) -> str:
        """See `Dialect`."""
        return f"{values}[{place}]"

    def part(self, values: str, first: int, last: int) -> str:
        """See `Dialect`."""
        return f"{values}[{first}:{last}]"

    def pick(self, values: str, places: str) -> str:
        """See `Dialect`."""
        return f"list_select({values}, {places})"

    def map(self, keys: str, values: str) -> str:
        """See `Dialect`."""
        return f"MAP({keys}, {values})"

    def struct(self, fields: Mapping[str, str]) -> str:
        """See `Dialect`."""
        return "{" + ", ".join(f"'{name}': {value}" for name, value in fields.items()) + "}"

    def field(self, value: str, name: str) -> str:
        """See `Dialect`."""
        return f"struct_extract({value}, {self.quote_string(name)})"

    def let(self, name: str, value: str, body: str) -> str:
        """See `Dialect`."""
        return f"{self.each(f'[{value}]', name, body)}[1]"

    def each(self, values: str, name: str, body: str) -> str:
        """See `Dialect`."""
        return f"list_transform({values}, lambda {name}: {body})"

    def error(self, message: str) -> str:
        """See `Dialect`."""
        return f"error({self.quote_string(message)})"

    def is_finite(self, number: str) -> str:
        """See `Dialect`."""
        return f"isfinite({number})"

    def bytes(self, text: str) -> str:
        """See `Dialect`."""
        return f"encode({text})"

    def json(self, value: str, type: str) -> str:
        """See `Dialect`.

        `to_json` is compiled into the engine and writes what Python's json module reads back as it
        was (seen on 1.5.6 and 2.0.0): NaN and Infinity, each DOUBLE in as many digits as tell it
        from its neighbours, a FLOAT as the DOUBLE that it is, DECIMAL, HUGEINT and BIGNUM with all
        digits, and control characters escaped.
        """
        return f"to_json({value})"

    def sum(self, values: str) -> str:
        """See `Dialect`."""
        return f"list_sum({values})"

    def seconds(self, time: str) -> str:
        """See `Dialect`."""
        return f"date_part('epoch', {time})"

    def place_of(self, text: str, texts: Sequence[str]) -> str:
        """See `Dialect`."""
        return f"coalesce(MAP({self.array(texts)}, range({len(texts)}))[{text}], -1)"

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
        return f"isinf({number})"

    def truncated(self, number: str, type: str) -> str:
        """See `Dialect`."""
        return f"CAST(trunc({number}) AS {type})"

    def rounded_to_even(self, number: str) -> str:
        """See `Dialect`."""
        return f"round_even({number}, 0)"

    def place_of_greatest(self, values: str) -> str:
        """See `Dialect`."""
        return f"list_position({values}, list_max({values}))"

    def divided(self, a: str, b: str, kind: str) -> str:
        """See `Dialect`."""
        return f"({a} / {b})"

    def star_without(self, names: Sequence[str]) -> str:
        """See `Dialect`."""
        return f"* EXCLUDE ({', '.join(names)})"


DUCKDB = DuckDB()
