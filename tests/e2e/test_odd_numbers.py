"""NULL, NaN, infinity and huge numbers are the same to a model however it runs."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestClassifier
from sklearn.feature_selection import SelectKBest
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    Binarizer,
    FunctionTransformer,
    KBinsDiscretizer,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    PolynomialFeatures,
    StandardScaler,
)
from sklearn.tree import DecisionTreeRegressor

import sqlml
from sqlml.errors import ConfigError, ScoringError, UnknownCategoryError
from sqlml.planner.program.choose import SQL_BACKEND

ODD = (
    "NULL::DOUBLE",
    "'nan'::DOUBLE",
    "'inf'::DOUBLE",
    "'-inf'::DOUBLE",
    "'inf'::FLOAT",
    "1e39::DOUBLE",
    "-1e308::DOUBLE",
    "1e308::DOUBLE",
    "-0.0::DOUBLE",
    "170141183460469231731687303715884105727::HUGEINT",
    "340282366920938463463374607431768211455::UHUGEINT",
)


def of(*steps: Any) -> Any:
    return make_pipeline(*steps, Ridge())


def function(name: str, validate: bool = True) -> FunctionTransformer:
    return FunctionTransformer(getattr(np, name), validate=validate)


MODELS = {
    "linear": Ridge(),
    "logistic": LogisticRegression(),
    "tree": DecisionTreeRegressor(max_depth=3),
    "forest": RandomForestClassifier(3, max_depth=3, random_state=0),
    "boosted": HistGradientBoostingRegressor(max_iter=3),
    "scaled": of(StandardScaler()),
    "clipped": of(MinMaxScaler(clip=True)),
    "imputed": of(SimpleImputer()),
    "scaled, imputed": of(StandardScaler(), SimpleImputer()),
    "squared, imputed": of(PolynomialFeatures(2), SimpleImputer()),
    "checked, imputed": of(FunctionTransformer(validate=True), SimpleImputer()),
    "above 0": of(Binarizer()),
    "above 0, logistic": make_pipeline(Binarizer(), LogisticRegression()),
    "exp": of(function("exp")),
    "exp unchecked": of(function("exp", validate=False)),
    "log1p": of(FunctionTransformer(np.abs), function("log1p")),
    "reciprocal": of(function("reciprocal")),
    "tanh": of(function("tanh")),
    "selected": of(SelectKBest(k=1)),
    "bins": of(KBinsDiscretizer(3, encode="onehot-dense", quantile_method="linear")),
    "unit": of(Normalizer()),
    "centres": KMeans(3, n_init=1, random_state=0),
    "bayes": GaussianNB(),
    "discriminant": LinearDiscriminantAnalysis(),
    "network": MLPRegressor(hidden_layer_sizes=(3,), max_iter=20, random_state=0),
}


@pytest.fixture(scope="module")
def con() -> Iterator[sqlml.Session]:
    x = np.random.default_rng(0).normal(size=(60, 2))
    number = 2 * x[:, 0] + x[:, 1]
    with sqlml.connect() as con:
        for name, model in MODELS.items():
            labelled = hasattr(model, "predict_proba")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model.fit(x, number > 0 if labelled else number)
            con.create_model(name, model, inputs=["a", "b"], verify=False)
        for k, value in enumerate(ODD):
            con.execute(f"CREATE TABLE odd{k} AS SELECT {value} AS a, 0.5::DOUBLE AS b")
        yield con
        con.execute("RESET sqlml_backend")


def answer(con: sqlml.Session, backend: str, query: str) -> Any:
    """Numbers and labels flat, or what the error says."""
    con.execute(f"SET sqlml_backend = '{backend}'")
    try:
        ((value,),) = con.execute(query).fetchall()
    except ScoringError as error:
        return type(error).__name__, error.message
    if isinstance(value, dict):
        value = list(value.values())
    return np.ravel(np.asarray(value, np.float64))


@pytest.mark.by_day(6)
@pytest.mark.parametrize("name", MODELS)
def test_every_way_to_run_agrees(name: str, con: sqlml.Session) -> None:
    calls = ["predict"]
    if hasattr(MODELS[name], "predict_proba"):
        calls.append("predict_proba")
    for call in calls:
        for k, value in enumerate(ODD):
            query = f"SELECT {call}('{name}', a, b) FROM odd{k}"
            want = answer(con, "native", query)
            for backend in ("auto", SQL_BACKEND):
                got = answer(con, backend, query)
                if isinstance(want, tuple) or isinstance(got, tuple):
                    assert got == want, (backend, query, value)
                else:
                    np.testing.assert_allclose(got, want, rtol=1e-9, err_msg=f"{backend} {query}")


def test_an_unknown_category_in_sql(con: sqlml.Session) -> None:
    model = make_pipeline(OneHotEncoder(), Ridge()).fit([["x"], ["y"], ["z"]], [1.0, 2.0, 3.0])
    con.create_model("categories", model, inputs=["a"], or_replace=True)
    con.execute(f"SET sqlml_backend = '{SQL_BACKEND}'")
    with pytest.raises(UnknownCategoryError, match="'a' has 'w', which OneHotEncoder has"):
        con.execute("SELECT predict('categories', a := 'w')").fetchall()
    relation = con.sql("SELECT predict('categories', a := 'w')")
    with pytest.raises(UnknownCategoryError):
        relation.fetchall()


def test_what_has_errors_in_sql_has_no_try(con: sqlml.Session) -> None:
    con.execute(f"SET sqlml_backend = '{SQL_BACKEND}'")
    with pytest.raises(ConfigError, match=r"TRY(.|\n)*use backend 'auto'"):
        con.execute("SELECT TRY(predict('centres', a, b)) FROM odd0")
    con.execute("RESET sqlml_backend")
    assert con.execute("SELECT TRY(predict('centres', a, b)) FROM odd0").fetchall() == [(None,)]
