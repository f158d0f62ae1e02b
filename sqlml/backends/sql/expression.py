"""`Expression`: one number of a row as SQL, and `Bindings`, which give long ones a name.

What a Program computes once SQL would compute each time that it is written. So a value that is
written several times is bound first, as `WITH` does for queries and a lambda over a list of one
struct does inside an expression; in DuckDB, without the full names of its functions:
`list_transform([{'v1': a + b}], lambda row: row.v1 * row.v1)[1]`.

In here a missing number is NaN and never NULL, as in a Program. The engine says that NaN equals
itself and is greater than all numbers, which IEEE and numpy deny; so what may be NaN carries a
mark, and comparisons look at it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from sqlml.dialects import DUCKDB, Dialect
from sqlml.errors import BackendError, ScoringError
from sqlml.ir.program import Attrs
from sqlml.ir.trees import Ensemble
from sqlml.types import Array, TensorType

# Values of Python as SQL literals.


TYPES = {
    "float64": "DOUBLE",
    "float32": "FLOAT",
    "int64": "BIGINT",
    "int32": "INTEGER",
    "int16": "SMALLINT",
    "int8": "TINYINT",
    "bool": "BOOLEAN",
}
"""The engine's type of each dtype that is printed."""


def number(value: float, dtype: str = "float64", dialect: Dialect = DUCKDB) -> str:
    """A number as a literal of its own value and type: a bare 0.1 would be a DECIMAL.

    >>> number(0.1), number(0.1, "float32"), number(3, "int64"), number(True, "bool")
    ("'0.1'::DOUBLE", "'0.1'::FLOAT", "'3'::BIGINT", "'true'::BOOLEAN")
    """
    if dtype == "bool":
        return f"'{str(bool(value)).lower()}'::BOOLEAN"
    if dtype.startswith("int"):
        return f"'{int(value)}'::{TYPES[dtype]}"
    if value != value and dialect.missing_is_null:
        return dialect.missing(TYPES[dtype])
    if dtype == "float32" and not dialect.has_float32:
        value, dtype = float(np.float32(value)), "float64"
    text = str(np.float32(value)) if dtype == "float32" else repr(float(value))
    return f"'{text}'::{TYPES[dtype]}"


def string_literal(text: str, dialect: Dialect = DUCKDB) -> str:
    """A text as a SQL literal.

    >>> string_literal("it's")
    "'it''s'"

    Raises:
        BackendError: it holds a NUL character, which SQL text cannot.
    """
    if "\0" in text:
        raise BackendError(
            f"the category {text!r} contains a NUL character, which SQL cannot represent"
        )
    return dialect.text(text)


LONGEST_SUM = 400
"""Terms in a row: the engine refuses expressions that are nested 1000 deep."""


@dataclass(frozen=True, slots=True)
class Expression:
    """One number of a row.

    cheap: it may be written several times. nan: it may be NaN. raw: where given, the same but
    NULL or NaN where this is NaN; it costs less. category: of a code, the text that it stands for,
    as an error has it.
    """

    sql: str
    cheap: bool = False
    nan: bool = True
    raw: str | None = None
    category: str | None = None


Value = tuple[Expression, ...]
"""The columns of a value."""


def constants(values: Array, dtype: str, dialect: Dialect = DUCKDB) -> Value:
    """Numbers of one dtype as literals, in C order.

    >>> constants(np.array([0.5]), "float64")[0].sql
    "'0.5'::DOUBLE"
    """
    return tuple(
        Expression(number(v, dtype, dialect), cheap=True, nan=bool(v != v))
        for v in np.asarray(values).ravel().tolist()
    )


Walked = Callable[[Ensemble, Value], str]
"""Trees and the columns that they test -> SQL for a list of the sums of their leaves."""


