"""The normal distribution function and its inverse, against scipy's."""

from __future__ import annotations

import numpy as np
from scipy import special

from sqlml.ir.operators.elementwise import ndtr, ndtri


def test_the_inverse_in_the_middle_and_in_both_tails() -> None:
    rng = np.random.default_rng(0)
    tail = 10 ** (-300 * rng.random(3000))
    p = np.concatenate([rng.random(3000), tail, 1 - tail, 0.5 + 10 ** (-16 * rng.random(500))])
    np.testing.assert_allclose(ndtri(p), special.ndtri(p), rtol=1e-14, atol=0)


def test_ends_and_numbers_that_are_no_probability() -> None:
    p = np.array([0.0, 1.0, 0.5, -0.1, 1.1, np.nan, np.inf], np.float32)
    assert ndtri(p).dtype == np.float32
    np.testing.assert_array_equal(ndtri(p), special.ndtri(p))


def test_the_distribution_function_keeps_its_relative_accuracy() -> None:
    x = np.concatenate([np.linspace(-37, 37, 5000), [np.nan, np.inf, -np.inf, 0.0]])
    np.testing.assert_allclose(ndtr(x), special.ndtr(x), rtol=1e-12, atol=0)
    assert ndtr(np.zeros((0, 2))).shape == (0, 2)
