"""The values of an ONNX graph during import; numbers per row are a `row_tensors.RowTensor`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sqlml.errors import ArtifactError
from sqlml.importers import row_tensors
from sqlml.importers.onnx.document import GraphNode
from sqlml.importers.row_tensors import RowTensor, Unsupported
from sqlml.ir.builder import Builder, Value
from sqlml.types import ROWS, Array, DType


@dataclass(frozen=True, slots=True, eq=False)
class Const:
    """A value that is the same for all rows, with the shape and dtype of ONNX."""

    value: Array


@dataclass(frozen=True, slots=True, eq=False)
class Texts:
    """Strings of shape (n, *inner); `columns` has a value (n, 1) for each string of a row."""

    columns: tuple[Value, ...]
    inner: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """A label or table entry per row: the constant `values[index]`, where `index` is (n, 1).

    `margins` has the scores that choose a label, before they become probabilities: one per value,
    or of two values that of the second (n, 1). It is None if there are none.
    """

    index: Value
    values: Array
    inner: tuple[int, ...]
    margins: Value | None = None
    cached_numbers: list[Value] = field(default_factory=list)
    """A list with the chosen numbers, or empty before `Call.numbers` has computed the numbers."""


@dataclass(frozen=True, slots=True, eq=False)
class Stack:
    """Numbers per row where the rows are not the first axis, with the shape (*outer, n, *inner).

    `rows` has the inner shape (*outer, *inner), and `outer_rank` is the number of outer axes. If
    `is_joined`, these and the rows are a single axis, as if tables were appended to each other.
    """

    rows: RowTensor
    outer_rank: int
    is_joined: bool = False


@dataclass(frozen=True, slots=True)
class Dims:
    """The ONNX shape of a value with rows; ROWS stands for the number of rows."""

    shape: tuple[int, ...]


Item = Const | RowTensor | Texts | Choice | Stack | Dims


def to_strings(values: list[str]) -> Array:
    """Convert a list of strings to an array of dtype object."""
    array = np.empty(len(values), object)
    array[:] = values
    return array


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """A node of the graph and the node's inputs, which converters of operators receive.

    Methods raise Unsupported for unsupported inputs, and ArtifactError if ONNX forbids the node.
    """

    builder: Builder
    node: GraphNode
    inputs: tuple[Item | None, ...]
    opset: int
    column_names: Sequence[str]
    """The names of the model's columns, for messages."""
    fixed_rows: int | None = None
    """The number of rows that the graph fixes, or None. Constants may contain this number."""

    def item(self, i: int) -> Item:
        if i >= len(self.inputs) or (tensor := self.inputs[i]) is None:
            raise self.error(f"it lacks input {i}")
        return tensor

    def optional_item(self, i: int) -> Item | None:
        return self.inputs[i] if i < len(self.inputs) else None

    def const(self, i: int) -> Array:
        tensor = self.item(i)
        if not isinstance(tensor, Const):
            raise Unsupported(f"its input {i} is computed from the rows")
        return tensor.value

    def ints(self, i: int) -> list[int]:
        """Return the integers in input `i`, a constant, as a flat list."""
        value = self.const(i)
        if value.dtype.kind not in "iu" or value.size > 1 << 16:
            raise self.error(f"input {i} is {value.dtype}, not integers")
        return [int(v) for v in value.ravel()]

    def rows(self, i: int) -> RowTensor:
        return self.numbers(self.item(i))

    def table(self, i: int) -> RowTensor:
        """Return input `i`; raise Unsupported unless the shape is (n, k)."""
        x = self.rows(i)
        if len(x.inner) != 1:
            raise Unsupported("its input is not a table")
        return x

    def numbers(self, tensor: Item) -> RowTensor:
        """Convert `tensor` to numbers per row; look up the chosen numbers of a Choice."""
        if isinstance(tensor, Choice):
            if tensor.values.dtype == object:
                raise Unsupported("it computes with strings")
            if not tensor.cached_numbers:
                table = self.builder.constant(tensor.values)
                tensor.cached_numbers.append(self.builder.op("take", table, tensor.index))
            return RowTensor(tensor.cached_numbers[0], tensor.inner)
        if not isinstance(tensor, RowTensor):
            raise Unsupported("it reads a constant, or strings, where numbers per row are expected")
        return tensor

    def attr(self, name: str, default: Any = None) -> Any:
        return self.node.attrs.get(name, default)

    def integer(self, name: str, default: int) -> int:
        value = self.attr(name, default)
        self._require_type(isinstance(value, int), name, "an integer")
        return int(value)

    def number(self, name: str, default: float) -> float:
        value = self.attr(name, default)
        self._require_type(isinstance(value, int | float), name, "a number")
        return float(value)

    def text(self, name: str, default: str) -> str:
        value = self.attr(name, default)
        self._require_type(isinstance(value, str), name, "a string")
        return str(value)

    def vector(self, name: str, dtype: str = "float32") -> Array:
        """Return the list of numbers in attribute `name` as an array, empty if missing."""
        value = self.attr(name)
        if value is None:
            return np.zeros(0, dtype)
        is_list = isinstance(value, np.ndarray) and value.ndim == 1 and value.dtype != object
        self._require_type(is_list, name, "a list of numbers")
        return np.asarray(value).astype(dtype)

    def vector_or_tensor(self, name: str) -> Array:
        """Return attribute `name`_as_tensor as a flat array, or if missing, attribute `name`."""
        tensor = self.attr(f"{name}_as_tensor")
        return self.vector(name) if tensor is None else np.asarray(tensor).ravel()

    def texts(self, name: str) -> list[str]:
        value = self.attr(name)
        self._require_type(value is None or isinstance(value, list), name, "a list of strings")
        return value or []

    def _require_type(self, has_type: bool, name: str, expected_type: str) -> None:
        if not has_type:
            raise self.error(f"attribute {name} is not {expected_type}")

    def error(self, reason: str) -> ArtifactError:
        """Build the error for a node that violates ONNX's rules, for the caller to raise."""
        return ArtifactError(f"operator {self.node.op}: {reason}")

    def axis(self, default: int, rank: int) -> int:
        """Return attribute `axis` for a tensor with `rank` axes, counted from the front."""
        axis = self.integer("axis", default)
        return axis + rank if axis < 0 else axis

    def axes(self, rank: int) -> list[int] | None:
        """Return `axes` (an attribute or input 1), counted from the front, or None if missing."""
        axes: Any = self.attr("axes")
        if axes is None and self.optional_item(1) is not None:
            axes = self.ints(1)
        return None if axes is None else [int(a) + rank if a < 0 else int(a) for a in axes]

    def scalar(self, value: float, dtype: DType) -> Value:
        return self.builder.constant(np.array([value], dtype))

    def op(self, name: str, *inputs: Value, **attrs: Any) -> Value:
        return self.builder.op(name, *inputs, **attrs)

    def cast(self, value: Value, dtype: DType) -> Value:
        return self.builder.cast(value, dtype)


