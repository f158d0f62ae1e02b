"""Compute linear scores with the same order of summation at every position of a batch.

BLAS sums rows in different orders at different positions. Then scores of equal rows could differ in
the last bit, and `WHERE predict(...) = (SELECT max(predict(...)) ...)` could return no row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from sqlml.backends.native.jit.specialise import inlined_helper, reads, specialise, to_kinds, writes
from sqlml.backends.native.kernel_calls import RowKernel
from sqlml.backends.native.rows.matmul_tiles import (
    TILE_ROWS,
    WIDTH,
    make_panels,
    pad_rows,
    rounded_tile,
)
from sqlml.types import Array

MIN_TILED_OUTPUTS = 2
"""The fewest outputs for which tiles are faster, even if most of the tile is unused."""


def make_wide_linear(weights: Array, bias: Array) -> Callable[[Array], Array]:
    """Return a function from float64 x (n, k) to x @ weights + bias, summed from column 0 on."""
    return _make_tiled(_score, weights, bias)


def make_squared_distances(points: Array) -> Callable[[Array], Array]:
    """Return a function from float64 x (n, k) to squared distances (n, m) to `points` (m, k)."""
    return _make_tiled(_distances, points.T, np.zeros(len(points)))


def _make_tiled(
    function: Callable[..., Any], right: Array, bias: Array
) -> Callable[[Array], Array]:
    panels, bias = make_panels(right), np.ascontiguousarray(bias)
    signature = (reads(np.float64, 2, "C"), *to_kinds(panels, bias), writes(np.float64, 2))
    kernel = specialise(function, signature)

    def compute(x: Array) -> Array:
        out = np.empty((x.shape[0], bias.size))
        kernel(pad_rows(x), panels, bias, out)
        return out

    return compute


def _score(x: Any, weights: Any, bias: Any, out: Any) -> None:
    _fill_tiles(x, weights, bias, 0, out)


def _distances(x: Any, points: Any, bias: Any, out: Any) -> None:
    _fill_tiles(x, points, bias, 1, out)


@inlined_helper
def _fill_tiles(x: Any, right: Any, bias: Any, gaps: Any, out: Any) -> None:
    rows, outputs = out.shape
    sums = np.empty(TILE_ROWS * WIDTH)
    for panel in range(right.shape[0]):
        start = panel * WIDTH
        columns = min(WIDTH, outputs - start)
        for first_row in range(0, rows, TILE_ROWS):
            rounded_tile(x, first_row, right, panel, gaps, sums)
            for r in range(min(TILE_ROWS, rows - first_row)):
                for c in range(columns):
                    out[first_row + r, start + c] = sums[r * WIDTH + c] + bias[start + c]


LANES = 8
"""Rows that are summed side by side in one pass over the weights, to hide latency."""


def make_linear_function(weights: Array, bias: Array) -> Callable[[Array], Array]:
    dtype, outputs = weights.dtype, weights.shape[1]
    if dtype == np.float64 and outputs >= MIN_TILED_OUTPUTS:
        return make_wide_linear(weights, bias)
    function = _one_output if outputs == 1 else _outputs
    return RowKernel.of(function, dtype, (weights, bias), outputs, dtype, is_zeroed=True)


def _one_output(x: Any, weights: Any, bias: Any, out: Any) -> None:
    rows, columns = x.shape
    end = rows - rows % LANES
    zero = out.dtype.type(0)
    for r in range(0, end, LANES):
        s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = zero
        for c in range(columns):
            weight = weights[c, 0]
            s0 += x[r, c] * weight
            s1 += x[r + 1, c] * weight
            s2 += x[r + 2, c] * weight
            s3 += x[r + 3, c] * weight
            s4 += x[r + 4, c] * weight
            s5 += x[r + 5, c] * weight
            s6 += x[r + 6, c] * weight
            s7 += x[r + 7, c] * weight
        intercept = bias[0]
        out[r, 0] = s0 + intercept
        out[r + 1, 0] = s1 + intercept
        out[r + 2, 0] = s2 + intercept
        out[r + 3, 0] = s3 + intercept
        out[r + 4, 0] = s4 + intercept
        out[r + 5, 0] = s5 + intercept
        out[r + 6, 0] = s6 + intercept
        out[r + 7, 0] = s7 + intercept
    for r in range(end, rows):
        total = zero
        for c in range(columns):
            total += x[r, c] * weights[c, 0]
        out[r, 0] = total + bias[0]


def _outputs(x: Any, weights: Any, bias: Any, out: Any) -> None:
    for r in range(x.shape[0]):
        for c in range(x.shape[1]):
            value = x[r, c]
            for k in range(out.shape[1]):
                out[r, k] += value * weights[c, k]
        for k in range(out.shape[1]):
            out[r, k] += bias[k]
