"""`Distribution`: which values a column has, and how often, in little memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sqlml.types import Array

MOST_SEEN = 1 << 17
"""Numbers that are kept: of more rows, every second, fourth, .. number, as they come."""

MOST_VALUES = 200
"""Different numbers that are told each; of more, the edges of parts with equally many rows."""

PARTS = 100

MOST_NAMES = 1_000
"""Names that are told, the most frequent ones."""


class Numbers:
    """The numbers of a column, batch by batch."""

    def __init__(self) -> None:
        self._kept: list[Array] = []
        self._count = 0
        self._seen = 0
        self._step = 1

    def add(self, values: Array) -> None:
        """Count (n,) float64 numbers, none of them NaN."""
        taken = values[-self._seen % self._step :: self._step].copy()
        self._seen += len(values)
        self._kept.append(taken)
        self._count += len(taken)
        while self._count > MOST_SEEN:
            self._step *= 2
            self._kept = [np.concatenate(self._kept)[::2].copy()]
            self._count = len(self._kept[0])

    def values(self) -> list[list[Any]]:
        """Numbers in their order, each with how many of those that were kept lie above the one
        before it, and not above it."""
        found = np.sort(np.concatenate([np.empty(0), *self._kept]))
        values, counts = np.unique(found, return_counts=True)
        if len(values) > MOST_VALUES:
            ends = -(-np.arange(1, PARTS + 1) * len(found) // PARTS) - 1
            values = np.unique(found[ends])
            counts = np.diff(np.searchsorted(found, values, side="right"), prepend=0)
        return [list(pair) for pair in zip(values.tolist(), counts.tolist(), strict=True)]


class Codes:
    """The categories of a column, by the numbers that they got.

    Args:
        counts: how many rows each had so far.
    """

    def __init__(self, counts: Sequence[int] = ()) -> None:
        self._counts = np.array(counts, np.int64)

    def add(self, codes: Array) -> None:
        """Count (n,) codes, -1 for NULL."""
        found = np.bincount(codes[codes >= 0])
        if len(found) > len(self._counts):
            found[: len(self._counts)] += self._counts
            self._counts = found
        else:
            self._counts[: len(found)] += found

    def values(self, names: Sequence[str]) -> tuple[list[list[Any]], int]:
        """The most frequent names, each with its number of rows, and the rows of all others."""
        order = np.argsort(-self._counts, kind="stable")[:MOST_NAMES].tolist()
        kept = [[names[k], int(self._counts[k])] for k in order]
        return kept, int(self._counts.sum()) - sum(count for _, count in kept)
