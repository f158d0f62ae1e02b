"""`sqlml.compile`: a fitted object outside SQL; its methods, options and life."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import xgboost as xgb
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import LabelEncoder, MinMaxScaler, OneHotEncoder, StandardScaler

import sqlml
from sqlml import errors
from sqlml.scorer.scoring_paths import MAX_PART_ROWS as BLOCK
from sqlml.types import Array
from tests.e2e import child
from tests.e2e.conftest import FEATURES, ROWS

CLOSE: dict[str, Any] = {"rtol": 1e-11, "atol": 1e-14}


@pytest.fixture(scope="module")
def matrix() -> Array:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(ROWS, 4))
    x[rng.random(x.shape) < 0.1] = np.nan
    return x


@pytest.fixture(scope="module")
def boosted(matrix: Array) -> Any:
    """Three classes on a matrix without names."""
    y = np.digitize(np.nan_to_num(matrix).sum(axis=1), [-0.5, 0.7])
    return xgb.XGBClassifier(n_estimators=6, max_depth=4, n_jobs=1).fit(matrix, y)


@pytest.fixture(scope="module")
def forest(matrix: Array) -> Any:
    y = np.where(np.nan_to_num(matrix)[:, :2].sum(axis=1) > 0, "up", "down")
    return RandomForestClassifier(6, max_depth=5, random_state=0).fit(matrix, y)


# -- matrices


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "int64", "int8", "bool"])
def test_a_matrix_of_any_number_type(boosted: Any, matrix: Array, dtype: str) -> None:
    rows = np.nan_to_num(matrix * 3).astype(dtype)
    scorer = sqlml.compile(boosted)
    margin = boosted.predict(rows.astype(np.float64), output_margin=True)
    np.testing.assert_array_equal(scorer.decision_function(rows), margin)


@pytest.mark.parametrize("change", ["fortran", "strided", "reversed", "read-only", "list"])
def test_a_matrix_however_it_lies_in_memory(boosted: Any, matrix: Array, change: str) -> None:
    held: Any = matrix.copy()
    if change == "fortran":
        held = np.asfortranarray(held)
    elif change == "strided":
        held = np.repeat(np.repeat(held, 2, axis=0), 3, axis=1)[::2, ::3]
    elif change == "reversed":
        held = np.ascontiguousarray(held[::-1, ::-1])[::-1, ::-1]
    elif change == "read-only":
        held.flags.writeable = False
    else:
        held = held.tolist()
    want = boosted.predict(matrix, output_margin=True)
    np.testing.assert_array_equal(sqlml.compile(boosted).decision_function(held), want)


# -- methods and their shapes


def test_classes_and_dtypes_are_those_of_the_source(
    boosted: Any, forest: Any, churn: Any, matrix: Array
) -> None:
    for model in (boosted, forest, churn):
        assert sqlml.compile(model).classes_.tolist() == model.classes_.tolist()
    assert sqlml.compile(boosted).predict(matrix).dtype == np.int64
    x, y = np.nan_to_num(matrix), matrix[:, 0] > 0
    for labels in (y, y * 2 - 1, y * 4.0, np.where(y, "b", "a")):
        model = LogisticRegression().fit(x, labels)
        answer = sqlml.compile(model).predict(x)
        assert answer.dtype == (object if labels.dtype.kind == "U" else labels.dtype)
        assert answer.tolist() == model.predict(x).tolist()


def test_decision_function_has_one_column_less_for_two_classes(matrix: Array) -> None:
    x = np.nan_to_num(matrix)
    for classes in (2, 3):
        y = np.digitize(x[:, 0] + x[:, 1], [-0.5, 0.5][: classes - 1])
        model = LogisticRegression().fit(x, y)
        for rows in (0, 1, ROWS):
            score = sqlml.compile(model).decision_function(x[:rows])
            assert score.shape == ((rows,) if classes == 2 else (rows, 3))
            if rows:
                np.testing.assert_allclose(score, model.decision_function(x[:rows]), **CLOSE)


def test_transform_of_a_pipeline(frame: pd.DataFrame) -> None:
    steps = make_column_transformer(
        (make_pipeline(SimpleImputer(), StandardScaler(), MinMaxScaler()), ["tenure", "charges"]),
        (OneHotEncoder(sparse_output=False), ["plan", "region"]),
    ).fit(frame)
    scorer = sqlml.compile(steps)
    want = steps.transform(frame)
    for held in (frame, frame[::-1][::-1], pl.from_pandas(frame), pa.Table.from_pandas(frame)):
        np.testing.assert_allclose(scorer.transform(held), want, **CLOSE)
    assert scorer.transform(frame[:0]).shape == (0, want.shape[1])
    assert scorer.transform(frame, backend="reference").dtype == np.float64


@pytest.mark.parametrize(
    "classes", [["b", "a", "c"], [5, 1, 7], [2.5, np.nan, 1.0], [True, False]], ids=str
)
@pytest.mark.parametrize("backend", ["auto", "reference", "torch", "onnxruntime"])
def test_codes_of_labels_have_the_shape_and_type_of_the_source(
    classes: list[Any], backend: str
) -> None:
    encoder = LabelEncoder().fit(classes)
    scorer = sqlml.compile(encoder, backend=backend)
    for values in (np.array(classes), pd.Series(classes)):
        made, want = scorer.transform(values), encoder.transform(values)
        assert (made.shape, made.dtype) == (want.shape, want.dtype)
        np.testing.assert_array_equal(made, want)


@pytest.mark.parametrize("backend", ["auto", "native", "sql", "torch", "onnxruntime"])
def test_codes_of_labels_are_doubles_in_sql(backend: str) -> None:
    con = sqlml.connect()
    con.create_model("codes", LabelEncoder().fit(["a", "b", "c"]), inputs=["x"])
    con.execute(f"SET sqlml_backend = '{backend}'")
    query = "SELECT transform('codes', *) FROM (VALUES ('c'), ('a')) t(x)"
    assert [tuple(map(repr, row)) for row in con.execute(query).fetchall()] == [("2.0",), ("0.0",)]
    assert con.execute(f"DESCRIBE {query}").fetchone()[1] == "DOUBLE"


@pytest.mark.parametrize(
    "imputer",
    [
        SimpleImputer(missing_values=None, strategy="most_frequent"),
        SimpleImputer(missing_values=None, strategy="constant", fill_value="none"),
        SimpleImputer(missing_values="a", strategy="most_frequent"),
    ],
    ids=["frequent", "constant", "of a text"],
)
def test_an_imputer_of_strings_scores_alone(imputer: SimpleImputer) -> None:
    values = np.array([["a", "x"], ["b", None], ["a", "y"], [None, "x"]], object)
    if imputer.missing_values is not None:
        values = np.where(values == None, "u", values)  # noqa: E711
    want = imputer.fit(values).transform(values)
    scorer = pickle.loads(pickle.dumps(sqlml.compile(imputer)))
    columns = {"x0": values[:, 0].tolist(), "x1": values[:, 1].tolist()}
    for held in (values, pd.DataFrame(columns), pl.DataFrame(columns), pa.table(columns), columns):
        made = scorer.transform(held)
        assert made.dtype == want.dtype == object
        np.testing.assert_array_equal(made, want)
    assert scorer.transform(values[:0]).shape == (0, 2)
    for backend in ("torch", "onnxruntime", "reference"):
        np.testing.assert_array_equal(scorer.transform(values, backend=backend), want)
    with pytest.raises(errors.UnsupportedModelError, match=r"write coalesce\(column, 'value'\)"):
        sqlml.connect().create_model("filled", imputer, inputs=["a", "b"])


def test_strings_and_numbers_side_by_side_are_named() -> None:
    mixed = pd.DataFrame({"a": ["u", np.nan, "u"], "b": [1.0, np.nan, 1.0]}, dtype=object)
    imputer = SimpleImputer(strategy="most_frequent").fit(mixed)
    with pytest.raises(errors.UnsupportedModelError, match="columns of strings and of numbers"):
        sqlml.compile(imputer)


def test_a_method_that_the_model_does_not_have(boosted: Any, value_model: Any) -> None:
    scorer = sqlml.compile(value_model)
    for method in ("predict_proba", "decision_function", "transform", "score_samples"):
        with pytest.raises(AttributeError, match="it has label"):
            getattr(scorer, method)([[1.0, 2.0]])
    with pytest.raises(AttributeError, match="no classes"):
        _ = scorer.classes_
    with pytest.raises(AttributeError, match="'transform'"):
        sqlml.compile(boosted).transform(np.zeros((1, 4)))


@pytest.mark.parametrize("backend", ["native", "reference", "torch"])
@pytest.mark.parametrize("rows", [0, 1, 2, BLOCK, BLOCK + 1])
def test_any_number_of_rows(
    frame: pd.DataFrame, churn: Any, boosted: Any, matrix: Array, rows: int, backend: str
) -> None:
    if backend == "torch":
        pytest.importorskip("torch", reason="the torch backend needs torch")
    if backend == "reference" and rows > 2:
        rows //= 16
    x = np.resize(matrix, (rows, 4))
    scorer = sqlml.compile(boosted, backend=backend)
    assert scorer.predict_proba(x).shape == (rows, 3)
    many = frame.iloc[np.arange(rows) % ROWS]
    pipeline = sqlml.compile(churn, backend=backend, threads=2)
    label = pipeline.predict(many)
    assert label.shape == (rows,) and label.dtype == object
    if rows:
        margin = boosted.predict(x, output_margin=True)
        np.testing.assert_array_equal(scorer.decision_function(x), margin)
        assert label.tolist() == churn.predict(many[FEATURES]).tolist()


def test_100_000_rows_on_any_number_of_threads(boosted: Any, matrix: Array) -> None:
    rows = np.tile(matrix, (200, 1)) + np.arange(100_000)[:, None] * 1e-5
    scorer = sqlml.compile(boosted)
    want = boosted.predict(rows, output_margin=True)
    for threads in (None, 1, 2, 3, 8):
        np.testing.assert_array_equal(scorer.decision_function(rows, threads=threads), want)
    frame = pd.DataFrame(rows, columns=["f0", "f1", "f2", "f3"])
    np.testing.assert_array_equal(scorer.decision_function(frame), want)


# -- options


RUNS: list[dict[str, Any]] = [
    {"backend": "native"},
    {"backend": "reference"},
    {"backend": "torch"},
    {"backend": "torch", "strategy": "gemm", "device": "cpu"},
    {"strategy": "gemm"},
    {"strategy": "tt", "threads": 2},
    {"strategy": "ptt"},
    {"device": "cpu", "threads": 1},
]


@pytest.mark.parametrize("options", RUNS, ids=[" ".join(map(str, r.values())) for r in RUNS])
def test_options_at_compile_or_per_call(
    boosted: Any, forest: Any, matrix: Array, options: dict[str, Any]
) -> None:
    if options.get("backend") == "torch" or "strategy" in options:
        pytest.importorskip("torch", reason="the torch backend needs torch")
    want = boosted.predict(matrix, output_margin=True)
    at_compile = sqlml.compile(boosted, **options).decision_function(matrix)
    per_call = sqlml.compile(boosted, backend="native").decision_function(
        matrix, **{"backend": "auto", **options}
    )
    np.testing.assert_array_equal(at_compile, want)
    np.testing.assert_array_equal(per_call, want)
    proba = sqlml.compile(forest).predict_proba(matrix, **options)
    np.testing.assert_array_equal(proba, forest.predict_proba(matrix))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"thread": 2}, "unknown option 'thread'; options: backend, strategy"),
        ({"threads": 0}, "positive integer"),
        ({"threads": "2"}, "positive integer"),
        ({"threads": True}, "positive integer"),
        ({"backend": "abacus"}, "unknown backend 'abacus'"),
        ({"device": "tpu"}, "unknown device 'tpu'"),
        ({"backend": "native", "strategy": "gemm"}, "no strategy 'gemm'"),
    ],
)
def test_a_wrong_option_is_named(
    boosted: Any, matrix: Array, options: dict[str, Any], says: str
) -> None:
    with pytest.raises(errors.ConfigError, match=says):
        sqlml.compile(boosted).predict(matrix, **options)
    with pytest.raises(errors.ConfigError, match=says):
        sqlml.compile(boosted, **options)


# -- wrong input


@pytest.mark.parametrize("backend", ["auto", "torch", "onnxruntime"])
def test_trees_too_deep_for_a_strategy_are_refused_when_compiled(backend: str) -> None:
    x = np.arange(4000.0)[:, None]
    deep = RandomForestClassifier(2, random_state=0).fit(x, np.arange(4000) // 3 % 2)
    how = {"backend": backend, "strategy": "ptt"}
    con = sqlml.connect()
    con.create_model("deep", deep, inputs=["x"])
    for ask in (
        lambda: sqlml.compile(deep, **how),
        lambda: sqlml.compile(deep).predict(x, **how),
        lambda: con.create_model("again", deep, inputs=["x"], **how),
        lambda: con.execute(f"ALTER MODEL deep SET OPTIONS (backend='{backend}', strategy='ptt')"),
    ):
        with pytest.raises(
            errors.BackendError, match=r"the limit is depth 10\); use strategy='tt'"
        ):
            ask()
    shallow = RandomForestClassifier(2, max_depth=10).fit(x, np.arange(4000) // 3 % 2)
    assert list(sqlml.compile(shallow, **how).predict(x)) == list(shallow.predict(x))


def test_what_the_first_batch_raises_stands_alone(matrix: Array) -> None:
    """No error of a cache that had nothing yet is printed before it."""
    forest = RandomForestClassifier(2).fit(matrix, matrix[:, 0] > 0)
    scorer = sqlml.compile(forest, backend="torch", strategy="fused", device="cpu")
    with pytest.raises(errors.BackendError, match="cannot run this model") as caught:
        scorer.predict(matrix)
    assert caught.value.__context__ is None


def test_a_wrong_width_names_the_columns(boosted: Any, value_model: Any) -> None:
    with pytest.raises(errors.InputTypeError, match=r"shape \(3, 5\).*4 columns"):
        sqlml.compile(boosted).predict(np.zeros((3, 5)))
    with pytest.raises(errors.InputTypeError, match="2 columns: charges, tenure"):
        sqlml.compile(value_model).predict(np.zeros(2))
    with pytest.raises(errors.InputTypeError, match="2 columns"):
        sqlml.compile(value_model).predict(np.zeros((2, 2, 2)))
    for thing in ("text", 3, None, [1, 2]):
        with pytest.raises(errors.InputTypeError):
            sqlml.compile(value_model).predict(thing)


def test_a_strategy_without_torch_names_what_to_install(boosted: Any, tmp_path: Path) -> None:
    (tmp_path / "scorer").write_bytes(pickle.dumps(sqlml.compile(boosted)))
    code = (
        "import pickle, sys\n"
        "sys.modules['torch'] = None\n"
        "with open('scorer', 'rb') as f: scorer = pickle.load(f)\n"
        "scorer.predict([[0.0] * 4], strategy='tt')\n"
    )
    last = child.run(code, tmp_path).stderr.splitlines()[-1]
    assert "MissingDependencyError" in last
    assert "pip install 'sqlml[torch]'" in last


# -- life of a Scorer


@pytest.mark.parametrize("protocol", [2, pickle.HIGHEST_PROTOCOL])
def test_a_scorer_survives_pickle(
    frame: pd.DataFrame, churn: Any, boosted: Any, matrix: Array, protocol: int
) -> None:
    used = sqlml.compile(churn, threads=2)
    want = used.predict_proba(frame)
    again = pickle.loads(pickle.dumps(used, protocol))
    np.testing.assert_array_equal(again.predict_proba(frame), want)
    assert again.features == used.features
    slow = pickle.loads(pickle.dumps(sqlml.compile(boosted, backend="reference"), protocol))
    want = boosted.predict(matrix, output_margin=True)
    np.testing.assert_array_equal(slow.decision_function(matrix), want)


def test_a_pickled_scorer_needs_no_library(forest: Any, matrix: Array, tmp_path: Path) -> None:
    (tmp_path / "scorer").write_bytes(pickle.dumps(sqlml.compile(forest)))
    np.save(tmp_path / "x.npy", matrix)
    code = (
        "import pickle, sys, numpy as np\n"
        "with open('scorer', 'rb') as f: scorer = pickle.load(f)\n"
        "np.save('p.npy', scorer.predict_proba(np.load('x.npy')))\n"
        "print(*{'sklearn', 'xgboost', 'torch'} & set(sys.modules))\n"
    )
    done = child.run(code, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []
    np.testing.assert_array_equal(np.load(tmp_path / "p.npy"), forest.predict_proba(matrix))


@pytest.mark.parametrize("backend", ["native", "torch"])
def test_eight_threads_at_once(
    frame: pd.DataFrame, churn: Any, boosted: Any, matrix: Array, backend: str
) -> None:
    if backend == "torch":
        pytest.importorskip("torch", reason="the torch backend needs torch")
    scorer = sqlml.compile(churn, backend=backend)
    other = sqlml.compile(boosted, backend=backend)
    want = scorer.predict_proba(frame)
    margin = boosted.predict(matrix, output_margin=True)

    def work(number: int) -> bool:
        part = slice(number % 5, None, 1 + number % 3)
        one = np.allclose(scorer.predict_proba(frame.iloc[part]), want[part], rtol=1e-12)
        two = np.array_equal(other.decision_function(matrix[part]), margin[part])
        return bool(one and two)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(160)))


def test_a_scorer_does_not_change_what_it_reads(
    frame: pd.DataFrame, churn: Any, boosted: Any, matrix: Array
) -> None:
    held, before = frame.copy(), matrix.copy()
    sqlml.compile(churn).predict(held)
    sqlml.compile(boosted).predict_proba(before)
    pd.testing.assert_frame_equal(held, frame)
    np.testing.assert_array_equal(before, matrix)


def test_a_program_compiles_again(boosted: Any, matrix: Array) -> None:
    scorer = sqlml.compile(sqlml.compile(boosted).program)
    want = boosted.predict(matrix, output_margin=True)
    np.testing.assert_array_equal(scorer.decision_function(matrix), want)


def test_inputs_name_the_columns_of_a_nameless_model(boosted: Any, matrix: Array) -> None:
    scorer = sqlml.compile(boosted, inputs=["a", "b", "c", "d"])
    frame = pd.DataFrame(matrix[:, ::-1], columns=["d", "c", "b", "a"])
    want = boosted.predict(matrix, output_margin=True)
    np.testing.assert_array_equal(scorer.decision_function(frame), want)
    with pytest.raises(errors.ConfigError, match="but names 3"):
        sqlml.compile(boosted, inputs=["a", "b", "c"])


def test_what_cannot_be_compiled(matrix: Array) -> None:
    for thing in (LinearRegression(), object()):
        with pytest.raises(errors.UnsupportedModelError):
            sqlml.compile(thing)
    with pytest.raises(errors.ArtifactError, match="no such file: 'model.json'"):
        sqlml.compile("model.json")
