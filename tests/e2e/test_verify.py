"""A registered model held against its source: at CREATE, and by VERIFY MODEL."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import catboost
import joblib
import lightgbm
import numpy as np
import onnx
import pandas as pd
import pytest
import torch
import xgboost
from skl2onnx import to_onnx
from sklearn.compose import make_column_transformer
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import sqlml
from sqlml import errors

ROWS = 300
NAMES = ["a", "b", "c"]


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    """Three columns of numbers, with zeros and ties."""
    rng = np.random.default_rng(5)
    return pd.DataFrame(
        {"a": rng.normal(size=ROWS), "b": rng.integers(0, 4, ROWS) * 1.0, "c": rng.random(ROWS)}
    )


@pytest.fixture(scope="module")
def labels(frame: pd.DataFrame) -> Any:
    return ((frame.a + frame.b * frame.c) > 0.7).astype(int).to_numpy()


@pytest.fixture
def con(frame: pd.DataFrame) -> Iterator[sqlml.Session]:
    with sqlml.connect(allow_pickle=True) as made:
        made.register("t", frame)
        yield made


def kept(con: sqlml.Session, name: str = "m") -> Any:
    """What the catalog keeps of the comparison at CREATE."""
    ask = "SELECT verification FROM sqlml.model_versions WHERE name = ?"
    ((text,),) = con.execute(ask, [name]).fetchall()
    return None if text is None else json.loads(text)


class Wide(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = torch.nn.Linear(3, 8), torch.nn.Linear(8, 1)

    def forward(self, x: Any) -> Any:
        return self.last(torch.relu(self.first(x)))


Maker = Callable[[pd.DataFrame, Any], Any]
OBJECTS: dict[str, Maker] = {
    "sklearn": lambda x, y: make_pipeline(StandardScaler(), LogisticRegression()).fit(x, y),
    "sklearn without names": lambda x, y: LogisticRegression().fit(x.to_numpy(), y),
    "sklearn trees": lambda x, y: GradientBoostingClassifier(n_estimators=9).fit(x, y),
    "xgboost": lambda x, y: xgboost.XGBClassifier(n_estimators=9).fit(x, y),
    "xgboost without names": lambda x, y: xgboost.XGBRegressor(n_estimators=9).fit(x.to_numpy(), y),
    "booster": lambda x, y: xgboost.train(
        {"objective": "binary:logistic"}, xgboost.DMatrix(x, y), 9
    ),
    "lightgbm": lambda x, y: lightgbm.LGBMClassifier(n_estimators=9, verbose=-1).fit(x, y),
    "lightgbm booster": lambda x, y: lightgbm.train(
        {"objective": "multiclass", "num_class": 3, "verbose": -1},
        lightgbm.Dataset(x, y + (x.b > 2)),
        9,
    ),
    "catboost": lambda x, y: catboost.CatBoostClassifier(
        iterations=9, verbose=0, allow_writing_files=False
    ).fit(x, y),
    "catboost regression": lambda x, y: catboost.CatBoostRegressor(
        iterations=9, verbose=0, allow_writing_files=False
    ).fit(x, y),
    "onnx": lambda x, y: to_onnx(
        LogisticRegression().fit(x.to_numpy(), y), x.to_numpy(np.float32)[:1]
    ),
    "torch": lambda x, y: Wide(),
}


@pytest.mark.by_day(2)
@pytest.mark.parametrize("kind", OBJECTS)
def test_a_model_is_compared_with_the_object_that_it_came_from(
    con: sqlml.Session, frame: pd.DataFrame, labels: Any, kind: str
) -> None:
    con.create_model("m", OBJECTS[kind](frame, labels), inputs=NAMES)
    found = kept(con)
    assert found["rows"] >= 128, found
    assert found["deviation"] <= 2e-5 and found["label_flips"] <= 1
    assert "deviation=" in dict(con.execute("DESCRIBE MODEL m").fetchall())["verification"]


def test_strings_and_missing_values_are_among_the_rows(con: sqlml.Session) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"plan": rng.choice(["x", "y"], 60), "n": rng.normal(size=60)})
    encode = make_column_transformer((OneHotEncoder(handle_unknown="ignore"), ["plan"]))
    con.create_model("m", make_pipeline(encode, LogisticRegression()).fit(frame, frame.n > 0))
    assert kept(con)["rows"] in range(128, 5 * 128, 128)  # fewer on a busy machine


def test_what_cannot_be_compared_says_why(con: sqlml.Session) -> None:
    con.create_model("m", TfidfVectorizer(analyzer="char").fit(["ab", "ba", "cc"]), inputs=["text"])
    assert "rows" in kept(con) or "skipped" in kept(con)
    con.create_model(
        "off", LinearRegression().fit([[0.0], [1.0]], [0, 1]), inputs=["a"], verify=False
    )
    assert kept(con, "off") is None


def other(model: Any) -> Any:
    """The model, that answers a little more than its weights say."""
    honest = model.predict
    model.predict = lambda x: honest(x) + 1e-3
    return model


def test_a_model_that_answers_otherwise_is_refused(
    con: sqlml.Session, frame: pd.DataFrame, labels: Any, tmp_path: Path
) -> None:
    model = other(LinearRegression().fit(frame, labels))
    with pytest.raises(errors.VerificationError, match=r"label differs by .*verify = 'record'"):
        con.create_model("m", model)
    assert con.execute("SHOW MODELS").fetchall() == []
    con.create_model("m", model, verify="record")
    assert kept(con)["deviation"] > 1e-4
    with pytest.raises(errors.VerificationError):
        con.add_version("m", model)
    with pytest.raises(errors.ConfigError, match="takes true, false or 'record'"):
        con.create_model("n", model, verify="maybe")
    with pytest.raises(errors.ConfigError, match="takes true, false or 'record'"):
        con.create_model("n", model, verify=1)
    path = tmp_path / "m.joblib"
    model.predict = None
    del model.predict
    joblib.dump(model, path)
    con.execute(f"CREATE MODEL p FROM '{path}' OPTIONS (verify = true, allow_pickle = true)")
    assert kept(con, "p")["deviation"] < 1e-9


def test_labels_that_differ_are_counted(
    con: sqlml.Session, frame: pd.DataFrame, labels: Any
) -> None:
    model = LogisticRegression().fit(frame, labels)
    honest = model.predict
    model.predict = lambda x: 1 - honest(x)
    with pytest.raises(errors.VerificationError, match="labels differ"):
        con.create_model("m", model)


def saved(kind: str, model: Any, folder: Path) -> Path:
    """A model in a file of its own library."""
    if kind == "xgboost":
        model.save_model(folder / "m.json")
        return folder / "m.json"
    if kind == "booster":
        model.save_model(folder / "m.ubj")
        return folder / "m.ubj"
    if kind == "lightgbm":
        model.booster_.save_model(folder / "m.txt")
        return folder / "m.txt"
    if kind.startswith("catboost"):
        model.save_model(str(folder / "m.json"), format="json")
        return folder / "m.json"
    if kind == "onnx":
        onnx.save(model, str(folder / "m.onnx"))
        return folder / "m.onnx"
    if kind == "torch":
        rows = torch.export.Dim("rows", min=1)
        made = torch.export.export(model.eval(), (torch.zeros(2, 3),), dynamic_shapes=({0: rows},))
        torch.export.save(made, folder / "m.pt2")
        return folder / "m.pt2"
    joblib.dump(model, folder / "m.joblib")
    return folder / "m.joblib"


@pytest.mark.by_day(8)
@pytest.mark.parametrize(
    "kind",
    [
        *("sklearn", "xgboost", "booster", "lightgbm", "catboost", "catboost regression"),
        *("onnx", "torch"),
    ],
)
def test_verify_compares_with_the_file(
    con: sqlml.Session, frame: pd.DataFrame, labels: Any, kind: str, tmp_path: Path
) -> None:
    path = saved(kind, OBJECTS[kind](frame, labels), tmp_path)
    con.execute(f"CREATE MODEL m INPUT (a DOUBLE, b DOUBLE, c DOUBLE) FROM '{path}'")
    for against in ("", f" AGAINST '{path}'"):
        found = con.execute(f"VERIFY MODEL m USING (SELECT c AS C, * FROM t){against}").fetchall()
        names = [d[0] for d in con.connection.description]
        assert names[:2] == ["output", "rows"] and found
        for row in found:
            told = dict(zip(names, row, strict=True))
            assert told["rows"] == ROWS and told["agrees"], told
            assert told["max_deviation"] <= told["allowed"]


def test_verify_tells_how_far_another_model_is(
    con: sqlml.Session, frame: pd.DataFrame, labels: Any, tmp_path: Path
) -> None:
    con.create_model("m", xgboost.XGBClassifier(n_estimators=9).fit(frame, labels))
    theirs = xgboost.XGBClassifier(n_estimators=5).fit(frame, 1 - labels)
    theirs.save_model(tmp_path / "other.json")
    path = tmp_path / "other.json"
    found = con.execute(f"VERIFY MODEL m USING (FROM t) AGAINST '{path}'").fetchall()
    assert found and not any(row[-1] for row in found)
    proba = next(row for row in found if row[0] == "proba")
    assert proba[2] > 0.1
    con.execute(f"EXPORT MODEL m TO '{tmp_path / 'm.sqlml'}'")
    same = con.execute(f"VERIFY MODEL m USING (FROM t) AGAINST '{tmp_path / 'm.sqlml'}'").fetchall()
    assert {row[0] for row in same} == {"label", "proba", "score"}
    assert all(row[-1] and row[5] == 0 for row in same)


def test_rows_for_which_on_null_gives_null_are_left_out(
    con: sqlml.Session, frame: pd.DataFrame, labels: Any, tmp_path: Path
) -> None:
    model = LogisticRegression().fit(frame.fillna(0.0), labels)
    path = saved("sklearn", model, tmp_path)
    con.execute(
        f"CREATE MODEL m INPUT (a DOUBLE, b DOUBLE, c DOUBLE) FROM '{path}' "
        "OPTIONS (on_null = 'null')"
    )
    fifth = "CASE WHEN row_number() OVER () % 5 = 0 THEN NULL ELSE coalesce(a, 0) END AS a"
    rows = f"SELECT {fifth}, coalesce(b, 0) AS b, coalesce(c, 0) AS c FROM t"
    found = con.execute(f"VERIFY MODEL m USING ({rows})").fetchall()
    assert {row[1] for row in found} == {ROWS - ROWS // 5} and all(row[-1] for row in found)
    with pytest.raises(errors.VerificationError, match="each of these rows lacks a value"):
        con.execute("VERIFY MODEL m USING (SELECT NULL AS a, 1 AS b, 1 AS c)")


def test_verify_asks_for_what_it_needs(
    con: sqlml.Session, frame: pd.DataFrame, labels: Any, tmp_path: Path
) -> None:
    model = xgboost.XGBClassifier(n_estimators=3).fit(frame, labels)
    con.create_model("m", model)
    for statement, error, says in (
        ("VERIFY MODEL m USING (FROM t)", errors.ConfigError, "AGAINST"),
        ("VERIFY MODEL nope USING (FROM t)", errors.UnknownModelError, "nope"),
        ("VERIFY MODEL m USING (FROM t) AGAINST 'no.json'", errors.ArtifactError, "no such file"),
    ):
        with pytest.raises(error, match=says):
            con.execute(statement)
    path = tmp_path / "m.json"
    model.save_model(path)
    with pytest.raises(errors.MissingColumnError, match="needs c; the query has a, b"):
        con.execute(f"VERIFY MODEL m USING (SELECT a, b FROM t) AGAINST '{path}'")
    con.execute(f"CREATE MODEL f INPUT (a DOUBLE, b DOUBLE, c DOUBLE) FROM '{path}'")
    xgboost.XGBClassifier(n_estimators=4).fit(frame, labels).save_model(path)
    with pytest.raises(errors.ArtifactError, match="does not have the sha256"):
        con.execute("VERIFY MODEL f USING (FROM t)")
    with sqlml.attach(con.connection.cursor()) as plain:
        pt2 = saved("torch", Wide(), tmp_path)
        with pytest.raises(errors.UntrustedArtifactError, match="allow_pickle"):
            plain.execute(f"VERIFY MODEL m USING (FROM t) AGAINST '{pt2}'")


@pytest.mark.parametrize(
    "query",
    [
        "DROP TABLE kept",
        "CREATE TABLE made (a INT)",
        "SET threads = 1",
        "INSERT INTO kept VALUES (1)",
    ],
)
def test_what_is_no_query_is_not_run(con: sqlml.Session, query: str, tmp_path: Path) -> None:
    con.execute("CREATE TABLE kept AS SELECT 1 AS a")
    con.create_model("m", LinearRegression().fit([[0.0], [1.0]], [0, 1]), inputs=["a"])
    con.execute(f"EXPORT MODEL m TO '{tmp_path / 'm.sqlml'}'")
    with pytest.raises(errors.ParseError, match="takes one query"):
        con.execute(f"VERIFY MODEL m USING ({query}) AGAINST '{tmp_path / 'm.sqlml'}'")
    assert con.execute(
        "SELECT table_name FROM duckdb_tables() WHERE schema_name = 'main'"
    ).fetchall() == [("kept",)]
    assert con.execute("FROM kept").fetchall() == [(1,)]
    with pytest.raises(errors.ParseError, match="without model calls"):
        calls = "SELECT *, predict('m', *) AS p FROM kept"
        con.execute(f"VERIFY MODEL m USING ({calls}) AGAINST '{tmp_path / 'm.sqlml'}'")
    with pytest.raises(errors.ConfigError, match="returns no rows"):
        con.execute(f"VERIFY MODEL m USING (FROM kept LIMIT 0 -- x\n) AGAINST '{tmp_path}/m.sqlml'")
    found = con.execute(f"VERIFY MODEL m USING (FROM kept -- x\n) AGAINST '{tmp_path}/m.sqlml'")
    assert all(row[-1] for row in found.fetchall())


def test_a_pickle_is_verified_with_leave_alone(
    frame: pd.DataFrame, labels: Any, tmp_path: Path
) -> None:
    path = tmp_path / "m.pickle"
    joblib.dump(LogisticRegression().fit(frame, labels), path)
    with sqlml.connect() as con:
        con.register("t", frame)
        con.execute(f"CREATE MODEL m FROM '{path}' FORMAT PICKLE OPTIONS (allow_pickle = true)")
        with pytest.raises(errors.UntrustedArtifactError, match="connect with allow_pickle"):
            con.execute("VERIFY MODEL m USING (FROM t)")
