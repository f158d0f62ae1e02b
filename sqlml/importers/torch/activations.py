"""Activation functions of aten, by the operators of the IR."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import cast

from sqlml.importers.row_tensors import Rows, Uncovered
from sqlml.importers.torch.tensors import Arguments, Maker, Rule, constant, rows
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
    # exp overflows where log1p(exp(x)) is x to the last bit
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
