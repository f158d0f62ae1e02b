"""`Columns`: the columns of a CatBoost model, and the tests that its splits make of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sqlml.errors import ArtifactError, UnsupportedModelError
from sqlml.ir.operators.categories import MULTIPLIER
from sqlml.types import Array

# Numbers of CatBoost's JSON document, checked.


MOST_WHOLE = 1 << 53
"""CatBoost misreads larger numbers without a decimal point."""
_HASH = 0xFFFFFFFF


def floats(given: Sequence[Any]) -> Array:
    """Numbers of a list, float64 (n,).

    Raises:
        ArtifactError: something in it is none, or an integer that CatBoost would misread.
    """
    values = np.array(given)
    mixed = isinstance(given, list) and bool in set(map(type, given))
    if values.ndim != 1 or values.dtype.kind not in "iuf" or mixed:
        raise ArtifactError("entries of the CatBoost model are not numbers")
    large = values.size and isinstance(given, list) and np.abs(values).max() > MOST_WHOLE
    if large and any(type(v) is int and abs(v) > MOST_WHOLE for v in given):
        raise ArtifactError("an integer of the CatBoost model does not fit a float64")
    return values.astype(np.float64)


def count(value: Any) -> int:
    """A whole number of 0 or more.

    Raises:
        ArtifactError: it is none.
    """
    if type(value) is not int or value < 0:
        raise ArtifactError(f"a number of the CatBoost model is {value!r}")
    return value


def hash32(value: Any) -> int:
    """A 32-bit hash, which the document writes with and without sign.

    Raises:
        ArtifactError: it is none.
    """
    if type(value) is not int or not -(1 << 31) <= value <= _HASH:
        raise ArtifactError(f"a hash of the CatBoost model is {value!r}")
    return value & _HASH


# `HashTable`: what a CatBoost model counted in training, by the hash of categories.


_EMPTY = (1 << 64) - 1
"""What stands in a slot of CatBoost's own table without a hash; it is never found."""


@dataclass(frozen=True, slots=True, eq=False)
class HashTable:
    """hashes: int64 (k,), bit patterns of 64 bits, ascending; numbers: float64 (k, m) of each."""

    hashes: Array
    numbers: Array

    @classmethod
    def read(cls, entries: Sequence[Any], stride: Any) -> HashTable:
        """A "hash_map" of the document: each hash as a text, then `stride` - 1 numbers.

        Raises:
            ArtifactError: it is none.
        """
        if type(stride) is not int or stride < 2 or not entries or len(entries) % stride:
            raise ArtifactError("a table of the CatBoost model does not fit its stride")
        texts = entries[::stride]
        if not all(type(text) is str and text.isascii() and text.isdecimal() for text in texts):
            raise ArtifactError("a hash in the CatBoost model is not a number")
        numbers = np.stack([floats(entries[i::stride]) for i in range(1, stride)], axis=1)
        hashes = np.array([int(text) for text in texts], np.uint64)
        kept = hashes != np.uint64(_EMPTY)
        bits = hashes[kept].view(np.int64)
        order = np.argsort(bits, kind="stable")
        if (np.diff(bits[order]) == 0).any():
            raise ArtifactError("a hash stands twice in a table of the CatBoost model")
        return cls(bits[order], numbers[kept][order])


# `Split`: one test of a tree of CatBoost's.


@dataclass(frozen=True, slots=True)
class Split:
    """One test: of column `feature` against `border`, or (`code` not None) for a category.

    `nan_is_true` says what NaN counts as.
    """

    feature: int
    border: np.float32
    nan_is_true: bool
    code: int | None


# Statistics of the target by category (CTR): what a CatBoost model makes of categorical columns.
#
# A statistic is a number for each combination of values that training saw: of some categories,
# and of whether some tests are true. CatBoost looks the combination up by its hash, and computes
# with what it counted, in float32 (catboost/libs/model/static_ctr_provider.cpp, online_ctr.h):
#
#     ((good + prior) / (total + denominator) + shift) * scale
#
# Of one that training did not see nothing was counted.


MEANS = frozenset({"BinarizedTargetMeanValue", "FloatTargetMeanValue"})
COUNTERS = frozenset({"Counter", "FeatureFreq"})
SHARES = frozenset({"Borders", "Buckets"})
"""Kinds of statistics: the mean of the target, how often the combination is, and the share of
targets above a border, or in a bucket between two."""

