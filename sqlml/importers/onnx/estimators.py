"""Convert linear models and scalers of ai.onnx.ml, which compute in float32.

The attribute post_transform converts scores to outputs. Its formulas are those of onnxruntime
(core/providers/cpu/ml/ml_common.h).
"""

from __future__ import annotations

import math

import numpy as np

from sqlml.importers.onnx.graph_items import Call, Choice, Item
from sqlml.importers.onnx.labels import read_class_values
from sqlml.importers.row_tensors import RowTensor, Unsupported
from sqlml.ir.builder import Value
from sqlml.types import FLOATS, Array

TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
"""The values of post_transform, in the order of TreeEnsemble's codes."""


def read_post_transform(call: Call) -> str:
    transform = call.text("post_transform", "NONE")
    if transform not in TRANSFORMS:
        raise call.error(f"unknown post_transform {transform!r}")
    return transform


def apply_transform(call: Call, score: Value, transform: str) -> Value:
    """Apply the post_transform `transform` to scores (n, k), in their dtype."""
    if transform == "SOFTMAX":
        return call.op("softmax", score, sum_dtype=score.type.dtype)
    if transform == "NONE":
        return score
    builders = {"LOGISTIC": _build_logistic, "PROBIT": _build_probit}
    return builders.get(transform, _build_softmax_zero)(call, score)


def _build_logistic(call: Call, x: Value) -> Value:
    """Build the sigmoid of `x` from the sigmoid of |x|, which is 1 / (1 + exp(-|x|))."""
    dtype = x.type.dtype
    one = call.scalar(1, dtype)
    exp_x = call.op("exp", call.op("neg", call.op("abs", x)))
    sigmoid = call.op("div", one, call.op("add", one, exp_x))
    is_negative = call.op("lt", x, call.scalar(0, dtype))
    return call.op("where", is_negative, call.op("sub", one, sigmoid), sigmoid)


def _build_probit(call: Call, x: Value) -> Value:
    """Build sqrt(2) * erfinv(2 x - 1) with Winitzki's approximation."""
    dtype = x.type.dtype
    one, two = call.scalar(1, dtype), call.scalar(2, dtype)
    y = call.op("sub", call.op("mul", two, x), one)
    sign = call.op("where", call.op("lt", y, call.scalar(0, dtype)), call.scalar(-1, dtype), one)
    log_product = call.op("log", call.op("mul", call.op("sub", one, y), call.op("add", one, y)))
    half_log = call.op("mul", call.scalar(0.5, dtype), log_product)
    offset = call.op("add", call.scalar(2 / (math.pi * 0.147), dtype), half_log)
    scaled_log = call.op("mul", call.scalar(1 / 0.147, dtype), log_product)
    root = call.op("sqrt", call.op("sub", call.op("mul", offset, offset), scaled_log))
    erfinv = call.op("sqrt", call.op("add", call.op("neg", offset), root))
    return call.op("mul", call.scalar(math.sqrt(2), dtype), call.op("mul", sign, erfinv))


def _build_softmax_zero(call: Call, x: Value) -> Value:
    """Build a softmax in which scores close to 0 (up to 1e-7) remain close to 0."""
    max_score = call.op("max", x, axis=1)
    is_nonzero = call.op("gt", call.op("abs", x), call.scalar(1e-7, x.type.dtype))
    exp_score = call.op("exp", call.op("sub", x, max_score))
    scaled_zero = call.op("mul", x, call.op("exp", call.op("neg", max_score)))
    shares = call.op("where", is_nonzero, exp_score, scaled_zero)
    return call.op("div", shares, call.op("sum", shares, axis=1))


def expand_score(call: Call, score: Value, transform: str, may_be_negative: bool) -> Value:
    """Expand the score of the second class (n, 1) to the scores of both classes (n, 2).

    As in onnxruntime, LOGISTIC gives the sigmoids of -score and score. Otherwise, `transform` is
    ignored, and the first score is -score if scores may be negative, or else 1 - score.
    """
    if transform == "PROBIT":
        raise Unsupported("post_transform PROBIT of a single score")
    negated = call.op("neg", score)
    if transform == "LOGISTIC":
        return _build_logistic(call, call.op("concat", negated, score))
    if may_be_negative:
        return call.op("concat", negated, score)
    return call.op("concat", call.op("sub", call.scalar(1, score.type.dtype), score), score)


def build_argmax(call: Call, scores: Value, axis: int = 1) -> Value:
    """Build the index of the largest number along a column axis, or of the first in a tie.

    As in onnxruntime, NaN is the largest number in the first column, and ignored elsewhere.
    """
    dtype = scores.type.dtype
    if dtype not in FLOATS:
        return call.op("argmax", scores, axis=axis)
    if len(scores.type.shape) == 2 and scores.type.width == 2:
        first, second = _split_two_columns(call, scores)
        return call.cast(call.op("gt", second, first), "int64")
    is_nan = call.op("isnan", scores)
    is_first_column = np.arange(scores.type.shape[-1]) == 0
    is_first_nan = call.op("and", is_nan, call.builder.constant(is_first_column))
    comparable = call.op("where", is_nan, call.scalar(-np.inf, dtype), scores)
    comparable = call.op("where", is_first_nan, call.scalar(np.inf, dtype), comparable)
    return call.op("argmax", comparable, axis=axis)


def _split_two_columns(call: Call, x: Value) -> tuple[Value, Value]:
    node = call.builder.node(x)
    if node.op == "concat" and len(node.inputs) == 2:
        first, second = (call.builder.value(i) for i in node.inputs)
        if first.type == second.type:
            return first, second
    first, second = (call.op("select", x, indices=np.array([i], np.int64)) for i in range(2))
    return first, second


