"""Linear models and scalers of ai.onnx.ml, which compute in float32.

post_transform takes scores to outputs with onnxruntime's own float32 formulas
(core/providers/cpu/ml/ml_common.h).
"""

from __future__ import annotations

import math

import numpy as np

from sqlml.importers.onnx.graph_items import Call, Choice, Item
from sqlml.importers.onnx.labels import read_class_values
from sqlml.importers.row_tensors import Rows, Uncovered
from sqlml.ir.builder import Value
from sqlml.types import FLOATS, Array

TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
"""The values of post_transform, as TreeEnsemble numbers them."""


def post_transform(call: Call) -> str:
    """Return the post_transform of an operator, one of `TRANSFORMS`."""
    name = call.text("post_transform", "NONE")
    if name not in TRANSFORMS:
        raise call.error(f"unknown post_transform {name!r}")
    return name


def apply_transform(call: Call, score: Value, name: str) -> Value:
    """Apply a post_transform to scores (n, k) of float32 or float64."""
    if name == "SOFTMAX":
        return call.op("softmax", score, sum_dtype=score.type.dtype)
    functions = {"LOGISTIC": logistic, "PROBIT": probit, "SOFTMAX_ZERO": _softmax_zero}
    return score if name == "NONE" else functions[name](call, score)


def logistic(call: Call, x: Value) -> Value:
    """Return the sigmoid as 1 / (1 + exp(-|x|)), mirrored for negative x."""
    dtype = x.type.dtype
    one = call.scalar(1, dtype)
    small = call.op("exp", call.op("neg", call.op("abs", x)))
    v = call.op("div", one, call.op("add", one, small))
    is_negative = call.op("lt", x, call.scalar(0, dtype))
    return call.op("where", is_negative, call.op("sub", one, v), v)


def probit(call: Call, x: Value) -> Value:
    """Return sqrt(2) * erfinv(2 x - 1) by Winitzki's approximation."""
    dtype = x.type.dtype
    one, two = call.scalar(1, dtype), call.scalar(2, dtype)
    y = call.op("sub", call.op("mul", two, x), one)
    sign = call.op("where", call.op("lt", y, call.scalar(0, dtype)), call.scalar(-1, dtype), one)
    log = call.op("log", call.op("mul", call.op("sub", one, y), call.op("add", one, y)))
    half = call.op("mul", call.scalar(0.5, dtype), log)
    v = call.op("add", call.scalar(2 / (math.pi * 0.147), dtype), half)
    v2 = call.op("mul", call.scalar(1 / 0.147, dtype), log)
    root = call.op("sqrt", call.op("sub", call.op("mul", v, v), v2))
    inner = call.op("sqrt", call.op("add", call.op("neg", v), root))
    return call.op("mul", call.scalar(math.sqrt(2), dtype), call.op("mul", sign, inner))


def _softmax_zero(call: Call, x: Value) -> Value:
    """Return a softmax without scores of 0 (up to 1e-7), which stay 0."""
    largest = call.op("max", x, axis=1)
    counts = call.op("gt", call.op("abs", x), call.scalar(1e-7, x.type.dtype))
    e = call.op("exp", call.op("sub", x, largest))
    rest = call.op("mul", x, call.op("exp", call.op("neg", largest)))
    shares = call.op("where", counts, e, rest)
    return call.op("div", shares, call.op("sum", shares, axis=1))


