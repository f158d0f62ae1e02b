"""Linear scores with many outputs, and distances to many points, by tiles.

The same sums as those of `linear.py` and `distances.py`, in the same order, so the same bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from sqlml.backends.native.jit.specialise import kinds_of, reads, specialise, writes
from sqlml.backends.native.rows.matmul_tiles import HIGH, WIDE, panels, rounded_tile, whole_tiles
from sqlml.types import Array

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
