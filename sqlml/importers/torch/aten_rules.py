"""Rules that convert aten operators: layout, activations, products, normalization, embeddings.

A rule gets the Maker `m` and the arguments `a` of a call, by name, and returns its result.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, cast

import numpy as np

from sqlml.importers.row_tensors import (
    Rows,
    Uncovered,
    apply_linear,
    apply_to_columns,
    concatenate_tensors,
    fill_shape,
)
from sqlml.importers.torch.tensors import (
    Arguments,
    Maker,
    Rule,
    Tensor,
    read_constant,
    read_rows,
    resolve_axis,
    resolve_column_axis,
)
from sqlml.ir.builder import Builder, Value
from sqlml.ir.operators.categories import EMBEDDING
from sqlml.ir.torch_archive import DTypeArg
from sqlml.types import ROWS, Array, DType


def _convert_dropout(m: Maker, a: Arguments) -> Tensor:
    if a["train"]:
        raise Uncovered("a dropout that is active; call eval() before exporting")
    return cast(Tensor, a["input"])


def _convert_to(m: Maker, a: Arguments) -> Tensor:
    x, dtype = a["self"], a.get("dtype")
    if not isinstance(dtype, DTypeArg):
        return cast(Tensor, x)
    if dtype.name not in ("bool", "int8", "int16", "int32", "int64", "float32", "float64"):
        raise Uncovered(f"numbers of dtype {dtype.name}")
    if isinstance(x, Rows):
        return m.cast(x, cast(DType, dtype.name))
    return np.asarray(x).astype(dtype.name)


def _convert_permute(m: Maker, a: Arguments) -> Tensor:
    x, dims = a["self"], a.get("dims")
    if not isinstance(x, Rows):
        return np.transpose(x, dims)
    order = [resolve_axis(d, x.rank) for d in dims or range(x.rank)[::-1]]
    if order[0] != 0:
        raise Uncovered("a permutation that turns rows into columns")
    return apply_to_columns(m.b, x, lambda grid: np.transpose(grid, order))


def _convert_transpose(m: Maker, a: Arguments) -> Tensor:
    x = a["self"]
    order = list(range(x.rank if isinstance(x, Rows) else np.ndim(x)))
    axis0, axis1 = (resolve_axis(a[name], len(order)) for name in ("dim0", "dim1"))
    order[axis0], order[axis1] = axis1, axis0
    return _convert_permute(m, {"self": x, "dims": order})


def _require_rows(tensors: Any) -> list[Rows]:
    """Return the operands of a concatenation; they must have rows, and equal dtypes and ranks."""
    if not tensors or not all(isinstance(tensor, Rows) for tensor in tensors):
        raise Uncovered("a concatenation of rows and constants")
    if len({(tensor.dtype, tensor.rank) for tensor in tensors}) > 1:
        raise Uncovered("a concatenation of different dtypes or ranks")
    return list(tensors)


def _convert_cat(m: Maker, a: Arguments) -> Rows:
    tensors = _require_rows(a["tensors"])
    return concatenate_tensors(m.b, tensors, resolve_column_axis(a.get("dim", 0), tensors[0]))


def _convert_stack(m: Maker, a: Arguments) -> Rows:
    tensors, dim = _require_rows(a["tensors"]), a.get("dim", 0)
    widened = [_insert_axis(tensor, dim) for tensor in tensors]
    return concatenate_tensors(m.b, widened, resolve_axis(dim, widened[0].rank))


def _select_columns(m: Maker, x: Rows, axis: int, selection: Any) -> Rows:
    """Apply `selection`, a slice, a list of indices or an index, to `axis`; an index drops it."""
    return apply_to_columns(m.b, x, lambda grid: grid[(slice(None),) * axis + (selection,)])


def _convert_slice(m: Maker, a: Arguments) -> Rows:
    x = read_rows(a, "self")
    start, end, step = a.get("start") or 0, a.get("end"), a.get("step", 1)
    axis = resolve_axis(a.get("dim", 0), x.rank)
    if not all(v is None or type(v) is int for v in (start, end, step)) or step < 1:
        raise Uncovered("a slice whose bounds depend on the rows")
    if axis == 0:
        if start == 0 and step == 1 and (end is None or end >= 1 << 62):
            return x
        raise Uncovered("a selection of rows")
    return _select_columns(m, x, axis, slice(start, end, step))


def _convert_select(m: Maker, a: Arguments) -> Rows:
    x = read_rows(a, "self")
    axis = resolve_column_axis(a["dim"], x)
    return _select_columns(m, x, axis, resolve_axis(a["index"], x.shape[axis]))


def _convert_split(m: Maker, a: Arguments) -> tuple[Rows, ...]:
    x = read_rows(a, "self")
    axis = resolve_column_axis(a.get("dim", 0), x)
    width = x.shape[axis]
    sizes = a.get("split_sizes", a.get("split_size"))
    if "chunks" in a:
        sizes = -(-width // a["chunks"])
    ends = [*range(sizes, width, sizes), width] if isinstance(sizes, int) else np.cumsum(sizes)
    bounds = np.array([0, *ends]).tolist()
    return tuple(_select_columns(m, x, axis, slice(*pair)) for pair in pairwise(bounds))


def _convert_unbind(m: Maker, a: Arguments) -> tuple[Rows, ...]:
    x = read_rows(a, "self")
    axis = resolve_column_axis(a.get("dim", 0), x)
    return tuple(_select_columns(m, x, axis, i) for i in range(x.shape[axis]))


def _convert_index_select(m: Maker, a: Arguments) -> Rows:
    x, index = read_rows(a, "self"), a["index"]
    if isinstance(index, Rows) or np.ndim(index) != 1:
        raise Uncovered("a selection of columns that depends on the rows")
    axis = resolve_column_axis(a["dim"], x)
    return _select_columns(m, x, axis, [resolve_axis(int(i), x.shape[axis]) for i in index])


def _convert_view(m: Maker, a: Arguments) -> Tensor:
    shape = a.get("size", a.get("shape"))
    if not isinstance(a["self"], Rows) and all(type(d) is int for d in shape):
        return cast(Array, np.reshape(a["self"], shape))
    x = read_rows(a, "self")
    if not isinstance(shape, list) or not shape:
        raise Uncovered("a view without a list of lengths")
    inner = shape[1:]
    if any(type(length) is not int or length < -1 for length in inner):
        raise Uncovered("a view whose width depends on the rows")
    # (n, ...) -> (-1, ...) keeps the rows if the other lengths fill one row.
    if shape[0] not in ("rows", -1) or (shape[0] == -1 and -1 in inner):
        raise Uncovered("a view with a fixed number of rows")
    return Rows(x.value, fill_shape(inner, math.prod(x.inner)))


def _convert_flatten(m: Maker, a: Arguments) -> Rows:
    x = read_rows(a, "self")
    if x.rank == 1:
        return x
    start = resolve_column_axis(a.get("start_dim", 0), x)
    end = resolve_axis(a.get("end_dim", -1), x.rank)
    width = math.prod(x.shape[start : end + 1])
    return Rows(x.value, (*x.shape[1:start], width, *x.shape[end + 1 :]))


def _convert_squeeze(m: Maker, a: Arguments) -> Rows:
    x = read_rows(a, "self")
    dims = a.get("dim")
    if dims is None:
        reason = "squeeze of all axes, which drops the row axis of a single row; name the axis"
        raise Uncovered(reason)
    dropped = {resolve_column_axis(d, x) for d in (dims if isinstance(dims, list) else [dims])}
    return Rows(x.value, tuple(d for i, d in enumerate(x.inner, 1) if i not in dropped or d != 1))


def _insert_axis(x: Rows, dim: Any) -> Rows:
    axis = resolve_axis(dim, x.rank + 1)
    if axis == 0:
        raise Uncovered("it inserts an axis before the rows")
    return Rows(x.value, (*x.inner[: axis - 1], 1, *x.inner[axis - 1 :]))


def _convert_size(m: Maker, a: Arguments) -> Any:
    x = read_rows(a, "self")
    size = x.shape[resolve_axis(a["dim"], x.rank)]
    return "rows" if size == ROWS else size


DROPOUTS = frozenset(f"aten.{op}.default" for op in ("dropout", "alpha_dropout", "feature_dropout"))
"""The dropout operators. In eval mode, the result of each is its input itself, not a copy."""

_COPIES = ("clone", "contiguous", "alias", "detach", "detach_", "lift_fresh_copy")
_SPLITS = ("chunk.default", "split.Tensor", "split_with_sizes.default")

LAYOUT: Mapping[str, Rule] = {
    **dict.fromkeys(sorted(DROPOUTS), _convert_dropout),
    **{f"aten.{name}.default": lambda m, a: a["self"] for name in _COPIES},
    **{f"aten._assert_{name}.default": lambda m, a: None for name in ("tensor_metadata", "scalar")},
    "aten.sym_size.int": _convert_size,
    **{f"aten.{name}": _convert_to for name in ("to.dtype", "to.dtype_layout", "_to_copy.default")},
    **{f"aten.{name}.default": _convert_permute for name in ("t", "numpy_T", "permute")},
    "aten.transpose.int": _convert_transpose,
    **{f"aten.{name}.default": _convert_cat for name in ("cat", "concat")},
    "aten.stack.default": _convert_stack,
    "aten.slice.Tensor": _convert_slice,
    "aten.select.int": _convert_select,
    "aten.index_select.default": _convert_index_select,
    **{f"aten.{name}": _convert_split for name in _SPLITS},
    "aten.unbind.int": _convert_unbind,
    **{f"aten.{name}.default": _convert_view for name in ("view", "_unsafe_view", "reshape")},
    "aten.flatten.using_ints": _convert_flatten,
    **{f"aten.squeeze.{overload}": _convert_squeeze for overload in ("dim", "dims", "default")},
    "aten.unsqueeze.default": lambda m, a: _insert_axis(read_rows(a, "self"), a["dim"]),
}
"""Rules for operators whose results may share memory with their inputs.

