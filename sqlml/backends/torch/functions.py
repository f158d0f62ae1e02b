"""The tensor operators in torch: operator -> how to bind it, with the reference's own results.

Where torch and numpy disagree (the sign of NaN, the dtype of a mixed concat or a sum of small
integers, the sigmoid of float32) this follows `ir/reference.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sqlml.backends.torch import elementary, piecewise
from sqlml.backends.torch.sums import accumulate
from sqlml.ir import reference
from sqlml.ir.operators.distances import distances
from sqlml.ir.operators.torch_module import runner
from sqlml.ir.program import Node
from sqlml.types import Array

Put = Callable[[Array], Tensor]
"""A numpy array as a tensor on the program's device."""
Function = Callable[..., Tensor]
Bind = Callable[[Node, Put], Function]
"""A node made ready: its arrays lie on the device, and tensors go in and come out."""

DTYPES: Mapping[str, torch.dtype] = MappingProxyType(
    {
        "bool": torch.bool,
        "int8": torch.int8,
        "int16": torch.int16,
        "int32": torch.int32,
        "int64": torch.int64,
        "float16": torch.float16,
        "float32": torch.float32,
        "float64": torch.float64,
    }
)


def _plain(function: Callable[..., Any]) -> Bind:
    return lambda node, put: function


def _array(node: Node, name: str) -> Array:
    value: Array = node.attrs[name]
    return value


def _sigmoid(x: Tensor) -> Tensor:
    if x.dtype == torch.float32:  # XGBoost's own formula; clamp keeps NaN
        return 1 / (torch.exp(torch.clamp(-x, max=88.7)) + 1 + 1e-16)
    return 1 / (1 + torch.exp(-x))


def _sign(x: Tensor) -> Tensor:
    return torch.where(torch.isnan(x), x, torch.sign(x)) if x.is_floating_point() else torch.sign(x)


def _constant(node: Node, put: Put) -> Function:
    value = put(_array(node, "value"))
    return lambda: value


def _cast(node: Node, put: Put) -> Function:
    dtype = DTYPES[node.type.dtype]
    return lambda x: x.to(dtype)


def _concat(node: Node, put: Put) -> Function:
    dtype = DTYPES[node.type.dtype]
    return lambda *parts: torch.cat([part.to(dtype) for part in parts], dim=1)


def _select(node: Node, put: Put) -> Function:
    indices = _array(node, "indices")
    start, width = int(indices[0]) if indices.size else 0, indices.size
    if np.array_equal(indices, np.arange(start, start + width)):
        return lambda x: x[:, start : start + width]
    chosen = put(indices)
    return lambda x: torch.index_select(x, 1, chosen)


def _reshape(node: Node, put: Put) -> Function:
    shape = node.type.shape[1:]
    return lambda x: x.reshape(x.shape[0], *shape)


def _take(table: Tensor, index: Tensor) -> Tensor:
    # index_select reads int32 too, and is twice as fast as torch.take.
    wide = index if index.dtype == torch.int32 else index.to(torch.int64)
    flat = torch.index_select(table, 0, wide.reshape(-1))
    return flat.reshape(*index.shape, *table.shape[1:])


def _gather(x: Tensor, index: Tensor) -> Tensor:
    return torch.gather(x, 1, index.to(torch.int64))


def _reduction(function: Callable[..., Tensor]) -> Bind:
    def bind(node: Node, put: Put) -> Function:
        axis = node.attrs["axis"]
        return lambda x: function(x, dim=axis, keepdim=True)

    return bind


def _sum(node: Node, put: Put) -> Function:
    axis: int = node.attrs["axis"]
    return lambda x: torch.sum(x, dim=axis, keepdim=True, dtype=x.dtype)


def _softmax(node: Node, put: Put) -> Function:
    dtype = DTYPES[str(node.attrs["sum_dtype"])]
    if not node.type.width:
        return lambda x: x

    def softmax(x: Tensor) -> Tensor:
        e = torch.exp(x - torch.amax(x, dim=1, keepdim=True))
        return e / torch.sum(e, dim=1, keepdim=True, dtype=dtype).to(x.dtype)

    return softmax


def _weighted_median(node: Node, put: Put) -> Function:
    weights = put(_array(node, "weights"))

    def weighted_median(x: Tensor) -> Tensor:
        ordered, order = torch.sort(x, dim=1, stable=True)
        reached = torch.cumsum(weights[order], dim=1)
        enough = (reached >= 0.5 * reached[:, -1:]).to(torch.int8)
        return torch.gather(ordered, 1, torch.argmax(enough, dim=1, keepdim=True))

    return weighted_median


def _matmul(a: Tensor, b: Tensor) -> Tensor:
    if a.is_cuda and a.dtype == torch.float32 and _rounds_products():
        return torch.matmul(a.to(torch.float64), b.to(torch.float64)).to(torch.float32)
    return torch.matmul(a, b)


