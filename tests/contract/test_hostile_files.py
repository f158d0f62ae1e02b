"""Damaged and hostile model files of every format: one clear error each, or a model that works.

Never another exception, a crash, a hang or a full memory. `tests/small_files.py` has the files,
`tests/mutations.py` the damage, `tests/hostile.py` what may come of it.
"""

from __future__ import annotations

import json
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
from sqlml.importers.artifact import read_artifact
from sqlml.importers.registry import import_model
from sqlml.ir import store
from sqlml.ir.builder import Builder, Value
from sqlml.ir.trees import Ensemble
from tests import hostile, small_files
from tests.onnx_checks import graph, node

NIGHTLY = {
    "program": 40_000,
    "xgboost-json": 12_000,
    "xgboost-ubj": 12_000,
    "lightgbm": 11_000,
    "catboost": 11_000,
    "skops": 8_000,
    "torch": 4_000,
    "onnx": 1_500,
    "onnx-whole": 500,
}


@pytest.mark.parametrize("name", hostile.FORMATS)
def test_the_files_are_models_before_they_are_damaged(name: str) -> None:
    files, _, format = hostile.FORMATS[name]
    for content in files():
        assert hostile.outcome(content, format) != "refused"


@pytest.mark.parametrize("name", hostile.FORMATS)
def test_a_damaged_file_is_refused_or_works(name: str) -> None:
    count = 20 if name == "onnx-whole" else 300  # each of those starts a process
    assert hostile.findings(name, range(count)) == []


@pytest.mark.nightly
@pytest.mark.parametrize("name", NIGHTLY)
def test_many_damaged_files_in_a_process_of_their_own(name: str, tmp_path: Path) -> None:
    progress = tmp_path / "seed"
    for first in range(300, NIGHTLY[name], 4000):
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
    "a root that is its own child": (in_tree("left_children", 0), "damaged"),
    "two parents of one child": (in_tree("left_children", 2), "damaged"),
    "a child beyond the tree": (in_tree("right_children", 10**6), "out of range"),
    "a negative child": (in_tree("left_children", -7), "out of range"),
    "a child number beyond int64": (in_tree("left_children", 10**30), "damaged"),
    "a feature beyond the table": (in_tree("split_indices", 5), "reads beyond its 5 features"),
    "a negative feature": (in_tree("split_indices", -1), "reads beyond"),
    "a threshold that is a text": (in_tree("split_conditions", "x"), "damaged"),
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
}


@pytest.mark.parametrize(("change", "match"), XGBOOST.values(), ids=XGBOOST)
def test_hostile_xgboost_documents(change: Callable[[Any], None], match: str) -> None:
    refused(xgboost(change), "XGBOOST", match)


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
    return "\n".join(lines).encode()


LIGHTGBM = {
    "cycle": ("left_child", "0 0 0", "damaged"),
    "two parents": ("left_child", "1 -1 -1", "damaged"),
    "child beyond": ("right_child", "99 -1 -2", "out of range"),
    "NaN threshold": ("threshold", "nan 1 2", "NaN"),
    "feature beyond": ("split_feature", "5 0 0", "reads beyond its 5 features"),
    "feature below": ("split_feature", "-1 0 0", "reads beyond its 5 features"),
    "10^9 leaves": ("num_leaves", "1000000000", "entries"),
    "-1 leaves": ("num_leaves", "-1", "no leaves"),
    "10^9 classes": ("num_tree_per_iteration", "1000000000", "claims 1000000000"),
    "10^9 features": ("max_feature_idx", "1000000000", "claims 1000000000"),
    "fewer values": ("leaf_value", "1 2", "entries of leaf_value"),
    "a set without words": ("decision_type", "1 1 1", "damaged"),
    "an unknown objective": ("objective", "mischief", "mischief"),
}


@pytest.mark.parametrize(("key", "value", "match"), LIGHTGBM.values(), ids=LIGHTGBM)
def test_hostile_lightgbm_texts(key: str, value: str, match: str) -> None:
    refused(lightgbm(key, value), "LIGHTGBM", match)


def catboost(change: Callable[[Any], Any], which: int = 1) -> bytes:
    document = json.loads(small_files.catboost_files()[which])
    change(document)
    return json.dumps(document).encode()


def nested_tree(depth: int) -> Any:
    """A non-symmetric CatBoost tree that is one chain."""
    leaf = {"value": 1.0, "weight": 1}
    node: Any = leaf
    split = {
        "border": 0.5,
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
}


def test_a_catboost_tree_that_is_nested_without_end() -> None:
    def change(document: Any) -> None:
        document["trees"][0] = nested_tree(300)

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
