"""Layers of aten: products with weights, normalisation, softmax, embeddings."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import cast

import numpy as np

from sqlml.importers.row_tensors import Rows, Uncovered, multiply
from sqlml.importers.torch.tensors import (
    Arguments,
    Maker,
    Rule,
    constant,
    resolve_column_axis,
    rows,
)
from sqlml.ir.builder import Builder, Value
from sqlml.ir.operators.categories import EMBEDDING
from sqlml.types import Array


def _clamp(m: Maker, a: Arguments) -> Rows:
    x: Rows = rows(a, "self")
    if a.get("min") is not None:
        x = m.elementwise("maximum", x, a["min"])
    if a.get("max") is not None:
        x = m.elementwise("minimum", x, a["max"])
    return x


def _hardtanh(m: Maker, a: Arguments) -> Rows:
    limits = {"min": a.get("min_val", -1.0), "max": a.get("max_val", 1.0)}
    return _clamp(m, {"self": a["self"], **limits})


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
    grown = m.unary("expm1", m.elementwise("mul", x, a.get("input_scale", 1)))
    below = m.elementwise("mul", grown, alpha * scale)
    return m.where(m.elementwise("gt", x, 0), m.elementwise("mul", x, scale), below)


def _selu(m: Maker, a: Arguments) -> Rows:
    alpha, scale = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946
    return _elu(m, {"self": a["self"], "alpha": alpha, "scale": scale})


def _celu(m: Maker, a: Arguments) -> Rows:
    alpha = a.get("alpha", 1.0)
    return _elu(m, {"self": a["self"], "alpha": alpha, "input_scale": 1 / alpha})


def _silu(m: Maker, a: Arguments) -> Rows:
    x = rows(a, "self")
    return m.elementwise("mul", x, m.unary("sigmoid", x))


def _softplus(m: Maker, a: Arguments) -> Rows:
    x, beta, threshold = rows(a, "self"), a.get("beta", 1), a.get("threshold", 20)
    scaled = m.elementwise("mul", x, beta)
    curved = m.unary("log1p", m.unary("exp", scaled))
    return m.where(
        m.elementwise("gt", scaled, threshold), x, m.elementwise("div", curved, float(beta))
    )


def _log_sigmoid(m: Maker, a: Arguments) -> Rows:
    x = rows(a, "self")
    size = m.unary("exp", m.elementwise("mul", m.elementwise("maximum", x, m.op("neg", x)), -1))
    low = m.elementwise("minimum", x, 0)
    return m.elementwise("sub", low, m.unary("log1p", size))


def _mish(m: Maker, a: Arguments) -> Rows:
    x = rows(a, "self")
    curved = m.unary("log1p", m.unary("exp", x))
    # exp overflows where log1p(exp(x)) equals x to the last bit.
    soft = m.where(m.elementwise("gt", x, 80), x, curved)
    return m.elementwise("mul", x, m.unary("tanh", soft))


def _gelu(m: Maker, a: Arguments) -> Rows:
    x = rows(a, "self")
    if a.get("approximate", "none") == "none":
        return m.elementwise("mul", x, m.unary("ndtr", x))
    cube = m.elementwise("mul", m.elementwise("mul", x, x), x)
    inner = m.elementwise("add", x, m.elementwise("mul", cube, 0.044715))
    bent = m.unary("tanh", m.elementwise("mul", inner, math.sqrt(2 / math.pi)))
    return m.elementwise("mul", m.elementwise("mul", x, 0.5), m.elementwise("add", bent, 1.0))


ACTIVATIONS: Mapping[str, Rule] = MappingProxyType(
    {
        "aten.relu.default": lambda m, a: m.elementwise("maximum", rows(a, "self"), 0),
        "aten.relu6.default": _relu6,
        "aten.clamp.default": _clamp,
        "aten.clamp_min.default": _clamp,
        "aten.clamp_max.default": _clamp,
        "aten.hardtanh.default": _hardtanh,
        "aten.hardsigmoid.default": _hardsigmoid,
        "aten.hardswish.default": _hardswish,
        "aten.leaky_relu.default": _leaky_relu,
        "aten.prelu.default": _prelu,
        "aten._prelu_kernel.default": _prelu,
        "aten.elu.default": _elu,
        "aten.selu.default": _selu,
        "aten.celu.default": _celu,
        "aten.silu.default": _silu,
        "aten.softplus.default": _softplus,
        "aten.log_sigmoid.default": _log_sigmoid,
        "aten.log_sigmoid_forward.default": _log_sigmoid,
        "aten.mish.default": _mish,
        "aten.gelu.default": _gelu,
    }
)


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
    centred = m.elementwise("sub", x, m.reduce("max", x, [1]))
    total = m.reduce("sum", m.unary("exp", centred), [1])
    return m.elementwise("sub", centred, m.unary("log", total))


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
        raise Uncovered("batch normalisation by the batch itself; call eval() before exporting")
    # Like torch on the CPU: one factor and one summand per column, here in float64.
    weight, bias = constant(a, "weight"), constant(a, "bias")
    factor = 1 / np.sqrt(variance.astype(np.float64) + a["eps"])
    factor = factor if weight is None else factor * weight
    summand = -mean * factor if bias is None else bias - mean * factor
    dtype = x.dtype
    scaled = m.elementwise("mul", x, factor.astype(dtype))
    return m.elementwise("add", scaled, summand.astype(dtype))


def _layer_norm(m: Maker, a: Arguments) -> Rows:
    x = rows(a, "input")
    shape = a["normalized_shape"]
    if x.rank != 2 or len(shape) != 1:
        raise Uncovered("layer normalisation over more than the columns")
    wide = m.cast(x, "float64")
    width = float(shape[0])
    mean = m.elementwise("div", m.reduce("sum", wide, [1]), width)
    centred = m.elementwise("sub", wide, mean)
    square = m.reduce("sum", m.elementwise("mul", centred, centred), [1])
    spread = m.elementwise("add", m.elementwise("div", square, width), a.get("eps", 1e-5))
    normalized = m.elementwise("div", centred, m.unary("sqrt", spread))
    for op, name in (("mul", "weight"), ("add", "bias")):
        array = constant(a, name)
        if array is not None:
            normalized = m.elementwise(op, normalized, array.astype(np.float64))
    return m.cast(normalized, x.dtype)


def _embedding(m: Maker, a: Arguments) -> Rows:
    table, x = cast(Array, constant(a, "weight")), rows(a, "indices")
    if table.ndim != 2 or not table.shape[0] or x.rank > 2:
        raise Uncovered("an embedding of tensors with several axes")
    codes = _check_codes(m, x, _mark_outside(m, x, table.shape[0]).value, table.shape[0])
    inner = (*x.inner, table.shape[1])
    taken = m.b.op("take", m.b.constant(table), codes)  # (n, k, width)
    return Rows(m.b.op("reshape", taken, shape=(math.prod(inner),)), inner)


def _check_codes(m: Maker, x: Rows, codes: Value, size: int) -> Value:
    """Check that no code of `x`, int64 (n, k), is -1; the error names the user's column."""
    step = f"{EMBEDDING} (0 to {size - 1})"
    names = _find_input_columns(m.b, x.value)
    if len(names) < 2:
        feature = names[0] if names else "index"
        return m.b.op("require_known", codes, feature=feature, step=step)
    columns = []
    for i, name in enumerate(names):
        part = m.b.op("select", codes, indices=np.array([i], np.int64))
        columns.append(m.b.op("require_known", part, feature=name, step=step))
    return m.b.op("concat", *columns)


