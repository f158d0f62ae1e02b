"""ONNX files that skl2onnx writes of pipelines answer, run and are exported like the pipelines."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pytest
from skl2onnx import to_onnx
from skl2onnx.common.data_types import FloatTensorType, Int64TensorType, StringTensorType
from sklearn.base import is_classifier
from sklearn.compose import make_column_transformer
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import QuadraticDiscriminantAnalysis
from sklearn.ensemble import (
    AdaBoostClassifier,
    BaggingClassifier,
    IsolationForest,
    RandomForestClassifier,
)
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import BernoulliNB, GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer, OneHotEncoder, StandardScaler
from sklearn.svm import SVC

import sqlml

RNG = np.random.default_rng(8)
ROWS, FITTED = 900, 400
NUMBERS = ["a", "b", "c", "d"]
FRAME = pd.DataFrame(RNG.normal(size=(ROWS, 4)).astype(np.float32), columns=NUMBERS)
FRAME["plan"] = RNG.choice(["free", "basic", "pro", "team"], ROWS)
FRAME["site"] = RNG.integers(0, 40, ROWS) * 7
LABELS = np.where(FRAME.a + FRAME.b * FRAME.c + (FRAME.plan == "pro") > 0.3, "yes", "no")

NUMERIC = {
    "bayes": GaussianNB(),
    "bernoulli": BernoulliNB(),
    "quadratic": QuadraticDiscriminantAnalysis(),
    "neighbours": KNeighborsClassifier(5),
    "support vectors": SVC(),
    "network": MLPClassifier((8, 4), max_iter=30, random_state=0),
    "boosted": AdaBoostClassifier(n_estimators=8, random_state=0),
    "bagged": BaggingClassifier(n_estimators=4, random_state=0),
    "isolation": IsolationForest(n_estimators=20, random_state=0),
    "components": make_pipeline(PCA(2), LogisticRegression()),
    "norms": make_pipeline(Normalizer(), LogisticRegression()),
}
MIXED = {
    "logistic": LogisticRegression(max_iter=200),
    "forest": RandomForestClassifier(8, max_depth=5, random_state=0),
    "network": MLPClassifier((8,), max_iter=30, random_state=0),
}


@pytest.fixture
def con() -> Iterator[sqlml.Session]:
    with sqlml.connect() as session:
        session.register("frame", FRAME)
        session.execute("CREATE TABLE t AS FROM frame")
        yield session


def create(con: sqlml.Session, model: Any, columns: list[str], folder: Path) -> None:
    """Create the model `object`, and the model `file` of its ONNX file."""
    kinds = {"plan": StringTensorType, "site": Int64TensorType}
    types = [(name, kinds.get(name, FloatTensorType)([None, 1])) for name in columns]
    if columns == NUMBERS:
        types = [("x", FloatTensorType([None, len(columns)]))]
    path = folder / "model.onnx"
    file = to_onnx(
        model,
        initial_types=types,
        options={id(model): {"zipmap": False}} if is_classifier(model) else None,
        target_opset={"": 18, "ai.onnx.ml": 3},
    )
    path.write_bytes(file.SerializeToString())
    inputs = ", ".join(f"{name} FLOAT" for name in columns)
    declared = f"INPUT ({inputs})" if columns == NUMBERS else ""
    con.execute(f"CREATE MODEL file {declared} FROM '{path}'")
    con.create_model("object", model, verify=False)


def check(con: sqlml.Session, columns: list[str], folder: Path, has_probabilities: bool) -> None:
    """Compare the file's answers with the object's, in the session and in an exported extension."""
    plan = con.explain("SELECT predict('file', *) FROM t")
    assert "Python scores" not in plan and "in Python" not in plan, plan
    wrong = "SELECT count(*) FROM t WHERE predict('file', *) <> predict('object', *)"
    assert con.execute(wrong).fetchall() == [(0,)]
    if has_probabilities:
        calls = (f"predict_proba('{name}', *, class := 'yes')" for name in ("file", "object"))
        ((apart,),) = con.execute(f"SELECT max(abs({' - '.join(calls)})) FROM t").fetchall()
        assert apart < 2e-5
    label = con.execute("SELECT predict('file', *) AS label FROM t").fetchnumpy()["label"]
    path = folder / "file.duckdb_extension"
    con.execute(f"EXPORT MODEL file TO '{path}'")
    with duckdb.connect(config={"allow_unsigned_extensions": "true"}) as plain:
        plain.execute(f"LOAD '{path}'")
        plain.register("frame", FRAME)
        query = f"SELECT file({', '.join(columns)}) AS label FROM frame"
        assert plain.execute(query).fetchnumpy()["label"].tolist() == label.tolist()


@pytest.mark.by_day(3)
@pytest.mark.parametrize("name", NUMERIC)
def test_numbers(con: sqlml.Session, name: str, tmp_path: Path) -> None:
    model = make_pipeline(StandardScaler(), NUMERIC[name])
    create(con, model.fit(FRAME[NUMBERS][:FITTED], LABELS[:FITTED]), NUMBERS, tmp_path)
    check(con, NUMBERS, tmp_path, hasattr(model, "predict_proba"))


@pytest.mark.parametrize("name", MIXED)
def test_numbers_strings_and_integers(con: sqlml.Session, name: str, tmp_path: Path) -> None:
    numbers = make_pipeline(SimpleImputer(), StandardScaler())
    one_hot = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    encoder = make_column_transformer((numbers, NUMBERS), (one_hot, ["plan", "site"]))
    columns = list(FRAME.columns)
    model = make_pipeline(encoder, MIXED[name]).fit(FRAME[:FITTED], LABELS[:FITTED])
    create(con, model, columns, tmp_path)
    check(con, columns, tmp_path, has_probabilities=True)
    if name == "logistic":
        calls = [f"map_values(explain('{model}', *))" for model in ("file", "object")]
        query = f"SELECT {', '.join(f'unnest({call})' for call in calls)} FROM t"
        got, want = con.execute(query).fetchnumpy().values()
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_columns_without_weight_are_not_read(con: sqlml.Session, tmp_path: Path) -> None:
    model = make_pipeline(StandardScaler(), LogisticRegression(l1_ratio=1, solver="saga", C=0.01))
    create(con, model.fit(FRAME[NUMBERS][:FITTED], LABELS[:FITTED]), NUMBERS, tmp_path)
    zeros = [c for c, w in zip(NUMBERS, model[-1].coef_[0], strict=True) if w == 0]
    assert zeros
    plan = con.explain("SELECT predict('file', *) FROM t")
    assert f"columns not read  {', '.join(zeros)}" in plan, plan
