"""SimpleImputer on numbers and strings, with every meaning of missing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder

from sqlml.catalog.model import Reference
from sqlml.errors import MissingValueError, UnsupportedModelError
from sqlml.importers.registry import import_model
from sqlml.statements.create_model import ModelRequest, import_version
from tests.support.oracles import mixed_frame
from tests.support.sklearn_checks import assert_both_raise, assert_same

NUMBERS = ["age", "income", "ratio", "visits", "level"]


@pytest.mark.parametrize("strategy", ["mean", "median", "most_frequent", "constant"])
@pytest.mark.parametrize("indicator", [False, True])
def test_numbers_are_filled_bit_for_bit(strategy: str, indicator: bool) -> None:
    frame = mixed_frame(90)[NUMBERS].astype(float)
    imputer = SimpleImputer(strategy=strategy, add_indicator=indicator).fit(frame)
    later = mixed_frame(90, seed=5, nulls=0.4)[NUMBERS].astype(float)
    later.loc[:3, "visits"] = np.nan  # missing only after training: filled, never marked
    assert_same(imputer, later, exact=True)


def test_a_callable_strategy_has_left_its_numbers() -> None:
    frame = mixed_frame(90)[NUMBERS].astype(float)
    assert_same(SimpleImputer(strategy=np.max).fit(frame), frame, exact=True)


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("strategy", ["mean", "most_frequent", "constant"])
def test_columns_that_were_all_missing_are_dropped_or_kept(keep: bool, strategy: str) -> None:
    frame = pd.DataFrame({"gone": [np.nan] * 4, "a": [1.0, np.nan, 3.0, 3.0], "too": [np.nan] * 4})
    imputer = SimpleImputer(strategy=strategy, keep_empty_features=keep, add_indicator=True).fit(
        frame
    )
    later = pd.DataFrame({"gone": [7.0, np.nan], "a": [np.nan, 2.0], "too": [np.nan, 9.0]})
    assert_same(imputer, later, exact=True)


@pytest.mark.parametrize("missing", [-1, 0, 3.5])
def test_a_number_can_mean_missing(missing: float) -> None:
    x = np.array([[missing, 2.0], [4.0, missing], [4.0, 6.0]])
    imputer = SimpleImputer(missing_values=missing, add_indicator=True).fit(x)
    assert_same(imputer, x, exact=True)
    assert_both_raise(imputer, np.array([[np.nan, 1.0]]), MissingValueError, "x0.*NULL")


def test_infinity_raises_as_in_check_array() -> None:
    imputer = SimpleImputer().fit(np.array([[1.0], [np.nan]]))
    assert_both_raise(imputer, np.array([[np.inf]]), MissingValueError, "infinity")


def test_the_fill_is_rounded_to_the_training_dtype() -> None:
    imputer = SimpleImputer(strategy="constant", fill_value=np.float32(0.1)).fit(
        np.ones((3, 1), np.float32)
    )
    assert_same(imputer, np.array([[np.nan], [0.1]]), exact=True)


def test_integers_with_a_missing_number_stay_whole() -> None:
    x = np.array([[1, -9], [2, 5], [2, 7]])
    imputer = SimpleImputer(missing_values=-9, strategy="most_frequent").fit(x)
    assert_same(imputer, x, exact=True)


@pytest.mark.parametrize("dtype", ["str", "object"])
@pytest.mark.parametrize("fill", ["most_frequent", "constant"])
@pytest.mark.parametrize("indicator", [False, True])
def test_strings_are_filled_and_stay_strings(dtype: str, fill: str, indicator: bool) -> None:
    missing: Any = np.nan if dtype == "str" else None
    frame = mixed_frame(90, strings=dtype)[["city", "plan"]]
    model = make_pipeline(
        SimpleImputer(missing_values=missing, strategy=fill, add_indicator=indicator),
        OneHotEncoder(handle_unknown="ignore"),
    ).fit(frame)
    assert_same(model, frame, exact=True)


def test_a_string_can_mean_missing() -> None:
    frame = mixed_frame(60, nulls=0)[["city", "plan"]].astype(object)
    model = make_pipeline(
        SimpleImputer(missing_values="", strategy="most_frequent", add_indicator=True),
        OrdinalEncoder(),
    ).fit(frame)
    assert_same(model, frame, exact=True)


def test_one_imputer_for_strings_and_numbers() -> None:
    frame = mixed_frame(60)[["age", "city", "visits", "plan"]].astype(object)
    frame = frame.where(frame.notna(), np.nan)
    model = make_pipeline(
        SimpleImputer(strategy="most_frequent"), OneHotEncoder(handle_unknown="ignore")
    ).fit(frame)
    assert_same(model, frame, exact=True)


def test_none_left_by_a_nan_imputer_cannot_be_told_apart_in_sql() -> None:
    frame = pd.DataFrame({"c": ["a", None, "b"]}, dtype=object)
    model = make_pipeline(SimpleImputer(strategy="constant", fill_value="?"), OneHotEncoder()).fit(
        frame
    )
    with pytest.raises(UnsupportedModelError, match="missing_values=None"):
        import_model(model)


def test_strings_as_the_result_of_a_transformer_are_refused_in_sql() -> None:
    frame = mixed_frame(20)[["city"]]
    imputer = SimpleImputer(strategy="most_frequent").fit(frame)
    with pytest.raises(UnsupportedModelError, match="coalesce"):
        import_version(imputer, ModelRequest(Reference("m")))


def test_an_imputer_that_drops_every_column_is_refused() -> None:
    imputer = SimpleImputer().fit(np.full((3, 2), np.nan))
    with pytest.raises(UnsupportedModelError, match="drops every column"):
        import_model(imputer)
