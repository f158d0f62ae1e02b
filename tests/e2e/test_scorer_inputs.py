"""What a Scorer reads: frames, tables and mappings of every kind, and which ones it refuses."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import lightgbm
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import xgboost
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import sqlml
from sqlml import errors
from tests.e2e import model_zoo
from tests.e2e.conftest import FEATURES, ROWS


def table_of(frame: pd.DataFrame) -> pa.Table:
    return pa.Table.from_pandas(frame, preserve_index=False)


HOLDERS: dict[str, Callable[[pd.DataFrame], Any]] = {
    "pandas": lambda f: f,
    "pandas, shuffled columns": lambda f: f[["region", "id", "charges", "plan", "tenure"]],
    "pandas, other case": lambda f: f.rename(columns=str.upper),
    "pandas, odd index": lambda f: f.set_axis(f.index[::-1] * 3, axis=0),
    "pandas, object": lambda f: f.astype(object),
    "pandas, category": lambda f: f.astype({"plan": "category", "region": "category"}),
    "pandas, nullable": lambda f: f.convert_dtypes(),
    "pandas, Int64 and Float64": lambda f: f.astype(
        {"tenure": "Int64", "charges": "Float64", "plan": "string", "region": "string"}
    ),
    "pandas, arrow types": lambda f: f.convert_dtypes(dtype_backend="pyarrow"),
    "polars": pl.from_pandas,
    "polars, categorical": lambda f: pl.from_pandas(f).with_columns(
        pl.col("plan").cast(pl.Categorical),
        pl.col("region").cast(pl.Enum(["it's", "north", "south"])),
    ),
    "polars, small integers": lambda f: pl.from_pandas(f).with_columns(
        pl.col("tenure").cast(pl.UInt8)
    ),
    "Arrow table": table_of,
    "Arrow table in pieces": lambda f: pa.concat_tables([table_of(f[:90]), table_of(f[90:])]),
    "Arrow table, sliced": lambda f: table_of(pd.concat([f[:7], f])).slice(7),
    "Arrow batch": lambda f: table_of(f).combine_chunks().to_batches()[0],
    "Arrow table, dictionaries": lambda f: pa.table(
        {n: c.dictionary_encode() if pa.types.is_large_string(c.type) or pa.types.is_string(c.type)
         else c for n, c in zip(f.columns, table_of(f).columns, strict=True)}
    ),
    "Arrow table, decimals": lambda f: pa.table(f.assign(
        charges=[Decimal(f"{v:.2f}") for v in f.charges]
    )),
    "dict of arrays": lambda f: {n: f[n].to_numpy() for n in f},
    "dict of lists": lambda f: {
        n: [None if pd.isna(v) else v for v in f[n].tolist()] for n in f
    },
    "dict of Arrow arrays": lambda f: dict(zip(f.columns, table_of(f).columns, strict=True)),
    "object matrix": lambda f: f[FEATURES].astype(object).to_numpy(),
}  # fmt: skip


@pytest.mark.parametrize("holder", HOLDERS)
def test_every_holder_gives_the_numbers_of_the_source(
    frame: pd.DataFrame, churn: Any, holder: str
) -> None:
    scorer = sqlml.compile(churn)
    held = HOLDERS[holder](frame)
    want = churn.predict_proba(frame[FEATURES])
    np.testing.assert_allclose(scorer.predict_proba(held), want, rtol=1e-11, atol=1e-14)
    label = scorer.predict(held)
    assert label.tolist() == churn.predict(frame[FEATURES]).tolist()


@pytest.mark.by_day(3)
@pytest.mark.parametrize("name", model_zoo.MODELS)
def test_every_model_in_pandas_and_arrow(name: str) -> None:
    entry, made = model_zoo.MODELS[name], model_zoo.model(name)
    rows = model_zoo.rows(name)
    scorer = sqlml.compile(made)
    x = entry.view(rows[entry.features])
    classifies = hasattr(made, "predict_proba")
    want = made.predict_proba(x) if classifies else made.predict(x)
    label = made.predict(x) if classifies else None
    for held in (rows, rows.convert_dtypes(), pl.from_pandas(rows), model_zoo.arrow(rows)):
        got = scorer.predict_proba(held) if classifies else scorer.predict(held)
        smallest = 2.0**-23 if entry.digits > 1e-9 else 1e-14
        np.testing.assert_allclose(got, want, rtol=entry.digits, atol=smallest)
        if entry.exact == "all":
            np.testing.assert_array_equal(got, want)
        if label is not None:
            assert scorer.predict(held).tolist() == label.tolist()


@pytest.mark.parametrize("kind", [(9, 2), (18, 4), (38, 10), (38, 37)])
def test_a_decimal_is_the_nearest_float(kind: tuple[int, int]) -> None:
    rng = np.random.default_rng(4)
    digits = rng.integers(-(10 ** min(kind[0], 18)) + 1, 10 ** min(kind[0], 18), 3000)
    column = [Decimal(int(d)).scaleb(-kind[1]) for d in digits]
    floats = np.array([float(d) for d in column])
    steps = SimpleImputer(fill_value=0.5, strategy="constant").fit(pd.DataFrame({"a": floats}))
    held = pa.table({"a": pa.array([*column, None], pa.decimal128(*kind))})
    got = sqlml.compile(steps).transform(held)
    np.testing.assert_array_equal(got[:, 0], [*floats, 0.5])


def test_a_missing_column_is_named_with_the_closest(frame: pd.DataFrame, churn: Any) -> None:
    scorer = sqlml.compile(churn)
    for held in (frame, pl.from_pandas(frame), table_of(frame), dict(frame.items())):
        renamed: Any
        if isinstance(held, dict):
            renamed = {("chrges" if n == "charges" else n): c for n, c in held.items()}
        elif isinstance(held, pa.Table):
            renamed = held.rename_columns(
                [n.replace("charges", "chrges") for n in held.column_names]
            )
        elif isinstance(held, pl.DataFrame):
            renamed = held.rename({"charges": "chrges"})
        else:
            renamed = held.rename(columns={"charges": "chrges"})
        with pytest.raises(errors.MissingColumnError, match="'charges'.*did you mean 'chrges'"):
            scorer.predict(renamed)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"tenure": "x"}, "'tenure' takes numbers"),
        ({"tenure": pd.Timestamp("2020-01-01")}, "'tenure' takes numbers"),
        ({"plan": 3}, "'plan' takes strings"),
        ({"plan": b"pro"}, "'plan' takes strings"),
    ],
)
def test_a_wrong_type_names_the_column(
    frame: pd.DataFrame, churn: Any, change: dict[str, Any], says: str
) -> None:
    with pytest.raises(errors.InputTypeError, match=says):
        sqlml.compile(churn).predict(frame.assign(**change))


def test_mixed_types_in_a_column(frame: pd.DataFrame, churn: Any) -> None:
    plans = frame.plan.astype(object)
    plans[3] = 7
    with pytest.raises(errors.InputTypeError, match="'plan'"):
        sqlml.compile(churn).predict(frame.assign(plan=plans))


def test_columns_of_different_length(value_model: Any) -> None:
    with pytest.raises(errors.InputTypeError, match="different lengths"):
        sqlml.compile(value_model).predict({"charges": [1.0, 2.0], "tenure": [1.0]})


def test_missing_values_where_the_model_takes_none(value_model: Any, frame: pd.DataFrame) -> None:
    scorer = sqlml.compile(value_model)
    for value in (np.nan, np.inf):
        held = frame.dropna().assign(charges=value)
        for holder in (held, pl.from_pandas(held), held[["charges", "tenure"]].to_numpy()):
            with pytest.raises(errors.MissingValueError, match="charges"):
                scorer.predict(holder)


@pytest.mark.parametrize(
    "levels",
    [
        np.array([-3, 0, 7, 8001]),
        np.array([3, 7, 20, 100], np.uint8),
        np.array([0.5, 1.5, 3.0, -2.0]),
        pd.array([1, 2, 3, 4], dtype="Int64"),
    ],
    ids=["int64", "uint8", "float64", "nullable"],
)
def test_categories_of_pandas_may_be_numbers(levels: Any) -> None:
    codes = np.arange(120) % 5 - 1  # -1 is a missing value
    frame = pd.DataFrame({"zip": pd.Categorical.from_codes(codes, pd.Index(levels))})
    frame["x"] = np.arange(120.0) % 7
    y = np.isin(codes, [1, 3]) * 2.0 + (codes < 0)
    models = [lightgbm.LGBMRegressor(n_estimators=3, min_child_samples=2, verbose=-1)]
    if isinstance(levels, np.ndarray) and levels.dtype.kind != "f":  # which XGBoost does not take
        models.append(xgboost.XGBRegressor(n_estimators=3, enable_categorical=True))
    for model in models:
        want = model.fit(frame, y).predict(frame)
        assert len(set(want.tolist())) > 2
        scorer = sqlml.compile(model)
        for held in (frame, table_of(frame), frame.astype({"zip": "float64"})):
            np.testing.assert_allclose(scorer.predict(held), want, rtol=1e-6)
        with sqlml.connect() as con:
            con.create_model("m", model)
            con.register("rows", frame)
            got = con.execute("SELECT predict('m', *) FROM rows").fetchall()
            np.testing.assert_allclose([value for (value,) in got], want, rtol=1e-6)


def test_an_unknown_category_names_its_column(frame: pd.DataFrame) -> None:
    known = frame.dropna()
    model = make_pipeline(OneHotEncoder(), LogisticRegression())
    model.fit(known[["plan", "region"]], known.charges > 60)
    scorer = sqlml.compile(model)
    held = known.assign(plan="gold")
    with pytest.raises(ValueError, match="unknown categories"):
        model.predict(held[["plan", "region"]])
    with pytest.raises(errors.UnknownCategoryError, match="'plan'"):
        scorer.predict(held)


def test_columns_that_are_not_used_may_hold_anything(frame: pd.DataFrame) -> None:
    y = frame.charges * 2
    model = HistGradientBoostingRegressor(max_iter=3).fit(frame[["charges", "tenure"]], y)
    held = frame.assign(when=pd.Timestamp("2020-01-01"), thing=[object()] * ROWS)
    want = model.predict(frame[["charges", "tenure"]])
    np.testing.assert_array_equal(sqlml.compile(model).predict(held), want)