def _find_input_columns(b: Builder, value: Value, most: int = 20) -> list[str]:
    """Return the input column of each column of `value`; empty if some read several columns."""
    node = b.node(value)
    inputs = [b.value(i) for i in node.inputs]
    if node.op == "input":
        return [str(node.attrs["name"])] * value.type.width
    if not most or node.op not in _COLUMNWISE:
        return []
    names = [_find_input_columns(b, v, most - 1) for v in inputs]
    if not all(names):
        return []
    if node.op == "select":
        return [names[0][i] for i in node.attrs["indices"]]
    return [name for part in names for name in part]


_COLUMNWISE = frozenset(("cast", "concat", "require_finite", "select", "trunc"))
"""The operators of which each column reads one column."""


def _mark_outside(m: Maker, x: Rows, size: int) -> Rows:
    """Return x, or -1 where it is not an index below `size`, which torch rejects."""
    below = m.elementwise("lt", x, size)
    return m.where(below, x, -1)


LAYERS: Mapping[str, Rule] = MappingProxyType(
    {
        "aten.softmax.int": _softmax,
        "aten._softmax.default": _softmax,
        "aten.log_softmax.int": _log_softmax,
        "aten._log_softmax.default": _log_softmax,
        "aten.linear.default": _linear,
        "aten.addmm.default": _addmm,
        "aten.mm.default": _matmul("self", "mat2"),
        "aten.matmul.default": _matmul("self", "other"),
        "aten.mv.default": _matmul("self", "vec"),
        "aten.batch_norm.default": _batch_norm,
        "aten._native_batch_norm_legit_no_training.default": _batch_norm,
        "aten.layer_norm.default": _layer_norm,
        "aten.native_layer_norm.default": _layer_norm,
        "aten.embedding.default": _embedding,
    }
)
