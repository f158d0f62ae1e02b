"""CatBoost's statistics of the target by category (CTR), as look-ups by hash.

A statistic is a number for each combination that training saw: of the values of some categorical
columns, and of the outcomes of some tests. CatBoost finds the combination by its hash, and computes
the number from what it counted in training, in float32
(catboost/libs/model/static_ctr_provider.cpp, online_ctr.h):

    ((good + prior) / (total + denominator) + shift) * scale

The counts of a combination that training did not see are 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sqlml.errors import ArtifactError, UnsupportedModelError
from sqlml.ir.operators.categories import MULTIPLIER
from sqlml.types import Array

MEANS = frozenset({"BinarizedTargetMeanValue", "FloatTargetMeanValue"})
"""Statistics that are the mean of the target."""
COUNTERS = frozenset({"Counter", "FeatureFreq"})
"""Statistics that are the frequency of the combination."""
SHARES = frozenset({"Borders", "Buckets"})
"""Statistics that are the share of targets above a border, or between two borders."""

MAX_WHOLE = 1 << 53
"""CatBoost misreads larger numbers without a decimal point."""
_MAX_COUNT = (1 << 31) - 1
_MAX_HASH = 0xFFFFFFFF
_EMPTY = (1 << 64) - 1
"""The content of an empty slot in CatBoost's own table, which no lookup finds."""


def read_floats(values: Sequence[Any]) -> Array:
    """Return the numbers of a list, float64 (n,).

    Raises:
        ArtifactError: an entry is not a number, or is an integer that CatBoost would misread.
    """
    numbers = np.array(values)
    is_mixed = isinstance(values, list) and bool in set(map(type, values))
    if numbers.ndim != 1 or numbers.dtype.kind not in "iuf" or is_mixed:
        raise ArtifactError("entries of the CatBoost model are not numbers")
    is_large = numbers.size and isinstance(values, list) and np.abs(numbers).max() > MAX_WHOLE
    if is_large and any(type(v) is int and abs(v) > MAX_WHOLE for v in values):
        raise ArtifactError("an integer of the CatBoost model does not fit a float64")
    return numbers.astype(np.float64)


def check_index(value: Any) -> int:
    """Return a value that must be a whole number of 0 or more; raises ArtifactError otherwise."""
    if type(value) is not int or value < 0:
        raise ArtifactError(f"a number of the CatBoost model is {value!r}")
    return value


def read_hash(value: Any) -> int:
    """Return a 32-bit hash, which documents write with and without sign.

    Raises:
        ArtifactError: it is not such a hash.
    """
    if type(value) is not int or not -(1 << 31) <= value <= _MAX_HASH:
        raise ArtifactError(f"a hash of the CatBoost model is {value!r}")
    return value & _MAX_HASH


@dataclass(frozen=True, slots=True, eq=False)
class HashTable:
    """The counts of a CatBoost model by the hash of a combination.

    hashes: 64-bit patterns as int64 (k,), ascending. numbers: float64 (k, m).
    """

    hashes: Array
    numbers: Array

    @classmethod
    def read(cls, entries: Sequence[Any], stride: Any) -> HashTable:
        """Read a "hash_map" of the document: each hash as text, followed by `stride` - 1 numbers.

        Raises:
            ArtifactError: the entries do not form a table.
        """
        if type(stride) is not int or stride < 2 or not entries or len(entries) % stride:
            raise ArtifactError("a table of the CatBoost model does not fit its stride")
        texts = entries[::stride]
        if not all(type(text) is str and text.isascii() and text.isdecimal() for text in texts):
            raise ArtifactError("a hash in the CatBoost model is not a number")
        numbers = np.stack([read_floats(entries[i::stride]) for i in range(1, stride)], axis=1)
        hashes = np.array([int(text) for text in texts], np.uint64)
        is_used = hashes != np.uint64(_EMPTY)
        bits = hashes[is_used].view(np.int64)
        order = np.argsort(bits, kind="stable")
        if (np.diff(bits[order]) == 0).any():
            raise ArtifactError("a hash stands twice in a table of the CatBoost model")
        return cls(bits[order], numbers[is_used][order])


@dataclass(frozen=True, slots=True)
class Split:
    """A test of column `feature` against `border`, or for the category `code` if that is not None.

    `nan_is_true` is the outcome for NaN.
    """

    feature: int
    border: np.float32
    nan_is_true: bool
    code: int | None


@dataclass(frozen=True, slots=True)
class Projection:
    """The parts of a combination: categorical columns by their number in the table, and tests."""

    categories: tuple[int, ...]
    tests: tuple[Split, ...]


