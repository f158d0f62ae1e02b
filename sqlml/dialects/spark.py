"""`SPARK`: the SQL of Spark 4."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlml.dialects.base import Dialect
from sqlml.dialects.type_names import DATETIMES, element, map_types, struct_fields
from sqlml.errors import BindError

# Texts in Spark's SQL, which may mean others under a user's settings.
#
# Before it reads a statement, Spark replaces `${..}` in it, also within quotes; and with
# `spark.sql.parser.escapedStringLiterals` a backslash is one.


def quoted(text: str) -> str:
    r"""A text in quotes; two quotes side by side would end one text and begin another.

    >>> quoted("it's a \\")
    "'it\\'s a \\\\'"
    """
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def exact(text: str) -> str:
    """A text that is the same under all settings: one of odd characters by its bytes.

    >>> exact("pro"), exact("it's")
    ("'pro'", "CAST(X'69742773' AS STRING)")
    """
    if any(odd in text for odd in ("'", "\\", "${")):
        return f"CAST(X'{text.encode().hex().upper()}' AS STRING)"
    return f"'{text}'"


# JSON of Spark's lists, maps and structs, as Python's json module reads it back.


def json_text(value: str, type: str, depth: int = 0) -> str:
    """The JSON of an expression of a type, as DuckDB spells it; NULL where it is NULL.

    Numbers are written as a cast to STRING writes them: NaN and Infinity, each DOUBLE with enough
    digits, and a FLOAT as the DOUBLE that it is.

    >>> json_text("x", "FLOAT[]")
    "concat('[', array_join(transform(x, e0 -> \
coalesce(CAST(CAST(e0 AS DOUBLE) AS STRING), 'null')), ','), ']')"
    """
    inner, types, fields = element(type), map_types(type), struct_fields(type)
    each = f"e{depth}"
    if inner is not None:
        items = f"transform({value}, {each} -> {_or_null(each, inner, depth)})"
        return f"concat('[', array_join({items}, ','), ']')"
    if types is not None:
        key = _text(f"CAST({each}.key AS STRING)")
        pair = f"concat({key}, ':', {_or_null(f'{each}.value', types[1], depth)})"
        items = f"transform(map_entries({value}), {each} -> {pair})"
        return f"concat('{{', array_join({items}, ','), '}}')"
    if fields is not None:
        pairs = []
        for field in fields:
            read = f"({value}).`{field.name.replace('`', '``')}`"
            name = _text(exact(field.name))
            pairs.append(f"concat({name}, ':', {_or_null(read, field.type, depth)})")
        made = f"concat('{{', concat_ws(',', {', '.join(pairs)}), '}}')"
        return f"CASE WHEN {value} IS NOT NULL THEN {made} END"
    if type == "VARCHAR":
        return _text(value)
    number = f"CAST({value} AS DOUBLE)" if type == "FLOAT" else value
    return f"CAST({number} AS STRING)"


def _or_null(value: str, type: str, depth: int) -> str:
    return f"coalesce({json_text(value, type, depth + 1)}, 'null')"


def _text(value: str) -> str:
    """The JSON of a text: that of a list of it, which Spark can write, without the brackets."""
    made = f"to_json(array({value}))"
    return f"CASE WHEN {value} IS NOT NULL THEN substr({made}, 2, length({made}) - 2) END"


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
