"""ONNX files in SQL: their labels and keys, default names of columns, and the comparison with
onnxruntime."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pandas as pd
import pytest
from skl2onnx import to_onnx
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import Lasso, LogisticRegression

import sqlml
from sqlml import errors
from sqlml.importers.file_formats import read_artifact
from sqlml.importers.registry import import_model
from sqlml.types import Labels
from sqlml.verifying.source import open_object_source
from sqlml.verifying.verification import verify_source

RNG = np.random.default_rng(5)
ROWS = pd.DataFrame(RNG.normal(size=(60, 3)).astype(np.float32), columns=["a", "b", "c"])
CLASS = (ROWS.a > 0).to_numpy().astype(int) + (ROWS.b > 0.5).to_numpy()


@pytest.fixture
def con() -> Iterator[sqlml.Session]:
    with sqlml.connect() as made:
        frame = ROWS.assign(answer=np.array([-1, 5, 9])[CLASS])
        made.register("frame", frame)
        made.execute("CREATE TABLE t AS SELECT *, [a, b, c] AS list FROM frame")
        made.execute("ALTER TABLE t ADD COLUMN fixed FLOAT[3]")
        made.execute("UPDATE t SET fixed = [a, b, c]")
        yield made


def save(folder: Path, model: Any, labels: Any) -> str:
    """Fit a model, and save it as an ONNX file; return its path."""
    path = folder / "model.onnx"
    x = ROWS.to_numpy()
    path.write_bytes(to_onnx(model.fit(x, labels), x[:1]).SerializeToString())
    return str(path)


def verification(con: sqlml.Session) -> str:
    return str(dict(con.execute("DESCRIBE MODEL m").fetchall())["verification"])


@pytest.mark.by_day(2)
@pytest.mark.parametrize("model", [LogisticRegression(), RandomForestClassifier(4, random_state=0)])
@pytest.mark.parametrize(
    ("labels", "kind"),
    [
        (np.array([1, 2, 3]), "BIGINT"),
        (np.array([-1, 5, 9]), "BIGINT"),
        (np.array(["x", "y", "z"]), "VARCHAR"),
    ],
)
def test_labels_and_keys_are_those_of_the_file(
    con: sqlml.Session, tmp_path: Path, model: Any, labels: Any, kind: str
) -> None:
    path = save(tmp_path, model, labels[CLASS])
    con.execute(f"CREATE MODEL m FROM '{path}'")
    first = labels[0].item()
    found = con.execute(
        "SELECT predict('m', a, b, c) AS p, predict_proba('m', a, b, c) AS every, "
        f"predict_proba('m', a, b, c, class := {first!r}) AS one, typeof(p) FROM t"
    ).fetchall()
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    predicted, maps = session.run(None, {"X": ROWS.to_numpy()})
    assert [row[0] for row in found] == predicted.tolist()
    assert [list(row[1]) for row in found] == [list(m) for m in maps]
    np.testing.assert_allclose([row[2] for row in found], [m[first] for m in maps], rtol=1e-5)
    assert {row[3] for row in found} == {kind}


def test_a_file_is_evaluated_with_its_labels(con: sqlml.Session, tmp_path: Path) -> None:
    path = save(tmp_path, LogisticRegression(), np.array([-1, 5, 9])[CLASS])
    con.execute(f"CREATE MODEL m INPUT (a FLOAT, b FLOAT, c FLOAT) FROM '{path}'")
    (accuracy,) = con.execute("SELECT avg((predict('m', *) = answer)::INTEGER) FROM t").fetchone()
    (evaluated,) = con.execute(
        "SELECT accuracy FROM ml_evaluate(MODEL m, TABLE t, label := 'answer')"
    ).fetchone()
    assert accuracy == pytest.approx(evaluated) and accuracy > 0.7


@pytest.mark.by_day(5)
@pytest.mark.parametrize(
    "arguments", ["a, b, c", "[a, b, c]", "list", "fixed", "X_0 := a, X_1 := b, X_2 := c"]
)
def test_columns_without_names_have_default_names(
    con: sqlml.Session, tmp_path: Path, arguments: str
) -> None:
    path = save(tmp_path, LogisticRegression(), CLASS)
    con.execute(f"CREATE MODEL m FROM '{path}'")
    con.execute(f"CREATE MODEL named INPUT (a FLOAT, b FLOAT, c FLOAT) FROM '{path}'")
    found = con.execute(
        f"SELECT predict_proba('m', {arguments}), predict_proba('named', *) FROM t"
    ).fetchall()
    assert all(one == other for one, other in found)


def test_columns_of_the_table_do_not_feed_default_names(con: sqlml.Session, tmp_path: Path) -> None:
    con.execute(f"CREATE MODEL m FROM '{save(tmp_path, LogisticRegression(), CLASS)}'")
    with pytest.raises(errors.MissingColumnError, match="X_0"):
        con.execute("SELECT predict('m', *) FROM t")


def test_a_file_is_compared_with_onnxruntime(con: sqlml.Session, tmp_path: Path) -> None:
    path = save(tmp_path, RandomForestClassifier(4, random_state=0), np.array([3, 4, 7])[CLASS])
    con.execute(f"CREATE MODEL m FROM '{path}'")
    assert "rows=" in verification(con) and "label_flips=0" in verification(con)
    con.execute("DROP MODEL m")
    con.execute(f"CREATE MODEL m FROM '{path}' OPTIONS (verify = false)")
    assert "rows=" not in verification(con)


@pytest.mark.parametrize("wrong", [(1, 2, 3), (3, 2, 1)], ids=["other labels", "other order"])
def test_a_comparison_sees_other_labels_and_keys(tmp_path: Path, wrong: tuple[int, ...]) -> None:
    """Numbers under the wrong keys are a difference, as are labels."""
    path = save(tmp_path, LogisticRegression(), np.array([1, 2, 5])[CLASS])
    content = Path(path).read_bytes()
    imported = import_model(read_artifact(content, format="ONNX", path=path, allow_pickle=False))
    program = imported.program
    model = onnx.load_from_string(content)
    agreed = verify_source(open_object_source(model, program), program, imported.features)
    assert agreed.agrees and agreed.rows >= 128
    forged = replace(program, labels=(Labels("int64", wrong),))
    found = verify_source(open_object_source(model, forged), forged, imported.features)
    assert not found.agrees
    assert {d.output for d in found.differences if not d.agrees} == {"label", "proba"}


def test_a_column_without_weight_may_be_missing(con: sqlml.Session, tmp_path: Path) -> None:
    """onnxruntime computes 0 * NaN, while sqlml does not read the column."""
    x = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
    model = Lasso(alpha=0.1).fit(x, 3 * x[:, 0] + 1)
    assert model.coef_[1] == model.coef_[2] == 0
    path = tmp_path / "m.onnx"
    onnx.save(to_onnx(model, x[:1]), str(path))
    con.execute(f"CREATE MODEL sparse INPUT (a FLOAT, b FLOAT, c FLOAT) FROM '{path}'")
    query = "SELECT predict('sparse', {a: 0.5, b: NULL::FLOAT, c: 1.0})"
    ((got,),) = con.execute(query).fetchall()
    assert got == pytest.approx(float(model.predict([[0.5, 0, 1]])[0]), rel=1e-5)