@dataclass(frozen=True, slots=True)
class Statistic:
    """A statistic; `table` is the name of its counts. Numbers are float32."""

    projection: Projection
    kind: str
    table: str
    target_border: int
    prior: Any
    denominator: Any
    shift: Any
    scale: Any

    def compute(self, good: Array | float, total: Array | float) -> Any:
        """Return the statistic of counts, float32."""
        share: Any = (np.float32(good) + self.prior) / (np.float32(total) + self.denominator)
        return (share + self.shift) * self.scale

    def compute_all(self, counts: HashTable, total: int) -> tuple[Array, Any]:
        """Return the statistic of each hash, float32 (k,), and that of an unknown combination.

        Args:
            counts: the table of this statistic.
            total: the denominator of a counter.

        Raises:
            ArtifactError: the table does not fit this kind of statistic.
        """
        n = counts.numbers
        if self.kind in COUNTERS:
            _check_counts(n.shape[1] == 1, n)
            return self.compute(n[:, 0], float(total)), self.compute(0.0, float(total))
        if self.kind in MEANS:
            _check_counts(n.shape[1] == 2, n[:, 1])
            return self.compute(n[:, 0], n[:, 1]), self.compute(0.0, 0.0)
        classes, border = n.shape[1], self.target_border
        _check_counts(classes >= 2 and border < classes, n)
        row_totals = n.sum(axis=1)
        _check_counts(True, row_totals)
        if self.kind == "Buckets":
            good = n[:, border]
        else:  # with two classes CatBoost counts the second one, whatever the border is
            good = n[:, border + 1 :].sum(axis=1) if classes > 2 else n[:, 1]
        return self.compute(good, row_totals), self.compute(0.0, 0.0)


def _check_counts(fits: bool, counts: Array) -> None:
    if not fits or not ((np.abs(counts) <= _MAX_COUNT) & (np.trunc(counts) == counts)).all():
        raise ArtifactError("a table of the CatBoost model holds no counts, or too few of them")


@dataclass(frozen=True, slots=True, eq=False)
class Lookup:
    """The statistics of one projection.

    hashes: 64-bit patterns as int64 (k,), ascending. values: float32 (k + 1, statistics); the last
    row is for an unknown combination.
    """

    projection: Projection
    hashes: Array
    values: Array

    def find_category_hashes(self) -> Array:
        """Return the 32-bit hashes of the categories, int64, if the projection is one column."""
        if len(self.projection.categories) != 1 or self.projection.tests:
            return np.zeros(0, np.int64)
        hashes = (self.hashes.view(np.uint64) * _INVERSE).view(np.int64)
        return hashes[(hashes >= -(1 << 31)) & (hashes < 1 << 31)] & _MAX_HASH


_INVERSE = np.uint64(pow(MULTIPLIER, -2, 1 << 64))
"""The inverse of the two multiplications in the hash of a single element."""


def build_lookups(
    statistics: Sequence[Statistic], used: Sequence[int], data: Mapping[str, Any]
) -> tuple[tuple[Lookup, ...], dict[int, int]]:
    """Return look-ups of the `used` statistics, and the number of each one's column among theirs.

    Args:
        data: the counts of the model ("ctr_data").

    Raises:
        ArtifactError: counts are missing, or do not fit.
    """
    by_projection: dict[Projection, list[int]] = {}
    for number in used:
        by_projection.setdefault(statistics[number].projection, []).append(number)
    lookups, tables_by_name = list[Lookup](), dict[str, tuple[HashTable, int]]()
    columns: dict[int, int] = {}
    for projection, numbers in by_projection.items():
        for number in numbers:
            name = statistics[number].table
            if name not in tables_by_name:
                tables_by_name[name] = _find_table(data, name)
        tables = [tables_by_name[statistics[number].table] for number in numbers]
        distinct = {id(table): table.hashes for table, _ in tables}
        hashes = np.unique(np.concatenate([*distinct.values()]))
        values = np.empty((hashes.size + 1, len(numbers)), np.float32)
        for k, (number, (table, total)) in enumerate(zip(numbers, tables, strict=True)):
            of_hash, of_unknown = statistics[number].compute_all(table, total)
            values[:, k] = of_unknown
            values[np.searchsorted(hashes, table.hashes), k] = of_hash
            columns[number] = len(columns)
        lookups.append(Lookup(projection, hashes, values))
    return tuple(lookups), columns


def _find_table(data: Mapping[str, Any], name: str) -> tuple[HashTable, int]:
    entry = data.get(name) if isinstance(data, Mapping) else None
    if not isinstance(entry, Mapping) or not isinstance(entry.get("hash_map"), HashTable):
        raise ArtifactError("the CatBoost model lacks what it counted of its categories")
    return entry["hash_map"], min(check_index(entry.get("counter_denominator", 0)), _MAX_COUNT)


def check_distinct_tables(parameters: Any) -> None:
    """Reject a model whose document has the same name for two tables.

    Raises:
        UnsupportedModelError: two statistics of a kind divide the target into different classes.
    """
    params = parameters.get("cat_feature_params") if isinstance(parameters, Mapping) else None
    if not isinstance(params, Mapping):
        return
    per_feature = params.get("per_feature_ctrs")
    groups = [params.get("simple_ctrs"), params.get("combinations_ctrs")]
    groups += list(per_feature.values()) if isinstance(per_feature, Mapping) else []
    for group in groups:
        binarizations: dict[Any, Any] = {}
        for statistic in group if isinstance(group, list) else []:
            kind, binarization = statistic.get("ctr_type"), statistic.get("target_binarization")
            if binarizations.setdefault(kind, binarization) != binarization:
                raise UnsupportedModelError(
                    f"this CatBoost model has two {kind} statistics with different "
                    "TargetBorderCount, which CatBoost's JSON does not tell apart; train it with "
                    "one TargetBorderCount for each kind"
                )
