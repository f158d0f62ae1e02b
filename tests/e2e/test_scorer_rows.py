"""What a Scorer reads beside frames: sparse matrices, rows that are lists or dicts, lazy frames."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import lightgbm
import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
import xgboost
from sklearn.compose import make_column_transformer
from sklearn.dummy import DummyRegressor
from sklearn.feature_extraction import DictVectorizer, FeatureHasher
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression, SGDClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import MaxAbsScaler, OneHotEncoder, StandardScaler

import sqlml
from sqlml import errors
from sqlml.scorer import input_table
from sqlml.types import Array
from tests.e2e.conftest import FEATURES


def plain(frame: pd.DataFrame) -> pd.DataFrame:
    """The features as Python's own objects, None where there is nothing."""
    held = frame[FEATURES].astype(object)
    return held.where(held.notna(), None)


ROWS: dict[str, Callable[[pd.DataFrame], Any]] = {
    "lists": lambda f: plain(f).to_numpy().tolist(),
    "lists with NaN": lambda f: f[FEATURES].astype(object).to_numpy().tolist(),
    "tuples": lambda f: tuple(f[FEATURES].itertuples(index=False)),
    "rows of a frame": lambda f: [row for _, row in f[FEATURES].iterrows()],
    "dicts": lambda f: f.to_dict("records"),
    "dicts with None": lambda f: plain(f).to_dict("records"),
    "dicts, other case": lambda f: f.rename(columns=str.upper).to_dict("records"),
    "dicts without what is missing": lambda f: [
        {k: v for k, v in row.items() if v is not None} for row in plain(f).to_dict("records")
    ],
    "Series of dicts": lambda f: pd.Series(f.to_dict("records")),
    "dict of lists with NaN": lambda f: f.to_dict("list"),
    "records array": lambda f: f.to_records(index=False),
    "polars, lazy": lambda f: pl.from_pandas(f).lazy(),
    "polars, lazy, other case": lambda f: pl.from_pandas(f.rename(columns=str.upper)).lazy(),
}


@pytest.mark.parametrize("held", ROWS)
def test_rows_give_the_numbers_of_the_source(frame: pd.DataFrame, churn: Any, held: str) -> None:
    got = sqlml.compile(churn).predict_proba(ROWS[held](frame))
    np.testing.assert_allclose(got, churn.predict_proba(frame[FEATURES]), rtol=1e-11, atol=1e-14)


def test_one_dict_is_one_row_and_no_rows_are_none(frame: pd.DataFrame, churn: Any) -> None:
    scorer = sqlml.compile(churn)
    want = churn.predict(frame[FEATURES][:1]).tolist()
    assert scorer.predict(frame.to_dict("records")[0]).tolist() == want
    assert scorer.predict([]).tolist() == []


@pytest.mark.parametrize(
    "cells", [[1, 2.5, True], [None, 2, 0.5], [Decimal("0.1"), 3, np.float32(0.5)], [2**70, -1]]
)
def test_numbers_of_several_types_are_numbers(cells: list[Any]) -> None:
    model = SimpleImputer(strategy="constant", fill_value=-1.0).fit([[0.0], [np.nan]])
    scorer = sqlml.compile(model, inputs=["a"])
    want = [[-1.0 if c is None else float(c)] for c in cells]
    rows = [[c] for c in cells]
    for held in (rows, [{"a": c} for c in cells], {"a": cells}, np.array(rows, object), cells):
        assert scorer.transform(held).tolist() == want


def test_a_column_of_strings_that_is_all_missing(frame: pd.DataFrame, churn: Any) -> None:
    held = frame[:5].assign(region=np.nan)
    want = churn.predict_proba(held.assign(region=held.region.astype(object))[FEATURES])
    for rows in (held, held.to_dict("records"), held[FEATURES].to_numpy().tolist()):
        np.testing.assert_allclose(sqlml.compile(churn).predict_proba(rows), want, rtol=1e-11)


