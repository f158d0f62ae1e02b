"""ONNX files that are damaged, hostile or of a kind that sqlml does not take."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from skl2onnx import to_onnx
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

from sqlml.errors import ArtifactError, ConfigError, SqlmlError, UnsupportedModelError
from sqlml.ir import reference
from tests.support.onnx_checks import graph, load, node

X = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
INPUT: dict[str, Any] = {"x": ("float32", (None, 3))}


def logistic() -> bytes:
    content: bytes = to_onnx(LogisticRegression().fit(X, X[:, 0] > 0), X[:1]).SerializeToString()
    return content


def forest() -> bytes:
    model = DecisionTreeClassifier(max_depth=3).fit(X, (X[:, 0] > 0) * 2 + (X[:, 1] > 0))
    content: bytes = to_onnx(model, X[:1]).SerializeToString()
    return content


def small() -> bytes:
    nodes = [node("MatMul", "x w", "h"), node("Relu", "h", "r"), node("ReduceSum", "r a", "y")]
    constants = {"w": np.ones((3, 2), np.float32), "a": np.array([1])}
    return graph(nodes, INPUT, {"y": "float32"}, constants)


def test_a_custom_domain_is_refused_by_name() -> None:
    content = graph(
        [node("Magic", "x", "y", domain="com.acme")],
        INPUT,
        {"y": "float32"},
        extra=[helper.make_opsetid("com.acme", 1)],
    )
    with pytest.raises(UnsupportedModelError, match="domain 'com.acme'"):
        load(content)


def test_weights_in_other_files_are_not_fetched(tmp_path: Any) -> None:
    proto = onnx.ModelProto.FromString(small())
    tensor = proto.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    entry = tensor.external_data.add()
    entry.key, entry.value = "location", "/etc/passwd"
    with pytest.raises(UnsupportedModelError, match="weights in other files"):
        load(proto.SerializeToString())


def test_functions_loops_and_sparse_weights_are_refused() -> None:
    proto = onnx.ModelProto.FromString(small())
    proto.functions.add().name = "f"
    with pytest.raises(UnsupportedModelError, match="its own functions"):
        load(proto.SerializeToString())
    with pytest.raises(UnsupportedModelError, match="Loop"):
        load(graph([node("Loop", "x x", "y")], INPUT, {"y": "float32"}))
    proto = onnx.ModelProto.FromString(small())
    proto.graph.sparse_initializer.add().dims.append(3)
    with pytest.raises(UnsupportedModelError, match="sparse weights"):
        load(proto.SerializeToString())


def test_cycles_and_lost_names_are_damage() -> None:
    cycle = [node("Add", "x b", "a"), node("Relu", "a", "b")]
    with pytest.raises(ArtifactError, match="reads 'b', which no earlier node computes"):
        load(graph(cycle, INPUT, {"b": "float32"}))
    with pytest.raises(ArtifactError, match="computes its output 'z'"):
        load(graph([node("Relu", "x", "y")], INPUT, {"z": "float32"}))
    with pytest.raises(ArtifactError, match="computes 'y' twice"):
        load(graph([node("Relu", "x", "y"), node("Relu", "x", "y")], INPUT, {"y": "float32"}))


@pytest.mark.parametrize("dims", [[1 << 40], [1 << 20, 1 << 20], [-1, 3], [5, 2]])
def test_a_tensor_that_claims_more_than_it_holds(dims: list[int]) -> None:
    proto = onnx.ModelProto.FromString(small())
    del proto.graph.initializer[0].dims[:]
    proto.graph.initializer[0].dims.extend(dims)
    with pytest.raises(ArtifactError, match="tensor 'w'"):
        load(proto.SerializeToString())


def test_a_split_without_outputs_is_damage() -> None:
    nodes = [node("Split", "x", "", axis=1), node("Relu", "x", "y")]
    with pytest.raises(ArtifactError, match="Split: it has no outputs"):
        load(graph(nodes, INPUT, {"y": "float32"}))


def test_shapes_that_are_too_large_or_open() -> None:
    with pytest.raises(ArtifactError, match="claims a shape"):
        load(graph([node("Relu", "x", "y")], {"x": ("float32", (None, 1 << 40))}, {"y": None}))
    with pytest.raises(ConfigError, match="takes any columns"):
        load(graph([node("Relu", "x", "y")], {"x": ("float32", (None, None))}, {"y": None}))
    with pytest.raises(UnsupportedModelError, match="open shape"):
        load(graph([node("Relu", "x", "y")], {"x": ("float32", (None, None, 2))}, {"y": None}))
    huge = {"s": np.array([1, 1 << 40])}
    nodes = [node("ConstantOfShape", "s", "c"), node("Add", "x c", "y")]
    with pytest.raises(ArtifactError, match="ConstantOfShape"):
        load(graph(nodes, INPUT, {"y": "float32"}, huge))


def test_a_graph_that_fills_the_memory_is_refused() -> None:
    """It is tried in a process of its own, which has 8 GiB of address space."""
    nodes = [node("Tile", "x s", "e"), node("ReduceSum", "e a", "y")]
    constants = {"s": np.array([1, 1 << 34]), "a": np.array([1])}
    with pytest.raises(UnsupportedModelError, match=r"can only run as a whole .*cannot run it"):
        load(graph(nodes, INPUT, {"y": "float32"}, constants))


def test_rows_that_depend_on_each_other_are_refused() -> None:
    nodes = [node("ReduceMean", "x a", "m", keepdims=1), node("Sub", "x m", "y")]
    with pytest.raises(UnsupportedModelError, match="depends on the other rows"):
        load(graph(nodes, INPUT, {"y": "float32"}, {"a": np.array([0])}))
    with pytest.raises(UnsupportedModelError, match="one entry per row"):
        load(graph([node("Transpose", "x", "y")], INPUT, {"y": "float32"}))


def test_strings_that_mix_rows_are_refused() -> None:
    inputs = {"s": ("string", (None, 1))}
    nodes = [
        node("LabelEncoder", "s", "i", ml=True, keys_strings=["a", "one"], values_int64s=[1, 2]),
        node("Cast", "i", "f", to=1),
        node("Erf", "f", "e"),
        node("ReduceMax", "e a", "m", keepdims=1),
        node("Sub", "e m", "y"),
    ]
    content = graph(nodes, inputs, {"y": "float32"}, {"a": np.array([0])})
    with pytest.raises(UnsupportedModelError, match="depends on the other rows"):
        load(content)


def test_no_onnx_at_all() -> None:
    for content in (b"\x08\x09\x12", b"\x08\x09\x3a\x00", b"\x08\x09\x12\xff\xff\xff\xff\x7f"):
        with pytest.raises(ArtifactError, match="damaged or (cut off|truncated)"):
            load(content)


@pytest.mark.parametrize("make", [logistic, forest, small])
def test_a_truncated_file_is_damage(make: Any) -> None:
    content = make()
    for cut in range(3, len(content), max(1, len(content) // 150)):
        _survives(content[:cut])


@pytest.mark.parametrize("make", [logistic, forest, small])
def test_random_changes_end_in_a_typed_error_or_a_model(make: Any, monkeypatch: Any) -> None:
    """Graphs that would run whole are tried in a process of their own; here nothing is started."""
    answer = {"error": "not tried"}
    monkeypatch.setattr("sqlml.importers.onnx.whole_graph.probe", lambda *args: answer)
    content, rng = make(), np.random.default_rng(0)
    for _ in range(2000):
        damaged = bytearray(content)
        for _ in range(rng.integers(1, 4)):
            at = int(rng.integers(3, len(damaged)))
            kind = rng.integers(3)
            if kind == 0:
                damaged[at] = int(rng.integers(256))
            elif kind == 1:
                del damaged[at : at + int(rng.integers(1, 9))]
            else:
                damaged[at:at] = rng.bytes(int(rng.integers(1, 9)))
        _survives(bytes(damaged))


def _survives(content: bytes) -> None:
    try:
        program = load(content).program
        reference.run(program, dict.fromkeys(program.inputs, X[:5, 0]))
    except SqlmlError as error:
        assert str(error)