`aten_graph.py` uses this list to decide whether an in-place operator is safe to import.
"""


def _convert_clamp(m: Maker, a: Arguments) -> Rows:
    x = read_rows(a, "self")
    for op, bound in (("maximum", a.get("min")), ("minimum", a.get("max"))):
        x = x if bound is None else m.elementwise(op, x, bound)
    return x


def _convert_hardtanh(m: Maker, a: Arguments) -> Rows:
    low, high = a.get("min_val", -1.0), a.get("max_val", 1.0)
    return _convert_clamp(m, {"self": a["self"], "min": low, "max": high})


def _convert_relu6(m: Maker, a: Arguments) -> Rows:
    return _convert_clamp(m, {"self": a["self"], "min": 0, "max": 6})


def _convert_hardsigmoid(m: Maker, a: Arguments) -> Rows:
    shifted = m.elementwise("add", read_rows(a, "self"), 3.0)
    return m.elementwise("div", _convert_relu6(m, {"self": shifted}), 6.0)


def _convert_hardswish(m: Maker, a: Arguments) -> Rows:
    x = read_rows(a, "self")
    shifted = _convert_relu6(m, {"self": m.elementwise("add", x, 3.0)})
    return m.elementwise("div", m.elementwise("mul", x, shifted), 6.0)


def _convert_leaky_relu(m: Maker, a: Arguments) -> Rows:
    x = read_rows(a, "self")
    negative_part = m.elementwise("mul", x, a.get("negative_slope", 0.01))
    return m.where(m.elementwise("gt", x, 0), x, negative_part)


def _convert_prelu(m: Maker, a: Arguments) -> Rows:
    x, weight = read_rows(a, "self"), cast(Array, read_constant(a, "weight"))
    if weight.size > 1 and weight.ndim == 1 and x.rank != 2:
        raise Uncovered("a slope per channel of a tensor with several column axes")
    negative_part = m.elementwise("mul", x, weight)
    return m.where(m.elementwise("gt", x, 0), x, negative_part)


def _convert_elu(m: Maker, a: Arguments) -> Rows:
    x, alpha, scale = read_rows(a, "self"), a.get("alpha", 1), a.get("scale", 1)
    exponential = m.unary("expm1", m.elementwise("mul", x, a.get("input_scale", 1)))
    positive_part = m.elementwise("mul", x, scale)
    negative_part = m.elementwise("mul", exponential, alpha * scale)
    return m.where(m.elementwise("gt", x, 0), positive_part, negative_part)


def _convert_celu(m: Maker, a: Arguments) -> Rows:
    return _convert_elu(m, {"alpha": 1.0, **a, "input_scale": 1 / a.get("alpha", 1.0)})


_SELU = {"alpha": 1.6732632423543772848170429916717, "scale": 1.0507009873554804934193349852946}


def _convert_softplus(m: Maker, a: Arguments) -> Rows:
    x, beta, threshold = read_rows(a, "self"), a.get("beta", 1), a.get("threshold", 20)
    scaled = m.elementwise("mul", x, beta)
    softplus = m.elementwise("div", m.unary("log1p", m.unary("exp", scaled)), float(beta))
    return m.where(m.elementwise("gt", scaled, threshold), x, softplus)


def _convert_log_sigmoid(m: Maker, a: Arguments) -> Rows:
    x = read_rows(a, "self")
    magnitude = m.elementwise("maximum", x, m.op("neg", x))
    exponential = m.unary("exp", m.elementwise("mul", magnitude, -1))
    negative_part = m.elementwise("minimum", x, 0)
    return m.elementwise("sub", negative_part, m.unary("log1p", exponential))


def _convert_mish(m: Maker, a: Arguments) -> Rows:
    x = read_rows(a, "self")
    # exp overflows for large x, where log1p(exp(x)) rounds to x.
    softplus = m.where(m.elementwise("gt", x, 80), x, m.unary("log1p", m.unary("exp", x)))
    return m.elementwise("mul", x, m.unary("tanh", softplus))


def _convert_gelu(m: Maker, a: Arguments) -> Rows:
    x = read_rows(a, "self")
    if a.get("approximate", "none") == "none":
        return m.elementwise("mul", x, m.unary("ndtr", x))
    cube = m.elementwise("mul", m.elementwise("mul", x, x), x)
    inner = m.elementwise("add", x, m.elementwise("mul", cube, 0.044715))
    tanh = m.unary("tanh", m.elementwise("mul", inner, math.sqrt(2 / math.pi)))
    return m.elementwise("mul", m.elementwise("mul", x, 0.5), m.elementwise("add", tanh, 1.0))


ACTIVATIONS: Mapping[str, Rule] = {
    "aten.relu.default": lambda m, a: m.elementwise("maximum", read_rows(a, "self"), 0),
    "aten.relu6.default": _convert_relu6,
    **{f"aten.{name}.default": _convert_clamp for name in ("clamp", "clamp_min", "clamp_max")},
    "aten.hardtanh.default": _convert_hardtanh,
    "aten.hardsigmoid.default": _convert_hardsigmoid,
    "aten.hardswish.default": _convert_hardswish,
    "aten.leaky_relu.default": _convert_leaky_relu,
    **{f"aten.{name}.default": _convert_prelu for name in ("prelu", "_prelu_kernel")},
    "aten.elu.default": _convert_elu,
    "aten.selu.default": lambda m, a: _convert_elu(m, {"self": a["self"], **_SELU}),
    "aten.celu.default": _convert_celu,
    "aten.silu.default": lambda m, a: m.elementwise(
        "mul", a["self"], m.unary("sigmoid", a["self"])
    ),
    "aten.softplus.default": _convert_softplus,
    **{f"aten.{op}.default": _convert_log_sigmoid for op in ("log_sigmoid", "log_sigmoid_forward")},
    "aten.mish.default": _convert_mish,
    "aten.gelu.default": _convert_gelu,
}


def _read_softmax_input(m: Maker, a: Arguments) -> Rows:
    """Return the input of a softmax, in floating point; the softmax must be over the columns."""
    x = m.to_floating(read_rows(a, "self"))
    if resolve_column_axis(a["dim"], x) != 1 or x.rank != 2:
        raise Uncovered("a softmax over more than one column axis")
    if a.get("dtype") is not None:
        raise Uncovered("a softmax that changes the dtype")
    return x


def _convert_softmax(m: Maker, a: Arguments) -> Rows:
    x = _read_softmax_input(m, a)
    return m.op("softmax", x, sum_dtype=x.dtype)


def _convert_log_softmax(m: Maker, a: Arguments) -> Rows:
    x = _read_softmax_input(m, a)
    shifted = m.elementwise("sub", x, m.reduce("max", x, [1]))
    total = m.reduce("sum", m.unary("exp", shifted), [1])
    return m.elementwise("sub", shifted, m.unary("log", total))


def _multiply_with_bias(m: Maker, x: Rows, weights: Array, bias: Array | None) -> Rows:
    """Build x @ weights + bias for x (n, k), weights (k, w) and a bias (w,), (1,) or None."""
    if bias is None:
        return apply_linear(m.b, x, weights)
    if bias.size not in (1, weights.shape[-1]) or bias.dtype != weights.dtype:
        raise Uncovered("a bias that does not have a number per column")
    return apply_linear(m.b, x, weights, np.broadcast_to(bias.ravel(), weights.shape[-1:]))


def _convert_linear(m: Maker, a: Arguments) -> Rows:
    weights = cast(Array, read_constant(a, "weight"))
    return _multiply_with_bias(m, read_rows(a, "input"), weights.T, read_constant(a, "bias"))


def _make_matmul(rows_name: str, weights_name: str) -> Rule:
    """Make the rule for a product of the arguments `rows_name` and `weights_name`, a constant."""

    def rule(m: Maker, a: Arguments) -> Rows:
        x, weights = read_rows(a, rows_name), cast(Array, read_constant(a, weights_name))
        if weights.ndim == 1:
            return Rows(apply_linear(m.b, x, weights[:, None]).value, ())
        return apply_linear(m.b, x, weights)

    return rule


def _convert_addmm(m: Maker, a: Arguments) -> Rows:
    if a.get("beta", 1) != 1 or a.get("alpha", 1) != 1:
        raise Uncovered("addmm with factors")
    bias = read_constant(a, "self")
    return _multiply_with_bias(m, read_rows(a, "mat1"), cast(Array, read_constant(a, "mat2")), bias)


def _convert_batch_norm(m: Maker, a: Arguments) -> Rows:
    x = read_rows(a, "input")
    mean, variance = read_constant(a, "running_mean"), read_constant(a, "running_var")
    if a.get("training") or mean is None or variance is None or x.rank != 2:
        reason = "batch normalization with statistics of the batch; call eval() before exporting"
        raise Uncovered(reason)
    # Like torch on the CPU, compute a factor and an offset per column, but in float64.
    weight, bias = read_constant(a, "weight"), read_constant(a, "bias")
    factor = 1 / np.sqrt(variance.astype(np.float64) + a["eps"])
    factor = factor if weight is None else factor * weight
    offset = -mean * factor if bias is None else bias - mean * factor
    scaled = m.elementwise("mul", x, factor.astype(x.dtype))
    return m.elementwise("add", scaled, offset.astype(x.dtype))


def _convert_layer_norm(m: Maker, a: Arguments) -> Rows:
    x = read_rows(a, "input")
    shape = a["normalized_shape"]
    if x.rank != 2 or len(shape) != 1:
        raise Uncovered("layer normalization over more than the columns")
    double, width = m.cast(x, "float64"), float(shape[0])
    mean = m.elementwise("div", m.reduce("sum", double, [1]), width)
    centered = m.elementwise("sub", double, mean)
    square_sum = m.reduce("sum", m.elementwise("mul", centered, centered), [1])
    variance = m.elementwise("add", m.elementwise("div", square_sum, width), a.get("eps", 1e-5))
    normalized = m.elementwise("div", centered, m.unary("sqrt", variance))
    for op, name in (("mul", "weight"), ("add", "bias")):
        array = read_constant(a, name)
        if array is not None:
            normalized = m.elementwise(op, normalized, array.astype(np.float64))
    return m.cast(normalized, x.dtype)


def _convert_embedding(m: Maker, a: Arguments) -> Rows:
    table, x = cast(Array, read_constant(a, "weight")), read_rows(a, "indices")
    if table.ndim != 2 or not table.shape[0] or x.rank > 2:
        raise Uncovered("an embedding of tensors with several axes")
    # torch rejects an index that is too large, so it becomes -1, which `_check_codes` rejects.
    codes = m.where(m.elementwise("lt", x, table.shape[0]), x, -1).value
    codes = _check_codes(m, x, codes, table.shape[0])
    inner = (*x.inner, table.shape[1])
    vectors = m.b.op("take", m.b.constant(table), codes)  # (n, k, width)
    return Rows(m.b.op("reshape", vectors, shape=(math.prod(inner),)), inner)


def _check_codes(m: Maker, x: Rows, codes: Value, size: int) -> Value:
    """Add a check that no code (n, k) is -1; its error names the column from which `x` comes."""
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
    """Return the name of the input column from which each column of `value` is computed.

    Return [] if a column depends on several input columns, or after `depth` operators.
    """
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
"""Operators whose output columns each depend on a single input column."""


LAYERS: Mapping[str, Rule] = {
    **dict.fromkeys(("aten.softmax.int", "aten._softmax.default"), _convert_softmax),
    **dict.fromkeys(("aten.log_softmax.int", "aten._log_softmax.default"), _convert_log_softmax),
    "aten.linear.default": _convert_linear,
    "aten.addmm.default": _convert_addmm,
    "aten.mm.default": _make_matmul("self", "mat2"),
    "aten.matmul.default": _make_matmul("self", "other"),
    "aten.mv.default": _make_matmul("self", "vec"),
    "aten.batch_norm.default": _convert_batch_norm,
    "aten._native_batch_norm_legit_no_training.default": _convert_batch_norm,
    **{f"aten.{name}.default": _convert_layer_norm for name in ("layer_norm", "native_layer_norm")},
    "aten.embedding.default": _convert_embedding,
}
