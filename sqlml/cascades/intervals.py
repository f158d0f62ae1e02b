"""Exact intervals of a share that was counted in trials (Clopper and Pearson, 1934).

An interval is two-sided, of 95%: the true share lies below it in at most 2.5% of all samples, and
above it in as many.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np

from sqlml.types import Array

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
