"""feature_engine's encoders, imputers, cappers and droppers, in pipelines and alone."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

import sqlml
from sqlml import errors

pytest.importorskip("feature_engine")

from feature_engine import encoding, imputation, outliers, selection

RANDOM = np.random.default_rng(0)
ROWS = pd.DataFrame(
    {
        "n": RANDOM.normal(size=120),
        "m": RANDOM.normal(size=120) * 3,
        "city": RANDOM.choice(["north", "south", "east"], 120),
        "same": 1.0,
    }
)
GAPS = ROWS.assign(n=ROWS.n.where(RANDOM.random(120) > 0.2))
Y = pd.Series((ROWS.n + (ROWS.city > "n") > 0.5).astype(int))
NUMBERS = ["n", "m", "same"]


def same(model: Any, rows: pd.DataFrame) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        want = model.transform(rows).to_numpy(np.float64)
    np.testing.assert_allclose(sqlml.compile(model).transform(rows), want, rtol=1e-15)


@pytest.mark.parametrize(
    "model",
    [
        encoding.OrdinalEncoder(),
        encoding.OrdinalEncoder(unseen="encode"),
        encoding.CountFrequencyEncoder(encoding_method="frequency"),
        encoding.CountFrequencyEncoder(unseen="encode", missing_values="ignore"),
        encoding.MeanEncoder(smoothing=2.0),
        encoding.WoEEncoder(),
        encoding.OneHotEncoder(),
        encoding.OneHotEncoder(drop_last=True),
    ],
    ids=lambda model: type(model).__name__,
)
def test_encoders(model: Any) -> None:
    model.fit(ROWS, Y)
    same(model, ROWS)
    unseen = ROWS.head(3).assign(city=["nowhere", "north", "south"])
    same(model, unseen)
    if getattr(model, "missing_values", "raise") == "ignore":
        same(model, ROWS.head(3).assign(city=[None, "north", "south"]))


@pytest.mark.parametrize(
    "model",
    [
        imputation.MeanMedianImputer(variables=["n", "m"]),
        imputation.ArbitraryNumberImputer(imputer_dict={"n": -1, "m": 7}),
        imputation.EndTailImputer(),
        imputation.AddMissingIndicator(variables=["n", "m"], missing_only=False),
        selection.DropFeatures(["m"]),
        selection.DropConstantFeatures(missing_values="ignore"),
    ],
    ids=lambda model: type(model).__name__,
)
def test_numbers(model: Any) -> None:
    model.fit(GAPS[NUMBERS], Y)
    same(model, GAPS[NUMBERS])


@pytest.mark.parametrize(
    "model",
    [
        outliers.Winsorizer(capping_method="gaussian", tail="both", fold=1, variables=["n", "m"]),
        outliers.Winsorizer(capping_method="quantiles", tail="left", fold=0.1, variables=["m"]),
        outliers.ArbitraryOutlierCapper(max_capping_dict={"n": 0.5}, min_capping_dict={"m": -1}),
    ],
)
def test_cappers(model: Any) -> None:
    model.fit(ROWS[NUMBERS])
    same(model, ROWS[NUMBERS])
    for value in (np.nan, np.inf):
        with pytest.raises(ValueError):
            model.transform(ROWS[NUMBERS].assign(n=value, m=value))
        with pytest.raises(errors.MissingValueError):
            sqlml.compile(model).transform(ROWS[NUMBERS].assign(n=value, m=value))


def test_errors_of_encoders() -> None:
    model = encoding.OrdinalEncoder(unseen="raise").fit(ROWS, Y)
    for city in ("nowhere", None):
        rows = ROWS.head(2).assign(city=pd.Series([city] * 2, dtype=ROWS.city.dtype))
        with pytest.raises(ValueError):
            model.transform(rows)
        with pytest.raises(errors.UnknownCategoryError, match="city"):
            sqlml.compile(model).transform(rows)


def test_a_pipeline_in_sql() -> None:
    model = make_pipeline(
        imputation.MeanMedianImputer(variables=["n"]),
        encoding.MeanEncoder(variables=["city"]),
        outliers.ArbitraryOutlierCapper(max_capping_dict={"m": 2}),
        selection.DropFeatures(["same"]),
        LogisticRegression(),
    ).fit(GAPS, Y)
    with sqlml.connect() as con:
        con.register("rows", GAPS)
        con.create_model("m", model)
        assert "label_flips=0" in dict(con.model("m").properties)["verification"]
        found = con.execute("SELECT predict_proba('m', *, class := 1) FROM rows").fetchnumpy()
    (got,) = found.values()
    np.testing.assert_allclose(got, model.predict_proba(GAPS)[:, 1], rtol=1e-12)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (encoding.RareLabelEncoder(), "does not import"),
        (encoding.OrdinalEncoder(), "fit"),
        (imputation.MeanMedianImputer(), "fit"),
    ],
)
def test_what_is_not_covered(model: Any, words: str) -> None:
    if isinstance(model, encoding.RareLabelEncoder):
        model.fit(ROWS)
    with pytest.raises(errors.UnsupportedModelError, match=words):
        sqlml.compile(model)
