"""Heads of classifiers: from scores or probabilities to labels, by each estimator's tie rule."""

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
"""Whether a score that equals the threshold is the first class ("gt") or the second ("ge")."""


def binary_label(builder: Builder, score: Value, tie: Tie = "gt", threshold: float = 0.0) -> Value:
    """(n, k) scores -> (n, k) class numbers: 1 above the threshold, else 0."""
    return builder.op("cast", builder.op(tie, score, threshold), dtype="int64")


def outlier_outputs(label: Value, score: Value, samples: Value) -> Outputs:
    """What a detector says whose classes 0 and 1 are outliers, -1, and inliers, 1."""
    return Outputs({"label": label, "score": score, "samples": samples}, Labels("int64", (-1, 1)))


def score_label(builder: Builder, score: Value, tie: Tie = "gt") -> Value:
    """(n, 1) scores of the second class, or (n, K) of all classes -> (n, 1) class numbers."""
    one = score.type.width == 1
    return binary_label(builder, score, tie) if one else argmax_label(builder, score)


def argmax_label(builder: Builder, scores: Value) -> Value:
    """(n, K) scores or probabilities -> (n, 1) class numbers, the first of equal ones."""
    return builder.op("argmax", scores, axis=1)


def argmax_labels(builder: Builder, scores: Value, sizes: Sequence[int]) -> Value:
    """(n, sum of sizes) of several targets side by side -> (n, targets) class numbers."""
    return builder.beside([argmax_label(builder, v) for v in of_targets(builder, scores, sizes)])


def of_targets(builder: Builder, values: Value, sizes: Sequence[int]) -> list[Value]:
    """(n, sum of sizes) of several targets side by side -> (n, size) of each."""
    if len(sizes) == 1:
        return [values]
    return [
        builder.op("select", values, indices=np.arange(end - size, end))
        for size, end in zip(sizes, np.cumsum(sizes), strict=True)
    ]


def with_complement(builder: Builder, positive: Value) -> Value:
    """(n, 1) probabilities p of the second class -> (n, 2) of 1 - p and p."""
    negative = builder.op("sub", 1.0, positive)
    return builder.op("concat", negative, positive)


def score_proba(builder: Builder, score: Value) -> Value:
    """(n, K) sigmoid of (n, 1) scores of the second class, softmax of (n, K) scores of all."""
    if score.type.width == 1:
        return with_complement(builder, builder.op("sigmoid", score))
    return builder.op("softmax", score, sum_dtype="float64")


def second_less_first(builder: Builder, scores: Value) -> Value:
    """(n, K) scores as decision_function gives them: of two classes the difference, (n, 1)."""
    if scores.type.width != 2:
        return scores
    first, second = (builder.op("select", scores, indices=np.array([i])) for i in (0, 1))
    return builder.op("sub", second, first)


def normalised(builder: Builder, proba: Value) -> Value:
    """(n, K) one-vs-rest probabilities divided by their sum; uniform where all are zero."""
    classes = proba.type.width
    total = builder.op("sum", proba, axis=1)
    nothing = builder.op("eq", total, 0.0)
    proba = builder.op("where", nothing, 1.0, proba)
    total = builder.op("where", nothing, float(classes), total)
    return builder.op("div", proba, total)


def class_lists(model: Any) -> list[list[Any]]:
    """The `classes_` of a classifier for each of its targets."""
    classes = model.classes_
    return [list(known) for known in classes] if isinstance(classes, list) else [list(classes)]


def class_list(model: Any) -> list[Any]:
    """The `classes_` of a classifier with one target.

    Raises:
        UnsupportedModelError: it predicts several targets.
    """
    classes = model.classes_
    if isinstance(classes, list) or np.ndim(classes) != 1:
        raise UnsupportedModelError(
            f"{type(model).__name__} predicts several targets at once, where one is expected; fit "
            "one model per target"
        )
    return list(classes)


def two_or_more_classes(model: Any) -> list[Any]:
    """The `classes_` of a classifier with one target.

    Raises:
        UnsupportedModelError: it predicts several targets, or knows only one class.
    """
    classes = class_list(model)
    if len(classes) < 2:
        raise UnsupportedModelError(
            f"{type(model).__name__} was fitted on a single class; fit it on two or more"
        )
    return classes


# One score per class from one score per pair of classes, as `_ovr_decision_function` does it.
#
# scikit-learn's `utils/multiclass.py`: the votes of the pairs, and between equal votes the sums
# of their confidences, brought into (-1/3, 1/3). Pairs stand in the order (0, 1), (0, 2), ... (1,
# 2).


def ovr_decision(builder: Builder, predictions: Value, confidences: Value, n_classes: int) -> Value:
    """(n, K) scores: votes plus the sums of confidences s as s / (3 * (|s| + 1)).

    Args:
        predictions: (n, K * (K - 1) / 2), for each pair 0 (or false) for its first class, 1 for
            its second.
        confidences: (n, K * (K - 1) / 2) float64, for each pair positive for the second class.
    """
    signs = pair_signs(n_classes)
    if predictions.type.dtype != "float64":
        predictions = builder.op("cast", predictions, dtype="float64")
    # Of the first class's pairs each counts 1 - p, of the second's p: integers, so exact.
    firsts = (signs < 0).sum(axis=0).astype(np.float64)
    votes = builder.linear(predictions, signs, firsts)
    total = builder.linear(confidences, signs)
    size = builder.op("add", builder.op("abs", total), 1.0)
    size = builder.op("mul", size, 3.0)
    return builder.op("add", votes, builder.op("div", total, size))


def pair_signs(n_classes: int) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """(pairs, K): -1 for the first class of each pair, 1 for its second, 0 for the others."""
    pairs = list(combinations(range(n_classes), 2))
    signs = np.zeros((len(pairs), n_classes))
    for row, (first, second) in enumerate(pairs):
        signs[row, first], signs[row, second] = -1.0, 1.0
    return signs
