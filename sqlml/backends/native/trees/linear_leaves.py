"""Sum the linear models in the leaves of trees, as `linear_leaves` of `ir/operators/forests.py`."""

from __future__ import annotations

from typing import Any

import numpy as np

from sqlml.backends.native.kernel_calls import RowKernel
from sqlml.ir.program import Attrs


def make_leaf_model_kernel(attrs: Attrs) -> RowKernel:
    """Return a kernel that maps float64 rows to float64 sums (n, targets).

    A row (n, trees + features) consists of the leaf of each tree, and of the features.
    """
    names = ("value", "const", "begin", "feature", "weights", "base", "target")
    constants = tuple(np.ascontiguousarray(attrs[name]) for name in names)
    double = np.dtype(np.float64)
    return RowKernel.of(_add_leaf_models, double, constants, attrs["base"].size, double)


def _add_leaf_models(
    x: Any,
    missing_values: Any,
    intercepts: Any,
    begin: Any,
    features: Any,
    weights: Any,
    base: Any,
    target: Any,
    out: Any,
) -> None:
    trees, last_leaf = target.size, intercepts.size - 1
    for r in range(x.shape[0]):
        for k in range(base.size):
            out[r, k] = base[k]
        for tree in range(trees):
            leaf = min(max(np.int64(x[r, tree]), 0), last_leaf)
            total, is_missing = intercepts[leaf], False
            for k in range(begin[leaf], begin[leaf + 1]):
                value = x[r, trees + features[k]]
                is_missing = is_missing or value != value
                total += weights[k] * value
            out[r, target[tree]] += missing_values[leaf] if is_missing else total
