"""EXPORT MODEL: what is written, where it may be written, and that it is the same model again."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import onnxruntime
import pandas as pd
import pytest
from skl2onnx import to_onnx
from skl2onnx.common.data_types import FloatTensorType, StringTensorType
from sklearn.compose import make_column_transformer
from sklearn.ensemble import GradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    OneHotEncoder,
    OrdinalEncoder,
    StandardScaler,
)
from sklearn.tree import DecisionTreeRegressor

import sqlml
from sqlml import errors
from sqlml.ir import store
from sqlml.ir.builder import Builder

RNG = np.random.default_rng(0)
FRAME = pd.DataFrame(
    {
        "age": RNG.integers(18, 90, 300).astype(float),
        "income": RNG.lognormal(3, 1, 300),
        "plan": RNG.choice(["basic", "pro"], 300),
    }
)
CHURN = np.where((FRAME.age > 50) ^ (FRAME.plan == "pro"), "yes", "no")
NUMBERS = ["age", "income"]


def pipeline(last: Any, encoder: Any) -> Any:
    numeric = make_pipeline(SimpleImputer(), StandardScaler())
    return make_pipeline(make_column_transformer((numeric, NUMBERS), (encoder, ["plan"])), last)


@pytest.fixture(scope="module")
def churn() -> Any:
    encoder = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    return pipeline(LogisticRegression(), encoder).fit(FRAME, CHURN)


@pytest.fixture
def con(churn: Any) -> Any:
    with sqlml.connect() as session:
        session.create_model("churn", churn, verify=False)
        session.register("t", FRAME)
        yield session


def scored(path: Path | bytes, frame: pd.DataFrame = FRAME) -> dict[str, np.ndarray]:
    """What onnxruntime makes of an exported file."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    content = path if isinstance(path, bytes) else path.read_bytes()
    session = onnxruntime.InferenceSession(content, options)
    feed = {
        i.name: frame[[i.name]].to_numpy(object if "string" in i.type else np.float64)
        for i in session.get_inputs()
    }
    names = [o.name for o in session.get_outputs()]
    return dict(zip(names, session.run(names, feed), strict=True))


@pytest.mark.parametrize("form", ["FORMAT ONNX", "(FORMAT onnx)", ""])
def test_onnx_has_a_column_an_input_and_the_labels_themselves(
    con: Any, churn: Any, tmp_path: Path, form: str
) -> None:
    path = tmp_path / "it's.onnx"
    con.execute(f"EXPORT MODEL churn TO '{str(path).replace(chr(39), chr(39) * 2)}' {form}")
    made = scored(path)
    assert list(made["label"]) == list(churn.predict(FRAME))
    assert made["label"].shape == (300,)
    np.testing.assert_allclose(made["probabilities"], churn.predict_proba(FRAME), rtol=1e-12)
    np.testing.assert_allclose(made["scores"][:, 0], churn.decision_function(FRAME), rtol=1e-12)


def test_both_formats_come_back_as_the_same_model(con: Any, churn: Any, tmp_path: Path) -> None:
    for form in ("onnx", "sqlml"):
        path = tmp_path / f"m.{form}"
        assert con.export_model("churn", path) is con
        con.execute(f"CREATE MODEL back_{form} FROM '{path}'")
        rows = con.execute(
            f"SELECT predict('back_{form}', *), predict('churn', *), "
            f"predict_proba('back_{form}', *, class := 'yes') FROM t"
        ).fetchall()
        assert [r[0] for r in rows] == [r[1] for r in rows] == list(churn.predict(FRAME))
        proba = churn.predict_proba(FRAME)[:, 1]
        np.testing.assert_allclose([r[2] for r in rows], proba, rtol=1e-12)


