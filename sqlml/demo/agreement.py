"""How far scores from SQL are from those of the source library."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from sqlml.errors import ScoringError

TOLERANCE = 1e-6
"""Largest relative difference that counts as the same score."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """The comparison of all rows of one model."""

    name: str
    rows: int
    wrong_labels: int
    largest_difference: float
    largest_relative: float

    def check(self) -> None:
        """Pass, or raise.

        Raises:
            ScoringError: a label differs, or a score by more than `TOLERANCE`.
        """
        if self.wrong_labels or not self.largest_relative <= TOLERANCE:
            raise ScoringError(
                f"{self.name}: {self.wrong_labels} of {self.rows} labels differ from the source "
                f"library's, and scores by up to {self.largest_relative:.3g} relative; at most "
                f"{TOLERANCE:g} is allowed; please report this as a bug in sqlml"
            )


def compare(
    name: str, labels: Any, scores: Any, expected_labels: Any, expected_scores: Any
) -> Agreement:
    """Compare arrays of shape (n,): labels and scores from SQL with the library's own.

    A NULL or NaN score differs without limit from any number.
    """
    got = np.asarray(scores, np.float64)
    want = np.asarray(expected_scores, np.float64)
    wrong = np.asarray(labels, object) != np.asarray(expected_labels, object)
    difference = np.where(np.isfinite(got), np.abs(got - want), np.inf)
    # The smallest normal number keeps 0 against 0 at no difference, and 0 against more a large one.
    relative = difference / np.maximum(np.abs(want), np.finfo(np.float64).tiny)
    return Agreement(
        name,
        len(want),
        int(np.count_nonzero(wrong)),
        float(difference.max(initial=0.0)),
        float(relative.max(initial=0.0)),
    )
