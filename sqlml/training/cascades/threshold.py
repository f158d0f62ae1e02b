"""Find thresholds of cascades and ratios of top-K filters, with statistical confidence.

Bounds on a share that was counted in trials are exact (Clopper and Pearson, 1934). An interval of
95% is two-sided: the true share lies below the interval in at most 2.5% of all samples, and above
the interval in at most 2.5%.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from sqlml.types import Array

LEVEL = 0.95


def compute_interval(successes: int, trials: int, level: float = LEVEL) -> tuple[float, float]:
    """Return the confidence interval of the true share of successes.

    >>> low, high = compute_interval(72, 72)
    >>> round(low, 3), high
    (0.95, 1.0)
    """
    tail = (1 - level) / 2
    return find_lower_bound(successes, trials, tail), find_upper_bound(successes, trials, tail)


def find_lower_bound(successes: int, trials: int, tail: float) -> float:
    """Return the lower Clopper-Pearson bound of a share of successes, with the risk `tail`.

    The probability that the true share is below this bound is at most `tail`.
    """
    return 1 - find_upper_bound(trials - successes, trials, tail)


@lru_cache(maxsize=4096)
def find_upper_bound(successes: int, trials: int, tail: float) -> float:
    """Return the upper Clopper-Pearson bound of a share of successes, with the risk `tail`."""
    if successes >= trials:
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(60):  # Bisection: the probability falls with the share.
        middle = (low + high) / 2
        if binomial_cdf(successes, trials, middle) > tail:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def binomial_cdf(successes: int, trials: int, share: float) -> float:
    """Return the binomial probability of at most `successes` in `trials`."""
    if successes >= trials or share <= 0:
        return 1.0
    if share >= 1:
        return 0.0
    k = np.arange(successes + 1)
    log_binomials = _compute_log_binomials(trials)[k]
    log_terms = log_binomials + k * math.log(share) + (trials - k) * math.log1p(-share)
    return float(min(1.0, np.exp(log_terms).sum()))


@lru_cache(maxsize=8)
def count_allowed_failures(trials: int, share: float = LEVEL, level: float = LEVEL) -> int:
    """Return how many trials may fail so that the interval of successes still lies above `share`.

    Return -1 if `trials` are too few even without a failure.

    >>> [next(n for n in range(500) if count_allowed_failures(n) >= f) for f in range(5)]
    [72, 110, 142, 173, 202]
    """
    failures = -1
    while binomial_cdf(failures + 1, trials, 1 - share) < (1 - level) / 2:
        failures += 1
    return failures


@lru_cache(maxsize=8)
def _compute_log_binomials(n: int) -> Array:
    log_factorials = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, n + 1)))])
    return np.asarray(log_factorials[n] - log_factorials - log_factorials[::-1])


MAX_THRESHOLDS = 200
"""Upper bound on the thresholds that are tried."""


@dataclass(frozen=True, slots=True)
class Threshold:
    """A threshold on the confidence above which the small model's label is used.

    confidence: the threshold. confident: the share of rows above the threshold. loss: the decrease
    in accuracy on the held-out rows. max_loss: the upper bound of the loss, at the requested
    confidence level.
    """

    confidence: float
    confident: float
    loss: float
    max_loss: float


def find_lowest_threshold(
    confidence: Array,
    small_is_correct: Array,
    full_is_correct: Array,
    loss: float,
    level: float = LEVEL,
) -> Threshold | None:
    """Find the lowest threshold that loses at most `loss` of accuracy, or None if all lose more.

    All arrays are (n,), one entry per held-out row. Thresholds are tried in descending order until
    one may lose more. The probability of a wrong result is therefore at most (1 - level) / 2.
    """
    n = confidence.size
    order = np.argsort(-confidence, kind="stable")
    order = order[: n - int(np.isnan(confidence).sum())]  # NaN is sorted last.
    if not order.size:
        return None
    lost_counts = np.cumsum((full_is_correct & ~small_is_correct)[order])
    won_counts = np.cumsum((small_is_correct & ~full_is_correct)[order])
    sorted_confidence = confidence[order]
    # Each row has the next lower confidence as threshold. Rows of equal confidence share one.
    thresholds = np.append(sorted_confidence[1:], np.nextafter(sorted_confidence[-1], -np.inf))
    ends = np.flatnonzero(thresholds < sorted_confidence)
    if ends.size > MAX_THRESHOLDS:
        ends = ends[np.linspace(0, ends.size - 1, MAX_THRESHOLDS).astype(int)]
    lowest = None
    for end in ends:
        loss_bound = bound_loss(int(lost_counts[end]), int(won_counts[end]), n, level)
        if loss_bound > loss:
            break
        difference = int(lost_counts[end]) - int(won_counts[end])
        lowest = Threshold(float(thresholds[end]), (int(end) + 1) / n, difference / n, loss_bound)
    return lowest


def bound_loss(lost: int, won: int, rows: int, level: float = LEVEL) -> float:
    """Return an upper bound of the loss of accuracy, from a test of `rows` rows.

    Only the full model was correct on `lost` rows, and only the small model on `won` rows. The
    bound is the exact upper bound of the lost share minus the exact lower bound of the won share,
    each at half of the risk.
    """
    tail = (1 - level) / 4
    return find_upper_bound(lost, rows, tail) - find_lower_bound(won, rows, tail)


def count_needed_rows(loss: float, level: float = LEVEL) -> int:
    """Return how many rows must be held out to bound the loss, if no prediction gets worse.

    >>> count_needed_rows(0.001)
    4380
    """
    return math.ceil(math.log((1 - level) / 4) / math.log1p(-loss))


MAX_QUERIES = 200
"""Upper bound on the queries that are tried."""

MIN_QUERIES = 72
"""Minimum number of queries that can prove the precision, if no query fails."""


@dataclass(frozen=True, slots=True)
class FilterRatio:
    """The rows that a top-K filter leaves to the full model: the small model's best `ratio` * K.

    trials: the number of queries tried. failures: the number of queries with too little precision.
    interval: the confidence interval of the share of queries with sufficient precision.
    """

    ratio: float
    trials: int
    failures: int
    interval: tuple[float, float]


def find_smallest_ratio(
    small: Array, full: Array, *, k: int, rows: int, precision: float, random: np.random.Generator
) -> FilterRatio:
    """Return the smallest ratio with which top-K queries are precise enough (Willump, 4.2).

    `small` and `full` are the scores (n,) of both models. The 95% interval of the share of queries
    with a precision of at least `precision` must lie above 95%. Each query is tried on a table of
    `rows` rows that shares no rows with other tables. Willump draws overlapping tables, which
    contain the same best rows, so the queries are not independent.
    """
    trials = min(small.size // rows, MAX_QUERIES)
    tables = random.permutation(small.size)[: trials * rows].reshape(trials, rows)
    needed = math.ceil(precision * k)
    ranks = np.sort([find_needed_rank(small[table], full[table], k, needed) for table in tables])
    rank = float(ranks[trials - 1 - max(count_allowed_failures(trials), 0)])
    failures = int((ranks > rank).sum())
    interval = compute_interval(trials - failures, trials)
    return FilterRatio(max(rank / k, 1.0), trials, failures, interval)


def find_needed_rank(small_scores: Array, full_scores: Array, k: int, needed: int) -> int:
    """Return how many rows with the best `small_scores` contain `needed` of the best `k` rows."""
    k = min(k, full_scores.size)
    needed = min(needed, k)
    kth_score = np.partition(full_scores, -k)[-k]  # Rows that tie with the k-th are as good.
    order = np.argsort(-small_scores, kind="stable")
    return int(np.searchsorted(np.cumsum(full_scores[order] >= kth_score), needed)) + 1
