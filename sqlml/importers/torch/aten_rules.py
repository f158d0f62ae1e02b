"""Rules that convert aten operators: layout, activations, products, normalization, embeddings.

A rule takes a TensorBuilder `ops` and the arguments of a call by name, and returns its result.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, cast

import numpy as np

from sqlml.importers.row_tensors import (
    RowTensor,
    Unsupported,
    apply_linear,
    apply_to_columns,
    concatenate_tensors,
    fill_shape,
)
from sqlml.importers.torch.tensors import (
    Arguments,
    Rule,
    Tensor,
    TensorBuilder,
    read_constant,
    read_rows,
    resolve_axis,
    resolve_column_axis,
)
from sqlml.ir.builder import Builder, Value
from sqlml.ir.operators.categories import EMBEDDING
from sqlml.ir.torch_archive import DTypeArg
from sqlml.types import ROWS, Array, DType


def _convert_dropout(ops: TensorBuilder, args: Arguments) -> Tensor:
    if args["train"]:
        raise Unsupported("a dropout that is active; call eval() before exporting")
    return cast(Tensor, args["input"])


def _convert_to(ops: TensorBuilder, args: Arguments) -> Tensor:
    x, dtype = args["self"], args.get("dtype")
    if not isinstance(dtype, DTypeArg):
        return cast(Tensor, x)
    if dtype.name not in ("bool", "int8", "int16", "int32", "int64", "float32", "float64"):
        raise Unsupported(f"numbers of dtype {dtype.name}")
    if isinstance(x, RowTensor):
        return ops.cast(x, cast(DType, dtype.name))
    return np.asarray(x).astype(dtype.name)


def _convert_permute(ops: TensorBuilder, args: Arguments) -> Tensor:
    x, dims = args["self"], args.get("dims")
    if not isinstance(x, RowTensor):
        return np.transpose(x, dims)
    order = [resolve_axis(d, x.rank) for d in dims or range(x.rank)[::-1]]
    if order[0] != 0:
        raise Unsupported("a permutation that turns rows into columns")
    return apply_to_columns(ops.b, x, lambda grid: np.transpose(grid, order))


def _convert_transpose(ops: TensorBuilder, args: Arguments) -> Tensor:
    x = args["self"]
    order = list(range(x.rank if isinstance(x, RowTensor) else np.ndim(x)))
    axis0, axis1 = (resolve_axis(args[name], len(order)) for name in ("dim0", "dim1"))
    order[axis0], order[axis1] = axis1, axis0
    return _convert_permute(ops, {"self": x, "dims": order})


def _require_rows(tensors: Any) -> list[RowTensor]:
    """Return the `tensors` to concatenate; all must have rows, and equal dtypes and ranks."""
    if not tensors or not all(isinstance(tensor, RowTensor) for tensor in tensors):
        raise Unsupported("a concatenation of rows and constants")
    if len({(tensor.dtype, tensor.rank) for tensor in tensors}) > 1:
        raise Unsupported("a concatenation of different dtypes or ranks")
    return list(tensors)


def _convert_cat(ops: TensorBuilder, args: Arguments) -> RowTensor:
    rows = _require_rows(args["tensors"])
    return concatenate_tensors(ops.b, rows, resolve_column_axis(args.get("dim", 0), rows[0]))


def _convert_stack(ops: TensorBuilder, args: Arguments) -> RowTensor:
    tensors, dim = _require_rows(args["tensors"]), args.get("dim", 0)
    widened = [_insert_axis(tensor, dim) for tensor in tensors]
    return concatenate_tensors(ops.b, widened, resolve_axis(dim, widened[0].rank))


def _select_columns(ops: TensorBuilder, x: RowTensor, axis: int, selection: Any) -> RowTensor:
    """Select from `axis` by a slice, a list of indices or one index; one index drops the axis."""
    return apply_to_columns(ops.b, x, lambda grid: grid[(slice(None),) * axis + (selection,)])


def _convert_slice(ops: TensorBuilder, args: Arguments) -> RowTensor:
    x = read_rows(args, "self")
    start, end, step = args.get("start") or 0, args.get("end"), args.get("step", 1)
    axis = resolve_axis(args.get("dim", 0), x.rank)
    if not all(bound is None or type(bound) is int for bound in (start, end, step)) or step < 1:
        raise Unsupported("a slice whose bounds depend on the rows")
    if axis == 0:
        if start == 0 and step == 1 and (end is None or end >= 1 << 62):
            return x
        raise Unsupported("a selection of rows")
    return _select_columns(ops, x, axis, slice(start, end, step))


def _convert_select(ops: TensorBuilder, args: Arguments) -> RowTensor:
    x = read_rows(args, "self")
    axis = resolve_column_axis(args["dim"], x)
    return _select_columns(ops, x, axis, resolve_axis(args["index"], x.shape[axis]))


def _convert_split(ops: TensorBuilder, args: Arguments) -> tuple[RowTensor, ...]:
    x = read_rows(args, "self")
    axis = resolve_column_axis(args.get("dim", 0), x)
    width = x.shape[axis]
    sizes = args.get("split_sizes", args.get("split_size"))
    if "chunks" in args:
        sizes = -(-width // args["chunks"])
    ends = [*range(sizes, width, sizes), width] if isinstance(sizes, int) else np.cumsum(sizes)
    bounds = np.array([0, *ends]).tolist()
    return tuple(_select_columns(ops, x, axis, slice(*pair)) for pair in pairwise(bounds))


def _convert_unbind(ops: TensorBuilder, args: Arguments) -> tuple[RowTensor, ...]:
    x = read_rows(args, "self")
    axis = resolve_column_axis(args.get("dim", 0), x)
    return tuple(_select_columns(ops, x, axis, i) for i in range(x.shape[axis]))


def _convert_index_select(ops: TensorBuilder, args: Arguments) -> RowTensor:
    x, index = read_rows(args, "self"), args["index"]
    if isinstance(index, RowTensor) or np.ndim(index) != 1:
        raise Unsupported("a selection of columns that depends on the rows")
    axis = resolve_column_axis(args["dim"], x)
    return _select_columns(ops, x, axis, [resolve_axis(int(i), x.shape[axis]) for i in index])


def _convert_view(ops: TensorBuilder, args: Arguments) -> Tensor:
    shape = args.get("size", args.get("shape"))
    if not isinstance(args["self"], RowTensor) and all(type(d) is int for d in shape):
        return cast(Array, np.reshape(args["self"], shape))
    x = read_rows(args, "self")
    if not isinstance(shape, list) or not shape:
        raise Unsupported("a view without a list of lengths")
    inner = shape[1:]
    if any(type(length) is not int or length < -1 for length in inner):
        raise Unsupported("a view whose width depends on the rows")
    # A view (-1, ...) keeps the rows if the other lengths multiply to the length of a row.
    if shape[0] not in ("rows", -1) or (shape[0] == -1 and -1 in inner):
        raise Unsupported("a view with a fixed number of rows")
    return RowTensor(x.value, fill_shape(inner, math.prod(x.inner)))


def _convert_flatten(ops: TensorBuilder, args: Arguments) -> RowTensor:
    x = read_rows(args, "self")
    if x.rank == 1:
        return x
    start = resolve_column_axis(args.get("start_dim", 0), x)
    end = resolve_axis(args.get("end_dim", -1), x.rank)
    width = math.prod(x.shape[start : end + 1])
    return RowTensor(x.value, (*x.shape[1:start], width, *x.shape[end + 1 :]))


def _convert_squeeze(ops: TensorBuilder, args: Arguments) -> RowTensor:
    x = read_rows(args, "self")
    dims = args.get("dim")
    if dims is None:
        reason = "squeeze of all axes, which drops the row axis of a single row; name the axis"
        raise Unsupported(reason)
    dropped = {resolve_column_axis(d, x) for d in (dims if isinstance(dims, list) else [dims])}
    return RowTensor(
        x.value, tuple(d for i, d in enumerate(x.inner, 1) if i not in dropped or d != 1)
    )


def _insert_axis(x: RowTensor, dim: Any) -> RowTensor:
    axis = resolve_axis(dim, x.rank + 1)
    if axis == 0:
        raise Unsupported("it inserts an axis before the rows")
    return RowTensor(x.value, (*x.inner[: axis - 1], 1, *x.inner[axis - 1 :]))


def _convert_size(ops: TensorBuilder, args: Arguments) -> Any:
    x = read_rows(args, "self")
    size = x.shape[resolve_axis(args["dim"], x.rank)]
    return "rows" if size == ROWS else size


DROPOUTS = frozenset(f"aten.{op}.default" for op in ("dropout", "alpha_dropout", "feature_dropout"))
"""The dropout operators. In eval mode, each returns its input itself instead of a copy."""

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


def _convert_clamp(ops: TensorBuilder, args: Arguments) -> RowTensor:
    x = read_rows(args, "self")
    for op, bound in (("maximum", args.get("min")), ("minimum", args.get("max"))):
        x = x if bound is None else ops.elementwise(op, x, bound)
    return x


def _convert_hardtanh(ops: TensorBuilder, args: Arguments) -> RowTensor:
    low, high = args.get("min_val", -1.0), args.get("max_val", 1.0)
    return _convert_clamp(ops, {"self": args["self"], "min": low, "max": high})


def _convert_relu6(ops: TensorBuilder, args: Arguments) -> RowTensor:
    return _convert_clamp(ops, {"self": args["self"], "min": 0, "max": 6})


def _convert_hardsigmoid(ops: TensorBuilder, args: Arguments) -> RowTensor:
    shifted = ops.elementwise("add", read_rows(args, "self"), 3.0)
    return ops.elementwise("div", _convert_relu6(ops, {"self": shifted}), 6.0)


def _convert_hardswish(ops: TensorBuilder, args: Arguments) -> RowTensor:
    x = read_rows(args, "self")
    shifted = _convert_relu6(ops, {"self": ops.elementwise("add", x, 3.0)})
    return ops.elementwise("div", ops.elementwise("mul", x, shifted), 6.0)


def _convert_leaky_relu(ops: TensorBuilder, args: Arguments) -> RowTensor:
    x = read_rows(args, "self")
    negative_part = ops.elementwise("mul", x, args.get("negative_slope", 0.01))
    return ops.where(ops.elementwise("gt", x, 0), x, negative_part)


def _convert_prelu(ops: TensorBuilder, args: Arguments) -> RowTensor:
    x, weight = read_rows(args, "self"), cast(Array, read_constant(args, "weight"))
    if weight.size > 1 and weight.ndim == 1 and x.rank != 2:
        raise Unsupported("a slope per channel of a tensor with several column axes")
    negative_part = ops.elementwise("mul", x, weight)
    return ops.where(ops.elementwise("gt", x, 0), x, negative_part)


def _convert_elu(ops: TensorBuilder, args: Arguments) -> RowTensor:
    x, alpha, scale = read_rows(args, "self"), args.get("alpha", 1), args.get("scale", 1)
    exponential = ops.unary("expm1", ops.elementwise("mul", x, args.get("input_scale", 1)))
    positive_part = ops.elementwise("mul", x, scale)
    negative_part = ops.elementwise("mul", exponential, alpha * scale)
    return ops.where(ops.elementwise("gt", x, 0), positive_part, negative_part)


def _convert_celu(ops: TensorBuilder, args: Arguments) -> RowTensor:
    return _convert_elu(ops, {"alpha": 1.0, **args, "input_scale": 1 / args.get("alpha", 1.0)})


_SELU = {"alpha": 1.6732632423543772848170429916717, "scale": 1.0507009873554804934193349852946}


def _convert_softplus(ops: TensorBuilder, args: Arguments) -> RowTensor:
    x, beta, threshold = read_rows(args, "self"), args.get("beta", 1), args.get("threshold", 20)
    scaled = ops.elementwise("mul", x, beta)
    softplus = ops.elementwise("div", ops.unary("log1p", ops.unary("exp", scaled)), float(beta))
    return ops.where(ops.elementwise("gt", scaled, threshold), x, softplus)


def _convert_log_sigmoid(ops: TensorBuilder, args: Arguments) -> RowTensor:
    x = read_rows(args, "self")
    magnitude = ops.elementwise("maximum", x, ops.op("neg", x))
    exponential = ops.unary("exp", ops.elementwise("mul", magnitude, -1))
    negative_part = ops.elementwise("minimum", x, 0)
    return ops.elementwise("sub", negative_part, ops.unary("log1p", exponential))


def _convert_mish(ops: TensorBuilder, args: Arguments) -> RowTensor:
    x = read_rows(args, "self")
    # exp overflows for large x, where log1p(exp(x)) rounds to x.
    softplus = ops.where(ops.elementwise("gt", x, 80), x, ops.unary("log1p", ops.unary("exp", x)))
    return ops.elementwise("mul", x, ops.unary("tanh", softplus))


def _convert_gelu(ops: TensorBuilder, args: Arguments) -> RowTensor:
    x = read_rows(args, "self")
    if args.get("approximate", "none") == "none":
        return ops.elementwise("mul", x, ops.unary("ndtr", x))
    cube = ops.elementwise("mul", ops.elementwise("mul", x, x), x)
    inner = ops.elementwise("add", x, ops.elementwise("mul", cube, 0.044715))
    tanh = ops.unary("tanh", ops.elementwise("mul", inner, math.sqrt(2 / math.pi)))
    return ops.elementwise("mul", ops.elementwise("mul", x, 0.5), ops.elementwise("add", tanh, 1.0))


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


def _read_softmax_input(ops: TensorBuilder, args: Arguments) -> RowTensor:
    """Return the input of a softmax over the columns, in floating point; reject other axes."""
    x = ops.to_floating(read_rows(args, "self"))
    if resolve_column_axis(args["dim"], x) != 1 or x.rank != 2:
        raise Unsupported("a softmax over more than one column axis")
    if args.get("dtype") is not None:
        raise Unsupported("a softmax that changes the dtype")
    return x


def _convert_softmax(ops: TensorBuilder, args: Arguments) -> RowTensor:
    x = _read_softmax_input(ops, args)
    return ops.op("softmax", x, sum_dtype=x.dtype)


def _convert_log_softmax(ops: TensorBuilder, args: Arguments) -> RowTensor:
    x = _read_softmax_input(ops, args)
    shifted = ops.elementwise("sub", x, ops.reduce("max", x, [1]))
    total = ops.reduce("sum", ops.unary("exp", shifted), [1])
    return ops.elementwise("sub", shifted, ops.unary("log", total))


def _multiply_with_bias(
    ops: TensorBuilder, x: RowTensor, weights: Array, bias: Array | None
) -> RowTensor:
    """Build x @ weights + bias for x (n, k) and weights (k, w); `bias` is (w,), (1,) or None."""
    if bias is None:
        return apply_linear(ops.b, x, weights)
    if bias.size not in (1, weights.shape[-1]) or bias.dtype != weights.dtype:
        raise Unsupported("a bias that does not have a number per column")
    return apply_linear(ops.b, x, weights, np.broadcast_to(bias.ravel(), weights.shape[-1:]))


def _convert_linear(ops: TensorBuilder, args: Arguments) -> RowTensor:
    weights = cast(Array, read_constant(args, "weight"))
    return _multiply_with_bias(
        ops, read_rows(args, "input"), weights.T, read_constant(args, "bias")
    )


def _make_matmul(rows_name: str, weights_name: str) -> Rule:
    """Make a rule that multiplies argument `rows_name` by argument `weights_name`, a constant."""

    def rule(ops: TensorBuilder, args: Arguments) -> RowTensor:
        x, weights = read_rows(args, rows_name), cast(Array, read_constant(args, weights_name))
        if weights.ndim == 1:
            return RowTensor(apply_linear(ops.b, x, weights[:, None]).value, ())
        return apply_linear(ops.b, x, weights)

    return rule


def _convert_addmm(ops: TensorBuilder, args: Arguments) -> RowTensor:
    if args.get("beta", 1) != 1 or args.get("alpha", 1) != 1:
        raise Unsupported("addmm with factors")
    bias = read_constant(args, "self")
    return _multiply_with_bias(
        ops, read_rows(args, "mat1"), cast(Array, read_constant(args, "mat2")), bias
    )


def _convert_batch_norm(ops: TensorBuilder, args: Arguments) -> RowTensor:
    x = read_rows(args, "input")
    mean, variance = read_constant(args, "running_mean"), read_constant(args, "running_var")
    if args.get("training") or mean is None or variance is None or x.rank != 2:
        reason = "batch normalization with statistics of the batch; call eval() before exporting"
        raise Unsupported(reason)
    # Like torch on the CPU, compute a factor and an offset per column, but in float64.
    weight, bias = read_constant(args, "weight"), read_constant(args, "bias")
    factor = 1 / np.sqrt(variance.astype(np.float64) + args["eps"])
    factor = factor if weight is None else factor * weight
    offset = -mean * factor if bias is None else bias - mean * factor
    scaled = ops.elementwise("mul", x, factor.astype(x.dtype))
    return ops.elementwise("add", scaled, offset.astype(x.dtype))


def _convert_layer_norm(ops: TensorBuilder, args: Arguments) -> RowTensor:
    x = read_rows(args, "input")
    shape = args["normalized_shape"]
    if x.rank != 2 or len(shape) != 1:
        raise Unsupported("layer normalization over more than the columns")
    double, width = ops.cast(x, "float64"), float(shape[0])
    mean = ops.elementwise("div", ops.reduce("sum", double, [1]), width)
    centered = ops.elementwise("sub", double, mean)
    squares = ops.reduce("sum", ops.elementwise("mul", centered, centered), [1])
    variance = ops.elementwise("add", ops.elementwise("div", squares, width), args.get("eps", 1e-5))
    normalized = ops.elementwise("div", centered, ops.unary("sqrt", variance))
    for op, name in (("mul", "weight"), ("add", "bias")):
        array = read_constant(args, name)
        if array is not None:
            normalized = ops.elementwise(op, normalized, array.astype(np.float64))
    return ops.cast(normalized, x.dtype)


def _convert_embedding(ops: TensorBuilder, args: Arguments) -> RowTensor:
    table, x = cast(Array, read_constant(args, "weight")), read_rows(args, "indices")
    if table.ndim != 2 or not table.shape[0] or x.rank > 2:
        raise Unsupported("an embedding of tensors with several axes")
    # torch rejects an index that is too large, so it becomes -1, which `_require_codes` rejects.
    codes = ops.where(ops.elementwise("lt", x, table.shape[0]), x, -1).value
    codes = _require_codes(ops, x, codes, table.shape[0])
    inner = (*x.inner, table.shape[1])
    vectors = ops.b.op("take", ops.b.constant(table), codes)  # (n, k, width)
    return RowTensor(ops.b.op("reshape", vectors, shape=(math.prod(inner),)), inner)


def _require_codes(ops: TensorBuilder, x: RowTensor, codes: Value, size: int) -> Value:
    """Return `codes` (n, k) with a check for -1, whose error names the input column of `x`."""
    step = f"{EMBEDDING} (0 to {size - 1})"
    names = _find_input_columns(ops.b, x.value)
    if len(names) < 2:
        feature = names[0] if names else "index"
        return ops.b.op("require_known", codes, feature=feature, step=step)
    columns = []
    for i, name in enumerate(names):
        column = ops.b.op("select", codes, indices=np.array([i], np.int64))
        columns.append(ops.b.op("require_known", column, feature=name, step=step))
    return ops.b.op("concat", *columns)


def _find_input_columns(builder: Builder, value: Value, depth: int = 20) -> list[str]:
    """Return, for each column of `value`, the name of the input column that it depends on.

    Return [] if a column depends on several input columns, or if the search passes `depth`
    operators without reaching an input.
    """
    node = builder.node(value)
    inputs = [builder.value(i) for i in node.inputs]
    if node.op == "input":
        return [str(node.attrs["name"])] * value.type.width
    if not depth or node.op not in _COLUMNWISE:
        return []
    names = [_find_input_columns(builder, v, depth - 1) for v in inputs]
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