def test_trees_over_strings_come_back_with_their_nulls(con: Any, tmp_path: Path) -> None:
    holes = FRAME.assign(plan=FRAME.plan.astype(object).where(RNG.random(300) > 0.2, None))
    encoder = OneHotEncoder(handle_unknown="ignore")
    model = pipeline(GradientBoostingClassifier(n_estimators=5), encoder).fit(holes, CHURN)
    con.create_model("trees", model)
    con.export_model("trees", tmp_path / "m.onnx")
    con.execute(f"CREATE MODEL back FROM '{tmp_path / 'm.onnx'}'")
    con.register("holes", holes)
    rows = con.execute("SELECT predict('back', *), predict_proba('back', *) FROM holes").fetchall()
    assert [r[0] for r in rows] == list(model.predict(holes))
    want = model.predict_proba(holes)
    np.testing.assert_allclose([[r[1]["no"], r[1]["yes"]] for r in rows], want, rtol=1e-13)
    assert "onnxruntime backend" not in con.explain("SELECT predict('back', *) FROM holes")


def test_a_file_of_strings_that_runs_whole_scores_in_sql(con: Any, tmp_path: Path) -> None:
    model = make_pipeline(
        make_column_transformer((OneHotEncoder(), ["plan"]), ("passthrough", NUMBERS)),
        KNeighborsClassifier(metric="manhattan"),
    ).fit(FRAME, CHURN)
    types = [("age", FloatTensorType([None, 1])), ("income", FloatTensorType([None, 1]))]
    kinds = [*types, ("plan", StringTensorType([None, 1]))]
    content = to_onnx(model, initial_types=kinds).SerializeToString()
    (tmp_path / "near.onnx").write_bytes(content)
    con.execute(f"CREATE MODEL near FROM '{tmp_path / 'near.onnx'}'")
    narrow = FRAME.astype({"age": np.float32, "income": np.float32})
    feed = {n: narrow[[n]].to_numpy(object if n == "plan" else np.float32) for n in narrow}
    label = onnxruntime.InferenceSession(content).run(None, feed)[0]
    assert [r[0] for r in con.execute("SELECT predict('near', *) FROM t").fetchall()] == list(label)
    query = "SELECT predict('near', age, income, nullif(plan, 'pro')) FROM t"
    with pytest.raises(errors.MissingValueError, match="'plan' has NULL"):
        con.execute(query).fetchall()


def test_a_scorer_exports_too_and_trees_keep_their_bits() -> None:
    y = FRAME.income.to_numpy()
    model = HistGradientBoostingRegressor(max_iter=20).fit(FRAME[NUMBERS], y)
    holes = FRAME.mask(RNG.random(FRAME.shape) < 0.2)
    holes["plan"] = FRAME.plan
    made = scored(sqlml.compile(model).to_onnx(), holes)
    np.testing.assert_array_equal(made["label"], model.predict(holes[NUMBERS]))
    booster = pipeline(GradientBoostingClassifier(n_estimators=9), OrdinalEncoder())
    booster.fit(FRAME, CHURN)
    made = scored(sqlml.compile(booster).to_onnx())
    np.testing.assert_array_equal(made["scores"][:, 0], booster.decision_function(FRAME))
    assert list(made["label"]) == list(booster.predict(FRAME))


@pytest.mark.parametrize("function", [np.exp2, np.log2, np.log10, np.cbrt, np.tan])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_functions_that_onnx_lacks_are_spelt_with_others(function: Any, dtype: str) -> None:
    x = pd.DataFrame({"v": [-8.0, -0.5, 0.0, 1.0, 8.0, 1e-30, 99.0, np.inf, -np.inf]}, dtype=dtype)
    model = FunctionTransformer(function).fit(x)
    with np.errstate(all="ignore"):
        want = model.transform(x).to_numpy()
        made = scored(sqlml.compile(model).to_onnx(), x.astype("float64"))["transform"]
    np.testing.assert_allclose(made, want, rtol=1e-6 if dtype == "float32" else 1e-14)


