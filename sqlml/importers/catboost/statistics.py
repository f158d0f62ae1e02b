"""Statistics of the target by category (CTR): what a CatBoost model makes of categorical columns.

A statistic is a number for each combination of values that training saw: of some categories, and of
whether some tests are true. CatBoost looks the combination up by its hash, and computes with what
it counted, in float32 (catboost/libs/model/static_ctr_provider.cpp, online_ctr.h):

    ((good + prior) / (total + denominator) + shift) * scale

Of one that training did not see nothing was counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sqlml.errors import ArtifactError, UnsupportedModelError
from sqlml.importers.catboost.document_numbers import count
from sqlml.importers.catboost.hash_table import HashTable
from sqlml.importers.catboost.split import Split
from sqlml.ir.operators.combinations import MULTIPLIER
from sqlml.types import Array

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
