"""Operators of domain ai.onnx that move numbers about, and ArrayFeatureExtractor."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np

from sqlml.config import MAX_ROW_VALUES
from sqlml.errors import ArtifactError
from sqlml.importers.onnx.checks import checked
from sqlml.importers.onnx.items import (
    Call,
    Choice,
    Const,
    Dims,
    Item,
    Rows,
    Texts,
    Turned,
    moved,
    shape_of,
)
from sqlml.importers.onnx.ordered_sums import constant_rows
from sqlml.importers.onnx.ranges import whole_range
from sqlml.ir.builder import Value
from sqlml.types import INTEGERS, ROWS, Array

Function = Callable[[Call], Item]


def _constant(call: Call) -> Item:
    for name in ("value", "value_float", "value_int", "value_floats", "value_ints"):
        value = call.attr(name)
        if value is not None:
            array = np.asarray(value)
            return Const(array.astype(np.float32) if name == "value_float" else array)
    texts = [call.text("value_string", "")] if "value_string" in call.node.attrs else None
    texts = call.texts("value_strings") if texts is None else texts
    made = np.empty(len(texts), object)
    made[:] = texts
    return Const(made)


def _constant_of_shape(call: Call) -> Item:
    value = np.asarray(call.attr("value", np.zeros(1, np.float32))).ravel()
    if value.size != 1:
        raise ArtifactError("ConstantOfShape: its value is not one number")
    shape = call.item(0)
    if isinstance(shape, Dims):
        if shape.shape[:1] != (ROWS,):
            raise call.unknown("its shape has the rows elsewhere")
        return Const(np.full((1, *shape.shape[1:]), value[0], value.dtype))
    dims = call.ints(0)
    if any(d < 0 for d in dims) or math.prod(dims) > MAX_ROW_VALUES:
        raise ArtifactError(f"ConstantOfShape makes {dims}")
    return Const(np.full(dims, value[0], value.dtype))


def _shape(call: Call) -> Item:
    shape = shape_of(call.item(0))
    cut = shape[slice(call.attr("start"), call.attr("end"))]
    if ROWS not in cut:
        return Const(np.array(cut, np.int64))
    return Dims(cut)


def _reshape(call: Call) -> Item:
    item = call.item(0)
    if call.opset < 5 and call.optional(1) is None:
        wanted: list[int] = [int(d) for d in call.vector("shape", "int64")]
    else:
        shape = call.item(1)
        wanted = list(shape.shape) if isinstance(shape, Dims) else call.ints(1)
    old = shape_of(item)
    if isinstance(item, Dims | Turned):
        raise call.unknown("it reshapes a shape, or rows and columns together")
    if 0 in wanted and call.integer("allowzero", 0):
        raise call.unknown("it makes an empty shape")
    wanted = [(old[i] if i < len(old) else 0) if d == 0 else d for i, d in enumerate(wanted)]
    if isinstance(item, Const):
        return Const(item.value.reshape(wanted))
    width = math.prod(item.inner)
    rest = wanted[1:]
    if not wanted or wanted[0] not in (ROWS, call.fixed):
        raise call.unknown("it does not keep the rows")
    if -1 in rest:  # the rows were written 0, so -1 stands for what is left
        known = math.prod(d for d in rest if d != -1)
        if rest.count(-1) > 1 or not known or width % known:
            raise call.unknown("it does not keep the rows")
        rest = [width // known if d == -1 else d for d in rest]
    if math.prod(rest) != width or any(d < 0 for d in rest):
        raise call.unknown("it mixes rows")
    return moved(call, item, lambda grid: grid.reshape(1, *rest))


def _axes(call: Call, rank: int) -> tuple[int, ...] | None:
    given: Any = call.attr("axes")
    if given is None and call.optional(1) is not None:
        given = call.ints(1)
    if given is None:
        return None
    return tuple(int(a) + rank if a < 0 else int(a) for a in given)


def _squeeze(call: Call) -> Item:
    item = call.item(0)
    axes = _axes(call, len(shape_of(item)))
    if axes is None:
        if not isinstance(item, Const):
            raise call.unknown("it may drop the rows")
        return Const(np.squeeze(item.value))
    if not isinstance(item, Const) and 0 in axes:
        raise call.unknown("it drops the rows")
    return moved(call, item, lambda grid: np.squeeze(grid, axes))


def _unsqueeze(call: Call) -> Item:
    item = call.item(0)
    given = call.attr("axes")
    count = len(call.ints(1)) if given is None else len(given)
    axes = _axes(call, len(shape_of(item)) + count)
    if axes is None or (not isinstance(item, Const) and 0 in axes):
        raise call.unknown("it puts an axis before the rows")
    return moved(call, item, lambda grid: np.expand_dims(grid, axes))


def _flatten(call: Call) -> Item:
    item = call.item(0)
    if call.integer("axis", 1) != 1:
        raise call.unknown("it mixes rows")
    return moved(call, item, lambda grid: grid.reshape(grid.shape[0], -1))


def _transpose(call: Call) -> Item:
    item = call.item(0)
    order = [int(p) for p in call.vector("perm", "int64")]
    if isinstance(item, Const):
        return Const(np.transpose(item.value, order or None))
    rank = len(shape_of(item))
    if order == [1, 0, 2] and isinstance(item, Turned):
        return item.rows
    if order == [1, 0, 2] and rank == 3:
        return Turned(call.rows(0))
    if not order or order[0] != 0 or sorted(order) != list(range(rank)):
        raise call.unknown("it turns rows into columns")
    return moved(call, item, lambda grid: np.transpose(grid, order))


def _gather(call: Call) -> Item:
    item, indices = call.item(0), call.item(1)
    axis = call.integer("axis", 0)
    if isinstance(item, Const) and not isinstance(indices, Const):
        if axis not in (0, -item.value.ndim):
            raise call.unknown("it looks up columns of a matrix")
        return looked_up(call, item.value, indices)
    if isinstance(item, Dims):
        return _dims_gather(call, item)
    places = call.const(1)
    if places.dtype.kind not in "iu":
        raise ArtifactError("Gather: its indices are no whole numbers")
    rank = len(shape_of(item))
    axis = axis + rank if axis < 0 else axis
    if not 0 <= axis < rank or (axis == 0 and not isinstance(item, Const)):
        raise call.unknown("it chooses rows")
    return moved(call, item, lambda grid: np.take(grid, places, axis))


def _dims_gather(call: Call, item: Dims) -> Item:
    chosen = [item.shape[i] for i in call.ints(1)]
    if ROWS in chosen:
        raise call.unknown("it computes with the number of rows")
    return Const(np.array(chosen, np.int64).reshape(call.const(1).shape))


def looked_up(call: Call, table: Array, indices: Item) -> Item:
    """Entries of a constant (k, ..) at computed places; one a row may be a label."""
    if isinstance(indices, Choice):
        indices = call.rows(1)
    if not isinstance(indices, Rows) or indices.dtype not in INTEGERS:
        raise call.unknown("its indices are no whole numbers of rows")
    check = checked(call, table, indices)
    index = _inside(call, call.cast(indices.value, "int64"), len(table))
    if check is not None:
        zeros = call.op("take", call.builder.constant(table), index)
        return Rows(zeros, indices.inner, check)
    if table.ndim == 1 and math.prod(indices.inner) == 1:
        return Choice(index, table, indices.inner)
    if table.dtype == object:
        raise call.unknown("it looks up several strings a row")
    entry = table.shape[1:]
    width = math.prod(indices.inner) * math.prod(entry)
    if not 0 < width <= MAX_ROW_VALUES:
        raise call.unknown(f"it looks up {width} numbers a row")
    found = call.op("take", call.builder.constant(table), index)
    if entry:
        found = call.op("reshape", found, shape=(width,))
    return Rows(found, (*indices.inner, *entry))


def _gather_elements(call: Call) -> Item:
    x, places = call.rows(0), call.rows(1)
    if call.integer("axis", 0) not in (1, -1) or len(x.inner) != 1 or len(places.inner) != 1:
        raise call.unknown("it does not choose among columns")
    if places.dtype not in INTEGERS:
        raise ArtifactError("GatherElements: its indices are no whole numbers")
    index = _inside(call, call.cast(places.value, "int64"), x.inner[0])
    return Rows(call.op("gather", x.value, index), places.inner)


def _inside(call: Call, index: Value, size: int) -> Value:
    """Places from the end counted from the start; those outside the table are refused."""
    known = whole_range(call.builder, index)
    if known is not None and known[0].min() >= 0 and known[1].max() < size:
        return index
    zero, length = call.scalar(0, "int64"), call.scalar(size, "int64")
    turned = call.op("add", index, length)
    index = call.op("where", call.op("lt", index, zero), turned, index)
    outside = call.op("or", call.op("lt", index, zero), call.op("ge", index, length))
    index = call.op("where", outside, call.scalar(-1, "int64"), index)
    name = call.node.name or call.node.op
    return call.op("require_known", index, feature=name, step="the ONNX graph")


def _array_feature_extractor(call: Call) -> Item:
    item, chosen = call.item(0), call.item(1)
    if isinstance(item, Const):
        if not isinstance(chosen, Const):
            return looked_up(call, item.value.ravel(), chosen)
        return Const(np.atleast_2d(item.value)[..., call.const(1).ravel().astype(np.int64)])
    places = np.array(call.ints(1), np.int64)
    if not shape_of(item)[1:] and not isinstance(item, Dims):
        raise call.unknown("it chooses rows")
    return moved(call, item, lambda grid: np.take(grid, places, -1))


def _slice(call: Call) -> Item:
    item = call.item(0)
    rank = len(shape_of(item))
    if call.opset < 10:
        starts, ends = ([int(v) for v in call.vector(n, "int64")] for n in ("starts", "ends"))
        axes = [int(v) for v in call.vector("axes", "int64")] or list(range(len(starts)))
        steps = [1] * len(starts)
    else:
        starts, ends = call.ints(1), call.ints(2)
        axes = call.ints(3) if call.optional(3) is not None else list(range(len(starts)))
        steps = call.ints(4) if call.optional(4) is not None else [1] * len(starts)
    if not len(starts) == len(ends) == len(axes) == len(steps) or 0 in steps:
        raise ArtifactError("Slice: its starts, ends, axes and steps do not fit")
    if isinstance(item, Dims):
        raise call.unknown("it cuts a shape")
    cut = [slice(None)] * rank
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        axis = axis + rank if axis < 0 else axis
        if not 0 <= axis < rank:
            raise ArtifactError("Slice: no such axis")
        if axis == 0 and not isinstance(item, Const):
            raise call.unknown("it chooses rows")
        stop = None if step < 0 and end < -(1 << 40) else end
        cut[axis] = slice(start, stop, step)
    return moved(call, item, lambda grid: grid[tuple(cut)])


def _concat(call: Call) -> Item:
    items = [call.item(i) for i in range(len(call.inputs))]
    axis = call.integer("axis", 1)
    if all(isinstance(x, Const) for x in items):
        return Const(np.concatenate([call.const(i) for i in range(len(items))], axis))
    if any(isinstance(x, Dims) for x in items):
        return _dims_concat(call, items)
    like = next(x for x in items if not isinstance(x, Const))
    rank = len(shape_of(like))
    axis = axis + rank if axis < 0 else axis
    if axis <= 0 or any(len(shape_of(x)) != rank for x in items):
        raise call.unknown("it puts rows below each other")
    grids, start = [], 0
    for x in items:
        inner = shape_of(x)[1:]
        count = math.prod(inner)
        grids.append(np.arange(start, start + count).reshape(1, *inner))
        start += count
    grid = np.concatenate(grids, axis)
    texts = [x for x in items if isinstance(x, Texts)]
    if texts:
        if len(texts) < len(items):
            raise call.unknown("it joins strings and numbers")
        columns = [c for x in texts for c in x.columns]
        return Texts(tuple(columns[p] for p in grid.ravel()), grid.shape[1:])
    values = [_as_rows(call, i, like) for i in range(len(items))]
    joined = values[0] if len(values) == 1 else call.op("concat", *values)
    return moved(call, Rows(joined, (start,)), lambda flat: flat[0][grid])


def _as_rows(call: Call, i: int, like: Item) -> Value:
    item = call.item(i)
    if not isinstance(item, Const):
        return call.rows(i).value
    if item.value.shape[:1] != (1,) or item.value.dtype == object:
        raise call.unknown("it joins a constant that has rows of its own")
    if not isinstance(like, Rows):
        raise call.unknown("it joins a constant and labels")
    return constant_rows(call.builder, like.value, item.value.ravel().astype(like.dtype))


def _dims_concat(call: Call, items: list[Item]) -> Item:
    dims: list[int] = []
    for i, item in enumerate(items):
        dims += item.shape if isinstance(item, Dims) else call.ints(i)
    return Dims(tuple(dims))


def _expand(call: Call) -> Item:
    item, shape = call.item(0), call.item(1)
    if isinstance(item, Const) and isinstance(shape, Dims):
        return _constant_rows(call, item.value, shape)
    if isinstance(item, Const) or isinstance(shape, Dims):
        raise call.unknown("it makes rows")
    dims = call.ints(1)
    if math.prod(dims) > MAX_ROW_VALUES or len(dims) != len(shape_of(item)):
        raise call.unknown("it makes rows")
    if dims[0] not in (1, call.fixed):
        raise call.unknown("it makes rows")
    dims[0] = 1

    def wider(grid: Array) -> Array:
        return np.broadcast_to(grid, np.broadcast_shapes(grid.shape, tuple(dims)))

    return moved(call, item, wider)


def _constant_rows(call: Call, value: Array, shape: Dims) -> Item:
    """The same numbers in every row: a constant of one row."""
    count, *inner = shape.shape
    lasting = value.reshape((1,) * (len(shape.shape) - value.ndim) + value.shape)
    if count != ROWS or ROWS in inner or lasting.shape[:1] != (1,):
        raise call.unknown("its shape has the rows elsewhere")
    if math.prod(inner) > MAX_ROW_VALUES:
        raise ArtifactError(f"Expand makes {math.prod(inner)} numbers a row")
    return Const(np.broadcast_to(lasting, (1, *inner)))


def split(call: Call) -> tuple[Item, ...]:
    """Split along the columns: one item an output."""
    item = call.item(0)
    rank = len(shape_of(item))
    axis = call.integer("axis", 0)
    axis = axis + rank if axis < 0 else axis
    if isinstance(item, Const | Dims | Turned) or not 0 < axis < rank:
        raise call.unknown("it parts the rows")
    size = item.inner[axis - 1]
    given = [int(v) for v in call.vector("split", "int64")]
    if not given and call.optional(1) is not None:
        given = call.ints(1)
    if not given:
        count = len(call.node.outputs)
        step = -(-size // count)
        given = [min(step, size - step * i) for i in range(count)]
    if len(given) != len(call.node.outputs) or sum(given) != size or min(given) < 0:
        raise ArtifactError("Split: its parts do not fit")
    starts = np.cumsum([0, *given])
    parts = [np.arange(s, s + n) for s, n in zip(starts, given, strict=False)]
    return tuple(moved(call, item, partial(np.take, indices=part, axis=axis)) for part in parts)


FUNCTIONS: Mapping[str, Function] = MappingProxyType(
    {
        "Constant": _constant,
        "ConstantOfShape": _constant_of_shape,
        "Shape": _shape,
        "Reshape": _reshape,
        "Squeeze": _squeeze,
        "Unsqueeze": _unsqueeze,
        "Flatten": _flatten,
        "Transpose": _transpose,
        "Gather": _gather,
        "GatherElements": _gather_elements,
        "ArrayFeatureExtractor": _array_feature_extractor,
        "Slice": _slice,
        "Concat": _concat,
        "Expand": _expand,
    }
)
"""Operators that only move numbers, strings or labels."""
