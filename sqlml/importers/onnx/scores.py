"""post_transform of ai.onnx.ml: from scores to outputs, in onnxruntime's own float32 formulas
(core/providers/cpu/ml/ml_common.h)."""

from __future__ import annotations

import math

import numpy as np

from sqlml.errors import ArtifactError
from sqlml.importers.onnx.items import Call
from sqlml.importers.row_tensors import Uncovered
from sqlml.ir.builder import Value
from sqlml.types import FLOATS

TRANSFORMS = frozenset({"NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"})


def post_transform(call: Call) -> str:
    """The post_transform of an operator, one of `TRANSFORMS`.

    Raises:
        ArtifactError: it is not one of `TRANSFORMS`.
    """
    name = call.text("post_transform", "NONE")
    if name not in TRANSFORMS:
        raise ArtifactError(f"operator {call.node.op}: unknown post_transform {name!r}")
    return name


def transformed(call: Call, score: Value, name: str) -> Value:
    """Scores (n, k) of float32 or float64 after the transform called `name`."""
    if name == "LOGISTIC":
        return logistic(call, score)
    if name == "PROBIT":
        return probit(call, score)
    if name == "SOFTMAX":
        return call.op("softmax", score, sum_dtype=score.type.dtype)
    if name == "SOFTMAX_ZERO":
        return _softmax_zero(call, score)
    return score


def logistic(call: Call, x: Value) -> Value:
    """1 / (1 + exp(-|x|)), turned over for negative x."""
    dtype = x.type.dtype
    one = call.scalar(1, dtype)
    small = call.op("exp", call.op("neg", call.op("abs", x)))
    v = call.op("div", one, call.op("add", one, small))
    negative = call.op("lt", x, call.scalar(0, dtype))
    return call.op("where", negative, call.op("sub", one, v), v)


def probit(call: Call, x: Value) -> Value:
    """sqrt(2) * erfinv(2 x - 1), by Winitzki's approximation."""
    dtype = x.type.dtype
    one, two = call.scalar(1, dtype), call.scalar(2, dtype)
    y = call.op("sub", call.op("mul", two, x), one)
    sign = call.op("where", call.op("lt", y, call.scalar(0, dtype)), call.scalar(-1, dtype), one)
    product = call.op("mul", call.op("sub", one, y), call.op("add", one, y))
    log = call.op("log", product)
    half = call.op("mul", call.scalar(0.5, dtype), log)
    v = call.op("add", call.scalar(2 / (math.pi * 0.147), dtype), half)
    v2 = call.op("mul", call.scalar(1 / 0.147, dtype), log)
    root = call.op("sqrt", call.op("sub", call.op("mul", v, v), v2))
    inner = call.op("sqrt", call.op("add", call.op("neg", v), root))
    return call.op("mul", call.scalar(math.sqrt(2), dtype), call.op("mul", sign, inner))


def _softmax_zero(call: Call, x: Value) -> Value:
    """A softmax that leaves out scores of 0 (up to 1e-7), which stay 0."""
    dtype = x.type.dtype
    most = call.op("max", x, axis=1)
    counts = call.op("gt", call.op("abs", x), call.scalar(1e-7, dtype))
    e = call.op("exp", call.op("sub", x, most))
    rest = call.op("mul", x, call.op("exp", call.op("neg", most)))
    shares = call.op("where", counts, e, rest)
    total = call.op("sum", shares, axis=1)
    return call.op("div", shares, total)


def two_columns(call: Call, score: Value, name: str, mixed: bool) -> Value:
    """The two columns that onnxruntime makes of a single score (n, 1).

    `mixed`: the score may be negative, and its opposite is -score; else it is 1 - score.
    """
    if name == "PROBIT":
        raise Uncovered("post_transform PROBIT of a single score")
    negative = call.op("neg", score)
    if name == "LOGISTIC":
        return logistic(call, call.op("concat", negative, score))
    if mixed:
        return call.op("concat", negative, score)
    other = call.op("sub", call.scalar(1, score.type.dtype), score)
    return call.op("concat", other, score)


def argmax(call: Call, scores: Value, axis: int = 1) -> Value:
    """The first of the largest, along a column axis.

    As in onnxruntime, a NaN is passed over, but nothing is larger than a NaN in the first place.
    """
    dtype = scores.type.dtype
    if dtype not in FLOATS:
        return call.op("argmax", scores, axis=axis)
    gone = call.op("isnan", scores)
    first = np.arange(scores.type.shape[-1]) == 0
    gone_first = call.op("and", gone, call.builder.constant(first))
    known = call.op("where", gone, call.scalar(-np.inf, dtype), scores)
    known = call.op("where", gone_first, call.scalar(np.inf, dtype), known)
    return call.op("argmax", known, axis=axis)
