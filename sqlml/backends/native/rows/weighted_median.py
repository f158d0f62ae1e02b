"""Compute weighted medians, as `weighted_median` of `ir/operators/matrices.py` does."""

from __future__ import annotations

from typing import Any

import numpy as np

from sqlml.backends.native.jit.specialise import inlined_helper
from sqlml.backends.native.kernel_calls import RowKernel
from sqlml.types import Array


def make_median_kernel(weights: Array, dtype: np.dtype[Any]) -> RowKernel:
    """Return a kernel that maps x (n, k) of `dtype` to the medians (n, 1), for weights (k,)."""
    return RowKernel.of(_find_medians, dtype, (np.ascontiguousarray(weights),), 1, dtype)


@inlined_helper
def _is_less(a: Any, b: Any) -> Any:
    """Compare numbers; NaN is the largest."""
    return a < b or (b != b and a == a)


def _find_medians(x: Any, weights: Any, out: Any) -> None:
    count = x.shape[1]
    order, merged = np.empty(count, np.int64), np.empty(count, np.int64)
    for r in range(x.shape[0]):
        for i in range(count):
            order[i] = i
        # A merge sort is stable, and it takes no longer on rows of many equal numbers.
        size = 1
        while size < count:
            for start in range(0, count, 2 * size):
                middle, stop = min(start + size, count), min(start + 2 * size, count)
                left, right = start, middle
                for k in range(start, stop):
                    takes_right = left == middle or (
                        right < stop and _is_less(x[r, order[right]], x[r, order[left]])
                    )
                    if takes_right:
                        merged[k] = order[right]
                        right += 1
                    else:
                        merged[k] = order[left]
                        left += 1
            order, merged = merged, order
            size *= 2
        total = 0.0
        for i in range(count):
            total += weights[order[i]]
        cumulative, median = 0.0, x[r, order[0]]
        for i in range(count):
            cumulative += weights[order[i]]
            if cumulative >= 0.5 * total:
                median = x[r, order[i]]
                break
        out[r, 0] = median