def test_trees_with_categories_are_lowered() -> None:
    table = FRAME.assign(plan=(FRAME.plan == "pro").astype(float))
    model = HistGradientBoostingRegressor(max_iter=5, categorical_features=[2], min_samples_leaf=5)
    model.fit(table, table.age * (1 + table.plan))
    made = scored(sqlml.compile(model).to_onnx(), table)
    np.testing.assert_array_equal(made["label"], model.predict(table))


def test_the_graph_refuses_what_the_model_refuses(con: Any, churn: Any, tmp_path: Path) -> None:
    con.export_model("churn", tmp_path / "m.onnx")
    bad = FRAME.copy()
    bad.loc[3, "age"] = np.inf
    with pytest.raises(ValueError, match="infinity"):
        churn.predict(bad)
    with pytest.raises(Exception, match="SimpleImputer does not take infinity in age"):
        scored(tmp_path / "m.onnx", bad)
    con.execute(f"CREATE MODEL back FROM '{tmp_path / 'm.onnx'}'")
    con.register("bad", bad)
    with pytest.raises(errors.MissingValueError, match="'age' has infinity .* SimpleImputer"):
        con.execute("SELECT predict('back', *) FROM bad").fetchall()
    strict = pipeline(LogisticRegression(), OrdinalEncoder()).fit(FRAME, CHURN)
    with pytest.raises(Exception, match="OrdinalEncoder has never seen a category of plan"):
        scored(sqlml.compile(strict).to_onnx(), FRAME.assign(plan="other"))


def test_the_engines_own_access_rules_hold(con: Any, tmp_path: Path) -> None:
    con.execute("SET enable_external_access = false")
    with pytest.raises(duckdb.PermissionException):
        con.execute(f"EXPORT MODEL churn TO '{tmp_path / 'm.onnx'}'")
    assert not list(tmp_path.iterdir())


def test_no_file_is_read_where_the_engine_may_not(con: Any, tmp_path: Path) -> None:
    path = tmp_path / "m.sqlml"
    con.execute(f"EXPORT MODEL churn TO '{path}'")
    con.execute("SET enable_external_access = false")
    for statement in (
        f"CREATE MODEL again FROM '{path}'",
        f"ALTER MODEL churn ADD VERSION FROM '{path}'",
        f"VERIFY MODEL churn USING (FROM t) AGAINST '{path}'",
    ):
        with pytest.raises(duckdb.PermissionException):
            con.execute(statement)
    assert con.execute("SELECT versions FROM sqlml.models").fetchall() == [(1,)]
    assert len(con.execute("SELECT predict('churn', *) FROM t").fetchall()) == len(FRAME)


