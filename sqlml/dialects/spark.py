"""The SQL of Spark 4."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlml.dialects.dialect import Dialect
from sqlml.dialects.type_names import DATETIMES, element, map_types, struct_fields
from sqlml.errors import BindError

_TYPE_NAMES = {
    "VARCHAR": "STRING",
    "BLOB": "BINARY",
    "JSON": "STRING",
    "INTEGER": "INT",
    "TIMESTAMP WITH TIME ZONE": "TIMESTAMP",
    "TIMESTAMP": "TIMESTAMP_NTZ",
    '"NULL"': "VOID",
}


_FUNCTION_NAMES = {
    "error": "raise_error",
    "len": "size",
    "list_position": "array_position",
    "list_sort": "array_sort",
    "list_value": "array",
    "map": "map_from_arrays",
    "quantile_cont": "percentile",
}
"""Maps names of DuckDB's functions to Spark's names, if the names differ."""


class Spark(Dialect):
    """The SQL of Spark 4."""

    name = "spark"
    calls_in_lambdas = lazy_calls = False
    copies_rows = outputs_first = True
    row_number = "row_number() OVER (ORDER BY 1)"

    def call(self, name: str, *arguments: str) -> str:
        return super().call(_FUNCTION_NAMES.get(name, name), *arguments)

    def quote_name(self, name: str) -> str:
        """Quote an identifier in backticks.

        >>> SPARK.quote_name("a`b")
        '`a``b`'

        Raises:
            BindError: Spark would substitute a part of the name.
        """
        if "${" in name:
            raise BindError(f"Spark replaces ${{...}} in SQL, even in names; rename {name!r}")
        return "`" + name.replace("`", "``") + "`"

    def quote_string(self, text: str) -> str:
        r"""Quote a string with escapes, since Spark reads two adjacent quotes as two strings.

        >>> SPARK.quote_string("it's a \\")
        "'it\\'s a \\\\'"
        """
        return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"

    def text(self, text: str) -> str:
        """Write a string literal that has the same value under all settings of Spark.

        Spark replaces `${...}` in a statement, even within quotes. The meaning of a backslash
        depends on `spark.sql.parser.escapedStringLiterals`. So such strings are written as bytes.

        >>> SPARK.text("pro"), SPARK.text("it's")
        ("'pro'", "CAST(X'69742773' AS STRING)")
        """
        if any(special in text for special in ("'", "\\", "${")):
            return f"CAST(X'{text.encode().hex().upper()}' AS STRING)"
        return f"'{text}'"

    def type(self, name: str) -> str:
        """Return Spark's name of a DuckDB type. Nested types have angle brackets.

        >>> SPARK.type("MAP(VARCHAR, DOUBLE)"), SPARK.type('STRUCT(t0 BIGINT, "a, b" VARCHAR)[]')
        ('MAP<STRING, DOUBLE>', 'ARRAY<STRUCT<`t0`: BIGINT, `a, b`: STRING>>')
        """
        element_type, entry_types, fields = element(name), map_types(name), struct_fields(name)
        if element_type is not None:
            return f"ARRAY<{self.type(element_type)}>"
        if entry_types is not None:
            return f"MAP<{', '.join(map(self.type, entry_types))}>"
        if fields is None:
            return "STRING" if name.startswith("ENUM(") else _TYPE_NAMES.get(name, name)
        fields_sql = ", ".join(f"{self.quote_name(f.name)}: {self.type(f.type)}" for f in fields)
        return f"STRUCT<{fields_sql}>"

    def at(self, values: str, position: str | int) -> str:
        """Return an element of a list. Avoid `values[NULL]`, which fails in Spark 4.3."""
        if isinstance(position, int):
            return f"{values}[{position - 1}]"
        return f"get({values}, {position} - 1)"

    def part(self, values: str, start: int, stop: int) -> str:
        return f"slice({values}, {start}, {stop - start + 1})"

    def pick(self, values: str, positions: str) -> str:
        return self.each(positions, "sqlml_i", f"({values})[sqlml_i - 1]")

    def where(self, values: str, mask: str) -> str:
        return f"filter({values}, (sqlml_v, sqlml_i) -> ({mask})[sqlml_i] > 0)"

    def least(self, values: str) -> str:
        return f"array_min({values})"

    def greatest(self, values: str) -> str:
        return f"array_max({values})"

    def summed(self, values: str) -> str:
        return self.sum(values)

    def value_at(self, values: str, key: str) -> str:
        return f"{values}[{key}]"

    def struct(self, fields: Mapping[str, str]) -> str:
        return self.call("named_struct", *(f"'{name}', {value}" for name, value in fields.items()))

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

    def is_finite(self, number: str) -> str:
        return f"(abs({number}) < 'inf'::DOUBLE)"  # In Spark, NaN is greater than infinity.

    def exact(self, text: str) -> str:
        return text  # Spark's casts to STRING return the default collation, which is exact.

    def bytes(self, text: str) -> str:
        return f"encode({text}, 'UTF-8')"

    def json(self, value: str, type: str, depth: int = 0) -> str:
        """Convert a value to JSON without `to_json`, which converts NaN to a string.

        Numbers are cast to STRING, which preserves NaN, Infinity and all digits of a DOUBLE. A
        FLOAT is cast to DOUBLE first.

        >>> SPARK.json("x", "FLOAT[]")
        "concat('[', array_join(transform(x, e0 -> \
coalesce(CAST(CAST(e0 AS DOUBLE) AS STRING), 'null')), ','), ']')"
        """
        element_type, entry_types, fields = element(type), map_types(type), struct_fields(type)
        item = f"e{depth}"
        if element_type is not None:
            items = self.each(value, item, self._json_or_null(item, element_type, depth))
            return f"concat('[', array_join({items}, ','), ']')"
        if entry_types is not None:
            key = _json_string(f"CAST({item}.key AS STRING)")
            entry_value = self._json_or_null(f"{item}.value", entry_types[1], depth)
            items = self.each(f"map_entries({value})", item, f"concat({key}, ':', {entry_value})")
            return f"concat('{{', array_join({items}, ','), '}}')"
        if fields is not None:
            pairs = [
                f"concat({_json_string(self.text(field.name))}, ':', "
                f"{self._json_or_null(self.field(value, field.name), field.type, depth)})"
                for field in fields
            ]
            json = f"concat('{{', concat_ws(',', {', '.join(pairs)}), '}}')"
            return f"CASE WHEN {value} IS NOT NULL THEN {json} END"
        if type == "VARCHAR":
            return _json_string(value)
        number = f"CAST({value} AS DOUBLE)" if type == "FLOAT" else value
        return f"CAST({number} AS STRING)"

    def _json_or_null(self, value: str, type: str, depth: int) -> str:
        return f"coalesce({self.json(value, type, depth + 1)}, 'null')"

    def first(self, values: str) -> str:
        return f"{values}[0]"

    def sum(self, values: str) -> str:
        return f"aggregate({values}, 0D, (a, b) -> a + b)"

    def seconds(self, time: str) -> str:
        return f"unix_timestamp({time})"

    def takes_as_datetime(self, type: str) -> bool:
        """Also accept TIMESTAMP as a local time in the session's zone, like Spark's functions."""
        return type == "TIMESTAMP WITH TIME ZONE" or DATETIMES.fullmatch(type) is not None

    def microseconds(self, time: str) -> str:
        """Compute microseconds from parts of the time, independently of the session's time zone."""
        days, seconds = f"unix_date(CAST({time} AS DATE))", f"extract(SECOND FROM {time})"
        return (
            f"(CAST({days} AS DOUBLE) * 86400000000D + hour({time}) * 3600000000D "
            f"+ minute({time}) * 60000000D + CAST({seconds} * 1000000 AS DOUBLE))"
        )

    def place_of(self, text: str, texts: Sequence[str], other: str = "-1") -> str:
        return f"coalesce(array_position({self.array(texts)}, {text}) - 1, {other})"

    def number_arguments(self, numbers: Sequence[str], number_type: str) -> str:
        """Pass an array, because Spark boxes each separate argument (28 arguments: 1.2x the time).

        All numbers are cast, since a column of NULLs may have no type. Spark drops redundant casts.
        """
        return self.array([f"CAST({number} AS {number_type})" for number in numbers])

    def packed_arguments(self, name: str) -> str:
        """Pass the column twice, since Spark would inline a column that is used only once."""
        return f"{self.quote_name(name)}, {self.quote_name(name)}"

    def text_arguments(self, texts: Sequence[str]) -> str:
        return ", ".join(texts)

    def columns_of_models(self, numbers: Sequence[str], texts: Sequence[str]) -> str:
        return ", ".join([self.number_arguments(numbers, "DOUBLE"), *texts])

    def returned(self, type: str) -> str:
        return f"STRUCT<value: {self.type(type)}, error: STRING>"

    def value_of(self, call: str) -> str:
        return f"{call}.value"

    def require_success(self, call: str, value: str) -> str:
        """Raise the error only in rows that use `value`, since Spark may also call other rows."""
        return f"CASE WHEN {call}.error IS NULL THEN {value} ELSE raise_error({call}.error) END"

    def is_infinite(self, number: str) -> str:
        return f"(abs({number}) = 'inf'::DOUBLE)"

    def truncated(self, number: str, type: str) -> str:
        return f"CAST({number} AS {type})"

    def rounded_to_even(self, number: str) -> str:
        return f"rint({number})"  # The result is a DOUBLE, which is exact for every FLOAT.

    def divided(self, a: str, b: str, number_type: str) -> str:
        """Divide as DOUBLE, as Spark does. Rounding the result to FLOAT is exact."""
        return f"CAST({a} / {b} AS {number_type})" if number_type != "DOUBLE" else f"({a} / {b})"

    def star_without(self, names: Sequence[str]) -> str:
        return f"* EXCEPT ({', '.join(names)})"


def _json_string(value: str) -> str:
    """Encode a string as JSON. Spark only encodes lists, so remove the brackets of a JSON list."""
    list_json = f"to_json(array({value}))"
    return f"CASE WHEN {value} IS NOT NULL THEN substr({list_json}, 2, length({list_json}) - 2) END"


SPARK = Spark()