def test_a_number_among_strings_stays_a_number(frame: pd.DataFrame, churn: Any) -> None:
    rows = frame[FEATURES].to_numpy().tolist()
    rows[1][2] = 7
    for held in (rows, {"tenure": [1, 2], "charges": [1, 2], "plan": ["a", 7], "region": "ab"}):
        with pytest.raises(errors.InputTypeError, match="'plan'"):
            sqlml.compile(churn).predict(held)


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([[1, 2.0, "pro"]], "row 0 has 3 values, but the model takes 4"),
        ([[1, 2.0, "pro", "it's"], [1, 2.0]], "row 1 has 2 values"),
        ([1, 2.0, "pro", "it's"], "row 0 is the int 1"),
        ([{"tenure": 1}, [1]], "row 1 is a list"),
        ("pro", "cannot score a str; pass a 2-d array"),
        (None, "cannot score a NoneType"),
    ],
)
def test_rows_that_are_none_of_the_models_are_named(churn: Any, rows: Any, says: str) -> None:
    with pytest.raises(errors.InputTypeError, match=says):
        sqlml.compile(churn).predict(rows)


def test_a_key_that_no_row_has_is_a_missing_column(churn: Any) -> None:
    with pytest.raises(errors.MissingColumnError, match="'plan'"):
        sqlml.compile(churn).predict([{"tenure": 1, "charges": 2}])


def test_a_lazy_frame_computes_the_columns_that_the_model_reads(frame: pd.DataFrame) -> None:
    model = LinearRegression().fit(frame[["charges"]], frame.charges)
    broken = pl.col("id").cast(pl.String).str.to_date().alias("broken")
    lazy = pl.from_pandas(frame).lazy().with_columns(broken)
    assert sqlml.compile(model).predict(lazy).shape == (len(frame),)
    with pytest.raises(errors.MissingColumnError, match="did you mean 'chrges'"):
        sqlml.compile(model).predict(lazy.rename({"charges": "chrges"}))


def test_a_model_that_reads_nothing_counts_the_rows_of_a_lazy_frame(frame: pd.DataFrame) -> None:
    model = DummyRegressor().fit(frame[["charges"]], frame.charges)
    assert sqlml.compile(model).predict(pl.from_pandas(frame).lazy()).shape == (len(frame),)


def test_dask_frames_arrays_and_columns(frame: pd.DataFrame, churn: Any) -> None:
    dd = pytest.importorskip("dask.dataframe")
    da = pytest.importorskip("dask.array")
    scorer = sqlml.compile(churn)
    held = dd.from_pandas(frame, npartitions=3)
    want = churn.predict_proba(frame[FEATURES])
    np.testing.assert_allclose(scorer.predict_proba(held), want, rtol=1e-11, atol=1e-14)
    with pytest.raises(errors.MissingColumnError, match="'charges'.*did you mean 'chrges'"):
        scorer.predict(held.rename(columns={"charges": "chrges"}))
    x = frame[["charges"]].to_numpy()
    line = LinearRegression().fit(x, frame.charges)
    for column in (da.from_array(x, chunks=100), held["charges"], held.charges.to_dask_array()):
        np.testing.assert_allclose(sqlml.compile(line).predict(column), line.predict(x), rtol=1e-12)
    broken = held.assign(broken=held.plan.map(lambda _: 1 / 0, meta=("broken", "f8")))
    assert scorer.predict(broken).shape == (len(frame),)


# -- sparse matrices


def zeros(rows: int = 300, columns: int = 6) -> Array:
    rng = np.random.default_rng(3)
    x = rng.normal(size=(rows, columns)).round(2)
    x[rng.random(x.shape) < 0.6] = 0
    return x


