"""The native linear kernel: a row's score does not depend on the rows beside it."""

from __future__ import annotations

import numpy as np
import pytest

from sqlml.backends.native.rows.linear_kernels import make_linear_function


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("outputs", [1, 2, 5])
def test_a_row_scores_the_same_in_every_batch(dtype: type, outputs: int) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3000, 29)).astype(dtype)
    weights = rng.normal(size=(29, outputs)).astype(dtype)
    score = make_linear_function(weights, rng.normal(size=outputs).astype(dtype))
    whole = score(x)
    for start, stop in [(0, 1), (1, 8), (3, 20), (100, 2148), (2999, 3000), (5, 5)]:
        np.testing.assert_array_equal(score(x[start:stop]), whole[start:stop])
    np.testing.assert_array_equal(score(np.asfortranarray(x)), whole)


def test_the_scores_are_those_of_a_product() -> None:
    rng = np.random.default_rng(1)
    x, weights = rng.normal(size=(500, 40)), rng.normal(size=(40, 3))
    want = x @ weights + np.array([1.0, -2.0, 0.5])
    got = make_linear_function(weights, np.array([1.0, -2.0, 0.5]))(x)
    np.testing.assert_allclose(got, want, rtol=1e-11, atol=1e-13)


def test_no_columns_leave_the_bias() -> None:
    got = make_linear_function(np.zeros((0, 1)), np.array([7.0]))(np.zeros((9, 0)))
    assert got.tolist() == [[7.0]] * 9
