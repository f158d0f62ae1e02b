"""What the names of an ONNX graph stand for while it is imported.

Values of rows are (n, k) in the IR, whatever their rank in ONNX: `inner` is the shape behind the
rows, and k its product. Operators that move numbers about are numpy's own on a grid of column
numbers, and then one `select`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sqlml.config import MAX_ROW_VALUES
from sqlml.errors import ArtifactError, UnsupportedModelError
from sqlml.importers.onnx.model import GraphNode
from sqlml.importers.onnx.ordered_sums import ordered_sum
from sqlml.ir.builder import Builder, Value
from sqlml.types import ROWS, Array, DType, dtype_of


class UnknownOperator(UnsupportedModelError):
    """The graph has an operator, or a use of one, that the IR does not cover."""


@dataclass(frozen=True, slots=True, eq=False)
class Const:
    """A value without rows."""

    value: Array


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Numbers, shape (n, *inner) in ONNX."""

    value: Value
    inner: tuple[int, ...]
    check: Value | None = None
    """Where these are the zeros that a check adds to numbers: the numbers after the check."""

    @property
    def dtype(self) -> DType:
        return self.value.type.dtype


@dataclass(frozen=True, slots=True, eq=False)
class Texts:
    """Strings, shape (n, *inner): one (n, 1) value for each place."""

    columns: tuple[Value, ...]
    inner: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """One of `values` (k,) a row, by index (n, 1): labels, and what is looked up in tables."""

    index: Value
    values: Array
    inner: tuple[int, ...]
    taken: list[Value] = field(default_factory=list)
    """The chosen numbers themselves, once they have been asked for."""


@dataclass(frozen=True, slots=True, eq=False)
class Sums:
    """Running sums of numbers (n, *inner) along axis `axis` of inner; the last ones are used."""

    rows: Rows
    axis: int

    @property
    def inner(self) -> tuple[int, ...]:
        return self.rows.inner


@dataclass(frozen=True, slots=True, eq=False)
class Turned:
    """Numbers (b, n, k): `rows` (n, b, k) with the rows and axis 1 in each other's place."""

    rows: Rows

    @property
    def shape(self) -> tuple[int, ...]:
        batch, width = self.rows.inner
        return (batch, ROWS, width)


@dataclass(frozen=True, slots=True)
class Dims:
    """The shape of a value of rows, ROWS first."""

    shape: tuple[int, ...]


Item = Const | Rows | Texts | Choice | Sums | Turned | Dims


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """A node with what it reads, for the functions of the operator tables."""

    builder: Builder
    node: GraphNode
    inputs: tuple[Item | None, ...]
    opset: int
    names: Sequence[str]
    """Names of the model's columns, for messages."""
    fixed: int | None = None
    """The number of rows that the graph is made for, and may have among its constants."""

    def unknown(self, why: str) -> UnknownOperator:
        return UnknownOperator(f"operator {self.node.op}: {why}")

    # -- inputs

    def item(self, i: int) -> Item:
        if i >= len(self.inputs) or (found := self.inputs[i]) is None:
            raise ArtifactError(f"operator {self.node.op} lacks input {i}")
        return found

    def optional(self, i: int) -> Item | None:
        return self.inputs[i] if i < len(self.inputs) else None

    def const(self, i: int) -> Array:
        item = self.item(i)
        if not isinstance(item, Const):
            raise self.unknown(f"its input {i} is computed from the rows")
        return item.value

    def ints(self, i: int) -> list[int]:
        """A constant input of whole numbers."""
        value = self.const(i)
        if value.dtype.kind not in "iu" or value.size > 1 << 16:
            raise ArtifactError(f"operator {self.node.op}: input {i} is {value.dtype}")
        return [int(v) for v in value.ravel()]

    def rows(self, i: int) -> Rows:
        """An input of numbers a row; what was looked up is taken from its table."""
        item = self.item(i)
        if isinstance(item, Choice):
            if item.values.dtype == object:
                raise self.unknown("it computes with strings")
            if not item.taken:
                table = self.builder.constant(item.values)
                item.taken.append(self.builder.op("take", table, item.index))
            return Rows(item.taken[0], item.inner)
        if not isinstance(item, Rows):
            raise self.unknown("it reads a constant, or strings, where we take numbers of rows")
        return item

    # -- attributes

    def attr(self, name: str, default: Any = None) -> Any:
        return self.node.attrs.get(name, default)

    def integer(self, name: str, default: int) -> int:
        value = self.attr(name, default)
        if not isinstance(value, int):
            raise ArtifactError(f"operator {self.node.op}: attribute {name} is not an integer")
        return value

    def number(self, name: str, default: float) -> float:
        value = self.attr(name, default)
        if not isinstance(value, int | float):
            raise ArtifactError(f"operator {self.node.op}: attribute {name} is not a number")
        return float(value)

    def text(self, name: str, default: str) -> str:
        value = self.attr(name, default)
        if not isinstance(value, str):
            raise ArtifactError(f"operator {self.node.op}: attribute {name} is not a text")
        return value

    def vector(self, name: str, dtype: str = "float32") -> Array:
        """A list of numbers; empty when it is not given."""
        value = self.attr(name)
        if value is None:
            return np.zeros(0, dtype)
        if not isinstance(value, np.ndarray) or value.ndim != 1 or value.dtype == object:
            raise ArtifactError(f"operator {self.node.op}: attribute {name} is no list of numbers")
        return value.astype(dtype)

    def texts(self, name: str) -> list[str]:
        value = self.attr(name)
        if value is None:
            return []
        if not isinstance(value, list):
            raise ArtifactError(f"operator {self.node.op}: attribute {name} is no list of texts")
        return value

    # -- results

    def scalar(self, value: float, dtype: DType) -> Value:
        return self.builder.constant(np.array([value], dtype))

    def op(self, name: str, *inputs: Value, **attrs: Any) -> Value:
        return self.builder.op(name, *inputs, **attrs)

    def cast(self, value: Value, dtype: DType) -> Value:
        if value.type.dtype == dtype:
            return value
        return self.builder.op("cast", value, dtype=dtype)


