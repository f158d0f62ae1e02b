"""`smallest_ratio`: how many rows a top-K filter must leave for the full model (Willump, 4.2)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from sqlml.cascades.intervals import interval, most_failures
from sqlml.types import Array

TRIALS = 400
"""So many queries are tried."""


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
    trials: int = TRIALS,
) -> Ratio:
    """The smallest ratio with which top-K queries are precise enough.

    That is so if the 95% interval on the share of queries of which the precision is at least
    `precision` lies above 95%. What is tried are samples of `rows` rows.

    Args:
        small, full: (n,) the scores of both models for rows that nobody trained on.
    """
    needed = math.ceil(precision * k)
    wanted = np.empty(trials)
    for trial in range(trials):
        sample = random.choice(small.size, min(rows, small.size), replace=False)
        wanted[trial] = rank_needed(small[sample], full[sample], k, needed)
    wanted.sort()
    failures = max(most_failures(trials), 0)
    rank = float(wanted[trials - 1 - failures])
    failed = int((wanted > rank).sum())
    return Ratio(max(rank / k, 1.0), trials, failed, interval(trials - failed, trials))


def rank_needed(small: Array, full: Array, k: int, needed: int) -> int:
    """How many of the small model's best rows hold `needed` of the full model's best `k`."""
    k = min(k, full.size)
    needed = min(needed, k)
    least = np.partition(full, -k)[-k]  # rows that tie with the k-th are as good
    order = np.argsort(-small, kind="stable")
    good = np.cumsum(full[order] >= least)
    return int(np.searchsorted(good, needed)) + 1
