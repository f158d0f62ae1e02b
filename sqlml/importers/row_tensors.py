"""Tensors whose first axis is the rows: how graphs of ONNX and torch move and combine them.

The IR computes with (n, k), whatever the rank in the graph: `inner` is the shape after the rows,
and k its product. Layout operators are numpy's own functions on a grid of column numbers, followed
by one `select`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np

from sqlml.ir.builder import Builder, Value
from sqlml.limits import MAX_ROW_VALUES
from sqlml.types import ROWS, Array, DType, dtype_of


class Uncovered(Exception):
    """An operator of a graph, or a use of one, that the IR does not cover; the message says why."""


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Numbers, shape (n, *inner) in the graph and (n, k) in the IR."""

    value: Value
    inner: tuple[int, ...]

    @property
    def dtype(self) -> DType:
        """The dtype of the numbers."""
        return self.value.type.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """The graph's shape."""
        return (ROWS, *self.inner)

    @property
    def rank(self) -> int:
        """The graph's number of axes."""
        return len(self.inner) + 1

    @property
    def grid(self) -> Array:
        """The column number of each place, int64 of shape `inner`."""
        return np.arange(math.prod(self.inner)).reshape(self.inner)


def places(inner: tuple[int, ...], change: Callable[[Array], Array]) -> Array:
    """Which columns numpy's `change` of a row's grid, shape (1, *inner), puts at which places.

    Raises:
        Uncovered: the change mixes rows, or counts them.
        ValueError: it makes too many numbers, or numpy refuses it.
    """
    grid = np.asarray(change(np.arange(math.prod(inner)).reshape(1, *inner)))
    if grid.ndim < 1 or grid.shape[0] != 1:
        raise Uncovered("it mixes rows, or counts them")
    if grid.size > MAX_ROW_VALUES:
        raise ValueError(f"it makes {grid.size} numbers per row")
    return np.asarray(grid[0])


def picked(b: Builder, x: Rows, chosen: Array) -> Rows:
    """The columns `chosen` of x, integers of the new inner shape."""
    flat = chosen.ravel().astype(np.int64)
    same = np.array_equal(flat, np.arange(math.prod(x.inner)))
    return Rows(x.value if same else b.op("select", x.value, indices=flat), chosen.shape)


def moved(b: Builder, x: Rows, change: Callable[[Array], Array]) -> Rows:
    """x after numpy's `change` of a row's grid, shape (1, *inner); raises as `places` does."""
    return picked(b, x, places(x.inner, change))


def filled_in(wanted: Sequence[int], width: int) -> tuple[int, ...]:
    """The inner shape `wanted` of `width` numbers per row; one length may be -1.

    Raises:
        Uncovered: rows would not stay rows.
    """
    known = math.prod(d for d in wanted if d != -1)
    rest = width // known if known > 0 else 0
    inner = tuple(rest if d == -1 else d for d in wanted)
    if wanted.count(-1) > 1 or math.prod(inner) != width or any(d < 0 for d in inner):
        raise Uncovered("it does not keep the rows")
    return inner


def joined(b: Builder, parts: Sequence[Rows], axis: int) -> Rows:
    """Tensors of one rank and dtype side by side along axis `axis` > 0 of the graph."""
    starts = np.cumsum([0, *(math.prod(p.inner) for p in parts)]).tolist()
    grids = [p.grid + start for p, start in zip(parts, starts, strict=False)]
    value = b.op("concat", *[p.value for p in parts]) if len(parts) > 1 else parts[0].value
    return picked(b, Rows(value, (starts[-1],)), np.concatenate(grids, axis - 1))


def aligned(b: Builder, operands: Sequence[Rows | Array]) -> tuple[list[Value], tuple[int, ...]]:
    """Operands of an elementwise operator, brought to one inner shape; and that shape.

    Raises:
        Uncovered: none has rows, ranks differ, or a constant has rows of its own.
        ValueError: shapes do not fit, or the result is too wide.
    """
    ranks = {x.rank for x in operands if isinstance(x, Rows)}
    if len(ranks) != 1:
        raise Uncovered(
            "it mixes values of different rank, and so rows; or none of its inputs has rows"
        )
    (rank,) = ranks
    shapes = [
        (1, *x.inner) if isinstance(x, Rows) else (1,) * (rank - x.ndim) + x.shape for x in operands
    ]
    if any(len(shape) > rank or shape[0] != 1 for shape in shapes):
        raise Uncovered("a constant has rows of its own")
    inner = np.broadcast_shapes(*shapes)[1:]
    if math.prod(inner) > MAX_ROW_VALUES:
        raise ValueError(f"it makes {math.prod(inner)} numbers per row")
    return [_spread(b, x, inner) for x in operands], inner


def _spread(b: Builder, x: Rows | Array, inner: tuple[int, ...]) -> Value:
    """x broadcast to `inner`; the IR broadcasts one column by itself."""
    if isinstance(x, Rows):
        one = math.prod(x.inner) == 1
        return x.value if one else picked(b, x, np.broadcast_to(x.grid, inner)).value
    try:
        dtype_of(x)
    except TypeError:
        raise Uncovered(f"it computes with {x.dtype}") from None
    if x.dtype == object:
        raise Uncovered("it computes with strings")
    return b.constant(x.ravel() if x.size == 1 else np.broadcast_to(x, (1, *inner)).ravel())


def reduced(
    b: Builder,
    x: Rows,
    axes: Collection[int],
    make: Callable[[Value, int], Value],
    *,
    keep: bool,
) -> Rows:
    """A reduction over axes of the graph, none of which is the rows'.

    Args:
        make: from a value and its last axis, shape (n, reduced) or (n, rest, reduced), to one that
            has length 1 there.
        keep: whether the axes stay, with length 1.

    Raises:
        Uncovered: there is nothing to reduce.
    """
    rest = [a for a in range(1, x.rank) if a not in axes]
    lengths = tuple(x.shape[a] for a in rest)
    lined = moved(b, x, lambda grid: grid.transpose([0, *rest, *sorted(axes)])).value
    count, width = math.prod(lengths), math.prod(x.shape[a] for a in axes)
    if not width:
        raise Uncovered("it reduces nothing")
    if count == 1:
        result = make(lined, 1)
    else:
        result = make(b.op("reshape", lined, shape=(count, width)), 2)
        result = b.op("reshape", result, shape=(count,))
    kept = tuple(1 if a in axes else x.shape[a] for a in range(1, x.rank))
    return Rows(result, kept if keep else lengths)


def product(b: Builder, x: Rows, weights: Array, bias: Array | None = None) -> Rows:
    """x (n, k) @ weights (k, w) + bias (w,), all of one dtype.

    Raises:
        Uncovered: other shapes, differing dtypes, or numbers other than float32 and float64.
    """
    if x.dtype not in ("float32", "float64") or weights.dtype.name != x.dtype:
        raise Uncovered(f"it multiplies {x.dtype} and {weights.dtype}")
    if x.rank != 2 or weights.ndim != 2:
        raise Uncovered("it multiplies more than rows and one matrix")
    weights = np.ascontiguousarray(weights)
    bias = np.zeros(weights.shape[1], weights.dtype) if bias is None else bias
    value = b.op("linear", x.value, weights=weights, bias=bias.astype(weights.dtype))
    return Rows(value, (weights.shape[1],))
