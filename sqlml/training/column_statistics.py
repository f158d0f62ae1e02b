"""Statistics, classes and categories of training columns, collected batch by batch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from sqlml.types import LABEL_TYPES, Array, LabelKind, Labels

MAX_SAMPLED = 1 << 17
"""Maximum sampled numbers of a column. Above it, every second number is kept, then every fourth."""

MAX_VALUES = 200
"""Maximum distinct numbers to list. More numbers are summarized by quantiles."""

MAX_NAMES = 1_000


class NumberSample:
    """A sample of a column's numbers, from which the column's distribution is computed."""

    def __init__(self) -> None:
        self._samples: list[Array] = []
        self._count = self._seen = 0
        self._step = 1

    def add(self, values: Array) -> None:
        """Add a batch of float64 numbers (n,) without NaN."""
        sample = values[-self._seen % self._step :: self._step].copy()
        self._seen += len(values)
        self._samples.append(sample)
        self._count += len(sample)
        while self._count > MAX_SAMPLED:
            self._step *= 2
            self._samples = [np.concatenate(self._samples)[::2].copy()]
            self._count = len(self._samples[0])

    def values(self) -> list[list[Any]]:
        """Return a histogram of the sample as [upper bound, count] pairs in ascending order."""
        sample = np.sort(np.concatenate([np.empty(0), *self._samples]))
        values, counts = np.unique(sample, return_counts=True)
        if len(values) > MAX_VALUES:
            # The index of the last sample in each percentile.
            ends = -(-np.arange(1, 101) * len(sample) // 100) - 1
            values = np.unique(sample[ends])
            counts = np.diff(np.searchsorted(sample, values, side="right"), prepend=0)
        return [list(pair) for pair in zip(values.tolist(), counts.tolist(), strict=True)]


class CodeCounts:
    """Row counts of the categories of a column, by their codes."""

    def __init__(self, counts: Sequence[int] = ()) -> None:
        self._counts = np.array(counts, np.int64)

    def add(self, codes: Array) -> None:
        """Count the category codes (n,) of a batch; -1 marks NULL."""
        counts = np.bincount(codes[codes >= 0], minlength=len(self._counts))
        counts[: len(self._counts)] += self._counts
        self._counts = counts

    def values(self, names: Sequence[str]) -> tuple[list[list[Any]], int]:
        """Return [name, row count] of the most frequent categories, and the count of other rows.

        `names` lists the categories by code.
        """
        order = np.argsort(-self._counts, kind="stable")[:MAX_NAMES].tolist()
        frequent = [[names[k], int(self._counts[k])] for k in order]
        return frequent, int(self._counts.sum()) - sum(count for _, count in frequent)


class ColumnStatistics:
    """Counts, moments and the distribution of a column.

    row_count, null_count: the numbers of all rows and of NULLs. spread: the sum of squared
    distances from the mean. distinct_count: the number of categories, or None for numbers. names:
    the categories in the order of their codes.
    """

    def __init__(self, name: str, sql_type: str) -> None:
        self.name = name
        self.sql_type = sql_type
        self.row_count = self.null_count = 0
        self.distinct_count: int | None = None
        self.min_value: float | None = None
        self.max_value: float | None = None
        self.mean = 0.0
        self.spread = 0.0
        self.has_infinite = False
        self.names: Sequence[str] = ()
        self._numbers = NumberSample()
        self._code_counts = CodeCounts()

    def add_numbers(self, numbers: Array) -> None:
        """Add a batch of numbers (n,), with NaN for NULL."""
        with np.errstate(over="ignore", invalid="ignore"):
            self._add_batch(numbers)

    def _add_batch(self, numbers: Array) -> None:
        self.row_count += len(numbers)
        values = numbers.astype(np.float64)  # The copy is changed in place below.
        total = float(values.sum())
        if total - total != 0:  # NaN or infinite
            is_missing = np.isnan(values)
            self.null_count += int(is_missing.sum())
            values = values[~is_missing]
            self.has_infinite = self.has_infinite or bool(np.isinf(values).any())
            total = float(values.sum())
        if not len(values) or self.has_infinite:
            return
        self._numbers.add(values)
        min_value, max_value = float(values.min()), float(values.max())
        self.min_value = min_value if self.min_value is None else min(self.min_value, min_value)
        self.max_value = max_value if self.max_value is None else max(self.max_value, max_value)
        self._add_moments(values, total / len(values))

    def _add_moments(self, values: Array, mean: float) -> None:
        """Merge the moments of a batch into the mean and spread (Chan, Golub and LeVeque, 1979)."""
        count_before = self.row_count - self.null_count - len(values)
        values -= mean
        batch_spread = float(np.dot(values, values))
        count = count_before + len(values)
        difference = mean - self.mean
        self.spread += batch_spread + difference * difference * count_before * len(values) / count
        self.mean += difference * len(values) / count

    def add_codes(self, codes: Array) -> None:
        """Add a batch of category codes (n,), with -1 for NULL."""
        self.row_count += len(codes)
        self.null_count += int((codes < 0).sum())
        self._code_counts.add(codes)

    def set_values(self, values: Array) -> None:
        """Set the distribution of already counted rows from float64 `values` (n,), NaN for NULL."""
        self._numbers.add(values[~np.isnan(values)])

    def set_names(self, counts: Mapping[str, int]) -> None:
        """Set the categories of already counted rows; `counts` maps categories to row counts."""
        self.names = tuple(counts)
        self.distinct_count = len(counts)
        self._code_counts = CodeCounts(list(counts.values()))

    @property
    def is_empty(self) -> bool:
        return self.row_count == self.null_count

    @property
    def is_constant(self) -> bool:
        """True if all rows have the same value, where NULL counts as a value."""
        value_count = self.row_count - self.null_count
        if self.null_count and value_count:
            return False
        if self.distinct_count is not None:
            return self.distinct_count + bool(self.null_count) <= 1
        return self.min_value == self.max_value

    def to_dict(self) -> dict[str, Any]:
        value_count = self.row_count - self.null_count
        mean = stddev = None
        if self.distinct_count is None and value_count > 0 and math.isfinite(self.spread):
            mean, stddev = self.mean, math.sqrt(self.spread / value_count)
        values = self._numbers.values()
        other_count = 0
        if self.names:
            values, other_count = self._code_counts.values(self.names)
        return {
            "name": self.name,
            "type": self.sql_type,
            "rows": self.row_count,
            "nulls": self.null_count,
            "distinct": self.distinct_count,
            "min": self.min_value,
            "max": self.max_value,
            "mean": mean,
            "stddev": stddev,
            "values": values,
            "others": other_count,
        }


class Classes:
    """The classes of a label, numbered by first occurrence until they are sorted."""

    def __init__(self, sql_type: str) -> None:
        self._sql_type = sql_type
        self._codes: dict[Any, int] = {}

    def __len__(self) -> int:
        return len(self._codes)

    def encode(self, values: Any) -> Array:
        """Encode a pyarrow Array without NULLs to int64 codes (n,), adding new classes."""
        codes = self._codes
        encoded = values.dictionary_encode()
        distinct_values = map(_normalize_zero, encoded.dictionary.to_pylist())
        new_codes = [codes.setdefault(value, len(codes)) for value in distinct_values]
        indices = encoded.indices.to_numpy(zero_copy_only=False)
        return np.asarray(np.array([*new_codes, -1], np.int64)[indices])

    def encode_codes(self, codes: Array, values: Sequence[Any]) -> Array:
        """Encode the codes (n,) of other classes, which are `values`, adding new classes."""
        return _encode_codes(self._codes, codes, values).astype(np.int64)

    def list_by_code(self) -> tuple[Any, ...]:
        return tuple(self._codes)

    def find_positions(self, values: Any) -> Array:
        """Return the int64 positions (n,) of `values` in the sorted classes; -1 if unknown."""
        positions = {value: n for n, value in enumerate(self.values())}
        python_values = (_normalize_zero(v.item() if hasattr(v, "item") else v) for v in values)
        return np.array([positions.get(value, -1) for value in python_values], np.int64)

    def values(self) -> list[Any]:
        """Return the sorted classes: numbers by size, strings by code points, false before true."""
        return sorted(self._codes)

    def sorted_positions(self) -> Array:
        """Return an int64 array (k,) that maps a class code to its position in sorted order."""
        return _sort_codes(self._codes, np.int64)

    def labels(self) -> Labels:
        values = tuple(self.values())
        kinds: dict[type, LabelKind] = {bool: "bool", int: "int64", float: "float64", str: "string"}
        label_kind = kinds[type(values[0])]
        is_exact = LABEL_TYPES[label_kind].fullmatch(self._sql_type)
        return Labels(label_kind, values, self._sql_type if is_exact else "")

    def is_numbered(self) -> bool:
        """Return whether the classes are the integers 0, 1, 2, ..."""
        values = self.values()
        return all(type(value) is int for value in values) and values == list(range(len(values)))


def class_name(value: Any) -> str:
    """Return the string by which options name a class.

    >>> class_name(True), class_name(1.0), class_name(1.5), class_name("x")
    ('true', '1', '1.5', 'x')
    """
    if isinstance(value, bool):
        return str(value).lower()
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def find_class(name: str, values: Sequence[Any]) -> Any:
    """Find the class that `name` denotes, such as 1.0 for '1', or return None if it is unknown."""
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


def _encode_codes(own_codes: dict[Any, int], codes: Array, values: Sequence[Any]) -> Array:
    """Map codes of `values` to `own_codes`, to which new values are added; -1 stays -1."""
    distinct, indices = np.unique(codes, return_inverse=True)
    new_codes = [
        -1 if code < 0 else own_codes.setdefault(values[code], len(own_codes))
        for code in distinct.tolist()
    ]
    return np.asarray(np.array(new_codes, np.int64)[indices])


class CategoryNumbers:
    """The categories of a column, numbered by first occurrence."""

    def __init__(self) -> None:
        self._codes: dict[str, int] = {}
        self.nbytes = 0

    def __len__(self) -> int:
        return len(self._codes)

    def encode(self, values: Any) -> Array:
        """Encode a pyarrow Array of strings to int32 codes (n,), -1 for NULL, adding new names."""
        import pyarrow as pa

        encoded = values if pa.types.is_dictionary(values.type) else values.dictionary_encode()
        codes_by_name = self._codes
        count_before = len(codes_by_name)
        names: list[str] = encoded.dictionary.to_pylist()
        new_codes = [codes_by_name.setdefault(name, len(codes_by_name)) for name in names]
        if len(codes_by_name) > count_before:
            new_names = (name for name in names if codes_by_name[name] >= count_before)
            self.nbytes += sum(len(name) + _NAME_OVERHEAD for name in new_names)
        indices = encoded.indices
        if encoded.null_count:  # The indices of an ENUM are unsigned.
            indices = indices.cast(pa.int32()).fill_null(-1)
        positions = indices.to_numpy(zero_copy_only=False)
        return np.asarray(np.array([*new_codes, -1], np.int32)[positions])

    def encode_codes(self, codes: Array, names: Sequence[str]) -> Array:
        """Encode the codes (n,) of other categories, -1 for NULL, adding new names."""
        return _encode_codes(self._codes, codes, names).astype(np.int32)

    def list_by_code(self) -> tuple[str, ...]:
        return tuple(self._codes)

    def sorted(self) -> tuple[str, ...]:
        return tuple(sorted(self._codes))

    def sorted_positions(self) -> Array:
        """Return an int32 array (k,) that maps each code to its position among the sorted names."""
        return _sort_codes(self._codes, np.int32)


_NAME_OVERHEAD = 130
"""Bytes of a name besides its characters: a Python object and an entry of the dictionary."""
