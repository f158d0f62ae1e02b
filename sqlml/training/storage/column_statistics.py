"""`ColumnStatistics`: what a feature looked like in training."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sqlml.training.storage.distribution import Codes, Numbers
from sqlml.types import Array


class ColumnStatistics:
    """Counts, moments and the distribution of a column, batch by batch.

    rows, nulls: counts. least, most, sum: of numbers. distinct: of categories, and their names in
    the order of the codes. spread: the sum of squared distances from the mean.
    """

    def __init__(self, name: str, sql_type: str) -> None:
        self.name = name
        self.sql_type = sql_type
        self.rows = self.nulls = 0
        self.distinct: int | None = None
        self.least: float | None = None
        self.most: float | None = None
        self.mean = 0.0
        self.spread = 0.0
        self.infinite = False
        self.names: Sequence[str] = ()
        self._numbers = Numbers()
        self._codes = Codes()

    def add_numbers(self, numbers: Array) -> None:
        """Count (n,) numbers, NaN for NULL."""
        with np.errstate(over="ignore", invalid="ignore"):
            self._add(numbers)

    def _add(self, numbers: Array) -> None:
        self.rows += len(numbers)
        values = numbers.astype(np.float64)  # a copy, which is worked on
        total = float(values.sum())
        if total - total != 0:  # NaN or infinite
            missing = np.isnan(values)
            self.nulls += int(missing.sum())
            values = values[~missing]
            self.infinite = self.infinite or bool(np.isinf(values).any())
            total = float(values.sum())
        if not len(values) or self.infinite:
            return
        self._numbers.add(values)
        least, most = float(values.min()), float(values.max())
        self.least = least if self.least is None else min(self.least, least)
        self.most = most if self.most is None else max(self.most, most)
        self._add_moments(values, total / len(values))

    def _add_moments(self, values: Array, mean: float) -> None:
        """The mean and spread of all so far, as Chan, Golub and LeVeque add two parts (1979)."""
        had = self.rows - self.nulls - len(values)
        values -= mean
        square = float(np.dot(values, values))
        both = had + len(values)
        step = mean - self.mean
        self.spread += square + step * step * had * len(values) / both
        self.mean += step * len(values) / both

    def add_codes(self, codes: Array) -> None:
        """Count (n,) codes of categories, -1 for NULL."""
        self.rows += len(codes)
        self.nulls += int((codes < 0).sum())
        self._codes.add(codes)

    def tell_values(self, values: Array) -> None:
        """Of rows that are counted already: (n,) float64 numbers, NaN for NULL."""
        self._numbers.add(values[~np.isnan(values)])

    def tell_names(self, counts: Mapping[str, int]) -> None:
        """Of rows that are counted already: the categories, and how many rows have each."""
        self.names, self.distinct = tuple(counts), len(counts)
        self._codes = Codes(list(counts.values()))

    @property
    def is_empty(self) -> bool:
        """Whether no row has a value."""
        return self.rows == self.nulls

    @property
    def is_constant(self) -> bool:
        """Whether all rows have one value; NULL is a value, too."""
        present = self.rows - self.nulls
        if self.nulls and present:
            return False
        if self.distinct is not None:
            return self.distinct + bool(self.nulls) <= 1
        return self.least == self.most

    def to_dict(self) -> dict[str, Any]:
        """As the catalog keeps it."""
        present = self.rows - self.nulls
        mean = stddev = None
        if self.distinct is None and present > 0 and math.isfinite(self.spread):
            mean, stddev = self.mean, math.sqrt(self.spread / present)
        values, others = self._numbers.values(), 0
        if self.names:
            values, others = self._codes.values(self.names)
        return {
            "name": self.name,
            "type": self.sql_type,
            "rows": self.rows,
            "nulls": self.nulls,
            "distinct": self.distinct,
            "min": self.least,
            "max": self.most,
            "mean": mean,
            "stddev": stddev,
            "values": values,
            "others": others,
        }
