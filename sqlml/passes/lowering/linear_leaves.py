"""Linear models in the leaves of trees, written as tensor operators.

Term by term for all trees at once: the weight and the feature of each leaf's k-th term are taken
from tables, and leaves with fewer terms keep what they have. The order of the additions is the
reference's, so the numbers are too.
"""

from __future__ import annotations

import numpy as np

from sqlml.ir.builder import Builder, Value
from sqlml.ir.program import Attrs
from sqlml.types import Array


def linear_leaves(b: Builder, leaves: Value, x: Value, attrs: Attrs) -> Value:
    """What a linear_leaves operator makes of `leaves` (n, trees) and `x` (n, features)."""
    value: Array = attrs["value"]
    begin: Array = attrs["begin"].astype(np.int64)
    feature: Array = attrs["feature"].astype(np.int64)
    weights: Array = attrs["weights"]
    counts = np.diff(begin)
    last = b.constant(np.array([value.size - 1], np.int64))
    leaf = b.op("minimum", b.op("maximum", leaves, b.constant(np.zeros(1, np.int64))), last)

    def of_leaf(table: Array) -> Value:
        return b.op("take", b.constant(table), leaf)

    out = of_leaf(attrs["const"])
    gone: Value | None = None
    for k in range(int(counts.max(initial=0))):
        has = k < counts
        place = np.where(has, begin[:-1] + k, 0)
        more = of_leaf(has)
        term = b.op("gather", x, of_leaf(feature[place]))
        nan = b.op("and", more, b.op("isnan", term))
        gone = nan if gone is None else b.op("or", gone, nan)
        added = b.op("add", out, b.op("mul", of_leaf(weights[place]), term))
        out = b.op("where", more, added, out)
    if gone is not None:
        out = b.op("where", gone, of_leaf(value), out)
    out = b.op("reshape", out, shape=(leaves.type.width, 1))
    return b.op("accumulate", out, base=attrs["base"], target=attrs["target"])
