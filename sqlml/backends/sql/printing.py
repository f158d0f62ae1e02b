"""`Printing`: one node of a Program while it is printed as SQL."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from sqlml.backends.sql.expression import Bindings, Expression, Value, constants
from sqlml.backends.sql.literals import TYPES, number
from sqlml.dialects import Dialect
from sqlml.errors import BackendError, ScoringError
from sqlml.ir.program import Attrs
from sqlml.types import Array, TensorType

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
