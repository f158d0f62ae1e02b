"""CatBoost's statistics of categories (CTR), alone and in combinations, bit for bit."""

from __future__ import annotations

import json
from typing import Any

import catboost as cb
import numpy as np
import pandas as pd
import pytest

import sqlml
from sqlml.backends.native.backend import NativeBackend
from sqlml.errors import ArtifactError, MissingValueError, UnsupportedModelError
from sqlml.explaining.explained import explain_program
from sqlml.importers.registry import import_model
from sqlml.ir import reference, store
from tests.support import oracles
from tests.support.catboost_checks import SMALL, read, saved

CATEGORIES = ["town", "user", "zip", "sex"]


def table(rows: int, seed: int) -> pd.DataFrame:
    """Texts of all lengths, whole numbers, and numbers with gaps and ties."""
    rng = np.random.default_rng(seed)
    towns = [*"abcdefghijk", "Zürich", "日本", "a name of more than sixteen bytes", "x" * 70]
    made = pd.DataFrame(
        {
            "town": rng.choice(np.array(towns, object), rows),
            "user": rng.choice(np.array([f"u{i}" for i in range(40)], object), rows),
            "zip": rng.integers(8000, 8030, rows),
            "sex": rng.choice(np.array(["m", "f"], object), rows),
            "age": rng.normal(size=rows).round(1),
            "ratio": rng.normal(size=rows),
        }
    )
    made.loc[rng.random(rows) < 0.1, "age"] = np.nan
    return made


def answer(x: pd.DataFrame) -> Any:
    """What depends on categories, on two of them together, and on numbers."""
    both = x["user"].str.len() * (x["sex"] == "f") + x["zip"] % 3 * x["age"].isna()
    return x["town"].isin(list("abc")) + both + x["ratio"] / 5 + (x["age"] > 0.5)


def unseen(rows: int) -> pd.DataFrame:
    """Rows of which many have categories that training did not have."""
    rng, made = np.random.default_rng(7), table(rows, 8)
    for name, value in (("town", "Atlantis"), ("user", ""), ("zip", -12345), ("sex", "?")):
        made.loc[rng.random(rows) < 0.2, name] = value
    return made


def scores(program: Any, x: pd.DataFrame) -> Any:
    return reference.run(program, oracles.batch(program, x))["score"]


def raw(model: Any, x: pd.DataFrame) -> Any:
    found = cb.CatBoost.predict(model, x, prediction_type="RawFormulaVal")
    return np.reshape(found, (len(x), -1))


def classes(x: pd.DataFrame, count: int) -> Any:
    return pd.qcut(answer(x), count, labels=False)


def fitted(kind: Any, target: Any, **options: Any) -> Any:
    train = table(1500, 1)
    model = kind(**{**SMALL, "iterations": 30, "depth": 5, **options}, cat_features=CATEGORIES)
    return model.fit(train, target(train))


