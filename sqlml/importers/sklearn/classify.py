"""Heads of classifiers: from scores or probabilities to labels, by each estimator's tie rule."""

from __future__ import annotations

from collections.abc import Sequence
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
