"""Read the features of a CatBoost model: the columns, the tests of splits, and the statistics.

A combination consists of the values of some categorical columns and the results of some tests. A
statistic of the target by category (CTR) has a number for each combination in the training rows.
CatBoost looks up the hash of a combination, and computes the number in float32 from counts of the
training rows (catboost/libs/model/static_ctr_provider.cpp, online_ctr.h):

    ((good + prior) / (total + denominator) + shift) * scale

The counts of a combination that is not in the training rows are 0.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
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

MAX_EXACT_INTEGER = 1 << 53
"""The largest integer that CatBoost reads correctly without a decimal point."""
_MAX_COUNT = (1 << 31) - 1
_MAX_HASH = 0xFFFFFFFF
_EMPTY_SLOT_HASH = (1 << 64) - 1
"""The value with which CatBoost marks an empty slot of a hash table."""


def read_floats(values: Sequence[Any]) -> Array:
    """Convert numbers to float64 (n,); reject integers above `MAX_EXACT_INTEGER`."""
    numbers = np.array(values)
    is_mixed = isinstance(values, list) and bool in set(map(type, values))
    if numbers.ndim != 1 or numbers.dtype.kind not in "iuf" or is_mixed:
        raise ArtifactError("entries of the CatBoost model are not numbers")
    is_large = isinstance(values, list) and np.abs(numbers).max(initial=0) > MAX_EXACT_INTEGER
    if is_large and any(type(v) is int and abs(v) > MAX_EXACT_INTEGER for v in values):
        raise ArtifactError("an integer of the CatBoost model does not fit a float64")
    return numbers.astype(np.float64)


def check_index(value: Any) -> int:
    """Return `value`; raise ArtifactError unless it is a non-negative integer."""
    if type(value) is not int or value < 0:
        raise ArtifactError(f"an index in the CatBoost model is {value!r}")
    return value


def read_hash(value: Any) -> int:
    """Return a 32-bit hash as an unsigned number; documents may store signed numbers."""
    if type(value) is not int or not -(1 << 31) <= value <= _MAX_HASH:
        raise ArtifactError(f"a hash of the CatBoost model is {value!r}")
    return value & _MAX_HASH


@dataclass(frozen=True, slots=True, eq=False)
class HashTable:
    """The counts of combinations: row i of `counts` belongs to `hashes[i]`; hashes are sorted."""

    hashes: Array
    counts: Array

    @classmethod
    def read(cls, hash_map: Sequence[Any], stride: Any) -> HashTable:
        """Read a "hash_map", a list in which `stride` - 1 counts follow each hash."""
        if type(stride) is not int or stride < 2 or not hash_map or len(hash_map) % stride:
            raise ArtifactError("a table of the CatBoost model does not fit its stride")
        texts = hash_map[::stride]
        if not all(type(text) is str and text.isascii() and text.isdecimal() for text in texts):
            raise ArtifactError("a hash in the CatBoost model is not a number")
        counts = np.stack([read_floats(hash_map[i::stride]) for i in range(1, stride)], axis=1)
        unsigned_hashes = np.array(list(map(int, texts)), np.uint64)
        is_used = unsigned_hashes != np.uint64(_EMPTY_SLOT_HASH)
        hashes = unsigned_hashes[is_used].view(np.int64)
        order = np.argsort(hashes, kind="stable")
        if (np.diff(hashes[order]) == 0).any():
            raise ArtifactError("a table of the CatBoost model contains a hash twice")
        return cls(hashes[order], counts[is_used][order])


@dataclass(frozen=True, slots=True)
class Split:
    """A test of column `feature`: x > `border`, or if `code` is not None, x == `code`.

    `nan_is_true` is the result of x > `border` for NaN.
    """

    feature: int
    border: np.float32
    nan_is_true: bool
    code: int | None

    @property
    def nan_goes_left(self) -> bool:
        return self.code is None and not self.nan_is_true


@dataclass(frozen=True, slots=True)
class Projection:
    """The parts of a combination: the indices of categorical columns, and tests."""

    categories: tuple[int, ...]
    tests: tuple[Split, ...]


@dataclass(frozen=True, slots=True)
class Statistic:
    """A statistic with float32 parameters; `table` is the name of the table with the counts.

    In `SHARES`, targets are compared with the border of index `target_border`.
    """

    projection: Projection
    kind: str
    table: str
    target_border: int
    prior: Any
    denominator: Any
    shift: Any
    scale: Any

    def compute(self, good: Array | float, total: Array | float) -> Any:
        """Compute the statistic from the counts `good` and `total`, in float32."""
        share: Any = (np.float32(good) + self.prior) / (np.float32(total) + self.denominator)
        return (share + self.shift) * self.scale

    def compute_all(self, table: HashTable, total: int) -> tuple[Array, Any]:
        """Return the statistic of each hash in `table`, and the statistic of any other hash.

        Statistics in `COUNTERS` divide by `total`.
        """
        counts = table.counts
        if self.kind in COUNTERS:
            _check_counts(counts.shape[1] == 1, counts)
            return self.compute(counts[:, 0], float(total)), self.compute(0.0, float(total))
        if self.kind in MEANS:
            _check_counts(counts.shape[1] == 2, counts[:, 1])
            return self.compute(counts[:, 0], counts[:, 1]), self.compute(0.0, 0.0)
        num_classes, border_index = counts.shape[1], self.target_border
        _check_counts(num_classes >= 2 and border_index < num_classes, counts)
        row_totals = counts.sum(axis=1)
        _check_counts(True, row_totals)
        if self.kind == "Buckets":
            good = counts[:, border_index]
        else:  # With two classes, CatBoost always counts the second class.
            good = counts[:, border_index + 1 :].sum(axis=1) if num_classes > 2 else counts[:, 1]
        return self.compute(good, row_totals), self.compute(0.0, 0.0)


def _check_counts(is_valid_shape: bool, counts: Array) -> None:
    are_counts = (np.abs(counts) <= _MAX_COUNT) & (np.trunc(counts) == counts)
    if not is_valid_shape or not are_counts.all():
        reason = "a table of the CatBoost model does not contain counts, or too few of them"
        raise ArtifactError(reason)


@dataclass(frozen=True, slots=True, eq=False)
class StatisticTable:
    """The statistics of one projection, with a column of `values` per statistic.

    Row i of `values` belongs to the combination `hashes[i]`, and the last row to all other
    combinations. `hashes` are sorted.
    """

    projection: Projection
    hashes: Array
    values: Array

    def find_category_hashes(self) -> Array:
        """Return the 32-bit hashes of a single categorical column, or else an empty array."""
        if len(self.projection.categories) != 1 or self.projection.tests:
            return np.zeros(0, np.int64)
        hashes = (self.hashes.view(np.uint64) * _INVERSE_MULTIPLIER).view(np.int64)
        return hashes[(hashes >= -(1 << 31)) & (hashes < 1 << 31)] & _MAX_HASH


_INVERSE_MULTIPLIER = np.uint64(pow(MULTIPLIER, -2, 1 << 64))
"""The factor that reverts both multiplications in the hash of a combination with one element."""


def build_lookups(
    statistics: Sequence[Statistic], used_indices: Sequence[int], ctr_data: Mapping[str, Any]
) -> tuple[tuple[StatisticTable, ...], dict[int, int]]:
    """Return a look-up table per projection, and a map from each used index to a column."""
    indices_by_projection: dict[Projection, list[int]] = {}
    for index in used_indices:
        indices_by_projection.setdefault(statistics[index].projection, []).append(index)
    table_names = dict.fromkeys(statistics[index].table for index in used_indices)
    tables_by_name = {name: _find_table(ctr_data, name) for name in table_names}
    lookups: list[StatisticTable] = []
    for projection, indices in indices_by_projection.items():
        tables = [tables_by_name[statistics[index].table] for index in indices]
        hashes_by_table = {id(table): table.hashes for table, _ in tables}
        hashes = np.unique(np.concatenate([*hashes_by_table.values()]))
        values = np.empty((hashes.size + 1, len(indices)), np.float32)
        for column, (index, (table, total)) in enumerate(zip(indices, tables, strict=True)):
            known_values, unknown_value = statistics[index].compute_all(table, total)
            values[:, column] = unknown_value
            values[np.searchsorted(hashes, table.hashes), column] = known_values
        lookups.append(StatisticTable(projection, hashes, values))
    ordered_indices = chain.from_iterable(indices_by_projection.values())
    return tuple(lookups), {index: column for column, index in enumerate(ordered_indices)}


def _find_table(ctr_data: Mapping[str, Any], name: str) -> tuple[HashTable, int]:
    """Return the table `name`, and the denominator of statistics in `COUNTERS`."""
    table = ctr_data.get(name) if isinstance(ctr_data, Mapping) else None
    if not isinstance(table, Mapping) or not isinstance(table.get("hash_map"), HashTable):
        raise ArtifactError("the CatBoost model lacks the counts of its categories")
    return table["hash_map"], min(check_index(table.get("counter_denominator", 0)), _MAX_COUNT)


def check_distinct_tables(options: Any) -> None:
    """Reject statistics of one type with different target borders: JSON gives both one name."""
    params = options.get("cat_feature_params") if isinstance(options, Mapping) else None
    if not isinstance(params, Mapping):
        return
    per_feature = params.get("per_feature_ctrs")
    groups = [params.get("simple_ctrs"), params.get("combinations_ctrs")]
    groups += list(per_feature.values()) if isinstance(per_feature, Mapping) else []
    for group in groups:
        binarizations: dict[Any, Any] = {}
        for statistic in group if isinstance(group, list) else []:
            ctr_type, binarization = statistic.get("ctr_type"), statistic.get("target_binarization")
            if binarizations.setdefault(ctr_type, binarization) != binarization:
                raise UnsupportedModelError(
                    f"this CatBoost model has two {ctr_type} statistics with different "
                    "TargetBorderCount, which CatBoost's JSON does not tell apart; train it with "
                    "one TargetBorderCount for each kind"
                )


class Columns:
    """The columns that splits of a model can test.

    CatBoost numbers float columns and categorical columns separately. `floats` and `categories`
    map these numbers to indices in the table. The table has `count` columns; in splits, statistic k
    is column `count` + k. `category_names` maps hashes to category names.
    """

    def __init__(self) -> None:
        self.count = 0
        self.names: tuple[str, ...] | None = None
        self.floats: dict[int, tuple[int, bool]] = {}
        self.categories: dict[int, int] = {}
        self.statistics: list[Statistic] = []
        self._indexed_tests: list[tuple[str, int, Any]] = []
        self._known_tests: frozenset[tuple[str, int, Any]] = frozenset()
        self._codes: dict[int, dict[int, int]] = {}
        self.category_names: dict[int, str] = {}

    @classmethod
    def read(cls, features_info: Mapping[str, Any], max_columns: int) -> Columns:
        """Read the entry "features_info" of a document, with at most `max_columns` columns."""
        self = cls()
        names_by_index: dict[int, str] = {}
        for feature in features_info.get("float_features") or []:
            treatment = feature["nan_value_treatment"]
            if treatment not in ("AsIs", "AsFalse", "AsTrue"):
                raise ArtifactError(f"unknown nan_value_treatment {treatment!r} of a column")
            nan_is_true = treatment == "AsTrue" and feature["has_nans"] is True
            number = _read_number(feature, self.floats)
            self.floats[number] = self._read_index(feature, names_by_index), nan_is_true
            borders = _read_borders(feature["borders"] or [])
            self._indexed_tests += [("FloatFeature", number, border) for border in borders]
        for feature in features_info.get("categorical_features") or []:
            number = _read_number(feature, self.categories)
            self.categories[number] = self._read_index(feature, names_by_index)
            names, hashes = feature.get("string_values") or [], feature.get("values") or []
            self._indexed_tests += [("OneHotFeature", number, read_hash(code)) for code in hashes]
            if len(names) == len(hashes):
                self.category_names |= zip(map(read_hash, hashes), map(str, names), strict=True)
        for category in features_info.get("cat_features_hash") or []:
            self.category_names[read_hash(category["hash"])] = str(category["value"])
        self.count = 1 + max(names_by_index, default=-1)
        num_columns = len(self.floats) + len(self.categories)
        if self.count > max_columns or not self.count == len(names_by_index) == num_columns:
            raise ArtifactError("the columns of the CatBoost model are not numbered consecutively")
        if any(names_by_index.values()):
            self.names = tuple(names_by_index.get(i) or str(i) for i in range(self.count))
        self._known_tests = frozenset(self._indexed_tests)
        for number, ctr in enumerate(features_info.get("ctrs") or []):
            self.statistics.append(self._read_statistic(ctr))
            borders = _read_borders(ctr["borders"])
            self._indexed_tests += [("OnlineCtr", number, border) for border in borders]
        if len(set(self.statistics)) < len(self.statistics):
            raise UnsupportedModelError(
                "this CatBoost model has two statistics of categories that its JSON does not tell "
                "apart; train it with one TargetBorderCount for each kind"
            )
        return self

    def _read_index(self, feature: Mapping[str, Any], names_by_index: dict[int, str]) -> int:
        index = check_index(feature["flat_feature_index"])
        name = feature.get("feature_id") or feature.get("feature_name") or ""
        if index in names_by_index or not isinstance(name, str):
            raise ArtifactError(
                f"column {index} of the CatBoost model occurs twice or has an invalid name"
            )
        names_by_index[index] = name
        return index

    def read_split(self, raw_split: Mapping[str, Any]) -> Split:
        """Read a split; reject a split that differs from the test with the same split_index."""
        split_type: Any = raw_split.get("split_type")
        index: Any = raw_split.get("split_index")
        tests = self._indexed_tests
        value: Any
        if split_type == "FloatFeature":
            split = self._read_float_test(raw_split)
            number, value = raw_split["float_feature_index"], split.border
        elif split_type == "OneHotFeature":
            split = self._read_category_test(raw_split)
            number, value = raw_split["cat_feature_index"], read_hash(raw_split["value"])
        elif split_type == "OnlineCtr":
            value, is_known = np.float32(raw_split["border"]), check_index(index) < len(tests)
            number = tests[index][1] if is_known else -1
            split = Split(self.count + number, value, False, None)
        else:
            raise UnsupportedModelError(f"CatBoost splits of type {split_type!r} are not supported")
        # CatBoost reads only the index, so the other entries must match the index.
        if tests[check_index(index) : index + 1] != [(split_type, number, value)]:
            raise ArtifactError("a split of the CatBoost model does not match its index")
        is_ctr = split_type == "OnlineCtr"
        if is_ctr and raw_split["ctr_target_border_idx"] != self.statistics[number].target_border:
            raise ArtifactError("a split of the CatBoost model belongs to another statistic")
        return split

    def _read_category_test(self, raw_test: Mapping[str, Any]) -> Split:
        feature = self.categories[check_index(raw_test["cat_feature_index"])]
        code_by_hash = self._codes.setdefault(feature, {})
        code = code_by_hash.setdefault(read_hash(raw_test["value"]), len(code_by_hash))
        return Split(feature, np.float32(0), False, code)

    def _read_float_test(self, raw_test: Mapping[str, Any]) -> Split:
        feature, nan_is_true = self.floats[check_index(raw_test["float_feature_index"])]
        border = np.float32(raw_test["border"])
        if np.isnan(border):
            raise ArtifactError("a border of the CatBoost model is NaN")
        return Split(feature, border, nan_is_true, None)

    def _read_statistic(self, ctr: Mapping[str, Any]) -> Statistic:
        ctr_type, name = ctr["ctr_type"], ctr["identifier"]
        if ctr_type not in MEANS | COUNTERS | SHARES:
            raise UnsupportedModelError(f"CatBoost's CTR type {ctr_type!r} is not supported")
        if json.loads(name) != {"identifier": ctr["elements"], "type": ctr_type}:
            raise ArtifactError("a statistic of the CatBoost model does not match its name")
        fields = ("prior_numerator", "prior_denomerator", "shift", "scale")
        parameters = read_floats([ctr[field] for field in fields]).astype(np.float32)
        if not np.isfinite(parameters).all():
            raise ArtifactError("a statistic of the CatBoost model contains a non-finite number")
        border_index = check_index(ctr["target_border_idx"])
        projection = self._read_projection(ctr["elements"])
        return Statistic(projection, ctr_type, name, border_index, *parameters)

    def _read_projection(self, elements: Any) -> Projection:
        """Read a combination; sort the parts in hashing order: categories first, then tests."""
        categories, float_tests, category_tests = list[int](), list[Split](), list[Split]()
        for element in elements:
            element_type = element["combination_element"]
            if element_type == "cat_feature_value":
                categories.append(self.categories[check_index(element["cat_feature_index"])])
                continue
            if element_type == "float_feature":
                float_tests.append(self._read_float_test(element))
                number, value = element["float_feature_index"], float_tests[-1].border
                is_known = ("FloatFeature", number, value) in self._known_tests
            elif element_type == "cat_feature_exact_value":
                category_tests.append(self._read_category_test(element))
                number, code = element["cat_feature_index"], read_hash(element["value"])
                is_known = ("OneHotFeature", number, code) in self._known_tests
            else:
                reason = f"CatBoost's combinations of {element_type!r} are not supported"
                raise UnsupportedModelError(reason)
            if not is_known:
                raise ArtifactError("a combination of the CatBoost model has an unknown test")
        if not categories:
            raise ArtifactError("a combination of the CatBoost model has no category")
        return Projection(tuple(categories), (*float_tests, *category_tests))

    def find_tested_values(self) -> dict[int, Array]:
        """Map each categorical column to the int64 hashes that splits test, ordered by code."""
        return {column: np.array(list(codes), np.int64) for column, codes in self._codes.items()}


def _read_number(feature: Mapping[str, Any], previous_columns: Mapping[int, Any]) -> int:
    number = check_index(feature["feature_index"])
    if number <= max(previous_columns, default=-1):
        raise ArtifactError("the columns of the CatBoost model are not in order")
    return number


def _read_borders(values: Any) -> Array:
    borders = read_floats(values).astype(np.float32)
    if not (np.diff(borders) > 0).all():
        raise ArtifactError("the borders of a CatBoost column are not in order")
    return borders