def test_a_file_of_ours_has_all_that_the_model_is(tmp_path: Path) -> None:
    """Also columns that nobody reads, so that calls by position stay what they are."""
    frame = pd.DataFrame({"b": RNG.normal(size=50), "unused": "x", "a": RNG.normal(size=50)})
    read = make_column_transformer(("passthrough", ["b", "a"]))
    model = make_pipeline(read, DecisionTreeRegressor(max_depth=3)).fit(frame, frame.b - frame.a)
    path = tmp_path / "m.sqlml"
    with sqlml.connect() as con:
        con.create_model("m", model)
        con.execute(f"EXPORT MODEL m TO '{path}'")
        with pytest.raises(errors.ConfigError, match="another order: b, unused, a"):
            con.execute(f"CREATE MODEL n INPUT (a DOUBLE, unused DOUBLE, b DOUBLE) FROM '{path}'")
        with pytest.raises(errors.ParseError, match="column B is given twice"):
            con.execute(f"CREATE MODEL n INPUT (b DOUBLE, B DOUBLE, a DOUBLE) FROM '{path}'")
        con.execute(f"CREATE MODEL n FROM '{path}'")
        con.execute(
            f"CREATE MODEL o INPUT (b DOUBLE, unused VARCHAR, a FLOAT) FROM '{path}' FORMAT SQLML"
        )
        for name in ("m", "n", "o"):
            rows = con.execute(f"SELECT predict('{name}', b, unused, a) FROM frame").fetchall()
            assert [r[0] for r in rows] == model.predict(frame).tolist()
        told = "SELECT DISTINCT hash, source, library FROM sqlml.model_versions"
        assert len(con.execute(told).fetchall()) == 1
        con.execute(f"EXPORT MODEL n TO '{tmp_path / 'n.sqlml'}'")
        assert (tmp_path / "n.sqlml").read_bytes() == path.read_bytes()
        con.execute("ALTER MODEL n SET OPTIONS (on_null = 'null', batch_size = 7)")
        con.execute(f"EXPORT MODEL n TO '{path}'")
        con.execute(f"CREATE MODEL p OUTPUT (gap DOUBLE) FROM '{path}' OPTIONS (batch_size = 9)")
        con.execute(f"EXPORT MODEL p TO '{path}'")
        con.execute(f"CREATE MODEL q FROM '{path}'")
        told = "SELECT options FROM sqlml.model_versions WHERE name = 'q'"
        assert json.loads(con.execute(told).fetchall()[0][0]) == {
            **{"on_null": "null", "batch_size": 9},
            "output": "gap",
            "estimator": {
                "class": "sklearn.tree._classes.DecisionTreeRegressor",
                "parameters": {"max_depth": 3},
            },
        }


def test_sql_answers_as_the_options_say(con: Any, tmp_path: Path) -> None:
    holes = FRAME[NUMBERS].mask(RNG.random((len(FRAME), 2)) < 0.1)
    model = LogisticRegression().fit(FRAME[NUMBERS], CHURN)
    con.create_model("m", model, on_null="null", positive_class="yes")
    con.register("holes", holes)
    con.execute(f"EXPORT MODEL m TO '{tmp_path / 'm.sql'}'")
    with duckdb.connect() as plain:
        plain.register("holes", holes)
        plain.execute((tmp_path / "m.sql").read_text())
        got = plain.execute("SELECT m(age, income), m_proba(age, income) FROM holes").fetchall()
        ints = plain.execute("SELECT m(50, 20), m(50, NULL), m('nan'::FLOAT, 1.5)").fetchall()
    assert got == con.execute("SELECT predict('m', *), predict_proba('m', *) FROM holes").fetchall()
    assert [row[0] is None for row in got] == holes.isna().any(axis=1).tolist()
    assert ints == [(model.predict([[50, 20]])[0], None, None)]


@pytest.mark.parametrize(
    "options",
    [{"nope": 1}, {"batch_size": "1); --"}, {"on_null": 3}, {"output": ["x"]}, {"backend": "x"}],
)
def test_options_that_a_file_says_are_checked(options: Any, tmp_path: Path) -> None:
    b = Builder()
    program = b.build({"label": b.op("neg", b.input("a", "float64", 1))})
    told = {"features": [["a", "number"]], "source": "x", "library": "y", "options": options}
    (tmp_path / "m.sqlml").write_bytes(store.dumps(program, told))
    with sqlml.connect() as con, pytest.raises(errors.ConfigError):
        con.execute(f"CREATE MODEL m FROM '{tmp_path / 'm.sqlml'}'")


