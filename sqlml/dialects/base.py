"""`Dialect`: what engines spell differently of the SQL that sqlml writes.

Types are named as DuckDB names them everywhere in sqlml; `type` gives the engine's own spelling.
Places in lists count from 1. What all engines spell alike (CASE, CAST, coalesce, comparisons,
`'0.5'::DOUBLE`) is written where it is needed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlml.dialects.type_names import DATETIMES


class Dialect:
    """One engine's SQL. Arguments and results are SQL text, but for names.

    What is written here is DuckDB's, with functions by their bare names; an engine that spells
    something differently overrides that.

    Attributes:
        name: of the engine's SQL, as sqlglot calls it.
        lazy_calls: a function is called only for rows whose branch of a CASE calls it.
        calls_in_lambdas: a function that scores may be called inside a lambda.
        outputs_first: a name in an expression of ORDER BY means a select item before a column.
        copies_rows: all columns of a row are copied for a function, and filters that need not
            follow it are not evaluated first.
        row_number: the number of a row, from 1, in the order in which the engine reads them.
        missing_is_null: a missing number in an expression is NULL, and else NaN. There are no
            lists then, a condition is no number, and what refuses a row says so beside the value.
        has_float32: there is a type FLOAT; if not, a DOUBLE holds each such number, and `rounded`
            makes it.
    """

    name: str
    lazy_calls: bool = True
    calls_in_lambdas: bool = True
    outputs_first: bool = False
    copies_rows: bool = False
    row_number: str = "row_number() OVER ()"
    missing_is_null: bool = False
    has_float32: bool = True

    def quote_name(self, name: str) -> str:
        """A name as a quoted identifier.

        >>> Dialect().quote_name('a"b')
        '"a""b"'
        """
        return '"' + name.replace('"', '""') + '"'

    def quote_string(self, text: str) -> str:
        """A text in quotes, as statements have it.

        >>> Dialect().quote_string("it's")
        "'it''s'"
        """
        return "'" + text.replace("'", "''") + "'"

    def text(self, text: str) -> str:
        """A text as a value, which is the same under all settings of the engine."""
        return self.quote_string(text)

    def type(self, name: str) -> str:
        """A type, such as `MAP(VARCHAR, DOUBLE)`."""
        return name

    def call(self, name: str, *arguments: str) -> str:
        """A function of the engine's own, which no function of a database's can stand in for."""
        return f"{name}({', '.join(arguments)})"

    def operator(self, symbol: str, a: str, b: str) -> str:
        """Two operands of an operator that computes: + - * / % and || (none that compares)."""
        return f"({a} {symbol} {b})"

    def negated(self, number: str) -> str:
        """A number with the other sign."""
        return f"(-{number})"

    def total(self, terms: Sequence[str]) -> str:
        """The sum of numbers from left to right."""
        return f"({' + '.join(terms)})"

    def scorer(self, name: str) -> str:
        """A function that scores, as it is called."""
        return name

    def array(self, items: Sequence[str]) -> str:
        """A list of values."""
        return self.call("list_value", *items)

    def texts(self, texts: Sequence[str]) -> str:
        """A list of texts, none of which has a NUL character."""
        return self.array([self.text(text) for text in texts])

    def at(self, values: str, place: str | int) -> str:
        """The element of a list at a place."""
        return self.call("array_extract", values, str(place))

    def length(self, values: str) -> str:
        """How many elements a list has."""
        return self.call("len", values)

    def part(self, values: str, first: int, last: int) -> str:
        """The elements of a list from one place to another."""
        return self.call("array_slice", values, str(first), str(last))

    def pick(self, values: str, places: str) -> str:
        """The elements of a list at the places that another list holds."""
        return self.call("list_select", values, places)

    def least(self, values: str) -> str:
        """The least number of a list."""
        return self.call("list_aggregate", values, "'min'")

    def greatest(self, values: str) -> str:
        """The greatest number of a list."""
        return self.call("list_aggregate", values, "'max'")

    def summed(self, values: str) -> str:
        """The sum of a list of numbers."""
        return self.call("list_aggregate", values, "'sum'")

    def quantile(self, number: str, share: float) -> str:
        """The aggregate that finds a quantile of numbers, between two of them where it lies so."""
        return self.call("quantile_cont", number, repr(share))

    def ordered(self, values: str) -> str:
        """A list from its least value to its greatest; structs by their first fields first."""
        return self.call("list_sort", values)

    def position(self, values: str, value: str) -> str:
        """The first place of a value in a list; 0 or NULL where it is none of them."""
        return self.call("list_position", values, value)

    def value_at(self, values: str, key: str) -> str:
        """The value of a map at a key; NULL where it has none."""
        return self.call("map_extract_value", values, key)

    def map(self, keys: str, values: str) -> str:
        """A map of two lists."""
        return self.call("map", keys, values)

    def struct(self, fields: Mapping[str, str]) -> str:
        """A struct of plain names and their values."""
        return self.call("struct_pack", *(f"{name} := {value}" for name, value in fields.items()))

    def row(self, values: str) -> str:
        """A struct of values in order, whose names do not matter."""
        return self.call("row", values)

    def field(self, value: str, name: str) -> str:
        """The field of a struct."""
        return self.call("struct_extract", value, self.quote_string(name))

    def member(self, name: str, field: str) -> str:
        """The field of a struct for which a plain name stands, inside `let` and `each`."""
        # not `name.field`: DuckDB looks for a bare struct_extract, which may be a user's macro
        return self.field(name, field)

    def let(self, name: str, value: str, body: str) -> str:
        """`body`, in which the plain `name` stands for `value`, which is evaluated once."""
        return self.at(self.each(self.array([value]), name, body), 1)

    def each(self, values: str, name: str, body: str) -> str:
        """A list with `body` for each value, for which the plain `name` stands."""
        return self.call("list_transform", values, f"lambda {name}: {body}")

    def error(self, message: str) -> str:
        """What fails with a message, an expression, when it is evaluated."""
        return self.call("error", message)

    def is_finite(self, number: str) -> str:
        """Whether a number is neither infinite nor NaN; NULL for NULL."""
        return self.call("isfinite", number)

    def bytes(self, text: str) -> str:
        """The bytes of a text in UTF-8."""
        return self.call("encode", text)

    def json(self, value: str, type: str) -> str:
        """The JSON of a list, map or struct of a type as DuckDB spells it, as Python's json
        reads it back; NULL of NULL.
        """
        # DuckDB's is compiled into the engine and writes what Python's json module reads back as it
        # was (seen on 1.5.6 and 2.0.0): NaN and Infinity, each DOUBLE in as many digits as tell it
        # from its neighbours, a FLOAT as the DOUBLE that it is, DECIMAL, HUGEINT and BIGNUM with
        # all digits, and control characters escaped.
        return self.call("to_json", value)

    def shown(self, sql: str) -> str:
        """SQL that we wrote as a message shows it: functions by the names that users know."""
        return sql

    def first(self, values: str) -> str:
        """The first element of a list, as a message advises it."""
        return f"{values}[1]"

    def sum(self, values: str) -> str:
        """The sum of a list of numbers, as a message advises it."""
        return f"list_sum({values})"

    def seconds(self, time: str) -> str:
        """A point in time as seconds since 1970, as a message advises it."""
        return f"date_part('epoch', {time})"

    def takes_as_datetime(self, type: str) -> bool:
        """Whether a type, as DuckDB spells it, is one of dates or of timestamps without a zone."""
        return DATETIMES.fullmatch(type) is not None

    def microseconds(self, time: str) -> str:
        """A date or timestamp as microseconds since 1970-01-01, a DOUBLE."""
        return f"CAST({self.call('epoch_us', f'CAST({time} AS TIMESTAMP)')} AS DOUBLE)"

    def place_of(self, text: str, texts: Sequence[str], other: str = "-1") -> str:
        """The place of a text among distinct ones, from 0; `other` if it is NULL or absent.

        `other` is evaluated only for such texts.
        """
        places = self.map(self.array(texts), self.call("range", str(len(texts))))
        return f"coalesce({self.value_at(places, text)}, {other})"

    def number_arguments(self, numbers: Sequence[str], kind: str) -> str:
        """Numbers of one type as arguments of a function that scores: one for all, or one each."""
        # DuckDB hands an array over as it lies in memory. A cast list and not array_value(..): that
        # takes 6 times as long (28 FLOATs, 2.0 and 1.5). A STRUCT is handed over in a third of the
        # time, but Arrow then lets go of the GIL more often, and with two threads the query takes
        # longer (28 columns, 30 trees: 0.8x of one thread's time, 1.1x of two threads').
        return f"{self.array(numbers)}::{kind}[{len(numbers)}]"

    def packed_arguments(self, name: str) -> str:
        """The argument for a column `name` that holds such numbers."""
        return self.quote_name(name)

    def text_arguments(self, texts: Sequence[str]) -> str:
        """Texts as arguments of such a function: one for all, or one each."""
        # their bytes, since a VARCHAR of DuckDB may come in several layouts
        return f"{self.array([self.bytes(text) for text in texts])}::BLOB[]"

    def columns_of_models(self, numbers: Sequence[str], texts: Sequence[str]) -> str:
        """Numbers (DOUBLE) and texts as arguments of a function whose rows name their models."""
        return ", ".join([*numbers, *(f"CAST({text} AS VARCHAR)" for text in texts)])

    def returned(self, type: str) -> str:
        """The type of what a function that scores returns, of values of a type."""
        return type

    def value_of(self, call: str) -> str:
        """The value in what a function that scores returned."""
        return call

    def checked(self, call: str, value: str) -> str:
        """`value`, which is made of that; or the error that it has in place of a value."""
        # DuckDB's function fails itself
        return value

    def is_missing(self, number: str) -> str:
        """Whether a number is NaN; NULL of NULL."""
        return self.call("isnan", number)

    def missing(self, type: str) -> str:
        """A missing number of a type, as a literal."""
        return f"'nan'::{type}"

    def overflow(self, sign: str = "") -> str:
        """The infinity that a function of a DOUBLE gives."""
        return f"'{sign}inf'::DOUBLE"

    def number_of(self, condition: str, type: str) -> str:
        """1 where a condition holds, and else 0."""
        return f"CAST({condition} AS {type})"

    def rounded(self, number: str) -> str:
        """What an operation on FLOATs gives, as a FLOAT."""
        return number

    def narrowed(self, number: str) -> str:
        """A DOUBLE within the range of FLOAT, rounded to that."""
        return f"CAST({number} AS FLOAT)"

    def is_infinite(self, number: str) -> str:
        """Whether a number is an infinity; NULL of NULL."""
        return self.call("isinf", number)

    def truncated(self, number: str, type: str) -> str:
        """A number truncated towards zero, cast to an integer type."""
        return f"CAST({self.call('trunc', number)} AS {type})"

    def rounded_to_even(self, number: str) -> str:
        """A number rounded to an integer of its own type, halves to the even one."""
        # round_even is a macro in DuckDB 1.5, which calls others by bare names
        half = self.call("abs", self.operator("-", number, self.call("trunc", number)))
        even = self.operator("*", "2", self.call("round", self.operator("/", number, "2")))
        return f"CASE WHEN {half} = 0.5 THEN {even} ELSE {self.call('round', number)} END"

    def place_of_greatest(self, values: str) -> str:
        """The first place of the greatest number of a list."""
        # list_max is a macro of DuckDB, which calls another by its bare name
        most = self.call("list_aggregate", values, "'max'")
        return self.call("list_position", values, most)

    def divided(self, a: str, b: str, kind: str) -> str:
        """A quotient of two numbers of one type, in that type."""
        return self.operator("/", a, b)

    def star_without(self, names: Sequence[str]) -> str:
        """All columns but those of some quoted names."""
        return f"* EXCLUDE ({', '.join(names)})"
