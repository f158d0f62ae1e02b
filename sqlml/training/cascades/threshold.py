"""`lowest_threshold`: from which confidence on a small model may answer for the full one."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from sqlml.types import Array

# Exact intervals of a share that was counted in trials (Clopper and Pearson, 1934).
#
# An interval is two-sided, of 95%: the true share lies below it in at most 2.5% of all samples,
# and above it in as many.


LEVEL = 0.95


def interval(successes: int, trials: int, level: float = LEVEL) -> tuple[float, float]:
    """Bounds of the true share of successes.

    >>> low, high = interval(72, 72)
    >>> round(low, 3), high
    (0.95, 1.0)
    """
    tail = (1 - level) / 2
    return least_share(successes, trials, tail), most_share(successes, trials, tail)


def least_share(successes: int, trials: int, tail: float) -> float:
    """What the true share of successes lies below in at most the share `tail` of all samples."""
    return 1 - most_share(trials - successes, trials, tail)


@lru_cache(maxsize=4096)
def most_share(successes: int, trials: int, tail: float) -> float:
    """What the true share of successes lies above in at most the share `tail` of all samples."""
    if successes >= trials:
        return 1.0
    return _root(lambda p: tail - at_most(successes, trials, p))


def at_most(successes: int, trials: int, share: float) -> float:
    """The probability of so many successes or fewer in `trials` of this share."""
    if successes >= trials or share <= 0:
        return 1.0
    if share >= 1:
        return 0.0
    k = np.arange(successes + 1)
    logs = _log_choices(trials)[k] + k * math.log(share) + (trials - k) * math.log1p(-share)
    return float(min(1.0, np.exp(logs).sum()))


@lru_cache(maxsize=8)
def most_failures(trials: int, share: float = LEVEL, level: float = LEVEL) -> int:
    """The most failures in `trials` for which the interval lies above `share`; -1 if none do.

    >>> [next(n for n in range(500) if most_failures(n) >= f) for f in range(5)]
    [72, 110, 142, 173, 202]
    """
    failures = -1
    while at_most(failures + 1, trials, 1 - share) < (1 - level) / 2:
        failures += 1
    return failures


@lru_cache(maxsize=8)
def _log_choices(n: int) -> Array:
    """log(n over k) for k = 0 to n."""
    logs = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, n + 1)))])
    made: Array = logs[n] - logs - logs[::-1]
    return made


def _root(rising: Callable[[float], float]) -> float:
    """Where a rising function of a share crosses zero."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if rising(middle) < 0:
            low = middle
        else:
            high = middle
    return (low + high) / 2


STEPS = 200
"""So many shares of confident rows are tried, from few rows to all."""


@dataclass(frozen=True, slots=True)
class Threshold:
    """The rows of which the small model is surer than `confidence` take its label.

    confident: the share of such rows. loss: by how much the accuracy fell on the rows held out;
    most_loss: what it is at most, with the certainty that was asked for.
    """

    confidence: float
    confident: float
    loss: float
    most_loss: float


def lowest_threshold(
    confidence: Array, small_right: Array, full_right: Array, loss: float, level: float = LEVEL
) -> Threshold | None:
    """The lowest threshold with which the accuracy falls by at most `loss`; None if there is none.

    Thresholds are tried from the highest on, and the first that may lose more ends the search, so
    that a wrong one is taken no more often than (1 - level) / 2, however many are tried.

    Args:
        confidence: (n,) of the small model's answers for rows that nobody trained on.
        small_right, full_right: (n,) bool, which answers are right.
    """
    n = confidence.size
    order = np.argsort(-confidence, kind="stable")
    order = order[: n - int(np.isnan(confidence).sum())]  # of the others no threshold is sure
    sure = confidence[order]
    if not sure.size:
        return None
    lost = np.cumsum((full_right & ~small_right)[order])
    won = np.cumsum((small_right & ~full_right)[order])
    ends = np.flatnonzero(np.append(sure[1:] < sure[:-1], True))  # equal confidences go together
    if ends.size > STEPS:
        ends = ends[np.linspace(0, ends.size - 1, STEPS).astype(int)]
    found = None
    for end in ends:
        most = most_loss(int(lost[end]), int(won[end]), n, level)
        if most > loss:
            break
        below = float(sure[end + 1] if end + 1 < sure.size else np.nextafter(sure[end], -np.inf))
        found = Threshold(below, (int(end) + 1) / n, (int(lost[end]) - int(won[end])) / n, most)
    return found


def most_loss(lost: int, won: int, rows: int, level: float = LEVEL) -> float:
    """The upper bound of a loss in accuracy: of the share of rows on which the full model alone is
    right, less that on which the small one is.

    The exact upper bound of the one share less the exact lower bound of the other, each with half
    of the risk: of rare rows approximate intervals promise too much.
    """
    tail = (1 - level) / 4
    return most_share(lost, rows, tail) - least_share(won, rows, tail)


def rows_needed(loss: float, level: float = LEVEL) -> int:
    """How many rows must be held out to show that at most `loss` is lost, where none was.

    >>> rows_needed(0.001)
    4380
    """
    return math.ceil(math.log((1 - level) / 4) / math.log1p(-loss))


# `smallest_ratio`: how many rows a top-K filter must leave for the full model (Willump, 4.2).


TRIALS = 200
"""So many queries are tried at most."""

FEWEST = 72
"""So many queries must be tried to show anything, where none of them fails."""


@dataclass(frozen=True, slots=True)
class Ratio:
    """The full model ranks the best `ratio` * K rows of the small one.

    trials: the queries that were tried, and how many of them were less precise than asked for;
    interval: of the share of those that were precise enough.
    """

    ratio: float
    trials: int
    failures: int
    interval: tuple[float, float]


def smallest_ratio(
    small: Array,
    full: Array,
    *,
    k: int,
    rows: int,
    precision: float,
    random: np.random.Generator,
) -> Ratio:
    """The smallest ratio with which top-K queries are precise enough.

    That is so if the 95% interval on the share of queries of which the precision is at least
    `precision` lies above 95%. Tables of `rows` rows are tried that have no row in common: Willump
    draws them at random, but then all of them have the same best rows, so that one lucky draw of
    rows to hold out decides them all.

    Args:
        small, full: (n,) the scores of both models for rows that nobody trained on; n is at least
            `FEWEST` * rows.
    """
    trials = min(small.size // rows, TRIALS)
    tables = random.permutation(small.size)[: trials * rows].reshape(trials, rows)
    needed = math.ceil(precision * k)
    ranks = np.sort([rank_needed(small[table], full[table], k, needed) for table in tables])
    rank = float(ranks[trials - 1 - max(most_failures(trials), 0)])
    failed = int((ranks > rank).sum())
    return Ratio(max(rank / k, 1.0), trials, failed, interval(trials - failed, trials))


def rank_needed(small: Array, full: Array, k: int, needed: int) -> int:
    """How many of the small model's best rows hold `needed` of the full model's best `k`."""
    k = min(k, full.size)
    needed = min(needed, k)
    least = np.partition(full, -k)[-k]  # rows that tie with the k-th are as good
    order = np.argsort(-small, kind="stable")
    good = np.cumsum(full[order] >= least)
    return int(np.searchsorted(good, needed)) + 1
