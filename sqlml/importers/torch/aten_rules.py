"""Rules that convert aten operators: layout, activations, products, normalization, embeddings.

A rule takes a TensorBuilder `ops` and the named arguments of a call. It returns the call's result.
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


def _convert_dropout(ops: TensorBuilder, arguments: Arguments) -> Tensor:
    if arguments["train"]:
        raise Unsupported("a dropout that is active; call eval() before exporting")
    return cast(Tensor, arguments["input"])


def _convert_to(ops: TensorBuilder, arguments: Arguments) -> Tensor:
    x, dtype = arguments["self"], arguments.get("dtype")
    if not isinstance(dtype, DTypeArg):
        return cast(Tensor, x)
    if dtype.name not in ("bool", "int8", "int16", "int32", "int64", "float32", "float64"):
        raise Unsupported(f"numbers of dtype {dtype.name}")
    if isinstance(x, RowTensor):
        return ops.cast(x, cast(DType, dtype.name))
    return np.asarray(x).astype(dtype.name)


def _convert_permute(ops: TensorBuilder, arguments: Arguments) -> Tensor:
    x, dims = arguments["self"], arguments.get("dims")
    if not isinstance(x, RowTensor):
        return np.transpose(x, dims)
    order = [resolve_axis(dim, x.rank) for dim in dims or range(x.rank)[::-1]]
    if order[0] != 0:
        raise Unsupported("a permutation that turns rows into columns")
    return apply_to_columns(ops.builder, x, lambda grid: np.transpose(grid, order))


def _convert_transpose(ops: TensorBuilder, arguments: Arguments) -> Tensor:
    x = arguments["self"]
    dims = list(range(x.rank if isinstance(x, RowTensor) else np.ndim(x)))
    axis0, axis1 = (resolve_axis(arguments[name], len(dims)) for name in ("dim0", "dim1"))
    dims[axis0], dims[axis1] = axis1, axis0
    return _convert_permute(ops, {"self": x, "dims": dims})


def _require_rows(tensors: Any) -> list[RowTensor]:
    """Return the tensors to concatenate; all must be RowTensors of one dtype and rank."""
    if not tensors or not all(isinstance(tensor, RowTensor) for tensor in tensors):
        raise Unsupported("a concatenation of rows and constants")
    if len({(tensor.dtype, tensor.rank) for tensor in tensors}) > 1:
        raise Unsupported("a concatenation of different dtypes or ranks")
    return list(tensors)


def _convert_cat(ops: TensorBuilder, arguments: Arguments) -> RowTensor:
    tensors = _require_rows(arguments["tensors"])
    axis = resolve_column_axis(arguments.get("dim", 0), tensors[0])
    return concatenate_tensors(ops.builder, tensors, axis)


def _convert_stack(ops: TensorBuilder, arguments: Arguments) -> RowTensor:
    dim = arguments.get("dim", 0)
    tensors = [_insert_axis(tensor, dim) for tensor in _require_rows(arguments["tensors"])]
    return concatenate_tensors(ops.builder, tensors, resolve_axis(dim, tensors[0].rank))


def _select_columns(ops: TensorBuilder, x: RowTensor, axis: int, selection: Any) -> RowTensor:
    """Select a slice, a list of indices, or a single index, which removes the axis."""
    return apply_to_columns(ops.builder, x, lambda grid: grid[(slice(None),) * axis + (selection,)])


def _convert_slice(ops: TensorBuilder, arguments: Arguments) -> RowTensor:
    x = read_rows(arguments)
    start, end, step = arguments.get("start") or 0, arguments.get("end"), arguments.get("step", 1)
    axis = resolve_axis(arguments.get("dim", 0), x.rank)
    if not all(bound is None or type(bound) is int for bound in (start, end, step)) or step < 1:
        raise Unsupported("a slice whose bounds depend on the rows")
    if axis == 0:
        if start == 0 and step == 1 and (end is None or end >= 1 << 62):
            return x
        raise Unsupported("a selection of rows")
    return _select_columns(ops, x, axis, slice(start, end, step))


def _convert_select(ops: TensorBuilder, arguments: Arguments) -> RowTensor:
    x = read_rows(arguments)
    axis = resolve_column_axis(arguments["dim"], x)
    return _select_columns(ops, x, axis, resolve_axis(arguments["index"], x.shape[axis]))


def _convert_split(ops: TensorBuilder, arguments: Arguments) -> tuple[RowTensor, ...]:
    x = read_rows(arguments)
    axis = resolve_column_axis(arguments.get("dim", 0), x)
    length = x.shape[axis]
    size = arguments.get("split_sizes", arguments.get("split_size"))
    if "chunks" in arguments:
        size = -(-length // arguments["chunks"])
    ends = [*range(size, length, size), length] if isinstance(size, int) else np.cumsum(size)
    bounds = np.array([0, *ends]).tolist()
    return tuple(_select_columns(ops, x, axis, slice(*pair)) for pair in pairwise(bounds))


def _convert_unbind(ops: TensorBuilder, arguments: Arguments) -> tuple[RowTensor, ...]:
    x = read_rows(arguments)
    axis = resolve_column_axis(arguments.get("dim", 0), x)
    return tuple(_select_columns(ops, x, axis, i) for i in range(x.shape[axis]))


def _convert_index_select(ops: TensorBuilder, arguments: Arguments) -> RowTensor:
    x, index = read_rows(arguments), arguments["index"]
    if isinstance(index, RowTensor) or np.ndim(index) != 1:
        raise Unsupported("a selection of columns that depends on the rows")
    axis = resolve_column_axis(arguments["dim"], x)
    return _select_columns(ops, x, axis, [resolve_axis(int(i), x.shape[axis]) for i in index])


def _convert_view(ops: TensorBuilder, arguments: Arguments) -> Tensor:
    shape = arguments.get("size", arguments.get("shape"))
    if not isinstance(arguments["self"], RowTensor) and all(type(size) is int for size in shape):
        return cast(Array, np.reshape(arguments["self"], shape))
    x = read_rows(arguments)
    if not isinstance(shape, list) or not shape:
        raise Unsupported("a view without a list of lengths")
    inner = shape[1:]
    if any(type(size) is not int or size < -1 for size in inner):
        raise Unsupported("a view whose width depends on the rows")
    # A view of shape (-1, ...) keeps the rows if the later sizes multiply to the size of a row.
    if shape[0] not in ("rows", -1) or (shape[0] == -1 and -1 in inner):
        raise Unsupported("a view with a fixed number of rows")
    return RowTensor(x.value, fill_shape(inner, math.prod(x.inner)))


def _convert_flatten(ops: TensorBuilder, arguments: Arguments) -> RowTensor:
    x = read_rows(arguments)
    if x.rank == 1:
        return x
    first_axis = resolve_column_axis(arguments.get("start_dim", 0), x)
    last_axis = resolve_axis(arguments.get("end_dim", -1), x.rank)
    size = math.prod(x.shape[first_axis : last_axis + 1])
    return RowTensor(x.value, (*x.shape[1:first_axis], size, *x.shape[last_axis + 1 :]))


def _convert_squeeze(ops: TensorBuilder, arguments: Arguments) -> RowTensor:
    x = read_rows(arguments)
    dims = arguments.get("dim")
    if dims is None:
        reason = "squeeze of all axes, which drops the row axis of a single row; name the axis"
        raise Unsupported(reason)
    axes = {resolve_column_axis(dim, x) for dim in (dims if isinstance(dims, list) else [dims])}
    inner = [size for axis, size in enumerate(x.inner, 1) if axis not in axes or size != 1]
    return RowTensor(x.value, tuple(inner))


def _insert_axis(x: RowTensor, dim: Any) -> RowTensor:
    axis = resolve_axis(dim, x.rank + 1)
    if axis == 0:
        raise Unsupported("it inserts an axis before the rows")
    return RowTensor(x.value, (*x.inner[: axis - 1], 1, *x.inner[axis - 1 :]))


def _convert_size(ops: TensorBuilder, arguments: Arguments) -> Any:
    x = read_rows(arguments)
    size = x.shape[resolve_axis(arguments["dim"], x.rank)]
    return "rows" if size == ROWS else size


DROPOUTS = frozenset(f"aten.{op}.default" for op in ("dropout", "alpha_dropout", "feature_dropout"))
"""The dropout operators. In eval mode, a dropout returns the input tensor instead of a copy."""

_COPIES = ("clone", "contiguous", "alias", "detach", "detach_", "lift_fresh_copy")
_ASSERTIONS = ("aten._assert_tensor_metadata.default", "aten._assert_scalar.default")
_SPLITS = ("chunk.default", "split.Tensor", "split_with_sizes.default")

LAYOUT: Mapping[str, Rule] = {
    **dict.fromkeys(sorted(DROPOUTS), _convert_dropout),
    **{f"aten.{name}.default": lambda ops, arguments: arguments["self"] for name in _COPIES},
    **dict.fromkeys(_ASSERTIONS, lambda ops, arguments: None),
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
    "aten.unsqueeze.default": lambda ops, arguments: _insert_axis(
        read_rows(arguments), arguments["dim"]
    ),
}
"""Rules for operators whose results may share memory with their inputs.

