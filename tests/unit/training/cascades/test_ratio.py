"""Ratios of top-K filters, and their precision on rows that were not used to find them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from sqlml.training.cascades.threshold import find_needed_rank, find_smallest_ratio


def test_rank_needed_counts_to_the_last_row_that_is_needed() -> None:
    full = np.array([9.0, 8.0, 7.0, 1.0, 2.0])
    small = np.array([5.0, 1.0, 4.0, 3.0, 2.0])
    assert find_needed_rank(small, full, k=3, needed=2) == 2
    assert find_needed_rank(small, full, k=3, needed=3) == 5
    assert find_needed_rank(small, small, k=3, needed=3) == 3


def test_rows_that_tie_with_the_last_one_are_as_good() -> None:
    full = np.array([2.0, 1.0, 1.0, 1.0, 0.0])
    small = np.array([5.0, 1.0, 2.0, 4.0, 3.0])
    assert find_needed_rank(small, full, k=2, needed=2) == 2


def test_queries_of_fresh_rows_are_precise_enough() -> None:
    random = np.random.default_rng(4)
    full = random.normal(size=160_000)
    small = full + random.normal(size=160_000) * 0.3
    ratio = find_smallest_ratio(
        small[:60_000], full[:60_000], k=20, rows=400, precision=0.95, random=random
    )
    remaining = math.ceil(ratio.ratio * 20)
    precise = []
    for _ in range(300):
        sample = random.choice(np.arange(60_000, 160_000), 400, replace=False)
        best = set(sample[np.argsort(-full[sample])[:20]])
        left = sample[np.argsort(-small[sample])[:remaining]]
        precise.append(len(best & set(left)) >= 19)
    assert np.mean(precise) >= 0.95
    assert ratio.interval[0] > 0.95 and ratio.trials == 150 and ratio.failures <= 2
    assert 1 < ratio.ratio < 10


def test_a_perfect_small_model_needs_no_more_rows_than_k() -> None:
    random = np.random.default_rng(5)
    full = random.normal(size=20_000)
    ratio = find_smallest_ratio(full * 2, full, k=10, rows=200, precision=1.0, random=random)
    assert ratio.ratio == pytest.approx(1.0) and ratio.failures == 0
