"""The aten operators as rules: layout, activations, products, normalization and embeddings."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, cast

import numpy as np

from sqlml.importers.row_tensors import (
    Rows,
    Uncovered,
    apply_to_columns,
    fill_shape,
    joined,
    multiply,
)
from sqlml.importers.torch.tensors import (
    Arguments,
    Maker,
    Rule,
    Tensor,
    constant,
    resolve_axis,
    resolve_column_axis,
    rows,
)
from sqlml.ir.builder import Builder, Value
from sqlml.ir.operators.categories import EMBEDDING
from sqlml.ir.torch_archive import DTypeArg
from sqlml.types import ROWS, Array, DType


def _dropout(m: Maker, a: Arguments) -> Tensor:
    if a["train"]:
        raise Uncovered("dropout that is switched on; call eval() before exporting")
    x: Tensor = a["input"]
    return x


def _to(m: Maker, a: Arguments) -> Tensor:
    x, dtype = a["self"], a.get("dtype")
    if not isinstance(dtype, DTypeArg):
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
    order = list(range(x.rank if isinstance(x, Rows) else np.ndim(x)))
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
    tensors, dim = _read_tensors(a["tensors"]), a.get("dim", 0)
    widened = [_insert_axis(tensor, dim) for tensor in tensors]
    return joined(m.b, widened, resolve_axis(dim, widened[0].rank))


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
    ends = [*range(sizes, width, sizes), width] if isinstance(sizes, int) else np.cumsum(sizes)
    bounds = np.array([0, *ends]).tolist()
    return tuple(_select_columns(m, x, axis, slice(*pair)) for pair in pairwise(bounds))


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
    rest = shape[1:]
    if any(type(d) is not int or d < -1 for d in rest):
        raise Uncovered("a view whose width depends on the rows")
    # (n, ...) -> (-1, ...) keeps the rows if the other lengths fill one row.
    if shape[0] not in ("rows", -1) or (shape[0] == -1 and -1 in rest):
        raise Uncovered("a view with a fixed number of rows")
    return Rows(x.value, fill_shape(rest, math.prod(x.inner)))


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


def _insert_axis(x: Rows, dim: Any) -> Rows:
    axis = resolve_axis(dim, x.rank + 1)
    if axis == 0:
        raise Uncovered("an axis before the rows")
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
_SPLITS = ("chunk.default", "split.Tensor", "split_with_sizes.default")

LAYOUT: Mapping[str, Rule] = {
    **dict.fromkeys(sorted(DROPOUTS), _dropout),
    **{f"aten.{name}.default": lambda m, a: a["self"] for name in _COPIES},
    **{f"aten._assert_{name}.default": lambda m, a: None for name in ("tensor_metadata", "scalar")},
    "aten.sym_size.int": _size,
    **dict.fromkeys(("aten.to.dtype", "aten.to.dtype_layout", "aten._to_copy.default"), _to),
    **{f"aten.{name}.default": _permute for name in ("t", "numpy_T", "permute")},
    "aten.transpose.int": _swap,
    **{f"aten.{name}.default": _cat for name in ("cat", "concat")},
    "aten.stack.default": _stack,
    "aten.slice.Tensor": _slice,
    "aten.select.int": _select,
    "aten.index_select.default": _index_select,
    **{f"aten.{name}": _split for name in _SPLITS},
    "aten.unbind.int": _unbind,
    **{f"aten.{name}.default": _view for name in ("view", "_unsafe_view", "reshape")},
    "aten.flatten.using_ints": _flatten,
    **{f"aten.squeeze.{overload}": _squeeze for overload in ("dim", "dims", "default")},
    "aten.unsqueeze.default": lambda m, a: _insert_axis(rows(a, "self"), a["dim"]),
}
"""Operators whose results may share memory with inputs, which matters to in-place operators."""


def _clamp(m: Maker, a: Arguments) -> Rows:
    x = rows(a, "self")
    for op, bound in (("maximum", a.get("min")), ("minimum", a.get("max"))):
        x = x if bound is None else m.elementwise(op, x, bound)
    return x


def _hardtanh(m: Maker, a: Arguments) -> Rows:
    low, high = a.get("min_val", -1.0), a.get("max_val", 1.0)
    return _clamp(m, {"self": a["self"], "min": low, "max": high})


def _relu6(m: Maker, a: Arguments) -> Rows:
    return _clamp(m, {"self": a["self"], "min": 0, "max": 6})


def _hardsigmoid(m: Maker, a: Arguments) -> Rows:
    shifted = m.elementwise("add", rows(a, "self"), 3.0)
    return m.elementwise("div", _relu6(m, {"self": shifted}), 6.0)


def _hardswish(m: Maker, a: Arguments) -> Rows:
    x = rows(a, "self")
    shifted = _relu6(m, {"self": m.elementwise("add", x, 3.0)})
    return m.elementwise("div", m.elementwise("mul", x, shifted), 6.0)


def _leaky_relu(m: Maker, a: Arguments) -> Rows:
    x = rows(a, "self")
    below = m.elementwise("mul", x, a.get("negative_slope", 0.01))
    return m.where(m.elementwise("gt", x, 0), x, below)


def _prelu(m: Maker, a: Arguments) -> Rows:
    x, weight = rows(a, "self"), cast(Array, constant(a, "weight"))
    if weight.size > 1 and weight.ndim == 1 and x.rank != 2:
        raise Uncovered("slopes for the first of several column axes")
    below = m.elementwise("mul", x, weight)
    return m.where(m.elementwise("gt", x, 0), x, below)


def _elu(m: Maker, a: Arguments) -> Rows:
    x, alpha, scale = rows(a, "self"), a.get("alpha", 1), a.get("scale", 1)
    exponential = m.unary("expm1", m.elementwise("mul", x, a.get("input_scale", 1)))
    below = m.elementwise("mul", exponential, alpha * scale)
    return m.where(m.elementwise("gt", x, 0), m.elementwise("mul", x, scale), below)


def _celu(m: Maker, a: Arguments) -> Rows:
    return _elu(m, {"alpha": 1.0, **a, "input_scale": 1 / a.get("alpha", 1.0)})


_SELU = {"alpha": 1.6732632423543772848170429916717, "scale": 1.0507009873554804934193349852946}


def _softplus(m: Maker, a: Arguments) -> Rows:
    x, beta, threshold = rows(a, "self"), a.get("beta", 1), a.get("threshold", 20)
    scaled = m.elementwise("mul", x, beta)
    soft = m.elementwise("div", m.unary("log1p", m.unary("exp", scaled)), float(beta))
    return m.where(m.elementwise("gt", scaled, threshold), x, soft)


def _log_sigmoid(m: Maker, a: Arguments) -> Rows:
    x = rows(a, "self")
    size = m.unary("exp", m.elementwise("mul", m.elementwise("maximum", x, m.op("neg", x)), -1))
    low = m.elementwise("minimum", x, 0)
    return m.elementwise("sub", low, m.unary("log1p", size))


def _mish(m: Maker, a: Arguments) -> Rows:
    x = rows(a, "self")
    # exp overflows for large x, for which log1p(exp(x)) equals x to the last bit.
    soft = m.where(m.elementwise("gt", x, 80), x, m.unary("log1p", m.unary("exp", x)))
    return m.elementwise("mul", x, m.unary("tanh", soft))


def _gelu(m: Maker, a: Arguments) -> Rows:
    x = rows(a, "self")
    if a.get("approximate", "none") == "none":
        return m.elementwise("mul", x, m.unary("ndtr", x))
    cube = m.elementwise("mul", m.elementwise("mul", x, x), x)
    inner = m.elementwise("add", x, m.elementwise("mul", cube, 0.044715))
    curve = m.unary("tanh", m.elementwise("mul", inner, math.sqrt(2 / math.pi)))
    return m.elementwise("mul", m.elementwise("mul", x, 0.5), m.elementwise("add", curve, 1.0))


ACTIVATIONS: Mapping[str, Rule] = {
    "aten.relu.default": lambda m, a: m.elementwise("maximum", rows(a, "self"), 0),
    "aten.relu6.default": _relu6,
    **{f"aten.{name}.default": _clamp for name in ("clamp", "clamp_min", "clamp_max")},
    "aten.hardtanh.default": _hardtanh,
    "aten.hardsigmoid.default": _hardsigmoid,
    "aten.hardswish.default": _hardswish,
    "aten.leaky_relu.default": _leaky_relu,
    **{f"aten.{name}.default": _prelu for name in ("prelu", "_prelu_kernel")},
    "aten.elu.default": _elu,
    "aten.selu.default": lambda m, a: _elu(m, {"self": a["self"], **_SELU}),
    "aten.celu.default": _celu,
    "aten.silu.default": lambda m, a: m.elementwise(
        "mul", a["self"], m.unary("sigmoid", a["self"])
    ),
    "aten.softplus.default": _softplus,
    **{f"aten.{name}.default": _log_sigmoid for name in ("log_sigmoid", "log_sigmoid_forward")},
    "aten.mish.default": _mish,
    "aten.gelu.default": _gelu,
}


def _softmax_input(m: Maker, a: Arguments) -> Rows:
    x = m.floating(rows(a, "self"))
    if resolve_column_axis(a["dim"], x) != 1 or x.rank != 2:
        raise Uncovered("a softmax over more than one column axis")
    if a.get("dtype") is not None:
        raise Uncovered("a softmax that changes the dtype")
    return x


def _softmax(m: Maker, a: Arguments) -> Rows:
    x = _softmax_input(m, a)
    return m.op("softmax", x, sum_dtype=x.dtype)


def _log_softmax(m: Maker, a: Arguments) -> Rows:
    x = _softmax_input(m, a)
    shifted = m.elementwise("sub", x, m.reduce("max", x, [1]))
    total = m.reduce("sum", m.unary("exp", shifted), [1])
    return m.elementwise("sub", shifted, m.unary("log", total))


def _product(m: Maker, x: Rows, weights: Array, bias: Array | None) -> Rows:
    """Return x (n, k) @ weights (k, w) + bias, (w,) or one number."""
    if bias is None:
        return multiply(m.b, x, weights)
    if bias.size not in (1, weights.shape[-1]) or bias.dtype != weights.dtype:
        raise Uncovered("a bias that is not one number per column")
    return multiply(m.b, x, weights, np.broadcast_to(bias.ravel(), weights.shape[-1:]))


def _linear(m: Maker, a: Arguments) -> Rows:
    weights = cast(Array, constant(a, "weight"))
    return _product(m, rows(a, "input"), weights.T, constant(a, "bias"))


def _matmul(first: str, second: str) -> Rule:
    def rule(m: Maker, a: Arguments) -> Rows:
        x, weights = rows(a, first), cast(Array, constant(a, second))
        if weights.ndim == 1:
            return Rows(multiply(m.b, x, weights[:, None]).value, ())
        return multiply(m.b, x, weights)

    return rule


def _addmm(m: Maker, a: Arguments) -> Rows:
    if a.get("beta", 1) != 1 or a.get("alpha", 1) != 1:
        raise Uncovered("addmm with factors")
    bias = constant(a, "self")
    return _product(m, rows(a, "mat1"), cast(Array, constant(a, "mat2")), bias)


def _batch_norm(m: Maker, a: Arguments) -> Rows:
    x = rows(a, "input")
    mean, variance = constant(a, "running_mean"), constant(a, "running_var")
    if a.get("training") or mean is None or variance is None or x.rank != 2:
        raise Uncovered("batch normalization by the batch itself; call eval() before exporting")
    # Like torch on the CPU: one factor and one summand per column, here in float64.
    weight, bias = constant(a, "weight"), constant(a, "bias")
    factor = 1 / np.sqrt(variance.astype(np.float64) + a["eps"])
    factor = factor if weight is None else factor * weight
    summand = -mean * factor if bias is None else bias - mean * factor
    scaled = m.elementwise("mul", x, factor.astype(x.dtype))
    return m.elementwise("add", scaled, summand.astype(x.dtype))


def _layer_norm(m: Maker, a: Arguments) -> Rows:
    x = rows(a, "input")
    shape = a["normalized_shape"]
    if x.rank != 2 or len(shape) != 1:
        raise Uncovered("layer normalization over more than the columns")
    double, width = m.cast(x, "float64"), float(shape[0])
    mean = m.elementwise("div", m.reduce("sum", double, [1]), width)
    centered = m.elementwise("sub", double, mean)
    square = m.reduce("sum", m.elementwise("mul", centered, centered), [1])
    variance = m.elementwise("add", m.elementwise("div", square, width), a.get("eps", 1e-5))
    normalized = m.elementwise("div", centered, m.unary("sqrt", variance))
    for op, name in (("mul", "weight"), ("add", "bias")):
        array = constant(a, name)
        if array is not None:
            normalized = m.elementwise(op, normalized, array.astype(np.float64))
    return m.cast(normalized, x.dtype)


def _embedding(m: Maker, a: Arguments) -> Rows:
    table, x = cast(Array, constant(a, "weight")), rows(a, "indices")
    if table.ndim != 2 or not table.shape[0] or x.rank > 2:
        raise Uncovered("an embedding of tensors with several axes")
    # torch rejects an index that is not below the size; -1 marks it for the check.
    codes = m.where(m.elementwise("lt", x, table.shape[0]), x, -1).value
    codes = _check_codes(m, x, codes, table.shape[0])
    inner = (*x.inner, table.shape[1])
    vectors = m.b.op("take", m.b.constant(table), codes)  # (n, k, width)
    return Rows(m.b.op("reshape", vectors, shape=(math.prod(inner),)), inner)


def _check_codes(m: Maker, x: Rows, codes: Value, size: int) -> Value:
    """Check that no code of `x`, int64 (n, k), is -1; the error names the user's column."""
    step = f"{EMBEDDING} (0 to {size - 1})"
    names = _find_input_columns(m.b, x.value)
    if len(names) < 2:
        feature = names[0] if names else "index"
        return m.b.op("require_known", codes, feature=feature, step=step)
    columns = []
    for i, name in enumerate(names):
        column = m.b.op("select", codes, indices=np.array([i], np.int64))
        columns.append(m.b.op("require_known", column, feature=name, step=step))
    return m.b.op("concat", *columns)


