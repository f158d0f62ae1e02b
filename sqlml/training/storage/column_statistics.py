"""`ColumnStatistics`: what a feature looked like in training."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from sqlml.types import LABEL_TYPES, Array, LabelKind, Labels

# `Distribution`: which values a column has, and how often, in little memory.


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


# `Classes`: the classes of a label, in their own SQL type.


class Classes:
    """The values of a label, numbered as they come; at the end in order."""

    def __init__(self, sql_type: str) -> None:
        self._sql_type = sql_type
        self._place: dict[Any, int] = {}

    def __len__(self) -> int:
        return len(self._place)

    def codes(self, values: Any) -> Array:
        """(n,) int64 numbers of the values in a pyarrow Array without NULL."""
        coded = values.dictionary_encode()
        place = self._place
        known = [place.setdefault(_plain(v), len(place)) for v in coded.dictionary.to_pylist()]
        made: Array = np.array([*known, -1], np.int64)[coded.indices.to_numpy(zero_copy_only=False)]
        return made

    def plain(self, values: Any) -> list[Any]:
        """Values of a frame, or of an estimator's, as this class has them."""
        return [_plain(v.item() if hasattr(v, "item") else v) for v in values]

    def values(self) -> list[Any]:
        """The classes in order: numbers by size, texts by code points, false before true."""
        return sorted(self._place)

    def sorted_places(self) -> Array:
        """(k,) int64: number when it was first seen -> place in order."""
        made = np.empty(len(self._place), np.int64)
        for place, value in enumerate(self.values()):
            made[self._place[value]] = place
        return made

    def labels(self) -> Labels:
        """The classes as a Program has them."""
        values = tuple(self.values())
        kinds: dict[type, LabelKind] = {bool: "bool", int: "int64", float: "float64", str: "string"}
        kind = kinds[type(values[0])]
        known = LABEL_TYPES[kind].fullmatch(self._sql_type)
        return Labels(kind, values, self._sql_type if known else "")

    def is_numbered(self) -> bool:
        """Whether the classes are 0, 1, 2 .. themselves."""
        values = self.values()
        return all(type(v) is int for v in values) and values == list(range(len(values)))


def class_name(value: Any) -> str:
    """A class as options write it.

    >>> class_name(True), class_name(1.0), class_name(1.5), class_name("x")
    ('true', '1', '1.5', 'x')
    """
    if isinstance(value, bool):
        return str(value).lower()
    whole = isinstance(value, float) and value.is_integer()
    return str(int(value)) if whole else str(value)


def class_named(name: str, values: Sequence[Any]) -> Any:
    """The class that an option means: a number may be written in another way, 1.0 or '1'.

    Returns None if it is none of the values.
    """
    for value in values:
        if class_name(value) == name:
            return value
    if values and isinstance(values[0], float):
        with suppress(ValueError):
            return next((v for v in values if v == float(name)), None)
    return None


def _plain(value: Any) -> Any:
    return value + 0.0 if isinstance(value, float) else value  # -0.0 is 0.0


# `Names`: the categories of a column, numbered as they come, batch by batch.


class Names:
    """Texts with the numbers that they got when they were first seen."""

    def __init__(self) -> None:
        self._place: dict[str, int] = {}
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._place)

    def codes(self, values: Any) -> Array:
        """(n,) int32 numbers of the texts in a pyarrow Array, -1 for NULL."""
        import pyarrow as pa

        coded = values if pa.types.is_dictionary(values.type) else values.dictionary_encode()
        place = self._place
        before = len(place)
        used = _used(coded)
        known = [place.setdefault(name, len(place)) for name in used]
        if len(place) > before:
            self._bytes += sum(len(name) + _BESIDE for name in used if place[name] >= before)
        of_dictionary = np.array([*known, -1], np.int32)
        indices = coded.indices
        if coded.null_count:  # of an ENUM, they have no sign
            indices = indices.cast(pa.int32()).fill_null(-1)
        made: Array = of_dictionary[indices.to_numpy(zero_copy_only=False)]
        return made

    @property
    def nbytes(self) -> int:
        """Memory that the names take, about."""
        return self._bytes

    def as_seen(self) -> tuple[str, ...]:
        """The names in the order of their numbers."""
        return tuple(self._place)

    def sorted(self) -> tuple[str, ...]:
        """The names in the order of their code points."""
        return tuple(sorted(self._place))

    def sorted_places(self) -> Array:
        """(k,) int32: number when it was first seen -> place among the sorted names."""
        made = np.empty(len(self._place), np.int32)
        for place, name in enumerate(self.sorted()):
            made[self._place[name]] = place
        return made


_BESIDE = 130
"""Bytes of a name besides its characters: an object of Python's, and its place."""


def _used(coded: Any) -> list[str]:
    """The names of a dictionary."""
    names: list[str] = coded.dictionary.to_pylist()
    return names