def expand_score(call: Call, score: Value, name: str, mixed: bool) -> Value:
    """Return the two columns that onnxruntime makes of a single score (n, 1).

    The opposite of a `mixed` score, which may be negative, is -score; otherwise it is 1 - score.
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
    """Return the index of the first largest number along a column axis.

    As in onnxruntime, NaN is skipped, except that nothing is larger than a NaN in the first column.
    """
    dtype = scores.type.dtype
    if dtype not in FLOATS:
        return call.op("argmax", scores, axis=axis)
    is_nan = call.op("isnan", scores)
    first = np.arange(scores.type.shape[-1]) == 0
    is_first_nan = call.op("and", is_nan, call.builder.constant(first))
    comparable = call.op("where", is_nan, call.scalar(-np.inf, dtype), scores)
    comparable = call.op("where", is_first_nan, call.scalar(np.inf, dtype), comparable)
    return call.op("argmax", comparable, axis=axis)


def read_table(call: Call, i: int = 0) -> Value:
    """Return input `i` as float32 (n, k)."""
    return call.cast(call.table(i).value, "float32")


def _read_coefficients(call: Call, width: int, rows: int) -> tuple[Array, Array]:
    weights = call.vector("coefficients")
    if not width or not rows or weights.size != width * rows:
        raise call.error(f"it has {weights.size} coefficients for {rows} x {width}")
    bias = call.vector("intercepts")
    if bias.size not in (0, rows):
        raise call.error(f"it has {bias.size} intercepts for {rows}")
    return weights.reshape(rows, width).T, bias if bias.size else np.zeros(rows, np.float32)


def linear_regressor(call: Call) -> Item:
    """Convert LinearRegressor: x @ coefficients + intercepts, float32 (n, targets)."""
    x = read_table(call)
    targets = call.integer("targets", 1)
    weights, bias = _read_coefficients(call, x.type.width, targets)
    score = call.op("linear", x, weights=weights, bias=bias)
    name = post_transform(call)
    if targets == 1 and name not in ("NONE", "LOGISTIC", "PROBIT"):
        raise Uncovered(f"post_transform {name} of a single target")
    return Rows(apply_transform(call, score, name), (targets,))


def linear_classifier(call: Call) -> tuple[Item, ...]:
    """Convert LinearClassifier to labels (n,) and scores, float32 (n, classes)."""
    x = read_table(call)
    values = read_class_values(call, "classlabels_ints", "classlabels_strings")
    classes = call.vector("coefficients").size // max(1, x.type.width)
    if classes != values.size or classes < 2:
        raise Uncovered(f"{classes} scores for {values.size} classes")
    weights, bias = _read_coefficients(call, x.type.width, classes)
    scores = call.op("linear", x, weights=weights, bias=bias)
    label = Choice(argmax(call, scores), values, ())
    return label, Rows(apply_transform(call, scores, post_transform(call)), (classes,))


def scaler(call: Call) -> Item:
    """Convert Scaler: (x - offset) * scale, float32 (n, k)."""
    x = read_table(call)
    for name, op in (("offset", "sub"), ("scale", "mul")):
        values = call.vector(name)
        if values.size not in (1, x.type.width):
            raise call.error(f"it has {values.size} numbers for {x.type.width} columns")
        x = call.op(op, x, call.builder.constant(values))
    return Rows(x, (x.type.width,))


def imputer(call: Call) -> Item:
    """Convert Imputer, which replaces NaN or another number by a number per column; (n, k)."""
    x = call.table(0)
    if x.dtype == "int64":
        fill = call.vector("imputed_value_int64s", "int64")
        missing = call.scalar(call.integer("replaced_value_int64", 0), "int64")
    else:
        x = Rows(read_table(call), x.inner)
        fill = call.vector("imputed_value_floats")
        missing = call.scalar(call.number("replaced_value_float", 0.0), "float32")
    if fill.size not in (1, x.inner[0]):
        raise call.error(f"it has {fill.size} numbers for {x.inner[0]} columns")
    replaced = call.attr("replaced_value_float")
    if x.dtype == "float32" and isinstance(replaced, float) and replaced != replaced:
        is_missing = call.op("isnan", x.value)
    else:
        is_missing = call.op("eq", x.value, missing)
    return Rows(call.op("where", is_missing, call.builder.constant(fill), x.value), x.inner)


def normalizer(call: Call) -> Item:
    """Convert Normalizer, which divides rows by their maximum, sum of sizes or length; (n, k)."""
    x = read_table(call)
    norm, zero = call.text("norm", "MAX"), call.scalar(0, "float32")
    if norm not in ("MAX", "L1", "L2"):
        raise call.error(f"unknown norm {norm!r}")
    sizes = x if norm == "MAX" else call.op("abs" if norm == "L1" else "square", x)
    total = call.op("max" if norm == "MAX" else "sum", sizes, axis=1)
    if norm == "L2":
        length = call.op("sqrt", call.op("div", sizes, total))
        divided = call.op("where", call.op("lt", x, zero), call.op("neg", length), length)
    else:
        divided = call.op("div", x, total)
    return Rows(call.op("where", call.op("ne", total, zero), divided, x), (x.type.width,))


def binarizer(call: Call) -> Item:
    """Convert Binarizer: 1 where x is above the threshold, else 0, in the dtype of x."""
    x = call.rows(0)
    limit = call.scalar(call.number("threshold", 0.0), x.dtype)
    return Rows(call.cast(call.op("gt", x.value, limit), x.dtype), x.inner)


def feature_vectorizer(call: Call) -> Item:
    """Convert FeatureVectorizer, which concatenates its inputs, float32 (n, k)."""
    blocks = [read_table(call, i) for i in range(len(call.inputs))]
    if call.vector("inputdimensions", "int64").tolist() != [x.type.width for x in blocks]:
        raise Uncovered("its inputs have other widths than it states")
    value = call.builder.concat(blocks)
    return Rows(value, (value.type.width,))
