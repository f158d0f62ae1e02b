"""Final steps of classifiers: from scores or probabilities to labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.class_pairs import build_pair_signs, count_votes
from sqlml.importers.frame import Outputs
from sqlml.ir.builder import Builder, Value
from sqlml.types import Labels

Tie = Literal["gt", "ge"]
"""The comparison of a score and the threshold for which the second class is predicted: > or >=."""


def label_by_threshold(
    builder: Builder, score: Value, tie: Tie = "gt", threshold: float = 0.0
) -> Value:
    """Return class index 1 for a score above `threshold` (or equal, if `tie` is "ge"), else 0."""
    return builder.op("cast", builder.op(tie, score, threshold), dtype="int64")


def build_outlier_outputs(label: Value, score: Value, samples: Value) -> Outputs:
    """Return the outputs of an outlier detector; `label` is 0 for outliers (-1), otherwise 1."""
    return Outputs({"label": label, "score": score, "samples": samples}, Labels("int64", (-1, 1)))


def label_by_score(builder: Builder, score: Value, tie: Tie = "gt") -> Value:
    """Return class indices; binary scores have one column, multiclass scores one per class."""
    is_binary = score.type.width == 1
    return label_by_threshold(builder, score, tie) if is_binary else label_by_argmax(builder, score)


def label_by_argmax(builder: Builder, scores: Value) -> Value:
    """Return the index of the largest score in each row; the first of equal scores wins."""
    return builder.op("argmax", scores, axis=1)


def label_targets_by_argmax(builder: Builder, scores: Value, sizes: Sequence[int]) -> Value:
    """Return the class index of each target; `sizes` has the targets' class counts."""
    columns = split_targets(builder, scores, sizes)
    return builder.concat([label_by_argmax(builder, column) for column in columns])


def split_targets(builder: Builder, values: Value, sizes: Sequence[int]) -> list[Value]:
    """Split the columns of `values` into one value per target."""
    if len(sizes) == 1:
        return [values]
    pairs = zip(sizes, np.cumsum(sizes), strict=True)
    return [builder.op("select", values, indices=np.arange(end - size, end)) for size, end in pairs]


def add_complement(builder: Builder, positive: Value) -> Value:
    """Return the probabilities of both classes, given those of the second class."""
    return builder.op("concat", builder.op("sub", 1.0, positive), positive)


def to_proba(builder: Builder, score: Value) -> Value:
    """Return the sigmoid of binary scores, or the softmax of multiclass scores."""
    if score.type.width == 1:
        return add_complement(builder, builder.op("sigmoid", score))
    return builder.op("softmax", score, sum_dtype="float64")


def collapse_two_scores(builder: Builder, scores: Value) -> Value:
    """Return the scores or, for two classes, the second score minus the first."""
    if scores.type.width != 2:
        return scores
    first, second = (builder.op("select", scores, indices=np.array([i])) for i in (0, 1))
    return builder.op("sub", second, first)


def normalize_proba(builder: Builder, proba: Value) -> Value:
    """Divide one-vs-rest probabilities by their sum; a row of zeros becomes uniform."""
    op = builder.op
    n_classes = proba.type.width
    total = op("sum", proba, axis=1)
    is_zero = op("eq", total, 0.0)
    proba = op("where", is_zero, 1.0, proba)
    return op("div", proba, op("where", is_zero, float(n_classes), total))


def read_class_lists(model: Any) -> list[list[Any]]:
    classes = model.classes_
    return [list(labels) for labels in classes] if isinstance(classes, list) else [list(classes)]


def read_classes(model: Any) -> list[Any]:
    classes = model.classes_
    if isinstance(classes, list) or np.ndim(classes) != 1:
        raise UnsupportedModelError(
            f"{type(model).__name__} predicts several targets at once, but only one is supported; "
            "fit one model per target"
        )
    return list(classes)


def require_multiple_classes(model: Any) -> list[Any]:
    classes = read_classes(model)
    if len(classes) < 2:
        raise UnsupportedModelError(
            f"{type(model).__name__} was fitted on a single class; fit it on two or more"
        )
    return classes


def compute_ovr_scores(
    builder: Builder, predictions: Value, confidences: Value, n_classes: int
) -> Value:
    """Return a score per class, (n, K), from the predictions and confidences of class pairs.

    As in scikit-learn's `_ovr_decision_function`, the score is the number of votes plus s / (3 *
    (|s| + 1)), where s is the sum of the confidences for the class. The second term only breaks
    ties. Pairs are in the order (0, 1), (0, 2), ..., (1, 2). If a pair votes for the first class,
    the prediction is 0 and the confidence is negative.
    """
    op = builder.op
    votes = count_votes(builder, builder.cast(predictions, "float64"), n_classes)
    signed_confidences = builder.linear(confidences, build_pair_signs(n_classes))
    scale = op("mul", op("add", op("abs", signed_confidences), 1.0), 3.0)
    return op("add", votes, op("div", signed_confidences, scale))
