"""The aten operators that choose, join and reshape columns, or change nothing that we keep."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, cast

import numpy as np

from sqlml.importers.torch.arguments import Arguments, Rule, rows
from sqlml.importers.torch.tensors import Maker, Rows, Tensor, Uncovered, axis_of, column_axis
from sqlml.ir.exported import DTypeArg
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
    x = a["self"]
    dims = a.get("dims")
    if isinstance(x, Rows):
        if dims is not None and [d % x.rank for d in dims] == list(range(x.rank)):
            return x
        raise Uncovered("a permutation of the axes of rows")
    made: Array = np.transpose(x, dims)
    return made


def _swap(m: Maker, a: Arguments) -> Tensor:
    if isinstance(a["self"], Rows):
        raise Uncovered("a permutation of the axes of rows")
    made: Array = np.swapaxes(a["self"], a["dim0"], a["dim1"])
    return made


def _cat(m: Maker, a: Arguments) -> Rows:
    parts = a["tensors"]
    if not parts or not all(isinstance(p, Rows) for p in parts):
        raise Uncovered("a concatenation of rows and constants")
    if column_axis(a.get("dim", 0), parts[0]) != 1 or any(p.rank != 2 for p in parts):
        raise Uncovered("a concatenation of tensors with several column axes")
    if len({p.dtype for p in parts}) > 1:
        raise Uncovered("a concatenation of different dtypes")
    return Rows(m.b.op("concat", *[p.value for p in parts]))


def _stack(m: Maker, a: Arguments) -> Rows:
    parts = a["tensors"]
    if not all(isinstance(p, Rows) and p.flat for p in parts) or a.get("dim", 0) not in (1, -1):
        raise Uncovered("a stack of other tensors than columns")
    if len({p.dtype for p in parts}) > 1:
        raise Uncovered("a stack of different dtypes")
    return Rows(m.b.op("concat", *[p.value for p in parts]))


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
    return _columns(m, x, list(range(x.shape[1]))[slice(start, end, step)], axis)


def _columns(m: Maker, x: Rows, chosen: list[int], axis: int) -> Rows:
    if axis != 1 or x.rank != 2:
        raise Uncovered("a choice in a tensor with several column axes")
    indices = np.array(chosen, np.int64)
    return Rows(m.b.op("select", x.value, indices=indices))


def _select(m: Maker, a: Arguments) -> Rows:
    x = rows(a, "self")
    axis = column_axis(a["dim"], x)
    index = axis_of(a["index"], x.shape[axis])
    return m.reshape(_columns(m, x, [index], axis), ())


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
    return tuple(
        _columns(m, x, list(range(start, end)), axis)
        for start, end in zip(starts, ends, strict=True)
    )


def _unbind(m: Maker, a: Arguments) -> tuple[Rows, ...]:
    x = rows(a, "self")
    axis = column_axis(a.get("dim", 0), x)
    return tuple(m.reshape(_columns(m, x, [i], axis), ()) for i in range(x.shape[axis]))


def _index_select(m: Maker, a: Arguments) -> Rows:
    x, index = rows(a, "self"), a["index"]
    if isinstance(index, Rows) or np.ndim(index) != 1:
        raise Uncovered("a choice of columns that depends on the rows")
    axis = column_axis(a["dim"], x)
    return _columns(m, x, [axis_of(int(i), x.shape[axis]) for i in index], axis)


def _view(m: Maker, a: Arguments) -> Tensor:
    shape = a.get("size", a.get("shape"))
    if not isinstance(a["self"], Rows) and all(type(d) is int for d in shape):
        made: Array = np.reshape(a["self"], shape)
        return made
    x = rows(a, "self")
    if not isinstance(shape, list) or not shape:
        raise Uncovered("a view of another kind")
    rest = [_fixed(d) for d in shape[1:]]
    inside = math.prod(x.shape[1:])
    known = math.prod(d for d in rest if d != -1)
    # (n, ..) -> (-1, ..) keeps the rows when what is left over fills one row.
    if rest.count(-1) > 1 or (shape[0] != "rows" and shape[0] != -1):
        raise Uncovered("a view with a fixed number of rows")
    if -1 in rest:
        if shape[0] != "rows" or not known or inside % known:
            raise Uncovered("a view across rows")
        rest[rest.index(-1)] = inside // known
    if math.prod(rest) != inside:
        raise Uncovered("a view across rows")
    return m.reshape(x, tuple(rest))


def _fixed(dim: Any) -> int:
    if type(dim) is not int or dim < -1:
        raise Uncovered("a view whose width depends on the rows")
    return dim


def _flatten(m: Maker, a: Arguments) -> Rows:
    x = rows(a, "self")
    if x.flat:
        return x
    start = column_axis(a.get("start_dim", 0), x)
    end = axis_of(a.get("end_dim", -1), x.rank)
    inner = (*x.shape[1:start], math.prod(x.shape[start : end + 1]), *x.shape[end + 1 :])
    return m.reshape(x, inner)


def _squeeze(m: Maker, a: Arguments) -> Rows:
    x = rows(a, "self")
    dims = a.get("dim")
    if dims is None:
        raise Uncovered(
            "squeeze of all axes, which drops the rows where there is one; name the axis"
        )
    gone = {axis_of(d, x.rank) for d in (dims if isinstance(dims, list) else [dims])}
    if 0 in gone:
        raise Uncovered("squeeze of the rows")
    return m.reshape(x, tuple(d for i, d in enumerate(x.shape) if i and not (i in gone and d == 1)))


def _unsqueeze(m: Maker, a: Arguments) -> Rows:
    x = rows(a, "self")
    place = axis_of(a["dim"], x.rank + 1)
    if place == 0:
        raise Uncovered("an axis before the rows")
    inner = list(x.shape[1:])
    inner.insert(place - 1, 1)
    return m.reshape(x, tuple(inner))


def _size(m: Maker, a: Arguments) -> Any:
    x = rows(a, "self")
    size = x.shape[axis_of(a["dim"], x.rank)]
    return "rows" if size == ROWS else size


DROPOUTS = frozenset(
    f"aten.{name}.default" for name in ("dropout", "alpha_dropout", "feature_dropout")
)
"""Where they are switched off, their result is the very tensor that they read."""

LAYOUT: Mapping[str, Rule] = MappingProxyType(
    {
        **dict.fromkeys(sorted(DROPOUTS), _dropout),
        "aten.clone.default": _same,
        "aten.contiguous.default": _same,
        "aten.alias.default": _same,
        "aten.detach.default": _same,
        "aten.detach_.default": _same,
        "aten.lift_fresh_copy.default": _same,
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
