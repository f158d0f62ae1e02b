"""`compare`: how far what a contender says is from what the source library says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Scores = npt.NDArray[np.float64]

EXACT = 1e-6
"""The largest relative difference that sqlml may have."""

PAPER = 1e-5
"""Relative and absolute tolerance of Hummingbird's output validation (section 6.1.1)."""

TINY = float(np.finfo(np.float64).tiny)


@dataclass(frozen=True, slots=True)
class Difference:
    """What sets a contender apart from the source library.

    largest: the largest absolute difference of any number; 0 where both give labels only.
    relative: the largest difference relative to the number itself.
    rows: the share of rows with a number beyond 1e-5, relative and absolute, the paper's bound.
    labels: the share of rows whose label differs; None where there are no labels.
    """

    largest: float
    relative: float
    rows: float
    labels: float | None

    @property
    def exact(self) -> bool:
        """Within sqlml's own promise: labels equal, numbers within 1e-6 relative."""
        return self.relative <= EXACT and not self.labels


def canonical(raw: Any, method: str) -> Scores:
    """What any library returns as (n, K); of two classes the probability of the second alone.

    Args:
        raw: (n,), (n, K), (n, 1, K) or a list of n mappings class -> probability.
        method: what was asked for; "predict_proba" of two columns becomes one.
    """
    if isinstance(raw, list) and raw and isinstance(raw[0], Mapping):
        raw = [list(row.values()) for row in raw]
    if hasattr(raw, "toarray"):
        raw = raw.toarray()
    scores = np.asarray(raw, np.float64)
    scores = scores.reshape(len(scores), -1)
    return scores[:, 1:] if method == "predict_proba" and scores.shape[1] == 2 else scores


def compare(got: Scores, want: Scores, method: str, *, labels: bool) -> Difference:
    """The difference of two canonical results; `labels` says whether `predict` gives classes.

    Raises:
        ValueError: the shapes differ, so the contender answers another question.
    """
    if got.shape != want.shape:
        raise ValueError(f"its result has the shape {got.shape}, the library's {want.shape}")
    if not want.size:
        return Difference(0.0, 0.0, 0.0, 0.0 if labels else None)
    if method == "predict" and labels:
        share = float((got != want).mean())
        return Difference(0.0, 0.0, share, share)
    # a number near zero may be the rest of larger ones that cancel: see docs/exactness.md
    floor = max(1e-3 * max(_largest(part) for _, part in _blocks(got, want)), TINY)
    parts = [_compare(g, w, method, floor) for g, w in _blocks(got, want)]
    largest, relative, beyond, differing = (list(column) for column in zip(*parts, strict=True))
    rows = len(want)
    return Difference(
        max(largest), max(relative), sum(beyond) / rows, sum(differing) / rows if labels else None
    )


def _compare(got: Scores, want: Scores, method: str, floor: float) -> tuple[float, float, int, int]:
    """Largest difference, largest relative one, rows beyond the paper's bound, other labels."""
    with np.errstate(invalid="ignore"):  # infinite minus infinite
        apart = np.abs(got - want)
    apart[(got == want) | (np.isnan(got) & np.isnan(want))] = 0.0
    apart[np.isnan(apart)] = np.inf
    size = np.where(np.isfinite(want), np.abs(want), 0.0)
    relative = apart / np.maximum(size, floor)
    beyond = (apart > PAPER + PAPER * size).any(axis=1)
    differing = _labels(got, method) != _labels(want, method)
    return float(apart.max()), float(relative.max()), int(beyond.sum()), int(differing.sum())


def _blocks(got: Scores, want: Scores) -> Iterator[tuple[Scores, Scores]]:
    """Both results a few rows at a time: a million rows of 231 columns are 2 GB already."""
    step = max(1, 1_000_000 // want.shape[1])
    for start in range(0, len(want), step):
        yield got[start : start + step], want[start : start + step]


def _largest(scores: Scores) -> float:
    """The largest finite size of any number."""
    size = np.abs(scores)
    return float(np.where(np.isfinite(size), size, 0.0).max())


def _labels(scores: Scores, method: str) -> npt.NDArray[np.int64]:
    """The class that a row's scores say."""
    if scores.shape[1] > 1:
        return np.asarray(scores.argmax(axis=1))
    return (scores[:, 0] > (0.5 if method == "predict_proba" else 0.0)).astype(np.int64)