@pytest.mark.parametrize(
    "told",
    [
        {},
        {"features": 3, "source": "x", "library": "y"},
        {"features": [["a", "number"]], "source": "x"},
        {"features": [["a", "number"], ["A", "any"]], "source": "x", "library": "y"},
        {"features": [["a", "string"]], "source": "x", "library": "y"},
        {"features": [["b", "any"]], "source": "x", "library": "y"},
        {"features": [["a", "number"], ["b", "number"]], "source": "x", "library": "y"},
        {"features": [["a", "number"], ["b", "code"]], "source": "x", "library": "y"},
        {"features": [["a", "number"], [["b"], "any"]], "source": "x", "library": "y"},
        {"features": [["a", "number"]], "source": None, "library": "y"},
        {"features": [["a", "number"]], "source": "\ud800", "library": "y"},
        {"features": [["a", "number"]], "source": "x", "library": "y", "options": 3},
        {"features": [["a", "number"], ["\ud800", "any"]], "source": "x", "library": "y"},
    ],
)
def test_what_a_file_says_of_its_model_is_checked(told: Any, tmp_path: Path) -> None:
    b = Builder()
    program = b.build({"label": b.op("neg", b.input("a", "float64", 1))})
    (tmp_path / "m.sqlml").write_bytes(store.dumps(program, told))
    damaged = "the columns in the header of the model file are damaged"
    with sqlml.connect() as con, pytest.raises(errors.ArtifactError, match=damaged):
        con.execute(f"CREATE MODEL m FROM '{tmp_path / 'm.sqlml'}'")


def test_export_sees_the_transaction(con: Any, tmp_path: Path) -> None:
    con.execute("BEGIN")
    con.execute("DROP MODEL churn")
    with pytest.raises(errors.UnknownModelError):
        con.execute(f"EXPORT MODEL churn TO '{tmp_path / 'm.onnx'}'")
    con.execute("ROLLBACK")
    con.execute(f"EXPORT MODEL churn TO '{tmp_path / 'm.onnx'}'")


def test_what_is_wrong_is_said(con: Any, tmp_path: Path) -> None:
    with pytest.raises(errors.ParseError, match="unknown format PICKLE; formats: ONNX, SQLML, SQL"):
        con.execute("EXPORT MODEL churn TO 'm.bin' FORMAT PICKLE")
    with pytest.raises(errors.ParseError, match="path of the file"):
        con.execute("EXPORT MODEL churn TO m")
    with pytest.raises(errors.ConfigError, match="cannot tell the format of 'm.bin'"):
        con.execute("EXPORT MODEL churn TO 'm.bin'")
    with pytest.raises(errors.ConfigError, match="formats: ONNX, SQLML"):
        con.export_model("churn", "m.bin", format="pmml")
    with pytest.raises(errors.UnknownModelError):
        con.execute("EXPORT MODEL nobody TO 'm.onnx'")


