"""Operators of ai.onnx that rearrange or look up values, and ArrayFeatureExtractor."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain

import numpy as np

from sqlml.importers.onnx.graph_items import (
    NOT_FIRST,
    Call,
    Choice,
    Const,
    Dims,
    Item,
    Stack,
    Texts,
    apply_to_grid,
    find_shape,
    to_strings,
)
from sqlml.importers.row_tensors import (
    RowTensor,
    Unsupported,
    apply_to_columns,
    concatenate_tensors,
    fill_shape,
)
from sqlml.ir.builder import Builder, Value
from sqlml.limits import MAX_ROW_VALUES
from sqlml.types import INTEGERS, ROWS, Array

Function = Callable[[Call], Item]


def _convert_constant(call: Call) -> Item:
    for name in ("value", "value_float", "value_int", "value_floats", "value_ints"):
        value = call.attr(name)
        if value is not None:
            array = np.asarray(value)
            return Const(array.astype(np.float32) if name == "value_float" else array)
    if "value_string" in call.node.attrs:
        return Const(to_strings([call.text("value_string", "")]))
    return Const(to_strings(call.texts("value_strings")))


def _convert_constant_of_shape(call: Call) -> Item:
    value = np.asarray(call.attr("value", np.zeros(1, np.float32))).ravel()
    if value.size != 1:
        raise call.error("its value is not a single number")
    shape = call.item(0)
    if isinstance(shape, Dims):
        if shape.shape[:1] != (ROWS,):
            raise Unsupported("its shape does not begin with the rows")
        return Const(np.full((1, *shape.shape[1:]), value[0], value.dtype))
    dims = call.ints(0)
    if any(size < 0 for size in dims) or math.prod(dims) > MAX_ROW_VALUES:
        raise call.error(f"it makes a constant of shape {dims}")
    return Const(np.full(dims, value[0], value.dtype))


def _convert_shape(call: Call) -> Item:
    dims = find_shape(call.item(0))[slice(call.attr("start"), call.attr("end"))]
    return Dims(dims) if ROWS in dims else Const(np.array(dims, np.int64))


def _convert_reshape(call: Call) -> Item:
    tensor = call.item(0)
    if call.opset < 5 and call.optional_item(1) is None:
        sizes: list[int] = call.vector("shape", "int64").tolist()
    else:
        shape = call.item(1)
        sizes = list(shape.shape) if isinstance(shape, Dims) else call.ints(1)
    if isinstance(tensor, Dims):
        raise Unsupported("it reshapes a shape")
    if isinstance(tensor, Stack):
        return _reshape_stack(tensor, sizes)
    if 0 in sizes and call.integer("allowzero", 0):
        raise Unsupported("it makes an empty shape")
    padded_shape = [*find_shape(tensor), *[0] * len(sizes)]
    sizes = [old if new == 0 else new for old, new in zip(padded_shape, sizes, strict=False)]
    if isinstance(tensor, Const):
        return Const(tensor.value.reshape(sizes))
    outer_rank = sizes.index(ROWS) if ROWS in sizes else 0
    is_stack = outer_rank > 0 and sizes[:outer_rank] == [1] * outer_rank and call.fixed_rows != 1
    if isinstance(tensor, RowTensor) and is_stack:
        inner = (*sizes[:outer_rank], *sizes[outer_rank + 1 :])
        return Stack(
            RowTensor(tensor.value, fill_shape(inner, math.prod(tensor.inner))), outer_rank
        )
    if not sizes or sizes[0] not in (ROWS, call.fixed_rows):
        raise Unsupported("it does not keep the rows")
    # A -1 after the row axis stands for the remaining size.
    inner = fill_shape(sizes[1:], math.prod(tensor.inner))
    return apply_to_grid(call, tensor, lambda grid: grid.reshape(1, *inner))


def _reshape_stack(stack: Stack, sizes: list[int]) -> Item:
    """Separate the rows of appended tables, (t * n, *inner), from the tables: (t, n, *inner)."""
    tables, *inner = stack.rows.inner
    if not stack.is_joined or sizes[:2] != [tables, ROWS] or sizes[2:] not in (inner, inner[1:]):
        raise Unsupported(NOT_FIRST)
    if math.prod(sizes[2:]) != math.prod(inner):
        raise Unsupported(NOT_FIRST)
    return Stack(RowTensor(stack.rows.value, (tables, *sizes[2:])), 1)


def _convert_squeeze(call: Call) -> Item:
    tensor = call.item(0)
    axes = call.axes(len(find_shape(tensor)))
    if axes is None:
        if not isinstance(tensor, Const):
            raise Unsupported("it may drop the rows")
        return Const(np.squeeze(tensor.value))
    if not isinstance(tensor, Const) and 0 in axes:
        raise Unsupported("it drops the rows")
    return apply_to_grid(call, tensor, lambda grid: np.squeeze(grid, tuple(axes)))


def _convert_unsqueeze(call: Call) -> Item:
    tensor = call.item(0)
    axes_attribute = call.attr("axes")
    num_axes = len(call.ints(1)) if axes_attribute is None else len(axes_attribute)
    axes = call.axes(len(find_shape(tensor)) + num_axes)
    if axes is None or (not isinstance(tensor, Const) and 0 in axes):
        raise Unsupported("it puts an axis before the rows")
    return apply_to_grid(call, tensor, lambda grid: np.expand_dims(grid, axes))


def _convert_flatten(call: Call) -> Item:
    tensor = call.item(0)
    if call.integer("axis", 1) != 1:
        raise Unsupported("it mixes rows")
    return apply_to_grid(call, tensor, lambda grid: grid.reshape(grid.shape[0], -1))


def _convert_transpose(call: Call) -> Item:
    tensor = call.item(0)
    order = call.vector("perm", "int64").tolist()
    if isinstance(tensor, Const):
        return Const(np.transpose(tensor.value, order or None))
    if isinstance(tensor, RowTensor | Stack):
        return _transpose_rows(call, tensor, order)
    rank = len(find_shape(tensor))
    if not order or order[0] != 0 or sorted(order) != list(range(rank)):
        raise Unsupported("it turns rows into columns")
    return apply_to_grid(call, tensor, lambda grid: np.transpose(grid, order))


def _transpose_rows(call: Call, tensor: RowTensor | Stack, order: list[int]) -> Item:
    stack = Stack(tensor, 0) if isinstance(tensor, RowTensor) else tensor
    rank, row_axis = stack.rows.rank, stack.outer_rank
    order = order or list(range(rank))[::-1]
    if stack.is_joined or sorted(order) != list(range(rank)):
        raise Unsupported("it turns rows into columns")
    # The grid has the rows as its first axis.
    grid_axes = [0 if axis == row_axis else axis + (axis < row_axis) for axis in order]
    inner_order = [axis for axis in grid_axes if axis]
    rows = apply_to_columns(call.builder, stack.rows, lambda x: x.transpose([0, *inner_order]))
    outer_rank = grid_axes.index(0)
    return Stack(rows, outer_rank) if outer_rank else rows


def _convert_gather(call: Call) -> Item:
    tensor, indices = call.item(0), call.item(1)
    rank = len(find_shape(tensor))
    axis = call.axis(0, rank)
    if isinstance(tensor, Const) and not isinstance(indices, Const):
        if axis != 0:
            raise Unsupported("it looks up columns of a matrix")
        return look_up(call, tensor.value, indices)
    if isinstance(tensor, Dims):
        dims = [tensor.shape[i] for i in call.ints(1)]
        if ROWS in dims:
            raise Unsupported("it computes with the number of rows")
        return Const(np.array(dims, np.int64).reshape(call.const(1).shape))
    positions = call.const(1)
    if positions.dtype.kind not in "iu":
        raise call.error("its indices are not integers")
    if not 0 <= axis < rank or (axis == 0 and not isinstance(tensor, Const)):
        raise Unsupported("it chooses rows")
    return apply_to_grid(call, tensor, lambda grid: np.take(grid, positions, axis))


def look_up(call: Call, table: Array, indices: Item) -> Item:
    """Look up entries of the constant `table` (k, ...) by indices that differ between rows.

    If each row gets a single number or string, return a Choice, which can become the label.
    """
    choice = to_choice(call.builder, indices)
    size = len(table)
    possible = np.zeros(0) if choice is None else choice.values
    if choice and possible.dtype.kind in "iu" and ((possible >= -size) & (possible < size)).all():
        index, table, inner = choice.index, table[choice.values], choice.inner
        margins = choice.margins
    else:
        margins = None
        if isinstance(indices, Choice):
            indices = call.rows(1)
        if not isinstance(indices, RowTensor) or indices.dtype not in INTEGERS:
            raise Unsupported("its indices are not integers per row")
        inner = indices.inner
        index = _normalize_index(call, call.cast(indices.value, "int64"), size)
    if table.ndim == 1 and math.prod(inner) == 1:
        return Choice(index, table, inner, margins)
    if table.dtype == object:
        raise Unsupported("it looks up several strings per row")
    entry_shape = table.shape[1:]
    width = math.prod(inner) * math.prod(entry_shape)
    if not 0 < width <= MAX_ROW_VALUES:
        raise Unsupported(f"it looks up {width} numbers per row")
    entries = call.op("take", call.builder.constant(table), index)
    if entry_shape:
        entries = call.op("reshape", entries, shape=(width,))
    return RowTensor(entries, (*inner, *entry_shape))


def to_choice(builder: Builder, tensor: Item) -> Choice | None:
    """Convert `tensor` to a Choice, or return None if the possible values are unknown.

    The possible values are known for a Choice, and for a single argmax or comparison per row.
    """
    if isinstance(tensor, Choice):
        return tensor
    if not isinstance(tensor, RowTensor) or math.prod(tensor.inner) != 1:
        return None
    max_value = find_max_value(builder, tensor.value)
    if not max_value < MAX_ROW_VALUES:
        return None
    values = np.arange(int(max_value) + 1).astype(tensor.dtype)
    return Choice(builder.cast(tensor.value, "int64"), values, tensor.inner)


def _convert_gather_elements(call: Call) -> Item:
    x, indices = call.rows(0), call.rows(1)
    if call.integer("axis", 0) not in (1, -1) or len(x.inner) != 1 or len(indices.inner) != 1:
        raise Unsupported("it does not choose among columns")
    if indices.dtype not in INTEGERS:
        raise call.error("its indices are not integers")
    index = _normalize_index(call, call.cast(indices.value, "int64"), x.inner[0])
    return RowTensor(call.op("gather", x.value, index), indices.inner)


def _normalize_index(call: Call, index: Value, size: int) -> Value:
    """Convert negative indices, which count from the end; scoring rejects indices beyond `size`."""
    if find_max_value(call.builder, index) < size:
        return index
    zero, size_value = call.scalar(0, "int64"), call.scalar(size, "int64")
    from_end = call.op("add", index, size_value)
    index = call.op("where", call.op("lt", index, zero), from_end, index)
    is_outside = call.op("or", call.op("lt", index, zero), call.op("ge", index, size_value))
    index = call.op("where", is_outside, call.scalar(-1, "int64"), index)
    name = call.node.name or call.node.op
    return call.op("require_known", index, feature=name, step="the ONNX graph")


def find_max_value(builder: Builder, index: Value) -> float:
    """Return the largest value of an argmax, a comparison or a search, or else infinity."""
    node, first_column = builder.node(index), 0
    while node.op in ("cast", "reshape", "select") and index.type.dtype in _EXACT_DTYPES:
        first_column = min(node.attrs["indices"]) if node.op == "select" else first_column
        index = builder.value(node.inputs[0])
        node = builder.node(index)
    if node.op == "nearest":  # Indices follow the distances.
        return len(node.attrs["points"]) - 1 if first_column >= node.attrs["k"] else math.inf
    if node.op == "argmax":
        return builder.value(node.inputs[0]).type.shape[node.attrs["axis"]] - 1
    return 1 if index.type.dtype == "bool" else math.inf


_EXACT_DTYPES = frozenset({"int32", "int64", "float32", "float64"})
"""Dtypes to which an index can be cast without rounding."""


def _convert_array_feature_extractor(call: Call) -> Item:
    tensor, indices = call.item(0), call.item(1)
    if isinstance(tensor, Const):
        if not isinstance(indices, Const):
            return look_up(call, tensor.value.ravel(), indices)
        return Const(np.atleast_2d(tensor.value)[..., call.const(1).ravel().astype(np.int64)])
    positions = np.array(call.ints(1), np.int64)
    if not find_shape(tensor)[1:] and not isinstance(tensor, Dims):
        raise Unsupported("it chooses rows")
    return apply_to_grid(call, tensor, lambda grid: np.take(grid, positions, -1))


def _convert_slice(call: Call) -> Item:
    tensor = call.item(0)
    rank = len(find_shape(tensor))
    if call.opset < 10:
        names = ("starts", "ends", "axes")
        starts, ends, axes = (call.vector(name, "int64").tolist() for name in names)
        axes, steps = axes or list(range(len(starts))), [1] * len(starts)
    else:
        starts, ends = call.ints(1), call.ints(2)
        axes = list(range(len(starts))) if call.optional_item(3) is None else call.ints(3)
        steps = [1] * len(starts) if call.optional_item(4) is None else call.ints(4)
    if not len(starts) == len(ends) == len(axes) == len(steps) or 0 in steps:
        raise call.error("its starts, ends, axes and steps do not match")
    if isinstance(tensor, Dims):
        raise Unsupported("it slices a shape")
    slices = [slice(None)] * rank
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        axis = axis + rank if axis < 0 else axis
        if not 0 <= axis < rank:
            raise call.error("it slices an axis that does not exist")
        if axis == 0 and not isinstance(tensor, Const):
            raise Unsupported("it chooses rows")
        stop = None if step < 0 and end < -(1 << 40) else end
        slices[axis] = slice(start, stop, step)
    return apply_to_grid(call, tensor, lambda grid: grid[tuple(slices)])


def _convert_concat(call: Call) -> Item:
    tensors = [call.item(i) for i in range(len(call.inputs))]
    if all(isinstance(tensor, Const) for tensor in tensors):
        values = [call.const(i) for i in range(len(tensors))]
        return Const(np.concatenate(values, call.integer("axis", 1)))
    if any(isinstance(tensor, Dims) for tensor in tensors):
        dims = [x.shape if isinstance(x, Dims) else call.ints(i) for i, x in enumerate(tensors)]
        return Dims(tuple(chain.from_iterable(dims)))
    first_tensor = next(tensor for tensor in tensors if not isinstance(tensor, Const))
    if any(isinstance(tensor, Stack) for tensor in tensors):
        return _concatenate_stacks(call, tensors)
    rank = len(find_shape(first_tensor))
    axis = call.axis(1, rank)
    if axis == 0 and all(isinstance(tensor, RowTensor) for tensor in tensors):
        return _append_tables(call, tensors)
    if axis <= 0 or any(len(find_shape(tensor)) != rank for tensor in tensors):
        raise Unsupported("it stacks rows")
    string_tensors = [tensor for tensor in tensors if isinstance(tensor, Texts)]
    if not string_tensors:
        row_tensors = [_to_rows(call, tensor, first_tensor) for tensor in tensors]
        return concatenate_tensors(call.builder, row_tensors, axis)
    if len(string_tensors) < len(tensors):
        raise Unsupported("it joins strings and numbers")
    grids = [np.array(tensor.columns, object).reshape(tensor.inner) for tensor in string_tensors]
    columns = np.concatenate(grids, axis - 1)
    return Texts(tuple(columns.ravel()), columns.shape)


def _append_tables(call: Call, tables: Sequence[Item]) -> Stack:
    """Append tables to each other, whose rows are those of the input."""
    rows = [RowTensor(x.value, (1, *x.inner)) for x in tables if isinstance(x, RowTensor)]
    if len({x.inner for x in rows}) > 1:
        raise Unsupported("it stacks tables of different shapes")
    return Stack(concatenate_tensors(call.builder, rows, 1), 1, is_joined=True)


def _concatenate_stacks(call: Call, tensors: Sequence[Item]) -> Stack:
    stacks = [tensor for tensor in tensors if isinstance(tensor, Stack) and not tensor.is_joined]
    layouts = {(stack.outer_rank, stack.rows.inner[1:]) for stack in stacks}
    if len(stacks) < len(tensors) or len(layouts) > 1 or call.integer("axis", 1) != 0:
        raise Unsupported(NOT_FIRST)
    rows = concatenate_tensors(call.builder, [stack.rows for stack in stacks], 1)
    return Stack(rows, stacks[0].outer_rank)


def _to_rows(call: Call, tensor: Item, like: Item) -> RowTensor:
    """Convert `tensor` to numbers per row; repeat a constant row for each row of `like`."""
    if not isinstance(tensor, Const):
        return call.numbers(tensor)
    if tensor.value.shape[:1] != (1,) or tensor.value.dtype == object:
        raise Unsupported("it joins a constant of several rows")
    if not isinstance(like, RowTensor):
        raise Unsupported("it joins a constant and labels")
    column = call.op("select", like.value, indices=np.zeros(1, np.int64))
    row = call.builder.constant(tensor.value.ravel().astype(like.dtype))
    # Both branches are the constant, because only the number of rows comes from `like`.
    value = call.op("where", call.op("eq", column, column), row, row)
    return RowTensor(value, tensor.value.shape[1:])


def _convert_expand(call: Call) -> Item:
    tensor, shape = call.item(0), call.item(1)
    if isinstance(tensor, Const) and isinstance(shape, Dims):
        return _expand_constant(call, tensor.value, shape)
    if isinstance(tensor, Const) or isinstance(shape, Dims):
        raise Unsupported("it makes rows")
    num_rows, *inner = call.ints(1) or [0]
    keeps_rows = num_rows in (1, call.fixed_rows) and 1 + len(inner) == len(find_shape(tensor))
    if not keeps_rows or math.prod((num_rows, *inner)) > MAX_ROW_VALUES:
        raise Unsupported("it makes rows")

    def widen(grid: Array) -> Array:
        return np.broadcast_to(grid, np.broadcast_shapes(grid.shape, (1, *inner)))

    return apply_to_grid(call, tensor, widen)


def _expand_constant(call: Call, value: Array, shape: Dims) -> Item:
    """Expand a constant to one row of `shape`; the first axis of `shape` must be the rows."""
    row_dim, *inner = shape.shape
    row = value.reshape((1,) * (len(shape.shape) - value.ndim) + value.shape)
    if row_dim != ROWS or ROWS in inner or row.shape[:1] != (1,):
        raise Unsupported("its shape does not begin with the rows")
    if math.prod(inner) > MAX_ROW_VALUES:
        raise call.error(f"it makes {math.prod(inner)} numbers per row")
    return Const(np.broadcast_to(row, (1, *inner)))


def convert_split(call: Call) -> tuple[Item, ...]:
    """Convert Split along a column axis; return an item for each output of the node."""
    tensor, num_outputs = call.item(0), len(call.node.outputs)
    if not num_outputs:
        raise call.error("it has no outputs")
    rank = len(find_shape(tensor))
    axis = call.axis(0, rank)
    if isinstance(tensor, Const | Dims | Stack) or not 0 < axis < rank:
        raise Unsupported("it splits the rows")
    size = tensor.inner[axis - 1]
    sizes = call.vector("split", "int64").tolist()
    if not sizes and call.optional_item(1) is not None:
        sizes = call.ints(1)
    if not sizes:
        step = -(-size // num_outputs)
        sizes = [min(step, size - step * i) for i in range(num_outputs)]
    if len(sizes) != num_outputs or sum(sizes) != size or min(sizes) < 0:
        raise call.error("the sizes of its outputs do not match its input")
    index_blocks = np.split(np.arange(size), np.cumsum(sizes)[:-1])
    selections = [partial(np.take, indices=indices, axis=axis) for indices in index_blocks]
    return tuple(apply_to_grid(call, tensor, select) for select in selections)


FUNCTIONS: Mapping[str, Function] = {
    "Constant": _convert_constant,
    "ConstantOfShape": _convert_constant_of_shape,
    "Shape": _convert_shape,
    "Reshape": _convert_reshape,
    "Squeeze": _convert_squeeze,
    "Unsqueeze": _convert_unsqueeze,
    "Flatten": _convert_flatten,
    "Transpose": _convert_transpose,
    "Gather": _convert_gather,
    "GatherElements": _convert_gather_elements,
    "ArrayFeatureExtractor": _convert_array_feature_extractor,
    "Slice": _convert_slice,
    "Concat": _convert_concat,
    "Expand": _convert_expand,
}
