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
"""The comparison of a score and the threshold for which the second class is predicted: > or >=."""


def label_by_threshold(
    builder: Builder, score: Value, tie: Tie = "gt", threshold: float = 0.0
) -> Value:
    """Return class index 1 for scores above `threshold` (or equal, if `tie` is "ge"), else 0."""
    return builder.op("cast", builder.op(tie, score, threshold), dtype="int64")


def outlier_outputs(label: Value, score: Value, samples: Value) -> Outputs:
    """Return the outputs of an outlier detector; `label` 0 is the class -1, which means outlier."""
    return Outputs({"label": label, "score": score, "samples": samples}, Labels("int64", (-1, 1)))


def label_by_score(builder: Builder, score: Value, tie: Tie = "gt") -> Value:
    """Return class indices, (n, 1), from scores of the second class, (n, 1), or of all, (n, K)."""
    is_binary = score.type.width == 1
    return label_by_threshold(builder, score, tie) if is_binary else argmax_label(builder, score)


def argmax_label(builder: Builder, scores: Value) -> Value:
    """Return the index, (n, 1), of the largest of (n, K) scores; the first of equal scores wins."""
    return builder.op("argmax", scores, axis=1)


def label_targets_by_argmax(builder: Builder, scores: Value, sizes: Sequence[int]) -> Value:
    """Return each target's class index, (n, targets); target i has `sizes[i]` columns of scores."""
    return builder.concat([argmax_label(builder, v) for v in split_targets(builder, scores, sizes)])


def split_targets(builder: Builder, values: Value, sizes: Sequence[int]) -> list[Value]:
    """Split the columns of `values` into one (n, size) value per target."""
    if len(sizes) == 1:
        return [values]
    pairs = zip(sizes, np.cumsum(sizes), strict=True)
    return [builder.op("select", values, indices=np.arange(end - size, end)) for size, end in pairs]


def add_complement(builder: Builder, positive: Value) -> Value:
    """Return both classes' probabilities, (n, 2), given those of the second class, (n, 1)."""
    return builder.op("concat", builder.op("sub", 1.0, positive), positive)


def to_proba(builder: Builder, score: Value) -> Value:
    """Return probabilities: the sigmoid of (n, 1) scores, or the softmax of (n, K) scores."""
    if score.type.width == 1:
        return add_complement(builder, builder.op("sigmoid", score))
    return builder.op("softmax", score, sum_dtype="float64")


def collapse_two_scores(builder: Builder, scores: Value) -> Value:
    """Return the scores, (n, K), or for two classes the second score minus the first, (n, 1)."""
    if scores.type.width != 2:
        return scores
    first_score, second_score = (
        builder.op("select", scores, indices=np.array([i])) for i in (0, 1)
    )
    return builder.op("sub", second_score, first_score)


def normalise(builder: Builder, proba: Value) -> Value:
    """Divide one-vs-rest probabilities, (n, K), by their sum; a row of zeros becomes uniform."""
    n_classes = proba.type.width
    total = builder.op("sum", proba, axis=1)
    is_zero = builder.op("eq", total, 0.0)
    proba = builder.op("where", is_zero, 1.0, proba)
    return builder.op("div", proba, builder.op("where", is_zero, float(n_classes), total))


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


def two_or_more_classes(model: Any) -> list[Any]:
    classes = read_classes(model)
    if len(classes) < 2:
        raise UnsupportedModelError(
            f"{type(model).__name__} was fitted on a single class; fit it on two or more"
        )
    return classes


def compute_ovr_scores(
    builder: Builder, predictions: Value, confidences: Value, n_classes: int
) -> Value:
    """Return a score per class, (n, K), from the `predictions` and `confidences` of class pairs.

    The score is the class's number of votes plus s / (3 * (|s| + 1)), where s is the sum of its
    confidences. The second term is in (-1/3, 1/3), so it only breaks ties between votes, as in
    scikit-learn's `_ovr_decision_function`. Pairs are in the order (0, 1), (0, 2), ..., (1, 2). If
    a pair votes for its first class, its prediction is 0 and its confidence is negative.
    """
    votes = count_votes(builder, builder.cast(predictions, "float64"), n_classes)
    signed_confidences = builder.linear(confidences, _build_pair_signs(n_classes))
    scale = builder.op("mul", builder.op("add", builder.op("abs", signed_confidences), 1.0), 3.0)
    return builder.op("add", votes, builder.op("div", signed_confidences, scale))


def count_votes(builder: Builder, predictions: Value, n_classes: int) -> Value:
    """Count the votes for each class, (n, K); a pair predicts 0 to vote for its first class."""
    signs = _build_pair_signs(n_classes)
    # A prediction p adds 1 - p to the first class and p to the second; the sums are exact integers.
    return builder.linear(predictions, signs, (signs < 0).sum(axis=0).astype(np.float64))


def _build_pair_signs(n_classes: int) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """Return the sign of each class in each pair, (pairs, K): -1 if first, 1 if second, else 0."""
    pairs = list(combinations(range(n_classes), 2))
    signs = np.zeros((len(pairs), n_classes))
    for row, (first, second) in enumerate(pairs):
        signs[row, first], signs[row, second] = -1.0, 1.0
    return signs