@pytest.mark.parametrize("path", ["", " ", "new/", "/"])
def test_a_path_that_names_no_file_is_refused(
    con: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for ending in ("FORMAT SQLML", "(DIALECT sqlite, TABLE t)"):
        with pytest.raises(errors.ConfigError, match=f"'{path}' names no file; write EXPORT"):
            con.execute(f"EXPORT MODEL churn TO '{path}' {ending}")
    with pytest.raises(errors.ConfigError, match="names no file"):
        con.export_model("churn", path, format="ONNX")
    assert list(tmp_path.iterdir()) == []


def test_an_onnx_file_that_runs_whole_scores_in_sql(con: Any, tmp_path: Path) -> None:
    x = FRAME[NUMBERS].to_numpy(np.float32)
    model = KNeighborsClassifier(metric="manhattan").fit(x, CHURN)
    content = to_onnx(model, x[:1]).SerializeToString()
    (tmp_path / "near.onnx").write_bytes(content)
    con.execute(
        f"CREATE MODEL near INPUT (age DOUBLE, income DOUBLE) FROM '{tmp_path / 'near.onnx'}'"
    )
    session = onnxruntime.InferenceSession(content)
    label, maps = session.run(None, {"X": x})
    got = con.execute("SELECT predict('near', *), predict_proba('near', *) FROM t").fetchall()
    assert [r[0] for r in got] == list(label)
    want = [[m["no"], m["yes"]] for m in maps]
    np.testing.assert_allclose([[r[1]["no"], r[1]["yes"]] for r in got], want, rtol=1e-6)
    assert "onnxruntime backend" in con.explain("SELECT predict('near', *) FROM t")
    with pytest.raises(errors.BackendError, match="no equivalent of operator onnx_graph"):
        con.export_model("near", tmp_path / "again.onnx")
    con.export_model("near", tmp_path / "again.sqlml")
    con.execute(f"CREATE MODEL again FROM '{tmp_path / 'again.sqlml'}'")
    again = con.execute("SELECT predict('again', *) FROM t").fetchall()
    assert [r[0] for r in again] == list(label)


def test_a_model_that_onnx_cannot_hold_says_so(con: Any, tmp_path: Path) -> None:
    clash = LogisticRegression().fit(FRAME[["age"]].rename(columns={"age": "label"}), CHURN)
    with pytest.raises(errors.BackendError, match="column called 'label' cannot be exported"):
        sqlml.compile(clash).to_onnx()
    sparse = pipeline(LogisticRegression(), OneHotEncoder()).fit(FRAME, CHURN)
    made = scored(sqlml.compile(sparse).to_onnx())
    assert list(made["label"]) == list(sparse.predict(FRAME))


@pytest.mark.parametrize("strategy", ["auto", "traverse", "gemm", "tt", "ptt"])
def test_any_model_runs_on_the_onnxruntime_backend(churn: Any, strategy: str) -> None:
    scorer = sqlml.compile(churn, backend="onnxruntime", strategy=strategy)
    assert list(scorer.predict(FRAME)) == list(churn.predict(FRAME))
    np.testing.assert_allclose(scorer.predict_proba(FRAME), churn.predict_proba(FRAME), rtol=1e-12)


@pytest.mark.parametrize("path", ["churn.sql", "it's churn.SQL"])
def test_macros_of_sql_score_in_plain_duckdb(
    con: sqlml.Session, churn: Any, tmp_path: Path, path: str
) -> None:
    target = tmp_path / path
    con.execute(f"EXPORT MODEL churn TO '{str(target).replace(chr(39), chr(39) * 2)}'")
    text = target.read_text()
    assert not re.search(r"sqlml_\w*\(", text)
    frame = FRAME.copy()
    frame.loc[::4, "age"] = np.nan
    frame.loc[::5, "plan"] = "unheard of"
    with duckdb.connect() as plain:
        plain.execute(text)
        plain.register("t", frame)
        found = plain.execute(
            "SELECT churn(age, income, plan) AS label, churn_score(age, income, plan) AS score, "
            "churn_proba(age := age, income := income, plan := plan)['yes'] AS yes FROM t"
        ).fetchnumpy()
    assert list(found["label"]) == list(churn.predict(frame))
    np.testing.assert_allclose(found["yes"], churn.predict_proba(frame)[:, 1], rtol=1e-9)
    np.testing.assert_allclose(found["score"], churn.decision_function(frame), rtol=1e-9)


def test_a_model_of_trees_as_macros(con: sqlml.Session, tmp_path: Path) -> None:
    model = GradientBoostingClassifier(n_estimators=10).fit(FRAME[NUMBERS], CHURN)
    con.create_model('say "hi"', model)
    con.execute(f'EXPORT MODEL "say ""hi""" TO \'{tmp_path}/m\' (FORMAT SQL)')
    with duckdb.connect() as plain:
        plain.execute((tmp_path / "m").read_text())
        plain.register("t", FRAME)
        labels = plain.execute('SELECT "say ""hi"""(age, income) AS y FROM t').fetchnumpy()["y"]
    assert list(labels) == list(model.predict(FRAME[NUMBERS]))


def test_what_cannot_be_written_as_sql_says_why(con: sqlml.Session, tmp_path: Path) -> None:
    con.create_model("near", KNeighborsClassifier().fit(FRAME[NUMBERS], CHURN))
    with pytest.raises(errors.BackendError, match="nearest"):
        con.execute(f"EXPORT MODEL near TO '{tmp_path}/near.sql'")
    assert not (tmp_path / "near.sql").exists()
