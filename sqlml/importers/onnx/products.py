"""Operators of domain ai.onnx that multiply by matrices, and BatchNormalization."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np

from sqlml.importers.onnx.items import Call, Const, Item, elementwise
from sqlml.importers.row_tensors import Rows, Uncovered, product
from sqlml.types import FLOATS


def _matmul(call: Call) -> Item:
    x, weights = call.rows(0), call.const(1)
    if weights.ndim == 1:
        return Rows(product(call.builder, x, weights[:, None]).value, ())
    return product(call.builder, x, weights)


def _gemm(call: Call) -> Item:
    x, weights = call.rows(0), call.const(1)
    if call.integer("transA", 0):
        raise Uncovered("it transposes the rows")
    if weights.ndim != 2:
        raise Uncovered("its weights are not a matrix")
    if call.integer("transB", 0):
        weights = weights.T
    weights = weights * weights.dtype.type(call.number("alpha", 1.0))
    addend = call.optional(2)
    if addend is None:
        return product(call.builder, x, weights)
    if not isinstance(addend, Const):
        if call.number("beta", 1.0) != 1:
            raise Uncovered("what it adds is scaled")
        return elementwise(call, "add", [product(call.builder, x, weights), addend])
    scaled = addend.value * weights.dtype.type(call.number("beta", 1.0))
    if scaled.ndim > 2 or (scaled.ndim == 2 and scaled.shape[0] != 1):
        raise Uncovered("what it adds has rows of its own")
    bias = np.broadcast_to(scaled.ravel(), weights.shape[1:])
    return product(call.builder, x, weights, bias)


def _batch_normalization(call: Call) -> Item:
    x = call.rows(0)
    if x.dtype not in FLOATS:
        raise Uncovered(f"it computes with {x.dtype}")
    if len(x.inner) != 1 or call.integer("training_mode", 0):
        raise Uncovered("it normalises more than columns")
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