def _find_input_columns(b: Builder, value: Value, depth: int = 20) -> list[str]:
    """Return the input column of each column of `value`; empty if some read several columns."""
    node = b.node(value)
    inputs = [b.value(i) for i in node.inputs]
    if node.op == "input":
        return [str(node.attrs["name"])] * value.type.width
    if not depth or node.op not in _COLUMNWISE:
        return []
    names = [_find_input_columns(b, v, depth - 1) for v in inputs]
    if not all(names):
        return []
    if node.op == "select":
        return [names[0][i] for i in node.attrs["indices"]]
    return [name for column_names in names for name in column_names]


_COLUMNWISE = frozenset(("cast", "concat", "require_finite", "select", "trunc"))
"""The operators of which each column reads one column."""


LAYERS: Mapping[str, Rule] = {
    **dict.fromkeys(("aten.softmax.int", "aten._softmax.default"), _softmax),
    **dict.fromkeys(("aten.log_softmax.int", "aten._log_softmax.default"), _log_softmax),
    "aten.linear.default": _linear,
    "aten.addmm.default": _addmm,
    "aten.mm.default": _matmul("self", "mat2"),
    "aten.matmul.default": _matmul("self", "other"),
    "aten.mv.default": _matmul("self", "vec"),
    "aten.batch_norm.default": _batch_norm,
    "aten._native_batch_norm_legit_no_training.default": _batch_norm,
    **{f"aten.{name}.default": _layer_norm for name in ("layer_norm", "native_layer_norm")},
    "aten.embedding.default": _embedding,
}
