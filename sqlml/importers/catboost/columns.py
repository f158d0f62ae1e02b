"""`Columns`: the columns of a CatBoost model, and the tests that its splits make of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from sqlml.errors import ArtifactError, UnsupportedModelError
from sqlml.importers.catboost.document_numbers import count, floats, hash32
from sqlml.importers.catboost.split import Split
from sqlml.importers.catboost.statistics import COUNTERS, MEANS, SHARES, Projection, Statistic
from sqlml.types import Array


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
