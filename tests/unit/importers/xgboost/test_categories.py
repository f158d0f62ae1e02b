"""XGBoost's columns of categories: by the values of a pandas frame, and by codes."""

from __future__ import annotations

import tempfile
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import xgboost as xgb

import sqlml
from sqlml.errors import UnknownCategoryError, UnsupportedModelError
from sqlml.importers.registry import import_model
from sqlml.ir import reference
from tests.support import oracles
from tests.support.xgboost_checks import (
    quiet,
)


@pytest.fixture(autouse=True)
def one_thread() -> Any:
    with quiet():
        yield


def frame_of_categories(rows: int) -> pd.DataFrame:
    table = oracles.mixed_frame(rows, seed=5)
    return pd.DataFrame(
        {
            "age": table["age"],
            "city": table["city"].where(table["city"].str.isascii()).astype("category"),
            "active": table["active"],
            "zip": table["zip"].astype("category"),
        }
    )


@pytest.mark.parametrize("onehot", [1, 100], ids=["sets", "one against the rest"])
def test_pandas_categories_are_strings_and_numbers_in_sql(onehot: int) -> None:
    train = frame_of_categories(800)
    target = (train["city"].isin(["Bern", "Lima"]) * 2 + (train["zip"] == 8001) * 1).to_numpy()
    model = xgb.XGBClassifier(n_estimators=8, enable_categorical=True, max_cat_to_onehot=onehot)
    model.fit(train, target)
    imported = import_model(model)
    kinds = {f.name: f.kind for f in imported.features}
    assert kinds == {"age": "number", "city": "string", "active": "number", "zip": "number"}
    # The same values as categories in another order, as another query would deliver them.
    test = frame_of_categories(400).assign(
        city=lambda d: d["city"].cat.reorder_categories(sorted(d["city"].cat.categories)[::-1])
    )
    plain = test.assign(city=test["city"].astype(object), zip=test["zip"].astype(int))
    got = reference.run(imported.program, oracles.batch(imported.program, plain))
    np.testing.assert_array_equal(got["score"], model.predict(test, output_margin=True))
    raw = import_model(model.get_booster()).program
    np.testing.assert_array_equal(
        reference.run(raw, oracles.batch(raw, plain))["score"], got["score"]
    )


def test_a_category_that_training_never_saw_is_refused() -> None:
    train = frame_of_categories(300)
    model = xgb.XGBRegressor(n_estimators=3, enable_categorical=True)
    model.fit(train, train["zip"].cat.codes)
    program = import_model(model).program
    row = {"age": [1.0], "city": np.array(["Bern"], object), "active": [True], "zip": [9999]}
    with pytest.raises(UnknownCategoryError, match="zip"):
        reference.run(program, {k: np.asarray(v) for k, v in row.items()})
    with pytest.raises(ValueError, match="not in the training set"):
        model.predict(train.iloc[:1].assign(zip=pd.Categorical([9999])))


CITIES = ["Zürich", "Bern", "O'Łódź", "Oslo"]


@pytest.mark.parametrize("library", ["pandas", "polars", "unsorted"])
def test_categories_outside_ascii_have_the_names_that_the_user_declares(library: str) -> None:
    values = [CITIES[i % 4] for i in range(40)]
    train: Any = pd.DataFrame({"city": pd.Categorical(values)})
    if library == "polars":  # whose names XGBoost stores in full
        train = pl.DataFrame({"city": pl.Series(values, dtype=pl.Categorical)})
    if library == "unsorted":
        train = pd.DataFrame({"city": pd.Categorical(values, CITIES)})
    target = np.arange(40) % 4
    model = xgb.XGBRegressor(n_estimators=4, enable_categorical=True).fit(train, target)
    want = model.predict(train)
    assert len(set(want.tolist())) == 4
    with pytest.raises(
        UnsupportedModelError, match=r"does not store in full; list .*\"city\" ENUM"
    ):
        import_model(model)
    with pytest.raises(UnsupportedModelError, match="are not the 4 categories"):
        import_model(model, {"city": "ENUM('Zürich', 'Bern', 'Oslo', 'Lodz')"})
    declared = ", ".join("'" + name.replace("'", "''") + "'" for name in CITIES)
    program = import_model(model, {"city": f"ENUM({declared})"}).program
    got = reference.run(program, {"city": np.array(values, object)})["label"]
    np.testing.assert_array_equal(got.ravel(), want)
    with sqlml.connect() as con:
        con.create_model("m", model, inputs={"city": f"ENUM({declared})"})
        con.register("names", pd.DataFrame({"city": values}))
        found = con.execute("SELECT predict('m', *) FROM names").fetchall()
        np.testing.assert_array_equal([value for (value,) in found], want)
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/m.json"
            model.save_model(path)
            con.execute(f"CREATE MODEL f INPUT (city ENUM({declared})) FROM '{path}'")
        found = con.execute("SELECT predict('f', *) FROM names").fetchall()
        np.testing.assert_array_equal([value for (value,) in found], want)


def test_codes_beyond_negative_or_missing_take_the_branches_that_xgboost_gives_them() -> None:
    rng = np.random.default_rng(2)
    codes = rng.integers(0, 40, (900, 1)).astype(np.float32)
    codes[:80] = np.nan
    target = np.isin(codes[:, 0], [1, 5, 33, 39]) * 3.0 + rng.normal(size=900)
    params = {"max_cat_to_onehot": 1, "max_depth": 5, "min_child_weight": 0}
    train = xgb.DMatrix(codes, target, feature_types=["c"], enable_categorical=True)
    booster = xgb.train(params, train, 6)
    rows = np.array([[-1], [-0.5], [0], [0.9], [33], [38.7], [39], [63], [64], [1e6], [np.nan]])
    rows = np.concatenate([rows, codes])
    program = import_model(booster).program
    got = reference.run(program, {"f0": rows})
    data = xgb.DMatrix(rows, feature_types=["c"], enable_categorical=True)
    np.testing.assert_array_equal(got["score"].ravel(), booster.predict(data, output_margin=True))
