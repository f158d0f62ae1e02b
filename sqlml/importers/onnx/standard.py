"""Convert the arithmetic of ai.onnx: elementwise operators, reductions and matrix products."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from sqlml.importers.onnx.document import DTYPES
from sqlml.importers.onnx.estimators import build_argmax
from sqlml.importers.onnx.graph_items import (
    NOT_FIRST,
    Call,
    Choice,
    Const,
    Item,
    Stack,
    align,
    apply_elementwise,
)
from sqlml.importers.onnx.labels import cast_labels
from sqlml.importers.row_tensors import RowTensor, Unsupported, apply_linear, reduce_axes
from sqlml.ir.builder import Value
from sqlml.types import FLOATS, INTEGERS, Array

Function = Callable[[Call], Item]

MAX_FACTORS = 64
"""The maximum number of columns of a ReduceProd, which becomes a chain of multiplications."""


def _make_unary(op: str, read_input: Callable[[Call, int], RowTensor] = Call.rows) -> Function:
    """Make a converter to the unary operator `op`; `read_input` rejects unsupported dtypes."""

    def convert(call: Call) -> Item:
        x = read_input(call, 0)
        return RowTensor(call.op(op, x.value), x.inner)

    return convert


def _read_floats(call: Call, i: int) -> RowTensor:
    x = call.rows(i)
    if x.dtype not in FLOATS:
        raise Unsupported(f"it computes with {x.dtype}")
    return x


def _make_variadic(op: str) -> Function:
    """Make a converter that applies the binary operator `op` to the inputs from left to right."""

    def convert(call: Call) -> Item:
        operands, inner = align(call, [tensor for tensor in call.inputs if tensor is not None])
        result = operands[0]
        for operand in operands[1:]:
            result = call.op(op, result, operand)
        return RowTensor(result, inner)

    return convert


def _convert_add(call: Call) -> Item:
    """Convert Add; a constant that is added to a product of matrices is the bias of `linear`."""
    operands, inner = align(call, [call.item(0), call.item(1)])
    for product, addend in (operands, operands[::-1]):
        node, constant = call.builder.node(product), call.builder.node(addend)
        if node.op != "linear" or constant.op != "constant" or node.attrs["bias"].any():
            continue
        if constant.attrs["value"].size in (1, product.type.width):
            bias = np.broadcast_to(constant.attrs["value"], (product.type.width,))
            x, weights = call.builder.value(node.inputs[0]), node.attrs["weights"]
            return RowTensor(call.op("linear", x, weights=weights, bias=bias), inner)
    return RowTensor(call.op("add", *operands), inner)


def _convert_mean(call: Call) -> Item:
    total = _make_variadic("add")(call)
    assert isinstance(total, RowTensor)
    count = call.scalar(len(call.inputs), total.dtype)
    return RowTensor(call.op("div", total.value, count), total.inner)


def _convert_div(call: Call) -> Item:
    operands, inner = align(call)
    if operands[0].type.dtype not in FLOATS:
        raise Unsupported("it divides integers")
    return RowTensor(call.op("div", *operands), inner)


def _convert_pow(call: Call) -> Item:
    base = call.item(0)
    if isinstance(base, Const):
        return _convert_power_of_constant(call, base)
    x, exponent = _read_floats(call, 0), call.item(1)
    if isinstance(exponent, Const) and exponent.value.dtype.kind in "iuf":
        if exponent.value.size == 1 and exponent.value.item() == 2:
            return RowTensor(call.op("square", x.value), x.inner)
        exponent = Const(exponent.value.astype(x.dtype))
    return apply_elementwise(call, "pow", [x, exponent])


def _convert_power_of_constant(call: Call, base: Const) -> Item:
    (base_value, exponent), inner = align(call)
    dtype = base_value.type.dtype
    if dtype not in FLOATS:
        raise Unsupported(f"Pow of {dtype} is not supported")
    exponent = call.cast(exponent, dtype)
    if base.value.size == 1 and base.value.item() == 2:
        return RowTensor(call.op("exp2", exponent), inner)
    return RowTensor(call.op("pow", base_value, exponent), inner)


def _convert_reciprocal(call: Call) -> Item:
    x = _read_floats(call, 0)
    return RowTensor(call.op("div", call.scalar(1, x.dtype), x.value), x.inner)


def _convert_relu(call: Call) -> Item:
    x = call.rows(0)
    return RowTensor(call.op("maximum", x.value, call.scalar(0, x.dtype)), x.inner)


def _convert_leaky_relu(call: Call) -> Item:
    x = _read_floats(call, 0)
    slope = call.scalar(call.number("alpha", 0.01), x.dtype)
    is_negative = call.op("lt", x.value, call.scalar(0, x.dtype))
    result = call.op("where", is_negative, call.op("mul", x.value, slope), x.value)
    return RowTensor(result, x.inner)


def _convert_elu(call: Call) -> Item:
    x = _read_floats(call, 0)
    slope, zero = call.scalar(call.number("alpha", 1.0), x.dtype), call.scalar(0, x.dtype)
    negative_part = call.op("mul", slope, call.op("expm1", x.value))
    result = call.op("where", call.op("lt", x.value, zero), negative_part, x.value)
    return RowTensor(result, x.inner)


def _convert_softplus(call: Call) -> Item:
    x = _read_floats(call, 0)
    correction = call.op("log1p", call.op("exp", call.op("neg", call.op("abs", x.value))))
    positive_part = call.op("maximum", x.value, call.scalar(0, x.dtype))
    return RowTensor(call.op("add", positive_part, correction), x.inner)


def _convert_clip(call: Call) -> Item:
    x = call.rows(0)
    value = x.value
    if call.opset < 11:
        bounds = [call.attr("min"), call.attr("max")]
    else:
        bounds = [None if call.optional_item(i) is None else call.const(i) for i in (1, 2)]
    for op, bound in zip(("maximum", "minimum"), bounds, strict=True):
        if bound is not None:
            bound_array = np.asarray(bound)
            if bound_array.size != 1 or bound_array.dtype.kind not in "iuf":
                raise Unsupported("a bound is not a number")
            value = call.op(op, value, call.scalar(bound_array.item(), x.dtype))
    return RowTensor(value, x.inner)


def _convert_cast(call: Call) -> Item:
    dtype = DTYPES.get(call.integer("to", 0))
    tensor = call.item(0)
    if dtype is None:
        raise Unsupported("it converts to a type that sqlml does not support")
    if isinstance(tensor, Const):
        if dtype == "string" or tensor.value.dtype == object:
            raise Unsupported("it converts strings")
        return Const(tensor.value.astype(dtype))
    if isinstance(tensor, Choice):
        # Cast the possible values, not the numbers per row: a Choice can become the label.
        values = cast_labels(tensor.values, dtype)
        return Choice(tensor.index, values, tensor.inner, tensor.margins)
    x = call.rows(0)
    if dtype == "string":
        raise Unsupported("it converts numbers to strings")
    return RowTensor(call.cast(x.value, dtype), x.inner)


def _convert_softmax(call: Call) -> Item:
    x = _read_floats(call, 0)
    axis = call.integer("axis", -1 if call.opset >= 13 else 1)
    if len(x.inner) != 1 or axis not in (1, -1):
        raise Unsupported("its axis is not the columns")
    return RowTensor(call.op("softmax", x.value, sum_dtype=x.dtype), x.inner)


def _read_axes(call: Call, x: RowTensor) -> list[int]:
    """Return the sorted axes of a reduction of `x`, or an empty list for a no-op.

    Raises Unsupported if the reduction includes the row axis.
    """
    axes = sorted(set(call.axes(x.rank) or ()))
    if not axes and not call.integer("noop_with_empty_axes", 0):
        raise Unsupported("it reduces over the rows")
    if not all(0 < a < x.rank for a in axes):
        raise Unsupported("it reduces over the rows, or over an axis that does not exist")
    return axes


def _make_reduction(
    reduce_axis: Callable[[Call, Value, int], Value], ufunc: np.ufunc | None = None
) -> Function:
    """Make a converter from `reduce_axis`; `ufunc` reduces constants."""

    def convert(call: Call) -> Item:
        tensor = call.item(0)
        if isinstance(tensor, Const) and ufunc is not None:
            return _reduce_constant(call, tensor.value, ufunc)
        if isinstance(tensor, Stack):
            return _reduce_stack(call, tensor, partial(reduce_axis, call))
        x = call.rows(0)
        axes = _read_axes(call, x)
        keep = bool(call.integer("keepdims", 1))
        if not axes:
            return x
        return reduce_axes(call.builder, x, axes, partial(reduce_axis, call), keep=keep)

    return convert


def _reduce_constant(call: Call, value: Array, ufunc: np.ufunc) -> Const:
    axes = sorted(set(call.axes(value.ndim) or ()))
    if value.dtype.kind not in "iuf" or (not axes and call.integer("noop_with_empty_axes", 0)):
        raise Unsupported("it reduces strings, or nothing")
    keep = bool(call.integer("keepdims", 1))
    reduced = ufunc.reduce(value, tuple(axes) or None, value.dtype, keepdims=keep)
    return Const(np.asarray(reduced))


def _reduce_stack(call: Call, stack: Stack, reduce_axis: Callable[[Value, int], Value]) -> Item:
    """Reduce a Stack over all axes before the rows; these axes are dropped."""
    outer_axes = list(range(stack.outer_rank))
    axes = sorted(set(call.axes(stack.rows.rank) or ()))
    if stack.is_joined or axes != outer_axes or call.integer("keepdims", 1):
        raise Unsupported(NOT_FIRST)
    axes_of_rows = [axis + 1 for axis in axes]
    return reduce_axes(call.builder, stack.rows, axes_of_rows, reduce_axis, keep=False)


def _chain_operators(*ops: str) -> Callable[[Call, Value, int], Value]:
    """Make a function that applies `ops` in order, with the axis for operators in `_REDUCTIONS`."""

    def apply(call: Call, x: Value, axis: int) -> Value:
        for op in ops:
            x = call.op(op, x, axis=axis) if op in _REDUCTIONS else call.op(op, x)
        return x

    return apply


_REDUCTIONS = frozenset(("max", "min", "sum"))


def _build_mean(call: Call, x: Value, axis: int) -> Value:
    if x.type.dtype not in FLOATS:
        raise Unsupported("it averages integers")
    count = call.scalar(x.type.shape[axis], x.type.dtype)
    return call.op("div", call.op("sum", x, axis=axis), count)


def _build_log_sum_exp(call: Call, x: Value, axis: int) -> Value:
    max_value = call.op("max", x, axis=axis)
    # With an infinite maximum, inf - inf would give NaN.
    is_finite = call.op("lt", call.op("abs", max_value), call.scalar(np.inf, x.type.dtype))
    shift = call.op("where", is_finite, max_value, call.scalar(0, x.type.dtype))
    exp_sum = call.op("sum", call.op("exp", call.op("sub", x, shift)), axis=axis)
    return call.op("add", call.op("log", exp_sum), shift)


def _build_product(call: Call, x: Value, axis: int) -> Value:
    if axis != 1 or x.type.width > MAX_FACTORS:
        raise Unsupported(f"it does not multiply at most {MAX_FACTORS} columns")
    result = call.op("select", x, indices=np.zeros(1, np.int64))
    for i in range(1, x.type.width):
        result = call.op("mul", result, call.op("select", x, indices=np.array([i], np.int64)))
    return result


def _make_arg_extreme(sign: int) -> Function:
    """Make the converter for ArgMax if `sign` is 1, or for ArgMin if `sign` is -1."""

    def convert(call: Call) -> Item:
        x = call.rows(0)
        axis = call.axis(0, x.rank)
        if not 0 < axis < x.rank:
            raise Unsupported("it searches along the rows, or an axis that does not exist")
        if call.integer("select_last_index", 0):
            raise Unsupported("select_last_index is not supported")
        if x.dtype not in FLOATS and x.dtype not in INTEGERS:
            raise Unsupported(f"it searches {x.dtype} values")

        def build_extreme(values: Value, value_axis: int) -> Value:
            values = values if sign > 0 else call.op("neg", values)
            return build_argmax(call, values, axis=value_axis)

        keep = bool(call.integer("keepdims", 1))
        return reduce_axes(call.builder, x, [axis], build_extreme, keep=keep)

    return convert


def _convert_matmul(call: Call) -> Item:
    x, weights = call.rows(0), call.const(1)
    if weights.ndim == 1:
        return RowTensor(apply_linear(call.builder, x, weights[:, None]).value, ())
    return apply_linear(call.builder, x, weights)


def _convert_gemm(call: Call) -> Item:
    x, weights = call.rows(0), call.const(1)
    if call.integer("transA", 0):
        raise Unsupported("it transposes the rows")
    if weights.ndim != 2:
        raise Unsupported("its weights are not a matrix")
    weights = weights.T if call.integer("transB", 0) else weights
    weights = weights * weights.dtype.type(call.number("alpha", 1.0))
    addend = call.optional_item(2)
    if addend is None:
        return apply_linear(call.builder, x, weights)
    if not isinstance(addend, Const):
        if call.number("beta", 1.0) != 1:
            raise Unsupported("its summand is scaled")
        return apply_elementwise(call, "add", [apply_linear(call.builder, x, weights), addend])
    bias = addend.value * weights.dtype.type(call.number("beta", 1.0))
    if bias.ndim > 2 or (bias.ndim == 2 and bias.shape[0] != 1):
        raise Unsupported("its summand has several rows")
    return apply_linear(call.builder, x, weights, np.broadcast_to(bias.ravel(), weights.shape[1:]))


def _convert_batch_normalization(call: Call) -> Item:
    x = _read_floats(call, 0)
    if len(x.inner) != 1 or call.integer("training_mode", 0):
        raise Unsupported("it normalizes more than columns")
    scale, bias, mean, variance = (call.const(i).astype(x.dtype) for i in range(1, 5))
    factor = scale / np.sqrt(variance + np.asarray(call.number("epsilon", 1e-5), x.dtype))
    constants = [call.builder.constant(np.ravel(v)) for v in (mean, factor, bias)]
    value = x.value
    for op, constant in zip(("sub", "mul", "add"), constants, strict=True):
        value = call.op(op, value, constant)
    return RowTensor(value, x.inner)


_ELEMENTWISE = ("And", "Mul", "Or", "Sub", "Where")
_FLOAT_FUNCTIONS = "Ceil Cos Exp Floor IsNaN Log Sigmoid Sin Sqrt Tanh".split()

FUNCTIONS: Mapping[str, Function] = {
    **dict.fromkeys(("Identity", "Dropout"), lambda call: call.item(0)),
    **{name: _make_unary(name.lower()) for name in ("Abs", "Neg", "Not", "Sign")},
    **{name: _make_unary(name.lower(), _read_floats) for name in _FLOAT_FUNCTIONS},
    "Round": _make_unary("rint", _read_floats),
    "Reciprocal": _convert_reciprocal,
    "Relu": _convert_relu,
    "LeakyRelu": _convert_leaky_relu,
    "Elu": _convert_elu,
    "Softplus": _convert_softplus,
    "Softmax": _convert_softmax,
    "Clip": _convert_clip,
    "Cast": _convert_cast,
    "Add": _convert_add,
    "Sum": _make_variadic("add"),
    "Div": _convert_div,
    "Pow": _convert_pow,
    "Max": _make_variadic("maximum"),
    "Min": _make_variadic("minimum"),
    "Mean": _convert_mean,
    **{name: partial(apply_elementwise, op=name.lower()) for name in _ELEMENTWISE},
    "Xor": partial(apply_elementwise, op="ne"),
    "Less": partial(apply_elementwise, op="lt"),
    "LessOrEqual": partial(apply_elementwise, op="le"),
    "Greater": partial(apply_elementwise, op="gt"),
    "GreaterOrEqual": partial(apply_elementwise, op="ge"),
    "Equal": partial(apply_elementwise, op="eq"),
    "ReduceMax": _make_reduction(_chain_operators("max"), np.maximum),
    "ReduceMin": _make_reduction(_chain_operators("min"), np.minimum),
    "ReduceSum": _make_reduction(_chain_operators("sum"), np.add),
    "ReduceMean": _make_reduction(_build_mean),
    "ReduceSumSquare": _make_reduction(_chain_operators("square", "sum")),
    "ReduceL1": _make_reduction(_chain_operators("abs", "sum")),
    "ReduceL2": _make_reduction(_chain_operators("square", "sum", "sqrt")),
    "ReduceLogSum": _make_reduction(_chain_operators("sum", "log")),
    "ReduceLogSumExp": _make_reduction(_build_log_sum_exp),
    "ReduceProd": _make_reduction(_build_product),
    "ArgMax": _make_arg_extreme(1),
    "ArgMin": _make_arg_extreme(-1),
    "MatMul": _convert_matmul,
    "Gemm": _convert_gemm,
    "BatchNormalization": _convert_batch_normalization,
}
