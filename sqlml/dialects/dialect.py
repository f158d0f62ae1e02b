"""`Dialect`, the SQL that engines spell differently.

Types are named as in DuckDB throughout sqlml; `Dialect.type` returns the engine's own spelling.
Positions in lists count from 1. SQL that all engines spell alike (CASE, CAST, coalesce,
comparisons, `'0.5'::DOUBLE`) is written where it is needed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlml.dialects.type_names import DATETIMES


class Dialect:
    """The SQL of one engine. Arguments and results are SQL text, except for names.

    These methods write DuckDB's SQL with bare function names. A subclass overrides what its engine
    spells differently.

    name: sqlglot's name for the engine's SQL. lazy_calls: whether a function in a branch of a CASE
    is called only for the rows of that branch. calls_in_lambdas: whether a scoring function may be
    called inside a lambda. outputs_first: whether a name in ORDER BY refers to a select item rather
    than to a column. copies_rows: whether a function call copies all columns of a row, and runs
    before filters that could run first. row_number: SQL for the number of a row, from 1, in the
    engine's reading order. missing_is_null: whether a missing number is NULL instead of NaN; if so,
    there are no lists, conditions are not numbers, and a separate column reports rejected rows.
    has_float32: whether the engine has the type FLOAT; if not, such numbers are DOUBLEs that
    `rounded` rounds to FLOAT.
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
        """Quote an identifier.

        >>> Dialect().quote_name('a"b')
        '"a""b"'
        """
        return '"' + name.replace('"', '""') + '"'

    def quote_string(self, text: str) -> str:
        """Quote a string for use in a statement.

        >>> Dialect().quote_string("it's")
        "'it''s'"
        """
        return "'" + text.replace("'", "''") + "'"

    def text(self, text: str) -> str:
        """Write a string literal that has the same value under all settings of the engine."""
        return self.quote_string(text)

    def type(self, name: str) -> str:
        """Return the engine's spelling of a DuckDB type, such as `MAP(VARCHAR, DOUBLE)`."""
        return name

    def call(self, name: str, *arguments: str) -> str:
        """Return a call of the engine's own function, which no database function can shadow."""
        return f"{name}({', '.join(arguments)})"

    def operator(self, symbol: str, a: str, b: str) -> str:
        """Apply an arithmetic operator or || to two operands."""
        return f"({a} {symbol} {b})"

    def negated(self, number: str) -> str:
        """Negate a number."""
        return f"(-{number})"

    def total(self, terms: Sequence[str]) -> str:
        """Add numbers from left to right."""
        return f"({' + '.join(terms)})"

    def scorer(self, name: str) -> str:
        """Return the name to use in calls of the scoring function `name`."""
        return name

    def array(self, items: Sequence[str]) -> str:
        """Build a list of SQL expressions."""
        return self.call("list_value", *items)

    def texts(self, texts: Sequence[str]) -> str:
        """Build a list of string literals, which must not contain NUL characters."""
        return self.array([self.text(text) for text in texts])

    def at(self, values: str, position: str | int) -> str:
        """Return the element of a list at a position, from 1."""
        return self.call("array_extract", values, str(position))

    def length(self, values: str) -> str:
        """Return the length of a list."""
        return self.call("len", values)

    def part(self, values: str, start: int, stop: int) -> str:
        """Return the elements of a list from position `start` to `stop`, both inclusive."""
        return self.call("array_slice", values, str(start), str(stop))

    def pick(self, values: str, positions: str) -> str:
        """Return the elements of the list `values` at the positions in the list `positions`."""
        return self.call("list_select", values, positions)

    def least(self, values: str) -> str:
        """Return the smallest number in a list."""
        return self.call("list_aggregate", values, "'min'")

    def greatest(self, values: str) -> str:
        """Return the largest number in a list."""
        return self.call("list_aggregate", values, "'max'")

    def summed(self, values: str) -> str:
        """Return the sum of a list of numbers."""
        return self.call("list_aggregate", values, "'sum'")

    def quantile(self, number: str, share: float) -> str:
        """Aggregate a numeric column to its interpolated quantile at `share`, from 0 to 1."""
        return self.call("quantile_cont", number, repr(share))

    def ordered(self, values: str) -> str:
        """Sort a list in ascending order; structs are sorted by their fields in order."""
        return self.call("list_sort", values)

    def position(self, values: str, value: str) -> str:
        """Return the first position of a value in a list, or 0 or NULL if the value is missing."""
        return self.call("list_position", values, value)

    def value_at(self, values: str, key: str) -> str:
        """Return the value of a map for a key, or NULL if the map lacks the key."""
        return self.call("map_extract_value", values, key)

    def map(self, keys: str, values: str) -> str:
        """Build a map from a list of keys and a list of values."""
        return self.call("map", keys, values)

    def struct(self, fields: Mapping[str, str]) -> str:
        """Build a struct from field names, which need no quotes, and their values."""
        return self.call("struct_pack", *(f"{name} := {value}" for name, value in fields.items()))

    def row(self, values: str) -> str:
        """Build a struct from a comma-separated list of values; its field names do not matter."""
        return self.call("row", values)

    def field(self, value: str, name: str) -> str:
        """Return the field `name` of a struct."""
        return self.call("struct_extract", value, self.quote_string(name))

    def member(self, name: str, field: str) -> str:
        """Return a field of the struct that `let` or `each` has bound to the plain `name`."""
        # DuckDB reads `name.field` as a bare struct_extract, which may be a user's macro.
        return self.field(name, field)

    def let(self, name: str, value: str, body: str) -> str:
        """Bind the plain `name` to `value` in the expression `body`; `value` is evaluated once."""
        return self.at(self.each(self.array([value]), name, body), 1)

    def each(self, values: str, name: str, body: str) -> str:
        """Map the expression `body` over a list; in it, the plain `name` is the element."""
        return self.call("list_transform", values, f"lambda {name}: {body}")

    def error(self, message: str) -> str:
        """Return an expression that raises an error with the `message` when it is evaluated."""
        return self.call("error", message)

    def is_finite(self, number: str) -> str:
        """Test whether a number is neither infinite nor NaN; if it is NULL, the result is NULL."""
        return self.call("isfinite", number)

    def bytes(self, text: str) -> str:
        """Encode a string in UTF-8."""
        return self.call("encode", text)

    def json(self, value: str, type: str) -> str:
        """Convert a value of a DuckDB type to JSON for Python's json module; NULL stays NULL."""
        # DuckDB's to_json is part of the engine, and Python's json module reads its output back
        # exactly (checked on 1.5.6 and 2.0.0): NaN and Infinity, each DOUBLE with enough digits, a
        # FLOAT as a DOUBLE, DECIMAL, HUGEINT and BIGNUM with all digits, and escaped control
        # characters.
        return self.call("to_json", value)

    def display(self, sql: str) -> str:
        """Return `sql` for use in messages, with the function names that users know."""
        return sql

    def first(self, values: str) -> str:
        """Return the first element of a list, written in the style that messages suggest."""
        return f"{values}[1]"

    def sum(self, values: str) -> str:
        """Return the sum of a list of numbers, written in the style that messages suggest."""
        return f"list_sum({values})"

    def seconds(self, time: str) -> str:
        """Convert a time to seconds since 1970, written in the style that messages suggest."""
        return f"date_part('epoch', {time})"

    def takes_as_datetime(self, type: str) -> bool:
        """Return whether a DuckDB type is a date or a timestamp without a time zone."""
        return DATETIMES.fullmatch(type) is not None

    def microseconds(self, time: str) -> str:
        """Convert a date or timestamp to microseconds since 1970-01-01, a DOUBLE."""
        return f"CAST({self.call('epoch_us', f'CAST({time} AS TIMESTAMP)')} AS DOUBLE)"

    def place_of(self, text: str, texts: Sequence[str], other: str = "-1") -> str:
        """Return the index, from 0, of a string among the distinct strings `texts`.

        `other` is the result if the string is NULL or not in `texts`, and only evaluated then.
        """
        indices = self.map(self.array(texts), self.call("range", str(len(texts))))
        return f"coalesce({self.value_at(indices, text)}, {other})"

    def number_arguments(self, numbers: Sequence[str], number_type: str) -> str:
        """Return the argument or arguments that pass numbers of one type to a scoring function."""
        # DuckDB passes an array as it is in memory. A cast list is 6 times as fast as
        # array_value(...) (28 FLOATs, 2.0 and 1.5). Passing a STRUCT takes a third of the time, but
        # Arrow then releases the GIL more often, which slows down queries with two threads (28
        # columns, 30 trees: 0.8x the time with one thread, 1.1x with two).
        return f"{self.array(numbers)}::{number_type}[{len(numbers)}]"

    def packed_arguments(self, name: str) -> str:
        """Return the arguments that pass a column `name` made by `number_arguments`."""
        return self.quote_name(name)

    def text_arguments(self, texts: Sequence[str]) -> str:
        """Return the argument or arguments that pass strings to a scoring function."""
        # Bytes, because a VARCHAR of DuckDB may have several layouts in Arrow.
        return f"{self.array([self.bytes(text) for text in texts])}::BLOB[]"

    def columns_of_models(self, numbers: Sequence[str], texts: Sequence[str]) -> str:
        """Pass DOUBLEs and strings to a function that reads the name of the model from each row."""
        return ", ".join([*numbers, *(f"CAST({text} AS VARCHAR)" for text in texts)])

    def returned(self, type: str) -> str:
        """Return the result type of a scoring function whose values have the given type."""
        return type

    def value_of(self, call: str) -> str:
        """Extract the value from the result of a scoring function."""
        return call

    def require_success(self, call: str, value: str) -> str:
        """Return `value`, which is computed from `call`; if the call failed, raise its error."""
        return value  # In DuckDB, the scoring function has raised the error already.

    def is_missing(self, number: str) -> str:
        """Test whether a number is NaN; if it is NULL, the result is NULL."""
        return self.call("isnan", number)

    def missing(self, type: str) -> str:
        """Return a missing number of the given type."""
        return f"'nan'::{type}"

    def overflow(self, sign: str = "") -> str:
        """Return the infinity to which a DOUBLE overflows; `sign` is "" or "-"."""
        return f"'{sign}inf'::DOUBLE"

    def number_of(self, condition: str, type: str) -> str:
        """Convert a condition to the number 1 or 0 of the given type."""
        return f"CAST({condition} AS {type})"

    def rounded(self, number: str) -> str:
        """Round the result of an operation on FLOATs to the precision of FLOAT."""
        return number

    def narrowed(self, number: str) -> str:
        """Round a DOUBLE that is within the range of FLOAT to FLOAT."""
        return f"CAST({number} AS FLOAT)"

    def is_infinite(self, number: str) -> str:
        """Test whether a number is infinite; if it is NULL, the result is NULL."""
        return self.call("isinf", number)

    def truncated(self, number: str, type: str) -> str:
        """Truncate a number towards zero and cast it to an integer type."""
        return f"CAST({self.call('trunc', number)} AS {type})"

    def rounded_to_even(self, number: str) -> str:
        """Round a number to an integer without changing its type; halves are rounded to even."""
        # round_even is a macro in DuckDB 1.5, which calls other functions by their bare names.
        half = self.call("abs", self.operator("-", number, self.call("trunc", number)))
        even = self.operator("*", "2", self.call("round", self.operator("/", number, "2")))
        return f"CASE WHEN {half} = 0.5 THEN {even} ELSE {self.call('round', number)} END"

    def place_of_greatest(self, values: str) -> str:
        """Return the first position of the largest number in a list."""
        # list_max is a macro in DuckDB, which calls another function by its bare name.
        return self.position(values, self.greatest(values))

    def divided(self, a: str, b: str, number_type: str) -> str:
        """Divide `a` by `b`, where both numbers and the quotient have the type `number_type`."""
        return self.operator("/", a, b)

    def star_without(self, names: Sequence[str]) -> str:
        """Return a select item for all columns except those with the given quoted names."""
        return f"* EXCLUDE ({', '.join(names)})"
