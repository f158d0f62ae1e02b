"""Searches in sorted points, and lines between them: the bits of numpy's."""

from __future__ import annotations

import numpy as np
import pytest

from sqlml.backends.native.rows.piecewise_kernels import (
    make_interpolation_kernel,
    make_search_kernel,
)
from sqlml.ir import reference


def columns(sizes: list[int], dtype: type, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Sorted tenths for each column, many of them equal, and where each column's begin."""
    rng = np.random.default_rng(seed)
    points = [np.sort(rng.integers(-20, 21, size) / 10).astype(dtype) for size in sizes]
    return np.concatenate(points), np.cumsum([0, *sizes])


def rows_among(count: int, width: int, dtype: type, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, width)) * 2
    tenths = rng.random(x.shape) < 0.4
    x[tenths] = np.rint(x[tenths] * 10) / 10
    for odd in (np.nan, np.inf, -np.inf, -0.0):
        x[rng.random(x.shape) < 0.03] = odd
    return x.astype(dtype)


SIZES = [[1], [2, 1, 3], [100, 7, 64, 65], [5] * 20]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("side", ["left", "right"])
def test_as_many_edges_are_below_as_numpy_counts(dtype: type, side: str) -> None:
    for seed, sizes in enumerate([*SIZES, [0, 4, 0]]):
        edges, offsets = columns(sizes, dtype, seed)
        for count in (0, 1, 255, 256, 700):
            x = rows_among(count, len(sizes), dtype, count)
            attrs = {"edges": edges, "offsets": offsets, "side": side}
            want = reference.FUNCTIONS["search_sorted"]([x], attrs)
            made = make_search_kernel(edges, offsets, side)(x)
            assert made.dtype == np.int64
            np.testing.assert_array_equal(made, want)
            np.testing.assert_array_equal(
                make_search_kernel(edges, offsets, side)(np.asfortranarray(x)), want
            )


@pytest.mark.parametrize("ends", ["finite", "infinite"])
def test_lines_are_numpys(ends: str) -> None:
    for seed, sizes in enumerate(SIZES):
        points, offsets = columns(sizes, np.float64, seed)
        values = np.random.default_rng(seed).normal(size=points.size)
        if ends == "infinite":
            points[offsets[1:] - 1] = np.inf
            values[offsets[1:] - 1] = values[np.maximum(offsets[1:] - 2, 0)]
        for count in (0, 1, 256, 700):
            x = rows_among(count, len(sizes), np.float64, count)
            attrs = {"points": points, "values": values, "offsets": offsets}
            with np.errstate(all="ignore"):
                want = reference.FUNCTIONS["interpolate"]([x], attrs)
            np.testing.assert_array_equal(
                make_interpolation_kernel(points, values, offsets)(x), want
            )
