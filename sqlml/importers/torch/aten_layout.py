"""The aten operators that select, concatenate and reshape columns, or change nothing."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, cast

import numpy as np

from sqlml.importers.row_tensors import Rows, Uncovered, apply_to_columns, fill_shape, joined
from sqlml.importers.torch.tensors import (
    Arguments,
    Maker,
    Rule,
    Tensor,
    resolve_axis,
    resolve_column_axis,
    rows,
)
from sqlml.ir.torch_archive import DTypeArg
from sqlml.types import ROWS, Array, DType


def _return_input(m: Maker, a: Arguments) -> Tensor:
    x: Tensor = a["self"]
    return x


def _dropout(m: Maker, a: Arguments) -> Tensor:
    if a["train"]:
        raise Uncovered("dropout that is switched on; call eval() before exporting")
    x: Tensor = a["input"]
    return x


def _return_nothing(m: Maker, a: Arguments) -> None:
    return None


def _to(m: Maker, a: Arguments) -> Tensor:
    x, dtype = a["self"], a.get("dtype")
    if dtype is None or not isinstance(dtype, DTypeArg):
        return cast(Tensor, x)
    if dtype.name not in ("bool", "int8", "int16", "int32", "int64", "float32", "float64"):
        raise Uncovered(f"numbers of dtype {dtype.name}")
    if isinstance(x, Rows):
        return m.cast(x, cast(DType, dtype.name))
    converted: Array = np.asarray(x).astype(dtype.name)
    return converted


def _permute(m: Maker, a: Arguments) -> Tensor:
    x, dims = a["self"], a.get("dims")
    if not isinstance(x, Rows):
        permuted: Array = np.transpose(x, dims)
        return permuted
    order = [resolve_axis(d, x.rank) for d in dims or range(x.rank)[::-1]]
    if order[0] != 0:
        raise Uncovered("a permutation that turns rows into columns")
    return apply_to_columns(m.b, x, lambda grid: np.transpose(grid, order))


def _swap(m: Maker, a: Arguments) -> Tensor:
    x = a["self"]
    order = list(range(np.ndim(x) if not isinstance(x, Rows) else x.rank))
    first, second = (resolve_axis(a[name], len(order)) for name in ("dim0", "dim1"))
    order[first], order[second] = second, first
    return _permute(m, {"self": x, "dims": order})


def _read_tensors(tensors: Any) -> list[Rows]:
    if not tensors or not all(isinstance(p, Rows) for p in tensors):
        raise Uncovered("a concatenation of rows and constants")
    if len({(p.dtype, p.rank) for p in tensors}) > 1:
        raise Uncovered("a concatenation of different dtypes or ranks")
    return list(tensors)


def _cat(m: Maker, a: Arguments) -> Rows:
    tensors = _read_tensors(a["tensors"])
    return joined(m.b, tensors, resolve_column_axis(a.get("dim", 0), tensors[0]))


def _stack(m: Maker, a: Arguments) -> Rows:
    tensors = _read_tensors(a["tensors"])
    axis = _new_axis(a.get("dim", 0), tensors[0])
    return joined(m.b, [_insert_axis(p, axis) for p in tensors], axis)


def _select_columns(m: Maker, x: Rows, axis: int, chosen: Any) -> Rows:
    """Convert a slice, a list of indices, or one index, which drops the axis."""
    return apply_to_columns(m.b, x, lambda grid: grid[(slice(None),) * axis + (chosen,)])


def _slice(m: Maker, a: Arguments) -> Rows:
    x = rows(a, "self")
    start, end, step = a.get("start") or 0, a.get("end"), a.get("step", 1)
    axis = resolve_axis(a.get("dim", 0), x.rank)
    if not all(v is None or type(v) is int for v in (start, end, step)) or step < 1:
        raise Uncovered("a slice whose ends depend on the rows")
    if axis == 0:
        if start == 0 and step == 1 and (end is None or end >= 1 << 62):
            return x
        raise Uncovered("a choice of rows")
    return _select_columns(m, x, axis, slice(start, end, step))


def _select(m: Maker, a: Arguments) -> Rows:
    x = rows(a, "self")
    axis = resolve_column_axis(a["dim"], x)
    return _select_columns(m, x, axis, resolve_axis(a["index"], x.shape[axis]))


def _split(m: Maker, a: Arguments) -> tuple[Rows, ...]:
    x = rows(a, "self")
    axis = resolve_column_axis(a.get("dim", 0), x)
    width = x.shape[axis]
    sizes = a.get("split_sizes", a.get("split_size"))
    if "chunks" in a:
        sizes = -(-width // a["chunks"])
    if isinstance(sizes, list):
        ends = np.cumsum(sizes).tolist()
    else:
        ends = [*range(sizes, width, sizes), width]
    starts = [0, *ends[:-1]]
    return tuple(
        _select_columns(m, x, axis, slice(*ends)) for ends in zip(starts, ends, strict=True)
    )


def _unbind(m: Maker, a: Arguments) -> tuple[Rows, ...]:
    x = rows(a, "self")
    axis = resolve_column_axis(a.get("dim", 0), x)
    return tuple(_select_columns(m, x, axis, i) for i in range(x.shape[axis]))


def _index_select(m: Maker, a: Arguments) -> Rows:
    x, index = rows(a, "self"), a["index"]
    if isinstance(index, Rows) or np.ndim(index) != 1:
        raise Uncovered("a choice of columns that depends on the rows")
    axis = resolve_column_axis(a["dim"], x)
    return _select_columns(m, x, axis, [resolve_axis(int(i), x.shape[axis]) for i in index])


def _view(m: Maker, a: Arguments) -> Tensor:
    shape = a.get("size", a.get("shape"))
    if not isinstance(a["self"], Rows) and all(type(d) is int for d in shape):
        viewed: Array = np.reshape(a["self"], shape)
        return viewed
    x = rows(a, "self")
    if not isinstance(shape, list) or not shape:
        raise Uncovered("a view of another kind")
    rest = [_fix_shape(d) for d in shape[1:]]
    # (n, ...) -> (-1, ...) keeps the rows if the other lengths fill one row.
    if shape[0] not in ("rows", -1) or (shape[0] == -1 and -1 in rest):
        raise Uncovered("a view with a fixed number of rows")
    return Rows(x.value, fill_shape(rest, math.prod(x.inner)))


def _fix_shape(dim: Any) -> int:
    if type(dim) is not int or dim < -1:
        raise Uncovered("a view whose width depends on the rows")
    return dim


def _flatten(m: Maker, a: Arguments) -> Rows:
    x = rows(a, "self")
    if x.rank == 1:
        return x
    start = resolve_column_axis(a.get("start_dim", 0), x)
    end = resolve_axis(a.get("end_dim", -1), x.rank)
    width = math.prod(x.shape[start : end + 1])
    return Rows(x.value, (*x.shape[1:start], width, *x.shape[end + 1 :]))


def _squeeze(m: Maker, a: Arguments) -> Rows:
    x = rows(a, "self")
    dims = a.get("dim")
    if dims is None:
        raise Uncovered(
            "squeeze of all axes, which drops the row axis of a single row; name the axis"
        )
    dropped = {resolve_column_axis(d, x) for d in (dims if isinstance(dims, list) else [dims])}
    lengths = (d for i, d in enumerate(x.shape) if i and not (i in dropped and d == 1))
    return Rows(x.value, tuple(lengths))


def _unsqueeze(m: Maker, a: Arguments) -> Rows:
    x = rows(a, "self")
    return _insert_axis(x, _new_axis(a["dim"], x))


def _new_axis(dim: Any, x: Rows) -> int:
    axis = resolve_axis(dim, x.rank + 1)
    if axis == 0:
        raise Uncovered("an axis before the rows")
    return axis


def _insert_axis(x: Rows, axis: int) -> Rows:
    return Rows(x.value, (*x.inner[: axis - 1], 1, *x.inner[axis - 1 :]))


def _size(m: Maker, a: Arguments) -> Any:
    x = rows(a, "self")
    size = x.shape[resolve_axis(a["dim"], x.rank)]
    return "rows" if size == ROWS else size


DROPOUTS = frozenset(
    f"aten.{name}.default" for name in ("dropout", "alpha_dropout", "feature_dropout")
)
"""The dropouts. When they are disabled, they return the tensor that they read."""

_COPIES = ("clone", "contiguous", "alias", "detach", "detach_", "lift_fresh_copy")

LAYOUT: Mapping[str, Rule] = MappingProxyType(
    {
        **dict.fromkeys(sorted(DROPOUTS), _dropout),
        **{f"aten.{name}.default": _return_input for name in _COPIES},
        "aten._assert_tensor_metadata.default": _return_nothing,
        "aten._assert_scalar.default": _return_nothing,
        "aten.sym_size.int": _size,
        "aten.to.dtype": _to,
        "aten.to.dtype_layout": _to,
        "aten._to_copy.default": _to,
        "aten.t.default": _permute,
        "aten.numpy_T.default": _permute,
        "aten.permute.default": _permute,
        "aten.transpose.int": _swap,
        "aten.cat.default": _cat,
        "aten.concat.default": _cat,
        "aten.stack.default": _stack,
        "aten.slice.Tensor": _slice,
        "aten.select.int": _select,
        "aten.index_select.default": _index_select,
        "aten.chunk.default": _split,
        "aten.split.Tensor": _split,
        "aten.split_with_sizes.default": _split,
        "aten.unbind.int": _unbind,
        "aten.view.default": _view,
        "aten._unsafe_view.default": _view,
        "aten.reshape.default": _view,
        "aten.flatten.using_ints": _flatten,
        "aten.squeeze.dim": _squeeze,
        "aten.squeeze.dims": _squeeze,
        "aten.squeeze.default": _squeeze,
        "aten.unsqueeze.default": _unsqueeze,
    }
)
"""The rules. Results may share memory with inputs, which matters to in-place operators."""
