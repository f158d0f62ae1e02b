"""feature_engine's transformers of numbers, discretisers, and makers of features."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline

import sqlml
from sqlml.errors import MissingValueError, UnsupportedModelError

pytest.importorskip("feature_engine")

from feature_engine import (
    creation,
    discretisation,
    encoding,
    imputation,
    scaling,
    selection,
    transformation,
)

RANDOM = np.random.default_rng(0)
ROWS = pd.DataFrame(
    {
        "share": RANDOM.random(150) * 0.98 + 0.01,
        "size": RANDOM.gamma(2.0, size=150) + 0.1,
        "plain": RANDOM.normal(size=150).round(1),
        "count": RANDOM.integers(1, 12, 150),
    }
)
Y = pd.Series(ROWS["size"] * 2 + ROWS.plain > 4).astype(int)
NAMES = list(ROWS)
EDGES = {"plain": [-1.0, 0.0, 0.5, 1.5]}


def told(model: Any, rows: pd.DataFrame) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.transform(rows).to_numpy(np.float64)


def same(model: Any, rows: pd.DataFrame) -> None:
    found = sqlml.compile(model).transform(rows)
    np.testing.assert_allclose(found, told(model, rows), rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize(
    "model",
    [
        transformation.LogTransformer(variables=["share", "size", "count"]),
        transformation.LogTransformer(variables=["size"], base="10"),
        transformation.LogCpTransformer(),
        transformation.LogCpTransformer(C={"plain": 9, "share": 0.5}, base="10"),
        transformation.PowerTransformer(variables=["size", "share"]),
        transformation.PowerTransformer(variables=["size", "plain"], exp=3),
        transformation.ReciprocalTransformer(variables=["share", "size"]),
        transformation.ArcsinTransformer(variables=["share"]),
        transformation.ArcSinhTransformer(loc=0.5, scale=2.0),
        transformation.BoxCoxTransformer(variables=["size", "share"]),
        transformation.YeoJohnsonTransformer(),
        scaling.MeanNormalizationScaler(),
        discretisation.EqualFrequencyDiscretiser(q=4),
        discretisation.EqualWidthDiscretiser(bins=5, variables=["plain", "size"]),
        discretisation.GeometricWidthDiscretiser(bins=3, variables=["size"]),
        discretisation.ArbitraryDiscretiser(binning_dict=EDGES),
        discretisation.DecisionTreeDiscretiser(cv=2, variables=["plain"], regression=False),
        discretisation.DecisionTreeDiscretiser(cv=2, precision=2),
        discretisation.DecisionTreeDiscretiser(cv=2, bin_output="bin_number", precision=3),
        creation.CyclicalFeatures(variables=["count"], drop_original=True),
        creation.MathFeatures(
            variables=NAMES, func=["sum", "mean", "prod", "min", "max", "std", "var"]
        ),
        creation.MathFeatures(variables=["size", "plain"], func="sum", drop_original=True),
        creation.RelativeFeatures(
            variables=["plain", "size"],
            reference=["share", "count"],
            func=["add", "sub", "mul", "div", "truediv", "mod"],
        ),
        creation.RelativeFeatures(
            variables=["size"], reference=["share"], func=["pow"], drop_original=True
        ),
        selection.SelectBySingleFeaturePerformance(LogisticRegression(), cv=2),
        selection.RecursiveFeatureElimination(LogisticRegression(), cv=2),
        selection.SelectByInformationValue(bins=2, strategy="equal_frequency"),
        selection.DropHighPSIFeatures(split_frac=0.5),
    ],
    ids=lambda model: type(model).__name__,
)
def test_the_numbers_are_those_of_the_library(model: Any) -> None:
    model.fit(ROWS, ROWS["size"] if getattr(model, "regression", False) else Y)
    same(model, ROWS)
    ends = {"share": [0.01, 0.99, 0.5, 0.5], "size": [1e-3, 50.0, 1.0, 2.0]}
    same(model, pd.DataFrame({**ends, "plain": [-1.0, 1.5, 0.5, 0.0], "count": [1, 11, 7, 9]}))


@pytest.mark.parametrize(
    ("model", "change"),
    [
        (transformation.LogTransformer(variables=["size"]), {"size": 0.0}),
        (transformation.LogCpTransformer(variables=["size"], C=1), {"size": -1.0}),
        (transformation.ReciprocalTransformer(variables=["size"]), {"size": 0.0}),
        (transformation.ArcsinTransformer(variables=["share"]), {"share": 1.5}),
        (transformation.BoxCoxTransformer(variables=["size"]), {"size": -1.0}),
        (transformation.YeoJohnsonTransformer(), {"plain": np.nan}),
        (scaling.MeanNormalizationScaler(), {"plain": np.inf}),
        (discretisation.EqualWidthDiscretiser(), {"plain": np.nan}),
        (
            discretisation.ArbitraryDiscretiser(binning_dict={"plain": [-9, 0, 9]}, errors="raise"),
            {"plain": 10.0},
        ),
        (creation.MathFeatures(variables=["plain", "size"], func="sum"), {"plain": np.nan}),
        (
            creation.RelativeFeatures(variables=["plain"], reference=["size"], func=["div"]),
            {"size": 0.0},
        ),
    ],
)
def test_what_the_library_refuses_is_refused(model: Any, change: Any) -> None:
    model.fit(ROWS, Y)
    rows = ROWS.assign(**change)
    with pytest.raises(ValueError):
        told(model, rows)
    with pytest.raises(MissingValueError, match=next(iter(change))):
        sqlml.compile(model).transform(rows)


@pytest.mark.parametrize(
    "model",
    [
        creation.MathFeatures(
            variables=["share", "size", "plain"],
            func=["sum", "mean", "prod", "min", "max", "std", "var"],
            missing_values="ignore",
        ),
        creation.RelativeFeatures(
            variables=["plain"], reference=["size"], func=["div", "mod"], fill_value=-7.0
        ),
    ],
)
def test_missing_values_that_are_ignored(model: Any) -> None:
    model.fit(ROWS, Y)
    rows = ROWS.head(6).copy()
    rows.loc[0, "plain"] = np.nan
    rows.loc[1, ["plain", "size"]] = np.nan
    rows.loc[2, ["plain", "size", "share"]] = np.nan
    rows.loc[3, "size"] = 0.0
    same(model, rows)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (discretisation.EqualWidthDiscretiser(return_boundaries=True), "return_boundaries"),
        (
            discretisation.DecisionTreeDiscretiser(cv=2, bin_output="boundaries", precision=2),
            "bin_output",
        ),
        (creation.MathFeatures(variables=["plain", "size"], func="median"), "median"),
        (
            creation.RelativeFeatures(variables=["size"], reference=["count"], func=["floordiv"]),
            "floordiv",
        ),
    ],
)
def test_what_is_not_covered_is_named(model: Any, words: str) -> None:
    model.fit(ROWS, ROWS["size"])
    with pytest.raises(UnsupportedModelError, match=words):
        sqlml.compile(model)


def test_a_pipeline_in_sql() -> None:
    rows = ROWS.assign(town=RANDOM.choice(["a", "b", None], 150))
    model = make_pipeline(
        imputation.CategoricalImputer(fill_value="gone", variables=["town"]),
        encoding.DecisionTreeEncoder(cv=2, variables=["town"]),
        transformation.LogTransformer(variables=["size"]),
        discretisation.DecisionTreeDiscretiser(cv=2, variables=["plain"]),
        creation.MathFeatures(variables=["share", "size"], func=["sum", "std"]),
        LinearRegression(),
    ).fit(rows, ROWS["size"])
    with sqlml.connect() as con:
        con.register("rows", rows)
        con.create_model("m", model)
        (found,) = con.execute("SELECT predict('m', *) FROM rows").fetchnumpy().values()
    np.testing.assert_allclose(found, model.predict(rows), rtol=1e-9)