_MOST = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class Projection:
    """What is looked up: categorical columns by their places in the table, and tests."""

    categories: tuple[int, ...]
    tests: tuple[Split, ...]


@dataclass(frozen=True, slots=True)
class Statistic:
    """One statistic; `table` is the name of what was counted for it. Numbers are float32."""

    projection: Projection
    kind: str
    table: str
    target_border: int
    prior: Any
    denominator: Any
    shift: Any
    scale: Any

    def of(self, good: Array | float, total: Array | float) -> Any:
        """What was counted, as the statistic."""
        share: Any = (np.float32(good) + self.prior) / (np.float32(total) + self.denominator)
        return (share + self.shift) * self.scale

    def values(self, counted: HashTable, most: int) -> tuple[Array, Any]:
        """The statistic of each hash, float32 (k,), and that of one which was not counted.

        Args:
            most: the denominator of a counter.

        Raises:
            ArtifactError: the numbers are not what this kind counts.
        """
        n = counted.numbers
        if self.kind in COUNTERS:
            _check(n.shape[1] == 1, n)
            return self.of(n[:, 0], float(most)), self.of(0.0, float(most))
        if self.kind in MEANS:
            _check(n.shape[1] == 2, n[:, 1])
            return self.of(n[:, 0], n[:, 1]), self.of(0.0, 0.0)
        classes, border = n.shape[1], self.target_border
        _check(classes >= 2 and border < classes, n)
        total = n.sum(axis=1)
        _check(True, total)
        if self.kind == "Buckets":
            good = n[:, border]
        else:  # of two classes CatBoost counts the second, whatever the border is called
            good = n[:, border + 1 :].sum(axis=1) if classes > 2 else n[:, 1]
        return self.of(good, total), self.of(0.0, 0.0)


def _check(fits: bool, counts: Array) -> None:
    if not fits or not ((np.abs(counts) <= _MOST) & (np.trunc(counts) == counts)).all():
        raise ArtifactError("a table of the CatBoost model holds no counts, or too few of them")


@dataclass(frozen=True, slots=True, eq=False)
class Lookup:
    """Statistics of one projection.

    hashes: int64 (k,), bit patterns, ascending. values: float32 (k + 1, statistics), the last row
    for a combination that is not there.
    """

    projection: Projection
    hashes: Array
    values: Array

    def categories(self) -> Array:
        """The 32-bit hashes of the categories, int64; none where the projection has other parts."""
        if len(self.projection.categories) != 1 or self.projection.tests:
            return np.zeros(0, np.int64)
        made = (self.hashes.view(np.uint64) * _UNDONE).view(np.int64)
        return made[(made >= -(1 << 31)) & (made < 1 << 31)] & 0xFFFFFFFF


_UNDONE = np.uint64(pow(MULTIPLIER, -2, 1 << 64))
"""What undoes the two multiplications of a hash of one element."""


def lookups(
    statistics: Sequence[Statistic], used: Sequence[int], data: Mapping[str, Any]
) -> tuple[tuple[Lookup, ...], dict[int, int]]:
    """The look-ups of the `used` statistics, and the column of each among all that they make.

    data: what was counted ("ctr_data").

    Raises:
        ArtifactError: something was not counted, or the numbers do not fit.
    """
    groups: dict[Projection, list[int]] = {}
    for number in used:
        groups.setdefault(statistics[number].projection, []).append(number)
    made, named = list[Lookup](), dict[str, tuple[HashTable, int]]()
    column: dict[int, int] = {}
    for projection, numbers in groups.items():
        for number in numbers:
            name = statistics[number].table
            if name not in named:
                named[name] = _table(data, name)
        tables = [named[statistics[number].table] for number in numbers]
        distinct = {id(table): table.hashes for table, _ in tables}
        hashes = np.unique(np.concatenate([*distinct.values()]))
        values = np.empty((hashes.size + 1, len(numbers)), np.float32)
        for place, (number, (table, most)) in enumerate(zip(numbers, tables, strict=True)):
            known, unknown = statistics[number].values(table, most)
            values[:, place] = unknown
            values[np.searchsorted(hashes, table.hashes), place] = known
            column[number] = len(column)
        made.append(Lookup(projection, hashes, values))
    return tuple(made), column


def _table(data: Mapping[str, Any], name: str) -> tuple[HashTable, int]:
    entry = data.get(name) if isinstance(data, Mapping) else None
    if not isinstance(entry, Mapping) or not isinstance(entry.get("hash_map"), HashTable):
        raise ArtifactError("the CatBoost model lacks what it counted of its categories")
    return entry["hash_map"], min(count(entry.get("counter_denominator", 0)), _MOST)


