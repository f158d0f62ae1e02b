"""Building blocks of a model as SQL: `Expression`, `Bindings` and `NodePrinter`.

An `Expression` is one number of a row. `Bindings` gives a name to each value that is read several
times. In SQL, a name is a field of a lambda's parameter:
`list_transform([{'v1': a + b}], lambda row: row.v1 * row.v1)[1]`. A missing number is NaN and never
NULL, as in a Program. In the engine, NaN equals NaN and is greater than all numbers, so expressions
that may be NaN are marked, and comparisons treat them specially.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from sqlml.dialects import DUCKDB, Dialect
from sqlml.errors import BackendError, ScoringError
from sqlml.ir.program import Attrs
from sqlml.ir.trees import Ensemble
from sqlml.types import Array, TensorType

TYPES = {
    "float64": "DOUBLE",
    "float32": "FLOAT",
    "int64": "BIGINT",
    "int32": "INTEGER",
    "int16": "SMALLINT",
    "int8": "TINYINT",
    "bool": "BOOLEAN",
}
"""Map a dtype to DuckDB's type."""


def number_literal(value: float, dtype: str = "float64", dialect: Dialect = DUCKDB) -> str:
    """Return `value` as a typed SQL literal, because DuckDB reads a bare 0.1 as a DECIMAL.

    >>> number_literal(0.1), number_literal(0.1, "float32")
    ("'0.1'::DOUBLE", "'0.1'::FLOAT")
    >>> number_literal(3, "int64"), number_literal(True, "bool")
    ("'3'::BIGINT", "'true'::BOOLEAN")
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
    """Return `text` as a SQL literal.

    >>> string_literal("it's")
    "'it''s'"
    """
    if "\0" in text:
        raise BackendError(
            f"the category {text!r} contains a NUL character, which SQL cannot represent"
        )
    return dialect.text(text)


LONGEST_SUM = 400
"""Maximum number of terms of a sum; the engine rejects expressions that are nested 1,000 deep."""


@dataclass(frozen=True, slots=True)
class Expression:
    """One number of a row as SQL.

    Printers may repeat `cheap` SQL, which is short. `nan` tells whether the number may be NaN.
    `raw` is shorter SQL that is NULL or NaN wherever the number is NaN. If the number is the code
    of a category, `category` is SQL that shows the category in error messages.
    """

    sql: str
    cheap: bool = False
    nan: bool = True
    raw: str | None = None
    category: str | None = None

    def with_sql(self, sql: str) -> Expression:
        """Return an Expression of `sql` that may be NaN if this Expression may be NaN."""
        return Expression(sql, nan=self.nan)


Value = tuple[Expression, ...]
"""The result of a node: the numbers of a row in C order."""


def literals(values: Array, dtype: str, dialect: Dialect = DUCKDB) -> Value:
    """Return `values` as literals of `dtype`, in C order.

    >>> literals(np.array([0.5]), "float64")[0].sql
    "'0.5'::DOUBLE"
    """
    return tuple(
        Expression(number_literal(value, dtype, dialect), cheap=True, nan=bool(value != value))
        for value in np.asarray(values).ravel().tolist()
    )


SumTrees = Callable[[Ensemble, Value], str]
"""A function that maps an ensemble and its input columns to SQL for a list of the outputs."""


@dataclass(slots=True)
class Bindings:
    """Expressions that are bound to the names v1, v2, ..., in this order.

    `wrap` arranges the expressions in stages, because engines need exponential time to bind nested
    lambdas. Each stage is a lambda over a list with the struct of the previous stage; the lambda's
    parameter is named `row`. If the SQL cannot raise errors, `rejected` collects the conditions
    under which the model rejects a row. If given, `sum_trees` sums trees outside the expression.
    """

    row: str = "sqlml"
    dialect: Dialect = DUCKDB
    bound: list[str] = field(default_factory=list)
    rejected: list[str] = field(default_factory=list)
    sum_trees: SumTrees | None = None

    def bind(self, value: Sequence[Expression]) -> Value:
        """Bind `value` to a name unless it is cheap; return cheap expressions of the numbers."""
        if all(operand.cheap for operand in value):
            return tuple(value)
        bound_sql = self.name(self.dialect.array([operand.sql for operand in value]))
        return tuple(
            replace(operand, sql=self.dialect.at(bound_sql, k), cheap=True, raw=None)
            for k, operand in enumerate(value, 1)
        )

    def bind_conditions(self, value: Sequence[Expression]) -> Value:
        return self.bind(value)

    def name(self, sql: str) -> str:
        """Bind `sql` to the next name, and return SQL that reads it."""
        self.bound.append(sql)
        return self._read(len(self.bound))

    def total(self, terms: Sequence[str], dtype: str) -> str:
        """Return SQL that adds `terms` from left to right, in groups of up to LONGEST_SUM terms.

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

    def wrap(self, sql: str) -> str:
        """Wrap `sql` into an expression that defines the bound names."""
        if not self.bound:
            return sql
        dialect, expressions = self.dialect, [*self.bound, sql]
        pattern = re.compile(re.escape(self._read("@")).replace("@", r"(\d+)\b"))
        names_read = [{int(n) - 1 for n in pattern.findall(sql_text)} for sql_text in expressions]
        # The stage of an expression follows the stages of all names that it reads.
        stages: list[int] = []
        for needed in names_read:
            stages.append(1 + max((stages[j] for j in needed), default=0))
        last_stage = max(stages[:-1])
        stages[-1] = last_stage + 1
        bound = range(len(self.bound))
        last_readers = [
            max((stages[i] for i, s in enumerate(names_read) if j in s), default=0) for j in bound
        ]
        nested = ""
        for stage in range(1, last_stage + 1):
            passed_on = {j: self._read(j + 1) for j in bound if stages[j] < stage < last_readers[j]}
            fields = passed_on | {j: expressions[j] for j in bound if stages[j] == stage}
            struct = dialect.struct({f"v{j + 1}": sql_text for j, sql_text in fields.items()})
            nested = dialect.each(nested, self.row, struct) if nested else dialect.array([struct])
        return dialect.at(dialect.each(nested, self.row, sql), 1)


