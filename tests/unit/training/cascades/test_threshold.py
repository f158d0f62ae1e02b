"""Thresholds of confidence: what is lost at most, on rows that were not looked at."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from sqlml.training.cascades.threshold import bound_loss, count_needed_rows, find_lowest_threshold


def models(n: int, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Confidence of a small model, whether it is right, and whether the full one is."""
    confidence = random.random(n)
    full = random.random(n) < 0.95
    small = np.where(random.random(n) < confidence**0.2, full, random.random(n) < 0.6)
    return confidence, small, full


def test_confident_rows_lose_at_most_what_was_allowed() -> None:
    """On fresh rows, in all but a few of many samples."""
    random = np.random.default_rng(3)
    fresh = models(400_000, random)
    lost = []
    for _ in range(200):
        threshold = find_lowest_threshold(*models(4_000, random), loss=0.01)
        assert threshold is not None
        sure = fresh[0] > threshold.confidence
        lost.append((np.where(sure, fresh[2], False) & ~fresh[1]).mean())
        lost[-1] -= (sure & fresh[1] & ~fresh[2]).mean()
    assert np.mean(np.array(lost) > 0.01) <= 0.05
    assert np.mean(lost) > 0.003  # and it is not more careful than it must be


def test_the_lowest_threshold_is_taken() -> None:
    confidence = np.linspace(0, 1, 2_000)
    right = np.ones(2_000, bool)
    wrong_below = confidence >= 0.4
    threshold = find_lowest_threshold(confidence, wrong_below, right, loss=0.01)
    assert threshold is not None
    assert threshold.confident == pytest.approx(0.6, abs=0.02)
    assert threshold.confidence < 0.41
    assert threshold.loss <= threshold.max_loss <= 0.01
    assert (confidence > threshold.confidence).mean() == threshold.confident


def test_rows_of_one_confidence_go_together() -> None:
    confidence = np.repeat([0.9, 0.6], 1_000)
    right = np.ones(2_000, bool)
    small = np.concatenate([right[:1_000], right[1_000:] & False])
    threshold = find_lowest_threshold(confidence, small, right, loss=0.01)
    assert threshold is not None and threshold.confident == 0.5 and threshold.confidence == 0.6
    assert find_lowest_threshold(confidence, ~right, right, loss=0.01) is None


def test_all_rows_may_be_confident() -> None:
    right = np.ones(2_000, bool)
    threshold = find_lowest_threshold(np.linspace(0.5, 1, 2_000), right, right, loss=0.01)
    assert threshold is not None and threshold.confident == 1.0
    assert 0.4999 < threshold.confidence < 0.5, "the catalog keeps no infinity"
    nothing = np.full(500, np.nan)
    known = np.concatenate([np.linspace(0.5, 1, 1_500), nothing])
    threshold = find_lowest_threshold(known, right, right, loss=0.01)
    assert threshold is not None and threshold.confident == 0.75
    assert find_lowest_threshold(nothing, right[:500], right[:500], loss=0.01) is None


def test_few_rows_show_no_small_loss() -> None:
    needed = count_needed_rows(0.01)
    assert bound_loss(0, 0, needed) <= 0.01 < bound_loss(0, 0, needed - 1)
    right = np.ones(needed - 1, bool)
    assert find_lowest_threshold(np.linspace(0, 1, needed - 1), right, right, loss=0.01) is None


@pytest.mark.parametrize(("lost", "won"), [(1.0, 0.0), (3.0, 1.0), (2.0, 2.0), (6.0, 4.0)])
def test_the_bound_of_rare_rows_holds_as_often_as_it_says(lost: float, won: float) -> None:
    """Expected numbers of rows that are lost and won, of 10,000; each is drawn 20,000 times."""
    random = np.random.default_rng(0)
    drawn = zip(random.poisson(lost, 20_000), random.poisson(won, 20_000), strict=True)
    counts = Counter((int(gone), int(more)) for gone, more in drawn)
    real = (lost - won) / 10_000
    missed = sum(n for (a, b), n in counts.items() if bound_loss(a, b, 10_000) < real)
    assert missed <= 0.025 * 20_000
