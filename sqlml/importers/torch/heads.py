"""What makes probabilities of the numbers that a torch module returns, in their own dtype."""

from __future__ import annotations

import numpy as np

from sqlml.ir.builder import Builder, Value


def softmax(b: Builder, x: Value) -> Value:
    """(n, k) scores of all classes -> their probabilities."""
    return b.op("softmax", x, sum_dtype=x.type.dtype)


def sigmoid(b: Builder, x: Value) -> Value:
    """(n, 1) scores of the second class -> (n, 2) probabilities of both."""
    return with_complement(b, b.op("sigmoid", x))


def with_complement(b: Builder, second: Value) -> Value:
    """(n, 1) probabilities p of the second class -> (n, 2) of 1 - p and p."""
    return b.op("concat", b.op("sub", number_like(b, 1, second), second), second)


def number_like(b: Builder, number: float, like: Value) -> Value:
    """A constant of the dtype of another value."""
    return b.constant(np.array([number], like.type.dtype))
