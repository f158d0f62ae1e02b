"""Operators of ONNX one by one, with the semantics that onnxruntime gives them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import numpy_helper

from sqlml.errors import MissingValueError, ScoringError, UnknownCategoryError
from sqlml.ir import reference
from tests.support.onnx_checks import agree, graph, load, node

SPECIAL = np.array([0, -0.0, 1, -1, 0.5, -2.5, np.nan, np.inf, -np.inf, 1e-30, 3e30, 20, -20, 1, 2])


def rows(width: int = 3, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    some = rng.normal(size=(40, width))
    hard = rng.choice(SPECIAL, (60, width))
    return np.concatenate([some, hard]).astype(np.float32)


def one(op: str, *, width: int = 3, x: np.ndarray | None = None, **attrs: Any) -> None:
    constants = attrs.pop("constants", {})
    opset = attrs.pop("opset", 21)
    reads = " ".join(["x", *constants])
    content = graph(
        [node(op, reads, "y", **attrs)],
        {"x": ("float32", (None, width))},
        {"y": "int64" if op.startswith("Arg") else "float32"},
        constants,
        opset=opset,
    )
    given = rows(width) if x is None else x
    imported = agree(content, {"x": given})
    assert not any(n.op == "onnx_graph" for n in imported.program.nodes), op


@pytest.mark.parametrize(
    "op",
    "Abs Neg Sign Exp Tanh Floor Ceil Round Reciprocal Relu LeakyRelu Elu Softplus Sigmoid".split(),
)
def test_elementwise(op: str) -> None:
    x = rows()
    one(op, x=x if op != "Softplus" else np.nan_to_num(x, posinf=9, neginf=-9))


@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Div", "Max", "Min", "Pow"])
def test_arithmetic_with_a_constant(op: str) -> None:
    x = np.abs(rows()) if op == "Pow" else rows()
    for constant in (np.float32(2), np.array([1.5, -2, 0.25], np.float32), np.ones((1, 3), "f4")):
        one(op, constants={"c": np.asarray(constant)}, x=x)


@pytest.mark.parametrize("base", [2, np.array([0.5, 10, 3])])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_constant_to_the_power_of_numbers(base: Any, dtype: str) -> None:
    power = node("Pow", "c x", "y")
    content = graph(
        [power],
        {"x": ("float32", (None, 3))},
        {"y": dtype},
        {"c": np.asarray(base, dtype)},
    )
    agree(content, {"x": rows()})


@pytest.mark.parametrize("op", "ReduceSum ReduceMean ReduceSumSquare ReduceL1 ReduceL2".split())
def test_reductions(op: str) -> None:
    finite = np.nan_to_num(rows(), posinf=5, neginf=-5).clip(-100, 100)
    for keep in (0, 1):
        one(op, constants={"a": np.array([1])}, keepdims=keep, x=finite)
    one("ReduceLogSumExp", constants={"a": np.array([-1])}, x=finite)
    one("ReduceProd", constants={"a": np.array([1])}, x=finite)


@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
def test_argmax_passes_over_nan(op: str) -> None:
    x = rows()
    x = x[~np.isinf(x).any(axis=1)]
    one(op, axis=1, x=x[~np.isnan(x).all(axis=1)])
    one(op, axis=-1, keepdims=0, x=np.array([[1, np.nan, 3], [2, 2, 2]], np.float32))


def test_layout() -> None:
    one("Gather", constants={"i": np.array([2, 0, -1])}, axis=1)
    one("Slice", constants={"s": np.array([1]), "e": np.array([9]), "a": np.array([1])})
    one("Flatten")
    one("Reshape", constants={"s": np.array([-1, 3])})
    one("Reshape", constants={"s": np.array([0, -1])})
    one("Transpose", perm=[0, 1])
    one("Concat", axis=1)
    one("Clip", constants={"lo": np.float32(-1), "hi": np.float32(2)}, x=np.nan_to_num(rows()))
    one("Softmax", axis=1, x=np.nan_to_num(rows(), posinf=3, neginf=-3))


def test_values_of_rank_3_keep_their_rows() -> None:
    nodes = [
        node("Reshape", "x shape", "cube"),
        node("Sub", "cube means", "gaps"),
        node("Mul", "gaps gaps", "squares"),
        node("ReduceSum", "squares axis", "y", keepdims=0),
    ]
    constants = {
        "shape": np.array([-1, 1, 3]),
        "means": np.arange(12, dtype=np.float32).reshape(1, 4, 3),
        "axis": np.array([2]),
    }
    content = graph(nodes, {"x": ("float32", (None, 3))}, {"y": None}, constants)
    imported = agree(content, {"x": np.random.default_rng(0).normal(size=(9, 3)).astype("f4")})
    assert imported.program.output_type("transform").width == 4


def test_gemm_and_batch_normalization() -> None:
    w, c = np.arange(6, dtype=np.float32).reshape(2, 3) / 7, np.array([1, -1], np.float32)
    x = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
    one("Gemm", constants={"w": w, "c": c}, transB=1, alpha=0.5, beta=2.0, x=x)
    one("MatMul", constants={"w": w.T.copy()}, x=x)
    params = {k: np.array([1.0, 2, 0.5], np.float32) for k in ("s", "b", "m", "v")}
    one("BatchNormalization", constants=params, x=x)


@pytest.mark.parametrize("norm", ["MAX", "L1", "L2"])
def test_normalizer(norm: str) -> None:
    x = np.array([[0, 0, 0], [1, -2, 2], [-1, -2, -3], [0, 0, 1e-3], [5, 0, 0]], np.float32)
    one("Normalizer", ml=True, norm=norm, x=x)


def test_scaler_imputer_and_binarizer() -> None:
    one("Scaler", ml=True, offset=[1.0, 2, 3], scale=[2.0, 0.5, 1e-3])
    one("Scaler", ml=True, offset=[1.0], scale=[2.0])
    one("Imputer", ml=True, imputed_value_floats=[7.0], replaced_value_float=float("nan"))
    one("Imputer", ml=True, imputed_value_floats=[7.0, 8, 9], replaced_value_float=-1.0)
    one("Binarizer", ml=True, threshold=0.5, x=np.nan_to_num(rows()))
    nodes = [node("FeatureVectorizer", "a b", "y", ml=True, inputdimensions=[2, 1])]
    content = graph(nodes, {"a": ("float32", (None, 2)), "b": ("float32", (None, 1))}, {"y": None})
    imported = agree(content, {"a": rows(2), "b": rows(1)})
    assert [f.name for f in imported.features] == ["a_0", "a_1", "b"]


@pytest.mark.parametrize("transform", ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"])
def test_linear_classifier(transform: str) -> None:
    x = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
    x[0] = 0
    content = graph(
        [
            node(
                "LinearClassifier", "x", "label score", ml=True, post_transform=transform,
                coefficients=np.linspace(-2, 2, 9).tolist(), intercepts=[0.1, 0.0, -0.1],
                classlabels_strings=["a", "b", "c"],
            )
        ],
        {"x": ("float32", (None, 3))},
        {"label": "string", "score": "float32"},
    )  # fmt: skip
    imported = agree(content, {"x": x})
    assert imported.program.labels[0].values == ("a", "b", "c")


def strings(*values: Any) -> np.ndarray:
    made = np.empty((len(values), 1), object)
    made[:, 0] = values
    return made


def test_strings_through_one_hot_encoder() -> None:
    nodes = [
        node("OneHotEncoder", "city", "hot", ml=True, cats_strings=["Bern", "Oslo"], zeros=1),
        node("Reshape", "hot shape", "flat"),
        node("Concat", "flat age", "y", axis=1),
    ]
    inputs = {"city": ("string", (None, 1)), "age": ("float32", (None, 1))}
    content = graph(nodes, inputs, {"y": None}, {"shape": np.array([-1, 2])})
    age = np.arange(4, dtype=np.float32).reshape(-1, 1)
    imported = agree(content, {"city": strings("Oslo", "Bern", "", "x"), "age": age})
    assert [(f.name, f.kind) for f in imported.features] == [("city", "string"), ("age", "number")]


def test_an_unknown_category_is_refused_as_onnxruntime_does() -> None:
    nodes = [
        node("OneHotEncoder", "city", "hot", ml=True, cats_strings=["Bern"], zeros=0),
        node("Reshape", "hot shape", "y"),
    ]
    content = graph(
        nodes, {"city": ("string", (None, 1))}, {"y": None}, {"shape": np.array([-1, 1])}
    )
    program = load(content).program
    with pytest.raises(UnknownCategoryError, match="'city' has a category"):
        reference.run(program, {"city": strings("Genf")[:, 0]})


def test_label_encoder() -> None:
    numbers = {"keys_strings": ["a", "b", "a"], "values_floats": [1.5, 2.5, 9.0]}
    nodes = [node("LabelEncoder", "s", "y", ml=True, default_float=-3.0, **numbers)]
    content = graph(nodes, {"s": ("string", (None, 1))}, {"y": None})
    program = load(content).program
    got = reference.run(program, {"s": strings("a", "b", "c", None)[:, 0]})
    assert program.labels[0].values == (1.5, 2.5, -3.0)  # of equal keys the first one counts
    values = program.labels[0].array()[got["label"][:, 0]]
    assert values.tolist() == [1.5, 2.5, -3.0, -3.0]


def trees(**changes: Any) -> dict[str, Any]:
    """Two trees over two features: splits at 0 and 1, a tie at each, five leaves."""
    return {
        "nodes_treeids": [0, 0, 0, 0, 0, 1, 1, 1],
        "nodes_nodeids": [0, 1, 2, 3, 4, 0, 1, 2],
        "nodes_featureids": [0, 1, 0, 0, 0, 1, 0, 0],
        "nodes_values": [0.0, 1.0, 0, 0, 0, 1.0, 0, 0],
        "nodes_modes": ["BRANCH_LEQ", "BRANCH_LEQ", *["LEAF"] * 3, "BRANCH_LEQ", "LEAF", "LEAF"],
        "nodes_truenodeids": [1, 2, 0, 0, 0, 1, 0, 0],
        "nodes_falsenodeids": [4, 3, 0, 0, 0, 2, 0, 0],
        "nodes_missing_value_tracks_true": [1, 0, 0, 0, 0, 0, 0, 0],
        **changes,
    }


LEAVES = {"treeids": [0, 0, 0, 1, 1], "nodeids": [2, 3, 4, 1, 2]}
MODES = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"]


def ensemble(op: str, outputs: dict[str, str | None], attrs: dict[str, Any], ml: int = 3) -> Any:
    content = graph(
        [node(op, "x", " ".join(outputs), ml=True, **attrs)],
        {"x": ("float32", (None, 2))},
        outputs,
        ml=ml,
    )
    imported = agree(content, {"x": rows(2)})
    return imported


def leaves(prefix: str, columns: list[int], weights: list[float]) -> dict[str, Any]:
    return {
        **{f"{prefix}_{k}": v for k, v in LEAVES.items()},
        f"{prefix}_ids": columns,
        f"{prefix}_weights": weights,
    }


WEIGHTS = [0.25, -0.5, 1.5, 0.125, -0.75]


@pytest.mark.parametrize("first", MODES)
@pytest.mark.parametrize("second", MODES)
def test_every_mode_and_its_way_with_nan(first: str, second: str) -> None:
    modes = [first, second, "LEAF", "LEAF", "LEAF", second, "LEAF", "LEAF"]
    for tracks in (0, 1):
        attrs = trees(nodes_modes=modes, nodes_missing_value_tracks_true=[tracks] * 8)
        attrs |= leaves("target", [0] * 5, WEIGHTS)
        imported = ensemble("TreeEnsembleRegressor", {"y": "float32"}, {"n_targets": 1, **attrs})
        assert not any(n.op == "onnx_graph" for n in imported.program.nodes)


@pytest.mark.parametrize("how", ["SUM", "AVERAGE", "MIN", "MAX"])
@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "PROBIT"])
def test_regressor_aggregates(how: str, transform: str) -> None:
    attrs = trees(post_transform=transform, aggregate_function=how, base_values=[0.25])
    weights = [0.01, 0.02, 0.03, 0.1, 0.2]
    attrs |= leaves("target", [0] * 5, weights)
    ensemble("TreeEnsembleRegressor", {"y": "float32"}, {"n_targets": 1, **attrs})


@pytest.mark.parametrize("transform", ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"])
def test_regressor_of_several_targets(transform: str) -> None:
    attrs = trees(post_transform=transform) | leaves("target", [0, 1, 2, 1, 1], WEIGHTS)
    ensemble("TreeEnsembleRegressor", {"y": "float32"}, {"n_targets": 3, **attrs})


@pytest.mark.by_day(9)
@pytest.mark.parametrize("transform", ["NONE", "SOFTMAX", "LOGISTIC"])
@pytest.mark.parametrize("positive", [True, False])
@pytest.mark.parametrize("column", [0, 1])
@pytest.mark.parametrize("base", [[], [0.25], [0.25, 0.5]])
def test_two_classes(transform: str, positive: bool, column: int, base: list[float]) -> None:
    weights = [0.1, 0.2, 0.7, 0.05, 0.3] if positive else WEIGHTS
    attrs = trees(post_transform=transform, classlabels_strings=["no", "yes"])
    attrs |= leaves("class", [column] * 5, weights) | ({"base_values": base} if base else {})
    ensemble("TreeEnsembleClassifier", {"label": "string", "score": "float32"}, attrs)


@pytest.mark.parametrize("transform", ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"])
@pytest.mark.parametrize("base", [[], [0.25, 0.5, -0.25]])
def test_three_classes(transform: str, base: list[float]) -> None:
    attrs = trees(post_transform=transform, classlabels_int64s=[7, 5, 9])
    attrs |= leaves("class", [0, 1, 2, 0, 1], WEIGHTS) | ({"base_values": base} if base else {})
    ensemble("TreeEnsembleClassifier", {"label": "int64", "score": "float32"}, attrs)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_tree_ensemble_of_opset_5(dtype: str) -> None:
    def tensor(values: list[float], kind: str = dtype) -> Any:
        return numpy_helper.from_array(np.array(values, kind))

    attrs: dict[str, Any] = {
        "n_targets": 2,
        "aggregate_function": 1,
        "post_transform": 0,
        "tree_roots": [0, 2],
        "nodes_featureids": [0, 1, 1],
        "nodes_modes": tensor([0, 6, 3], "uint8"),
        "nodes_splits": tensor([0.1, 0, 0.7]),
        "nodes_truenodeids": [1, 0, 3],
        "nodes_trueleafs": [0, 1, 1],
        "nodes_falsenodeids": [2, 1, 4],
        "nodes_falseleafs": [1, 1, 1],
        "nodes_missing_value_tracks_true": [1, 0, 0],
        "leaf_targetids": [0, 1, 0, 1, 1],
        "leaf_weights": tensor([0.1, 0.2, 0.3, 0.4, 0.5]),
        "membership_values": tensor([1, 2, float("nan")]),
    }
    content = graph(
        [node("TreeEnsemble", "x", "y", ml=True, **attrs)],
        {"x": (dtype, (None, 2))},
        {"y": dtype},
        ml=5,
    )
    agree(content, {"x": rows(2).astype(dtype)})


@pytest.mark.parametrize(
    ("dtype", "bad", "message"),
    [
        ("int64", 3.7, "x_1 as int64.*CAST"),
        ("int64", 2.0**63, "x_1.*too large.*int64"),
        ("int64", -(2.0**63) - 2048, "x_1.*too large.*int64"),
        ("int32", -(2.0**31) - 1, "x_1 as int32.*CAST"),
        ("bool", 2.0, "x_1 as bool.*CAST"),
    ],
)
def test_numbers_that_an_integer_input_cannot_hold_are_refused_and_not_cut_off(
    dtype: str, bad: float, message: str
) -> None:
    """onnxruntime takes no other dtype there, so sqlml must not round on its own."""
    content = graph([node("Cast", "x", "y", to=1)], {"x": (dtype, (None, 2))}, {"y": "float32"})
    whole = np.random.default_rng(0).integers(0, 2, (40, 2))
    imported = agree(content, {"x": whole.astype(dtype)})
    feed = {f.name: whole[:, i].astype(float) for i, f in enumerate(imported.features)}
    second = imported.features[1].name
    feed[second][7] = bad
    with pytest.raises(ScoringError, match=message):
        reference.run(imported.program, feed)
    feed[second][7] = np.nan
    with pytest.raises(MissingValueError):
        reference.run(imported.program, feed)


def test_rows_of_a_table_and_places_from_its_end() -> None:
    rng = np.random.default_rng(0)
    table = rng.normal(size=(4, 2))
    nodes = [node("Cast", "x", "i", to=7), node("Gather", "t i", "y")]
    content = graph(nodes, {"x": ("float64", (None, 6))}, {"y": "float64"}, {"t": table})
    x = rng.integers(-4, 4, (30, 6)).astype(float)
    imported = agree(content, {"x": x}, rtol=0)
    inputs = {name: np.full((1, 1), 4.0) for name in imported.program.inputs}
    with pytest.raises(UnknownCategoryError):
        reference.run(imported.program, inputs)


def test_places_that_rows_compute() -> None:
    x = np.random.default_rng(0).integers(-3, 3, (30, 3)).astype(np.float32)
    nodes = [node("Cast", "x", "i", to=7), node("GatherElements", "x i", "y", axis=1)]
    imported = agree(graph(nodes, {"x": ("float32", (None, 3))}, {"y": "float32"}), {"x": x})
    assert any(n.op == "gather" for n in imported.program)


def test_what_the_ir_has_no_operator_for_runs_whole() -> None:
    inputs: dict[str, Any] = {"x": ("float32", (None, 3))}
    content = graph([node("CumSum", "x a", "y")], inputs, {"y": "float32"}, {"a": np.array(1)})
    imported = agree(content, {"x": np.ones((4, 3), np.float32)})
    assert any(n.op == "onnx_graph" for n in imported.program)
