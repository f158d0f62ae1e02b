"""Differences between the outputs of a model and of its source, and their tolerance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from sqlml.ir.program import Program
from sqlml.types import Array

TOLERANCE = 1e-6
"""The largest relative difference that is allowed, as promised in docs/exactness.md."""

_TOLERANCES = {"torch": 2e-5, "onnx": 2e-5}


def get_tolerance(family: str | None) -> float:
    """Return the largest relative difference that is allowed for models of a package."""
    return _TOLERANCES.get(family or "", TOLERANCE)


NEAR_ZERO = 1e-3
"""Numbers below this share of the largest number are compared relative to the share. For a source
that predicts in float32, in which sums keep seven digits of the terms, the share is 1."""

TIE_SHARE = 0.01
"""The share of labels that may differ if no score reveals ties. For clusters and for neighbours at
equal distances, the library returns different labels from batch to batch."""


@dataclass(frozen=True, slots=True)
class Difference:
    """The difference of one output over `rows` rows.

    `absolute` and `relative` are the largest absolute and relative differences, and `tolerance` is
    the largest relative difference that is allowed. `flips` counts the labels that differ, and
    `certain_flips` counts those that are not ties.
    """

    output: str
    rows: int
    absolute: float
    relative: float
    flips: int
    certain_flips: int
    tolerance: float

    @property
    def agrees(self) -> bool:
        return self.relative <= self.tolerance and not self.certain_flips


def compare_outputs(
    program: Program, ours: Mapping[str, Array], theirs: Mapping[str, Array], tolerance: float
) -> tuple[Difference, ...]:
    """Compare each output in both `ours` and `theirs`: numbers (n, k) or labels (n, targets)."""
    return tuple(
        _compare_labels(name, ours, theirs, tolerance)
        if name == "label" and program.labels
        else compare_numbers(name, ours[name], theirs[name], tolerance)
        for name in ours
        if name in theirs
    )


def compare_numbers(name: str, ours: Array, theirs: Array, tolerance: float) -> Difference:
    """Return the largest differences of numbers (n, k) or (n,) from those of the library."""
    if ours.shape != theirs.shape:
        return Difference(name, len(theirs), np.inf, np.inf, 0, 0, tolerance)
    a, b = ours.astype(np.float64), theirs.astype(np.float64)
    with np.errstate(all="ignore"):
        distances = np.abs(a - b)
        distances[(a == b) | (np.isnan(a) & np.isnan(b))] = 0.0
        distances[np.isnan(distances)] = np.inf
        scale_share = 1.0 if theirs.dtype == np.float32 else NEAR_ZERO
        scale = np.maximum(np.abs(b), scale_share * np.abs(b[np.isfinite(b)]).max(initial=0.0))
        relative = np.where(distances == 0.0, 0.0, distances / scale)
    relative[np.isnan(relative)] = np.inf
    max_absolute, max_relative = (float(x.max(initial=0.0)) for x in (distances, relative))
    return Difference(name, len(theirs), max_absolute, max_relative, 0, 0, tolerance)


def _compare_labels(
    name: str, ours: Mapping[str, Array], theirs: Mapping[str, Array], tolerance: float
) -> Difference:
    a, b = ours[name], theirs[name]
    if a.shape != b.shape:
        return Difference(name, len(b), 0.0, 0.0, len(b), len(b), tolerance)
    is_different = (a.astype(object) != b.astype(object)).any(axis=tuple(range(1, a.ndim)))
    flips = int(is_different.sum())
    is_near_tie = _find_near_ties(theirs, tolerance)
    if is_near_tie is None:
        certain_flips = flips if flips > TIE_SHARE * len(b) else 0
    else:
        certain_flips = int((is_different & ~is_near_tie).sum())
    return Difference(name, len(b), 0.0, 0.0, flips, certain_flips, tolerance)


def _find_near_ties(theirs: Mapping[str, Array], tolerance: float) -> Array | None:
    """Return a mask of the rows in which the best two classes nearly tie, or None if unknown."""
    for name in ("proba", "score"):
        scores = theirs.get(name)
        if scores is None or not len(scores):
            continue
        if scores.shape[1] == 1:
            return np.asarray(np.abs(scores[:, 0]) <= tolerance)
        best_two = np.sort(scores, axis=1)[:, -2:]
        distance = np.abs(best_two[:, 1] - best_two[:, 0])
        return np.asarray(distance <= tolerance * np.maximum(np.abs(best_two[:, 1]), 1.0))
    return None
