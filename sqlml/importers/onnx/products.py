"""Operators of domain ai.onnx that multiply by matrices, and BatchNormalization."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from sqlml.config import MAX_ROW_VALUES
from sqlml.importers.onnx.items import Call, Const, Item, Rows, Turned, aligned
from sqlml.types import FLOATS, Array


def _weights(call: Call, x: Rows, weights: Array, bias: Array) -> Item:
    if x.dtype not in ("float32", "float64") or weights.dtype.name != x.dtype:
        raise call.unknown(f"it multiplies {x.dtype} and {weights.dtype}")
    if len(x.inner) != 1 or weights.ndim != 2:
        raise call.unknown("it multiplies more than rows and one matrix")
    value = call.op("linear", x.value, weights=weights, bias=bias.astype(weights.dtype))
    return Rows(value, (weights.shape[1],))


def _matmul(call: Call) -> Item:
    weights = call.const(1)
    left = call.item(0)
    if isinstance(left, Turned):
        return _batch_matmul(call, left.rows, weights)
    vector = weights.ndim == 1
    matrix = weights.reshape(-1, 1) if vector else weights
    made = _weights(call, call.rows(0), matrix, np.zeros(matrix.shape[-1:]))
    assert isinstance(made, Rows)
    return Rows(made.value, ()) if vector else made


def _batch_matmul(call: Call, x: Rows, weights: Array) -> Item:
    if weights.ndim != 3 or weights.shape[:2] != x.inner or weights.dtype.name != x.dtype:
        raise call.unknown("it multiplies batches of rows by something else than one matrix each")
    batch, _, width = weights.shape
    if not 0 < batch * width <= MAX_ROW_VALUES:
        raise call.unknown("its product is too wide, or empty")
    value = call.op("reshape", x.value, shape=x.inner)
    value = call.op("batch_matmul", value, call.builder.constant(weights))
    return Turned(Rows(call.op("reshape", value, shape=(batch * width,)), (batch, width)))


def _gemm(call: Call) -> Item:
    x, weights = call.rows(0), call.const(1)
    if call.integer("transA", 0):
        raise call.unknown("it transposes the rows")
    if weights.ndim != 2:
        raise call.unknown("its weights are no matrix")
    if call.integer("transB", 0):
        weights = weights.T
    weights = weights * weights.dtype.type(call.number("alpha", 1.0))
    bias = np.zeros(weights.shape[1], weights.dtype)
    addend = call.optional(2)
    if addend is None:
        return _weights(call, x, weights, bias)
    if not isinstance(addend, Const):
        product = _weights(call, x, weights, bias)
        values, inner = aligned(replace(call, inputs=(product, addend)), [product, addend])
        if call.number("beta", 1.0) != 1:
            raise call.unknown("what it adds is scaled")
        return Rows(call.op("add", *values), inner)
    scaled = addend.value * weights.dtype.type(call.number("beta", 1.0))
    if scaled.ndim > 2 or (scaled.ndim == 2 and scaled.shape[0] != 1):
        raise call.unknown("what it adds has rows of its own")
    return _weights(call, x, weights, np.broadcast_to(scaled.ravel(), bias.shape))


def _batch_normalization(call: Call) -> Item:
    x = call.rows(0)
    if x.dtype not in FLOATS:
        raise call.unknown(f"it computes with {x.dtype}")
    if len(x.inner) != 1 or call.integer("training_mode", 0):
        raise call.unknown("it normalises more than columns")
    scale, bias, mean, variance = (call.const(i).astype(x.dtype) for i in range(1, 5))
    epsilon = np.asarray(call.number("epsilon", 1e-5), x.dtype)
    factor = scale / np.sqrt(variance + epsilon)
    constants = [call.builder.constant(np.ravel(v)) for v in (mean, factor, bias)]
    value = call.op("mul", call.op("sub", x.value, constants[0]), constants[1])
    return Rows(call.op("add", value, constants[2]), x.inner)


FUNCTIONS: Mapping[str, Callable[[Call], Item]] = MappingProxyType(
    {
        "MatMul": _matmul,
        "Gemm": _gemm,
        "BatchNormalization": _batch_normalization,
    }
)
"""Operators of rows and one matrix, or of each column and a few numbers."""
