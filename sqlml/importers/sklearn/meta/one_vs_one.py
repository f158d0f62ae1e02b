"""One score per class from one score per pair of classes, as `_ovr_decision_function` does it.

scikit-learn's `utils/multiclass.py`: the votes of the pairs, and between equal votes the sums of
their confidences, brought into (-1/3, 1/3). Pairs stand in the order (0, 1), (0, 2), ... (1, 2).
"""

from __future__ import annotations

from itertools import combinations

import numpy as np

from sqlml.ir.builder import Builder, Value


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