MODELS = {
    "regression": lambda: fitted(cb.CatBoostRegressor, answer),
    "borders and buckets": lambda: fitted(
        cb.CatBoostRegressor,
        answer,
        simple_ctr=["Borders:TargetBorderCount=4", "Counter"],
        combinations_ctr=["Buckets:TargetBorderCount=2"],
    ),
    "means": lambda: fitted(
        cb.CatBoostRegressor,
        answer,
        simple_ctr=["BinarizedTargetMeanValue:TargetBorderCount=5:Prior=0.3"],
        combinations_ctr=["BinarizedTargetMeanValue:TargetBorderCount=5"],
    ),
    "combinations": lambda: fitted(
        cb.CatBoostClassifier,
        lambda x: classes(x, 2),
        iterations=80,
        depth=8,
        max_ctr_complexity=6,
        one_hot_max_size=2,
    ),
    "NaN above all": lambda: fitted(
        cb.CatBoostRegressor, answer, iterations=80, depth=8, one_hot_max_size=2, nan_mode="Max"
    ),
    "classes": lambda: fitted(
        cb.CatBoostClassifier, lambda x: classes(x, 4), grow_policy="Lossguide"
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_statistics_are_catboosts_bit_for_bit(name: str) -> None:
    model = MODELS[name]()
    imported = import_model(model)
    kinds = {f.name: f.kind for f in imported.features}
    assert {n: kinds[n] for n in CATEGORIES} == {
        "town": "string",
        "user": "string",
        "zip": "number",
        "sex": "string",
    }
    program, rows = imported.program, unseen(2000)
    np.testing.assert_array_equal(scores(program, rows), raw(model, rows))
    assert store.loads(store.dumps(program)).hash == program.hash


def test_combinations_hold_categories_numbers_and_single_categories() -> None:
    document = json.loads(saved(MODELS["combinations"]()))
    parts = {
        e["combination_element"] for c in document["features_info"]["ctrs"] for e in c["elements"]
    }
    assert parts == {"cat_feature_value", "float_feature", "cat_feature_exact_value"}
    assert max(len(c["elements"]) for c in document["features_info"]["ctrs"]) > 2


def test_files_say_what_the_object_does() -> None:
    model = MODELS["combinations"]()
    program = import_model(model).program
    pool = cb.Pool(table(1500, 1), cat_features=CATEGORIES)
    for content in (saved(model), saved(model, pool)):
        found = import_model(read(content)).program
        np.testing.assert_array_equal(scores(found, unseen(300)), scores(program, unseen(300)))


@pytest.mark.nightly
def test_binary_files_say_what_the_object_does(tmp_path: Any) -> None:
    model = MODELS["means"]()
    model.save_model(str(tmp_path / "m.cbm"))
    program = import_model(read((tmp_path / "m.cbm").read_bytes())).program
    np.testing.assert_array_equal(scores(program, unseen(300)), raw(model, unseen(300)))


@pytest.mark.parametrize(("kind", "other"), [("Counter", "FeatureFreq")])
def test_kinds_of_a_gpu_count_alike(kind: str, other: str, tmp_path: Any) -> None:
    model = MODELS["regression"]()
    path = tmp_path / "m.json"
    path.write_bytes(saved(model).replace(kind.encode(), other.encode()))
    found = cb.CatBoost().load_model(str(path), format="json")
    program = import_model(read(path.read_bytes())).program
    np.testing.assert_allclose(scores(program, unseen(300)), raw(found, unseen(300)), atol=1e-12)


def test_sums_that_catboost_misreads_in_its_own_json_are_refused() -> None:
    content = saved(MODELS["means"]())
    with pytest.raises(UnsupportedModelError, match=r"save the model as model\.cbm"):
        read(content)


def test_statistics_that_the_json_mixes_up_are_refused() -> None:
    twice = ["Borders:TargetBorderCount=1", "Borders:TargetBorderCount=4"]
    with pytest.raises(UnsupportedModelError, match="TargetBorderCount"):
        import_model(fitted(cb.CatBoostRegressor, answer, simple_ctr=twice))


@pytest.mark.parametrize("column", CATEGORIES)
def test_null_is_refused_as_catboost_does(column: str) -> None:
    model = MODELS["combinations"]()
    program, rows = import_model(model).program, table(5, 9).astype({column: object})
    rows.loc[2, column] = None
    with pytest.raises((cb.CatBoostError, TypeError)):
        model.predict(rows)
    with pytest.raises(MissingValueError, match=column):
        scores(program, rows)


def test_a_number_that_is_not_whole_is_refused_as_catboost_does() -> None:
    model = MODELS["regression"]()
    rows = table(5, 9).astype({"zip": float})
    rows.loc[2, "zip"] += 0.5
    with pytest.raises(cb.CatBoostError, match="integer or string"):
        model.predict(rows)
    with pytest.raises(MissingValueError, match="not whole"):
        scores(import_model(model).program, rows)


CONTRIBUTIONS = {
    "combinations": MODELS["combinations"],
    "NaN above all": MODELS["NaN above all"],
    "regression": MODELS["regression"],
    "classes": lambda: fitted(cb.CatBoostClassifier, lambda x: classes(x, 4)),
}


@pytest.mark.by_day(2)
@pytest.mark.parametrize("name", CONTRIBUTIONS)
def test_contributions_are_catboosts(name: str) -> None:
    model = CONTRIBUTIONS[name]()
    program, rows = explain_program(import_model(model).program), unseen(40)
    pool = cb.Pool(rows, cat_features=CATEGORIES)
    want = np.asarray(model.get_feature_importance(pool, type="ShapValues"))
    order = [list(rows).index(column) for column in program.inputs]
    want = want.reshape(len(rows), -1, len(rows.columns) + 1)[:, :, [*order, -1]]
    output = "class_contributions" if name == "classes" else "contributions"
    batch = oracles.batch(program, rows)
    found = NativeBackend().compile(program).run(batch)[output]
    np.testing.assert_allclose(found, want.reshape(len(rows), -1), rtol=1e-9, atol=1e-11)
    if name == "regression":
        slowly = reference.run(program, batch)[output]
        np.testing.assert_allclose(slowly, found, rtol=1e-12, atol=1e-14)


def without(document: Any) -> None:
    del document["ctr_data"]


def renamed(document: Any) -> None:
    document["features_info"]["ctrs"][0]["ctr_type"] = "Counter"


def uneven(document: Any) -> None:
    next(iter(document["ctr_data"].values()))["hash_map"].pop()


def fractions(document: Any) -> None:
    next(iter(document["ctr_data"].values()))["hash_map"][1] = 0.5


def unknown(document: Any) -> None:
    document["features_info"]["ctrs"][0]["elements"][0]["cat_feature_index"] = 77


@pytest.mark.parametrize("damage", [without, renamed, uneven, fractions, unknown])
def test_damaged_statistics_are_refused(damage: Any) -> None:
    document = json.loads(saved(MODELS["regression"]()))
    damage(document)
    with pytest.raises(ArtifactError):
        read(json.dumps(document, sort_keys=True).encode())


@pytest.mark.parametrize(("first", "kind"), [(99_990, "number"), (10**9, "string")])
def test_columns_of_numbers_of_up_to_six_digits_are_known_as_such(first: int, kind: str) -> None:
    def moved(x: pd.DataFrame) -> pd.DataFrame:
        return x.assign(zip=x["zip"] - 8000 + first)

    train = moved(table(800, 1))
    options = {**SMALL, "cat_features": CATEGORIES, "max_ctr_complexity": 1}
    model = cb.CatBoostRegressor(**options).fit(train, answer(train) + train["zip"] % 5 * 3)
    scorer, rows = sqlml.compile(model), moved(unseen(200))
    assert {f.name: f.kind for f in scorer.features}["zip"] == kind
    given = rows if kind == "number" else rows.assign(zip=rows["zip"].astype(str))
    np.testing.assert_array_equal(scorer.predict(given), model.predict(rows))
