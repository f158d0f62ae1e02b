"""Labels of ONNX classifiers: what predict returns, and the keys of the probabilities."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from skl2onnx import to_onnx
from sklearn import ensemble, linear_model, neighbors, pipeline, preprocessing, tree

from sqlml import errors
from sqlml.ir import reference
from sqlml.types import Array
from tests.support.onnx_checks import graph, load, node

RNG = np.random.default_rng(3)
X = RNG.normal(size=(80, 3)).astype(np.float32)
CLASS = (X[:, 0] > 0).astype(int) + (X[:, 1] > 0.5)
WEIGHTS = {"coefficients": [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0], "intercepts": [0.0] * 3}


def answers(content: bytes, x: Array) -> tuple[list[Any], list[dict[Any, float]]]:
    """The labels and maps of probabilities that sqlml computes from a file."""
    program = load(content).program
    columns = {name: x[:, i] for i, name in enumerate(program.inputs)}
    made = reference.run(program, columns)
    known = program.labels[0].values
    labels = [known[i] if i >= 0 else None for i in made["label"][:, 0]]
    return labels, [dict(zip(known, row, strict=True)) for row in made["proba"].tolist()]


def onnxruntime_answers(content: bytes, x: Array) -> list[Any]:
    """All outputs of onnxruntime."""
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    return list(session.run(None, {session.get_inputs()[0].name: x}))


def assert_same(content: bytes, labels: Any, maps: Any, x: Array = X) -> None:
    """Compare with onnxruntime's own labels and maps."""
    ours, probabilities = answers(content, x)
    assert ours == labels.ravel().tolist()
    assert [list(row) for row in probabilities] == [list(row) for row in maps]
    for row, expected in zip(probabilities, maps, strict=True):
        np.testing.assert_allclose([*row.values()], [*expected.values()], rtol=1e-5, atol=1e-6)


LABELS = {
    "counted from 0": np.array([0, 1, 2]),
    "counted from 1": np.array([1, 2, 3]),
    "negative": np.array([-7, 5, 40]),
    "small integers": np.array([3, 9, 11], np.int8),
    "large": np.array([2**33, 2**40, 2**41]),
    "floats": np.array([1.0, 2.0, 5.0]),
    "texts": np.array(["a", "b", "c"]),
    "texts of numbers": np.array(["-1", "10", "2"]),
}
BOUNDARY = linear_model.LogisticRegression()
MODELS: dict[str, Any] = {
    "linear": BOUNDARY,
    "hinge": linear_model.SGDClassifier(random_state=0),
    "tree": tree.DecisionTreeClassifier(max_depth=3, random_state=0),
    "boosting": ensemble.GradientBoostingClassifier(n_estimators=3, random_state=0),
    "vote": ensemble.VotingClassifier(
        [("a", BOUNDARY), ("b", tree.DecisionTreeClassifier(max_depth=2))], flatten_transform=False
    ),
    "pipeline": pipeline.make_pipeline(preprocessing.StandardScaler(), BOUNDARY),
    "whole": neighbors.KNeighborsClassifier(3),
}


NARROW = {"large": ["linear"], "small integers": [name for name in MODELS if name != "whole"]}
"""Labels -> models whose graphs keep such labels and are loaded by onnxruntime."""


@pytest.mark.by_day(9)
@pytest.mark.parametrize("classes", [3, 2])
@pytest.mark.parametrize(
    ("name", "labels"), [(m, k) for k in LABELS for m in NARROW.get(k, MODELS)]
)
def test_labels_of_scikit_learn_models(name: str, labels: str, classes: int) -> None:
    y = LABELS[labels][np.minimum(CLASS, classes - 1)]
    content = to_onnx(MODELS[name].fit(X, y), X[:1]).SerializeToString()
    assert_same(content, *onnxruntime_answers(content, X))


@pytest.mark.parametrize("labels", ["counted from 1", "negative", "floats", "texts"])
@pytest.mark.parametrize("name", ["linear", "hinge", "whole"])
def test_an_output_for_each_class_is_its_probability(name: str, labels: str) -> None:
    model, known = MODELS[name], LABELS[labels]
    model.fit(X, known[CLASS])
    options = {id(model): {"zipmap": "columns"}}
    content = to_onnx(model, X[:1], options=options).SerializeToString()
    label, *columns = onnxruntime_answers(content, X)
    keys = [int(v) if labels == "floats" else v for v in known.tolist()]
    maps = [dict(zip(keys, row, strict=True)) for row in np.stack(columns, axis=1).tolist()]
    assert_same(content, label, maps)