def apply_to_grid(call: Call, tensor: Item, rearrange: Callable[[Array], Array]) -> Item:
    """Rearrange the elements of each row of `tensor` with the numpy function `rearrange`.

    `rearrange` maps an array of one row to an array of one row, but receives a constant as a whole.
    """
    if isinstance(tensor, Const):
        return Const(np.asarray(rearrange(tensor.value)))
    if isinstance(tensor, Dims):
        raise Unsupported("it computes with the number of rows")
    if isinstance(tensor, Stack):
        raise Unsupported(NOT_FIRST)
    columns = row_tensors.map_columns(tensor.inner, rearrange)
    if isinstance(tensor, RowTensor):
        return row_tensors.pick_columns(call.builder, tensor, columns)
    if isinstance(tensor, Texts):
        return Texts(tuple(tensor.columns[i] for i in columns.ravel()), columns.shape)
    if columns.size != 1:
        raise Unsupported("it repeats labels")
    return Choice(tensor.index, tensor.values, columns.shape, tensor.margins)


def apply_elementwise(call: Call, op: str, tensors: Sequence[Item] | None = None) -> RowTensor:
    """Apply `op` to `tensors`, by default all inputs of the node, after broadcasting."""
    operands, inner = align(call, tensors)
    return RowTensor(call.op(op, *operands), inner)


def align(call: Call, tensors: Sequence[Item] | None = None) -> tuple[list[Value], tuple[int, ...]]:
    """Broadcast `tensors`, by default all inputs; return the operands and the shape of a row."""
    tensors = [call.item(i) for i in range(len(call.inputs))] if tensors is None else tensors
    operands = [t.value if isinstance(t, Const) else call.numbers(t) for t in tensors]
    return row_tensors.broadcast_operands(call.builder, operands)


def find_shape(tensor: Item) -> tuple[int, ...]:
    """Return the ONNX shape of a tensor, with ROWS instead of the number of rows."""
    if isinstance(tensor, Const):
        return tensor.value.shape
    if isinstance(tensor, Dims):
        return (len(tensor.shape),)
    if isinstance(tensor, Stack):
        raise Unsupported(NOT_FIRST)
    return (ROWS, *tensor.inner)


NOT_FIRST = "its rows are not the first axis"