def check_told_apart(parameters: Any) -> None:
    """Refuse a model of which the document mixes up two tables: it names them alike.

    Raises:
        UnsupportedModelError: two statistics of a kind cut the target into different classes.
    """
    given = parameters.get("cat_feature_params") if isinstance(parameters, Mapping) else None
    if not isinstance(given, Mapping):
        return
    own = given.get("per_feature_ctrs")
    lists = [given.get("simple_ctrs"), given.get("combinations_ctrs")]
    lists += list(own.values()) if isinstance(own, Mapping) else []
    for listed in lists:
        cuts: dict[Any, Any] = {}
        for one in listed if isinstance(listed, list) else []:
            cut = one.get("target_binarization")
            if cuts.setdefault(one.get("ctr_type"), cut) != cut:
                raise UnsupportedModelError(
                    f"this CatBoost model has two {one.get('ctr_type')} statistics with different "
                    "TargetBorderCount, which CatBoost's JSON does not tell apart; train it with "
                    "one TargetBorderCount for each kind"
                )


class Columns:
    """The model's columns: number among the floats or the categories -> place in the table.

    Its statistics come behind the columns of the table: number k is column `count` + k of splits.
    `texts` has the texts of hashes, where the document says them.
    """

    def __init__(self) -> None:
        self.count = 0
        self.names: tuple[str, ...] | None = None
        self.floats: dict[int, tuple[int, bool]] = {}
        self.categories: dict[int, int] = {}
        self.statistics: list[Statistic] = []
        self._tests: list[tuple[str, int, Any]] = []
        self._known: frozenset[tuple[str, int, Any]] = frozenset()
        self._codes: dict[int, dict[int, int]] = {}
        self.texts: dict[int, str] = {}

    @classmethod
    def read(cls, info: Mapping[str, Any], most: int) -> Columns:
        """The columns of "features_info", at most `most`."""
        self = cls()
        names: dict[int, str] = {}
        for feature in info.get("float_features") or []:
            treatment = feature["nan_value_treatment"]
            if treatment not in ("AsIs", "AsFalse", "AsTrue"):
                raise ArtifactError(
                    f"unknown nan_value_treatment {treatment!r} of a CatBoost column"
                )
            true = treatment == "AsTrue" and feature["has_nans"] is True
            number = _number(feature, self.floats)
            self.floats[number] = self._place(feature, names), true
            self._tests += [("FloatFeature", number, b) for b in _borders(feature["borders"] or [])]
        for feature in info.get("categorical_features") or []:
            number = _number(feature, self.categories)
            self.categories[number] = self._place(feature, names)
            texts, values = feature.get("string_values") or [], feature.get("values") or []
            self._tests += [("OneHotFeature", number, hash32(value)) for value in values]
            if len(texts) == len(values):
                self.texts |= dict(zip(map(hash32, values), map(str, texts), strict=True))
        for entry in info.get("cat_features_hash") or []:
            self.texts[hash32(entry["hash"])] = str(entry["value"])
        self.count = 1 + max(names, default=-1)
        columns = len(self.floats) + len(self.categories)
        if self.count > most or not self.count == len(names) == columns:
            raise ArtifactError("the columns of the CatBoost model are not numbered one by one")
        if any(names.values()):
            self.names = tuple(names.get(i) or str(i) for i in range(self.count))
        self._known = frozenset(self._tests)
        for number, given in enumerate(info.get("ctrs") or []):
            self.statistics.append(self._statistic(given))
            self._tests += [("OnlineCtr", number, b) for b in _borders(given["borders"])]
        if len(set(self.statistics)) < len(self.statistics):
            raise UnsupportedModelError(
                "this CatBoost model has two statistics of categories that its JSON does not tell "
                "apart; train it with one TargetBorderCount for each kind"
            )
        return self

    def _place(self, feature: Mapping[str, Any], names: dict[int, str]) -> int:
        place = count(feature["flat_feature_index"])
        name = feature.get("feature_id") or feature.get("feature_name") or ""
        if place in names or not isinstance(name, str):
            raise ArtifactError(f"column {place} of the CatBoost model is duplicated or misnamed")
        names[place] = name
        return place

    def split(self, given: Mapping[str, Any]) -> Split:
        """A split of the document."""
        kind = given.get("split_type")
        if kind == "FloatFeature":
            split = self._above(given)
            self._check(given, given["float_feature_index"], split.border)
            return split
        if kind == "OneHotFeature":
            split = self._one_hot(given)
            self._check(given, given["cat_feature_index"], hash32(given["value"]))
            return split
        if kind == "OnlineCtr":
            place, border = count(given["split_index"]), np.float32(given["border"])
            number = self._tests[place][1] if place < len(self._tests) else -1
            self._check(given, number, border)
            if given["ctr_target_border_idx"] != self.statistics[number].target_border:
                raise ArtifactError("a split of the CatBoost model is of another statistic")
            return Split(self.count + number, border, False, None)
        raise UnsupportedModelError(f"CatBoost splits of type {kind!r} are not covered")

    def _one_hot(self, given: Mapping[str, Any]) -> Split:
        """A test for one category."""
        feature = self.categories[count(given["cat_feature_index"])]
        codes = self._codes.setdefault(feature, {})
        code = codes.setdefault(hash32(given["value"]), len(codes))
        return Split(feature, np.float32(0), False, code)

    def _above(self, given: Mapping[str, Any]) -> Split:
        """A test of a number."""
        feature, true = self.floats[count(given["float_feature_index"])]
        border = np.float32(given["border"])
        if np.isnan(border):
            raise ArtifactError("a border of the CatBoost model is NaN")
        return Split(feature, border, true, None)

    def _statistic(self, given: Mapping[str, Any]) -> Statistic:
        kind, name = given["ctr_type"], given["identifier"]
        if kind not in MEANS | COUNTERS | SHARES:
            raise UnsupportedModelError(f"CatBoost's statistics {kind!r} are not covered")
        if json.loads(name) != {"identifier": given["elements"], "type": kind}:
            raise ArtifactError("a statistic of the CatBoost model is not the one it is called")
        fields = ("prior_numerator", "prior_denomerator", "shift", "scale")
        numbers = floats([given[field] for field in fields]).astype(np.float32)
        if not np.isfinite(numbers).all():
            raise ArtifactError("a statistic of the CatBoost model has a number that is not finite")
        border = count(given["target_border_idx"])
        return Statistic(self._projection(given["elements"]), kind, name, border, *numbers)

    def _projection(self, elements: Any) -> Projection:
        """CatBoost takes categories first, then tests of numbers, then those for a category."""
        categories, above, equal = list[int](), list[Split](), list[Split]()
        for element in elements:
            what = element["combination_element"]
            if what == "cat_feature_value":
                categories.append(self.categories[count(element["cat_feature_index"])])
                continue
            if what == "float_feature":
                above.append(self._above(element))
                number, value = element["float_feature_index"], above[-1].border
                known = ("FloatFeature", number, value) in self._known
            elif what == "cat_feature_exact_value":
                equal.append(self._one_hot(element))
                number, code = element["cat_feature_index"], hash32(element["value"])
                known = ("OneHotFeature", number, code) in self._known
            else:
                raise UnsupportedModelError(f"CatBoost's combinations of {what!r} are not covered")
            if not known:
                raise ArtifactError("a combination of the CatBoost model has a test of its own")
        if not categories:
            raise ArtifactError("a combination of the CatBoost model has no category")
        return Projection(tuple(categories), (*above, *equal))

    def _check(self, given: Mapping[str, Any], number: int, value: Any) -> None:
        """Of a split CatBoost reads one number: its place among all tests of all columns."""
        place = count(given["split_index"])
        if self._tests[place : place + 1] != [(given["split_type"], number, value)]:
            raise ArtifactError("a split of the CatBoost model is not the one that it is called")

    def tested_values(self) -> dict[int, Array]:
        """Categorical column -> the hashes that splits test, int64, in the order of their codes."""
        return {place: np.array(list(codes), np.int64) for place, codes in self._codes.items()}


def _number(feature: Mapping[str, Any], before: Mapping[int, Any]) -> int:
    """The number of a column among those of its kind; out of order, CatBoost itself dies of it."""
    number = count(feature["feature_index"])
    if number <= max(before, default=-1):
        raise ArtifactError("the columns of the CatBoost model are not in order")
    return number


def _borders(given: Any) -> Array:
    borders = floats(given).astype(np.float32)
    if not (np.diff(borders) > 0).all():
        raise ArtifactError("the borders of a CatBoost column are not in order")
    return borders
