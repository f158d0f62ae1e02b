"""CatBoost documents that CatBoost would not write."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.support import hostile, small_files
from tests.support.hostile import refused


def catboost(change: Callable[[Any], Any], which: int = 1) -> bytes:
    document = json.loads(small_files.catboost_files()[which])
    change(document)
    return json.dumps(document).encode()


def nested_tree(depth: int, border: float) -> Any:
    """A non-symmetric CatBoost tree that is one chain of the model's first test."""
    leaf = {"value": 1.0, "weight": 1}
    node: Any = leaf
    split = {
        "border": border,
        "float_feature_index": 0,
        "split_index": 0,
        "split_type": "FloatFeature",
    }
    for _ in range(depth):
        node = {"left": node, "right": leaf, "split": split}
    return node


CATBOOST: dict[str, Callable[[Any], Any]] = {
    "60 splits of one tree": lambda d: d["oblivious_trees"][0].update(
        splits=d["oblivious_trees"][0]["splits"] * 30
    ),
    "no leaves": lambda d: d["oblivious_trees"][0]["leaf_values"].clear(),
    "a feature beyond": lambda d: d["oblivious_trees"][0]["splits"][0].update(
        float_feature_index=10**9
    ),
    "a NaN border": lambda d: d["oblivious_trees"][0]["splits"][0].update(border=float("nan")),
    "no features": lambda d: d["features_info"].clear(),
    "10^9 as a feature's place": lambda d: d["features_info"]["float_features"][0].update(
        flat_feature_index=10**9
    ),
    "a negative place": lambda d: d["features_info"]["float_features"][0].update(
        flat_feature_index=-1
    ),
    "no bias": lambda d: d.update(scale_and_bias=[]),
    "no trees": lambda d: d.pop("oblivious_trees"),
    # CatBoost reads a split's number, and not what else it says
    "a split that is called another": lambda d: split(d).update(split_index=0, border=0.125),
    "a split of no column": lambda d: split(d).update(split_index=10**6),
    "a split without a number": lambda d: split(d).pop("split_index"),
    "borders out of order": lambda d: borders(d).reverse(),
    "a border twice": lambda d: borders(d).append(borders(d)[-1]),
    "no borders": lambda d: borders(d).clear(),
    "a gap among the columns": lambda d: d["features_info"]["float_features"][-1].update(
        flat_feature_index=9
    ),
    "a value that is NaN": lambda d: d["oblivious_trees"][0]["leaf_values"].__setitem__(
        0, float("nan")
    ),
    "a weight that is infinite": lambda d: d["oblivious_trees"][0]["leaf_weights"].__setitem__(
        0, float("inf")
    ),
    "a value that is true": lambda d: d["oblivious_trees"][0]["leaf_values"].__setitem__(0, True),
    "a scale that is a text": lambda d: d["scale_and_bias"].__setitem__(0, "1"),
    "a scale beyond float64's whole numbers": lambda d: d["scale_and_bias"].__setitem__(0, 2**62),
    "such a value": lambda d: d["oblivious_trees"][0]["leaf_values"].__setitem__(0, 2**62),
    "a class without a name": lambda d: d["model_info"]["class_params"].update(
        class_to_label=[0, 1, 2**31 - 1]
    ),
    "a text that is nested without end": lambda d: d["model_info"].update(
        training='{"a": ' + "[" * 100_000
    ),
    "a bias that is not a list": lambda d: d["scale_and_bias"].__setitem__(1, 0.5),
    "a bias that is true": lambda d: d["scale_and_bias"][1].__setitem__(0, True),
    "null for scale and bias": lambda d: d.update(scale_and_bias=None),
    "booleans the other way round": lambda d: d["model_info"]["class_params"].update(
        class_label_type="Boolean", class_names=[True, False]
    ),
}


def split(document: Any) -> Any:
    return document["oblivious_trees"][0]["splits"][0]


def borders(document: Any) -> Any:
    """Those of the column that the first split tests."""
    column = split(document)["float_feature_index"]
    return document["features_info"]["float_features"][column]["borders"]


def test_a_catboost_tree_that_is_nested_without_end() -> None:
    def change(document: Any) -> None:
        first = document["features_info"]["float_features"][0]
        document["trees"][0] = nested_tree(300, first["borders"][0])

    assert hostile.outcome(catboost(change, 2), "CATBOOST") == "scored"
    text = catboost(lambda d: d.update(trees=["here"]), 2)
    head = b'{"split": {"border": 0.5, "float_feature_index": 0, "split_type": "FloatFeature"}, '
    nested = (head + b'"right": {"value": 1}, "left": ') * 100_000
    refused(text.replace(b'"here"', nested + b'{"value": 1}' + b"}" * 100_000), "CATBOOST", "deep")


@pytest.mark.parametrize(
    "numbers", ["no list", [[0, 1]], [[0.5] * 9, [0.5] * 9], [[0], [0]], [{}] * 2]
)
def test_numbers_of_leaves_that_do_not_fit(numbers: Any) -> None:
    refused(catboost(lambda d: d.update(leaf_numbers=numbers), 2), "CATBOOST")


@pytest.mark.parametrize("change", CATBOOST.values(), ids=CATBOOST)
def test_hostile_catboost_documents(change: Callable[[Any], Any]) -> None:
    refused(catboost(change), "CATBOOST")
