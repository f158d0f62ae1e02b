"""XGBoost documents that XGBoost would not write, and UBJSON that lies about its sizes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.support import hostile, small_files
from tests.support.hostile import refused


def xgboost(change: Callable[[Any], Any], which: int = 2) -> bytes:
    """An XGBoost document of three classes, changed."""
    document = json.loads(small_files.xgboost_files()[which])
    change(document["learner"])
    return json.dumps(document).encode()


def tree(learner: Any) -> Any:
    return learner["gradient_booster"]["model"]["trees"][0]


def set_to(place: Callable[[Any], Any], key: Any, value: Any) -> Callable[[Any], None]:
    def change(learner: Any) -> None:
        place(learner)[key] = value

    return change


def params(learner: Any) -> Any:
    return learner["learner_model_param"]


def in_tree(name: str, value: Any) -> Callable[[Any], None]:
    """Node 0 of the first tree."""
    return set_to(lambda learner: tree(learner)[name], 0, value)


XGBOOST: dict[str, tuple[Callable[[Any], None], str]] = {
    "a root that is its own child": (in_tree("left_children", 0), "parents in"),
    "two parents of one child": (in_tree("left_children", 2), "parents in|damaged"),
    "a child beyond the tree": (in_tree("right_children", 10**6), "out of range"),
    "a negative child": (in_tree("left_children", -7), "out of range"),
    "a child number beyond int64": (in_tree("left_children", 10**30), "not an integer"),
    "a feature beyond the table": (in_tree("split_indices", 5), "reads beyond its 5 features"),
    "a negative feature": (in_tree("split_indices", -1), "reads beyond"),
    "a threshold that is a text": (in_tree("split_conditions", "x"), "is not a number"),
    "10^9 classes": (set_to(params, "num_class", "1000000000"), "claims 1000000000 classes"),
    "10^9 features": (set_to(params, "num_feature", "1000000000"), "claims 1000000000 features"),
    "-1 features": (set_to(params, "num_feature", "-1"), "claims -1 features"),
    "10^9 targets": (set_to(params, "num_target", "1000000000"), "claims 1000000000 targets"),
    "a nested base score": (set_to(params, "base_score", "[" * 100_000), "damaged"),
    "no trees for a class": (
        set_to(lambda learner: learner["gradient_booster"]["model"], "tree_info", []),
        "tree_info",
    ),
    "arrays of two lengths": (lambda learner: tree(learner)["split_indices"].pop(), "length"),
    "an empty tree": (lambda learner: tree(learner)["left_children"].clear(), "no nodes"),
    # what no prediction of ours reads, and XGBoost reads without a look
    "a root with a parent": (in_tree("parents", 0), "parents in a tree"),
    "a parent before the tree": (in_tree("parents", -7), "parents in a tree"),
    "another parent": (set_to(lambda n: tree(n)["parents"], -1, 0), "parents in a tree"),
    "a parent that is not an integer": (in_tree("parents", 1e30), "not an integer"),
    "a parent beyond int32": (in_tree("parents", 2**31), "out of range"),
    "fewer parents": (lambda learner: tree(learner)["parents"].pop(), "parents"),
    "no parents": (lambda learner: tree(learner).pop("parents"), "parents"),
    "fewer gains": (lambda learner: tree(learner)["loss_changes"].pop(), "loss_changes"),
    "no hessians": (lambda learner: tree(learner).pop("sum_hessian"), "sum_hessian"),
    "weights that are a text": (set_to(tree, "base_weights", "x"), "base_weights"),
    "a default direction of 2": (in_tree("default_left", 2), "out of range"),
    "a default direction of -1": (in_tree("default_left", -1), "out of range"),
    "half a default direction": (in_tree("default_left", 0.5), "not an integer"),
    "a split of type 2": (in_tree("split_type", 2), "out of range"),
    "a categorical split without a set": (in_tree("split_type", 1), "the nodes with sets"),
    "half a child": (in_tree("left_children", 1.5), "not an integer"),
    "a child that is a text": (in_tree("left_children", "1"), "not an integer"),
    "more nodes than there are": (
        set_to(lambda learner: tree(learner)["tree_param"], "num_nodes", "8"),
        "more or fewer nodes",
    ),
    "more deleted nodes than there are": (
        set_to(lambda learner: tree(learner)["tree_param"], "num_deleted", "3"),
        "more or fewer deleted nodes",
    ),
    "a deleted node more than stated": (in_tree("split_indices", 2**31 - 1), "deleted nodes"),
    "no trees a round": (
        set_to(
            lambda n: n["gradient_booster"]["model"]["gbtree_model_param"], "num_parallel_tree", "0"
        ),
        "0 parallel trees",
    ),
    "a hessian that is an integer": (in_tree("sum_hessian", -5), "floats only"),
    "a gain that is a text": (in_tree("loss_changes", "x"), "floats only"),
    "a tree's number twice": (set_to(tree, "id", 1), "not numbered consecutively"),
    "more trees than there are": (
        set_to(lambda n: n["gradient_booster"]["model"]["gbtree_model_param"], "num_trees", "9"),
        "more or fewer trees",
    ),
    "classes of another objective": (
        set_to(lambda learner: learner["objective"]["softmax_multiclass_param"], "num_class", "2"),
        "different number of classes",
    ),
    "an infinite base score": (set_to(params, "base_score", "[inf,0,0]"), "damaged|not finite"),
    "types of other columns": (lambda n: n.update(feature_types=["int"]), "1 types for 5 features"),
}


@pytest.mark.parametrize(("change", "match"), XGBOOST.values(), ids=XGBOOST)
def test_hostile_xgboost_documents(change: Callable[[Any], None], match: str) -> None:
    refused(xgboost(change), "XGBOOST", match)


def test_an_infinite_weight_of_a_linear_xgboost_model() -> None:
    """XGBoost leaves a missing value out, where a sum would be NaN."""
    for weight in (float("inf"), float("nan")):
        change = set_to(lambda n: n["gradient_booster"]["model"]["weights"], 0, weight)
        refused(xgboost(change, 3), "XGBOOST", "not finite")


CATEGORIES: dict[str, tuple[Callable[[Any], None], str]] = {
    "nodes out of order": (lambda t: t["categories_nodes"].reverse(), "sets"),
    "an empty set": (lambda t: t["categories_sizes"].__setitem__(0, 0), "sets"),
    "a set that begins elsewhere": (lambda t: t["categories_segments"].__setitem__(0, 1), "sets"),
    "categories of no set": (lambda t: t["categories"].append(0), "sets"),
    "sets of no node": (lambda t: t.update(categories_nodes=[]), "sets"),
    "a set of a number": (lambda t: t["split_type"].__setitem__(0, 0), "the nodes with sets"),
}


@pytest.mark.parametrize(("change", "match"), CATEGORIES.values(), ids=CATEGORIES)
def test_hostile_category_sets_of_xgboost(change: Callable[[Any], None], match: str) -> None:
    document = json.loads(small_files.xgboost_sets())
    change(tree(document["learner"]))
    refused(json.dumps(document).encode(), "XGBOOST", match)


def test_a_category_of_xgboost_that_is_there_twice() -> None:
    document = json.loads(small_files.xgboost_sets())
    document["learner"]["gradient_booster"]["model"]["cats"]["enc"][1]["values"][0] += 1
    refused(json.dumps(document).encode(), "XGBOOST", "a category twice")


@pytest.mark.parametrize("version", [0, [], "3", [3, 2], [3, -1, 0], [3, 0.5, 0]])
def test_a_version_of_xgboost_that_is_none(version: Any) -> None:
    document = json.loads(small_files.xgboost_files()[2])
    document["version"] = version
    content = json.dumps(document).encode()
    if version == []:
        assert hostile.outcome(content, "XGBOOST") == "scored"
    else:
        refused(content, "XGBOOST", "version is not three numbers")


def test_vector_leaves_of_xgboost_without_their_vectors() -> None:
    """XGBoost reads at the places that the leaves name."""
    content = xgboost(lambda learner: tree(learner).pop("leaf_weights"), 4)
    refused(content, "XGBOOST", "base_weights")


@pytest.mark.parametrize("key", ["feature_segments", "sorted_idx"])
def test_categories_of_xgboost_sort_as_they_say(key: str) -> None:
    document = json.loads(small_files.xgboost_sets())
    document["learner"]["gradient_booster"]["model"]["cats"][key][-1] += 1
    refused(json.dumps(document).encode(), "XGBOOST", "not in their stated order")


def test_ubjson_that_is_nested_without_end() -> None:
    refused(b"{U\x01a" + b"[" * 10**6, "XGBOOST", "nested deeper")
    refused(b"{U\x01a" + b"{U\x01a" * 10**6, "XGBOOST", "nested deeper")


@pytest.mark.parametrize("size", [2**31 - 1, 2**62, -1])
@pytest.mark.parametrize("head", [b"[$d#L", b"[#L", b"SL", b"{#L"])
def test_ubjson_sizes_are_not_believed(head: bytes, size: int) -> None:
    refused(b"{U\x01a" + head + size.to_bytes(8, "big", signed=True), "XGBOOST", "reaches beyond")


def chain(depth: int) -> Any:
    """The arrays of an XGBoost tree that is one chain of `depth` tests."""
    nodes = 2 * depth + 1
    inner = np.arange(nodes) % 2 == 0
    inner[-1] = False
    left = np.where(inner, np.arange(nodes) + 1, -1)
    right = np.where(inner, np.arange(nodes) + 2, -1)
    parents = np.concatenate([[2**31 - 1], np.repeat(np.arange(0, nodes - 1, 2), 2)])
    return {
        "id": 0,
        "parents": parents.tolist(),
        "base_weights": [0.0] * nodes,
        "loss_changes": [1.0] * nodes,
        "sum_hessian": [1.0] * nodes,
        "left_children": left.tolist(),
        "right_children": right.tolist(),
        "split_indices": [0] * nodes,
        "split_conditions": (np.arange(nodes) / nodes).tolist(),
        "default_left": [0] * nodes,
        "split_type": [0] * nodes,
        "categories": [],
        "categories_nodes": [],
        "categories_segments": [],
        "categories_sizes": [],
        "tree_param": {
            "num_deleted": "0",
            "num_feature": "5",
            "num_nodes": str(nodes),
            "size_leaf_vector": "1",
        },
    }


def chained(depth: int) -> bytes:
    """The XGBoost document with a chain for its first tree."""

    def change(learner: Any) -> None:
        tree(learner).clear()
        tree(learner).update(chain(depth))

    return xgboost(change)


def test_a_tree_that_is_a_chain_of_a_hundred_thousand() -> None:
    refused(chained(100_000), "XGBOOST", "more than 10000 tests deep")


def test_a_tree_that_is_a_chain_of_a_thousand() -> None:
    assert hostile.outcome(chained(1000), "XGBOOST") == "scored"