VALUE = "\x01"
"""Placeholder in an error message for a value that only the engine knows."""


def get_row_shape(tensor_type: TensorType) -> tuple[int, ...]:
    return tensor_type.shape[1:] if tensor_type.rowwise else tensor_type.shape


@dataclass(frozen=True, slots=True)
class NodePrinter:
    """A node to print as SQL, and helpers for the printers of operators.

    `type` is the type of the result. `values` are the inputs, with numbers in C order, and
    `operands` are the types of the inputs. Shapes are those of one row.
    """

    op: str
    attrs: Attrs
    type: TensorType
    values: tuple[Value, ...]
    operands: tuple[TensorType, ...]
    bindings: Bindings

    @property
    def dtype(self) -> str:
        return self.type.dtype

    @property
    def operand(self) -> str:
        """The dtype of the first input."""
        return self.operands[0].dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return get_row_shape(self.type)

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        return tuple(map(get_row_shape, self.operands))

    def bind(self, value: Sequence[Expression]) -> Value:
        return self.bindings.bind(value)

    def broadcast_operands(self, bound: bool = False) -> list[Value]:
        """Broadcast the inputs as numpy does; return the operands of each number of the result.

        If `bound`, long operands are bound to names, so that SQL may repeat them.
        """
        size = math.prod(self.shape)
        operands = []
        for value, shape in zip(self.values, self.shapes, strict=True):
            operand = self.bind(value) if bound or len(value) != size else value
            while len(shape) > len(self.shape):  # The first axis has length 1.
                shape = shape[1:]
            indices = np.broadcast_to(np.arange(len(operand)).reshape(shape), self.shape)
            operands.append([operand[i] for i in indices.ravel().tolist()])
        return list(zip(*operands, strict=True))

    def lines(self) -> list[Value]:
        """Return the lines of the first input along the attribute `axis`, which are reduced."""
        (shape, *_) = self.shapes
        indices = np.arange(len(self.values[0])).reshape(shape)
        last_axis_moved = np.moveaxis(indices, self.attrs["axis"] - 1, -1)
        indices_of_lines = last_axis_moved.reshape(-1, last_axis_moved.shape[-1]).tolist()
        return [tuple(self.values[0][i] for i in line) for line in indices_of_lines]

    def missing(self, operand: Expression) -> str:
        """Return a condition that holds if `operand` is missing."""
        return "false" if not operand.nan else self.dialect.is_missing(operand.sql)

    def number(self, value: float, dtype: str | None = None) -> str:
        return number_literal(value, dtype or self.dtype, self.dialect)

    def literals(self, values: Array, dtype: str | None = None) -> Value:
        """Return `values` as literals of `dtype` (default: the node's dtype), in C order."""
        return literals(values, dtype or self.dtype, self.dialect)

    @property
    def sql_type(self) -> str:
        return self.type_of(self.dtype)

    def type_of(self, dtype: str) -> str:
        return TYPES["float64" if dtype == "float32" and not self.dialect.has_float32 else dtype]

    def operator(self, symbol: str, a: str, b: str) -> str:
        """Return SQL for a `symbol` b, rounded to the node's dtype."""
        sql = self.dialect.operator(symbol, a, b)
        return self.dialect.rounded(sql) if self.dtype == "float32" else sql

    def total(self, terms: Sequence[str]) -> str:
        """Return SQL that adds `terms` in order, in the node's dtype; 0 if there are no terms."""
        return self.bindings.total(terms, self.dtype) if terms else self.number(0)

    def reject_when(
        self, operand: Expression, whens: Sequence[tuple[str, str]], nan: bool
    ) -> Expression:
        """Return `operand` with errors for the conditions under which the model rejects it.

        `whens` lists pairs of a condition and SQL that raises the error. If missing values are
        NULL, `Bindings.rejected` gets the conditions instead. If `nan`, the result may be NaN.
        """
        if self.dialect.missing_is_null:
            self.bindings.rejected += [condition for condition, _ in whens]
            return replace(operand, nan=nan)
        cases = " ".join(f"WHEN {condition} THEN {error}" for condition, error in whens)
        return Expression(f"CASE {cases} ELSE {operand.sql} END", nan=nan)

    def error(self, error: ScoringError, value: str | None = None) -> str:
        """Return SQL that raises `error`; the result of SQL `value` replaces VALUE."""
        message = f"{type(error).__name__}: {error.message}"
        if "\0" in message:
            raise BackendError(f"{message!r} contains a NUL character, which SQL cannot represent")
        prefix, separator, suffix = message.partition(VALUE)
        if not separator or value is None:
            return self.dialect.error(self.dialect.text(message))
        concat_args = (self.dialect.text(prefix), value, self.dialect.text(suffix))
        return self.dialect.error(self.dialect.call("concat", *concat_args))

    @property
    def dialect(self) -> Dialect:
        return self.bindings.dialect


Printer = Callable[[NodePrinter], Value]
"""A function that returns the result of a node as SQL."""
