"""category_encoders' encoders: each category, unseen and missing ones, and other columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

import sqlml
from sqlml import errors
from sqlml.importers.category_encoders import IMPORTERS

ce = pytest.importorskip("category_encoders")

RANDOM = np.random.default_rng(0)
ROWS = pd.DataFrame(
    {
        "n": RANDOM.normal(size=120),
        "city": RANDOM.choice(["north", "south", "east", "west", "centre"], 120),
        "size": RANDOM.choice([1.0, 2.0, 4.0, 8.0], 120),
    }
)
GAPS = ROWS.assign(city=ROWS.city.where(RANDOM.random(120) > 0.1))
Y = (ROWS.n + (ROWS.city > "n") > 0.5).astype(int)
NEW = pd.DataFrame(
    {"n": [0.5, 1.0, 2.0], "city": ["nowhere", "north", None], "size": [1.0, 3.0, np.nan]}
)
KINDS = sorted({path.rpartition(".")[2] for path in IMPORTERS})


def encoded(model: Any, rows: pd.DataFrame) -> Any:
    return sqlml.compile(model).transform(rows)


@pytest.mark.by_day(3)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows", [ROWS, GAPS], ids=["whole", "gaps"])
def test_encoders(kind: str, rows: pd.DataFrame) -> None:
    model = getattr(ce, kind)(cols=["city", "size"]).fit(rows, Y)
    for asked in (rows, NEW):
        want = model.transform(asked).to_numpy(np.float64)
        np.testing.assert_allclose(encoded(model, asked), want, rtol=1e-15)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("OneHotEncoder", {"use_cat_names": True, "handle_unknown": "indicator"}),
        ("OneHotEncoder", {"handle_missing": "return_nan", "handle_unknown": "return_nan"}),
        ("TargetEncoder", {"handle_missing": "return_nan", "smoothing": 2}),
        ("CountEncoder", {"normalize": True, "min_group_size": 20}),
        ("OrdinalEncoder", {"drop_invariant": True}),
        ("BaseNEncoder", {"base": 3}),
        ("CatBoostEncoder", {"sigma": 0.1}),
    ],
)
def test_options(kind: str, options: dict[str, Any]) -> None:
    model = getattr(ce, kind)(cols=["city"], **options).fit(ROWS.assign(one=1.0), Y)
    for asked in (ROWS.assign(one=1.0), NEW.assign(one=1.0)):
        want = model.transform(asked).to_numpy(np.float64)
        np.testing.assert_allclose(encoded(model, asked), want, rtol=1e-15)


def test_errors_are_the_encoders_own() -> None:
    model = ce.OrdinalEncoder(cols=["city"], handle_unknown="error", handle_missing="error")
    model.fit(ROWS, Y)
    np.testing.assert_array_equal(encoded(model, ROWS), model.transform(ROWS).to_numpy())
    for city in ("nowhere", None):
        with pytest.raises(ValueError):
            model.transform(NEW.assign(city=[city] * 3))
        with pytest.raises(errors.UnknownCategoryError, match="city"):
            encoded(model, NEW.assign(city=[city] * 3))


def test_in_a_pipeline_and_in_sql() -> None:
    model = make_pipeline(ce.TargetEncoder(cols=["city"]), LogisticRegression()).fit(ROWS, Y)
    with sqlml.connect() as con:
        con.register("rows", pd.concat([ROWS, NEW.fillna({"size": 1.0})], ignore_index=True))
        con.create_model("m", model)
        assert "label_flips=0" in dict(con.model("m").properties)["verification"]
        found = con.execute("SELECT predict_proba('m', *, class := 1) AS p, * FROM rows").df()
    want = model.predict_proba(found[["n", "city", "size"]])[:, 1]
    np.testing.assert_allclose(found.p, want, rtol=1e-12)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (ce.HashingEncoder(cols=["city"]), "does not import"),
        (ce.TargetEncoder(cols=["city"]), "fit"),
        (ce.OrdinalEncoder(cols=[1]).fit(ROWS.to_numpy()), "fitted on an array"),
    ],
)
def test_what_is_not_covered(model: Any, words: str) -> None:
    if "Hashing" in type(model).__name__:
        model.fit(ROWS, Y)
    with pytest.raises(errors.UnsupportedModelError, match=words):
        sqlml.compile(model)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"use_cat_names": True, "handle_unknown": "indicator", "handle_missing": "indicator"},
        {"handle_unknown": "error", "handle_missing": "error"},
    ],
)
def test_many_categories_are_one_step(options: dict[str, Any]) -> None:
    names = np.array([f"town {i}" for i in range(400)], object)
    rows = pd.DataFrame({"town": np.concatenate([names, RANDOM.choice(names, 400)]), "n": 1.0})
    model = ce.OneHotEncoder(cols=["town"], **options).fit(rows)
    program = sqlml.compile(model).program
    assert len(program.nodes) < 16 and program.nbytes < 100_000
    asked = rows if options.get("handle_unknown") == "error" else rows.assign(town="nowhere")
    for some in (rows, asked):
        want = model.transform(some).to_numpy(np.float64)
        np.testing.assert_array_equal(encoded(model, some), want)
    if options.get("handle_unknown") == "error":
        for town in ("nowhere", None):
            with pytest.raises(errors.UnknownCategoryError, match="town"):
                encoded(model, rows.assign(town=pd.Series([town] * 800, dtype=object)))
