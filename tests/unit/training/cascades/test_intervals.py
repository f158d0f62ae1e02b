"""Exact intervals of shares, against scipy's."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom, binomtest

from sqlml.training.cascades.threshold import binomial_cdf, compute_interval, count_allowed_failures


def test_interval_is_that_of_clopper_and_pearson() -> None:
    random = np.random.default_rng(0)
    for _ in range(200):
        trials = int(random.integers(1, 5000))
        successes = int(random.integers(0, trials + 1))
        level = float(random.choice([0.9, 0.95, 0.999]))
        expected = binomtest(successes, trials).proportion_ci(level, method="exact")
        assert compute_interval(successes, trials, level) == pytest.approx(
            tuple(expected), abs=1e-9
        )


def test_at_most_is_the_binomial_distribution() -> None:
    for successes, trials, share in ((0, 1, 0.5), (3, 10, 0.2), (40, 3000, 0.01), (10, 10, 0.3)):
        assert binomial_cdf(successes, trials, share) == pytest.approx(
            binom.cdf(successes, trials, share), rel=1e-9
        )


def test_sample_sizes_for_failures() -> None:
    """The trials that show a share of 95%, and the paper's own 99 of 100, which do not."""
    for failures, trials in enumerate((72, 110, 142, 173, 202)):
        assert count_allowed_failures(trials) == failures
        assert count_allowed_failures(trials - 1) == failures - 1
    assert count_allowed_failures(100) == 0
