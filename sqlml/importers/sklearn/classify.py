"""Final steps of classifiers: from scores or probabilities to labels, with their tie rules."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any, Literal

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Outputs
from sqlml.ir.builder import Builder, Value
from sqlml.types import Labels

Tie = Literal["gt", "ge"]
"""The class of a score that equals the threshold: the first ("gt") or the second ("ge")."""


def binary_label(b: Builder, score: Value, tie: Tie = "gt", threshold: float = 0.0) -> Value:
    """Return class numbers (n, k) of scores (n, k): 1 above the threshold, else 0."""
    return b.op("cast", b.op(tie, score, threshold), dtype="int64")


def outlier_outputs(label: Value, score: Value, samples: Value) -> Outputs:
    """Return the outputs of a detector of outliers (class 0, -1) and inliers (class 1, 1)."""
    return Outputs({"label": label, "score": score, "samples": samples}, Labels("int64", (-1, 1)))


def score_label(b: Builder, score: Value, tie: Tie = "gt") -> Value:
    """Return class numbers (n, 1) from scores of the second class (n, 1) or of all (n, K)."""
    is_binary = score.type.width == 1
    return binary_label(b, score, tie) if is_binary else argmax_label(b, score)


def argmax_label(b: Builder, scores: Value) -> Value:
    """Return class numbers (n, 1) from scores or probabilities (n, K); the first of equal ones."""
    return b.op("argmax", scores, axis=1)


def argmax_labels(b: Builder, scores: Value, sizes: Sequence[int]) -> Value:
    """Return class numbers (n, targets) from the scores of several targets side by side."""
    return b.concat([argmax_label(b, v) for v in split_targets(b, scores, sizes)])


def split_targets(b: Builder, values: Value, sizes: Sequence[int]) -> list[Value]:
    """Split the columns of several targets side by side into (n, size) for each target."""
    if len(sizes) == 1:
        return [values]
    return [
        b.op("select", values, indices=np.arange(end - size, end))
        for size, end in zip(sizes, np.cumsum(sizes), strict=True)
    ]


def add_complement(b: Builder, positive: Value) -> Value:
    """Return (n, 2) probabilities 1 - p and p from (n, 1) probabilities p of the second class."""
    return b.op("concat", b.op("sub", 1.0, positive), positive)


def score_proba(b: Builder, score: Value) -> Value:
    """Return the sigmoid of (n, 1) scores of the second class, or the softmax of (n, K) scores."""
    if score.type.width == 1:
        return add_complement(b, b.op("sigmoid", score))
    return b.op("softmax", score, sum_dtype="float64")


def collapse_two_scores(b: Builder, scores: Value) -> Value:
    """Return scores as decision_function does: with two classes their difference, (n, 1)."""
    if scores.type.width != 2:
        return scores
    first, second = (b.op("select", scores, indices=np.array([i])) for i in (0, 1))
    return b.op("sub", second, first)


def normalise(b: Builder, proba: Value) -> Value:
    """Divide one-vs-rest probabilities (n, K) by their sum; rows of zeros become uniform."""
    classes = proba.type.width
    total = b.op("sum", proba, axis=1)
    is_zero = b.op("eq", total, 0.0)
    proba = b.op("where", is_zero, 1.0, proba)
    return b.op("div", proba, b.op("where", is_zero, float(classes), total))


def class_lists(model: Any) -> list[list[Any]]:
    classes = model.classes_
    return [list(known) for known in classes] if isinstance(classes, list) else [list(classes)]


def class_list(model: Any) -> list[Any]:
    classes = model.classes_
    if isinstance(classes, list) or np.ndim(classes) != 1:
        raise UnsupportedModelError(
            f"{type(model).__name__} predicts several targets at once, where one is expected; fit "
            "one model per target"
        )
    return list(classes)


def two_or_more_classes(model: Any) -> list[Any]:
    classes = class_list(model)
    if len(classes) < 2:
        raise UnsupportedModelError(
            f"{type(model).__name__} was fitted on a single class; fit it on two or more"
        )
    return classes


def ovr_decision(b: Builder, predictions: Value, confidences: Value, n_classes: int) -> Value:
    """Return scores (n, K): votes of the pairs, and their confidences s as s / (3 * (|s| + 1)).

    `_ovr_decision_function` in scikit-learn's `utils/multiclass.py`: sums of confidences in (-1/3,
    1/3) decide between equal votes. Pairs are in the order (0, 1), (0, 2), ..., (1, 2); predictions
    are 0 and confidences negative for the first class.
    """
    votes = count_votes(b, b.cast(predictions, "float64"), n_classes)
    total = b.linear(confidences, _pair_signs(n_classes))
    size = b.op("mul", b.op("add", b.op("abs", total), 1.0), 3.0)
    return b.op("add", votes, b.op("div", total, size))


def count_votes(b: Builder, predictions: Value, n_classes: int) -> Value:
    """Return the votes (n, K) of pairs, each 0 for its first class and 1 for its second."""
    signs = _pair_signs(n_classes)
    # Pairs count as 1 - p for their first class, and as p for their second: integers, so exact.
    return b.linear(predictions, signs, (signs < 0).sum(axis=0).astype(np.float64))


def _pair_signs(n_classes: int) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """Return (pairs, K): -1 for the first class of each pair, 1 for its second, 0 for others."""
    pairs = list(combinations(range(n_classes), 2))
    signs = np.zeros((len(pairs), n_classes))
    for row, (first, second) in enumerate(pairs):
        signs[row, first], signs[row, second] = -1.0, 1.0
    return signs
