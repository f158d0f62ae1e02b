"""Linear scores whose every row is summed in one order, whatever batch it comes in.

BLAS sums a row in a different order at each place of a batch, so equal rows could score one bit
apart, and `WHERE predict(..) = (SELECT max(predict(..)) ..)` find nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from sqlml.backends.native.jit.specialise import kinds_of, reads, specialise, writes
from sqlml.backends.native.rows.matmul_tiles import HIGH, WIDE, panels, rounded_tile, whole_tiles
from sqlml.types import Array

# Linear scores with many outputs, and distances to many points, by tiles.
#
# The same sums as those of `linear.py` and `distances.py`, in the same order, so the same bits.


FEWEST_WIDE = 2
"""Outputs from which on a tile, most of which may be empty, is the faster way."""


def wide_linear(weights: Array, bias: Array) -> Callable[[Array], Array]:
    """x (n, k) float64 -> x @ weights (k, m) + bias (m,), summed from column 0 on."""
    return _by_tiles(_score, weights, bias)


def squared_distances(points: Array) -> Callable[[Array], Array]:
    """x (n, k) float64 -> (n, m): the squared distance to each of points (m, k), on differences."""
    return _by_tiles(_distances, points.T, np.zeros(len(points)))


def _by_tiles(function: Callable[..., Any], right: Array, bias: Array) -> Callable[[Array], Array]:
    held, bias = panels(right), np.ascontiguousarray(bias)
    signature = (reads(np.float64, 2, "C"), *kinds_of(held, bias), writes(np.float64, 2))
    kernel = specialise(function, signature)

    def compute(x: Array) -> Array:
        out = np.empty((x.shape[0], bias.size))
        kernel(whole_tiles(x), held, bias, out)
        return out

    return compute


def _score(x: Any, weights: Any, bias: Any, out: Any) -> None:
    rows, outputs = out.shape
    sums = np.empty(HIGH * WIDE)
    for panel in range(weights.shape[0]):
        start = panel * WIDE
        columns = min(WIDE, outputs - start)
        for first in range(0, rows, HIGH):
            rounded_tile(x, first, weights, panel, 0, sums)
            for r in range(min(HIGH, rows - first)):
                for w in range(columns):
                    out[first + r, start + w] = sums[r * WIDE + w] + bias[start + w]


def _distances(x: Any, points: Any, bias: Any, out: Any) -> None:
    rows, outputs = out.shape
    sums = np.empty(HIGH * WIDE)
    for panel in range(points.shape[0]):
        start = panel * WIDE
        columns = min(WIDE, outputs - start)
        for first in range(0, rows, HIGH):
            rounded_tile(x, first, points, panel, 1, sums)
            for r in range(min(HIGH, rows - first)):
                for w in range(columns):
                    out[first + r, start + w] = sums[r * WIDE + w]


LANES = 8
"""Rows that one pass over the weights sums side by side, to hide the latency of an addition."""


def linear(weights: Array, bias: Array) -> Callable[[Array], Array]:
    """x (n, k) of the weights' dtype -> x @ weights (k, m) + bias (m,), summed from column 0 on."""
    dtype = weights.dtype
    if dtype == np.float64 and weights.shape[1] >= FEWEST_WIDE:
        return wide_linear(weights, bias)
    function = _one_output if weights.shape[1] == 1 else _outputs
    signature = (reads(dtype, 2), *kinds_of(weights, bias), writes(dtype, 2))
    kernel = specialise(function, signature)

    def score(x: Array) -> Array:
        out = np.zeros((x.shape[0], weights.shape[1]), dtype)
        kernel(x, weights, bias, out)
        return out

    return score


def _one_output(x: Any, weights: Any, bias: Any, out: Any) -> None:
    rows, columns = x.shape
    whole = rows - rows % LANES
    zero = out.dtype.type(0)
    for r in range(0, whole, LANES):
        s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = zero
        for c in range(columns):
            w = weights[c, 0]
            s0 += x[r, c] * w
            s1 += x[r + 1, c] * w
            s2 += x[r + 2, c] * w
            s3 += x[r + 3, c] * w
            s4 += x[r + 4, c] * w
            s5 += x[r + 5, c] * w
            s6 += x[r + 6, c] * w
            s7 += x[r + 7, c] * w
        b = bias[0]
        out[r, 0] = s0 + b
        out[r + 1, 0] = s1 + b
        out[r + 2, 0] = s2 + b
        out[r + 3, 0] = s3 + b
        out[r + 4, 0] = s4 + b
        out[r + 5, 0] = s5 + b
        out[r + 6, 0] = s6 + b
        out[r + 7, 0] = s7 + b
    for r in range(whole, rows):
        s = zero
        for c in range(columns):
            s += x[r, c] * weights[c, 0]
        out[r, 0] = s + bias[0]


def _outputs(x: Any, weights: Any, bias: Any, out: Any) -> None:
    for r in range(x.shape[0]):
        for c in range(x.shape[1]):
            value = x[r, c]
            for m in range(out.shape[1]):
                out[r, m] += value * weights[c, m]
        for m in range(out.shape[1]):
            out[r, m] += bias[m]
