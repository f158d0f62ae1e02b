"""Classifiers that compare each pair of classes: the pairs are (0, 1), (0, 2), ..., (1, 2), ..."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from sqlml.ir.builder import Builder, Value
from sqlml.types import Array


def count_votes(builder: Builder, predictions: Value, n_classes: int) -> Value:
    """Count the votes for each class; a prediction of 0 votes for the first class of a pair."""
    signs = build_pair_signs(n_classes)
    # A prediction p adds 1 - p to the first class and p to the second; the sums are exact integers.
    return builder.linear(predictions, signs, (signs < 0).sum(axis=0).astype(np.float64))


def build_pair_signs(n_classes: int) -> Array:
    """Return a sign per pair and class: -1 for the first class, 1 for the second, else 0."""
    pairs = list(combinations(range(n_classes), 2))
    signs = np.zeros((len(pairs), n_classes))
    for row, (first, second) in enumerate(pairs):
        signs[row, first], signs[row, second] = -1.0, 1.0
    return signs


def spread_pair_weights(coefficients: Array, vector_counts: Array) -> Array:
    """Return the weight of each support vector for each pair of classes, (vectors, pairs).

    As in libsvm, vectors are sorted by class, and `vector_counts` (classes,) are the numbers per
    class. `coefficients` (classes - 1, vectors) have a row for each class other than the vector's.
    """
    ends = np.cumsum(vector_counts).tolist()
    slices = [slice(start, end) for start, end in zip([0, *ends], ends, strict=False)]
    pairs = list(combinations(range(len(ends)), 2))
    weights = np.zeros((coefficients.shape[1], len(pairs)), coefficients.dtype)
    for pair, (i, j) in enumerate(pairs):
        weights[slices[i], pair] = coefficients[j - 1, slices[i]]
        weights[slices[j], pair] = coefficients[i, slices[j]]
    return weights