def _read_float_table(call: Call, i: int = 0) -> Value:
    return call.cast(call.table(i).value, "float32")


def _read_coefficients(call: Call, num_features: int, num_scores: int) -> tuple[Array, Array]:
    weights = call.vector("coefficients")
    if not num_features or not num_scores or weights.size != num_features * num_scores:
        raise call.error(f"it has {weights.size} coefficients, not {num_scores} x {num_features}")
    bias = call.vector("intercepts")
    if bias.size not in (0, num_scores):
        raise call.error(f"it has {bias.size} intercepts instead of {num_scores}")
    bias = bias if bias.size else np.zeros(num_scores, np.float32)
    return weights.reshape(num_scores, num_features).T, bias


def convert_linear_regressor(call: Call) -> Item:
    """Convert LinearRegressor to x @ coefficients + intercepts, float32 (n, targets)."""
    x = _read_float_table(call)
    num_targets = call.integer("targets", 1)
    weights, bias = _read_coefficients(call, x.type.width, num_targets)
    score = call.op("linear", x, weights=weights, bias=bias)
    transform = read_post_transform(call)
    if num_targets == 1 and transform not in ("NONE", "LOGISTIC", "PROBIT"):
        raise Unsupported(f"post_transform {transform} of a single target")
    return RowTensor(apply_transform(call, score, transform), (num_targets,))


def convert_linear_classifier(call: Call) -> tuple[Item, ...]:
    """Convert LinearClassifier to labels (n,) and scores, float32 (n, classes)."""
    x = _read_float_table(call)
    class_values = read_class_values(call, "classlabels_ints", "classlabels_strings")
    num_scores = call.vector("coefficients").size // max(1, x.type.width)
    if num_scores != class_values.size or num_scores < 2:
        raise Unsupported(f"{num_scores} scores for {class_values.size} classes")
    weights, bias = _read_coefficients(call, x.type.width, num_scores)
    if num_scores == 2 and not (weights.sum(1).any() or bias.sum()):
        # The first score is the second one negated, in every rounding.
        margins = call.op("linear", x, weights=weights[:, 1:], bias=bias[1:])
        scores = call.op("concat", call.op("neg", margins), margins)
    else:
        scores = margins = call.op("linear", x, weights=weights, bias=bias)
    label = Choice(build_argmax(call, scores), class_values, (), margins)
    scores = apply_transform(call, scores, read_post_transform(call))
    return label, RowTensor(scores, (num_scores,))


def convert_scaler(call: Call) -> Item:
    """Convert Scaler to (x - offset) * scale, float32 (n, k)."""
    x = _read_float_table(call)
    for name, op in (("offset", "sub"), ("scale", "mul")):
        values = call.vector(name)
        width = x.type.width
        if values.size not in (1, width):
            raise call.error(f"attribute {name} has {values.size} numbers for {width} columns")
        x = call.op(op, x, call.builder.constant(values))
    return RowTensor(x, (x.type.width,))


def convert_imputer(call: Call) -> Item:
    """Convert Imputer, which replaces NaN, or another number for missing values, in each column."""
    x = call.table(0)
    if x.dtype == "int64":
        fill_values = call.vector("imputed_value_int64s", "int64")
        missing = call.scalar(call.integer("replaced_value_int64", 0), "int64")
    else:
        x = RowTensor(_read_float_table(call), x.inner)
        fill_values = call.vector("imputed_value_floats")
        missing = call.scalar(call.number("replaced_value_float", 0.0), "float32")
    if fill_values.size not in (1, x.inner[0]):
        raise call.error(f"it has {fill_values.size} numbers for {x.inner[0]} columns")
    marker = call.attr("replaced_value_float")
    is_nan = x.dtype == "float32" and isinstance(marker, float) and math.isnan(marker)
    is_missing = call.op("isnan", x.value) if is_nan else call.op("eq", x.value, missing)
    result = call.op("where", is_missing, call.builder.constant(fill_values), x.value)
    return RowTensor(result, x.inner)


def convert_normalizer(call: Call) -> Item:
    """Convert Normalizer, which divides each row by the maximum, L1 norm or L2 norm of the row.

    Rows with a norm of 0 are unchanged.
    """
    x = _read_float_table(call)
    norm, zero = call.text("norm", "MAX"), call.scalar(0, "float32")
    if norm not in ("MAX", "L1", "L2"):
        raise call.error(f"unknown norm {norm!r}")
    magnitudes = x if norm == "MAX" else call.op("abs" if norm == "L1" else "square", x)
    row_norm = call.op("max" if norm == "MAX" else "sum", magnitudes, axis=1)
    if norm == "L2":
        root = call.op("sqrt", call.op("div", magnitudes, row_norm))
        normalized = call.op("where", call.op("lt", x, zero), call.op("neg", root), root)
    else:
        normalized = call.op("div", x, row_norm)
    result = call.op("where", call.op("ne", row_norm, zero), normalized, x)
    return RowTensor(result, (x.type.width,))


def convert_binarizer(call: Call) -> Item:
    """Convert Binarizer, which returns 1 for x > threshold, otherwise 0, in the dtype of x."""
    x = call.rows(0)
    threshold = call.scalar(call.number("threshold", 0.0), x.dtype)
    return RowTensor(call.cast(call.op("gt", x.value, threshold), x.dtype), x.inner)


def convert_feature_vectorizer(call: Call) -> Item:
    """Convert FeatureVectorizer, which concatenates tables, to float32 (n, k)."""
    blocks = [_read_float_table(call, i) for i in range(len(call.inputs))]
    if call.vector("inputdimensions", "int64").tolist() != [x.type.width for x in blocks]:
        raise Unsupported("its inputs do not have the widths that it states")
    value = call.builder.concat(blocks)
    return RowTensor(value, (value.type.width,))
