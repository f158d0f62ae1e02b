"""The columns of a CatBoost model, and the tests that its splits make of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from sqlml.errors import ArtifactError, UnsupportedModelError
from sqlml.importers.catboost.category_statistics import (
    COUNTERS,
    MEANS,
    SHARES,
    Projection,
    Split,
    Statistic,
    check_index,
    read_floats,
    read_hash,
)
from sqlml.types import Array


class Columns:
    """The columns of a model, by their number among the floats or among the categories.

    `floats` and `categories` give the number of the column in the table. In splits, statistics
    follow the `count` columns of the table: statistic k is column `count` + k. `texts` has the
    texts of category hashes, if the document states them.
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
        """Read "features_info", of at most `most` columns."""
        self = cls()
        names: dict[int, str] = {}
        for feature in info.get("float_features") or []:
            treatment = feature["nan_value_treatment"]
            if treatment not in ("AsIs", "AsFalse", "AsTrue"):
                raise ArtifactError(
                    f"unknown nan_value_treatment {treatment!r} of a CatBoost column"
                )
            true = treatment == "AsTrue" and feature["has_nans"] is True
            number = _read_number(feature, self.floats)
            self.floats[number] = self._read_position(feature, names), true
            borders = _read_borders(feature["borders"] or [])
            self._tests += [("FloatFeature", number, border) for border in borders]
        for feature in info.get("categorical_features") or []:
            number = _read_number(feature, self.categories)
            self.categories[number] = self._read_position(feature, names)
            texts, values = feature.get("string_values") or [], feature.get("values") or []
            self._tests += [("OneHotFeature", number, read_hash(value)) for value in values]
            if len(texts) == len(values):
                self.texts |= dict(zip(map(read_hash, values), map(str, texts), strict=True))
        for entry in info.get("cat_features_hash") or []:
            self.texts[read_hash(entry["hash"])] = str(entry["value"])
        self.count = 1 + max(names, default=-1)
        columns = len(self.floats) + len(self.categories)
        if self.count > most or not self.count == len(names) == columns:
            raise ArtifactError("the columns of the CatBoost model are not numbered one by one")
        if any(names.values()):
            self.names = tuple(names.get(i) or str(i) for i in range(self.count))
        self._known = frozenset(self._tests)
        for number, entry in enumerate(info.get("ctrs") or []):
            self.statistics.append(self._read_statistic(entry))
            self._tests += [("OnlineCtr", number, b) for b in _read_borders(entry["borders"])]
        if len(set(self.statistics)) < len(self.statistics):
            raise UnsupportedModelError(
                "this CatBoost model has two statistics of categories that its JSON does not tell "
                "apart; train it with one TargetBorderCount for each kind"
            )
        return self

    def _read_position(self, feature: Mapping[str, Any], names: dict[int, str]) -> int:
        """Return the column's number in the table, and add its name to `names`."""
        position = check_index(feature["flat_feature_index"])
        name = feature.get("feature_id") or feature.get("feature_name") or ""
        if position in names or not isinstance(name, str):
            raise ArtifactError(
                f"column {position} of the CatBoost model is duplicated or misnamed"
            )
        names[position] = name
        return position

    def read_split(self, entry: Mapping[str, Any]) -> Split:
        """Read a split of the document.

        Raises:
            ArtifactError: it is not the test that its index refers to.
            UnsupportedModelError: an unknown kind of split.
        """
        kind = entry.get("split_type")
        if kind == "FloatFeature":
            split = self._read_float_test(entry)
            self._check_split(entry, entry["float_feature_index"], split.border)
            return split
        if kind == "OneHotFeature":
            split = self._read_category_test(entry)
            self._check_split(entry, entry["cat_feature_index"], read_hash(entry["value"]))
            return split
        if kind == "OnlineCtr":
            index, border = check_index(entry["split_index"]), np.float32(entry["border"])
            number = self._tests[index][1] if index < len(self._tests) else -1
            self._check_split(entry, number, border)
            if entry["ctr_target_border_idx"] != self.statistics[number].target_border:
                raise ArtifactError("a split of the CatBoost model is of another statistic")
            return Split(self.count + number, border, False, None)
        raise UnsupportedModelError(f"CatBoost splits of type {kind!r} are not covered")

    def _read_category_test(self, entry: Mapping[str, Any]) -> Split:
        feature = self.categories[check_index(entry["cat_feature_index"])]
        codes = self._codes.setdefault(feature, {})
        code = codes.setdefault(read_hash(entry["value"]), len(codes))
        return Split(feature, np.float32(0), False, code)

    def _read_float_test(self, entry: Mapping[str, Any]) -> Split:
        feature, true = self.floats[check_index(entry["float_feature_index"])]
        border = np.float32(entry["border"])
        if np.isnan(border):
            raise ArtifactError("a border of the CatBoost model is NaN")
        return Split(feature, border, true, None)

    def _read_statistic(self, entry: Mapping[str, Any]) -> Statistic:
        kind, name = entry["ctr_type"], entry["identifier"]
        if kind not in MEANS | COUNTERS | SHARES:
            raise UnsupportedModelError(f"CatBoost's statistics {kind!r} are not covered")
        if json.loads(name) != {"identifier": entry["elements"], "type": kind}:
            raise ArtifactError("a statistic of the CatBoost model is not the one it is called")
        fields = ("prior_numerator", "prior_denomerator", "shift", "scale")
        numbers = read_floats([entry[field] for field in fields]).astype(np.float32)
        if not np.isfinite(numbers).all():
            raise ArtifactError("a statistic of the CatBoost model has a number that is not finite")
        border = check_index(entry["target_border_idx"])
        projection = self._read_projection(entry["elements"])
        return Statistic(projection, kind, name, border, *numbers)

    def _read_projection(self, elements: Any) -> Projection:
        """Read a combination: its categories, tests of numbers, and tests for a category.

        CatBoost hashes them in this order.
        """
        categories, above, equal = list[int](), list[Split](), list[Split]()
        for element in elements:
            kind = element["combination_element"]
            if kind == "cat_feature_value":
                categories.append(self.categories[check_index(element["cat_feature_index"])])
                continue
            if kind == "float_feature":
                above.append(self._read_float_test(element))
                number, value = element["float_feature_index"], above[-1].border
                is_known = ("FloatFeature", number, value) in self._known
            elif kind == "cat_feature_exact_value":
                equal.append(self._read_category_test(element))
                number, code = element["cat_feature_index"], read_hash(element["value"])
                is_known = ("OneHotFeature", number, code) in self._known
            else:
                raise UnsupportedModelError(f"CatBoost's combinations of {kind!r} are not covered")
            if not is_known:
                raise ArtifactError("a combination of the CatBoost model has a test of its own")
        if not categories:
            raise ArtifactError("a combination of the CatBoost model has no category")
        return Projection(tuple(categories), (*above, *equal))

    def _check_split(self, entry: Mapping[str, Any], number: int, value: Any) -> None:
        """Check that a split is the test with its index, the only entry that CatBoost reads."""
        index = check_index(entry["split_index"])
        if self._tests[index : index + 1] != [(entry["split_type"], number, value)]:
            raise ArtifactError("a split of the CatBoost model is not the one that it is called")

    def find_tested_values(self) -> dict[int, Array]:
        """Return the hashes that splits test, int64, in the order of their codes, by column."""
        return {column: np.array(list(codes), np.int64) for column, codes in self._codes.items()}


def _read_number(feature: Mapping[str, Any], previous: Mapping[int, Any]) -> int:
    """Return the number of a column among those of its kind; a wrong order crashes CatBoost."""
    number = check_index(feature["feature_index"])
    if number <= max(previous, default=-1):
        raise ArtifactError("the columns of the CatBoost model are not in order")
    return number


def _read_borders(values: Any) -> Array:
    borders = read_floats(values).astype(np.float32)
    if not (np.diff(borders) > 0).all():
        raise ArtifactError("the borders of a CatBoost column are not in order")
    return borders
