"""`Dialect`, the SQL that differs between engines.

All packages use the names of DuckDB's types. `Dialect.type` returns the engine's name of a type.
Positions in lists are 1-based. SQL that is the same for all engines (CASE, CAST, coalesce,
comparisons, `'0.5'::DOUBLE`) is written where it is needed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlml.dialects.type_names import DATETIMES


class Dialect:
    """The SQL of one engine. Arguments and results are SQL text, except for names.

    The methods of this class return DuckDB's SQL with bare function names. Subclasses override the
    methods for which another engine needs different SQL.

    Attributes:
        name: sqlglot's name of the dialect.
        lazy_calls: whether a function in a branch of a CASE is called only for rows of the branch.
        calls_in_lambdas: whether a scoring function may be called inside a lambda.
        outputs_first: whether a name in ORDER BY refers to a select item instead of a column.
        copies_rows: whether a function call copies all columns of a row, and runs before filters.
        row_number: SQL for the 1-based number of a row in the engine's reading order.
        row_number_in_table, row_number_in_file: the hidden number of a row in a table and in files,
            or None.
        missing_is_null: whether a missing number is NULL instead of NaN. If true, there are no
            lists, conditions are not numbers, and a separate column reports rejected rows.
        has_float32: whether the type FLOAT exists. If false, `rounded` rounds DOUBLEs to FLOAT.
        casts_structs_to_maps: whether a struct can be cast to a map of its field names.
    """

    name: str
    lazy_calls: bool = True
    calls_in_lambdas: bool = True
    outputs_first: bool = False
    copies_rows: bool = False
    row_number: str = "row_number() OVER ()"
    row_number_in_table: str | None = None
    row_number_in_file: str | None = None
    missing_is_null: bool = False
    has_float32: bool = True
    casts_structs_to_maps: bool = False

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

    def integer(self, number: int) -> str:
        """Write an integer unlike users do.

        DuckDB replaces a literal by NULL if it is a key of grouping sets, wherever it stands.
        """
        return f"'{number}'::BIGINT"

    def type(self, name: str) -> str:
        """Return the engine's name of a DuckDB type, such as `MAP(VARCHAR, DOUBLE)`."""
        return name

    def call(self, name: str, *arguments: str) -> str:
        """Return a call of an engine function that no function in a database can shadow."""
        return f"{name}({', '.join(arguments)})"

    def operator(self, symbol: str, a: str, b: str) -> str:
        """Apply an arithmetic operator or || to two operands."""
        return f"({a} {symbol} {b})"

    def negated(self, number: str) -> str:
        return f"(-{number})"

    def total(self, terms: Sequence[str]) -> str:
        """Add numbers from left to right."""
        return f"({' + '.join(terms)})"

    def scorer(self, name: str) -> str:
        """Return the name for calls of the scoring function `name`."""
        return name

    def array(self, items: Sequence[str]) -> str:
        """Build a list of SQL expressions."""
        return self.call("list_value", *items)

    def texts(self, texts: Sequence[str]) -> str:
        """Build a list of string literals, which must not contain NUL characters."""
        return self.array([self.text(text) for text in texts])

    def at(self, values: str, position: str | int) -> str:
        """Return the element of a list at a 1-based position."""
        return self.call("array_extract", values, str(position))

    def length(self, values: str) -> str:
        return self.call("len", values)

    def part(self, values: str, start: int, stop: int) -> str:
        """Return the elements of a list from position `start` to `stop`, both inclusive."""
        return self.call("array_slice", values, str(start), str(stop))

    def pick(self, values: str, positions: str) -> str:
        """Return the elements of the list `values` at the positions in the list `positions`."""
        return self.call("list_select", values, positions)

    def where(self, values: str, mask: str) -> str:
        """Return the elements of `values` at whose positions the list `mask` has 1, not 0."""
        return self.call("list_where", values, self.each(mask, "sqlml_i", "(sqlml_i > 0)"))

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
        """Aggregate a numeric column to the interpolated quantile at `share`, from 0 to 1."""
        return self.call("quantile_cont", number, repr(share))

    def ordered(self, values: str) -> str:
        """Sort a list in ascending order. Structs are compared field by field."""
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
        """Build a struct from unquoted field names and values."""
        return self.call("struct_pack", *(f"{name} := {value}" for name, value in fields.items()))

    def row(self, values: str) -> str:
        """Build a struct from comma-separated values. The field names do not matter."""
        return self.call("row", values)

    def field(self, value: str, name: str) -> str:
        """Return the field `name` of a struct."""
        return self.call("struct_extract", value, self.quote_string(name))

    def member(self, name: str, field: str) -> str:
        """Return a field of the struct that `let` or `each` has bound to `name`."""
        # DuckDB reads `name.field` as a bare struct_extract, which may be a user's macro.
        return self.field(name, field)

    def let(self, name: str, value: str, body: str) -> str:
        """Bind `name` to `value` in the expression `body`, so that `value` is evaluated once."""
        return self.at(self.each(self.array([value]), name, body), self.integer(1))

    def each(self, values: str, name: str, body: str) -> str:
        """Map the expression `body` over a list. In `body`, `name` is the element."""
        return self.call("list_transform", values, f"lambda {name}: {body}")

    def error(self, message: str) -> str:
        """Return an expression that raises an error when it is evaluated."""
        return self.call("error", message)

    def is_finite(self, number: str) -> str:
        """Test whether a number is neither infinite nor NaN. NULL stays NULL."""
        return self.call("isfinite", number)

    def exact(self, text: str) -> str:
        """Return `text` with the collation C, under which a string equals only itself."""
        return f"({text} COLLATE C)"

    def bytes(self, text: str) -> str:
        """Encode a string in UTF-8."""
        return self.call("encode", text)

    def json(self, value: str, type: str) -> str:
        """Convert a value of a DuckDB type to JSON for Python's json module. NULL stays NULL."""
        # Python's json module reads the output of DuckDB's to_json exactly (checked on 1.5.6 and
        # 2.0.0): NaN and Infinity, each DOUBLE with enough digits, FLOAT as DOUBLE, DECIMAL,
        # HUGEINT and BIGNUM with all digits, and escaped control characters.
        return self.call("to_json", value)

    def display(self, sql: str) -> str:
        """Return `sql` for messages, with the function names that users know."""
        return sql

    def first(self, values: str) -> str:
        """Return the first element of a list, in the style of messages."""
        return f"{values}[1]"

    def sum(self, values: str) -> str:
        """Return the sum of a list of numbers, in the style of messages."""
        return f"list_sum({values})"

    def seconds(self, time: str) -> str:
        """Convert a time to seconds since 1970, in the style of messages."""
        return f"date_part('epoch', {time})"

    def takes_as_datetime(self, type: str) -> bool:
        """Return whether a DuckDB type is a date or a timestamp without a time zone."""
        return DATETIMES.fullmatch(type) is not None

    def microseconds(self, time: str) -> str:
        """Convert a date or timestamp to microseconds since 1970-01-01 as DOUBLE."""
        return f"CAST({self.call('epoch_us', f'CAST({time} AS TIMESTAMP)')} AS DOUBLE)"

    def place_of(self, text: str, texts: Sequence[str], other: str = "-1") -> str:
        """Return the 0-based index of a string in the distinct strings `texts`.

        If the string is NULL or not in `texts`, `other` is evaluated and returned.
        """
        indices = self.map(self.array(texts), self.call("range", str(len(texts))))
        return f"coalesce({self.value_at(indices, text)}, {other})"

    def number_arguments(self, numbers: Sequence[str], number_type: str) -> str:
        """Return the arguments that pass numbers of one type to a scoring function."""
        # DuckDB passes an array without conversion. A cast of a list is 6 times as fast as
        # array_value(...) (28 FLOATs, 2.0 and 1.5). Passing a STRUCT is 3 times as fast. But then
        # Arrow releases the GIL more often, which slows down queries with two threads (28 columns,
        # 30 trees: 0.8x the time with one thread, 1.1x with two threads).
        return f"{self.array(numbers)}::{number_type}[{len(numbers)}]"

    def packed_arguments(self, name: str) -> str:
        """Return the arguments that pass a column made by `number_arguments`."""
        return self.quote_name(name)

    def text_arguments(self, texts: Sequence[str]) -> str:
        """Return the arguments that pass strings to a scoring function."""
        # Pass bytes, because a VARCHAR of DuckDB may have several layouts in Arrow.
        return f"{self.array([self.bytes(text) for text in texts])}::BLOB[]"

    def columns_of_models(self, numbers: Sequence[str], texts: Sequence[str]) -> str:
        """Return the arguments that pass DOUBLEs and strings to a function with a model per row."""
        return ", ".join([*numbers, *(f"CAST({text} AS VARCHAR)" for text in texts)])

    def returned(self, type: str) -> str:
        """Return the result type of a scoring function for values of a type."""
        return type

    def value_of(self, call: str) -> str:
        """Extract the value from the result of a scoring function."""
        return call

    def require_success(self, call: str, value: str) -> str:
        """Return `value`, which is computed from `call`, or raise the error of a failed call."""
        return value  # In DuckDB, the scoring function has already raised the error.

    def is_missing(self, number: str) -> str:
        """Test whether a number is NaN. NULL stays NULL."""
        return self.call("isnan", number)

    def missing(self, type: str) -> str:
        """Return a missing number of the given type."""
        return f"'nan'::{type}"

    def overflow(self, sign: str = "") -> str:
        """Return the infinity to which a DOUBLE overflows. `sign` is "" or "-"."""
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
        """Test whether a number is infinite. NULL stays NULL."""
        return self.call("isinf", number)

    def truncated(self, number: str, type: str) -> str:
        """Truncate a number towards zero and cast it to an integer type."""
        return f"CAST({self.call('trunc', number)} AS {type})"

    def rounded_to_even(self, number: str) -> str:
        """Round a number to an integral number of the same type. Halves are rounded to even."""
        # Do not call round_even, a macro of DuckDB 1.5 that calls functions by bare names.
        half = self.call("abs", self.operator("-", number, self.call("trunc", number)))
        even = self.operator("*", "2", self.call("round", self.operator("/", number, "2")))
        return f"CASE WHEN {half} = 0.5 THEN {even} ELSE {self.call('round', number)} END"

    def place_of_greatest(self, values: str) -> str:
        """Return the first position of the largest number in a list."""
        # Do not call list_max, a macro of DuckDB that calls a function by a bare name.
        return self.position(values, self.greatest(values))

    def divided(self, a: str, b: str, number_type: str) -> str:
        """Divide `a` by `b`. Both numbers and the quotient have the type `number_type`."""
        return self.operator("/", a, b)

    def star_without(self, names: Sequence[str]) -> str:
        """Return a select item for all columns except the given quoted names."""
        return f"* EXCLUDE ({', '.join(names)})"