X = zeros()
Y = (X[:, 0] + X[:, 1] ** 2 > 0.3).astype(int)
SPARSE_MODELS: dict[str, Any] = {
    "logistic": LogisticRegression(),
    "scaled": make_pipeline(MaxAbsScaler(), SGDClassifier(loss="log_loss", random_state=0)),
    "LightGBM": lightgbm.LGBMClassifier(n_estimators=5, verbose=-1),
    "LightGBM, zero missing": lightgbm.LGBMClassifier(
        n_estimators=5, verbose=-1, zero_as_missing=True
    ),
    "XGBoost": xgboost.XGBClassifier(n_estimators=5),
    "XGBoost, missing=0": xgboost.XGBClassifier(n_estimators=5, missing=0.0),
    "XGBoost, linear": xgboost.XGBClassifier(n_estimators=5, booster="gblinear"),
}


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
@pytest.mark.parametrize("name", SPARSE_MODELS)
def test_a_sparse_matrix_is_read_as_the_source_reads_it(name: str) -> None:
    model = SPARSE_MODELS[name].fit(X, Y)
    held = sp.csr_matrix(X)
    held.data[::7] = 0.0  # stored zeros: to XGBoost these are not missing
    scorer = pickle.loads(pickle.dumps(sqlml.compile(model)))
    want = model.predict_proba(held)
    for form in (held, sp.csc_array(held), sp.coo_matrix(held)):
        got = scorer.predict_proba(form)
        np.testing.assert_allclose(got, want, rtol=1e-6 if "XGB" in name else 1e-11)
    narrow = held.astype(np.float32)
    np.testing.assert_allclose(scorer.predict_proba(narrow), model.predict_proba(narrow), rtol=1e-5)


def test_cells_that_are_stored_twice_are_added_up() -> None:
    stored, places = np.array([1.0, 2.0, 4.0]), np.array([1, 1, 0])
    held = sp.csr_array((stored, places, np.array([0, 2, 3])), shape=(2, 2))
    model = LinearRegression().fit([[0, 0], [1, 0], [0, 1]], [0, 1, 10])
    np.testing.assert_allclose(sqlml.compile(model).predict(held), [30, 4], atol=1e-12)
    assert held.nnz == 3, "the caller's matrix is as it was"


def test_a_wide_matrix_becomes_dense_a_part_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    x = zeros(2000, 40)
    model = LogisticRegression().fit(x, x[:, 0] > 0)
    want = model.predict_proba(x)
    monkeypatch.setattr(input_table, "BLOCK", 4000)
    for options in ({}, {"threads": 1}, {"threads": 3}):
        got = sqlml.compile(model, **options).predict_proba(sp.csr_matrix(x))
        np.testing.assert_allclose(got, want, rtol=1e-12)
    assert sqlml.compile(model).predict(sp.csr_matrix((0, 40))).shape == (0,)


@pytest.mark.parametrize(
    ("held", "says"),
    [
        (sp.csr_matrix(X[:, :3]), r"shape \(300, 3\), but the model takes 6"),
        (sp.csr_matrix(X.astype(complex)), "has the dtype complex128"),
    ],
)
def test_a_sparse_matrix_of_another_shape_or_type(held: Any, says: str) -> None:
    with pytest.raises(errors.InputTypeError, match=says):
        sqlml.compile(LogisticRegression().fit(X, Y)).predict(held)


def test_a_sparse_matrix_that_means_two_things_is_refused() -> None:
    model = make_pipeline(StandardScaler(with_mean=False), xgboost.XGBClassifier(n_estimators=2))
    scorer = sqlml.compile(model.fit(X, Y))
    with pytest.raises(errors.InputTypeError, match=r"XGBoost.*toarray\(\)"):
        scorer.predict(sp.csr_matrix(X))
    with pytest.raises(errors.InputTypeError, match=r"toarray\(\)"):
        sqlml.compile(scorer.program).predict(sp.csr_matrix(X))


def test_a_pandas_frame_of_sparse_columns() -> None:
    held = pd.DataFrame.sparse.from_spmatrix(sp.csr_matrix(X)).add_prefix("x")
    model = LogisticRegression().fit(X, Y)
    got = sqlml.compile(model).predict_proba(held)
    np.testing.assert_allclose(got, model.predict_proba(X), rtol=1e-12)


# -- DictVectorizer's own input

DICTS: list[dict[str, Any]] = [
    {"city": "Rome", "temperature": 12.5, "wet": True},
    {"city": "Oslo", "temperature": -3},
    {"temperature": None, "wet": False},
    {"city": "Paris", "unknown": 1, "also": "new"},
    {"city": 5, "temperature": "warm"},
    {"city": ["Oslo"], "temperature": ["hot", "cold"]},
    {"city": None, "temperature": float("nan")},
    {"CITY": "Rome", "Temperature": 4},
    {},
]


