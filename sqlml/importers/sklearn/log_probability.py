"""From joint log-probabilities (n, K) of classes or components to their sum and to shares."""

from __future__ import annotations

import numpy as np

from sqlml.ir.builder import Builder, Value


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