`aten_graph.py` imports an in-place operator only if no such result can see the change.
"""


def _convert_clamp(ops: TensorBuilder, arguments: Arguments) -> RowTensor:
    x = read_rows(arguments)
    for op, bound in (("maximum", arguments.get("min")), ("minimum", arguments.get("max"))):
        x = x if bound is None else ops.elementwise(op, x, bound)
    return x


def _convert_hardtanh(ops: TensorBuilder, arguments: Arguments) -> RowTensor:
    low, high = arguments.get("min_val", -1.0), arguments.get("max_val", 1.0)
    return _convert_clamp(ops, {"self": arguments["self"], "min": low, "max": high})


def _convert_relu6(ops: TensorBuilder, arguments: Arguments) -> RowTensor:
    return _convert_clamp(ops, {"self": arguments["self"], "min": 0, "max": 6})


def _convert_hardsigmoid(ops: TensorBuilder, arguments: Arguments) -> RowTensor:
    shifted = ops.elementwise("add", read_rows(arguments), 3.0)
    return ops.elementwise("div", _convert_relu6(ops, {"self": shifted}), 6.0)


def _convert_hardswish(ops: TensorBuilder, arguments: Arguments) -> RowTensor:
    x = read_rows(arguments)
    gate = _convert_relu6(ops, {"self": ops.elementwise("add", x, 3.0)})
    return ops.elementwise("div", ops.elementwise("mul", x, gate), 6.0)


def _convert_leaky_relu(ops: TensorBuilder, arguments: Arguments) -> RowTensor:
    x = read_rows(arguments)
    negative_part = ops.elementwise("mul", x, arguments.get("negative_slope", 0.01))
    return ops.where(ops.elementwise("gt", x, 0), x, negative_part)


def _convert_prelu(ops: TensorBuilder, arguments: Arguments) -> RowTensor:
    x, weight = read_rows(arguments), cast(Array, read_constant(arguments, "weight"))
    if weight.size > 1 and weight.ndim == 1 and x.rank != 2:
        raise Unsupported("a slope per channel of a tensor with several column axes")
    return ops.where(ops.elementwise("gt", x, 0), x, ops.elementwise("mul", x, weight))


def _convert_elu(ops: TensorBuilder, arguments: Arguments) -> RowTensor:
    x = read_rows(arguments)
    alpha, scale = arguments.get("alpha", 1), arguments.get("scale", 1)
    expm1_x = ops.unary("expm1", ops.elementwise("mul", x, arguments.get("input_scale", 1)))
    positive_part = ops.elementwise("mul", x, scale)
    negative_part = ops.elementwise("mul", expm1_x, alpha * scale)
    return ops.where(ops.elementwise("gt", x, 0), positive_part, negative_part)


def _convert_celu(ops: TensorBuilder, arguments: Arguments) -> RowTensor:
    alpha = arguments.get("alpha", 1.0)
    return _convert_elu(ops, {**arguments, "alpha": alpha, "input_scale": 1 / alpha})


_SELU = {"alpha": 1.6732632423543772848170429916717, "scale": 1.0507009873554804934193349852946}


def _convert_softplus(ops: TensorBuilder, arguments: Arguments) -> RowTensor:
    x = read_rows(arguments)
    beta, threshold = arguments.get("beta", 1), arguments.get("threshold", 20)
    scaled_x = ops.elementwise("mul", x, beta)
    softplus = ops.elementwise("div", ops.unary("log1p", ops.unary("exp", scaled_x)), float(beta))
    return ops.where(ops.elementwise("gt", scaled_x, threshold), x, softplus)


def _convert_log_sigmoid(ops: TensorBuilder, arguments: Arguments) -> RowTensor:
    x = read_rows(arguments)
    magnitude = ops.elementwise("maximum", x, ops.op("neg", x))
    exp_magnitude = ops.unary("exp", ops.elementwise("mul", magnitude, -1))
    negative_part = ops.elementwise("minimum", x, 0)
    return ops.elementwise("sub", negative_part, ops.unary("log1p", exp_magnitude))


def _convert_mish(ops: TensorBuilder, arguments: Arguments) -> RowTensor:
    x = read_rows(arguments)
    # exp overflows for large x, where log1p(exp(x)) rounds to x.
    softplus = ops.where(ops.elementwise("gt", x, 80), x, ops.unary("log1p", ops.unary("exp", x)))
    return ops.elementwise("mul", x, ops.unary("tanh", softplus))


def _convert_gelu(ops: TensorBuilder, arguments: Arguments) -> RowTensor:
    x = read_rows(arguments)
    if arguments.get("approximate", "none") == "none":
        return ops.elementwise("mul", x, ops.unary("ndtr", x))
    cube = ops.elementwise("mul", ops.elementwise("mul", x, x), x)
    inner = ops.elementwise("add", x, ops.elementwise("mul", cube, 0.044715))
    tanh = ops.unary("tanh", ops.elementwise("mul", inner, math.sqrt(2 / math.pi)))
    return ops.elementwise("mul", ops.elementwise("mul", x, 0.5), ops.elementwise("add", tanh, 1.0))


ACTIVATIONS: Mapping[str, Rule] = {
    "aten.relu.default": lambda ops, arguments: ops.elementwise("maximum", read_rows(arguments), 0),
    "aten.relu6.default": _convert_relu6,
    **{f"aten.{name}.default": _convert_clamp for name in ("clamp", "clamp_min", "clamp_max")},
    "aten.hardtanh.default": _convert_hardtanh,
    "aten.hardsigmoid.default": _convert_hardsigmoid,
    "aten.hardswish.default": _convert_hardswish,
    "aten.leaky_relu.default": _convert_leaky_relu,
    **{f"aten.{name}.default": _convert_prelu for name in ("prelu", "_prelu_kernel")},
    "aten.elu.default": _convert_elu,
    "aten.selu.default": lambda ops, arguments: _convert_elu(ops, {**arguments, **_SELU}),
    "aten.celu.default": _convert_celu,
    "aten.silu.default": lambda ops, arguments: ops.elementwise(
        "mul", arguments["self"], ops.unary("sigmoid", arguments["self"])
    ),
    "aten.softplus.default": _convert_softplus,
    **{f"aten.{op}.default": _convert_log_sigmoid for op in ("log_sigmoid", "log_sigmoid_forward")},
    "aten.mish.default": _convert_mish,
    "aten.gelu.default": _convert_gelu,
}


def _read_softmax_input(ops: TensorBuilder, arguments: Arguments) -> RowTensor:
    x = ops.to_floating(read_rows(arguments))
    if resolve_column_axis(arguments["dim"], x) != 1 or x.rank != 2:
        raise Unsupported("a softmax over more than one column axis")
    if arguments.get("dtype") is not None:
        raise Unsupported("a softmax that changes the dtype")
    return x


def _convert_softmax(ops: TensorBuilder, arguments: Arguments) -> RowTensor:
    x = _read_softmax_input(ops, arguments)
    return ops.op("softmax", x, sum_dtype=x.dtype)


def _convert_log_softmax(ops: TensorBuilder, arguments: Arguments) -> RowTensor:
    x = _read_softmax_input(ops, arguments)
    shifted = ops.elementwise("sub", x, ops.reduce("max", x, [1]))
    exp_sum = ops.reduce("sum", ops.unary("exp", shifted), [1])
    return ops.elementwise("sub", shifted, ops.unary("log", exp_sum))


def _multiply_with_bias(
    ops: TensorBuilder, x: RowTensor, weights: Array, bias: Array | None
) -> RowTensor:
    if bias is None:
        return apply_linear(ops.builder, x, weights)
    if bias.size not in (1, weights.shape[-1]) or bias.dtype != weights.dtype:
        raise Unsupported("a bias that does not have a number per column")
    return apply_linear(ops.builder, x, weights, np.broadcast_to(bias.ravel(), weights.shape[-1:]))


def _convert_linear(ops: TensorBuilder, arguments: Arguments) -> RowTensor:
    weights = cast(Array, read_constant(arguments, "weight"))
    x, bias = read_rows(arguments, "input"), read_constant(arguments, "bias")
    return _multiply_with_bias(ops, x, weights.T, bias)


def _make_matmul(rows_name: str, weights_name: str) -> Rule:
    def convert(ops: TensorBuilder, arguments: Arguments) -> RowTensor:
        x = read_rows(arguments, rows_name)
        weights = cast(Array, read_constant(arguments, weights_name))
        if weights.ndim == 1:
            return RowTensor(apply_linear(ops.builder, x, weights[:, None]).value, ())
        return apply_linear(ops.builder, x, weights)

    return convert


def _convert_addmm(ops: TensorBuilder, arguments: Arguments) -> RowTensor:
    if arguments.get("beta", 1) != 1 or arguments.get("alpha", 1) != 1:
        raise Unsupported("addmm with factors")
    bias = read_constant(arguments, "self")
    return _multiply_with_bias(
        ops, read_rows(arguments, "mat1"), cast(Array, read_constant(arguments, "mat2")), bias
    )


def _convert_batch_norm(ops: TensorBuilder, arguments: Arguments) -> RowTensor:
    x = read_rows(arguments, "input")
    mean = read_constant(arguments, "running_mean")
    variance = read_constant(arguments, "running_var")
    if arguments.get("training") or mean is None or variance is None or x.rank != 2:
        reason = "batch normalization with statistics of the batch; call eval() before exporting"
        raise Unsupported(reason)
    # Like torch on the CPU, compute a factor and an offset per column, but in float64.
    weight, bias = read_constant(arguments, "weight"), read_constant(arguments, "bias")
    factor = 1 / np.sqrt(variance.astype(np.float64) + arguments["eps"])
    factor = factor if weight is None else factor * weight
    offset = -mean * factor if bias is None else bias - mean * factor
    scaled = ops.elementwise("mul", x, factor.astype(x.dtype))
    return ops.elementwise("add", scaled, offset.astype(x.dtype))


def _convert_layer_norm(ops: TensorBuilder, arguments: Arguments) -> RowTensor:
    x = read_rows(arguments, "input")
    shape = arguments["normalized_shape"]
    if x.rank != 2 or len(shape) != 1:
        raise Unsupported("layer normalization over more than the columns")
    x_float64, width = ops.cast(x, "float64"), float(shape[0])
    mean = ops.elementwise("div", ops.reduce("sum", x_float64, [1]), width)
    centered = ops.elementwise("sub", x_float64, mean)
    square_sum = ops.reduce("sum", ops.elementwise("mul", centered, centered), [1])
    variance = ops.elementwise("div", square_sum, width)
    variance = ops.elementwise("add", variance, arguments.get("eps", 1e-5))
    result = ops.elementwise("div", centered, ops.unary("sqrt", variance))
    for op, name in (("mul", "weight"), ("add", "bias")):
        constant = read_constant(arguments, name)
        if constant is not None:
            result = ops.elementwise(op, result, constant.astype(np.float64))
    return ops.cast(result, x.dtype)


def _convert_embedding(ops: TensorBuilder, arguments: Arguments) -> RowTensor:
    table, x = cast(Array, read_constant(arguments, "weight")), read_rows(arguments, "indices")
    if table.ndim != 2 or not table.shape[0] or x.rank > 2:
        raise Unsupported("an embedding of tensors with several axes")
    # torch rejects an index that is too large. Here, the index becomes -1 and is rejected below.
    codes = ops.where(ops.elementwise("lt", x, table.shape[0]), x, -1).value
    codes = _reject_unknown_codes(ops, x, codes, table.shape[0])
    inner = (*x.inner, table.shape[1])
    vectors = ops.builder.op("take", ops.builder.constant(table), codes)  # (n, k, width)
    return RowTensor(ops.builder.op("reshape", vectors, shape=(math.prod(inner),)), inner)


def _reject_unknown_codes(ops: TensorBuilder, x: RowTensor, codes: Value, size: int) -> Value:
    """Return `codes` (n, k), checked for -1; the error message names the input column of `x`."""
    builder, step_description = ops.builder, f"{EMBEDDING} (0 to {size - 1})"
    column_names = _find_input_columns(builder, x.value)
    if len(column_names) < 2:
        feature = column_names[0] if column_names else "index"
        return builder.op("require_known", codes, feature=feature, step=step_description)
    columns = []
    for i, name in enumerate(column_names):
        column = builder.op("select", codes, indices=np.array([i], np.int64))
        columns.append(builder.op("require_known", column, feature=name, step=step_description))
    return builder.op("concat", *columns)


def _find_input_columns(builder: Builder, value: Value, max_depth: int = 20) -> list[str]:
    """Return the name of the input column behind each column of `value`.

    Return an empty list if a column depends on several input columns, or if more than `max_depth`
    operators lie between `value` and an input.
    """
    node = builder.node(value)
    if node.op == "input":
        return [str(node.attrs["name"])] * value.type.width
    if not max_depth or node.op not in _COLUMNWISE:
        return []
    operands = [builder.value(i) for i in node.inputs]
    names_by_operand = [_find_input_columns(builder, v, max_depth - 1) for v in operands]
    if not all(names_by_operand):
        return []
    if node.op == "select":
        return [names_by_operand[0][i] for i in node.attrs["indices"]]
    return [name for names in names_by_operand for name in names]


_COLUMNWISE = frozenset(("cast", "concat", "require_finite", "select", "trunc"))
"""Operators that compute each output column from a single input column."""


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
