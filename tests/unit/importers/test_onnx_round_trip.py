"""EXPORT MODEL to ONNX and CREATE MODEL from it: the same trees, codes and checks come back."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import lightgbm
import numpy as np
import onnx
import pandas as pd
import pytest
import xgboost
from sklearn.compose import make_column_transformer
from sklearn.ensemble import (
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    IsolationForest,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler, TargetEncoder
from sklearn.tree import DecisionTreeClassifier

import sqlml
from sqlml.backends import base
from sqlml.errors import MissingValueError, UnknownCategoryError
from sqlml.importers.registry import Imported
from sqlml.ir import reference
from sqlml.ir.program import Program
from sqlml.types import Array
from tests.onnx_checks import agree, graph, load, node, theirs
from tests.oracles import batch, ensembles

RNG = np.random.default_rng(0)
ROWS = 300
PLAIN = pd.DataFrame(
    {
        "age": np.where(RNG.random(ROWS) < 0.1, np.nan, RNG.integers(18, 90, ROWS)),
        "income": RNG.lognormal(3, 1, ROWS),
        "plan": RNG.choice(["basic", "pro", "free"], ROWS),
        "city": RNG.choice(["Bern", "Oslo", "Zürich", "O'Hare", ""], ROWS),
    }
).astype({"plan": object, "city": object})
HOLES = PLAIN.assign(**{c: PLAIN[c].where(RNG.random(ROWS) >= 0.1, None) for c in ("plan", "city")})
THREE = np.array(["low", "mid", "high"], object)[
    (PLAIN.income > 15).astype(int) + (PLAIN.plan == "pro")
]

ENCODERS: dict[str, Callable[[], Any]] = {
    "one-hot": lambda: OneHotEncoder(handle_unknown="ignore"),
    "one-hot dropped": lambda: OneHotEncoder(handle_unknown="ignore", drop="first"),
    "one-hot rare": lambda: OneHotEncoder(handle_unknown="infrequent_if_exist", min_frequency=90),
    "ordinal": lambda: OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1),
    "target": lambda: TargetEncoder(random_state=0),
    "filled": lambda: make_pipeline(
        SimpleImputer(strategy="most_frequent", missing_values=None),
        OneHotEncoder(handle_unknown="ignore"),
    ),
    "replaced": lambda: make_pipeline(
        SimpleImputer(strategy="constant", missing_values="free", fill_value="pro"),
        OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=9),
    ),
}

MODELS: dict[str, Callable[[], Any]] = {
    "tree": lambda: DecisionTreeClassifier(random_state=0),
    "forest": lambda: RandomForestClassifier(7, random_state=0),
    "extra trees": lambda: ExtraTreesClassifier(5, random_state=0),
    "boosting": lambda: GradientBoostingClassifier(n_estimators=6),
    "histograms": lambda: HistGradientBoostingClassifier(max_iter=6),
    "lightgbm": lambda: lightgbm.LGBMClassifier(n_estimators=6, verbose=-1),
}


def pipeline(encoder: Any, model: Any) -> Any:
    numbers = make_pipeline(SimpleImputer(), StandardScaler())
    table = make_column_transformer((numbers, ["age", "income"]), (encoder, ["plan", "city"]))
    return make_pipeline(table, model)


def again(model: Any) -> tuple[Program, Imported]:
    """The Program of a model, and what is imported of its ONNX file."""
    scorer = sqlml.compile(model)
    return scorer.program, load(scorer.to_onnx())


def answers(back: Imported, data: pd.DataFrame) -> dict[str, Array]:
    program = back.program
    inputs = batch(program, data, [f.name for f in back.features])
    made = base.load("native").compile(program).run(inputs)
    for output, other in reference.run(program, inputs).items():
        np.testing.assert_array_equal(other, made[output])
    return made


@pytest.mark.parametrize("encoder", ENCODERS)
@pytest.mark.parametrize("name", MODELS)
def test_trees_over_strings_come_back_as_the_same_trees(encoder: str, name: str) -> None:
    data = PLAIN if encoder == "replaced" else HOLES
    model = pipeline(ENCODERS[encoder](), MODELS[name]()).fit(data, THREE)
    program, back = again(model)
    same_trees(program, back.program)
    unseen = data.head(4).assign(plan="never seen")
    for rows in (data.head(120), unseen, data.head(1)):
        made = answers(back, rows)
        labels = back.program.labels[0].array()[made["label"][:, 0]]
        assert list(labels) == list(model.predict(rows))
        np.testing.assert_allclose(made["proba"], model.predict_proba(rows), rtol=1e-13)


def same_trees(program: Program, back: Program) -> None:
    """Number by number; a bare leaf comes back below a node that says nothing."""
    assert not any(n.op in ("onnx_graph", "accumulate") for n in back)
    ours, theirs = ensembles(program), ensembles(back)
    assert len(ours) == len(theirs) > 0
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(one.base, other.base)
        np.testing.assert_array_equal(one.target, other.target)
        assert one.compare == other.compare
        if (one.roots >= 0).all():
            for field in ("roots", "feature", "threshold", "left", "right", "leaf_values"):
                a, b = getattr(one, field), getattr(other, field)
                np.testing.assert_array_equal(a, b, err_msg=field)
                assert a.dtype == b.dtype, field


def test_xgboost_keeps_its_float32() -> None:
    classes = np.unique(THREE, return_inverse=True)[1]
    encoder = ENCODERS["one-hot"]()
    model = pipeline(encoder, xgboost.XGBClassifier(n_estimators=5)).fit(HOLES, classes)
    program, back = again(model)
    same_trees(program, back.program)
    np.testing.assert_array_equal(answers(back, HOLES)["proba"], model.predict_proba(HOLES))


@pytest.mark.parametrize("kind", ["lightgbm", "histograms"])
def test_trees_that_test_for_categories(kind: str) -> None:
    table = HOLES.astype({"plan": "category", "city": "category"})
    model = {
        "lightgbm": lightgbm.LGBMClassifier(n_estimators=4, verbose=-1, min_child_samples=3),
        "histograms": HistGradientBoostingClassifier(
            max_iter=4, categorical_features="from_dtype", min_samples_leaf=3
        ),
    }[kind].fit(table, THREE)
    _, back = again(model)
    assert not any(n.op == "onnx_graph" for n in back.program)
    made = answers(back, table)
    np.testing.assert_allclose(made["proba"], model.predict_proba(table), rtol=1e-12)


def test_bare_leaves_and_outputs_with_fewer_trees() -> None:
    model = RandomForestRegressor(4, max_leaf_nodes=2, random_state=0)
    target = np.where(np.arange(ROWS) < 3, 5.0, 1.0)
    model.fit(PLAIN[["income"]], target)
    _, back = again(model)
    assert not any(n.op == "accumulate" for n in back.program)
    np.testing.assert_array_equal(
        answers(back, PLAIN[["income"]])["label"][:, 0], model.predict(PLAIN[["income"]])
    )
    constant = GradientBoostingClassifier(n_estimators=2).fit(np.zeros((9, 1)), [0, 1, 2] * 3)
    _, back = again(constant)
    made = answers(back, pd.DataFrame({"x0": np.zeros(3)}))
    np.testing.assert_array_equal(made["score"], constant.decision_function(np.zeros((3, 1))))


@pytest.mark.parametrize(
    "model",
    [
        DecisionTreeClassifier(),
        RandomForestRegressor(3),
        GradientBoostingClassifier(n_estimators=2),
        HistGradientBoostingClassifier(max_iter=2),
        lightgbm.LGBMClassifier(n_estimators=2, verbose=-1),
        xgboost.XGBClassifier(n_estimators=2),
        IsolationForest(n_estimators=3),
    ],
    ids=lambda model: type(model).__name__,
)
def test_trees_that_never_split_run_in_onnxruntime_from_their_file_too(model: Any) -> None:
    x = np.zeros((30, 2))
    model.fit(x, np.arange(30) % 3 == 0)
    want = np.asarray(model.predict(x), float)
    scorer = sqlml.compile(model, backend="onnxruntime")
    np.testing.assert_array_equal(np.asarray(scorer.predict(x), float), want)
    content = scorer.to_onnx()
    label = theirs(content, {"x0": x[:, :1], "x1": x[:, 1:]})[0]
    np.testing.assert_array_equal(np.ravel(label).astype(float), want)
    back = load(content)
    assert not any(n.op == "onnx_graph" for n in back.program)
    made = answers(back, pd.DataFrame({"x0": x[:, 0], "x1": x[:, 1]}))["label"][:, 0]
    known = back.program.labels
    np.testing.assert_array_equal(known[0].array()[made] if known else made, want)


def test_checks_come_back_as_checks() -> None:
    strict = pipeline(OneHotEncoder(), DecisionTreeClassifier()).fit(PLAIN, THREE)
    program, back = again(strict)
    for op in ("require_finite", "require_known"):
        assert [n.attrs for n in back.program if n.op == op] == [
            n.attrs for n in program if n.op == op
        ]
    with pytest.raises(UnknownCategoryError, match="'plan' has a category .* OneHotEncoder"):
        answers(back, PLAIN.head(2).assign(plan="other"))
    with pytest.raises(MissingValueError, match="income"):
        answers(back, PLAIN.head(2).assign(income=np.inf))


def test_a_note_of_a_check_is_not_believed_where_the_graph_computes_something_else() -> None:
    model = DecisionTreeClassifier().fit(PLAIN[["income"]], THREE)
    proto = onnx.ModelProto.FromString(sqlml.compile(model).to_onnx())
    told = [p for n in proto.graph.node for p in n.metadata_props]
    assert {p.key for p in told} == {"sqlml.check"}
    honest = told[0].value
    lies = [json.dumps({**json.loads(honest), **x}) for x in ({"allow_nan": False}, {"step": 3})]
    lies += [json.dumps({"features": ["a", "b"], "allow_nan": True, "step": "s"}), "[" * 10**5]
    lies += ["7", "", json.dumps({"feature": "income", "step": "s"})]
    for lie in lies:
        told[0].value = lie
        back = load(proto.SerializeToString())
        values = PLAIN[["income"]].assign(income=np.where(PLAIN.age.isna(), np.nan, PLAIN.income))
        made = answers(back, values)["label"][:, 0]
        assert list(back.program.labels[0].array()[made]) == list(model.predict(values))


def test_a_false_code_of_null_is_an_error_or_no_code() -> None:
    model = pipeline(ENCODERS["ordinal"](), DecisionTreeClassifier()).fit(HOLES, THREE)
    proto = onnx.ModelProto.FromString(sqlml.compile(model).to_onnx())
    note = next(p for n in proto.graph.node for p in n.metadata_props if p.key == "sqlml.null")
    for lie in ("-1", "x", "9" * 30, ""):
        note.value = lie
        with pytest.raises(sqlml.errors.ArtifactError, match="no code of NULL"):
            load(proto.SerializeToString())


INPUT: dict[str, Any] = {"x": ("float64", (None, 6))}
X = RNG.normal(size=(40, 6)) * 10.0 ** RNG.integers(-12, 12, (40, 6))


def test_a_running_sum_is_added_in_its_order() -> None:
    constants = {"s": np.array([-1, 2, 3]), "a": np.array(2), "i": np.array(2)}
    nodes = [
        node("Reshape", "x s", "r"),
        node("CumSum", "r a", "c"),
        node("Gather", "c i", "y", axis=2),
    ]
    content = graph(nodes, INPUT, {"y": "float64"}, constants)
    imported = agree(content, {"x": X}, rtol=0)
    assert [n.op for n in imported.program][-1] == "accumulate"
    inputs = dict(zip(imported.program.inputs, X.T[:, :, None], strict=True))
    want = X.reshape(-1, 2, 3)
    got = reference.run(imported.program, inputs)["transform"]
    np.testing.assert_array_equal(got, (want[:, :, 0] + want[:, :, 1]) + want[:, :, 2])
    np.testing.assert_array_equal(got, theirs(content, {"x": X})[0])


def test_all_the_sums_of_a_running_sum_run_whole() -> None:
    content = graph([node("CumSum", "x a", "y")], INPUT, {"y": "float64"}, {"a": np.array(1)})
    imported = agree(content, {"x": X})
    assert any(n.op == "onnx_graph" for n in imported.program)


def test_rows_of_a_table_and_places_from_its_end() -> None:
    table = RNG.normal(size=(4, 2))
    nodes = [node("Cast", "x", "i", to=7), node("Gather", "t i", "y")]
    content = graph(nodes, INPUT, {"y": "float64"}, {"t": table})
    imported = agree(content, {"x": RNG.integers(-4, 4, (30, 6)).astype(float)}, rtol=0)
    inputs = {name: np.full((1, 1), 4.0) for name in imported.program.inputs}
    with pytest.raises(UnknownCategoryError):
        reference.run(imported.program, inputs)


def test_a_graph_of_strings_and_numbers_runs_whole() -> None:
    inputs: dict[str, Any] = {
        "word": ("string", (None, 1)),
        "x": ("float32", (None, 2)),
        "pair": ("string", (None, 2)),
    }
    keys: dict[str, Any] = {"keys_strings": ["a", "one", "b"], "values_floats": [1.0, 2.0, 3.0]}
    nodes = [
        node("LabelEncoder", "word", "w", ml=True, **keys),
        node("LabelEncoder", "pair", "p", ml=True, **keys),
        node("Erf", "x", "e"),
        node("Concat", "e p w", "y", axis=1),
    ]
    content = graph(nodes, inputs, {"y": "float32"})
    imported = load(content)
    program = imported.program
    assert [n.op for n in program].count("onnx_graph") == 1
    assert [f.kind for f in imported.features] == ["string", "number", "number", "string", "string"]
    words = RNG.choice(np.array(["a", "one", "b", "?"], object), (30, 3))
    numbers = RNG.normal(size=(30, 2))
    want = theirs(
        content, {"word": words[:, :1], "x": numbers.astype(np.float32), "pair": words[:, 1:]}
    )[0]
    columns = [words[:, :1], numbers[:, :1], numbers[:, 1:], words[:, 1:2], words[:, 2:]]
    names = [f.name for f in imported.features]
    feed = {n: columns[names.index(n)] for n in program.inputs}
    for name in ("reference", "onnxruntime"):
        made = base.load(name).compile(program).run(feed)["transform"]
        np.testing.assert_array_equal(made, want)
    frame = pd.DataFrame({n: c[:, 0] for n, c in zip(names, columns, strict=True)})
    scorer = sqlml.compile(program)
    np.testing.assert_array_equal(scorer.transform(frame), want)
    with pytest.raises(MissingValueError, match="'word' has NULL, which the ONNX graph"):
        scorer.transform(frame.assign(word=None))
    assert scorer.transform(frame.head(0)).shape == (0, 5)
