"""Tensors whose first axis is the rows: against numpy on the same numbers."""

from __future__ import annotations

import numpy as np
import pytest

from sqlml.importers.row_tensors import (
    RowTensor,
    Unsupported,
    apply_linear,
    apply_to_columns,
    broadcast_operands,
    concatenate_tensors,
    fill_shape,
    reduce_axes,
)
from sqlml.ir import reference
from sqlml.ir.builder import Builder, Value
from sqlml.types import Array

N = 5
DATA = np.random.default_rng(0).normal(size=(N, 2, 3))


def cube() -> tuple[Builder, RowTensor]:
    """A tensor (n, 2, 3)."""
    b = Builder()
    return b, RowTensor(b.input("x", "float64", 6), (2, 3))


def numbers(b: Builder, x: RowTensor) -> Array:
    """What the tensor is for `DATA`, in the graph's shape."""
    made = reference.run(b.build({"made": x.value}), {"x": DATA.reshape(N, 6)})["made"]
    return made.reshape(-1, *x.inner)


def test_numpys_own_functions_move_numbers() -> None:
    for change in (
        lambda grid: grid.transpose([0, 2, 1]),
        lambda grid: grid[:, ::-1, 1:],
        lambda grid: np.take(grid, [2, 0, 0], 2),
        lambda grid: np.broadcast_to(grid[:, :, None], (len(grid), 2, 4, 3)),
    ):
        b, x = cube()
        np.testing.assert_array_equal(numbers(b, apply_to_columns(b, x, change)), change(DATA))


def test_rows_stay_rows() -> None:
    for change in (lambda grid: grid[0], lambda grid: grid.T, lambda grid: np.repeat(grid, 2, 0)):
        with pytest.raises(Unsupported, match="mixes rows"):
            apply_to_columns(*cube(), change)
    with pytest.raises(ValueError, match="numbers per row"):
        apply_to_columns(*cube(), lambda grid: np.broadcast_to(grid, (1, 1 << 20, 2, 3)))


def test_one_length_of_a_shape_follows_from_the_others() -> None:
    assert fill_shape([3, -1], 6) == (3, 2)
    assert fill_shape([], 1) == ()
    for wanted in ([4, -1], [-1, -1], [5], [0, -1], [-2, -3]):
        with pytest.raises(Unsupported):
            fill_shape(wanted, 6)


@pytest.mark.parametrize("axis", [1, 2])
def test_tensors_side_by_side(axis: int) -> None:
    b, x = cube()
    made = concatenate_tensors(b, [x, apply_to_columns(b, x, lambda grid: grid[:, ::-1])], axis)
    np.testing.assert_array_equal(numbers(b, made), np.concatenate([DATA, DATA[:, ::-1]], axis))


def test_operands_are_broadcast_as_numpy_does() -> None:
    for other in (np.float64(2.0), np.arange(3.0), np.arange(2.0)[:, None], np.ones((1, 2, 3))):
        b, x = cube()
        values, inner = broadcast_operands(b, [x, np.asarray(other)])
        np.testing.assert_array_equal(
            numbers(b, RowTensor(b.op("mul", *values), inner)), DATA * other
        )
    b, x = cube()
    values, inner = broadcast_operands(b, [x, apply_to_columns(b, x, lambda grid: grid[:, :, :1])])
    result = numbers(b, RowTensor(b.op("mul", *values), inner))
    np.testing.assert_array_equal(result, DATA * DATA[:, :, :1])
    with pytest.raises(Unsupported, match="several rows"):
        broadcast_operands(b, [x, np.ones((N, 2, 3))])
    with pytest.raises(Unsupported, match="different rank"):
        broadcast_operands(b, [x, apply_to_columns(b, x, lambda grid: grid[:, 0])])
    with pytest.raises(Unsupported, match="none of its inputs has rows"):
        broadcast_operands(b, [np.ones(3)])


@pytest.mark.parametrize("axes", [(1,), (2,), (1, 2)])
@pytest.mark.parametrize("keep", [True, False])
def test_reductions_over_column_axes(axes: tuple[int, ...], keep: bool) -> None:
    b, x = cube()

    def most(value: Value, axis: int) -> Value:
        return b.op("max", value, axis=axis)

    made = numbers(b, reduce_axes(b, x, axes, most, keep=keep))
    np.testing.assert_array_equal(made, DATA.max(axes, keepdims=keep))


def test_products_are_of_rows_and_one_matrix() -> None:
    b, x = cube()
    weights = np.arange(12.0).reshape(6, 2)
    flat = RowTensor(x.value, (6,))
    want = DATA.reshape(N, 6) @ weights + 1
    made = numbers(b, apply_linear(b, flat, weights, np.ones(2)))
    np.testing.assert_allclose(made, want, rtol=1e-14, atol=1e-14)
    for tensor, matrix in ((x, weights), (flat, weights[:, 0]), (flat, weights.astype("f4"))):
        with pytest.raises(Unsupported, match="only the product of|it multiplies"):
            apply_linear(b, tensor, matrix)
