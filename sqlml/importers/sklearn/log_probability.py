"""Joint log-probabilities (n, K) of classes or components: made in groups, summed, as shares."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from sqlml.ir.builder import Builder, Value

MAX_VALUES = 2048
"""Most numbers of one row that a group makes: classes times columns, if more than one class."""


def by_group(builder: Builder, classes: int, width: int, make: Callable[[slice], Value]) -> Value:
    """(n, classes) out of the (n, size) that `make` computes for each slice of the classes.

    Args:
        width: numbers of one row that `make` needs for each class.
    """
    size = max(1, MAX_VALUES // max(1, width))
    return builder.beside([make(slice(i, i + size)) for i in range(0, classes, size)])


def log_sum_exp(builder: Builder, x: Value) -> Value:
    """(n, K) -> (n, 1): log of the sum of exp(x), as scikit-learn and SciPy compute it.

    The largest terms are kept apart from the others, which `log1p` adds without losing them; a row
    of only -inf stays -inf.
    """
    top = builder.op("max", x, axis=1)
    is_top = builder.op("eq", x, top)
    finite = builder.op("lt", builder.op("abs", top), np.inf)
    shift = builder.op("where", finite, top, 0.0)
    rest = builder.op("where", is_top, -np.inf, x)
    small = builder.op("sum", builder.op("exp", builder.op("sub", rest, shift)), axis=1)
    tops = builder.op("sum", builder.op("cast", is_top, dtype="float64"), axis=1)
    share = builder.op("div", small, tops)
    small = builder.op("where", builder.op("eq", small, 0.0), small, share)
    many = builder.op("add", builder.op("log1p", small), builder.op("log", tops))
    return builder.op("add", many, top)


def shares(builder: Builder, x: Value) -> Value:
    """(n, K) -> (n, K): exp(x - log_sum_exp(x)), the probability of each class."""
    return builder.op("exp", builder.op("sub", x, log_sum_exp(builder, x)))


def shares_below_max(builder: Builder, x: Value) -> Value:
    """(n, K) -> (n, K): exp(d - log(sum(exp(d)))) with d = x - max(x), the same by another way."""
    below = builder.op("sub", x, builder.op("max", x, axis=1))
    total = builder.op("log", builder.op("sum", builder.op("exp", below), axis=1))
    return builder.op("exp", builder.op("sub", below, total))
