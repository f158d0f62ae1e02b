"""`SPARK`: the SQL of Spark 4."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlml.dialects.base import Dialect
from sqlml.dialects.spark_json import json_text
from sqlml.dialects.spark_text import exact, quoted
from sqlml.dialects.type_names import DATETIMES, element, map_types, struct_fields
from sqlml.errors import BindError

_NAMES = {
    "VARCHAR": "STRING",
    "BLOB": "BINARY",
    "JSON": "STRING",
    "INTEGER": "INT",
    "TIMESTAMP WITH TIME ZONE": "TIMESTAMP",
    "TIMESTAMP": "TIMESTAMP_NTZ",
    '"NULL"': "VOID",
}


class Spark(Dialect):
    """Spark 4: what it spells differently."""

    name = "spark"
    calls_in_lambdas = lazy_calls = False
    copies_rows = outputs_first = True
    row_number = "row_number() OVER (ORDER BY 1)"

    def quote_name(self, name: str) -> str:
        """A name in backticks.

        >>> SPARK.quote_name("a`b")
        '`a``b`'

        Raises:
            BindError: Spark would replace a part of the name.
        """
        if "${" in name:
            raise BindError(f"Spark replaces ${{..}} in SQL, even in names; rename {name!r}")
        return "`" + name.replace("`", "``") + "`"

    def quote_string(self, text: str) -> str:
        return quoted(text)

    def text(self, text: str) -> str:
        return exact(text)

    def type(self, name: str) -> str:
        """A type with its parts in angle brackets.

        >>> SPARK.type("MAP(VARCHAR, DOUBLE)"), SPARK.type('STRUCT(t0 BIGINT, "a, b" VARCHAR)[]')
        ('MAP<STRING, DOUBLE>', 'ARRAY<STRUCT<`t0`: BIGINT, `a, b`: STRING>>')
        """
        inner, types, fields = element(name), map_types(name), struct_fields(name)
        if inner is not None:
            return f"ARRAY<{self.type(inner)}>"
        if types is not None:
            return f"MAP<{', '.join(map(self.type, types))}>"
        if fields is None and name.startswith("ENUM("):
            return "STRING"
        if fields is None:
            return _NAMES.get(name, name)
        made = ", ".join(f"{self.quote_name(f.name)}: {self.type(f.type)}" for f in fields)
        return f"STRUCT<{made}>"

    def array(self, items: Sequence[str]) -> str:
        return f"array({', '.join(items)})"

    def at(self, values: str, place: str | int) -> str:
        """`values[NULL]` fails in Spark 4.3, which takes it for never NULL."""
        if isinstance(place, int):
            return f"{values}[{place - 1}]"
        return f"get({values}, {place} - 1)"

    def length(self, values: str) -> str:
        return f"size({values})"

    def part(self, values: str, first: int, last: int) -> str:
        return f"slice({values}, {first}, {last - first + 1})"

    def pick(self, values: str, places: str) -> str:
        return self.each(places, "sqlml_i", f"({values})[sqlml_i - 1]")

    def least(self, values: str) -> str:
        return f"array_min({values})"

    def greatest(self, values: str) -> str:
        return f"array_max({values})"

    def summed(self, values: str) -> str:
        return self.sum(values)

    def quantile(self, number: str, share: float) -> str:
        return f"percentile({number}, {share!r})"

    def ordered(self, values: str) -> str:
        return f"array_sort({values})"

    def position(self, values: str, value: str) -> str:
        return f"array_position({values}, {value})"

    def value_at(self, values: str, key: str) -> str:
        return f"{values}[{key}]"

    def map(self, keys: str, values: str) -> str:
        return f"map_from_arrays({keys}, {values})"

    def struct(self, fields: Mapping[str, str]) -> str:
        made = [f"'{name}', {value}" for name, value in fields.items()]
        return f"named_struct({', '.join(made)})"

    def row(self, values: str) -> str:
        return f"({values})"

    def field(self, value: str, name: str) -> str:
        return f"({value}).{self.quote_name(name)}"

    def member(self, name: str, field: str) -> str:
        return f"{name}.{field}"

    def let(self, name: str, value: str, body: str) -> str:
        return f"{self.each(f'array({value})', name, body)}[0]"

    def each(self, values: str, name: str, body: str) -> str:
        return f"transform({values}, {name} -> {body})"

    def error(self, message: str) -> str:
        return self.call("raise_error", message)

    def is_finite(self, number: str) -> str:
        """NaN is greater than infinity there."""
        return f"(abs({number}) < 'inf'::DOUBLE)"

    def bytes(self, text: str) -> str:
        return f"encode({text}, 'UTF-8')"

    def json(self, value: str, type: str) -> str:
        """Written out, since Spark's to_json makes a text of NaN."""
        return json_text(value, type)

    def first(self, values: str) -> str:
        return f"{values}[0]"

    def sum(self, values: str) -> str:
        return f"aggregate({values}, 0D, (a, b) -> a + b)"

    def seconds(self, time: str) -> str:
        return f"unix_timestamp({time})"

    def takes_as_datetime(self, type: str) -> bool:
        """Spark's TIMESTAMP, too: a local time of the session's zone, as Spark's own functions of
        dates read it."""
        return type == "TIMESTAMP WITH TIME ZONE" or DATETIMES.fullmatch(type) is not None

    def microseconds(self, time: str) -> str:
        """Put together of its parts, which alone do not ask for the session's time zone."""
        days, seconds = f"unix_date(CAST({time} AS DATE))", f"extract(SECOND FROM {time})"
        return (
            f"(CAST({days} AS DOUBLE) * 86400000000D + hour({time}) * 3600000000D "
            f"+ minute({time}) * 60000000D + CAST({seconds} * 1000000 AS DOUBLE))"
        )

    def place_of(self, text: str, texts: Sequence[str], other: str = "-1") -> str:
        return f"coalesce(array_position({self.array(texts)}, {text}) - 1, {other})"

    def number_arguments(self, numbers: Sequence[str], kind: str) -> str:
        """An array. Of an argument each, Spark would box each value (28: 1.2x time).

        All are cast, since a column of NULLs may have no type; Spark drops casts that do nothing.
        """
        return self.array([f"CAST({number} AS {kind})" for number in numbers])

    def packed_arguments(self, name: str) -> str:
        """What is used once, Spark writes out where it is used."""
        return f"{self.quote_name(name)}, {self.quote_name(name)}"

    def text_arguments(self, texts: Sequence[str]) -> str:
        return ", ".join(texts)

    def columns_of_models(self, numbers: Sequence[str], texts: Sequence[str]) -> str:
        return ", ".join([self.number_arguments(numbers, "DOUBLE"), *texts])

    def returned(self, type: str) -> str:
        return f"STRUCT<value: {self.type(type)}, error: STRING>"

    def value_of(self, call: str) -> str:
        return f"{call}.value"

    def checked(self, call: str, value: str) -> str:
        """Spark calls a function for each row, whether its value is used or not."""
        return f"CASE WHEN {call}.error IS NULL THEN {value} ELSE raise_error({call}.error) END"

    def is_infinite(self, number: str) -> str:
        return f"(abs({number}) = 'inf'::DOUBLE)"

    def truncated(self, number: str, type: str) -> str:
        return f"CAST({number} AS {type})"

    def rounded_to_even(self, number: str) -> str:
        """`rint` makes a DOUBLE, which holds each FLOAT."""
        return f"rint({number})"

    def place_of_greatest(self, values: str) -> str:
        return f"array_position({values}, array_max({values}))"

    def divided(self, a: str, b: str, kind: str) -> str:
        """Spark divides in DOUBLE, and rounded again that is the FLOAT."""
        return f"CAST({a} / {b} AS {kind})" if kind != "DOUBLE" else f"({a} / {b})"

    def star_without(self, names: Sequence[str]) -> str:
        return f"* EXCEPT ({', '.join(names)})"


SPARK = Spark()