@dataclass(slots=True)
class Bindings:
    """What has a name: expressions, in the order in which they were bound.

    They become stages. Each is a lambda over the list of one struct that the stage before it has
    made, with what is still to be read; nested lambdas would be simpler, but the engine takes
    exponential time to bind those. `row` is the lambda's parameter. `refused` are the conditions
    under which the model refuses a row, where no value fails by itself. `walked`, where given,
    makes a list of the sums of trees that are no part of the text.
    """

    row: str = "sqlml"
    dialect: Dialect = DUCKDB
    bound: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    walked: Walked | None = None

    def bind(self, value: Sequence[Expression]) -> Value:
        """Bind the value to a name, unless all of it is cheap. All of it has one type."""
        if all(e.cheap for e in value):
            return tuple(value)
        name = self.name(self.dialect.array([e.sql for e in value]))
        return tuple(
            Expression(self.dialect.at(name, k), cheap=True, nan=e.nan, category=e.category)
            for k, e in enumerate(value, 1)
        )

    def bind_conditions(self, value: Sequence[Expression]) -> Value:
        """Bind conditions."""
        return self.bind(value)

    def name(self, sql: str) -> str:
        """A name for what `sql` computes."""
        self.bound.append(sql)
        return self._read(len(self.bound))

    def total(self, terms: Sequence[str], dtype: str) -> str:
        """The sum of numbers of a dtype from left to right; of groups of them where they are very
        many.

        >>> from sqlml.dialects import SPARK
        >>> Bindings(dialect=SPARK).total(["a", "b", "c"], "float64")
        '(a + b + c)'
        """
        while len(terms) > LONGEST_SUM:
            groups = range(0, len(terms), LONGEST_SUM)
            terms = [self.dialect.total(terms[g : g + LONGEST_SUM]) for g in groups]
        return self.dialect.total(terms)

    def _read(self, number: int | str) -> str:
        return self.dialect.member(self.row, f"v{number}")

    def around(self, sql: str) -> str:
        """`sql`, which reads the names, as an expression without them."""
        if not self.bound:
            return sql
        texts = [*self.bound, sql]
        read = re.compile(re.escape(self._read("@")).replace("@", r"(\d+)\b"))
        reads = [{int(n) - 1 for n in read.findall(text)} for text in texts]
        stage: list[int] = []
        for needed in reads:
            stage.append(1 + max((stage[j] for j in needed), default=0))
        last = max(stage[:-1])
        stage[-1] = last + 1
        until = [
            max((stage[i] for i, r in enumerate(reads) if j in r), default=0)
            for j in range(len(self.bound))
        ]
        made = ""
        for s in range(1, last + 1):
            own = {j: texts[j] for j in range(len(self.bound)) if stage[j] == s}
            kept = [j for j in range(len(self.bound)) if stage[j] < s < until[j]]
            fields = {**{j: self._read(j + 1) for j in kept}, **own}
            struct = self.dialect.struct({f"v{j + 1}": text for j, text in fields.items()})
            each = partial(self.dialect.each, made, self.row)
            made = each(struct) if made else self.dialect.array([struct])
        return self.dialect.at(self.dialect.each(made, self.row, sql), 1)


# `Printing`: one node of a Program while it is printed as SQL.


VALUE = "\x01"
"""What stands in a message for a value that only the engine knows."""


def row_shape(kind: TensorType) -> tuple[int, ...]:
    """The shape of a value for one row; a constant has its own."""
    return kind.shape[1:] if kind.rowwise else kind.shape


