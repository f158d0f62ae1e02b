"""Tensors whose first axis is the rows, for graphs of ONNX and torch.

The IR stores a tensor of any rank as (n, k). `inner` is the shape without the rows, and k is the
product of `inner`. A layout operator becomes one `select`: a numpy function is applied to a grid of
column indices.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np

from sqlml.ir.builder import Builder, Value
from sqlml.limits import MAX_ROW_VALUES
from sqlml.types import ROWS, Array, DType, dtype_of


class Unsupported(Exception):
    """Raised for an operator of a graph, or a use of an operator, that the IR does not support."""


@dataclass(frozen=True, slots=True, eq=False)
class RowTensor:
    """A tensor whose shape is (n, *inner) in the graph and (n, k) in the IR."""

    value: Value
    inner: tuple[int, ...]

    @property
    def dtype(self) -> DType:
        return self.value.type.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return (ROWS, *self.inner)

    @property
    def rank(self) -> int:
        return len(self.inner) + 1

    @property
    def grid(self) -> Array:
        """The column index of each element, int64 of shape `inner`."""
        return np.arange(math.prod(self.inner)).reshape(self.inner)


def map_columns(inner: tuple[int, ...], transform: Callable[[Array], Array]) -> Array:
    """Apply the numpy function `transform` to a grid of column indices, (1, *inner).

    Return the transformed grid without the first axis. Raise Unsupported if `transform` does not
    keep that axis, and ValueError if the result has more than `MAX_ROW_VALUES` columns.
    """
    grid = np.asarray(transform(np.arange(math.prod(inner)).reshape(1, *inner)))
    if grid.ndim < 1 or grid.shape[0] != 1:
        raise Unsupported("it mixes rows, or counts them")
    if grid.size > MAX_ROW_VALUES:
        raise ValueError(f"it makes {grid.size} numbers per row")
    return np.asarray(grid[0])


def pick_columns(builder: Builder, x: RowTensor, indices: Array) -> RowTensor:
    flat = indices.ravel().astype(np.int64)
    is_identity = np.array_equal(flat, np.arange(math.prod(x.inner)))
    value = x.value if is_identity else builder.op("select", x.value, indices=flat)
    return RowTensor(value, indices.shape)


def apply_to_columns(
    builder: Builder, x: RowTensor, transform: Callable[[Array], Array]
) -> RowTensor:
    return pick_columns(builder, x, map_columns(x.inner, transform))


def fill_shape(shape: Sequence[int], width: int) -> tuple[int, ...]:
    """Replace -1 in `shape` with the length for which the shape has `width` elements."""
    stated_width = math.prod(length for length in shape if length != -1)
    missing_length = width // stated_width if stated_width > 0 else 0
    inner = tuple(missing_length if length == -1 else length for length in shape)
    if shape.count(-1) > 1 or math.prod(inner) != width or any(length < 0 for length in inner):
        raise Unsupported("it does not keep the rows")
    return inner


def concatenate_tensors(builder: Builder, tensors: Sequence[RowTensor], axis: int) -> RowTensor:
    """Concatenate tensors of the same rank and dtype along `axis`, which is not the rows."""
    starts = np.cumsum([0, *(math.prod(x.inner) for x in tensors)]).tolist()
    grids = [x.grid + start for x, start in zip(tensors, starts, strict=False)]
    values = [x.value for x in tensors]
    value = builder.op("concat", *values) if len(values) > 1 else values[0]
    return pick_columns(builder, RowTensor(value, (starts[-1],)), np.concatenate(grids, axis - 1))


def broadcast_operands(
    builder: Builder, operands: Sequence[RowTensor | Array]
) -> tuple[list[Value], tuple[int, ...]]:
    ranks = {x.rank for x in operands if isinstance(x, RowTensor)}
    if len(ranks) != 1:
        raise Unsupported(
            "it mixes values of different rank, and so rows; or none of its inputs has rows"
        )
    (rank,) = ranks
    shapes = [
        (1, *x.inner) if isinstance(x, RowTensor) else (1,) * (rank - x.ndim) + x.shape
        for x in operands
    ]
    if any(len(shape) > rank or shape[0] != 1 for shape in shapes):
        raise Unsupported("a constant has several rows")
    inner = np.broadcast_shapes(*shapes)[1:]
    if math.prod(inner) > MAX_ROW_VALUES:
        raise ValueError(f"it makes {math.prod(inner)} numbers per row")
    return [_broadcast(builder, x, inner) for x in operands], inner


def _broadcast(builder: Builder, x: RowTensor | Array, inner: tuple[int, ...]) -> Value:
    if isinstance(x, RowTensor):
        if math.prod(x.inner) == 1:
            return x.value
        return pick_columns(builder, x, np.broadcast_to(x.grid, inner)).value
    try:
        dtype_of(x)
    except TypeError:
        raise Unsupported(f"it computes with {x.dtype}") from None
    if x.dtype == object:
        raise Unsupported("it computes with strings")
    return builder.constant(x.ravel() if x.size == 1 else np.broadcast_to(x, (1, *inner)).ravel())


def reduce_axes(
    builder: Builder,
    x: RowTensor,
    axes: Collection[int],
    reduce: Callable[[Value, int], Value],
    *,
    keep: bool,
) -> RowTensor:
    """Reduce a tensor over `axes`, which do not include the rows.

    `reduce(value, axis)` reduces the last axis of a value, (n, reduced) or (n, kept, reduced). If
    `keep` is true, each reduced axis stays in the result with length 1.
    """
    kept_axes = [axis for axis in range(1, x.rank) if axis not in axes]
    lengths = tuple(x.shape[axis] for axis in kept_axes)
    order = [0, *kept_axes, *sorted(axes)]
    transposed = apply_to_columns(builder, x, lambda grid: grid.transpose(order)).value
    num_kept, num_reduced = math.prod(lengths), math.prod(x.shape[axis] for axis in axes)
    if not num_reduced:
        raise Unsupported("it reduces nothing")
    if num_kept == 1:
        reduced = reduce(transposed, 1)
    else:
        reduced = reduce(builder.op("reshape", transposed, shape=(num_kept, num_reduced)), 2)
        reduced = builder.op("reshape", reduced, shape=(num_kept,))
    if keep:
        lengths = tuple(1 if axis in axes else x.shape[axis] for axis in range(1, x.rank))
    return RowTensor(reduced, lengths)


def apply_linear(
    builder: Builder, x: RowTensor, weights: Array, bias: Array | None = None
) -> RowTensor:
    """Return x @ weights + bias, all in one float dtype."""
    if x.dtype not in ("float32", "float64") or weights.dtype.name != x.dtype:
        raise Unsupported(f"it multiplies {x.dtype} and {weights.dtype}")
    if x.rank != 2 or weights.ndim != 2:
        raise Unsupported("only the product of rows and one matrix is supported")
    weights = np.ascontiguousarray(weights)
    bias = np.zeros(weights.shape[1], weights.dtype) if bias is None else bias
    value = builder.op("linear", x.value, weights=weights, bias=bias.astype(weights.dtype))
    return RowTensor(value, (weights.shape[1],))
