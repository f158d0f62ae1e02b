"""`lowest_threshold`: from which confidence on a small model may answer for the full one."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from sqlml.cascades.intervals import LEVEL, least_share, most_share
from sqlml.types import Array

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
