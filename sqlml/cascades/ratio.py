"""`smallest_ratio`: how many rows a top-K filter must leave for the full model (Willump, 4.2)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from sqlml.cascades.intervals import interval, most_failures
from sqlml.types import Array

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
