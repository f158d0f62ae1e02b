"""Search for the nearest points, and for the first of those at equal float32 distances.

This is the operator `nearest` with ties "index" (`ir/operators/neighbours.py`). Squared distances
are computed in float32, in tiles of rows and points (`matmul_tiles.py`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sqlml.backends.native.jit.specialise import inlined_helper
from sqlml.backends.native.kernel_calls import RowKernel
from sqlml.backends.native.rows.matmul_tiles import (
    SINGLE_WIDTH,
    TILE_ROWS,
    make_panels,
    rounded_tile,
)
from sqlml.ir.program import Attrs


def make_first_nearest_kernel(attrs: Attrs) -> RowKernel:
    """Return a kernel from float32 x (n, width) to distances and points, float64 (n, 2 * k)."""
    constants = (make_panels(attrs["points"].T), len(attrs["points"]), not attrs["squared"])
    single, double = np.dtype(np.float32), np.dtype(np.float64)
    return RowKernel.of(_find_first, single, constants, 2 * int(attrs["k"]), double)


def _find_first(x: Any, points: Any, point_count: Any, takes_roots: Any, out: Any) -> None:
    rows, width = x.shape
    k = out.shape[1] // 2
    block = np.zeros((TILE_ROWS, width), np.float32)
    tile = np.empty(TILE_ROWS * SINGLE_WIDTH, np.float32)
    for first_row in range(0, rows, TILE_ROWS):
        block_rows = min(TILE_ROWS, rows - first_row)
        for r in range(block_rows):
            for c in range(width):
                block[r, c] = x[first_row + r, c]
        selected = 0
        for panel in range(points.shape[0]):
            start = panel * SINGLE_WIDTH
            columns = min(SINGLE_WIDTH, point_count - start)
            rounded_tile(block, 0, points, panel, 1, tile)
            for r in range(block_rows):
                count, row = selected, first_row + r
                for column in range(columns):
                    distance = tile[r * SINGLE_WIDTH + column]
                    if takes_roots:
                        distance = np.sqrt(distance)
                    if count < k:
                        count += 1
                        _insert(out, row, count, k, np.float64(distance), start + column)
                    elif distance == distance and not out[row, k - 1] <= distance:
                        _insert(out, row, k, k, np.float64(distance), start + column)
            selected = min(k, selected + columns)


@inlined_helper
def _insert(out: Any, row: Any, count: Any, k: Any, distance: Any, point: Any) -> None:
    """Insert a point into the first `count` sorted ones; the last of these is overwritten."""
    position = count - 1
    # NaN is last, and the new point comes after equal ones.
    while position > 0 and distance == distance and not out[row, position - 1] <= distance:
        out[row, position] = out[row, position - 1]
        out[row, k + position] = out[row, k + position - 1]
        position -= 1
    out[row, position], out[row, k + position] = distance, point
