"""Kernels of matrix products by tiles: the bits of the operators that they stand for."""

from __future__ import annotations

import numpy as np
import pytest

from sqlml.backends.native.backend import NativeBackend
from sqlml.backends.native.rows.distance_kernels import make_expanded_search
from sqlml.backends.native.rows.linear_kernels import make_wide_linear
from sqlml.backends.native.rows.matmul_tiles import FUSES, TILE_ROWS, WIDTH, make_panels, pad_rows
from sqlml.ir import reference
from sqlml.ir.builder import Builder
from sqlml.ir.program import Program

fused = pytest.mark.skipif(not FUSES, reason="the processor has no fused multiply-add")


def native(program: Program, x: np.ndarray) -> np.ndarray:
    return NativeBackend().compile(program).run({"x": x})["transform"]


def search_program(points: np.ndarray, k: int) -> Program:
    b = Builder()
    x = b.input("x", "float64", points.shape[1])
    attrs = {"metric": "sqeuclidean", "ties": "heap", "expanded": True}
    return b.build({"transform": b.op("nearest", x, points=points, k=k, **attrs)})


def norms_program(means: np.ndarray, turns: np.ndarray) -> Program:
    b = Builder()
    x = b.op("reshape", b.input("x", "float64", means.shape[1]), shape=(1, means.shape[1]))
    centred = b.op("sub", x, b.constant(means))
    turned = b.op("batch_matmul", centred, b.constant(turns))
    norm = b.op("sum", b.op("square", turned), axis=2)
    return b.build({"transform": b.op("reshape", norm, shape=(len(means),))})


def test_factors_are_padded_to_whole_tiles() -> None:
    right = np.arange(1.0, 2 * (WIDTH + 1) + 1).reshape(2, WIDTH + 1)
    held = make_panels(right)
    assert held.shape == (2, 2, WIDTH)
    np.testing.assert_array_equal(held[0], right[:, :WIDTH])
    np.testing.assert_array_equal(held[1, :, 0], right[:, WIDTH])
    assert not held[1, :, 1:].any()
    left = np.ones((TILE_ROWS + 1, 3))
    assert pad_rows(left).shape == (2 * TILE_ROWS, 3) and pad_rows(left).sum() == left.size
    assert pad_rows(left[:0]).shape == (0, 3)


@pytest.mark.parametrize("width", [0, 1, 7, 130])
@pytest.mark.parametrize("outputs", [2, WIDTH - 1, WIDTH, 2 * WIDTH + 1])
def test_a_linear_model_has_the_bits_of_the_reference(width: int, outputs: int) -> None:
    rng = np.random.default_rng(width)
    weights, bias = rng.normal(size=(width, outputs)), rng.normal(size=outputs)
    score = make_wide_linear(weights, bias)
    for rows in (0, 1, TILE_ROWS - 1, TILE_ROWS, 3 * TILE_ROWS + 1):
        x = rng.normal(size=(rows, width)) * 10.0 ** rng.integers(-9, 9, (rows, width))
        want = reference.FUNCTIONS["linear"]([x], {"weights": weights, "bias": bias})
        np.testing.assert_array_equal(score(x), want)
        np.testing.assert_array_equal(score(np.asfortranarray(x)), want)


def test_infinity_and_nan_stay_in_their_row() -> None:
    x = np.zeros((TILE_ROWS + 2, 3))
    x[1, 0], x[TILE_ROWS + 1, 2] = np.inf, np.nan
    made = make_wide_linear(np.ones((3, 5)), np.zeros(5))(x)
    assert np.isinf(made[1]).all() and np.isnan(made[-1]).all()
    assert not np.delete(made, [1, TILE_ROWS + 1], axis=0).any()


@fused
@pytest.mark.parametrize("width", [1, 16, 40])
@pytest.mark.parametrize("count", [5, WIDTH, 3 * WIDTH + 2])
def test_a_search_finds_the_points_of_the_reference(width: int, count: int) -> None:
    """Halves, so that many points are equally far, and tenths, which differ by rounding alone."""
    rng = np.random.default_rng(count)
    for scale in (2.0, 10.0):
        points = rng.integers(-4, 5, (count, width)) / scale
        x = rng.integers(-4, 5, (3 * TILE_ROWS + 1, width)) / scale
        x[0] = points[-1]
        for k in (1, 4, count):
            program = search_program(points, k)
            want = reference.run(program, {"x": x})["transform"]
            np.testing.assert_array_equal(native(program, x), want)
            np.testing.assert_array_equal(native(program, x[:1]), want[:1])


