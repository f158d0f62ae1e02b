"""ONNX files that sqlml writes hold the Program beside the graph, and CREATE MODEL takes it."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import onnx
import pandas as pd
import pytest
import xgboost
from sklearn.compose import make_column_transformer
from sklearn.ensemble import (
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    IsolationForest,
    RandomForestRegressor,
)
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier

import sqlml
from sqlml.errors import (
    ArtifactError,
    BackendError,
    SqlmlError,
    UnsupportedModelError,
    VerificationError,
)
from sqlml.importers.registry import import_model
from sqlml.ir import reference, store
from sqlml.ir import store as onnx_metadata
from sqlml.ir.builder import Builder
from sqlml.ir.program import Program
from sqlml.ir.store import PROGRAM_KEY, embed_program
from tests.contract.opaque_cases import onnx_graph
from tests.support.onnx_checks import load, theirs

RNG = np.random.default_rng(0)
ROWS = 300
FRAME = pd.DataFrame(
    {
        "age": RNG.integers(18, 90, ROWS).astype(float),
        "plan": RNG.choice(["basic", "pro", "free"], ROWS).astype(object),
    }
)
LOYAL = np.where(FRAME.age > 50, "yes", "no")


def program_of(model: Any) -> Program:
    return sqlml.compile(model).program


def strings() -> Program:
    """A pipeline over a column of strings, whose NULL is a category."""
    holes = FRAME.assign(plan=FRAME.plan.where(RNG.random(ROWS) > 0.2, None))
    table = make_column_transformer(
        (StandardScaler(), ["age"]), (OneHotEncoder(handle_unknown="ignore"), ["plan"])
    )
    return program_of(make_pipeline(table, DecisionTreeClassifier(max_depth=3)).fit(holes, LOYAL))


def logistic() -> Program:
    return program_of(LogisticRegression().fit(FRAME[["age"]], LOYAL))


def proto_of(program: Program) -> Any:
    return onnx.ModelProto.FromString(sqlml.compile(program).to_onnx())


def held(proto: Any) -> dict[str, str]:
    return {entry.key: entry.value for entry in proto.metadata_props}


def with_program(proto: Any, stored: bytes) -> bytes:
    """The graph of `proto` with another stored Program, and a sha256 that fits."""
    del proto.metadata_props[:]
    embed_program(proto, stored)
    content: bytes = proto.SerializeToString()
    return content


@pytest.mark.parametrize("make", [strings, logistic])
def test_the_program_comes_back_to_the_last_bit(make: Any) -> None:
    program = make()
    back = load(sqlml.compile(program).to_onnx())
    assert back.program.hash == program.hash
    assert back.is_named and back.features == program.features
    assert (back.source, back.library) == ("onnx file", "onnx (sqlml)")
    assert import_model(proto_of(program)).program.hash == program.hash


def test_its_columns_may_get_other_names() -> None:
    back = load(sqlml.compile(logistic()).to_onnx(), inputs=["years"])
    assert list(back.program.inputs) == ["years"]


def test_what_others_write_beside_the_graph_changes_nothing() -> None:
    program = logistic()
    proto = proto_of(program)
    proto.doc_string = "ours"
    proto.metadata_props.add(key="owner", value="sales")
    assert load(proto.SerializeToString()).program.hash == program.hash


def test_a_graph_that_somebody_changed_counts_itself() -> None:
    program = logistic()
    proto = proto_of(program)
    weights = next(t for t in proto.graph.initializer if t.dims == [1, 1])
    (slope,) = onnx.numpy_helper.to_array(weights).ravel()
    weights.raw_data = np.array([-slope]).tobytes()
    content = proto.SerializeToString()
    back = load(content).program
    age = FRAME.age.to_numpy()[:, None]
    want = theirs(content, {"age": age})[1]
    np.testing.assert_allclose(reference.run(back, {"age": age})["score"], want, rtol=1e-12)
    assert not np.allclose(reference.run(program, {"age": age})["score"], want)
    proto = proto_of(program)
    proto.opset_import[0].version -= 1
    assert load(proto.SerializeToString()).program.hash != program.hash


def test_a_file_without_a_program_is_read_by_its_graph() -> None:
    """As other versions of sqlml wrote it: what the IR lacks runs whole in onnxruntime."""
    program = strings()
    proto = proto_of(program)
    proto.metadata_props[0].key = "sqlml.program.0"
    content = proto.SerializeToString()
    back = load(content)
    feed = {n: FRAME[[n]].to_numpy(object if n == "plan" else float) for n in program.inputs}
    made = reference.run(back.program, feed)
    label, proba = theirs(content, feed)
    assert list(back.program.labels[0].array()[made["label"][:, 0]]) == list(label)
    np.testing.assert_allclose(made["proba"], proba, rtol=1e-12)


def test_a_program_that_is_too_large_for_the_file_is_left_out(monkeypatch: Any) -> None:
    scorer = sqlml.compile(logistic())
    size = len(scorer.to_onnx())
    monkeypatch.setattr(onnx_metadata, "MAX_PROTO_BYTES", size)
    proto = onnx.ModelProto.FromString(scorer.to_onnx())
    assert held(proto) == {}
    monkeypatch.setattr("sqlml.backends.onnxruntime.graph.MAX_PROTO_BYTES", 100)
    with pytest.raises(BackendError, match="exceeds 2 GB as ONNX"):
        scorer.to_onnx()


@pytest.mark.parametrize("damage", ["text", "cut", "bit", "other"])
def test_a_damaged_program_is_no_model(damage: str) -> None:
    proto = proto_of(logistic())
    entry = next(p for p in proto.metadata_props if p.key == PROGRAM_KEY)
    stored = bytearray(base64.b64decode(entry.value))
    if damage == "bit":
        stored[len(stored) // 2] ^= 1
    changed = {"cut": stored[:-9], "bit": stored, "other": b"PK\3\4"}.get(damage, b"")
    entry.value = "no base64 ä" if damage == "text" else base64.b64encode(changed).decode()
    with pytest.raises(ArtifactError, match="m.onnx: "):
        load(proto.SerializeToString())


def test_random_changes_end_in_a_typed_error_or_the_program(monkeypatch: Any) -> None:
    monkeypatch.setattr(
        "sqlml.importers.onnx.whole_graph.probe", lambda *args: {"error": "not tried"}
    )
    program, rng = logistic(), np.random.default_rng(0)
    content = sqlml.compile(program).to_onnx()
    for _ in range(500):
        damaged = bytearray(content)
        damaged[int(rng.integers(3, len(damaged)))] = int(rng.integers(256))
        try:
            back = load(bytes(damaged)).program
            reference.run(back, dict.fromkeys(back.inputs, FRAME.age.to_numpy()))
        except SqlmlError as error:
            assert str(error)


def test_a_part_of_a_model_is_none_here_either() -> None:
    b = Builder()
    part = b.build({"half": b.op("neg", b.input("age", "float64"))})
    with pytest.raises(UnsupportedModelError, match="output 'half' has no function"):
        load(with_program(proto_of(logistic()), store.dumps(part)))


def test_a_foreign_graph_in_the_program_is_tried_first() -> None:
    b, whole = Builder(), Builder()
    attrs = {**whole.node(onnx_graph(whole)).attrs, "width": 2}
    part = b.op("cast", b.input("age", "float64"), dtype="float32")
    program = b.build({"transform": b.op("onnx_graph", part, **attrs)})
    with pytest.raises(UnsupportedModelError, match="cannot run the ONNX graph of this"):
        load(with_program(proto_of(logistic()), store.dumps(program)))


def test_a_program_of_other_columns_than_the_graphs_is_not_taken() -> None:
    b = Builder()
    other = b.build({"label": b.input("income", "float64")})
    back = load(with_program(proto_of(logistic()), store.dumps(other)))
    assert list(back.program.inputs) == ["age"]


def test_verify_holds_a_forged_program_against_the_graph(tmp_path: Path) -> None:
    turned = np.where(LOYAL == "no", "yes", "no")
    other = program_of(LogisticRegression().fit(FRAME[["age"]], turned))
    (tmp_path / "honest.onnx").write_bytes(proto_of(logistic()).SerializeToString())
    forged = with_program(proto_of(logistic()), store.dumps(other))
    (tmp_path / "forged.onnx").write_bytes(forged)
    with sqlml.connect() as con:
        for name in ("honest", "forged"):
            statement = f"CREATE MODEL {name} FROM '{tmp_path}/{name}.onnx'"
            if name == "forged":
                with pytest.raises(VerificationError, match="labels differ"):
                    con.execute(statement)
                statement += " OPTIONS (verify = false)"
            con.execute(statement)
        rows = "USING (SELECT range * 1.0 AS age FROM range(18, 90))"
        for name, agrees in (("honest", True), ("forged", False)):
            found = con.execute(f"VERIFY MODEL {name} {rows}").fetchall()
            assert {output: row[-1] for output, *row in found} == dict.fromkeys(
                ("label", "score", "proba"), agrees
            )
        con.create_model("honest_too", onnx.load(tmp_path / "honest.onnx"))
        with pytest.raises(VerificationError, match="labels differ"):
            con.create_model("forged_too", onnx.ModelProto.FromString(forged))


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
    names = [feature.name for feature in scorer.features]
    label = theirs(scorer.to_onnx(), {names[0]: x[:, :1], names[1]: x[:, 1:]})[0]
    np.testing.assert_array_equal(np.ravel(label).astype(float), want)
