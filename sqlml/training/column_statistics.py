"""Statistics, classes and categories of training columns, all of them collected batch by batch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from sqlml.types import LABEL_TYPES, Array, LabelKind, Labels

MAX_SAMPLED = 1 << 17
"""Upper bound on a column's sampled numbers; then every second is sampled, every fourth, ..."""

MAX_VALUES = 200
"""Upper bound on distinct numbers that are listed; more are summarized by quantiles."""

MAX_NAMES = 1_000


class Numbers:
    """A sample of the numbers of a column, from which its distribution is computed."""

    def __init__(self) -> None:
        self._samples: list[Array] = []
        self._count = self._seen = 0
        self._step = 1

    def add(self, values: Array) -> None:
        """Add (n,) float64 numbers, none of them NaN."""
        sample = values[-self._seen % self._step :: self._step].copy()
        self._seen += len(values)
        self._samples.append(sample)
        self._count += len(sample)
        while self._count > MAX_SAMPLED:
            self._step *= 2
            self._samples = [np.concatenate(self._samples)[::2].copy()]
            self._count = len(self._samples[0])

    def values(self) -> list[list[Any]]:
        """Return [number, count] pairs: count samples lie above the previous number, up to this
        one."""
        sample = np.sort(np.concatenate([np.empty(0), *self._samples]))
        values, counts = np.unique(sample, return_counts=True)
        if len(values) > MAX_VALUES:
            ends = -(-np.arange(1, 101) * len(sample) // 100) - 1  # The last rows of percentiles.
            values = np.unique(sample[ends])
            counts = np.diff(np.searchsorted(sample, values, side="right"), prepend=0)
        return [list(pair) for pair in zip(values.tolist(), counts.tolist(), strict=True)]


class Codes:
    """Row counts of the categories of a column, by their codes."""

    def __init__(self, counts: Sequence[int] = ()) -> None:
        self._counts = np.array(counts, np.int64)

    def add(self, codes: Array) -> None:
        """Count (n,) codes, -1 for NULL."""
        counts = np.bincount(codes[codes >= 0], minlength=len(self._counts))
        counts[: len(self._counts)] += self._counts
        self._counts = counts

    def values(self, names: Sequence[str]) -> tuple[list[list[Any]], int]:
        """Return the most frequent names with their row counts, and the rows of all other names."""
        order = np.argsort(-self._counts, kind="stable")[:MAX_NAMES].tolist()
        frequent = [[names[k], int(self._counts[k])] for k in order]
        return frequent, int(self._counts.sum()) - sum(count for _, count in frequent)


class ColumnStatistics:
    """Counts, moments and the distribution of a column.

    rows, nulls: numbers of rows. least, most, mean: of numbers. spread: the sum of squared
    distances from the mean. distinct: the number of categories; names: their texts in the order of
    the codes. infinite: a number is infinite.
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
        self._code_counts = Codes()

    def add_numbers(self, numbers: Array) -> None:
        """Add (n,) numbers, NaN for NULL."""
        with np.errstate(over="ignore", invalid="ignore"):
            self._add(numbers)

    def _add(self, numbers: Array) -> None:
        self.rows += len(numbers)
        values = numbers.astype(np.float64)  # A copy: it is changed in place below.
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
        """Merge the moments of a batch into the mean and spread (Chan, Golub and LeVeque, 1979)."""
        count_before = self.rows - self.nulls - len(values)
        values -= mean
        batch_spread = float(np.dot(values, values))
        count = count_before + len(values)
        difference = mean - self.mean
        self.spread += batch_spread + difference * difference * count_before * len(values) / count
        self.mean += difference * len(values) / count

    def add_codes(self, codes: Array) -> None:
        """Add (n,) codes of categories, -1 for NULL."""
        self.rows += len(codes)
        self.nulls += int((codes < 0).sum())
        self._code_counts.add(codes)

    def set_values(self, values: Array) -> None:
        """Set the distribution of rows that are counted already; (n,) float64, NaN for NULL."""
        self._numbers.add(values[~np.isnan(values)])

    def set_names(self, counts: Mapping[str, int]) -> None:
        """Set the categories of rows that are counted already, with the rows that each has."""
        self.names, self.distinct = tuple(counts), len(counts)
        self._code_counts = Codes(list(counts.values()))

    @property
    def is_empty(self) -> bool:
        return self.rows == self.nulls

    @property
    def is_constant(self) -> bool:
        """Return whether all rows have the same value; NULL counts as a value."""
        present = self.rows - self.nulls
        if self.nulls and present:
            return False
        if self.distinct is not None:
            return self.distinct + bool(self.nulls) <= 1
        return self.least == self.most

    def to_dict(self) -> dict[str, Any]:
        present = self.rows - self.nulls
        mean = stddev = None
        if self.distinct is None and present > 0 and math.isfinite(self.spread):
            mean, stddev = self.mean, math.sqrt(self.spread / present)
        values, others = self._numbers.values(), 0
        if self.names:
            values, others = self._code_counts.values(self.names)
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


class Classes:
    """The classes of a label, numbered by first occurrence until they are sorted."""

    def __init__(self, sql_type: str) -> None:
        self._sql_type = sql_type
        self._codes: dict[Any, int] = {}

    def __len__(self) -> int:
        return len(self._codes)

    def codes(self, values: Any) -> Array:
        """Return the (n,) int64 codes of a pyarrow Array without NULL, numbering new classes."""
        coded, numbers = values.dictionary_encode(), self._codes
        values_of_dictionary = map(_normalize_zero, coded.dictionary.to_pylist())
        by_index = [numbers.setdefault(value, len(numbers)) for value in values_of_dictionary]
        indices = coded.indices.to_numpy(zero_copy_only=False)
        return np.asarray(np.array([*by_index, -1], np.int64)[indices])

    def positions(self, values: Any) -> Array:
        """Return the (n,) int64 positions of values in order, -1 for an unknown one."""
        order = {value: n for n, value in enumerate(self.values())}
        plain = (_normalize_zero(v.item() if hasattr(v, "item") else v) for v in values)
        return np.array([order.get(value, -1) for value in plain], np.int64)

    def values(self) -> list[Any]:
        """Return the classes in order: numbers by size, texts by code points, false before true."""
        return sorted(self._codes)

    def sorted_positions(self) -> Array:
        """Return a (k,) int64 map from the code of a class to its position in order."""
        return _sort_codes(self._codes, np.int64)

    def labels(self) -> Labels:
        values = tuple(self.values())
        kinds: dict[type, LabelKind] = {bool: "bool", int: "int64", float: "float64", str: "string"}
        kind = kinds[type(values[0])]
        is_exact = LABEL_TYPES[kind].fullmatch(self._sql_type)
        return Labels(kind, values, self._sql_type if is_exact else "")

    def is_numbered(self) -> bool:
        """Return whether the classes are the integers 0, 1, 2, ... themselves."""
        values = self.values()
        return all(type(v) is int for v in values) and values == list(range(len(values)))


def class_name(value: Any) -> str:
    """Return the text by which options name a class.

    >>> class_name(True), class_name(1.0), class_name(1.5), class_name("x")
    ('true', '1', '1.5', 'x')
    """
    if isinstance(value, bool):
        return str(value).lower()
    is_integer = isinstance(value, float) and value.is_integer()
    return str(int(value)) if is_integer else str(value)


def find_class(name: str, values: Sequence[Any]) -> Any:
    """Find the class that an option names, where 1.0 may be written as '1'; None if unknown."""
    for value in values:
        if class_name(value) == name:
            return value
    if values and isinstance(values[0], float):
        with suppress(ValueError):
            return next((v for v in values if v == float(name)), None)
    return None


def _normalize_zero(value: Any) -> Any:
    return value + 0.0 if isinstance(value, float) else value


def _sort_codes(codes: Mapping[Any, int], dtype: Any) -> Array:
    positions = np.empty(len(codes), dtype)
    positions[[codes[value] for value in sorted(codes)]] = np.arange(len(codes))
    return positions


class Names:
    """The categories of a column, numbered by first occurrence."""

    def __init__(self) -> None:
        self._codes: dict[str, int] = {}
        self.nbytes = 0

    def __len__(self) -> int:
        return len(self._codes)

    def codes(self, values: Any) -> Array:
        """Return the (n,) int32 codes of an Array of texts, -1 for NULL, numbering new names."""
        import pyarrow as pa

        coded = values if pa.types.is_dictionary(values.type) else values.dictionary_encode()
        numbers = self._codes
        count_before = len(numbers)
        names: list[str] = coded.dictionary.to_pylist()
        by_index = [numbers.setdefault(name, len(numbers)) for name in names]
        if len(numbers) > count_before:
            new_names = (name for name in names if numbers[name] >= count_before)
            self.nbytes += sum(len(name) + _NAME_OVERHEAD for name in new_names)
        indices = coded.indices
        if coded.null_count:  # The indices of an ENUM are unsigned.
            indices = indices.cast(pa.int32()).fill_null(-1)
        positions = indices.to_numpy(zero_copy_only=False)
        return np.asarray(np.array([*by_index, -1], np.int32)[positions])

    def list_by_code(self) -> tuple[str, ...]:
        return tuple(self._codes)

    def sorted(self) -> tuple[str, ...]:
        return tuple(sorted(self._codes))

    def sorted_positions(self) -> Array:
        """Return a (k,) int32 map from the code of a name to its position in order."""
        return _sort_codes(self._codes, np.int32)


_NAME_OVERHEAD = 130
"""Bytes of a name besides its characters: a Python object and an entry of the dictionary."""