@dataclass(frozen=True, slots=True)
class Printing:
    """One node: its operator, the values that it reads, and the type of what it makes.

    `operands` are the types of the values. A value is flat, in C order; `shape` is that of the
    node for one row, and `shapes` those of the values.
    """

    op: str
    attrs: Attrs
    type: TensorType
    values: tuple[Value, ...]
    operands: tuple[TensorType, ...]
    bindings: Bindings

    @property
    def dtype(self) -> str:
        """Of what the node makes."""
        return self.type.dtype

    @property
    def operand(self) -> str:
        """The dtype of the first value."""
        return self.operands[0].dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """Of what the node makes of one row."""
        return row_shape(self.type)

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Of the values."""
        return tuple(map(row_shape, self.operands))

    def bind(self, value: Sequence[Expression]) -> Value:
        """The value as one that may be written several times."""
        return self.bindings.bind(value)

    def side_by_side(self, bound: bool = False) -> list[Value]:
        """The values number by number, brought to one shape as numpy does it.

        `bound`: they may be written several times.
        """
        size = math.prod(self.shape)
        spread = []
        for value, shape in zip(self.values, self.shapes, strict=True):
            held = self.bind(value) if bound or len(value) != size else value
            while len(shape) > len(self.shape):  # of length 1 then
                shape = shape[1:]
            places = np.broadcast_to(np.arange(len(held)).reshape(shape), self.shape)
            spread.append([held[i] for i in places.ravel().tolist()])
        return list(zip(*spread, strict=True))

    def lines(self) -> list[Value]:
        """The first value's lines along `axis`, in the order of what is made of each."""
        (shape, *_) = self.shapes
        places = np.arange(len(self.values[0])).reshape(shape)
        along = np.moveaxis(places, self.attrs["axis"] - 1, -1)
        flat = along.reshape(-1, along.shape[-1]).tolist()
        return [tuple(self.values[0][i] for i in line) for line in flat]

    def missing(self, e: Expression) -> str:
        """Whether a number is missing."""
        return "false" if not e.nan else self.dialect.is_missing(e.sql)

    def number(self, value: float, dtype: str | None = None) -> str:
        """A number as a literal, of the node's own dtype unless another is given."""
        return number(value, dtype or self.dtype, self.dialect)

    def constants(self, values: Array, dtype: str | None = None) -> Value:
        """Numbers as literals, in C order, of the node's own dtype unless another is given."""
        return constants(values, dtype or self.dtype, self.dialect)

    @property
    def sql_type(self) -> str:
        """The SQL type of what the node makes."""
        return self.type_of(self.dtype)

    def type_of(self, dtype: str) -> str:
        """The SQL type of a dtype."""
        narrow = dtype == "float32" and not self.dialect.has_float32
        return TYPES["float64" if narrow else dtype]

    def operator(self, symbol: str, a: str, b: str) -> str:
        """Two operands of an operator that computes, in the node's type."""
        made = self.dialect.operator(symbol, a, b)
        return self.dialect.rounded(made) if self.dtype == "float32" else made

    def total(self, terms: Sequence[str]) -> str:
        """The sum of numbers of the node's type from left to right; without terms, 0."""
        if not terms:
            return self.number(0)
        return self.bindings.total(terms, self.dtype)

    def refusing(self, e: Expression, whens: Sequence[tuple[str, str]], nan: bool) -> Expression:
        """A number that the model refuses under conditions, each with what raises the error."""
        if self.dialect.missing_is_null:
            self.bindings.refused += [condition for condition, _ in whens]
            return replace(e, nan=nan)
        cases = " ".join(f"WHEN {condition} THEN {error}" for condition, error in whens)
        return Expression(f"CASE {cases} ELSE {e.sql} END", nan=nan)

    def error(self, error: ScoringError, value: str | None = None) -> str:
        """What fails with an error, whose class its text begins with (`udfs.parked_errors.claim`).

        `value` is the SQL of what stands for `VALUE` in the message.
        """
        message = f"{type(error).__name__}: {error.message}"
        if "\0" in message:
            raise BackendError(f"{message!r} contains a NUL character, which SQL cannot represent")
        before, found, after = message.partition(VALUE)
        if not found or value is None:
            return self.dialect.error(self.dialect.text(message))
        text, rest = self.dialect.text(before), self.dialect.text(after)
        return self.dialect.error(self.dialect.call("concat", text, value, rest))

    @property
    def dialect(self) -> Dialect:
        """The SQL that is written."""
        return self.bindings.dialect
