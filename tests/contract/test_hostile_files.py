"""Damaged and hostile model files of every format: one clear error each, or a model that works.

Never another exception, a crash, a hang or a full memory. `tests/small_files.py` has the files,
`tests/mutations.py` the damage, `tests/hostile.py` what may come of it.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from sqlml.errors import (
    ArtifactError,
    ModelError,
    ProgramError,
    SqlmlError,
    UnsupportedModelError,
)
from sqlml.importers.file_formats import read_artifact
from sqlml.importers.registry import import_model
from sqlml.ir import store
from sqlml.ir.builder import Builder, Value
from sqlml.ir.trees import Ensemble
from tests import fields, hostile, small_files
from tests.onnx_checks import graph, node

NIGHTLY = {
    "program": 39_600,
    "xgboost-json": 12_000,
    "xgboost-ubj": 12_000,
    "lightgbm": 11_000,
    "catboost": 11_000,
    "skops": 8_000,
    "spark": 400,
    "torch": 3_600,
    "onnx": 1_500,
    "onnx-whole": 500,
    "torch-whole": 400,
}
USUAL = dict.fromkeys(NIGHTLY, 60) | {"onnx-whole": 10, "spark": 10, "torch-whole": 5}
"""Files of a format in the usual run; the nightly one begins where it ends."""


@pytest.mark.parametrize("name", hostile.FORMATS)
def test_the_files_are_models_before_they_are_damaged(name: str) -> None:
    files, _, format = hostile.FORMATS[name]
    for content in files():
        assert hostile.outcome(content, format) != "refused"


@pytest.mark.parametrize("name", hostile.FORMATS)
def test_a_damaged_file_is_refused_or_works(name: str) -> None:
    assert hostile.findings(name, range(USUAL[name])) == []


@pytest.mark.nightly
@pytest.mark.parametrize("name", NIGHTLY)
def test_many_damaged_files_in_a_process_of_their_own(name: str, tmp_path: Path) -> None:
    progress = tmp_path / "seed"
    for first in range(USUAL[name], NIGHTLY[name], 4000):
        end = min(first + 4000, NIGHTLY[name])
        done = subprocess.run(
            [sys.executable, "-m", "tests.hostile", name, str(first), str(end), str(progress)],
            capture_output=True,
            text=True,
            timeout=3600,
            cwd=Path(__file__).parents[2],
        )
        assert done.returncode == 0, f"ends at {progress.read_text()}: {done.stderr[-2000:]}"
        assert done.stdout == ""


@pytest.mark.nightly
@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks a process a file")
@pytest.mark.parametrize("kind", fields.FORMATS)
def test_no_library_dies_of_a_file_that_is_a_model_or_answers_otherwise(kind: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.fields", kind],
        capture_output=True,
        text=True,
        timeout=3600,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    *findings, count = done.stdout.splitlines()
    assert done.returncode == 0, done.stderr[-2000:]
    assert findings == [] and int(count) > 1000


def test_a_hundred_thousand_files_make_a_night() -> None:
    assert set(NIGHTLY) == set(hostile.FORMATS)
    assert sum(NIGHTLY.values()) == 100_000


def refused(content: bytes, format: str, match: str = "...") -> None:
    """An ArtifactError or UnsupportedModelError, within the limits of time and memory."""
    with hostile.bounded_memory(), pytest.raises(ModelError, match=match):
        model = read_artifact(content, format=format, path="file", allow_pickle=False)
        import_model(model)


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
    "a parent that is no number": (in_tree("parents", 1e30), "not an integer"),
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
    "a categorical split without a set": (in_tree("split_type", 1), "those with sets"),
    "half a child": (in_tree("left_children", 1.5), "not an integer"),
    "a child that is a text": (in_tree("left_children", "1"), "not an integer"),
    "more nodes than there are": (
        set_to(lambda learner: tree(learner)["tree_param"], "num_nodes", "8"),
        "more or fewer nodes",
    ),
    "more deleted nodes than there are": (
        set_to(lambda learner: tree(learner)["tree_param"], "num_deleted", "3"),
        "more or fewer nodes deleted",
    ),
    "a deleted node more than stated": (in_tree("split_indices", 2**31 - 1), "nodes deleted"),
    "no trees a round": (
        set_to(
            lambda n: n["gradient_booster"]["model"]["gbtree_model_param"], "num_parallel_tree", "0"
        ),
        "0 parallel trees",
    ),
    "a hessian that is an integer": (in_tree("sum_hessian", -5), "floats only"),
    "a gain that is a text": (in_tree("loss_changes", "x"), "floats only"),
    "a tree's number twice": (set_to(tree, "id", 1), "not numbered one by one"),
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
    "a set of a number": (lambda t: t["split_type"].__setitem__(0, 0), "those with sets"),
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


@pytest.mark.parametrize("line", ["[heade0]", "", "mischief=1", "end of parameters", "parameters:"])
def test_a_line_among_lightgbms_parameters_that_is_none(line: str) -> None:
    """LightGBM looks behind the colon of each."""
    text = small_files.lightgbm_files()[1].decode()
    changed = text.replace("[max_depth: -1]", line)
    assert changed != text
    if line:
        refused(changed.encode(), "LIGHTGBM", "parameters? of the LightGBM model")
    refused(
        text.replace("end of parameters", "").encode(), "LIGHTGBM", "begin and end exactly once"
    )


def test_vector_leaves_of_xgboost_without_their_vectors() -> None:
    """XGBoost reads at the places that the leaves name."""
    content = xgboost(lambda learner: tree(learner).pop("leaf_weights"), 4)
    refused(content, "XGBOOST", "base_weights")


@pytest.mark.parametrize("key", ["feature_segments", "sorted_idx"])
def test_categories_of_xgboost_sort_as_they_say(key: str) -> None:
    document = json.loads(small_files.xgboost_sets())
    document["learner"]["gradient_booster"]["model"]["cats"][key][-1] += 1
    refused(json.dumps(document).encode(), "XGBOOST", "not in their stated order")


@pytest.mark.parametrize(
    "text",
    [b"[" * 10**6, b'{"a":' * 10**6, b'{"learner": ' + b"[" * 10**5, b"{" * 10**5],
    ids=["lists", "objects", "inner", "braces"],
)
@pytest.mark.parametrize("format", ["XGBOOST", "CATBOOST"])
def test_json_that_is_nested_without_end(format: str, text: bytes) -> None:
    refused(text, format)


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


def test_a_stored_tree_that_is_too_deep() -> None:
    depth = 10_001
    inner = np.arange(depth, dtype=np.int32)
    right = inner + 1
    right[-1] = ~depth
    trees = Ensemble(
        roots=np.zeros(1, np.int32),
        feature=np.zeros(depth, np.int32),
        threshold=np.linspace(0, 1, depth),
        left=~inner,
        right=right,
        default_left=np.zeros(depth, bool),
        leaf_values=np.zeros((depth + 1, 1)),
        target=np.zeros(1, np.int32),
        base=np.zeros(1),
        compare="le",
    )
    b = Builder()
    with pytest.raises(ProgramError, match="more than 10000 tests deep"):
        b.op("tree_ensemble", b.input("x", "float64"), **trees.attrs())


def lightgbm(key: str, value: str, which: int = 1) -> bytes:
    """A LightGBM text with another value for the first line of `key`."""
    lines = small_files.lightgbm_files()[which].decode().split("\n")
    at = next(i for i, line in enumerate(lines) if line.startswith(f"{key}="))
    lines[at] = f"{key}={value}"
    text = "\n".join(lines)
    if key != "tree_sizes":  # which would refuse all else
        blocks = re.findall(r"(?ms)^Tree=.*?(?=^Tree=|^end of trees)", text)
        sizes = " ".join(str(len(block)) for block in blocks)
        text = re.sub(r"(?m)^tree_sizes=.*$", f"tree_sizes={sizes}", text)
    return text.encode()


LIGHTGBM = {
    "cycle": ("left_child", "0 0 0", "damaged"),
    "two parents": ("left_child", "1 -1 -1", "damaged"),
    "child beyond": ("right_child", "99 -1 -2", "out of range"),
    "NaN threshold": ("threshold", "nan 1 2", "NaN"),
    "feature beyond": ("split_feature", "5 0 0", "reads beyond its 5 features"),
    "feature below": ("split_feature", "-1 0 0", "reads beyond its 5 features"),
    "10^9 leaves": ("num_leaves", "1000000000", "999999999 entries of split_gain"),
    "-1 leaves": ("num_leaves", "-1", "no leaves"),
    "10^9 classes": ("num_tree_per_iteration", "1000000000", "claims 1000000000"),
    "10^9 features": ("max_feature_idx", "1000000000", "claims 1000000000"),
    "fewer values": ("leaf_value", "1 2", "entries of leaf_value"),
    "a set without words": ("decision_type", "1 1 1", "has no set"),
    "an unknown objective": ("objective", "mischief", "mischief"),
    # what no prediction of ours reads, and LightGBM reads without a look
    "other classes than trees": ("num_class", "2", "does not match its number of classes"),
    "classes of another objective": ("objective", "multiclass num_class:4", "number of classes"),
    "an objective without a name": ("objective", "", "no name"),
    "sizes of other trees": ("tree_sizes", "1 2 3 4 5 6", "stated sizes"),
    "fewer gains": ("split_gain", "1 2", "split_gain"),
    "fewer counts": ("leaf_count", "1 2", "leaf_count"),
    "a gain that is a text": ("split_gain", "1 x 2", "split_gain"),
    "a shrinkage that is a text": ("shrinkage", "x", "could not convert"),
    "sets that are not there": ("num_cat", "1", "damaged"),
    "a decision of 64": ("decision_type", "64 2 2", "unknown decision type"),
    "a decision of -2": ("decision_type", "-2 2 2", "unknown decision type"),
    "a number of Python's": ("threshold", "1_0 1 2", "not a line of a LightGBM tree"),
    "another's digits": (
        "split_feature",
        "\N{FULLWIDTH DIGIT ONE} 0 0",
        "not a line of a LightGBM tree",
    ),
    "a line twice": ("num_cat", "0\nnum_cat=0", "repeats"),
    "a line of no kind": ("num_cat", "0\nmischief=0", "not a line of a LightGBM tree"),
    "a line behind a blank one": ("num_cat", "0\n\nshrinkage=0", "not a line of a LightGBM tree"),
    "a header's line twice": ("label_index", "0\nlabel_index=0", "repeats"),
}


@pytest.mark.parametrize(("key", "value", "match"), LIGHTGBM.values(), ids=LIGHTGBM)
def test_hostile_lightgbm_texts(key: str, value: str, match: str) -> None:
    refused(lightgbm(key, value), "LIGHTGBM", match)


@pytest.mark.parametrize("number", ["1e400", "1e-310", "nan"])
def test_a_number_in_a_linear_leaf_that_lightgbm_ends_on(number: str) -> None:
    content = lightgbm("leaf_const", f"{number} 0 0 0", 2)
    refused(content, "LIGHTGBM", "not a normal float64")


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
    "a bias that is no list": lambda d: d["scale_and_bias"].__setitem__(1, 0.5),
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


@pytest.mark.parametrize("change", CATBOOST.values(), ids=CATBOOST)
def test_hostile_catboost_documents(change: Callable[[Any], Any]) -> None:
    refused(catboost(change), "CATBOOST")


def test_onnx_tree_nodes_in_circles_and_huge_claims() -> None:
    content = small_files.onnx_files()[1]
    for name, value in {
        "nodes_truenodeids": 0,
        "nodes_falsenodeids": 10**9,
        "nodes_featureids": 10**9,
        "nodes_treeids": 2**62,
        "class_ids": 10**9,
        "class_treeids": -5,
    }.items():
        proto = onnx.ModelProto.FromString(content)
        (trees,) = [n for n in proto.graph.node if n.op_type == "TreeEnsembleClassifier"]
        (attribute,) = [a for a in trees.attribute if a.name == name]
        attribute.ints[0] = value
        refused(proto.SerializeToString(), "ONNX")


Make = Callable[[Builder, Value], Value]

PROGRAMS: dict[str, tuple[Make, str]] = {
    "a row of 10^12": (
        lambda b, x: b.op("select", x, indices=np.zeros(2**21, np.int64)),
        "too many",
    ),
    "a column outside": (lambda b, x: b.op("select", x, indices=np.array([3])), "outside"),
    "a column of no table": (lambda b, x: b.op("select", x, indices=np.array([-1])), "outside"),
    "no column to choose": (
        lambda b, x: b.op("argmax", b.op("select", x, indices=np.zeros(0, np.int64)), axis=1),
        "no value to choose",
    ),
}


@pytest.mark.parametrize(("make", "match"), PROGRAMS.values(), ids=PROGRAMS)
def test_programs_that_no_rule_lets_pass(make: Make, match: str) -> None:
    b = Builder()
    with pytest.raises(ProgramError, match=match):
        make(b, b.input("x", "float64", 3))


@pytest.mark.parametrize("op", ["take", "gather"])
def test_a_place_that_rows_compute_is_checked_when_it_is_used(op: str) -> None:
    b = Builder()
    x = b.input("x", "float64")
    place = b.op("cast", x, dtype="int64")
    table = b.constant(np.arange(3.0)) if op == "take" else x
    program = b.build({"transform": b.op(op, table, place)})
    for name in hostile.BACKENDS:
        for value in (-1.0, 3.0, 1e18):
            with pytest.raises(SqlmlError, match="reaches outside its table"):
                hostile.base.load(name).compile(program).run({"x": np.array([value])})


def test_a_file_of_another_format_says_so() -> None:
    for name in ("xgboost-json", "lightgbm", "catboost", "onnx", "skops", "torch", "program"):
        files, _, own = hostile.FORMATS[name]
        for other in ("XGBOOST", "LIGHTGBM", "CATBOOST", "ONNX", "SKOPS", "TORCH", "SQLML"):
            if other != own:
                with pytest.raises((ArtifactError, ModelError), match="file: "):
                    read_artifact(files()[0], format=other, path="file", allow_pickle=False)


def test_an_onnx_graph_in_a_stored_program_is_tried_first() -> None:
    """As in an ONNX file: a graph that crashes or fills the memory ends a process of its own."""
    nodes = [node("Tile", "x s", "e"), node("ReduceSum", "e a", "y")]
    constants = {"s": np.array([1, 1 << 34]), "a": np.array([1])}
    huge = graph(nodes, {"x": ("float32", (None, 1))}, {"y": "float32"}, constants)
    fine = graph([node("Relu", "x", "y")], {"x": ("float32", (None, 1))}, {"y": "float32"})
    for content, width in ((huge, 1), (fine, 2), (fine, 1)):
        b = Builder()
        value = b.op(
            "onnx_graph",
            b.op("cast", b.input("x", "float64"), dtype="float32"),
            model=np.frombuffer(content, np.uint8),
            inputs=("x",),
            output="y",
            dtype="float32",
            width=width,
        )
        stored = store.dumps(b.build({"transform": value}))
        if content is fine and width == 1:
            assert hostile.outcome(stored, "SQLML") in ("scored", "unscored")
            assert import_model(store.loads(stored)).named
        else:
            with pytest.raises(UnsupportedModelError, match="cannot run the ONNX graph of this"):
                import_model(store.loads(stored))
