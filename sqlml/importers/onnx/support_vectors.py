"""Convert SVMClassifier and SVMRegressor of ai.onnx.ml, which are the machines of libsvm.

The formulas are those of onnxruntime (core/providers/cpu/ml/svmclassifier.cc): kernels are float32,
and the scores of pairs of classes are summed in float64.
"""

from __future__ import annotations

import numpy as np

from sqlml.importers.class_pairs import count_votes, spread_pair_weights
from sqlml.importers.onnx.estimators import read_post_transform
from sqlml.importers.onnx.graph_items import Call, Choice, Item
from sqlml.importers.onnx.labels import read_class_values
from sqlml.importers.powers import raise_to_power
from sqlml.importers.row_tensors import RowTensor, Unsupported
from sqlml.ir.builder import Value
from sqlml.types import Array

MIN_PROBABILITY = 1e-7
"""The probability of a pair is clipped to [1e-7, 1 - 1e-7]."""


MAX_WEIGHTS = 1 << 25
"""The most weights, one per support vector and pair of classes; most of them are 0."""


def convert_svm_regressor(call: Call) -> Item:
    """Convert SVMRegressor to a value, or for one_class to 1 or -1, float32 (n, 1)."""
    if read_post_transform(call) != "NONE":
        raise Unsupported("it transforms its scores")
    coefficients = call.vector("coefficients")
    count = call.integer("n_supports", 0)
    kernel = _build_kernel(call, count)
    if coefficients.size != count:
        raise call.error(f"it has {coefficients.size} coefficients for {count} support vectors")
    score = _add_kernels(call, kernel, coefficients[:, None], _read_numbers(call, "rho", 1))
    score = call.cast(score, "float32")
    if call.integer("one_class", 0):
        is_inside = call.op("gt", score, call.scalar(0, "float32"))
        signs = (call.scalar(sign, "float32") for sign in (1, -1))
        score = call.op("where", is_inside, *signs)
    return RowTensor(score, (1,))


def convert_svm_classifier(call: Call) -> tuple[Item, ...]:
    """Convert SVMClassifier to labels (n,) and scores or probabilities, float32.

    The label is the class with the most votes of pairs. Without probabilities, there is a score per
    pair of classes; two classes have the negated score and the score.
    """
    if read_post_transform(call) != "NONE":
        raise Unsupported("it transforms its scores")
    class_values = read_class_values(call, "classlabels_ints", "classlabels_strings")
    classes = class_values.size
    counts = call.vector("vectors_per_class", "int64")
    if classes < 2 or counts.size != classes or (counts < 0).any():
        raise Unsupported("it does not list the support vectors of each class")
    kernel = _build_kernel(call, int(counts.sum()))
    intercepts = _read_numbers(call, "rho", classes * (classes - 1) // 2)
    pair_scores = _add_kernels(call, kernel, _read_pair_weights(call, counts), intercepts)
    second_wins = call.op("not", call.op("gt", pair_scores, call.scalar(0, "float64")))
    votes = count_votes(call.builder, call.cast(second_wins, "float64"), classes)
    label = Choice(call.op("argmax", votes, axis=1), class_values, ())
    scores = call.cast(pair_scores, "float32")
    if call.vector("prob_a").size:
        return label, RowTensor(_build_probabilities(call, scores, classes), (classes,))
    if classes == 2:
        scores = call.op("concat", call.op("neg", scores), scores)
    return label, RowTensor(scores, (scores.type.width,))


def _build_kernel(call: Call, count: int) -> Value:
    """Build the kernel between each row and each of `count` support vectors, (n, count)."""
    x = call.cast(call.table(0).value, "float32")
    points = call.vector("support_vectors")
    if count < 1:
        raise Unsupported("it has no support vectors")
    if points.size != count * x.type.width:
        raise call.error(f"it has {points.size} numbers in {count} vectors of {x.type.width}")
    points = points.reshape(count, -1)
    gamma, coef0, degree = _read_parameters(call)
    shift = call.scalar(coef0, "float32")
    name = call.text("kernel_type", "LINEAR")
    if name == "RBF":
        distance = call.op("pairwise", x, points=points, metric="sqeuclidean")
        return call.op("exp", call.op("mul", distance, call.scalar(-gamma, "float32")))
    product = call.op("linear", x, weights=points.T, bias=np.zeros(count, np.float32))
    if name == "LINEAR":
        return product
    product = call.op("add", call.op("mul", product, call.scalar(gamma, "float32")), shift)
    if name == "SIGMOID":
        return call.op("tanh", product)
    if name != "POLY":
        raise call.error(f"unknown kernel {name!r}")
    return raise_to_power(call.builder, product, degree)


def _read_parameters(call: Call) -> list[float]:
    """Return gamma, coef0 and degree, which are 0 if missing."""
    parameters = call.vector("kernel_params")
    if parameters.size not in (0, 3):
        raise call.error(f"it has {parameters.size} kernel_params instead of 3")
    values: list[float] = parameters.tolist()
    return values or [0.0, 0.0, 0.0]


def _read_numbers(call: Call, name: str, count: int) -> Array:
    numbers = call.vector(name)
    if numbers.size < count:
        raise call.error(f"attribute {name} has {numbers.size} numbers instead of {count}")
    return numbers[:count]


def _add_kernels(call: Call, kernel: Value, weights: Array, intercepts: Array) -> Value:
    """Build kernel @ weights + intercepts in float64."""
    weights, intercepts = weights.astype(np.float64), intercepts.astype(np.float64)
    return call.op("linear", call.cast(kernel, "float64"), weights=weights, bias=intercepts)


def _read_pair_weights(call: Call, counts: Array) -> Array:
    vectors = int(counts.sum())
    if vectors * counts.size * (counts.size - 1) // 2 > MAX_WEIGHTS:
        raise Unsupported("it has too many support vectors and classes")
    coefficients = _read_numbers(call, "coefficients", (counts.size - 1) * vectors)
    return spread_pair_weights(coefficients.reshape(-1, vectors), counts)


def _build_probabilities(call: Call, scores: Value, classes: int) -> Value:
    """Convert the scores of pairs to probabilities of classes, with a sigmoid for each pair."""
    pairs, one = scores.type.width, call.scalar(1, "float32")
    slopes, shifts = (
        call.builder.constant(_read_numbers(call, name, pairs)) for name in ("prob_a", "prob_b")
    )
    logits = call.op("add", call.op("mul", scores, slopes), shifts)
    exponential = call.op("exp", call.op("neg", call.op("abs", logits)))
    logistic = call.op("div", one, call.op("add", one, exponential))
    is_negative = call.op("lt", logits, call.scalar(0, "float32"))
    logistic = call.op("where", is_negative, call.op("sub", one, logistic), logistic)
    probability = call.op("sub", one, logistic)
    least = call.scalar(MIN_PROBABILITY, "float32")
    probability = call.op("maximum", probability, least)
    probability = call.op("minimum", probability, call.op("sub", one, least))
    return call.op("couple", probability, classes=classes)
