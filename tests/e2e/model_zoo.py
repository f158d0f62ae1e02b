"""The fitted models whose SQL results are compared with their own libraries.

`MODELS` names them; each is fitted once per process, on `people`, when it is first asked for. A
model is scored on `rows`: ordinary rows, and rows on and beside each of its thresholds. Both are
tables of the columns in `COLUMNS`, whose every value is exact in the column's SQL type, so that
library and engine see the same numbers.
"""

from __future__ import annotations

import decimal
import json
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any, Literal

import lightgbm as lgb
import numpy as np
import pandas as pd
import pyarrow as pa
import xgboost as xgb
from sklearn.compose import make_column_transformer
from sklearn.ensemble import (
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, OneHotEncoder, OrdinalEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from sqlml.types import Array
from tests.support import oracles

COLUMNS: Mapping[str, Any] = MappingProxyType(
    {
        "age": pa.float64(),
        "income": pa.float64(),
        "ratio": pa.float32(),
        "share": pa.float32(),
        "visits": pa.int32(),
        "level": pa.int8(),
        "active": pa.bool_(),
        "zip": pa.int64(),
        "price": pa.decimal128(9, 2),
        "city": pa.string(),
        "plan": pa.dictionary(pa.int8(), pa.string()),
    }
)
"""DOUBLE, FLOAT, INTEGER, TINYINT, BOOLEAN, BIGINT, DECIMAL(9,2), VARCHAR and ENUM."""

TEXT = ["city", "plan"]
NUMBERS = ["age", "income", "share", "visits", "level", "active", "zip", "price"]
"""Numbers with missing values in age, income, share, visits and price."""
WHOLE = ["ratio", "level", "active", "zip"]
"""Numbers without a missing value, for models that take none."""
SMALL = ["ratio", "level", "active"]
"""FLOAT, TINYINT and BOOLEAN: what is packed as float32."""
GAPS = [*SMALL, "share"]
"""The same with missing values."""

Exact = Literal["score", "all", "nothing"]


@dataclass(frozen=True, slots=True)
class Entry:
    """How a model is made and asked.

    Attributes:
        fit: (table of `features`, target) -> the fitted model.
        target: a key of `targets`.
        view: what the model is trained on and asked, out of a table of `features`.
        tree: whether it has trees, and so strategies; `deep` when ptt refuses them.
        exact: what must agree bit for bit: "score" the raw margins, "all" every number.
        digits: relative error allowed elsewhere.
        unseen: whether the model takes categories that it has never seen.
    """

    fit: Callable[[Any, Any], Any]
    target: str
    features: list[str]
    view: Callable[[pd.DataFrame], Any] = lambda table: table
    tree: bool = False
    deep: bool = False
    exact: Exact = "nothing"
    digits: float = 1e-11
    unseen: bool = True


@cache
def people(rows: int = 400) -> pd.DataFrame:
    """The table that the models are fitted on."""
    rng = np.random.default_rng(5)
    table = oracles.mixed_frame(rows, seed=5)
    table["visits"] = np.where(rng.random(rows) < 0.1, np.nan, table["visits"])
    table["share"] = np.where(rng.random(rows) < 0.1, np.nan, rng.normal(size=rows))
    table["price"] = np.where(rng.random(rows) < 0.1, np.nan, rng.normal(50, 20, rows))
    return typed(table)


def typed(table: pd.DataFrame) -> pd.DataFrame:
    """`table` with each number rounded to what its SQL type holds; NaN for NULL."""
    out: dict[str, Any] = {}
    for name, kind in COLUMNS.items():
        column = table[name]
        if pa.types.is_integer(kind):
            column = column.astype(np.float64).round()
            if not column.isna().any():
                column = column.astype(kind.to_pandas_dtype())
        elif pa.types.is_decimal(kind):
            column = column.round(2)
        elif pa.types.is_floating(kind) or pa.types.is_boolean(kind):
            column = column.astype(kind.to_pandas_dtype())
        elif column.dtype == object:  # pandas 2, where imputers tell None from NaN
            column = column.where(column.notna(), np.nan)
        out[name] = column
    return pd.DataFrame(out)


def targets(table: pd.DataFrame) -> dict[str, Array]:
    """Labels of every type and two regression targets, each a function of many columns."""
    rng = np.random.default_rng(11)
    x = table.fillna({"age": 40, "share": 0.3, "visits": 5, "price": 20, "income": 9e3})
    value = (
        x.age / 30 + np.log(x.income) / 3 + x.ratio * 2 + x.level - x.visits / 10
        + x.share + x.price / 40 + x.active + (x.city == "Oslo") * 2 - (x.plan == "pro")
        + rng.normal(0, 0.5, len(x))
    ).to_numpy(np.float64)  # fmt: skip
    codes = np.digitize(value, np.quantile(value, [0.3, 0.7]))
    half = (value > np.median(value)).astype(np.int64)
    return {
        "value": value,
        "count": np.round(np.exp((value - value.mean()) / 3)),
        "half": half,
        "three": codes,
        "string": oracles.classes("string", half),
        "bool": oracles.classes("bool", half),
        "int64": oracles.classes("int64", half),
        "float64": oracles.classes("float64", half),
        "strings": oracles.classes("string", codes),
        "ints": oracles.classes("int64", codes),
    }


def arrow(table: pd.DataFrame) -> pa.Table:
    """`table` as SQL will hold it, with a row number `id`; missing floats are NaN or NULL."""
    columns: dict[str, Any] = {"id": pa.array(range(len(table)))}
    for name, kind in COLUMNS.items():
        gone = table[name].isna().to_numpy(copy=True)
        values = table[name].astype(object).to_numpy(copy=True)
        if pa.types.is_decimal(kind):
            values[~gone] = [decimal.Decimal(f"{v:.2f}") for v in values[~gone]]
        if pa.types.is_integer(kind):
            values[~gone] = [int(v) for v in values[~gone]]
        if pa.types.is_floating(kind):
            gone[::2] = False  # every second missing value stays a NaN
        values[gone] = None
        columns[name] = pa.array(values, kind, from_pandas=False, mask=gone)
    return pa.table(columns)


# -- what the models are trained on


def categories(table: pd.DataFrame) -> pd.DataFrame:
    """Strings as pandas categories, the same ones however few rows there are; others missing."""
    known = {"city": sorted(oracles.CITIES), "plan": sorted(oracles.PLANS)}
    chosen = {n: pd.CategoricalDtype(c) for n, c in known.items() if n in table}
    seen = {n: table[n].where(table[n].isin(c.categories)) for n, c in chosen.items()}
    return table.assign(**seen).astype(chosen)


def wide(table: pd.DataFrame) -> pd.DataFrame:
    """Numbers as float64, so that a source which would compute in float32 loses no digits."""
    return table.astype({n: np.float64 for n in table if n not in TEXT})


# -- models


def prepared(*, ordinal: bool = False) -> Any:
    """Imputation, scaling and encoding of numbers and strings."""
    if ordinal:
        encoder: Any = OrdinalEncoder(
            handle_unknown="use_encoded_value", unknown_value=-1, encoded_missing_value=-2
        )
        numbers = make_pipeline(SimpleImputer(add_indicator=True), MinMaxScaler((-1, 2)))
    else:
        encoder = make_pipeline(
            SimpleImputer(strategy="most_frequent"),
            OneHotEncoder(handle_unknown="infrequent_if_exist", min_frequency=60),
        )
        numbers = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
    return make_column_transformer(
        (numbers, ["age", "price", "visits", "share"]), (encoder, TEXT), ("passthrough", ["level"])
    )


def fitted(model: Any) -> Callable[[Any, Any], Any]:
    """A step that fits `model` with silenced warnings (too few iterations, and the like)."""

    def fit(x: Any, y: Any) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return model.fit(x, y)

    return fit


def _linear(model: Any, target: str, features: list[str], **more: Any) -> Entry:
    return Entry(fitted(model), target, features, **more)


def _tree(model: Any, target: str, features: list[str], **more: Any) -> Entry:
    return Entry(fitted(model), target, features, tree=True, **more)


def _xgb(target: str, features: list[str] = NUMBERS, *, deep: bool = False, **params: Any) -> Entry:
    task = xgb.XGBRegressor if target in ("value", "count") else xgb.XGBClassifier
    model = task(**{"n_estimators": 8, "max_depth": 4, "n_jobs": 1, **params})
    view = categories if "plan" in features else wide
    return Entry(
        fitted(model), target, features, view,
        tree=params.get("booster") != "gblinear", deep=deep, exact="score", digits=3e-7,
        unseen=False,
    )  # fmt: skip


def _lgb(target: str, features: list[str] = NUMBERS, **params: Any) -> Entry:
    task = lgb.LGBMRegressor if target in ("value", "count") else lgb.LGBMClassifier
    given = {"n_estimators": 8, "num_leaves": 12, "min_child_samples": 5, "n_jobs": 1}
    model = task(**{**given, "verbose": -1, **params})
    view = categories if "plan" in features else wide
    return Entry(fitted(model), target, features, view, tree=True, exact="score")


_FOREST = {"n_estimators": 7, "max_depth": 6, "random_state": 0}
_BOOST: dict[str, Any] = {"n_estimators": 9, "max_depth": 3, "random_state": 0}
_HIST: dict[str, Any] = {"max_iter": 8, "max_leaf_nodes": 12, "min_samples_leaf": 5}
_LOGISTIC: dict[str, Any] = {"max_iter": 300}

MODELS: Mapping[str, Entry] = MappingProxyType(
    {
        # linear models and the transformers before them
        "pipeline logistic, strings, one-hot": _linear(
            make_pipeline(prepared(), LogisticRegression(**_LOGISTIC)), "string",
            [*NUMBERS, *TEXT],
        ),
        "pipeline logistic, 3 strings, ordinal": _linear(
            make_pipeline(prepared(ordinal=True), LogisticRegression(**_LOGISTIC)), "strings",
            [*NUMBERS, *TEXT],
        ),
        "logistic, bool": _linear(LogisticRegression(**_LOGISTIC), "bool", WHOLE),
        "logistic, float": _linear(LogisticRegression(**_LOGISTIC), "float64", WHOLE),
        "logistic, float32 columns": _linear(
            LogisticRegression(**_LOGISTIC), "int64", SMALL, view=wide
        ),
        "logistic, 3 ints, scaled": _linear(
            make_pipeline(StandardScaler(), LogisticRegression(**_LOGISTIC)), "ints", WHOLE
        ),
        "linear": _linear(LinearRegression(), "value", WHOLE),
        "pipeline linear, imputed by a constant": _linear(
            make_pipeline(SimpleImputer(strategy="constant", fill_value=-1), LinearRegression()),
            "value", NUMBERS,
        ),
        "ridge": _linear(Ridge(0.3), "value", SMALL, view=wide),
        "pipeline ridge, one-hot drops, min-max clips": _linear(
            make_pipeline(
                make_column_transformer(
                    (OneHotEncoder(drop="first"), [*TEXT, "zip"]),
                    (MinMaxScaler(clip=True), ["ratio", "level"]),
                ),
                Ridge(),
            ),
            "value", ["ratio", "level", "zip", *TEXT], view=wide, unseen=False,
        ),
        # trees and forests
        "tree, bool": _tree(
            DecisionTreeClassifier(max_depth=5, random_state=0), "bool", NUMBERS, exact="all"
        ),
        "tree, 3 strings, deep": _tree(
            DecisionTreeClassifier(random_state=1, splitter="random"), "strings", NUMBERS,
            deep=True, exact="all",
        ),
        "tree, float32 columns": _tree(
            DecisionTreeClassifier(max_depth=7, random_state=0), "ints", GAPS, exact="all"
        ),
        "tree, numbers": _tree(
            DecisionTreeRegressor(max_depth=6, random_state=0), "value", NUMBERS, exact="all"
        ),
        "forest, 3 strings": _tree(
            RandomForestClassifier(**_FOREST), "strings", NUMBERS, exact="all"
        ),
        "forest, float": _tree(
            RandomForestClassifier(**_FOREST), "float64", NUMBERS, exact="all"
        ),
        "forest, numbers": _tree(RandomForestRegressor(**_FOREST), "value", NUMBERS, exact="all"),
        "pipeline forest, ordinal": _tree(
            make_pipeline(prepared(ordinal=True), RandomForestClassifier(**_FOREST)), "string",
            [*NUMBERS, *TEXT], exact="all",
        ),
        # gradient boosting
        "boosting, int": _tree(
            GradientBoostingClassifier(**_BOOST), "int64", WHOLE, exact="score"
        ),
        "boosting, 3 strings": _tree(
            GradientBoostingClassifier(**_BOOST, subsample=0.8), "strings", WHOLE, exact="score"
        ),
        "boosting, numbers": _tree(
            GradientBoostingRegressor(**_BOOST), "value", SMALL, exact="all"
        ),
        "pipeline boosting, one-hot": _tree(
            make_pipeline(prepared(), GradientBoostingClassifier(**_BOOST)), "bool",
            [*NUMBERS, *TEXT], exact="score",
        ),
        "hist boosting, string, categories": _tree(
            HistGradientBoostingClassifier(**_HIST), "string", [*NUMBERS, *TEXT],
            view=categories, exact="score",
        ),
        "hist boosting, 3 ints": _tree(
            HistGradientBoostingClassifier(**_HIST), "ints", NUMBERS, exact="score"
        ),
        "hist boosting, numbers": _tree(
            HistGradientBoostingRegressor(**_HIST), "value", NUMBERS, exact="all"
        ),
        "hist boosting, counts, float32 columns": _tree(
            HistGradientBoostingRegressor(**_HIST, loss="poisson"), "count", GAPS
        ),
        # XGBoost: labels are 0, 1, ..
        "xgboost, 2 classes": _xgb("half"),
        "xgboost, 3 classes": _xgb("three"),
        # Of category names outside ASCII, XGBoost 3.2 stores only a part.
        "xgboost, 2 classes, categories": _xgb("half", [*NUMBERS, "plan"], enable_categorical=True),
        "xgboost, 3 classes, dart, float32 columns": _xgb(
            "three", GAPS, booster="dart", rate_drop=0.3
        ),
        "xgboost, numbers": _xgb("value"),
        "xgboost, numbers, 1 is missing": _xgb("value", missing=1.0),
        "xgboost, numbers, linear": _xgb("value", booster="gblinear"),
        "xgboost, counts, deep": _xgb(
            "count", objective="count:poisson", max_depth=12, min_child_weight=0.01,
            deep=True,
        ),
        # LightGBM
        "lightgbm, string": _lgb("string"),
        "lightgbm, bool, categories": _lgb("bool", [*NUMBERS, *TEXT], min_data_per_group=5),
        "lightgbm, 3 strings": _lgb("strings"),
        "lightgbm, 3 ints, zero is missing": _lgb("ints", zero_as_missing=True),
        "lightgbm, float, float32 columns": _lgb("float64", GAPS),
        "lightgbm, numbers": _lgb("value"),
        "lightgbm, counts, categories": _lgb(
            "count", [*NUMBERS, *TEXT], objective="poisson", min_data_per_group=5
        ),
    }
)  # fmt: skip


@cache
def model(name: str) -> Any:
    """The fitted model called `name`."""
    entry = MODELS[name]
    table = people()
    return entry.fit(entry.view(table[entry.features]), targets(table)[entry.target])


@cache
def rows(name: str) -> pd.DataFrame:
    """Rows to score: 120 of `people`, and about 1000 on and beside the model's thresholds.

    Some have categories that are not in `people`, where the model takes them.
    """
    table = people()
    ordinary = table.iloc[:120].reset_index(drop=True)
    features = MODELS[name].features
    if MODELS[name].unseen:
        ordinary.loc[::7, "city"] = "Atlantis"
        ordinary.loc[::11, "plan"] = "gold"
    found = thresholds(model(name), features)
    if not found:
        return ordinary
    numbers = [n for n in features if n not in TEXT]
    like = table[numbers].to_numpy(np.float64)
    like = np.column_stack([like, np.arange(len(table))])  # which row a row was
    columns = {numbers.index(n): t for n, t in found.items() if n in numbers}
    # A row on a threshold matters only where its path meets that node, so there are many of it.
    several = [oracles.threshold_rows(columns, like, limit=350, seed=seed) for seed in range(3)]
    ties = np.concatenate(several)
    beside = table.iloc[ties[:, -1].astype(int)].reset_index(drop=True)
    beside[numbers] = pd.DataFrame(ties[:, :-1], columns=numbers)
    beside = beside.astype({"active": bool})
    beside["level"] = beside["level"].round().clip(-100, 100)
    return typed(pd.concat([ordinary, beside], ignore_index=True))


def thresholds(made: Any, features: list[str]) -> dict[str, Array]:
    """Column -> the library's own thresholds on it; {} for a pipeline or a model without trees."""
    kind = type(made).__module__.split(".")
    pairs: list[tuple[str, float]] = []
    if kind[0] == "xgboost" and made.booster != "gblinear":
        booster = json.loads(made.get_booster().save_raw("json"))["learner"]["gradient_booster"]
        for tree in booster.get("gbtree", booster)["model"]["trees"]:
            splits = zip(
                tree["left_children"], tree["split_type"], tree["split_indices"],
                tree["split_conditions"], strict=True,
            )  # fmt: skip
            pairs += [(features[f], t) for left, text, f, t in splits if left >= 0 and not text]
    elif kind[0] == "lightgbm":
        dump = made.booster_.trees_to_dataframe()
        dump = dump[dump.decision_type == "<="]
        pairs = list(zip(dump.split_feature, dump.threshold.astype(float), strict=True))
    elif hasattr(made, "_predictors"):
        nodes = np.concatenate([t.nodes for round in made._predictors for t in round])
        nodes = nodes[~nodes["is_leaf"].astype(bool) & ~nodes["is_categorical"].astype(bool)]
        # Categorical columns come first inside the model.
        order = [n for n in features if n in TEXT] + [n for n in features if n not in TEXT]
        pairs = [(order[node["feature_idx"]], node["num_threshold"]) for node in nodes]
    elif hasattr(made, "tree_") or hasattr(made, "estimators_"):
        trees = np.ravel(getattr(made, "estimators_", made))
        for tree in trees:
            inner = tree.tree_.feature >= 0
            names = [features[f] for f in tree.tree_.feature[inner]]
            pairs += zip(names, tree.tree_.threshold[inner], strict=True)
    return {
        name: np.array([t for n, t in pairs if n == name and np.isfinite(t)])
        for name in dict.fromkeys(n for n, _ in pairs)
        if name in features
    }
