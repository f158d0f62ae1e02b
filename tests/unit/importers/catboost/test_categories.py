"""CatBoost's columns of categories: one-hot splits by name and by hash."""

from __future__ import annotations

import json
from typing import Any

import catboost as cb
import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline

from sqlml.errors import MissingValueError
from sqlml.importers.registry import import_model
from sqlml.ir import reference, store
from sqlml.ir.hashes import city_hash32
from sqlml.ir.utf8_column import TextColumn
from sqlml.passes.split import split
from tests.support import oracles
from tests.support.catboost_checks import (
    GROWTH,
    SMALL,
    read,
    saved,
)


def frame(rows: int, seed: int = 6) -> pd.DataFrame:
    """Numbers with gaps; strings and whole numbers as categories, without gaps."""
    table = oracles.mixed_frame(rows, seed=seed)
    return pd.DataFrame(
        {
            "age": table["age"],
            "city": table["city"].fillna("nowhere").astype(object),
            "ratio": table["ratio"],
            "zip": table["zip"],
        }
    )


CATEGORIES = {"one_hot_max_size": 50, "cat_features": ["city", "zip"]}


@pytest.fixture(scope="module")
def shop() -> Any:
    train = frame(900)
    target = train["city"].isin(["Zürich", "日本"]) * 2.0 + (train["zip"] == 8001) + train["ratio"]
    return train, target


@pytest.mark.parametrize("grow", GROWTH)
def test_one_hot_splits_read_strings_and_whole_numbers(shop: Any, grow: str) -> None:
    train, target = shop
    model = cb.CatBoostRegressor(**SMALL, **CATEGORIES, grow_policy=grow).fit(train, target)
    test = frame(500, seed=9)
    test.loc[:30, "city"] = "Atlantis"
    test.loc[20:50, "zip"] = 1
    expected = model.predict(test)
    pool = cb.Pool(train, target, cat_features=["city", "zip"])
    by_hash, by_name = import_model(model), import_model(read(saved(model, pool)))
    for imported in (by_hash, by_name, import_model(read(saved(model)))):
        assert imported.is_named
        assert {f.name: f.kind for f in imported.features}["city"] == "string"
        assert {f.name: f.kind for f in imported.features}["zip"] == "number"
        got = reference.run(imported.program, oracles.batch(imported.program, test))
        np.testing.assert_array_equal(got["label"].ravel(), expected)
        assert store.loads(store.dumps(imported.program)).hash == imported.program.hash
    assert "hash_categories" in {n.op for n in by_hash.program}
    assert "hash_categories" not in {n.op for n in by_name.program}


def test_missing_category_is_refused_as_catboost_does(shop: Any) -> None:
    train, target = shop
    model = cb.CatBoostRegressor(**SMALL, **CATEGORIES).fit(train, target)
    program = import_model(model).program
    for column in ("city", "zip"):
        test = train[:5].astype({column: object})
        test.loc[2, column] = None
        with pytest.raises((cb.CatBoostError, TypeError)):
            model.predict(test)
        with pytest.raises(MissingValueError, match=column):
            reference.run(program, oracles.batch(program, test))


def test_columns_that_are_hashed_reach_the_kernels_as_texts(shop: Any) -> None:
    train, target = shop
    model = cb.CatBoostRegressor(**SMALL, **CATEGORIES).fit(train, target)
    parts = split(import_model(model).program)
    assert "city" in parts.texts
    assert parts.encoders is None or "city" not in parts.encoders.inputs


@pytest.mark.parametrize("size", [0, 1, 3, 4, 8, 9, 16, 17, 32, 33, 64, 65, 128, 129, 300])
def test_city_hash_of_every_length_is_catboosts(size: int) -> None:
    rng = np.random.default_rng(size)
    words = ["".join(rng.choice(list("abcdeXYZ019 "), size)) for _ in range(3)] + ["é" * size]
    data = pd.DataFrame({"c": [*words, "other"] * 3})
    pool = cb.Pool(data, np.arange(len(data)), cat_features=["c"])
    model = cb.CatBoostRegressor(**{**SMALL, "iterations": 1}, one_hot_max_size=9).fit(pool)
    known = json.loads(saved(model, pool))["features_info"]["cat_features_hash"]
    assert {e["value"] for e in known} == {*words, "other"}
    assert all(city_hash32(e["value"]) == e["hash"] for e in known)


def test_strings_that_an_earlier_step_makes_stay_strings_though_they_are_digits() -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "ratio": rng.normal(size=300),
            "zip": pd.Series(rng.choice(["10", "20", "30", np.nan], 300), dtype=object),
            "idle": pd.Series(rng.choice(["x", "y"], 300), dtype=object),
        }
    )
    fill = SimpleImputer(strategy="constant", fill_value="NULL")
    steps = [("number", "passthrough", ["ratio"]), ("category", fill, ["zip", "idle"])]
    features = ColumnTransformer(steps).set_output(transform="pandas")
    model = cb.CatBoostRegressor(**SMALL, one_hot_max_size=50, cat_features=[1, 2])
    pipeline = Pipeline([("features", features), ("model", model)])
    pipeline.fit(table, table["ratio"] + (table["zip"] == "10"))
    program = import_model(pipeline).program
    words = {name: table[name].to_numpy(object) for name in ("zip", "idle")}
    for columns in (words, {name: TextColumn.from_values(word) for name, word in words.items()}):
        inputs = {"ratio": table["ratio"].to_numpy(), **columns}
        found = reference.run(program, inputs)["label"][:, 0]
        np.testing.assert_allclose(found, pipeline.predict(table), rtol=1e-12)
