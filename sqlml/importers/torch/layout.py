"""The aten operators that choose, join and reshape columns, or change nothing that we keep."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, cast

import numpy as np

from sqlml.importers.row_tensors import Rows, Uncovered, filled_in, joined, moved
from sqlml.importers.torch.tensors import (
    Arguments,
    Maker,
    Rule,
    Tensor,
    axis_of,
    column_axis,
    rows,
)
from sqlml.ir.torch_archive import DTypeArg
from sqlml.types import ROWS, Array, DType


def _same(m: Maker, a: Arguments) -> Tensor:
    x: Tensor = a["self"]
    return x


def _dropout(m: Maker, a: Arguments) -> Tensor:
    if a["train"]:
        raise Uncovered("dropout that is switched on; call eval() before exporting")
    x: Tensor = a["input"]
    return x


def _nothing(m: Maker, a: Arguments) -> None:
    return None


def _to(m: Maker, a: Arguments) -> Tensor:
    x, dtype = a["self"], a.get("dtype")
    if dtype is None or not isinstance(dtype, DTypeArg):
        return cast(Tensor, x)
    if dtype.name not in ("bool", "int8", "int16", "int32", "int64", "float32", "float64"):
        raise Uncovered(f"numbers of dtype {dtype.name}")
    if isinstance(x, Rows):
        return m.cast(x, cast(DType, dtype.name))
    made: Array = np.asarray(x).astype(dtype.name)
    return made


def _permute(m: Maker, a: Arguments) -> Tensor:
    x, dims = a["self"], a.get("dims")
    if not isinstance(x, Rows):
        made: Array = np.transpose(x, dims)
        return made
    order = [axis_of(d, x.rank) for d in dims or range(x.rank)[::-1]]
    if order[0] != 0:
        raise Uncovered("a permutation that turns rows into columns")
    return moved(m.b, x, lambda grid: np.transpose(grid, order))


def _swap(m: Maker, a: Arguments) -> Tensor:
    x = a["self"]
    order = list(range(np.ndim(x) if not isinstance(x, Rows) else x.rank))
    first, second = (axis_of(a[name], len(order)) for name in ("dim0", "dim1"))
    order[first], order[second] = second, first
    return _permute(m, {"self": x, "dims": order})


def _parts(parts: Any) -> list[Rows]:
    if not parts or not all(isinstance(p, Rows) for p in parts):
        raise Uncovered("a concatenation of rows and constants")
    if len({(p.dtype, p.rank) for p in parts}) > 1:
        raise Uncovered("a concatenation of different dtypes or ranks")
    return list(parts)


def _cat(m: Maker, a: Arguments) -> Rows:
    parts = _parts(a["tensors"])
    return joined(m.b, parts, column_axis(a.get("dim", 0), parts[0]))


def _stack(m: Maker, a: Arguments) -> Rows:
    parts = _parts(a["tensors"])
    place = _new_axis(a.get("dim", 0), parts[0])
    return joined(m.b, [_unsqueezed(p, place) for p in parts], place)


def _cut(m: Maker, x: Rows, axis: int, chosen: Any) -> Rows:
    """A slice, a list of places or one place of a column axis; a single place drops the axis."""
    return moved(m.b, x, lambda grid: grid[(slice(None),) * axis + (chosen,)])


def _slice(m: Maker, a: Arguments) -> Rows:
    x = rows(a, "self")
    start, end, step = a.get("start") or 0, a.get("end"), a.get("step", 1)
    axis = axis_of(a.get("dim", 0), x.rank)
    if not all(v is None or type(v) is int for v in (start, end, step)) or step < 1:
        raise Uncovered("a slice whose ends depend on the rows")
    if axis == 0:
        if start == 0 and step == 1 and (end is None or end >= 1 << 62):
            return x
        raise Uncovered("a choice of rows")
    return _cut(m, x, axis, slice(start, end, step))


def _select(m: Maker, a: Arguments) -> Rows:
    x = rows(a, "self")
    axis = column_axis(a["dim"], x)
    return _cut(m, x, axis, axis_of(a["index"], x.shape[axis]))


def _split(m: Maker, a: Arguments) -> tuple[Rows, ...]:
    x = rows(a, "self")
    axis = column_axis(a.get("dim", 0), x)
    width = x.shape[axis]
    sizes = a.get("split_sizes", a.get("split_size"))
    if "chunks" in a:
        sizes = -(-width // a["chunks"])
    if isinstance(sizes, list):
        ends = np.cumsum(sizes).tolist()
    else:
        ends = [*range(sizes, width, sizes), width]
    starts = [0, *ends[:-1]]
    return tuple(_cut(m, x, axis, slice(*ends)) for ends in zip(starts, ends, strict=True))


def _unbind(m: Maker, a: Arguments) -> tuple[Rows, ...]:
    x = rows(a, "self")
    axis = column_axis(a.get("dim", 0), x)
    return tuple(_cut(m, x, axis, i) for i in range(x.shape[axis]))


def _index_select(m: Maker, a: Arguments) -> Rows:
    x, index = rows(a, "self"), a["index"]
    if isinstance(index, Rows) or np.ndim(index) != 1:
        raise Uncovered("a choice of columns that depends on the rows")
    axis = column_axis(a["dim"], x)
    return _cut(m, x, axis, [axis_of(int(i), x.shape[axis]) for i in index])


def _view(m: Maker, a: Arguments) -> Tensor:
    shape = a.get("size", a.get("shape"))
    if not isinstance(a["self"], Rows) and all(type(d) is int for d in shape):
        made: Array = np.reshape(a["self"], shape)
        return made
    x = rows(a, "self")
    if not isinstance(shape, list) or not shape:
        raise Uncovered("a view of another kind")
    rest = [_fixed(d) for d in shape[1:]]
    # (n, ..) -> (-1, ..) keeps the rows when what is left over fills one row.
    if shape[0] not in ("rows", -1) or (shape[0] == -1 and -1 in rest):
        raise Uncovered("a view with a fixed number of rows")
    return Rows(x.value, filled_in(rest, math.prod(x.inner)))


def _fixed(dim: Any) -> int:
    if type(dim) is not int or dim < -1:
        raise Uncovered("a view whose width depends on the rows")
    return dim


def _flatten(m: Maker, a: Arguments) -> Rows:
    x = rows(a, "self")
    if x.rank == 1:
        return x
    start = column_axis(a.get("start_dim", 0), x)
    end = axis_of(a.get("end_dim", -1), x.rank)
    width = math.prod(x.shape[start : end + 1])
    return Rows(x.value, (*x.shape[1:start], width, *x.shape[end + 1 :]))


def _squeeze(m: Maker, a: Arguments) -> Rows:
    x = rows(a, "self")
    dims = a.get("dim")
    if dims is None:
        raise Uncovered(
            "squeeze of all axes, which drops the row axis of a single row; name the axis"
        )
    gone = {column_axis(d, x) for d in (dims if isinstance(dims, list) else [dims])}
    kept = (d for i, d in enumerate(x.shape) if i and not (i in gone and d == 1))
    return Rows(x.value, tuple(kept))


def _unsqueeze(m: Maker, a: Arguments) -> Rows:
    x = rows(a, "self")
    return _unsqueezed(x, _new_axis(a["dim"], x))


def _new_axis(dim: Any, x: Rows) -> int:
    place = axis_of(dim, x.rank + 1)
    if place == 0:
        raise Uncovered("an axis before the rows")
    return place


def _unsqueezed(x: Rows, place: int) -> Rows:
    return Rows(x.value, (*x.inner[: place - 1], 1, *x.inner[place - 1 :]))


def _size(m: Maker, a: Arguments) -> Any:
    x = rows(a, "self")
    size = x.shape[axis_of(a["dim"], x.rank)]
    return "rows" if size == ROWS else size


DROPOUTS = frozenset(
    f"aten.{name}.default" for name in ("dropout", "alpha_dropout", "feature_dropout")
)
"""Where they are switched off, their result is the very tensor that they read."""

_COPIES = ("clone", "contiguous", "alias", "detach", "detach_", "lift_fresh_copy")

LAYOUT: Mapping[str, Rule] = MappingProxyType(
    {
        **dict.fromkeys(sorted(DROPOUTS), _dropout),
        **{f"aten.{name}.default": _same for name in _COPIES},
        "aten._assert_tensor_metadata.default": _nothing,
        "aten._assert_scalar.default": _nothing,
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
"""Results may share their memory with what was read, for an operator in place to overwrite."""