def linear(label_path: list[Any], keys: dict[str, Any], **classes: Any) -> bytes:
    """A LinearClassifier whose label goes through other nodes, and probabilities with keys."""
    return graph(
        [
            node("LinearClassifier", "x", "chosen scores", ml=True, **WEIGHTS, **classes),
            *label_path,
            node("ZipMap", "scores", "probabilities", ml=True, **keys),
        ],
        {"x": ("float32", [None, 3])},
        {"label": "string" if "classlabels_strings" in keys else "int64", "probabilities": None},
    )


INTEGERS = {"classlabels_ints": [1, 2, 3]}


@pytest.mark.parametrize(
    ("path", "keys", "classes"),
    [
        ([("Cast", 7)], [1, 2, 3], INTEGERS),
        ([("Cast", 1), ("Cast", 6), ("Cast", 7)], [1, 2, 3], INTEGERS),
        ([("Cast", 8)], ["1", "2", "3"], INTEGERS),
        ([("Cast", 7)], [3, -1, 2], {"classlabels_strings": ["3", "-1", "2"]}),
        ([("Cast", 7)], [3, 1, 2], INTEGERS),
        ([("Cast", 7)], [1, 2, 3], {"classlabels_ints": [3, 1, 2]}),
    ],
    ids=["one", "several", "to text", "from text", "other keys", "other labels"],
)
def test_casts_keep_labels(path: list[tuple[str, int]], keys: list[Any], classes: Any) -> None:
    """Keys are in the order of the scores, whatever order the labels are in."""
    names = ["chosen", *(f"step{i}" for i in range(1, len(path))), "label"]
    nodes = [
        node(op, before, after, to=to)
        for (op, to), before, after in zip(path, names[:-1], names[1:], strict=True)
    ]
    kind = "classlabels_strings" if isinstance(keys[0], str) else "classlabels_int64s"
    content = linear(nodes, {kind: keys}, **classes)
    labels, probabilities = answers(content, X)
    theirs, maps = onnxruntime_answers(content, X)
    assert labels == theirs.tolist()
    assert [sorted(row.items()) for row in probabilities] == [
        sorted((key, pytest.approx(value, abs=1e-6)) for key, value in row.items()) for row in maps
    ]


def test_an_argmax_is_looked_up_as_an_encoder_says() -> None:
    """An encoder whose keys are not in order does not change which number a class has."""
    encoder = {"keys_int64s": [2, 0, 1], "values_strings": ["c", "a", "b"]}
    content = graph(
        [
            node("ArgMax", "x", "place", axis=1, keepdims=0),
            node("LabelEncoder", "place", "label", ml=True, **encoder),
            node("Identity", "x", "scaled"),
        ],
        {"x": ("float32", [None, 3])},
        {"label": None, "scaled": "float32"},
    )
    labels, probabilities = answers(content, X)
    assert labels == onnxruntime_answers(content, X)[0].tolist()
    assert [max(row, key=lambda k: row[k]) for row in probabilities] == labels


def test_integers_that_nothing_lists_are_numbers() -> None:
    """Arithmetic with a label leaves no list of classes, and none is guessed."""
    content = graph(
        [
            node("ArgMax", "x", "place", axis=1, keepdims=0),
            node("Add", "place five", "label"),
            node("Identity", "x", "scores"),
        ],
        {"x": ("float32", [None, 3])},
        {"label": "int64", "scores": "float32"},
        {"five": np.array([5], np.int64)},
    )
    program = load(content).program
    made = reference.run(program, {n: X[:, i] for i, n in enumerate(program.inputs)})
    assert list(made) == ["label", "score"] and not program.labels
    np.testing.assert_array_equal(made["label"][:, 0], onnxruntime_answers(content, X)[0])


def test_a_comparison_is_false_or_true() -> None:
    content = graph(
        [
            node("ReduceSum", "x axis", "total", keepdims=0),
            node("Greater", "total zero", "label"),
            node("Identity", "x", "scores"),
        ],
        {"x": ("float32", [None, 3])},
        {"label": "bool", "scores": "float32"},
        {"axis": np.array([1]), "zero": np.zeros(1, np.float32)},
    )
    program = load(content).program
    made = reference.run(program, {n: X[:, i] for i, n in enumerate(program.inputs)})
    assert program.labels[0].values == (False, True)
    np.testing.assert_array_equal(made["label"][:, 0], onnxruntime_answers(content, X)[0])


@pytest.mark.parametrize("keys", [[0, 1, 2], [1, 2, 4]])
def test_labels_that_are_no_keys_are_refused(keys: list[int]) -> None:
    content = linear(
        [node("Cast", "chosen", "label", to=7)], {"classlabels_int64s": keys}, **INTEGERS
    )
    with pytest.raises(errors.UnsupportedModelError, match="not among the keys"):
        load(content)
