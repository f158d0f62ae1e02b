"""How many columns an ONNX file reads, where it leaves that open: as its weights or INPUT say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto
from skl2onnx import convert_sklearn, to_onnx
from skl2onnx.common.data_types import FloatTensorType
from sklearn import ensemble, linear_model, neural_network, pipeline, preprocessing, svm

from sqlml.errors import ConfigError, UnsupportedModelError
from tests.support.onnx_checks import agree, graph, load, node

RNG = np.random.default_rng(7)
X = RNG.normal(size=(60, 5)).astype(np.float32)
Y = (X[:, 4] > 0).astype(int) + (X[:, 0] > 0)

MODELS = [
    linear_model.LogisticRegression(),
    linear_model.LinearRegression(),
    neural_network.MLPRegressor(hidden_layer_sizes=(3,), max_iter=20, random_state=0),
    pipeline.make_pipeline(preprocessing.StandardScaler(), linear_model.LogisticRegression()),
    pipeline.make_pipeline(preprocessing.Normalizer(), linear_model.LogisticRegression()),
    pipeline.make_pipeline(
        preprocessing.MinMaxScaler(), ensemble.RandomForestClassifier(3, random_state=0)
    ),
    svm.SVR(),
]


def names(imported: Any) -> list[str]:
    return [feature.name for feature in imported.features]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("model", MODELS, ids=str)
def test_weights_tell_an_open_width(model: Any) -> None:
    types = [("x", FloatTensorType([None, None]))]
    made = convert_sklearn(model.fit(X, Y), initial_types=types)
    imported = agree(made.SerializeToString(), {"x": X}, rtol=1e-5)
    assert names(imported) == [f"x_{i}" for i in range(5)] and imported.has_default_names


def open_trees() -> bytes:
    """Trees of which none tests the last two of five columns."""
    model = ensemble.RandomForestClassifier(3, max_depth=2, random_state=0)
    made = to_onnx(model.fit(np.column_stack([X[:, :3], 0 * X[:, 3:]]), Y), X[:1])
    made.graph.input[0].type.tensor_type.shape.dim[1].Clear()
    content: bytes = made.SerializeToString()
    return content


def test_trees_read_at_least_the_columns_that_they_test() -> None:
    assert names(agree(open_trees(), {"X": X[:, :3]})) == ["X_0", "X_1", "X_2"]
    imported = load(open_trees(), inputs=["a", "b", "c", "d", "e"])
    assert names(imported) == ["a", "b", "c", "d", "e"]
    with pytest.raises(UnsupportedModelError, match="at least 3 columns, but inputs names 2"):
        load(open_trees(), inputs=["a", "b"])


def unknown(inputs: dict[str, Any], nodes: Sequence[Any]) -> bytes:
    return graph(nodes, inputs, {"y": "float32"})


def test_names_tell_a_width_that_nothing_else_does() -> None:
    content = unknown({"x": ("float32", (None, None))}, [node("Relu", "x", "y")])
    assert names(load(content, inputs=["a", "b"])) == ["a", "b"]
    with pytest.raises(ConfigError, match="takes any columns and records none"):
        load(content)
    beside = {"z": ("float32", (None, 2)), "x": ("float32", (None, None))}
    nodes = [node("Concat", "z x", "y", axis=1)]
    assert names(load(unknown(beside, nodes), inputs=["a", "b", "c"])) == ["a", "b", "c"]
    with pytest.raises(UnsupportedModelError, match="at least 3 columns"):
        load(unknown(beside, nodes), inputs=["a", "b"])
    both = {"z": ("float32", (None, None)), "x": ("float32", (None, None))}
    with pytest.raises(UnsupportedModelError, match="several inputs"):
        load(unknown(both, nodes), inputs=["a", "b"])


def test_an_array_in_input_stands_for_its_elements() -> None:
    content = unknown({"x": ("float32", (None, None))}, [node("Relu", "x", "y")])
    assert names(load(content, inputs={"v": "FLOAT[3]"})) == ["v_0", "v_1", "v_2"]
    assert names(load(content, inputs={"a": "DOUBLE", "v": "FLOAT[2]"})) == ["a", "v_0", "v_1"]
    fixed = unknown({"x": ("float32", (None, 3))}, [node("Relu", "x", "y")])
    assert names(load(fixed, inputs={"v": "FLOAT[3]"})) == ["v_0", "v_1", "v_2"]
    with pytest.raises(ConfigError, match="must name the 3 columns"):
        load(fixed, inputs={"v": "FLOAT[4]"})
    with pytest.raises(ConfigError, match="declared VARCHAR, but the model reads it as a number"):
        load(fixed, inputs={"v": "VARCHAR[3]"})


@pytest.mark.parametrize("open_axes", [(0,), (1,), (0, 1)])
def test_a_length_of_minus_one_is_open(open_axes: tuple[int, ...]) -> None:
    made = to_onnx(linear_model.LogisticRegression().fit(X, Y), X[:1])
    for port in made.graph.input:
        for axis in open_axes:
            port.type.tensor_type.shape.dim[axis].dim_value = -1
    content = ModelProto.SerializeToString(made)
    assert len(agree(content, {"X": X}, rtol=1e-5).features) == 5


def test_weights_that_disagree_tell_nothing() -> None:
    nodes = [node("MatMul", "x w", "a"), node("MatMul", "x v", "b"), node("Add", "a b", "y")]
    constants = {"w": np.ones((2, 1), np.float32), "v": np.ones((3, 1), np.float32)}
    content = graph(nodes, {"x": ("float32", (None, None))}, {"y": "float32"}, constants)
    with pytest.raises(ConfigError, match="takes any columns"):
        load(content)