@pytest.mark.parametrize(
    "make",
    [
        DictVectorizer,
        lambda: DictVectorizer(sparse=False, sort=False),
        lambda: make_pipeline("passthrough", DictVectorizer(), MaxAbsScaler()),
        lambda: make_union(DictVectorizer(), DictVectorizer(sparse=False)),
    ],
)
def test_dicts_are_read_as_a_dict_vectorizer_reads_them(make: Callable[[], Any]) -> None:
    model = make().fit(DICTS[:2])
    want = model.transform(DICTS)
    want = want.toarray() if hasattr(want, "toarray") else want
    scorer = sqlml.compile(model)
    for held in (DICTS, tuple(DICTS), pd.Series(DICTS), np.array(DICTS)):
        np.testing.assert_array_equal(scorer.transform(held), want)
    np.testing.assert_array_equal(scorer.transform(DICTS[0]), want[:1])


def test_a_search_over_a_pipeline_of_dicts() -> None:
    rng = np.random.default_rng(0)
    rows = [
        {
            k: v
            for k, v in (("a", rng.normal()), ("b", "xyz"[i % 3]), ("c", i % 5))
            if rng.random() < 0.7
        }  # fmt: skip
        for i in range(200)
    ]
    pipeline = make_pipeline(DictVectorizer(), LogisticRegression())
    search = GridSearchCV(pipeline, {"logisticregression__C": [0.1, 1.0]}, cv=2)
    search.fit(rows, [row.get("a", 0) > 0 for row in rows])
    got = sqlml.compile(search).predict_proba(rows)
    np.testing.assert_allclose(got, search.predict_proba(rows), rtol=1e-12)


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"city": ["Rome", "Oslo"]}, "row 0 has 2 strings under 'city'"),
        ({"city": [1]}, "a number, a string or a list of strings"),
        ({"temperature": {"a": 1}}, "under 'temperature'"),
        ({"city=Rome": 1}, "row 0 has the key 'city=Rome', which contains '='"),
        ({3: "x"}, "row 0 has the key 3, which is not a string"),
    ],
)
def test_a_dict_that_no_columns_hold_is_refused(row: Any, says: str) -> None:
    with pytest.raises(errors.InputTypeError, match=says):
        sqlml.compile(DictVectorizer().fit(DICTS[:2])).transform([row])


def test_zeros_that_a_dict_vectorizer_stores_are_not_missing_to_xgboost() -> None:
    rng = np.random.default_rng(0)
    rows = [{"a": float(rng.integers(0, 3)), "c": "xyz"[i % 3]} for i in range(200)]
    y = [int(row["a"] == 0) for row in rows]

    def fitted(held: Any, *steps: Any) -> Any:
        return make_pipeline(*steps, xgboost.XGBClassifier(n_estimators=3)).fit(held, y)

    with pytest.raises(errors.UnsupportedModelError, match=r"DictVectorizer\(sparse=False\)"):
        sqlml.compile(fitted(rows, DictVectorizer(), MaxAbsScaler()))
    words = [{"c": row["c"]} for row in rows]
    dense, strings = fitted(rows, DictVectorizer(sparse=False)), fitted(words, DictVectorizer())
    for model, held in ((dense, rows), (strings, words), (dense, words)):
        np.testing.assert_array_equal(
            sqlml.compile(model).predict_proba(held), model.predict_proba(held)
        )


def test_rows_of_lists_and_dicts_for_a_hasher_beside_numbers() -> None:
    table = pd.DataFrame({"tags": [["a", "b"], [], ["c"]], "price": [1.0, 2.0, 4.0]})
    model = make_column_transformer(
        (FeatureHasher(8, input_type="string"), "tags"), (StandardScaler(), ["price"])
    ).fit(table)
    want = model.transform(table)
    want = want.toarray() if hasattr(want, "toarray") else want
    for held in (table.to_dict("records"), table.to_numpy().tolist()):
        np.testing.assert_array_equal(sqlml.compile(model).transform(held), want)


def test_one_hot_of_mixed_rows_is_the_sources() -> None:
    rows = [["Male", 1], ["Female", 3], ["Female", 2]]
    model = OneHotEncoder(handle_unknown="ignore").fit(rows)
    again = [["Female", 1], ["Male", 4]]
    got = sqlml.compile(model).transform(again)
    np.testing.assert_array_equal(got, model.transform(again).toarray())