@fused
def test_more_neighbours_than_are_sorted_by_insertion() -> None:
    rng = np.random.default_rng(0)
    program = search_program(rng.integers(-4, 5, (300, 3)) / 2, 100)
    x = rng.integers(-4, 5, (20, 3)) / 2
    np.testing.assert_array_equal(native(program, x), reference.run(program, {"x": x})["transform"])


@fused
def test_more_points_than_the_cache_holds() -> None:
    rng = np.random.default_rng(1)
    points, x = rng.normal(size=(700, 90)), rng.normal(size=(50, 90))
    program = search_program(points, 6)
    want = reference.run(program, {"x": x})["transform"]
    np.testing.assert_array_equal(native(program, x), want)
    np.testing.assert_array_equal(native(program, np.asfortranarray(x)), want)


@fused
@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf, 1e200])
def test_what_is_infinitely_far_is_never_taken(odd: float) -> None:
    points = np.random.default_rng(2).normal(size=(30, 4))
    x = np.zeros((TILE_ROWS + 3, 4))
    x[2, 1] = odd
    program = search_program(points, 3)
    want = reference.run(program, {"x": x})["transform"]
    np.testing.assert_array_equal(native(program, x), want)
    assert np.isinf(want[2, :3]).all() and not want[2, 3:].any()
    search = make_expanded_search(points)
    assert search is not None
    values, index = np.full((0, 3), np.inf), np.zeros((0, 3), np.int64)
    search(x[:0], values, index)
    assert values.shape == (0, 3)


@fused
@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 17, 17), (3, 5, 8), (9, 30, 11)], ids=str)
def test_squared_lengths_are_those_of_the_reference(shape: tuple[int, int, int]) -> None:
    """|(x - mean) @ turn|^2 of each class."""
    rng = np.random.default_rng(3)
    classes, width, turned = shape
    means, turns = rng.normal(size=(classes, width)), rng.normal(size=(classes, width, turned))
    program = norms_program(means, turns)
    x = rng.normal(size=(2 * WIDTH + 5, width))
    want = reference.run(program, {"x": x})["transform"]
    made = native(program, x)
    np.testing.assert_allclose(made, want, rtol=1e-13)
    np.testing.assert_array_equal(native(program, np.asfortranarray(x)), made)
    for start, stop in ((0, 1), (3, 9), (WIDTH - 1, WIDTH + 2), (4, 4)):
        np.testing.assert_array_equal(native(program, x[start:stop]), made[start:stop])


@fused
def test_a_length_may_be_infinite() -> None:
    """Not NaN, which rows of zeros after the last one would make of it."""
    program = norms_program(np.zeros((2, 2)), np.ones((2, 2, 3)))
    x = np.array([[1e200, 0.0], [1.0, 2.0]])
    assert native(program, x).tolist() == [[np.inf, np.inf], [27.0, 27.0]]


@pytest.mark.parametrize("metric", ["sqeuclidean", "dot"])
def test_distances_have_the_bits_of_the_reference(metric: str) -> None:
    rng = np.random.default_rng(4)
    for width, count in ((1, 1), (5, WIDTH), (33, 2 * WIDTH + 3)):
        points = rng.normal(size=(count, width))
        b = Builder()
        x = b.op("pairwise", b.input("x", "float64", width), points=points, metric=metric)
        program = b.build({"transform": x})
        for rows in (0, 1, 3 * TILE_ROWS + 2):
            batch = rng.normal(size=(rows, width))
            batch[rows // 2 :, 0] = np.inf
            with np.errstate(all="ignore"):
                want = reference.run(program, {"x": batch})["transform"]
            np.testing.assert_array_equal(native(program, batch), want)


def test_a_search_by_partition_keeps_the_points_that_numpy_keeps() -> None:
    """Whole numbers, so that most points at the edge are equally far."""
    rng = np.random.default_rng(5)
    points = rng.integers(0, 2, (800, 20)).astype(float)
    b = Builder()
    x = b.input("x", "float64", 20)
    found = b.op("nearest", x, points=points, metric="sqeuclidean", k=7, ties="partition")
    program = b.build({"transform": found})
    batch = rng.integers(0, 2, (300, 20)).astype(float)
    want = reference.run(program, {"x": batch})["transform"]
    np.testing.assert_array_equal(native(program, batch), want)
    np.testing.assert_array_equal(native(program, batch[100:101]), want[100:101])