def _rounds_products() -> bool:
    """Whether somebody let this process round factors to TF32's 10 bits: an error near 1e-3."""
    options = torch.backends.cuda.matmul
    precision = getattr(options, "fp32_precision", None)  # from torch 2.9 on
    return bool(options.allow_tf32) if precision is None else precision not in ("none", "ieee")


NARROW = 16
"""Columns of `batch_matmul` up to which rows lie last: 2.5 times as fast at 7, slower at 31."""


def _batch_matmul(a: Tensor, b: Tensor) -> Tensor:
    if a.shape[2] <= NARROW:
        return torch.bmm(b.transpose(1, 2), a.permute(1, 2, 0)).permute(2, 0, 1)
    return torch.bmm(a.transpose(0, 1), b).transpose(0, 1)


def _pairwise(node: Node, put: Put) -> Function:
    attrs = node.attrs
    points = put(attrs["points"])
    weights = put(attrs["weights"]) if "weights" in attrs else None
    inverse = put(attrs["inverse"]) if "inverse" in attrs else None
    metric, p = attrs["metric"], attrs.get("p", 0.0)

    def pairwise(x: Tensor) -> Tensor:
        made: Tensor = distances(torch, x, points, metric, p, weights, inverse)
        return made.to(x.dtype)

    return pairwise


def _checked(node: Node, bad: Callable[..., Tensor]) -> Function:
    attrs, explain = node.attrs, reference.FUNCTIONS[node.op]

    def check(x: Tensor, *more: Tensor) -> Tensor:
        if bool(bad(x, *more).any()):
            explain([a.cpu().numpy() for a in (x, *more)], attrs)  # it raises, and says why
        return x

    return check


def _require_finite(node: Node, put: Put) -> Function:
    finite = torch.isinf if node.attrs["allow_nan"] else lambda x: ~torch.isfinite(x)
    low, high = (put(node.attrs[k]) if k in node.attrs else None for k in ("low", "high"))
    bounded = low is not None or high is not None

    def bad(x: Tensor) -> Tensor:
        found = finite(x)
        if low is not None:
            found = found | (x < low)
        return found if high is None else found | (x > high)

    check = _checked(node, bad)

    def require_finite(x: Tensor) -> Tensor:
        # A sum is finite only of finite numbers; it may also overflow, so others are looked at.
        if not bounded and x.is_floating_point() and math.isfinite(float(x.sum())):
            return x
        return check(x)

    return require_finite


def _require(node: Node, put: Put) -> Function:
    return _checked(node, lambda x, fine: ~fine)


def _require_known(node: Node, put: Put) -> Function:
    return _checked(node, lambda x: x < 0)


def _torch_module(node: Node, put: Put) -> Function:
    device = put(np.zeros(1)).device
    run: Function = runner(_array(node, "archive").tobytes(), node.attrs, device)
    return run


FUNCTIONS: Mapping[str, Bind] = MappingProxyType(
    {
        "constant": _constant,
        "exp": _plain(torch.exp),
        "log": _plain(torch.log),
        "log1p": _plain(torch.log1p),
        "expm1": _plain(torch.expm1),
        "sqrt": _plain(torch.sqrt),
        "sigmoid": _plain(_sigmoid),
        "tanh": _plain(torch.tanh),
        "trunc": _plain(torch.trunc),
        **elementary.FUNCTIONS,
        **piecewise.FUNCTIONS,
        "neg": _plain(torch.neg),
        "abs": _plain(torch.abs),
        "sign": _plain(_sign),
        "square": _plain(torch.square),
        "add": _plain(torch.add),
        "sub": _plain(torch.sub),
        "mul": _plain(torch.mul),
        "div": _plain(torch.true_divide),
        "maximum": _plain(torch.maximum),
        "minimum": _plain(torch.minimum),
        "lt": _plain(torch.lt),
        "le": _plain(torch.le),
        "gt": _plain(torch.gt),
        "ge": _plain(torch.ge),
        "eq": _plain(torch.eq),
        "ne": _plain(torch.ne),
        "and": _plain(torch.logical_and),
        "or": _plain(torch.logical_or),
        "not": _plain(torch.logical_not),
        "shift_right": _plain(torch.bitwise_right_shift),
        "bit_and": _plain(torch.bitwise_and),
        "isnan": _plain(torch.isnan),
        "where": _plain(torch.where),
        "cast": _cast,
        "concat": _concat,
        "select": _select,
        "reshape": _reshape,
        "take": _plain(_take),
        "gather": _plain(_gather),
        "sum": _sum,
        "max": _reduction(torch.amax),
        "min": _reduction(torch.amin),
        "argmax": _reduction(torch.argmax),
        "softmax": _softmax,
        "weighted_median": _weighted_median,
        "accumulate": accumulate,
        "matmul": _plain(_matmul),
        "batch_matmul": _plain(_batch_matmul),
        "pairwise": _pairwise,
        "require": _require,
        "require_finite": _require_finite,
        "require_known": _require_known,
        "torch_module": _torch_module,
    }
)