def moved(call: Call, item: Item, change: Callable[[Array], Array]) -> Item:
    """`item` after numpy's `change` on its grid, shape (1, *inner): rows must stay rows."""
    if isinstance(item, Const):
        return Const(np.asarray(change(item.value)))
    if isinstance(item, Dims | Turned):
        raise call.unknown("it computes with the number of rows")
    width = math.prod(item.inner)
    try:
        grid = change(np.arange(width).reshape(1, *item.inner))
    except (ValueError, IndexError) as error:
        raise ArtifactError(f"operator {call.node.op}: {error}") from None
    if grid.ndim < 1 or grid.shape[0] != 1:
        raise call.unknown("it mixes rows, or counts them")
    return picked(call, item, grid.ravel(), grid.shape[1:])


def picked(
    call: Call, item: Rows | Texts | Choice | Sums, places: Array, inner: tuple[int, ...]
) -> Item:
    """The numbers at `places` of `item`, as shape (n, *inner)."""
    if places.size > MAX_ROW_VALUES:
        raise ArtifactError(f"operator {call.node.op} makes {places.size} numbers a row")
    same = np.array_equal(places, np.arange(math.prod(item.inner)))
    if isinstance(item, Choice):
        if not same:
            raise call.unknown("it repeats labels")
        return Choice(item.index, item.values, inner)
    if isinstance(item, Texts):
        return Texts(tuple(item.columns[int(p)] for p in places), inner)
    if isinstance(item, Sums):
        return Rows(_summed(call, item, places), inner)
    if same:
        return Rows(item.value, inner)
    value = call.op("select", item.value, indices=places.astype(np.int64))
    return Rows(value, inner)


def _summed(call: Call, item: Sums, places: Array) -> Value:
    """The running sums at `places`, all of which have as many terms."""
    at = list(np.unravel_index(places, item.inner))
    ends = np.unique(at[item.axis])
    if ends.size != 1:
        raise call.unknown("it reads running sums of different length")
    terms = np.arange(int(ends[0]) + 1)
    if terms.size * places.size > MAX_ROW_VALUES:
        raise ArtifactError(
            f"operator {call.node.op} adds {terms.size * places.size} numbers a row"
        )
    at = [axis[:, None] for axis in at]
    at[item.axis] = terms[None, :]
    columns = np.ravel_multi_index(np.broadcast_arrays(*at), item.inner)
    return ordered_sum(call.builder, item.rows.value, columns)


def aligned(call: Call, items: Sequence[Item]) -> tuple[list[Value], tuple[int, ...]]:
    """Operands of an elementwise operator, brought to one inner shape; one of them has rows."""
    rows = [call.rows(i) for i, x in enumerate(items) if not isinstance(x, Const)]
    if not rows:
        raise call.unknown("it has no input of rows")
    ranks = {len(r.inner) for r in rows}
    if len(ranks) > 1:
        raise call.unknown("it mixes values of different rank, and so mixes rows")
    shapes = [(1, *r.inner) for r in rows]
    for item in items:
        if isinstance(item, Const):
            if item.value.ndim > len(shapes[0]) or item.value.size > MAX_ROW_VALUES:
                raise call.unknown("a constant has a higher rank than the rows")
            shape = (1,) * (len(shapes[0]) - item.value.ndim) + item.value.shape
            if shape[0] != 1:
                raise call.unknown("a constant has rows of its own")
            shapes.append(shape)
    try:
        inner = np.broadcast_shapes(*shapes)[1:]
    except ValueError as error:
        raise ArtifactError(f"operator {call.node.op}: {error}") from None
    if math.prod(inner) > MAX_ROW_VALUES:
        raise ArtifactError(f"operator {call.node.op} makes {math.prod(inner)} numbers a row")
    values: list[Value] = []
    for i, item in enumerate(items):
        if isinstance(item, Const):
            values.append(_spread(call, item.value, inner))
        else:
            values.append(widened(call, call.rows(i), inner).value)
    return values, inner


def _spread(call: Call, value: Array, inner: tuple[int, ...]) -> Value:
    if value.dtype == object:
        raise call.unknown("it compares strings")
    try:
        dtype_of(value)
    except TypeError:
        raise call.unknown(f"it computes with {value.dtype}") from None
    flat = value.ravel() if value.size == 1 else np.broadcast_to(value, (1, *inner)).ravel()
    return call.builder.constant(flat)


def widened(call: Call, item: Rows, inner: tuple[int, ...]) -> Rows:
    """`item` broadcast to `inner`."""
    if item.inner == inner:
        return item
    if math.prod(item.inner) == 1:  # the IR broadcasts one column by itself
        return item
    grid = np.broadcast_to(np.arange(math.prod(item.inner)).reshape(item.inner), inner)
    made = picked(call, item, grid.ravel(), inner)
    assert isinstance(made, Rows)
    return made


def shape_of(item: Item) -> tuple[int, ...]:
    """ONNX's shape of an item, ROWS for the number of rows."""
    if isinstance(item, Const):
        return item.value.shape
    if isinstance(item, Dims):
        return (len(item.shape),)
    if isinstance(item, Turned):
        return item.shape
    return (ROWS, *item.inner)
